//! Which fault strikes when. Pure: a seed gives the same plan on every machine.

use std::time::Duration;

use crate::generate::rng::Rng;

/// Something bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// kill -9 of a member, and how long it stays away.
    Kill(Duration),
    /// SIGTERM of a member, and how long it stays away.
    Term(Duration),
    /// SIGSTOP of a member for this long.
    Pause(Duration),
    /// One member more for this long.
    Join(Duration),
    /// kill -9 of a broker, and how long it stays away.
    Bounce(Duration),
}

/// A fault with its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Planned {
    /// Since the start.
    pub(crate) at: Duration,
    /// What.
    pub(crate) fault: Fault,
    /// Chooses the victim among those that can be struck then.
    pub(crate) pick: usize,
}

/// What the times of a plan follow from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    /// All faults lie within this time.
    pub(crate) time: Duration,
    /// Number of kill -9.
    pub(crate) kills: u32,
    /// Whether brokers are struck too.
    pub(crate) bounce: bool,
    /// After this long without a heartbeat the group gives a member's partitions away.
    pub(crate) session: Duration,
}

/// One kill in this many keeps its member away for longer than the session.
const LONG: usize = 6;

/// The faults in the order of their times.
pub(crate) fn plan(seed: u64, frame: Frame) -> Vec<Planned> {
    let mut rng = Rng::new(seed, 10);
    let minutes = u32::try_from(frame.time.as_secs() / 60).unwrap_or(u32::MAX).max(1);
    let mut all = Vec::new();
    for at in spread(&mut rng, frame.time, frame.kills) {
        let long = rng.below(LONG) == 0;
        let down = if long { frame.session + millis(&mut rng, 1000, 6000) } else { millis(&mut rng, 0, 1500) };
        all.push(Planned { at, fault: Fault::Kill(down), pick: rng.below(1 << 16) });
    }
    for at in spread(&mut rng, frame.time, frame.kills.div_ceil(8).max(1)) {
        all.push(Planned { at, fault: Fault::Term(millis(&mut rng, 0, 2000)), pick: rng.below(1 << 16) });
    }
    for at in spread(&mut rng, frame.time, minutes) {
        // From shortly below what ends a transaction to well above the session.
        let pause = millis(&mut rng, 7000, 7000 + u64::try_from(frame.session.as_millis()).unwrap_or(u64::MAX));
        all.push(Planned { at, fault: Fault::Pause(pause), pick: rng.below(1 << 16) });
    }
    for at in spread(&mut rng, frame.time, minutes.div_ceil(3)) {
        all.push(Planned { at, fault: Fault::Join(millis(&mut rng, 8000, 25_000)), pick: 0 });
    }
    if frame.bounce {
        for at in spread(&mut rng, frame.time, minutes.div_ceil(4)) {
            all.push(Planned { at, fault: Fault::Bounce(millis(&mut rng, 500, 4000)), pick: rng.below(1 << 16) });
        }
    }
    all.sort_by_key(|p| p.at);
    all
}

/// One time in each of `count` equal parts.
fn spread(rng: &mut Rng, time: Duration, count: u32) -> Vec<Duration> {
    let part = time / count.max(1);
    let within = u64::try_from(part.as_millis()).unwrap_or(u64::MAX);
    (0..count).map(|i| part * i + millis(rng, 0, within)).collect()
}

fn millis(rng: &mut Rng, from: u64, to: u64) -> Duration {
    let width = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
    Duration::from_millis(from + rng.below(width.max(1)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Frame =
        Frame { time: Duration::from_secs(600), kills: 50, bounce: true, session: Duration::from_secs(15) };

    #[test]
    fn a_plan_has_its_kills_in_time_and_follows_its_seed() {
        let all = plan(1, FRAME);
        let count = |f: fn(&Fault) -> bool| all.iter().filter(|p| f(&p.fault)).count();
        assert_eq!(count(|f| matches!(f, Fault::Kill(_))), 50);
        assert!(count(|f| matches!(f, Fault::Bounce(_))) > 0 && count(|f| matches!(f, Fault::Join(_))) > 0);
        assert!(all.iter().all(|p| p.at <= FRAME.time) && all.is_sorted_by_key(|p| p.at));
        assert_eq!(all, plan(1, FRAME));
        assert_ne!(all, plan(2, FRAME));
    }

    #[test]
    fn some_kills_outlast_the_session() {
        let long = |p: &&Planned| matches!(p.fault, Fault::Kill(d) if d > FRAME.session);
        let found = plan(1, FRAME).iter().filter(long).count();
        assert!((2..25).contains(&found), "{found}");
    }
}
