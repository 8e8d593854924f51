//! The consumer of a repartition flow: one member of its group leads and reads every partition of the
//! source, so that one merge sees them all.
//!
//! The group elects by assignment: its members subscribe to one topic, and who gets partition 0 of it
//! leads. Safety doesn't rest on that, but on the flow's one transactional id (docs/adr/0006).
#![allow(clippy::disallowed_methods)] // the flow's own thread; calls with their own deadlines

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as E};
use rdkafka::message::Message;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use super::Fetched;
use super::client::{Reader, group_reader};
use super::kafka::record;
use super::pausing::{Pausing, Queued};
use super::refusal::refused;
use super::snapshot::GroupMetadata;
use super::tail::{Bounds, last_record, watermarks};
use crate::clock::monotonic;
use crate::error::{Code, Error, Result};
use crate::topology::{Role, Topology};

const CALL: Duration = Duration::from_secs(20);
/// Records taken in one poll.
const BATCH: usize = 512;

/// What a poll brought, in order.
#[derive(Debug)]
pub enum Heard {
    /// A record of the source; its generation is the term.
    Record(Fetched),
    /// A partition was read to its end.
    End(i32),
}

/// How to join.
#[derive(Debug)]
pub struct LeaderOptions<'a> {
    /// Client settings.
    pub client: &'a ClientConfig,
    /// Topology.
    pub topology: &'a Topology,
    /// Input.
    pub role: Role,
    /// Group.
    pub group: &'a str,
    /// Static membership id.
    pub instance: &'a str,
    /// Terms count on from here.
    pub term: u64,
}

struct Context {
    joined: AtomicBool,
    leads: AtomicBool,
    term: AtomicU64,
    lock: String,
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        super::client::client_log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if !matches!(error, KafkaError::PartitionEOF(_)) && error.rdkafka_error_code() != Some(E::PartitionEOF) {
            tracing::warn!(%error, reason, "repartition consumer");
        }
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, error: RDKafkaRespErr, list: &mut TopicPartitionList) {
        self.term.fetch_add(1, Ordering::SeqCst);
        let done = if error == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            // The source comes by hand, once the flow has fenced; these are never fetched.
            let mut held = TopicPartitionList::new();
            for e in list.elements() {
                drop(held.add_partition_offset(e.topic(), e.partition(), Offset::End));
            }
            self.joined.store(true, Ordering::SeqCst);
            self.leads.store(list.find_partition(&self.lock, 0).is_some(), Ordering::SeqCst);
            consumer.assign(&held).and_then(|()| consumer.pause(&held))
        } else {
            self.joined.store(false, Ordering::SeqCst);
            self.leads.store(false, Ordering::SeqCst);
            consumer.unassign()
        };
        if let Err(error) = done {
            tracing::warn!(%error, "repartition assignment");
        }
    }
}

/// The group's member.
pub struct LeaderReader {
    consumer: BaseConsumer<Context>,
    role: Role,
    source: String,
    pausing: Pausing<i32>,
    /// Fetching from the source since this term.
    reading: Option<u64>,
}

impl std::fmt::Debug for LeaderReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaderReader").field("reading", &self.reading).finish_non_exhaustive()
    }
}

impl LeaderReader {
    /// Joins the group.
    ///
    /// # Errors
    /// `config_invalid`, `broker_refused`.
    pub fn start(o: &LeaderOptions<'_>) -> Result<Self> {
        let lock = o.topology.name(o.role).to_owned();
        let main = &o.topology.main;
        let queue = (main.limits.in_flight_bytes / 1024).clamp(1024, 1 << 20);
        let mut c = o.client.clone();
        c.set("group.id", o.group)
            .set("group.instance.id", o.instance)
            .set("partition.assignment.strategy", "range")
            .set("session.timeout.ms", main.consumer.session_timeout.as_millis().to_string())
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("enable.partition.eof", "true")
            .set("isolation.level", "read_committed")
            .set("auto.offset.reset", "error")
            .set("queued.max.messages.kbytes", queue.to_string())
            .set("fetch.message.max.bytes", "4194304")
            .set("fetch.wait.max.ms", "100")
            .set("fetch.error.backoff.ms", "100");
        let context = Context {
            joined: AtomicBool::new(false),
            leads: AtomicBool::new(false),
            term: AtomicU64::new(o.term),
            lock: lock.clone(),
        };
        let consumer: BaseConsumer<Context> = c
            .create_with_context(context)
            .map_err(|e| Error::with(Code::ConfigInvalid, "the repartition consumer can't be made", e))?;
        consumer.subscribe(&[&lock]).map_err(|e| Error::with(Code::BrokerRefused, "can't subscribe", e))?;
        let source = o.topology.source(o.role).name.clone();
        Ok(Self { consumer, role: o.role, source, pausing: Pausing::default(), reading: None })
    }

    /// Grows with each assignment and each loss of one.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.consumer.context().term.load(Ordering::SeqCst)
    }

    /// Whether the group has given this member an assignment, be it empty, as of the last poll.
    #[must_use]
    pub fn joined(&self) -> bool {
        self.consumer.context().joined.load(Ordering::SeqCst)
    }

    /// Whether this member leads, as of the last poll.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.consumer.context().leads.load(Ordering::SeqCst)
    }

    /// Identity at the broker, good for the term in which it was asked for.
    #[must_use]
    pub fn metadata(&self) -> Option<Arc<GroupMetadata>> {
        self.consumer.group_metadata().map(Arc::new)
    }

    /// Fetches from these offsets on; negative is the beginning.
    ///
    /// # Errors
    /// `broker_refused`.
    pub fn read(&mut self, offsets: &BTreeMap<i32, i64>) -> Result<()> {
        let mut list = TopicPartitionList::new();
        for (partition, next) in offsets {
            let offset = if *next < 0 { Offset::Beginning } else { Offset::Offset(*next) };
            drop(list.add_partition_offset(&self.source, *partition, offset));
        }
        self.pausing.start(offsets.iter().map(|(p, next)| (*p, *next)));
        self.reading = Some(self.term());
        self.consumer
            .resume(&list)
            .and_then(|()| self.consumer.assign(&list))
            .map_err(|e| Error::with(Code::BrokerRefused, "can't read the source", e))
    }

    /// Waits up to `wait` for something, then takes what is there. What a poll brings before a rebalance
    /// inside of it is worth nothing: look at the term afterwards.
    ///
    /// # Errors
    /// `topic_recreated`, `topic_missing`, `instance_fenced`, `broker_refused`.
    pub fn poll(&mut self, wait: Duration) -> Result<Vec<Heard>> {
        let mut heard = Vec::new();
        let mut wait = wait;
        while heard.len() < BATCH {
            let Some(item) = self.consumer.poll(wait) else { break };
            wait = Duration::ZERO;
            let term = self.term();
            let fresh = self.reading == Some(term);
            match item {
                Ok(message) => {
                    let ours = fresh && message.topic() == self.source;
                    if ours && self.pausing.is_next(message.partition(), message.offset()) {
                        heard.push(Heard::Record(record(&message, self.role, term)));
                    }
                }
                Err(KafkaError::PartitionEOF(partition)) => heard.extend(fresh.then_some(Heard::End(partition))),
                Err(e) => self.failed(e, fresh)?,
            }
        }
        Ok(heard)
    }

    fn failed(&self, e: KafkaError, fresh: bool) -> Result<()> {
        let error = match e.rdkafka_error_code().unwrap_or(E::Fail) {
            E::AutoOffsetReset | E::OffsetOutOfRange if fresh => {
                Error::with(Code::TopicRecreated, "a committed offset is outside of its source topic", e)
            }
            E::UnknownTopic => Error::with(Code::TopicMissing, "a source topic is gone", e),
            E::FencedInstanceId => Error::with(Code::InstanceFenced, "another consumer uses this instance id", e),
            E::Fatal
            | E::TopicAuthorizationFailed
            | E::GroupAuthorizationFailed
            | E::UnsupportedAssignor
            | E::InconsistentGroupProtocol => {
                Error::with(Code::BrokerRefused, "the repartition consumer can't go on", e)
            }
            _ => {
                tracing::warn!(error = %e, "repartition consumer");
                return Ok(());
            }
        };
        Err(error)
    }

    /// Pauses partitions with more than `share` bytes queued, resumes them below half of it.
    pub fn flow(&mut self, queued: impl Iterator<Item = (i32, usize)>, share: usize) {
        let source = self.source.as_str();
        let queued = queued.map(|(partition, bytes)| Queued { key: partition, topic: source, partition, bytes });
        self.pausing.step(&self.consumer, queued, share);
    }

    /// Sabotage only: offsets outside of any transaction.
    pub fn commit_alone(&self, offsets: &BTreeMap<i32, i64>) {
        let mut list = TopicPartitionList::new();
        for (partition, next) in offsets.iter().filter(|(_, next)| **next >= 0) {
            drop(list.add_partition_offset(&self.source, *partition, Offset::Offset(*next)));
        }
        drop(self.consumer.commit(&list, rdkafka::consumer::CommitMode::Sync));
    }

    /// Leaves the source; a static member keeps its place in the group for the session timeout.
    pub fn close(&mut self) {
        self.consumer.unsubscribe();
        let until = monotonic() + Duration::from_secs(5);
        while self.leads() && monotonic() < until {
            drop(self.consumer.poll(Duration::from_millis(50)));
        }
    }
}

/// Asks where a source and its readers stand.
pub struct SourceOffsets {
    /// Of the flow's group, never subscribed.
    flow: Reader,
    /// Of the stream's group, never subscribed.
    stream: Reader,
    source: String,
    partitions: i32,
}

impl std::fmt::Debug for SourceOffsets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceOffsets").field("source", &self.source).finish_non_exhaustive()
    }
}

impl SourceOffsets {
    /// For the flow of `o`; `stream` is the group of the units.
    ///
    /// # Errors
    /// `config_invalid`.
    pub fn new(o: &LeaderOptions<'_>, stream: &str) -> Result<Self> {
        let source = o.topology.source(o.role);
        Ok(Self {
            flow: group_reader(o.client, o.group)?,
            stream: group_reader(o.client, stream)?,
            source: source.name.clone(),
            partitions: source.partitions,
        })
    }

    /// The partition count as the topology has it.
    ///
    /// # Errors
    /// `broker_unreachable`, `partition_count_mismatch`.
    pub fn check_partitions(&self) -> Result<()> {
        let metadata = self
            .flow
            .fetch_metadata(Some(&self.source), CALL)
            .map_err(|e| Error::with(Code::BrokerUnreachable, "the broker does not answer", e))?;
        let found = metadata.topics().iter().find(|t| t.error().is_none()).map_or(0, |t| t.partitions().len());
        if i32::try_from(found) == Ok(self.partitions) || found == 0 {
            return Ok(());
        }
        let what = format!("topic {} has {found} partitions, the topology says {}", self.source, self.partitions);
        Err(Error::new(Code::PartitionCountMismatch, what))
    }

    /// Next offset of each partition; -1 where none was ever committed. Where the flow is new the units'
    /// own offsets on the source count: they read it before it was repartitioned.
    ///
    /// # Errors
    /// `broker_unreachable`, `topic_recreated`.
    pub fn committed(&self) -> Result<BTreeMap<i32, i64>> {
        let (flow, stream) = (self.of(&self.flow)?, self.of(&self.stream)?);
        let mut next = BTreeMap::new();
        for partition in 0..self.partitions {
            let known = |of: &BTreeMap<i32, i64>| of.get(&partition).copied().filter(|o| *o >= 0);
            let offset = known(&flow).or_else(|| known(&stream)).unwrap_or(-1);
            let log = watermarks(&self.flow, &self.source, partition)?;
            next.insert(partition, go_on(&format!("{}-{partition}", self.source), log, offset)?);
        }
        Ok(next)
    }

    fn of(&self, group: &Reader) -> Result<BTreeMap<i32, i64>> {
        let mut list = TopicPartitionList::new();
        for partition in 0..self.partitions {
            list.add_partition(&self.source, partition);
        }
        let unreachable = |e: KafkaError| {
            refused(&e, Code::BrokerUnreachable, "committed offsets can't be read", "READ on the flow's group")
        };
        let found = group.committed_offsets(list, CALL).map_err(unreachable)?;
        let mut offsets = BTreeMap::new();
        for p in found.elements() {
            p.error().map_err(unreachable)?;
            if let Offset::Offset(next) = p.offset() {
                offsets.insert(p.partition(), next);
            }
        }
        Ok(offsets)
    }

    /// Last readable offset of each partition as of now; -1 where there is none.
    ///
    /// # Errors
    /// `broker_unreachable`, `restore_stalled`.
    pub fn ends(&self) -> Result<BTreeMap<i32, i64>> {
        let end = |p| Ok((p, last_record(&self.flow, &self.source, p)?.map_or(-1, |m| m.offset())));
        (0..self.partitions).map(end).collect()
    }
}

/// The offset to go on from in a log, or why there is none.
fn go_on(name: &str, log: Bounds, committed: i64) -> Result<i64> {
    let gone = |what: String| Err(Error::new(Code::TopicRecreated, what));
    if committed > log.high {
        return gone(format!("{name} ends at {}, {committed} was committed", log.high));
    }
    // An emptied partition starts one past the end marker of its last transaction.
    if log.low == log.high && committed + 1 == log.low {
        return Ok(log.low);
    }
    if (0..log.low).contains(&committed) {
        return gone(format!("{name} starts at {}: {} inputs were deleted unread", log.low, log.low - committed));
    }
    Ok(committed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_on_only_where_nothing_was_lost() {
        let log = Bounds { low: 10, high: 20 };
        for (committed, next) in [(-1, Some(-1)), (10, Some(10)), (20, Some(20)), (21, None), (9, None), (0, None)] {
            let found = go_on("t-0", log, committed);
            assert_eq!(found.as_ref().ok().copied(), next, "{committed}");
            assert!(found.is_ok() || found.unwrap_err().code() == Code::TopicRecreated);
        }
        assert_eq!(go_on("t-0", Bounds { low: 10, high: 10 }, 9).unwrap(), 10);
    }
}
