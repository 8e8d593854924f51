//! The thread of one input: elect, fence, read, merge, relay, commit.
//!
//! What a member relays in a term stands in transactions of the one id, each with the source's next
//! offsets. A new leader fences first and reads offsets second, so it goes on exactly where the last
//! commit ended, whatever the old leader still believes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::RepartitionSettings;
use super::route::route;
use crate::clock::monotonic;
use crate::config::Sabotage;
use crate::error::{Action, Code, Error, Result};
use crate::sink::{CommitError, InputOffset, TransactionalProducer, Transactions};
use crate::source::{FRAMING, Fetched, GroupMetadata, Heard, Lanes, LeaderReader, SourceOffsets};
use crate::topology::{Role, Topology};

/// Longest wait for a record.
const POLL: Duration = Duration::from_millis(20);
/// A member that was fenced hears of its successor within this time; only then it may fence again.
const AFTER_FENCE: Duration = Duration::from_secs(5);
/// Failures in a row before the process ends.
const FAILURES: u32 = 6;
/// How often a member that doesn't lead looks whether the source's end was reached.
const LOOK: Duration = Duration::from_millis(500);
/// Records relayed between two looks at the consumer.
const SLICE: usize = 2000;
/// After this long outside of the group the consumer is taken for stuck and replaced.
const OUTSIDE: Duration = Duration::from_secs(60);
/// Replacements in a row before the process ends.
const REJOINS: u32 = 3;
/// How often the source's partition count is looked at.
const RECOUNT: Duration = Duration::from_secs(30);

/// What a leader holds for a term.
struct Reign {
    producer: TransactionalProducer,
    group: Arc<GroupMetadata>,
    lanes: Lanes,
    /// Next offset of each partition, the open transaction included.
    next: BTreeMap<i32, i64>,
    /// The same without it.
    committed: BTreeMap<i32, i64>,
    opened: Option<Instant>,
    records: usize,
    bytes: usize,
}

/// One input's flow.
pub(super) struct Flow {
    settings: RepartitionSettings,
    role: Role,
    reader: LeaderReader,
    offsets: SourceOffsets,
    /// Last readable offset of each partition at start, under `until_end`.
    ends: Option<BTreeMap<i32, i64>>,
    term: u64,
    reign: Option<Reign>,
    /// No reign begins before this.
    not_before: Instant,
    failures: u32,
    joined: Instant,
    rejoins: u32,
    looked: Instant,
    counted: Instant,
    relayed: u64,
}

enum Failed {
    /// The transaction is rolled back and run again.
    Transaction(CommitError),
    /// The process ends.
    Process(Error),
}

impl From<CommitError> for Failed {
    fn from(e: CommitError) -> Self {
        Failed::Transaction(e)
    }
}

impl From<Error> for Failed {
    fn from(e: Error) -> Self {
        Failed::Process(e)
    }
}

impl Flow {
    pub(super) fn new(settings: RepartitionSettings, role: Role) -> Result<Self> {
        let group = settings.flow_group(role);
        let options = settings.leader_options(role, &group, 0);
        let offsets = SourceOffsets::new(&options, &settings.group)?;
        let ends = if settings.until_end { Some(offsets.ends()?) } else { None };
        let reader = LeaderReader::start(&options)?;
        let now = monotonic();
        Ok(Self {
            role,
            reader,
            offsets,
            ends,
            term: 0,
            reign: None,
            not_before: now,
            failures: 0,
            joined: now,
            rejoins: 0,
            looked: now,
            counted: now,
            relayed: 0,
            settings,
        })
    }

    fn topology(&self) -> &Topology {
        &self.settings.topology
    }

    /// Until the end, a stop or an error that the process can't go on with.
    pub(super) fn run(mut self) -> Result<()> {
        let result = self.turns();
        self.reign = None;
        self.reader.close();
        tracing::info!(role = self.role.as_str(), relayed = self.relayed, "repartition flow ended");
        result
    }

    fn turns(&mut self) -> Result<()> {
        loop {
            let stop = self.settings.stop.load(Ordering::Relaxed);
            match self.turn(stop) {
                Ok(false) => {}
                Ok(true) => return Ok(()),
                Err(Failed::Process(e)) => return Err(e),
                Err(Failed::Transaction(e)) => self.settle(e)?,
            }
            if stop {
                return Ok(());
            }
        }
    }

    /// One round; `true` at the end.
    fn turn(&mut self, stop: bool) -> std::result::Result<bool, Failed> {
        let heard = self.reader.poll(self.patience())?;
        if self.reader.term() != self.term {
            self.term = self.reader.term();
            self.abdicate();
        } else {
            self.take(heard);
        }
        self.stay_joined()?;
        if !self.reader.leads() {
            return self.at_end_elsewhere().map_err(Failed::from);
        }
        if self.reign.is_none() {
            if stop || monotonic() < self.not_before {
                return Ok(false);
            }
            self.accede()?;
        }
        self.relay()?;
        self.flow();
        self.recount()?;
        let finished = self.finished();
        if stop || finished || self.commit_is_due() {
            self.commit()?;
        }
        Ok(finished)
    }

    /// librdkafka may lose a group for good when its only broker pauses: a new consumer finds it again.
    fn stay_joined(&mut self) -> Result<()> {
        if self.reader.joined() {
            (self.joined, self.rejoins) = (monotonic(), 0);
        }
        if self.joined.elapsed() < OUTSIDE {
            return Ok(());
        }
        self.rejoins += 1;
        if self.rejoins > REJOINS {
            return Err(Error::new(Code::BrokerUnreachable, "the repartition group took in none of three consumers"));
        }
        tracing::warn!(attempt = self.rejoins, "joining the repartition group with a new consumer");
        self.abdicate();
        self.reader.close();
        let group = self.settings.flow_group(self.role);
        self.term += 1;
        self.reader = LeaderReader::start(&self.settings.leader_options(self.role, &group, self.term))?;
        self.joined = monotonic();
        Ok(())
    }

    fn patience(&self) -> Duration {
        let Some(reign) = &self.reign else { return POLL };
        let commit = reign.opened.map(|t| t + self.topology().main.commit.interval);
        let due = [commit, reign.lanes.turn()].into_iter().flatten().min();
        due.map_or(POLL, |t| t.saturating_duration_since(monotonic()).min(POLL))
    }

    /// Begins a term: fence, then offsets, then the source from there.
    fn accede(&mut self) -> std::result::Result<(), Failed> {
        match self.begin() {
            Ok(reign) => {
                let open = reign.next.values().filter(|n| **n >= 0).count();
                tracing::info!(role = self.role.as_str(), term = self.term, open, "leads the repartition");
                self.reign = Some(reign);
                Ok(())
            }
            // The broker may be on its way back.
            Err(error) if matches!(error.code(), Code::BrokerUnreachable | Code::BrokerRefused) => {
                Err(Failed::Transaction(CommitError { action: Action::Rebuild, error }))
            }
            Err(error) => Err(Failed::Process(error)),
        }
    }

    fn begin(&mut self) -> Result<Reign> {
        let main = &self.settings.topology.main;
        let id = self.settings.transactional_id(self.role);
        let sabotaged = self.settings.sabotage == Some(Sabotage::TransactionsOff);
        let id = (!sabotaged).then_some(id.as_str());
        // The internal topic's own limit decides: it was checked against the source's.
        let largest = 100_000_000.max(main.limits.max_output_bytes + FRAMING);
        let producer =
            TransactionalProducer::start(&self.settings.client, id, main.commit.transaction_timeout, largest)?;
        self.offsets.check_partitions()?;
        let next = self.offsets.committed()?;
        let missing = || Error::new(Code::BrokerUnreachable, "the group gave no identity");
        let group = self.reader.metadata().ok_or_else(missing)?;
        let lanes = self.lanes(&next);
        self.reader.read(&next)?;
        let committed = next.clone();
        Ok(Reign { producer, group, lanes, next, committed, opened: None, records: 0, bytes: 0 })
    }

    fn lanes(&self, next: &BTreeMap<i32, i64>) -> Lanes {
        let idle = self.ends.is_none().then_some(self.topology().main.consumer.max_task_idle);
        let mut lanes = Lanes::new(next.keys().copied(), idle);
        if self.settings.sabotage == Some(Sabotage::RepartitionMergeOff) {
            next.keys().for_each(|p| lanes.done(*p));
        }
        for (partition, end) in self.ends.iter().flatten() {
            if next.get(partition).is_some_and(|n| n > end) || *end < 0 {
                lanes.done(*partition);
            }
        }
        lanes
    }

    fn abdicate(&mut self) {
        if let Some(mut reign) = self.reign.take() {
            tracing::info!(role = self.role.as_str(), "no longer leads the repartition");
            // The successor's fence does the same.
            drop(reign.producer.abort());
        }
    }

    fn take(&mut self, heard: Vec<Heard>) {
        let Some(reign) = &mut self.reign else { return };
        let now = monotonic();
        for item in heard {
            match item {
                Heard::End(partition) => reign.lanes.end(partition),
                Heard::Record(record) => {
                    let (partition, offset) = (record.at.partition, record.at.offset);
                    let end = self.ends.as_ref().and_then(|e| e.get(&partition)).copied().unwrap_or(i64::MAX);
                    if offset <= end {
                        reign.lanes.push(record, now);
                    }
                    if offset >= end {
                        reign.lanes.done(partition);
                    }
                }
            }
        }
    }

    fn relay(&mut self) -> std::result::Result<(), Failed> {
        let now = monotonic();
        if let Some(reign) = &mut self.reign {
            reign.producer.poll();
        }
        for _ in 0..SLICE {
            let Some(reign) = &mut self.reign else { return Ok(()) };
            if reign.records >= self.settings.topology.main.commit.max_records
                || reign.bytes >= self.settings.topology.main.commit.max_bytes
            {
                return Ok(());
            }
            let Some(record) = reign.lanes.next(now) else { return Ok(()) };
            relay_one(reign, &self.settings.topology, self.role, record)?;
        }
        Ok(())
    }

    /// Keeps the queued bytes in bounds; what is waited for is empty, so it is never paused.
    fn flow(&mut self) {
        let share = self.settings.topology.main.limits.in_flight_bytes;
        if let Some(reign) = &self.reign {
            self.reader.flow(reign.lanes.bytes(), share / reign.next.len().max(1));
        }
    }

    /// Partitions added to the source would be read by nobody.
    fn recount(&mut self) -> Result<()> {
        if self.counted.elapsed() < RECOUNT {
            return Ok(());
        }
        self.counted = monotonic();
        match self.offsets.check_partitions() {
            Err(e) if e.code() == Code::BrokerUnreachable => Ok(()),
            other => other,
        }
    }

    fn commit_is_due(&self) -> bool {
        let commit = &self.topology().main.commit;
        let due = |r: &Reign| {
            r.opened.is_some_and(|t| t.elapsed() >= commit.interval)
                || r.records >= commit.max_records
                || r.bytes >= commit.max_bytes
        };
        self.reign.as_ref().is_some_and(due)
    }

    fn commit(&mut self) -> std::result::Result<(), CommitError> {
        let source = self.settings.topology.source(self.role).name.clone();
        let Some(reign) = self.reign.as_mut().filter(|r| r.opened.is_some()) else { return Ok(()) };
        reign.producer.drain()?;
        let moved = |(p, next): (&i32, &i64)| {
            (reign.committed.get(p) != Some(next)).then(|| InputOffset {
                topic: source.clone(),
                partition: *p,
                next: *next,
            })
        };
        let offsets: Vec<InputOffset> = reign.next.iter().filter_map(moved).collect();
        reign.producer.send_offsets(&offsets, &reign.group)?;
        reign.producer.commit()?;
        if self.settings.sabotage == Some(Sabotage::TransactionsOff) {
            self.reader.commit_alone(&reign.next);
        }
        self.relayed += reign.records as u64;
        self.failures = 0;
        reign.committed = reign.next.clone();
        (reign.opened, reign.records, reign.bytes) = (None, 0, 0);
        Ok(())
    }

    /// After a failed step.
    fn settle(&mut self, e: CommitError) -> Result<()> {
        tracing::warn!(role = self.role.as_str(), error = %e.error, "the repartition is rolled back");
        self.failures += 1;
        if e.action == Action::Stop || self.failures > FAILURES {
            return Err(e.error);
        }
        let aborted = e.action == Action::Abort && self.reign.as_mut().is_some_and(|r| r.producer.abort().is_ok());
        self.reign = None;
        // A new term fences again; after an abort of its own nobody else can have done so.
        self.not_before = monotonic() + if aborted { POLL * self.failures } else { AFTER_FENCE };
        Ok(())
    }

    fn finished(&self) -> bool {
        let (Some(ends), Some(reign)) = (&self.ends, &self.reign) else { return false };
        reign.lanes.is_empty() && reached(ends, &reign.next)
    }

    /// Without the lead the group's offsets tell when the end was reached.
    fn at_end_elsewhere(&mut self) -> Result<bool> {
        let Some(ends) = &self.ends else { return Ok(false) };
        if self.looked.elapsed() < LOOK {
            return Ok(false);
        }
        self.looked = monotonic();
        Ok(reached(ends, &self.offsets.committed()?))
    }
}

fn reached(ends: &BTreeMap<i32, i64>, next: &BTreeMap<i32, i64>) -> bool {
    ends.iter().all(|(p, end)| *end < 0 || next.get(p).is_some_and(|n| n > end))
}

fn relay_one(
    reign: &mut Reign,
    topology: &Topology,
    role: Role,
    record: Fetched,
) -> std::result::Result<(), CommitError> {
    reign.producer.begin()?;
    reign.opened.get_or_insert_with(monotonic);
    let (partition, next) = (record.at.partition, record.at.offset + 1);
    let source = topology.source(role);
    let limit = topology.main.limits.max_record_bytes;
    let relayed = route(record, &source.name, topology.units(), limit, &source.input);
    reign.records += 1;
    reign.bytes += relayed.bytes();
    reign.producer.relay(topology.name(role), &relayed)?;
    reign.next.insert(partition, next);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_reached_behind_its_last_record() {
        let ends = BTreeMap::from([(0, 4), (1, -1)]);
        assert!(!reached(&ends, &BTreeMap::from([(0, 4), (1, -1)])));
        assert!(reached(&ends, &BTreeMap::from([(0, 5), (1, -1)])));
        assert!(!reached(&ends, &BTreeMap::new()));
    }
}
