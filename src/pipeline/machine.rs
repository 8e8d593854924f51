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
    /// The transaction is older than its limit (I6): the broker may have ended it.
    Expired,
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
            (S::Open | S::Draining | S::Offsets, Event::Failed(_) | Event::Lost | Event::Expired)
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
    use std::collections::{HashSet, VecDeque};

    use proptest::prelude::*;

    /// The broker and the disk, as far as the invariants speak of them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    struct World {
        outputs: u8,
        offsets: u8,
        store: u8,
        open: bool,
        drained: bool,
        offsets_sent: bool,
        /// The assignment of the open records is gone.
        stale: bool,
        expired: bool,
    }

    /// How a command may end.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum End {
        Ok,
        Refused,
        /// No answer: done or not done.
        UnknownDone,
        UnknownNot,
        Fatal,
    }

    const ENDS: [End; 5] = [End::Ok, End::Refused, End::UnknownDone, End::UnknownNot, End::Fatal];

    impl World {
        /// Runs a command that ends so; the event that the machine hears.
        fn perform(&mut self, command: Command, end: End) -> Event {
            let done = matches!(end, End::Ok | End::UnknownDone);
            match command {
                Command::Drain if done => self.drained = true,
                Command::SendOffsets if done => {
                    assert!(self.drained, "offsets behind their outputs");
                    // KIP-447: the broker refuses offsets of an old generation, the snapshot before it.
                    if self.stale {
                        return Event::Failed(Action::Abort);
                    }
                    self.offsets_sent = true;
                }
                Command::Commit if done => {
                    assert!(self.open && !self.stale && !self.expired, "I5, I6: {self:?}");
                    self.outputs += 1;
                    self.offsets += u8::from(self.offsets_sent);
                    self.close();
                }
                Command::Apply if done => self.store = self.outputs,
                Command::Abort if done => self.close(),
                _ => {}
            }
            match (command, end) {
                (_, End::Ok) => Event::Done,
                (_, End::Fatal) => Event::Failed(Action::Rebuild),
                (Command::Apply, _) => Event::Failed(Action::Stop),
                (Command::Commit | Command::Abort, End::UnknownDone | End::UnknownNot) => {
                    Event::Failed(Action::Rebuild)
                }
                _ => Event::Failed(Action::Abort),
            }
        }

        fn close(&mut self) {
            *self = Self { outputs: self.outputs, offsets: self.offsets, store: self.store, ..Self::default() };
        }

        fn check(&self, machine: Machine, crashed: bool) {
            assert_eq!(self.outputs, self.offsets, "I1: {self:?}");
            assert!(self.store <= self.outputs, "I2: {self:?}");
            if machine.state() == State::Idle && !crashed {
                assert_eq!(self.store, self.outputs, "I3: {self:?}");
                assert!(!self.open, "nothing is open at rest: {self:?}");
            }
        }
    }

    /// As the coordinator runs commands, with every way that each may end.
    fn successors(machine: Machine, world: World, event: Event) -> Vec<(Machine, World)> {
        let mut next = machine;
        let mut w = world;
        match event {
            Event::Work if machine.state() == State::Idle => w.open = true,
            Event::Lost => w.stale = true,
            Event::Expired => w.expired = true,
            _ => {}
        }
        // Lost and expired speak of what is open.
        if !w.open {
            (w.stale, w.expired) = (false, false);
        }
        let commands: VecDeque<Command> = next.step(event).into();
        let mut done = Vec::new();
        let mut work = vec![(next, w, commands)];
        while let Some((mut m, mut w, mut queue)) = work.pop() {
            w.check(m, true);
            let Some(command) = queue.pop_front() else {
                done.push((m, w));
                continue;
            };
            match command {
                Command::Begin => work.push((m, w, queue)),
                Command::Stop => done.push((m, w)),
                Command::Rollback => {
                    assert!(!w.open, "a rollback behind its abort: {w:?}");
                    m.step(Event::Done);
                    done.push((m, w));
                }
                Command::Rebuild => {
                    // Fenced first, read second.
                    w.close();
                    w.store = w.outputs;
                    m.step(Event::Done);
                    done.push((m, w));
                }
                _ => {
                    for end in ENDS {
                        let (mut m, mut w, mut queue) = (m, w, queue.clone());
                        match w.perform(command, end) {
                            Event::Done if command == Command::Abort => {}
                            Event::Done => queue.extend(m.step(Event::Done)),
                            failed => queue = m.step(failed).into(),
                        }
                        work.push((m, w, queue));
                    }
                }
            }
        }
        done
    }

    const EVENTS: [Event; 6] = [
        Event::Work,
        Event::Due,
        Event::Lost,
        Event::Expired,
        Event::Failed(Action::Abort),
        Event::Failed(Action::Rebuild),
    ];

    /// Every reachable state with up to four transactions: I1, I2, I3, I5 and I6 hold in each.
    #[test]
    fn explored_exhaustively() {
        let mut seen = HashSet::new();
        let mut stack = vec![(Machine::default(), World::default())];
        while let Some((machine, world)) = stack.pop() {
            if world.outputs > 4 || !seen.insert((machine.state(), world)) {
                continue;
            }
            for event in EVENTS {
                for (m, w) in successors(machine, world, event) {
                    if m.state() != State::Stopped {
                        w.check(m, false);
                    }
                    stack.push((m, w));
                }
            }
        }
        assert!(seen.len() > 15, "{}", seen.len());
        assert!(seen.iter().any(|(s, _)| *s == State::Stopped));
    }

    proptest! {
        /// The machine alone, driven by anything: the store is written only behind a commit, a commit only
        /// behind its offsets, and nothing is committed after a rollback without a new begin.
        #[test]
        fn commands_keep_their_order(events in prop::collection::vec(0..12_usize, 0..40)) {
            let all = [
                Event::Work, Event::Due, Event::Done, Event::Done, Event::Done, Event::Lost, Event::Expired,
                Event::Failed(Action::RetrySame), Event::Failed(Action::Abort), Event::Failed(Action::Rebuild),
                Event::Failed(Action::Stop), Event::Failed(Action::DeadLetter),
            ];
            let mut machine = Machine::default();
            let mut log = Vec::new();
            for e in events {
                log.extend(machine.step(all[e]));
            }
            for pair in log.windows(2) {
                let behind = |c: Command| pair[1] != c;
                prop_assert!(behind(Command::Apply) || pair[0] == Command::Commit);
                prop_assert!(behind(Command::Commit) || pair[0] == Command::SendOffsets);
                prop_assert!(behind(Command::SendOffsets) || pair[0] == Command::Drain);
                prop_assert!(behind(Command::Drain) || pair[0] == Command::Begin);
                prop_assert!(pair[0] != Command::Stop);
            }
        }
    }
}
