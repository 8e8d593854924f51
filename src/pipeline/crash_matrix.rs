//! Every fault between every two commit steps, against a transactional log in memory: what is committed is
//! what a run without a fault commits, and the store is the fold of the changelog (I1 to I4).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use proptest::prelude::*;

use super::commit::{Committer, Faults, Step};
use super::failpoint::{Failpoint, Fault, STEPS, Side};
use crate::config::Sabotage;
use crate::error::{Action, Code, Error, Result};
use crate::sink::{CommitError, Delivered, InputOffset, Output, Transactions};
use crate::state::{Kind, MemoryStore, Positions, State, Store, key};
use crate::topology::{Role, Topology};

type Change = (Vec<u8>, Option<Vec<u8>>);
type Outcome<T> = std::result::Result<T, CommitError>;

const UNITS: i32 = 2;
const INPUTS: i64 = 12;
const BATCH: i64 = 3;

/// What the brokers keep.
#[derive(Debug, Default)]
struct Broker {
    epoch: u64,
    outputs: Vec<(i32, Vec<u8>)>,
    offsets: BTreeMap<i32, i64>,
    changelog: BTreeMap<i32, Vec<Change>>,
    open: Transaction,
}

#[derive(Debug, Default)]
struct Transaction {
    outputs: Vec<(i32, Vec<u8>)>,
    changes: Vec<(i32, Change)>,
    offsets: BTreeMap<i32, i64>,
}

/// A producer of one epoch.
#[derive(Debug, Clone)]
struct MemoryLog {
    broker: Rc<RefCell<Broker>>,
    epoch: u64,
}

impl MemoryLog {
    /// Fences every producer before it and drops their open transaction.
    fn start(broker: &Rc<RefCell<Broker>>) -> Self {
        let mut b = broker.borrow_mut();
        b.epoch += 1;
        b.open = Transaction::default();
        Self { broker: broker.clone(), epoch: b.epoch }
    }

    fn fenced(&self) -> Outcome<()> {
        if self.broker.borrow().epoch == self.epoch {
            return Ok(());
        }
        let error = Error::new(Code::TransactionUnknown, "fenced");
        Err(CommitError { action: Action::Rebuild, error })
    }
}

impl Transactions for MemoryLog {
    type Group = ();

    fn begin(&mut self) -> Outcome<()> {
        self.fenced()
    }

    fn send(&mut self, _: &str, o: &Output) -> Outcome<()> {
        self.fenced()?;
        let record = (o.partition, o.value.clone().unwrap_or_default());
        self.broker.borrow_mut().open.outputs.push(record);
        Ok(())
    }

    fn log_change(&mut self, _: &str, unit: i32, key: &[u8], value: Option<&[u8]>) -> Outcome<()> {
        self.fenced()?;
        let change = (key.to_vec(), value.map(<[u8]>::to_vec));
        self.broker.borrow_mut().open.changes.push((unit, change));
        Ok(())
    }

    fn drain(&mut self) -> Outcome<Delivered> {
        let b = self.broker.borrow();
        let mut last = Delivered::new();
        for (unit, _) in &b.open.changes {
            let before = b.changelog.get(unit).map_or(0, Vec::len);
            *last.entry(*unit).or_insert(i64::try_from(before).unwrap() - 1) += 1;
        }
        Ok(last)
    }

    fn send_offsets(&mut self, offsets: &[InputOffset], _: &Arc<()>) -> Outcome<()> {
        self.fenced()?;
        self.broker.borrow_mut().open.offsets.extend(offsets.iter().map(|o| (o.partition, o.next)));
        Ok(())
    }

    fn commit(&mut self) -> Outcome<()> {
        self.fenced()?;
        let mut b = self.broker.borrow_mut();
        let done = std::mem::take(&mut b.open);
        b.outputs.extend(done.outputs);
        b.offsets.extend(done.offsets);
        for (unit, change) in done.changes {
            b.changelog.entry(unit).or_default().push(change);
        }
        Ok(())
    }

    fn abort(&mut self) -> Outcome<()> {
        self.fenced()?;
        self.broker.borrow_mut().open = Transaction::default();
        Ok(())
    }
}

/// A disk that outlives its process.
#[derive(Debug, Clone, Default)]
struct Disk(Rc<RefCell<MemoryStore>>);

impl Store for Disk {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.0.borrow().get(key)
    }

    fn scan(&self, prefix: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.0.borrow().scan(prefix, limit)
    }

    fn apply(&mut self, changes: Vec<Change>) -> Result<()> {
        self.0.borrow_mut().apply(changes)
    }
}

/// A stream whose every output tells the whole state before it.
struct World {
    broker: Rc<RefCell<Broker>>,
    disk: Disk,
    topology: Topology,
    faults: Rc<RefCell<Vec<Failpoint>>>,
    sabotage: Option<Sabotage>,
    lives: Cell<u32>,
}

fn sum_key(unit: i32) -> Vec<u8> {
    key(Kind::Unit, unit, &[], None, &[])
}

fn number(bytes: &[u8]) -> i64 {
    i64::from_be_bytes(bytes.try_into().unwrap())
}

impl World {
    fn new(faults: Vec<Failpoint>, sabotage: Option<Sabotage>) -> Self {
        Self {
            broker: Rc::default(),
            disk: Disk::default(),
            topology: Topology::sample().unwrap(),
            faults: Rc::new(RefCell::new(faults)),
            sabotage,
            lives: Cell::new(0),
        }
    }

    /// Processes are started until one ends by itself.
    fn run(&self) {
        loop {
            self.lives.set(self.lives.get() + 1);
            assert!(self.lives.get() < 20, "the stream never gets through");
            match catch_unwind(AssertUnwindSafe(|| self.process())) {
                Ok(Ok(())) => return,
                Ok(Err(_)) | Err(_) => self.check_store(),
            }
        }
    }

    fn process(&self) -> std::result::Result<(), Error> {
        let mut state = State::new(self.disk.clone());
        let failpoint = self.faults.borrow_mut().pop();
        let faults = Faults { sabotage: self.sabotage, failpoint };
        let mut committer = Committer::new(MemoryLog::start(&self.broker), &self.topology, faults);
        let mut next = self.restore(&mut committer, &mut state)?;
        while next.values().any(|n| *n < INPUTS) {
            for (unit, n) in &mut next {
                let until = (*n + BATCH).min(INPUTS);
                while *n < until {
                    let k = sum_key(*unit);
                    let sum = state.get(&k)?.map_or(0, |v| number(&v)) + *n + 1;
                    state.put(k, sum.to_be_bytes().to_vec());
                    *n += 1;
                    committer.stage(*unit, Role::MemoryWrites, *n, vec![output(*unit, sum)]);
                }
            }
            match committer.commit(&mut state, Some(Arc::new(()))) {
                Step::Committed | Step::Nothing => {}
                Step::Rollback(_) => next = self.committed(),
                Step::Rebuild(_) => {
                    committer.replace(MemoryLog::start(&self.broker));
                    next = self.restore(&mut committer, &mut state)?;
                }
                Step::Stop(e) => return Err(e),
            }
            self.check_log();
            self.check_store();
        }
        Ok(())
    }

    fn committed(&self) -> BTreeMap<i32, i64> {
        (0..UNITS).map(|u| (u, self.broker.borrow().offsets.get(&u).copied().unwrap_or(0))).collect()
    }

    fn restore(&self, c: &mut Committer<MemoryLog>, state: &mut State<Disk>) -> Result<BTreeMap<i32, i64>> {
        for unit in 0..UNITS {
            let from = Positions::of(state.store(), unit)?.map_or(0, |p| p.changelog);
            let log = self.broker.borrow().changelog.get(&unit).cloned().unwrap_or_default();
            let mut changes = log.get(usize::try_from(from).unwrap()..).unwrap_or_default().to_vec();
            let end = i64::try_from(log.len()).unwrap();
            changes.push(Positions { changelog: end, ..Positions::default() }.change(unit));
            state.store_mut().apply(changes)?;
            c.restored(unit, end);
        }
        Ok(self.committed())
    }

    /// I1 and I4: what is committed is what the committed offsets say, in order, once.
    fn check_log(&self) {
        let b = self.broker.borrow();
        for unit in 0..UNITS {
            let offset = b.offsets.get(&unit).copied().unwrap_or(0);
            let sums: Vec<i64> = b.outputs.iter().filter(|(u, _)| *u == unit).map(|(_, v)| number(v)).collect();
            let wanted: Vec<i64> = (1..=offset).map(|n| n * (n + 1) / 2).collect();
            assert_eq!(sums, wanted, "unit {unit} at offset {offset}");
        }
    }

    /// I2: the store is never ahead of the committed changelog; where it stands, it is its fold (I3).
    fn check_store(&self) {
        let b = self.broker.borrow();
        for unit in 0..UNITS {
            let at = Positions::of(&self.disk, unit).unwrap().map_or(0, |p| p.changelog);
            let log = b.changelog.get(&unit).cloned().unwrap_or_default();
            let read = log.get(..usize::try_from(at).unwrap()).expect("the store is ahead of the changelog");
            let fold = read.iter().rev().find(|(k, _)| *k == sum_key(unit)).and_then(|(_, v)| v.clone());
            assert_eq!(self.disk.get(&sum_key(unit)).unwrap(), fold, "unit {unit}: the store is not the fold");
        }
    }

    fn check_end(&self) {
        self.check_log();
        self.check_store();
        assert!(self.committed().values().all(|n| *n == INPUTS));
    }
}

fn output(unit: i32, sum: i64) -> Output {
    Output {
        role: Role::Decisions,
        partition: unit,
        key: Vec::new(),
        value: Some(sum.to_be_bytes().to_vec()),
        headers: Vec::new(),
    }
}

const FAULTS: [Fault; 3] = [Fault::Abort, Fault::Error, Fault::Timeout];

fn quiet<R>(body: impl FnOnce() -> R) -> R {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = catch_unwind(AssertUnwindSafe(body));
    std::panic::set_hook(hook);
    result.unwrap_or_else(|e| std::panic::resume_unwind(e))
}

#[test]
fn every_fault_between_every_two_steps() {
    let mut struck = 0;
    for (step, name) in STEPS {
        for side in [Side::Before, Side::After] {
            for fault in FAULTS {
                for nth in 1..=3 {
                    let world = World::new(vec![Failpoint::new(step, side, fault, nth)], None);
                    quiet(|| world.run());
                    world.check_end();
                    struck += u32::from(world.lives.get() > 1 || fault != Fault::Abort);
                    assert!(world.lives.get() <= 3, "{side:?} {name} {fault:?} {nth}");
                }
            }
        }
    }
    assert!(struck > 70, "only {struck} faults struck");
}

proptest! {
    /// Several faults in one life after another, the abort and the rebuild among what fails.
    #[test]
    fn any_sequence_of_faults(plan in prop::collection::vec((0..STEPS.len(), any::<bool>(), 0..3_usize, 1..4_u64), 0..8)) {
        let faults = plan.iter().map(|(step, before, fault, nth)| {
            let side = if *before { Side::Before } else { Side::After };
            Failpoint::new(STEPS[*step].0, side, FAULTS[*fault], *nth)
        });
        let world = World::new(faults.collect(), None);
        quiet(|| world.run());
        world.check_end();
    }
}

fn goes_red(sabotage: Sabotage, place: (usize, Side, Fault)) {
    let fault = Failpoint::new(STEPS[place.0].0, place.1, place.2, 2);
    let world = World::new(vec![fault], Some(sabotage));
    let red = quiet(|| {
        catch_unwind(AssertUnwindSafe(|| {
            world.run();
            world.check_end();
        }))
    });
    assert!(red.is_err(), "{sabotage:?} must be seen");
}

#[test]
fn state_written_before_the_commit_goes_red() {
    goes_red(Sabotage::ApplyBeforeCommit, (3, Side::Before, Fault::Error));
}

/// A changelog that is made anew during a run starts at offset 0 again: nothing more is committed into it.
#[test]
fn a_changelog_made_anew_in_a_run_stops() {
    let world = World::new(Vec::new(), None);
    let mut state = State::new(world.disk.clone());
    let mut committer = Committer::new(MemoryLog::start(&world.broker), &world.topology, Faults::default());
    let mut commit = |n: i64| {
        state.put(sum_key(0), n.to_be_bytes().to_vec());
        committer.stage(0, Role::MemoryWrites, n, vec![output(0, n)]);
        committer.commit(&mut state, Some(Arc::new(())))
    };
    assert!(matches!(commit(1), Step::Committed));
    world.broker.borrow_mut().changelog.clear();
    let Step::Stop(error) = commit(2) else { panic!("it went on") };
    assert_eq!(error.code(), Code::TopicRecreated);
    assert_eq!(world.broker.borrow().outputs.len(), 1);
}
