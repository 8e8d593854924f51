//! Runs the commit machine's commands: one transaction moves inputs' offsets, outputs and changelog
//! together (I1); the store is written after it, once (I2).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use super::machine::{Command, Event, Machine, State as Phase};
use crate::clock::{monotonic, wall_millis};
use crate::error::{Action, Error, Result};
use crate::sink::{CommitError, Delivered, Output, TransactionalProducer};
use crate::source::GroupMetadata;
use crate::state::{Db, Positions, State};
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

/// Owns the producer and the open transaction.
#[derive(Debug)]
pub struct Committer {
    producer: TransactionalProducer,
    machine: Machine,
    names: HashMap<Role, String>,
    opened: Option<Instant>,
    records: usize,
    bytes: usize,
    /// Next offset of each input in the open transaction, by unit.
    offsets: BTreeMap<(i32, Role), i64>,
    /// Next changelog offset of each unit as of the last commit.
    changelog: Delivered,
    failed: Option<CommitError>,
}

impl Committer {
    /// Around a fenced producer.
    #[must_use]
    pub fn new(producer: TransactionalProducer, topology: &Topology) -> Self {
        Self {
            producer,
            machine: Machine::default(),
            names: Role::ALL.iter().map(|r| (*r, topology.name(*r).to_owned())).collect(),
            opened: None,
            records: 0,
            bytes: 0,
            offsets: BTreeMap::new(),
            changelog: HashMap::new(),
            failed: None,
        }
    }

    /// After a rebuild: the new producer; the transaction before it is forgotten.
    pub fn replace(&mut self, producer: TransactionalProducer) {
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
    pub fn poll(&self) {
        self.producer.poll();
    }

    /// Puts a decided record into the transaction; failures show at the next commit.
    pub fn stage(&mut self, partition: i32, role: Role, next: i64, outputs: Vec<Output>) {
        if self.failed.is_some() {
            return;
        }
        if self.machine.state() == Phase::Idle {
            self.machine.step(Event::Work);
            self.opened = Some(monotonic());
            if let Err(e) = self.producer.begin() {
                self.failed = Some(e);
                return;
            }
        }
        self.records += 1;
        self.offsets.insert((partition, role), next);
        for o in outputs {
            self.bytes += o.bytes();
            let sent =
                self.producer.send(&self.names[&o.role], o.partition, &o.key, o.value.as_deref(), &o.headers, false);
            if let Err(e) = sent {
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

    /// Commits what is open. `group` is the metadata of the generation that every record of the
    /// transaction belongs to; without it nothing can be committed (I5).
    pub fn commit(&mut self, state: &mut State<Db>, group: Option<Arc<GroupMetadata>>) -> Step {
        if self.machine.state() == Phase::Idle && self.failed.is_none() {
            return Step::Nothing;
        }
        let event = match self.failed.take() {
            Some(e) => return self.run(Event::Failed(e.action), Some(e.error), state, group),
            None => Event::Due,
        };
        self.run(event, None, state, group)
    }

    /// Rolls back what is open.
    pub fn lose(&mut self, state: &mut State<Db>) -> Step {
        if self.machine.state() == Phase::Idle {
            return Step::Nothing;
        }
        let why = Error::new(crate::error::Code::TransactionAborted, "partitions were lost");
        self.run(Event::Lost, Some(why), state, None)
    }

    fn run(
        &mut self,
        event: Event,
        cause: Option<Error>,
        state: &mut State<Db>,
        group: Option<Arc<GroupMetadata>>,
    ) -> Step {
        let mut cause = cause;
        let mut delivered = Delivered::new();
        let mut queue: std::collections::VecDeque<Command> = self.machine.step(event).into();
        while let Some(command) = queue.pop_front() {
            let done = match command {
                Command::Begin => self.producer.begin(),
                Command::Drain => self.drain(state).map(|d| delivered = d),
                Command::SendOffsets => self.send_offsets(group.as_deref()),
                Command::Commit => self.producer.commit(),
                Command::Apply => match self.apply(state, &delivered) {
                    Ok(()) => Ok(()),
                    Err(error) => Err(CommitError { action: Action::Stop, error }),
                },
                Command::Abort => self.producer.abort(),
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
            };
            match done {
                // Abort is followed by its rollback; every other command waits for its own success.
                Ok(()) if command == Command::Abort => {}
                Ok(()) => queue.extend(self.machine.step(Event::Done)),
                Err(e) => {
                    cause = Some(e.error);
                    queue = self.machine.step(Event::Failed(e.action)).into();
                }
            }
        }
        self.forget();
        Step::Committed
    }

    fn forget(&mut self) {
        self.opened = None;
        self.records = 0;
        self.bytes = 0;
        self.offsets.clear();
        self.failed = None;
    }

    fn drain(&self, state: &State<Db>) -> std::result::Result<Delivered, CommitError> {
        let topic = &self.names[&Role::Changelog];
        for (key, value) in state.overlay().iter() {
            let partition = key.get(1..5).map_or(0, |b| i32::from_be_bytes([b[0], b[1], b[2], b[3]]));
            self.producer.send(topic, partition, key, value, &Vec::new(), true)?;
        }
        self.producer.drain()
    }

    fn send_offsets(&self, group: Option<&GroupMetadata>) -> std::result::Result<(), CommitError> {
        let Some(group) = group else {
            let error = Error::new(crate::error::Code::TransactionAborted, "the assignment has changed");
            return Err(CommitError { action: Action::Abort, error });
        };
        let offsets =
            self.offsets.iter().map(|((partition, role), next)| (self.names[role].as_str(), *partition, *next));
        self.producer.send_offsets(offsets, group)
    }

    fn apply(&mut self, state: &mut State<Db>, delivered: &Delivered) -> Result<()> {
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
            let mut all = state.store().positions(unit)?.map(|p| p.inputs).unwrap_or_default();
            all.extend(inputs);
            extra.push(Db::positions_change(unit, &Positions { changelog, inputs: all, saved_at }));
        }
        state.commit(extra)
    }
}

fn lost() -> Error {
    Error::new(crate::error::Code::TransactionAborted, "the transaction was rolled back")
}
