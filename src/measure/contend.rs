//! Contenders on one machine: rounds in turn, medians and ranges.

use std::time::Duration;

use serde::Serialize;

use crate::clock::{monotonic, thread_time};

/// Shortest time of one sample: well above a clock's step.
const SAMPLE: Duration = Duration::from_millis(10);

/// Most repetitions in a sample.
const MOST: u32 = 20_000;

/// A median with the range of its rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The middle round.
    pub median: f64,
    /// The smallest.
    pub low: f64,
    /// The largest.
    pub high: f64,
}

impl Spread {
    /// Of some rounds; zeros without any.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let low = values.iter().copied().reduce(f64::min).unwrap_or(0.0);
        let high = values.iter().copied().reduce(f64::max).unwrap_or(0.0);
        Self { median: median(values), low, high }
    }
}

/// The middle value, the mean of the two middle ones; 0 without values.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.get(middle) {
        None => 0.0,
        Some(high) if sorted.len() % 2 == 1 => *high,
        Some(high) => f64::midpoint(sorted[middle - 1], *high),
    }
}

/// Which time is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clock {
    /// Of this thread on a CPU: fair on a machine that others use too.
    Thread,
    /// Of the wall: for work that goes on elsewhere, such as on a device.
    Wall,
}

/// Microseconds a call of each contender in each round. One round is thrown away; then contenders take turns, in the
/// order A B C and C B A.
pub(super) fn race(contenders: &mut [Box<dyn FnMut() + '_>], rounds: usize, clock: Clock) -> Vec<Vec<f64>> {
    let repeats: Vec<u32> = contenders.iter_mut().map(|c| repeats(c, clock)).collect();
    let mut times = vec![Vec::new(); contenders.len()];
    for round in 0..=rounds {
        let forward: Vec<usize> = (0..contenders.len()).collect();
        let order = if round % 2 == 0 { forward } else { forward.into_iter().rev().collect() };
        for i in order {
            let time = timed(clock, || (0..repeats[i]).for_each(|_| contenders[i]()));
            if round > 0 {
                times[i].push(time.as_secs_f64() * 1e6 / f64::from(repeats[i]));
            }
        }
    }
    times
}

fn repeats(contender: &mut Box<dyn FnMut() + '_>, clock: Clock) -> u32 {
    contender();
    let once = timed(clock, &mut *contender).max(Duration::from_nanos(100));
    u32::try_from(SAMPLE.as_nanos() / once.as_nanos()).unwrap_or(MOST).clamp(1, MOST)
}

fn timed(clock: Clock, work: impl FnOnce()) -> Duration {
    match clock {
        Clock::Thread => {
            let start = thread_time();
            work();
            thread_time().saturating_sub(start)
        }
        Clock::Wall => {
            let start = monotonic();
            work();
            start.elapsed()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_and_turns() {
        let found = Spread::of(&[3.0, 1.0, 2.0, 10.0]);
        assert_eq!(found, Spread { median: 2.5, low: 1.0, high: 10.0 });
        assert_eq!(Spread::of(&[]), Spread { median: 0.0, low: 0.0, high: 0.0 });
        let (mut a, mut b) = (0_u64, 0_u64);
        for clock in [Clock::Thread, Clock::Wall] {
            let times = race(&mut [Box::new(|| a += 1), Box::new(|| b += 1)], 3, clock);
            assert!(times.iter().all(|t| t.len() == 3 && t.iter().all(|x| *x >= 0.0)));
        }
        assert!(a > 10 && b > 10);
    }
}
