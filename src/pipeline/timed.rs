//! The commit machine with a clock on its states: what `/metrics` says of transactions is measured here,
//! at the edges, so that the machine stays pure.

use std::time::Instant;

use super::machine::{Command, Event, Machine, State};
use crate::clock::monotonic;
use crate::telemetry::{Seconds, health, metrics};

const STATES: [(State, &str); 9] = [
    (State::Idle, "idle"),
    (State::Open, "open"),
    (State::Draining, "draining"),
    (State::Offsets, "offsets"),
    (State::Committing, "committing"),
    (State::Applying, "applying"),
    (State::Aborting, "aborting"),
    (State::Rebuilding, "rebuilding"),
    (State::Stopped, "stopped"),
];

/// A machine that measures itself.
#[derive(Debug)]
pub(super) struct Timed {
    machine: Machine,
    since: Instant,
    opened: Instant,
    due: Instant,
    seconds: Vec<(State, Seconds)>,
}

impl Default for Timed {
    fn default() -> Self {
        let of = |name: &str| metrics().txn_state_seconds.get_or_create_owned(&vec![("state", name.to_owned())]);
        let seconds = STATES.iter().map(|(state, name)| (*state, of(name))).collect();
        let now = monotonic();
        Self { machine: Machine::default(), since: now, opened: now, due: now, seconds }
    }
}

impl Timed {
    pub(super) fn state(&self) -> State {
        self.machine.state()
    }

    /// One step of the machine.
    pub(super) fn step(&mut self, event: Event) -> Vec<Command> {
        let before = self.state();
        let commands = self.machine.step(event);
        if self.state() != before {
            self.passed(before);
            self.moved(before);
        }
        for outcome in commands.iter().filter_map(|c| outcome(before, *c)) {
            metrics().transactions.get_or_create(&vec![("outcome", outcome.to_owned())]).inc();
        }
        commands
    }

    /// Books the time in the present state, so that a long one shows before it ends.
    pub(super) fn tick(&mut self) {
        self.passed(self.state());
    }

    fn passed(&mut self, state: State) {
        let now = monotonic();
        if let Some((_, seconds)) = self.seconds.iter().find(|(s, _)| *s == state) {
            seconds.inc_by(now.duration_since(self.since).as_secs_f64());
        }
        self.since = now;
    }

    fn moved(&mut self, before: State) {
        match (before, self.state()) {
            (State::Idle, State::Open) => {
                self.opened = self.since;
                health().transaction(Some(self.since));
            }
            (State::Open, State::Draining) => self.due = self.since,
            (State::Committing, State::Applying) => {
                metrics().commit_latency.observe_duration(self.since.duration_since(self.due));
                metrics().txn_seconds.observe_duration(self.since.duration_since(self.opened));
            }
            (_, State::Idle | State::Stopped) => health().transaction(None),
            _ => {}
        }
    }
}

/// How a transaction ends by a command; an empty rollback ends none.
fn outcome(before: State, command: Command) -> Option<&'static str> {
    match command {
        Command::Apply => Some("committed"),
        Command::Rollback if before != State::Idle => Some("aborted"),
        Command::Rebuild => Some("rebuilt"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Action;

    fn seconds() -> f64 {
        STATES
            .iter()
            .map(|(_, name)| metrics().txn_state_seconds.get_or_create(&vec![("state", (*name).to_owned())]).get())
            .sum()
    }

    /// Every outcome is told once, and the states' times are booked. The counters are the process's: other
    /// tests move them, too.
    #[test]
    fn outcomes_and_times() {
        let booked = seconds();
        let (mut timed, mut outcomes) = (Timed::default(), Vec::new());
        let mut step = |timed: &mut Timed, event| {
            let before = timed.state();
            outcomes.extend(timed.step(event).into_iter().filter_map(|c| outcome(before, c)));
        };
        for event in [Event::Work, Event::Due, Event::Done, Event::Done, Event::Done, Event::Done] {
            std::thread::sleep(std::time::Duration::from_millis(3));
            step(&mut timed, event);
        }
        assert_eq!(timed.state(), State::Idle);
        step(&mut timed, Event::Lost);
        for event in [Event::Work, Event::Lost, Event::Done] {
            step(&mut timed, event);
        }
        for event in [Event::Work, Event::Due, Event::Failed(Action::Rebuild), Event::Done] {
            step(&mut timed, event);
        }
        timed.tick();
        assert_eq!(outcomes, ["committed", "aborted", "rebuilt"], "an empty rollback is none");
        let passed = seconds() - booked;
        assert!(passed >= 0.018, "{passed} s are booked");
    }
}
