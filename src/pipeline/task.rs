//! The task thread: one loop, one place where order is decided. It owns state, producer and commit, and
//! never waits for the poll thread.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::commit::{Committer, Step};
use super::engine::{Embeds, Engine, Pending};
use super::{Registry, Summary, Unit};
use crate::clock::monotonic;
use crate::embed::{Embedder, Encoded, Job, Resequencer};
use crate::error::{Code, Error, Result};
use crate::sink::{Output, TransactionalProducer};
use crate::source::{BroadcastReader, Budget, Command, Event, Fetched, Heartbeat, Merge, PollThread, Wait};
use crate::state::{Db, Restorer, State};
use crate::topology::{PostureKind, Role};

/// Gets an output.
pub type OnOutput = Box<dyn FnMut(&Output) + Send>;
/// Gets the totals.
pub type OnProgress = Box<dyn FnMut(&Summary) + Send>;

/// How a run ends and what it shows.
pub struct RunOptions {
    /// End when every input reached the end it had at start.
    pub until_end: bool,
    /// Set from outside to stop after the next commit.
    pub stop: Arc<AtomicBool>,
    /// Called with every output in commit order, once it is committed.
    pub on_output: Option<OnOutput>,
    /// Called with the totals after each commit.
    pub on_progress: Option<OnProgress>,
}

impl std::fmt::Debug for RunOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunOptions").field("until_end", &self.until_end).finish_non_exhaustive()
    }
}

/// What a task is made of.
#[derive(Debug)]
pub struct TaskParts {
    /// Stages.
    pub engine: Engine,
    /// Encoder threads.
    pub embedder: Embedder,
    /// State.
    pub state: State<Db>,
    /// Broadcast topics.
    pub broadcast: BroadcastReader,
    /// What they said at start.
    pub registry: Registry,
    /// Restore.
    pub restorer: Restorer,
    /// Poll thread.
    pub poll: PollThread,
    /// Byte counters.
    pub budget: Budget,
    /// This thread's heartbeat.
    pub heartbeat: Heartbeat,
    /// Last readable offset of each input partition at start; used by `until_end`.
    pub ends: HashMap<(Role, i32), i64>,
}

/// Joins the group with a new consumer.
pub type Rejoin = Box<dyn Fn() -> Result<PollThread> + Send>;
/// Makes a new fenced producer.
pub type Remake = Box<dyn Fn() -> Result<TransactionalProducer> + Send>;

/// The task.
pub struct Task {
    p: TaskParts,
    committer: Committer,
    options: RunOptions,
    remake: Remake,
    rejoin: Rejoin,
    rejoins: u32,
    generation: u64,
    units: BTreeMap<i32, Unit>,
    merges: BTreeMap<i32, Merge>,
    pending: Resequencer<Pending, Option<Result<Encoded>>>,
    /// Next offsets as of the last commit.
    committed: BTreeMap<i32, BTreeMap<Role, i64>>,
    summary: Summary,
    open: Summary,
    outputs: Vec<Output>,
    last_broadcast: Instant,
    rebuilds: Vec<Instant>,
    first_record: Option<Instant>,
    unassigned_since: Option<Instant>,
    /// Unit whose turn is first.
    first_unit: usize,
    /// The last pump left work that needs no new event.
    more: bool,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task")
            .field("generation", &self.generation)
            .field("summary", &self.summary)
            .finish_non_exhaustive()
    }
}

/// How often broadcast topics are looked at.
const BROADCAST: Duration = Duration::from_millis(200);
/// This many rebuilds in this time mean that the instance id is in use elsewhere.
const REBUILDS: (usize, Duration) = (3, Duration::from_secs(300));
/// After this long without an assignment the consumer is taken for stuck and replaced.
const NO_ASSIGNMENT: Duration = Duration::from_secs(60);
/// Replacements in a row before the process ends.
const REJOINS: u32 = 3;
/// Boundaries of a unit held ready; above it they are read again.
const MAX_BOUNDARIES: usize = 50_000;
/// Records decided between two looks at the clock.
const CHECK: usize = 64;
/// Records processed between two looks at events.
const SLICE: usize = 2000;

/// After a rollback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Read again from the committed offsets.
    Rewind,
    /// A rebalance goes on: its own start is to come.
    Wait,
}

impl Task {
    /// Puts the task together around a fenced producer.
    #[must_use]
    pub fn new(
        parts: TaskParts,
        producer: TransactionalProducer,
        options: RunOptions,
        remake: Remake,
        rejoin: Rejoin,
    ) -> Self {
        let committer = Committer::new(producer, parts.engine.topology());
        Self {
            p: parts,
            committer,
            options,
            remake,
            rejoin,
            rejoins: 0,
            generation: 0,
            units: BTreeMap::new(),
            merges: BTreeMap::new(),
            pending: Resequencer::default(),
            committed: BTreeMap::new(),
            summary: Summary::default(),
            open: Summary::default(),
            outputs: Vec::new(),
            last_broadcast: monotonic(),
            rebuilds: Vec::new(),
            first_record: None,
            more: false,
            unassigned_since: Some(monotonic()),
            first_unit: 0,
        }
    }

    /// Runs until the end, a stop or an error; then leaves the group.
    ///
    /// # Errors
    /// Any code with action `Stop`.
    pub fn run(mut self) -> Result<Summary> {
        let result = self.turn();
        self.p.poll.stop();
        result.map(|()| self.summary)
    }

    fn turn(&mut self) -> Result<()> {
        loop {
            self.p.heartbeat.beat();
            self.listen()?;
            self.follow_broadcast();
            self.pump()?;
            if self.commit_is_due() {
                self.commit()?;
            }
            if self.options.stop.load(Ordering::Relaxed) {
                return self.commit();
            }
            if self.finished() {
                self.commit()?;
                // A rollback has rewound: then there is work again.
                if self.finished() {
                    return Ok(());
                }
            }
            if self.unassigned_since.is_some_and(|t| t.elapsed() > NO_ASSIGNMENT) {
                self.rejoin()?;
            }
            if !self.p.embedder.alive() {
                return Err(Error::new(Code::EncoderFailed, "an encoder thread ended"));
            }
        }
    }

    fn finished(&self) -> bool {
        self.options.until_end
            && !self.merges.is_empty()
            && self.pending.is_empty()
            && self.merges.values().all(Merge::finished)
    }

    /// Waits for events and vectors, at most until something is due.
    fn listen(&mut self) -> Result<()> {
        let events = self.p.poll.events.clone();
        let done = self.p.embedder.done().clone();
        let mut first = None;
        crossbeam_channel::select! {
            recv(events) -> event => {
                let event = event.map_err(|_| Error::new(Code::Internal, "the poll thread ended"))?;
                first = Some(event);
            }
            recv(done) -> d => {
                if let Ok(d) = d {
                    self.pending.complete(d.unit, d.ticket, Some(d.result));
                }
            }
            default(self.patience()) => {}
        }
        if let Some(event) = first {
            self.hear(event)?;
        }
        while let Ok(event) = events.try_recv() {
            self.hear(event)?;
        }
        while let Ok(d) = done.try_recv() {
            self.pending.complete(d.unit, d.ticket, Some(d.result));
        }
        self.committer.poll();
        Ok(())
    }

    fn patience(&self) -> Duration {
        if self.more {
            return Duration::ZERO;
        }
        let now = monotonic();
        let main = &self.p.engine.topology().main;
        let commit = self.committer.opened().map(|t| t + main.commit.interval);
        let merge = self.merges.values().filter_map(Merge::deadline).min();
        let due = [commit, merge].into_iter().flatten().min();
        due.map_or(Duration::from_millis(50), |t| t.saturating_duration_since(now)).min(Duration::from_millis(50))
    }

    fn hear(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Records(records) => {
                self.first_record.get_or_insert_with(monotonic);
                for record in records {
                    self.take(record);
                }
                Ok(())
            }
            Event::Assigned { generation, partitions } => {
                tracing::info!(generation, partitions = partitions.len(), "assigned");
                let step = self.committer.lose(&mut self.p.state);
                self.settle(step, Then::Wait)?;
                self.generation = generation;
                self.unassigned_since = None;
                self.rejoins = 0;
                self.restore(&partitions)
            }
            Event::Revoked { generation, lost, remaining, ack } => {
                tracing::info!(generation, lost, "revoked");
                let step = if lost { self.committer.lose(&mut self.p.state) } else { self.try_commit() };
                let result = self.settle(step, Then::Wait);
                self.generation = generation;
                self.clear();
                let _ = ack.send(());
                self.unassigned_since = remaining.is_empty().then(monotonic);
                result?;
                if remaining.is_empty() { Ok(()) } else { self.restore(&remaining) }
            }
            Event::Failed(error) if self.p.restorer.goes_on_after(&error) => {
                let step = self.committer.lose(&mut self.p.state);
                self.settle(step, Then::Wait)?;
                self.settle(Step::Rebuild(error), Then::Rewind)
            }
            Event::Failed(error) => Err(error),
        }
    }

    fn take(&mut self, record: Fetched) {
        let at = record.at;
        let end = self.p.ends.get(&(at.role, at.partition)).copied().unwrap_or(i64::MAX);
        let past = self.options.until_end && at.offset > end;
        match self.merges.get_mut(&at.partition) {
            Some(merge) if at.generation == self.generation && !past => {
                merge.push(record);
                if self.options.until_end && at.offset >= end {
                    merge.end(at.role);
                }
            }
            _ => self.p.budget.give(at.role, at.partition, record.bytes()),
        }
    }

    /// Restores the units of an assignment and starts fetching.
    fn restore(&mut self, partitions: &[(Role, i32)]) -> Result<()> {
        self.clear();
        let inputs = [Role::RetrievalLogs, Role::MemoryWrites];
        let mut units: Vec<i32> = partitions.iter().map(|(_, p)| *p).collect();
        units.sort_unstable();
        units.dedup();
        for unit in units {
            if !inputs.iter().all(|r| partitions.contains(&(*r, unit))) {
                tracing::error!(unit, "the unit's topics are split between members: it does not run");
                continue;
            }
            let heartbeat = self.p.heartbeat.clone();
            let restored = self.p.restorer.unit(self.p.state.store_mut(), unit, &|| heartbeat.beat())?;
            tracing::info!(unit, replayed = restored.replayed, "restored");
            self.summary.replayed += restored.replayed;
            self.summary.lost += restored.lost;
            self.committer.restored(unit, restored.changelog);
            self.committed.insert(unit, restored.inputs);
        }
        self.start()
    }

    /// Loads the units and asks for records from the committed offsets.
    fn start(&mut self) -> Result<()> {
        let topology = self.p.engine.topology();
        let wait =
            if self.options.until_end { Wait::UntilEnd } else { Wait::UpTo(topology.main.consumer.max_task_idle) };
        let mut offsets = Vec::new();
        for (unit, inputs) in &self.committed {
            let positions =
                inputs.iter().filter(|(_, o)| **o >= 0).map(|(r, o)| (topology.name(*r).to_owned(), *o)).collect();
            self.units.insert(*unit, Unit::load(*unit, positions, &self.p.state)?);
            let mut merge = Merge::new(&[Role::RetrievalLogs, Role::MemoryWrites], wait);
            for (role, next) in inputs {
                offsets.push((*role, *unit, *next));
                if self.p.ends.get(&(*role, *unit)).is_some_and(|end| *next > *end || *end < 0) {
                    merge.end(*role);
                }
            }
            self.merges.insert(*unit, merge);
        }
        drop(self.p.poll.commands.send(Command::Start { generation: self.generation, offsets }));
        Ok(())
    }

    /// Drops all that belongs to the old generation.
    fn clear(&mut self) {
        self.drop_queued();
        self.units.clear();
        self.committed.clear();
    }

    fn drop_queued(&mut self) {
        let queued = self.merges.values_mut().flat_map(Merge::clear).collect::<Vec<_>>();
        let pending = self.pending.clear().into_iter().map(|p| p.fetched);
        for record in queued.into_iter().chain(pending) {
            self.p.budget.give(record.at.role, record.at.partition, record.bytes());
        }
        self.merges.clear();
        self.open = Summary::default();
        self.outputs.clear();
    }

    fn follow_broadcast(&mut self) {
        if self.last_broadcast.elapsed() < BROADCAST {
            return;
        }
        self.last_broadcast = monotonic();
        for r in self.p.broadcast.poll() {
            if let Err(error) = self.p.registry.apply(r.role, &r.key, r.value.as_deref()) {
                tracing::warn!(%error, "a broadcast record is ignored");
            }
        }
    }

    /// Admits what may be taken and finishes what is ready.
    fn pump(&mut self) -> Result<()> {
        let now = monotonic();
        let hold = self.p.engine.topology().main.posture.on_error == PostureKind::Hold;
        let retry_until = hold.then(|| now + self.p.engine.topology().main.posture.hold_deadline);
        let mut partitions: Vec<i32> = self.merges.keys().copied().collect();
        if !partitions.is_empty() {
            // A backlog on one unit must not starve the others.
            let turn = self.first_unit % partitions.len();
            partitions.rotate_left(turn);
            self.first_unit = turn + 1;
        }
        self.more = false;
        for unit in &partitions {
            let mut taken = 0;
            while taken < SLICE {
                let Some(record) = self.merges.get_mut(unit).and_then(|m| m.next(now)) else {
                    break;
                };
                taken += 1;
                self.admit(*unit, record, retry_until);
            }
            self.more |= taken == SLICE;
        }
        let mut decided = 0_usize;
        for unit in partitions {
            while let Some((pending, embedded)) = self.pending.pop(unit) {
                self.finish(unit, pending, embedded)?;
                decided += 1;
                if self.full() || (decided.is_multiple_of(CHECK) && self.commit_is_due()) {
                    self.more = true;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn admit(&mut self, unit: i32, record: Fetched, retry_until: Option<Instant>) {
        let (pending, embeds) = self.p.engine.admit(record);
        match embeds {
            Embeds::Nothing => {
                self.pending.admit(unit, pending, Some(None));
            }
            Embeds::Given(vector) => {
                let given = Encoded { vector, truncated: false };
                self.pending.admit(unit, pending, Some(Some(Ok(given))));
            }
            Embeds::Text(text) => match self.p.embedder.cached(&text) {
                Some(known) => {
                    self.pending.admit(unit, pending, Some(Some(Ok(known))));
                }
                None => {
                    let ticket = self.pending.admit(unit, pending, None);
                    self.p.embedder.submit(Job { unit, ticket, text, retry_until });
                }
            },
        }
    }

    fn finish(&mut self, unit: i32, pending: Pending, embedded: Option<Result<Encoded>>) -> Result<()> {
        let at = pending.fetched.at;
        let bytes = pending.fetched.bytes();
        let Some(state_of) = self.units.get_mut(&unit) else {
            return Err(Error::new(Code::Internal, format!("unit {unit} has records but no state")));
        };
        let outputs = self.p.engine.finish(pending, embedded, state_of, &mut self.p.state, &self.p.registry)?;
        self.p.budget.give(at.role, at.partition, bytes);
        self.open.inputs += 1;
        for o in &outputs {
            self.open.count(o);
        }
        if self.options.on_output.is_some() {
            self.outputs.extend(outputs.iter().cloned());
        }
        self.committer.stage(unit, at.role, at.offset + 1, outputs);
        Ok(())
    }

    fn full(&self) -> bool {
        let commit = &self.p.engine.topology().main.commit;
        self.committer.has_failed()
            || self.committer.records() >= commit.max_records
            || self.committer.bytes() >= commit.max_bytes
    }

    fn commit_is_due(&self) -> bool {
        let interval = self.p.engine.topology().main.commit.interval;
        let due = self.full() || self.committer.opened().is_some_and(|t| t.elapsed() >= interval);
        // Until the poll thread has published this generation there is nothing to commit with.
        due && self.p.poll.snapshot.of(self.generation).is_some()
    }

    fn commit(&mut self) -> Result<()> {
        let step = self.try_commit();
        self.settle(step, Then::Rewind)
    }

    fn try_commit(&mut self) -> Step {
        for unit in self.units.values_mut() {
            unit.flush(&mut self.p.state);
        }
        let group = self.p.poll.snapshot.of(self.generation);
        self.committer.commit(&mut self.p.state, group)
    }

    fn settle(&mut self, step: Step, then: Then) -> Result<()> {
        match step {
            Step::Nothing => Ok(()),
            Step::Committed => {
                self.committed_now();
                Ok(())
            }
            Step::Rollback(error) => {
                tracing::warn!(%error, "rolled back");
                self.summary.rollbacks += 1;
                self.drop_queued();
                if then == Then::Wait {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(20));
                self.rewind()
            }
            Step::Rebuild(error) => {
                tracing::warn!(%error, "rebuilding");
                self.summary.rollbacks += 1;
                self.drop_queued();
                self.rebuild(then)
            }
            Step::Stop(error) => Err(error),
        }
    }

    fn committed_now(&mut self) {
        let topology = self.p.engine.topology();
        for (partition, unit) in &self.units {
            let inputs = self.committed.entry(*partition).or_default();
            for (role, next) in inputs.iter_mut() {
                if let Some(position) = unit.positions().get(topology.name(*role)) {
                    *next = *position;
                }
            }
        }
        let cached: usize = self.units.values().map(Unit::cached_bytes).sum();
        let boundaries = self.units.values().map(Unit::cached_boundaries).max().unwrap_or_default();
        if cached > topology.main.limits.cache_bytes || boundaries > MAX_BOUNDARIES {
            self.units.values_mut().for_each(Unit::drop_histories);
        }
        self.summary.transactions += 1;
        let since = self.first_record.map_or(Duration::ZERO, |t| t.elapsed());
        self.summary.elapsed_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let open = std::mem::take(&mut self.open);
        self.summary.add(&open);
        if let Some(on_output) = &mut self.options.on_output {
            self.outputs.drain(..).for_each(|o| on_output(&o));
        }
        if let Some(on_progress) = &mut self.options.on_progress {
            on_progress(&self.summary);
        }
    }

    /// Back to the committed offsets, under a new generation.
    fn rewind(&mut self) -> Result<()> {
        self.drop_queued();
        self.units.clear();
        match self.p.poll.bump(self.generation) {
            Some(next) => self.generation = next,
            None => return Ok(()),
        }
        self.start()
    }

    /// librdkafka may lose a group for good when its only broker pauses: a new consumer finds it again.
    fn rejoin(&mut self) -> Result<()> {
        self.rejoins += 1;
        if self.rejoins > REJOINS {
            return Err(Error::new(Code::BrokerUnreachable, "the group gave no assignment to three consumers in turn"));
        }
        tracing::warn!(attempt = self.rejoins, "no assignment: joining the group with a new consumer");
        self.clear();
        self.p.poll.stop();
        self.p.poll = (self.rejoin)()?;
        self.generation = 0;
        self.unassigned_since = Some(monotonic());
        Ok(())
    }

    fn rebuild(&mut self, then: Then) -> Result<()> {
        let now = monotonic();
        self.rebuilds.retain(|t| now.duration_since(*t) < REBUILDS.1);
        self.rebuilds.push(now);
        if self.rebuilds.len() >= REBUILDS.0 {
            return Err(Error::new(Code::InstanceFenced, "the producer had to be rebuilt three times in five minutes"));
        }
        let producer = (self.remake)()?;
        self.committer.replace(producer);
        if then == Then::Wait {
            return Ok(());
        }
        let partitions: Vec<(Role, i32)> = self
            .committed
            .iter()
            .flat_map(|(unit, inputs)| inputs.keys().map(|r| (*r, *unit)).collect::<Vec<_>>())
            .collect();
        match self.p.poll.bump(self.generation) {
            Some(next) => self.generation = next,
            None => return Ok(()),
        }
        if partitions.is_empty() { Ok(()) } else { self.restore(&partitions) }
    }
}
