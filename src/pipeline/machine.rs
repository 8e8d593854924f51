//! The commit state machine: `(state, event) -> (state, commands)`. Pure; `commit.rs` runs the commands.

use crate::error::Action;

/// Where the transaction stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// No transaction.
    Idle,
    /// Records are in it.
    Open,
    /// Waiting for deliveries.
    Draining,
    /// Offsets on their way.
    Offsets,
    /// Outcome on its way.
    Committing,
    /// Committed; state not yet written.
    Applying,
    /// Being rolled back.
    Aborting,
    /// Producer and state are being rebuilt.
    Rebuilding,
    /// No way on.
    Stopped,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A record was decided.
    Work,
    /// A commit is due.
    Due,
    /// The running command succeeded.
    Done,
    /// The running command failed.
    Failed(Action),
    /// Partitions were lost.
    Lost,
}

/// What to do, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    /// Begin a transaction.
    Begin,
    /// Produce the changelog and wait for all deliveries.
    Drain,
    /// Add offsets.
    SendOffsets,
    /// Commit.
    Commit,
    /// Write overlay and offsets to the store.
    Apply,
    /// Abort the transaction.
    Abort,
    /// Drop overlay and caches, rewind every partition.
    Rollback,
    /// Replace the producer, restore, rewind.
    Rebuild,
    /// End the process.
    Stop,
}

/// The machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    state: State,
}

impl Default for Machine {
    fn default() -> Self {
        Self { state: State::Idle }
    }
}

impl Machine {
    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// One step. Events that mean nothing in a state give no command.
    pub fn step(&mut self, event: Event) -> Vec<Command> {
        use State as S;
        let (next, commands) = match (self.state, event) {
            (S::Stopped, _) => (S::Stopped, vec![]),
            (_, Event::Failed(Action::Stop)) => (S::Stopped, vec![Command::Stop]),
            (_, Event::Failed(Action::Rebuild)) => (S::Rebuilding, vec![Command::Rebuild]),
            // Once committed, what fails here can only be the store.
            (S::Applying | S::Rebuilding, Event::Failed(_)) => (S::Stopped, vec![Command::Stop]),
            (S::Aborting, Event::Failed(_)) => (S::Rebuilding, vec![Command::Rebuild]),
            (S::Idle, Event::Work) => (S::Open, vec![Command::Begin]),
            (S::Idle, Event::Failed(_) | Event::Lost) => (S::Idle, vec![Command::Rollback]),
            (S::Open, Event::Due) => (S::Draining, vec![Command::Drain]),
            (S::Draining, Event::Done) => (S::Offsets, vec![Command::SendOffsets]),
            (S::Offsets, Event::Done) => (S::Committing, vec![Command::Commit]),
            (S::Committing, Event::Done) => (S::Applying, vec![Command::Apply]),
            (S::Applying | S::Aborting | S::Rebuilding, Event::Done) => (S::Idle, vec![]),
            (S::Committing, Event::Lost) => (S::Rebuilding, vec![Command::Rebuild]),
            (S::Open | S::Draining | S::Offsets, Event::Failed(_) | Event::Lost)
            | (S::Committing, Event::Failed(_)) => (S::Aborting, vec![Command::Abort, Command::Rollback]),
            (state, _) => (state, vec![]),
        };
        self.state = next;
        commands
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const EVENTS: [Event; 9] = [
        Event::Work,
        Event::Due,
        Event::Done,
        Event::Lost,
        Event::Failed(Action::RetrySame),
        Event::Failed(Action::Abort),
        Event::Failed(Action::Rebuild),
        Event::Failed(Action::Stop),
        Event::Failed(Action::DeadLetter),
    ];

    /// Every sequence of up to seven events: the store is written only behind a commit, a commit only
    /// behind its offsets, and nothing is committed after a rollback without a new begin (I1, I2).
    #[test]
    fn explored_exhaustively() {
        let mut seen = HashSet::new();
        let mut stack = vec![(Machine::default(), Vec::<Command>::new(), 0)];
        while let Some((machine, log, depth)) = stack.pop() {
            check(&log);
            if depth == 7 {
                continue;
            }
            for event in EVENTS {
                let mut next = machine;
                let mut log = log.clone();
                log.extend(next.step(event));
                if seen.insert((next.state, log.clone(), depth)) {
                    stack.push((next, log, depth + 1));
                }
            }
        }
        assert!(seen.len() > 500);
    }

    fn check(log: &[Command]) {
        for (i, c) in log.iter().enumerate() {
            let before = if i == 0 { None } else { Some(log[i - 1]) };
            match c {
                Command::Apply => assert_eq!(before, Some(Command::Commit), "{log:?}"),
                Command::Commit => assert_eq!(before, Some(Command::SendOffsets), "{log:?}"),
                Command::SendOffsets => assert_eq!(before, Some(Command::Drain), "{log:?}"),
                Command::Drain => assert_eq!(before, Some(Command::Begin), "{log:?}"),
                Command::Begin => assert!(
                    !matches!(before, Some(Command::Begin | Command::Drain | Command::SendOffsets | Command::Commit)),
                    "{log:?}"
                ),
                _ => {}
            }
        }
        assert!(!log.windows(2).any(|w| w[0] == Command::Stop), "nothing follows a stop: {log:?}");
    }
}
