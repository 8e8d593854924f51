//! Runs the commit machine's commands: one transaction moves inputs' offsets, outputs and changelog
//! together (I1); the store is written after it, once (I2).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::failpoint::{Failpoint, Fault, Side};
use super::machine::{Command, Event, State as Phase};
use super::timed::Timed;
use crate::clock::{monotonic, wall_millis};
use crate::config::Sabotage;
use crate::error::{Action, Code, Error};
use crate::sink::{Call, CommitError, Delivered, InputOffset, Output, Transactions};
use crate::state::{Kind, Positions, State, Store};
use crate::topology::{Role, Topology};

/// What the task thread must do after a commit was tried.
#[derive(Debug)]
pub enum Step {
    /// Nothing was open.
    Nothing,
    /// Committed and applied.
    Committed,
    /// Rolled back: drop caches, rewind to the committed offsets.
    Rollback(Error),
    /// Replace producer and state view, then rewind.
    Rebuild(Error),
    /// No way on.
    Stop(Error),
}

/// Faults on purpose, for tests.
#[derive(Debug, Default)]
pub struct Faults {
    /// Breaks a guarantee.
    pub sabotage: Option<Sabotage>,
    /// Breaks a step.
    pub failpoint: Option<Failpoint>,
}

/// Owns the producer and the open transaction.
#[derive(Debug)]
pub struct Committer<P> {
    producer: P,
    machine: Timed,
    names: HashMap<Role, String>,
    limit: Duration,
    opened: Option<Instant>,
    records: usize,
    bytes: usize,
    /// Next offset of each input in the open transaction, by unit.
    offsets: BTreeMap<(i32, Role), i64>,
    /// Next changelog offset of each unit as of the last commit.
    changelog: Delivered,
    failed: Option<CommitError>,
    /// Command that failed first in the last commit.
    failed_at: Option<Command>,
    faults: Faults,
}

impl<P: Transactions> Committer<P> {
    /// Around a fenced producer.
    #[must_use]
    pub fn new(producer: P, topology: &Topology, faults: Faults) -> Self {
        Self {
            producer,
            machine: Timed::default(),
            names: Role::ALL.iter().map(|r| (*r, topology.name(*r).to_owned())).collect(),
            limit: topology.main.commit.transaction_timeout,
            opened: None,
            records: 0,
            bytes: 0,
            offsets: BTreeMap::new(),
            changelog: HashMap::new(),
            failed: None,
            failed_at: None,
            faults,
        }
    }

    /// After a rebuild: the new producer; the transaction before it is forgotten.
    pub fn replace(&mut self, producer: P) {
        self.producer = producer;
        self.machine.step(Event::Done);
        self.forget();
    }

    /// Where a unit's changelog stands after restore.
    pub fn restored(&mut self, partition: i32, changelog: i64) {
        self.changelog.insert(partition, changelog);
    }

    /// When the open transaction began.
    #[must_use]
    pub fn opened(&self) -> Option<Instant> {
        self.opened
    }

    /// Inputs in the open transaction.
    #[must_use]
    pub fn records(&self) -> usize {
        self.records
    }

    /// Output bytes in the open transaction.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Serves delivery reports.
    pub fn poll(&mut self) {
        self.producer.poll();
        self.machine.tick();
    }

    /// Puts a decided record into the transaction; failures show at the next commit.
    pub fn stage(&mut self, partition: i32, role: Role, next: i64, outputs: Vec<Output>) {
        if self.failed.is_some() {
            return;
        }
        if self.machine.state() == Phase::Idle {
            self.machine.step(Event::Work);
            self.opened = Some(monotonic());
            if let Err(e) = self.begin() {
                self.failed = Some(e);
                return;
            }
        }
        self.records += 1;
        self.offsets.insert((partition, role), next);
        for o in outputs {
            self.bytes += o.bytes();
            if let Err(e) = self.producer.send(&self.names[&o.role], &o) {
                self.failed = Some(e);
                return;
            }
        }
    }

    /// Whether a step has failed already, so that a commit is due at once.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// The command that failed first in the last commit.
    #[must_use]
    pub fn failed_at(&self) -> Option<Command> {
        self.failed_at
    }

    /// Commits what is open. `group` is the metadata of the generation that every record of the
    /// transaction belongs to; without it nothing can be committed (I5).
    pub fn commit<S: Store>(&mut self, state: &mut State<S>, group: Option<Arc<P::Group>>) -> Step {
        if self.machine.state() == Phase::Idle && self.failed.is_none() {
            return Step::Nothing;
        }
        let group = group.as_ref();
        self.failed_at = None;
        if let Some(e) = self.failed.take() {
            self.failed_at = Some(Command::Drain);
            return self.run(Event::Failed(e.action), Some(e.error), state, group);
        }
        if self.opened.is_some_and(|t| t.elapsed() >= self.limit) {
            let why = format!("the transaction was open for longer than {:?}", self.limit);
            return self.run(Event::Expired, Some(Error::new(Code::TransactionAborted, why)), state, group);
        }
        self.run(Event::Due, None, state, group)
    }

    /// Rolls back what is open.
    pub fn lose<S: Store>(&mut self, state: &mut State<S>) -> Step {
        if self.machine.state() == Phase::Idle {
            return Step::Nothing;
        }
        let why = Error::new(Code::TransactionAborted, "partitions were lost");
        self.run(Event::Lost, Some(why), state, None)
    }

    fn run<S: Store>(
        &mut self,
        event: Event,
        mut cause: Option<Error>,
        state: &mut State<S>,
        group: Option<&Arc<P::Group>>,
    ) -> Step {
        let mut delivered = Delivered::new();
        let mut queue: VecDeque<Command> = self.machine.step(event).into();
        while let Some(command) = queue.pop_front() {
            match command {
                Command::Rollback => {
                    state.abort();
                    self.forget();
                    self.machine.step(Event::Done);
                    return Step::Rollback(cause.unwrap_or_else(lost));
                }
                Command::Rebuild => {
                    state.abort();
                    self.forget();
                    return Step::Rebuild(cause.unwrap_or_else(lost));
                }
                Command::Stop => return Step::Stop(cause.unwrap_or_else(lost)),
                _ => {}
            }
            match self.perform(command, state, group, &mut delivered) {
                // Abort is followed by its rollback; every other command waits for its own success.
                Ok(()) if command == Command::Abort => {}
                Ok(()) => queue.extend(self.machine.step(Event::Done)),
                Err(e) => {
                    self.failed_at.get_or_insert(command);
                    cause = Some(e.error);
                    queue = self.machine.step(Event::Failed(e.action)).into();
                }
            }
        }
        self.forget();
        Step::Committed
    }

    fn perform<S: Store>(
        &mut self,
        command: Command,
        state: &mut State<S>,
        group: Option<&Arc<P::Group>>,
        delivered: &mut Delivered,
    ) -> Outcome<()> {
        self.strike(command, Side::Before)?;
        match command {
            Command::Drain => *delivered = self.drain(state)?,
            Command::SendOffsets => {
                if self.faults.sabotage == Some(Sabotage::ApplyBeforeCommit) {
                    self.apply(state, delivered)?;
                }
                self.send_offsets(group)?;
            }
            Command::Commit => self.producer.commit()?,
            Command::Apply => self.apply(state, delivered)?,
            Command::Abort => self.producer.abort()?,
            Command::Begin | Command::Rollback | Command::Rebuild | Command::Stop => {}
        }
        self.strike(command, Side::After)
    }

    fn begin(&mut self) -> Outcome<()> {
        self.strike(Command::Begin, Side::Before)?;
        self.producer.begin()?;
        self.strike(Command::Begin, Side::After)
    }

    fn strike(&mut self, command: Command, side: Side) -> Outcome<()> {
        let Some(fault) = self.faults.failpoint.as_mut().and_then(|f| f.pass(command, side)) else {
            return Ok(());
        };
        tracing::warn!(?command, ?side, ?fault, "failpoint");
        let call = match command {
            Command::Begin => Call::Begin,
            Command::Drain => Call::Deliver,
            Command::SendOffsets => Call::Offsets,
            Command::Abort => Call::Abort,
            _ => Call::Commit,
        };
        match fault {
            Fault::Abort => die(),
            Fault::Error => Err(CommitError::refused(call, side == Side::Before)),
            Fault::Timeout => Err(CommitError::timed_out(call)),
            Fault::Stall(time) => {
                std::thread::sleep(time);
                Ok(())
            }
        }
    }

    fn forget(&mut self) {
        self.opened = None;
        self.records = 0;
        self.bytes = 0;
        self.offsets.clear();
        self.failed = None;
    }

    fn drain<S: Store>(&mut self, state: &State<S>) -> Outcome<Delivered> {
        let topic = &self.names[&Role::Changelog];
        let dropped = self.faults.sabotage == Some(Sabotage::ChangelogDropped);
        for (key, value) in state.overlay().iter() {
            if dropped && key.first() == Some(&(Kind::Unit as u8)) {
                continue;
            }
            let unit = key.get(1..5).map_or(0, |b| i32::from_be_bytes([b[0], b[1], b[2], b[3]]));
            self.producer.log_change(topic, unit, key, value)?;
        }
        let delivered = self.producer.drain()?;
        for (unit, last) in &delivered {
            let next = self.changelog.get(unit).copied().unwrap_or_default();
            if *last < next {
                let what = format!("{topic}-{unit} gave offset {last} after {next}: it was made anew during the run");
                return Err(CommitError { action: Action::Stop, error: Error::new(Code::TopicRecreated, what) });
            }
        }
        Ok(delivered)
    }

    fn send_offsets(&mut self, group: Option<&Arc<P::Group>>) -> Outcome<()> {
        let Some(group) = group else {
            let error = Error::new(Code::TransactionAborted, "the assignment has changed");
            return Err(CommitError { action: Action::Abort, error });
        };
        let offset = |((unit, role), next): (&(i32, Role), &i64)| InputOffset {
            topic: self.names[role].clone(),
            partition: *unit,
            next: *next,
        };
        let offsets: Vec<InputOffset> = self.offsets.iter().map(offset).collect();
        self.producer.send_offsets(&offsets, group)
    }

    /// The store is written once, behind the commit; what fails here ends the process.
    fn apply<S: Store>(&mut self, state: &mut State<S>, delivered: &Delivered) -> Outcome<()> {
        let stop = |error: Error| CommitError { action: Action::Stop, error };
        for (unit, last) in delivered {
            self.changelog.insert(*unit, last + 1);
        }
        let mut units: BTreeMap<i32, BTreeMap<String, i64>> = BTreeMap::new();
        for ((unit, role), next) in &self.offsets {
            units.entry(*unit).or_default().insert(role.as_str().to_owned(), *next);
        }
        let saved_at = wall_millis();
        let mut extra = Vec::new();
        for (unit, inputs) in units {
            let changelog = self.changelog.get(&unit).copied().unwrap_or_default();
            let mut all = Positions::of(state.store(), unit).map_err(stop)?.map(|p| p.inputs).unwrap_or_default();
            all.extend(inputs);
            extra.push(Positions { changelog, inputs: all, saved_at }.change(unit));
        }
        state.commit(extra).map_err(stop)
    }
}

/// As `kill -9` would; a test in this process catches it.
fn die() -> ! {
    if cfg!(test) {
        std::panic::panic_any("died at a failpoint");
    }
    std::process::abort()
}

type Outcome<T> = std::result::Result<T, CommitError>;

fn lost() -> Error {
    Error::new(Code::TransactionAborted, "the transaction was rolled back")
}
