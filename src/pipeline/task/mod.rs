//! The task thread: one loop, one place where order is decided. It owns state, producer and commit, and
//! never waits for the poll thread.

mod assign;
mod stop;
mod work;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use self::stop::StopStep;
use self::work::Then;
use super::ahead::Ahead;
use super::commit::{Committer, Faults};
use super::engine::{Engine, Pending};
use super::meter::Meter;
use super::{Registry, Summary, Unit};
use crate::clock::monotonic;
use crate::config::Sabotage;
use crate::embed::{Embedder, Encoded, Resequencer};
use crate::error::{Code, Error, Result};
use crate::sink::{Output, TransactionalProducer};
use crate::source::{BroadcastReader, Budget, Event, Fetched, Heartbeat, Merge, PollThread};
use crate::state::{Db, Progress, Restorer, Standby, State};
use crate::telemetry::{health, metrics};
use crate::topology::Role;

/// Gets an output.
pub type OnOutput = Box<dyn FnMut(&Output) + Send>;
/// Gets the totals.
pub type OnProgress = Box<dyn FnMut(&Summary) + Send>;

/// Gets how far a restore is.
pub type OnRestore = Box<dyn Fn(Progress) + Send>;

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
    /// Called while a unit is restored.
    pub on_restore: Option<OnRestore>,
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
    /// Threads that read texts ahead.
    pub ahead: Ahead,
    /// State.
    pub state: State<Db>,
    /// Broadcast topics.
    pub broadcast: BroadcastReader,
    /// What they said at start.
    pub registry: Registry,
    /// Restore.
    pub restorer: Restorer,
    /// Copies of the units of others.
    pub standby: Option<Standby>,
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
    committer: Committer<TransactionalProducer>,
    sabotage: Option<Sabotage>,
    options: RunOptions,
    remake: Remake,
    rejoin: Rejoin,
    rejoins: u32,
    /// When consumers were replaced that had lost a fetch.
    starvations: Vec<Instant>,
    /// Rollbacks since the last commit.
    rollbacks: u32,
    generation: u64,
    units: BTreeMap<i32, Unit>,
    merges: BTreeMap<i32, Merge>,
    pending: Resequencer<Pending, Option<Result<Encoded>>>,
    /// Topic ids of each unit.
    topics: BTreeMap<i32, BTreeMap<Role, String>>,
    /// Next offsets as of the last commit.
    committed: BTreeMap<i32, BTreeMap<Role, i64>>,
    summary: Summary,
    open: Summary,
    outputs: Vec<Output>,
    meter: Meter,
    last_broadcast: Instant,
    last_note: Instant,
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

/// After this long without an assignment the consumer is taken for stuck and replaced.
const NO_ASSIGNMENT: Duration = Duration::from_secs(60);

impl Task {
    /// Puts the task together around a fenced producer.
    #[must_use]
    pub fn new(
        parts: TaskParts,
        producer: TransactionalProducer,
        options: RunOptions,
        remake: Remake,
        rejoin: Rejoin,
        faults: Faults,
    ) -> Self {
        let sabotage = faults.sabotage;
        let committer = Committer::new(producer, parts.engine.topology(), faults);
        Self {
            p: parts,
            committer,
            sabotage,
            options,
            remake,
            rejoin,
            rejoins: 0,
            starvations: Vec::new(),
            rollbacks: 0,
            last_note: monotonic(),
            generation: 0,
            units: BTreeMap::new(),
            merges: BTreeMap::new(),
            pending: Resequencer::default(),
            topics: BTreeMap::new(),
            committed: BTreeMap::new(),
            summary: Summary::default(),
            open: Summary::default(),
            outputs: Vec::new(),
            meter: Meter::default(),
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
        health().stopping();
        let left = self.leave();
        result.and(left).map(|()| self.summary)
    }

    fn turn(&mut self) -> Result<()> {
        loop {
            self.p.heartbeat.beat();
            self.listen()?;
            self.follow_broadcast();
            self.note_positions()?;
            self.pump()?;
            if self.commit_is_due() {
                self.commit()?;
            }
            if self.options.stop.load(Ordering::Relaxed) {
                return self.last_commit();
            }
            if self.finished() {
                self.commit()?;
                // A rollback has rewound: then there is work again.
                if self.finished() {
                    return Ok(());
                }
            }
            if self.unassigned_since.is_some_and(|t| t.elapsed() > NO_ASSIGNMENT) {
                self.without_assignment()?;
            }
            if let Some(input) = self.p.poll.lags.starved() {
                self.starved(input)?;
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
                let since = rebalance("assigned");
                let step = self.committer.lose(&mut self.p.state);
                self.settle(step, Then::Wait)?;
                self.generation = generation;
                self.unassigned_since = None;
                self.rejoins = 0;
                let restored = self.restore(&partitions);
                metrics().rebalance_seconds.observe_duration(since.elapsed());
                restored
            }
            Event::Revoked { generation, lost, remaining, ack } => {
                tracing::info!(generation, lost, "revoked");
                rebalance(if lost { "lost" } else { "revoked" });
                let step = if lost { self.committer.lose(&mut self.p.state) } else { self.try_commit() };
                let result = self.settle(step, Then::Wait);
                self.generation = generation;
                self.clear();
                self.stand_by();
                let _ = ack.send(());
                self.unassigned_since = remaining.is_empty().then(monotonic);
                health().unassigned();
                result?;
                if remaining.is_empty() { Ok(()) } else { self.restore(&remaining) }
            }
            Event::Failed(error) if self.p.restorer.goes_on_after(&error) => {
                let step = self.committer.lose(&mut self.p.state);
                self.settle(step, Then::Wait)?;
                self.restore_again()
            }
            Event::Failed(error) => Err(error),
        }
    }

    /// What is not owned any more may be copied again.
    fn stand_by(&self) {
        if let Some(standby) = &self.p.standby {
            standby.yield_to(BTreeSet::new());
        }
    }

    fn take(&mut self, record: Fetched) {
        let at = record.at;
        let end = self.p.ends.get(&(at.role, at.partition)).copied().unwrap_or(i64::MAX);
        let past = self.options.until_end && at.offset > end;
        let blind = self.sabotage == Some(Sabotage::GenerationFilterOff);
        match self.merges.get_mut(&at.partition) {
            Some(merge) if (at.generation == self.generation || blind) && !past => {
                merge.push(record);
                if self.options.until_end && at.offset >= end {
                    merge.end(at.role);
                }
            }
            _ => self.p.budget.give(at.role, at.partition, record.bytes()),
        }
    }
}

/// Counts an event of the group; when it was heard.
fn rebalance(kind: &str) -> Instant {
    metrics().rebalances.get_or_create(&vec![("kind", kind.to_owned())]).inc();
    monotonic()
}
