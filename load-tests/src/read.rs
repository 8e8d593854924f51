//! Reads topics from their beginning to where they ended when reading began, by `assign`.
//!
//! Caught up is: the last record is at the end, or the partition's EOF. Never the last record's offset
//! alone: control records and compaction take offsets.
#![allow(clippy::disallowed_methods)] // watermarks and metadata: nobody waits for this thread

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::topic_partition_list::Offset;

use crate::error::{Doing, Error, Result};
use crate::kafka::{CALL, client, unique};
use crate::out::Out;

/// No record, no EOF for this long is an error.
const STALL: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

/// What a reader may see of transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Isolation {
    /// Committed records only.
    #[value(name = "read_committed")]
    Committed,
    /// Aborted and open ones too: shows that a check can go red.
    #[value(name = "read_uncommitted")]
    Uncommitted,
}

impl Isolation {
    fn as_str(self) -> &'static str {
        match self {
            Isolation::Committed => "read_committed",
            Isolation::Uncommitted => "read_uncommitted",
        }
    }
}

/// Where a partition stood when reading began, offsets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// First offset that is kept.
    pub(crate) low: i64,
    /// Next offset to be written, whatever its transaction's state.
    pub(crate) high: i64,
    /// First offset of an open transaction, else `high`.
    pub(crate) stable: i64,
}

/// Reads whole topics of one cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    /// Bootstrap servers.
    pub(crate) bootstrap: &'a str,
    /// What is seen of transactions.
    pub(crate) isolation: Isolation,
    /// For progress.
    pub(crate) out: &'a Out,
}

/// A consumer without group membership.
pub(crate) fn consumer(bootstrap: &str, isolation: Isolation, extra: &[(String, String)]) -> Result<BaseConsumer> {
    let mut config = client(bootstrap, &[]);
    config
        .set("group.id", unique("reader"))
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "error")
        .set("fetch.wait.max.ms", "100")
        .set("fetch.error.backoff.ms", "100")
        .set("fetch.message.max.bytes", "4194304")
        .set("isolation.level", isolation.as_str());
    for (key, value) in extra {
        config.set(key, value);
    }
    config.create().doing("making a consumer")
}

/// Bounds of every partition of a topic that exists.
pub(crate) fn bounds(bootstrap: &str, topic: &str) -> Result<BTreeMap<i32, Bounds>> {
    let all = consumer(bootstrap, Isolation::Uncommitted, &[])?;
    let committed = consumer(bootstrap, Isolation::Committed, &[])?;
    let metadata = all.fetch_metadata(Some(topic), CALL).doing(&format!("reading the metadata of {topic}"))?;
    let found = metadata.topics().iter().find(|t| t.name() == topic && t.error().is_none());
    let found = found
        .filter(|t| !t.partitions().is_empty())
        .ok_or_else(|| Error::Input(format!("there is no topic {topic}")))?;
    let mut result = BTreeMap::new();
    for partition in found.partitions() {
        let doing = format!("reading the end of {topic}-{}", partition.id());
        let (low, high) = all.fetch_watermarks(topic, partition.id(), CALL).doing(&doing)?;
        let (_, stable) = committed.fetch_watermarks(topic, partition.id(), CALL).doing(&doing)?;
        result.insert(partition.id(), Bounds { low, high, stable });
    }
    Ok(result)
}

/// Assigns every partition that has anything, from its first offset.
pub(crate) fn assign(consumer: &BaseConsumer, topic: &str, bounds: &BTreeMap<i32, Bounds>) -> Result<()> {
    let mut list = TopicPartitionList::new();
    for (&partition, b) in bounds.iter().filter(|(_, b)| b.low < b.high) {
        list.add_partition_offset(topic, partition, Offset::Offset(b.low)).doing("listing partitions")?;
    }
    consumer.assign(&list).doing(&format!("assigning {topic}"))
}

/// The partitions that are still to be read.
#[derive(Debug)]
pub(crate) struct Pending {
    ends: BTreeMap<i32, i64>,
    last: Instant,
}

/// What one poll brought.
#[derive(Debug)]
pub(crate) enum Polled<'a> {
    /// A record below the end.
    Record(Box<BorrowedMessage<'a>>),
    /// Nothing new, or a record that came after the end was taken.
    Nothing,
}

impl Pending {
    /// All partitions that have anything.
    pub(crate) fn new(bounds: &BTreeMap<i32, Bounds>) -> Self {
        let ends = bounds.iter().filter(|(_, b)| b.low < b.high).map(|(&p, b)| (p, b.high)).collect();
        Self { ends, last: Instant::now() }
    }

    /// Whether everything was read.
    pub(crate) fn done(&self) -> bool {
        self.ends.is_empty()
    }

    /// Polls once.
    pub(crate) fn poll<'c>(&mut self, consumer: &'c BaseConsumer, topic: &str, wait: Duration) -> Result<Polled<'c>> {
        match consumer.poll(wait) {
            None => self.stalled(topic),
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                self.last = Instant::now();
                self.ends.remove(&partition);
                Ok(Polled::Nothing)
            }
            Some(Err(source)) => Err(Error::Kafka { what: format!("reading {topic} failed"), source }),
            Some(Ok(message)) => Ok(self.take(message)),
        }
    }

    fn take<'c>(&mut self, message: BorrowedMessage<'c>) -> Polled<'c> {
        let Some(&end) = self.ends.get(&message.partition()) else {
            return Polled::Nothing;
        };
        self.last = Instant::now();
        if message.offset() + 1 >= end {
            self.ends.remove(&message.partition());
        }
        if message.offset() < end { Polled::Record(Box::new(message)) } else { Polled::Nothing }
    }

    fn stalled<'c>(&mut self, topic: &str) -> Result<Polled<'c>> {
        if self.last.elapsed() > STALL {
            return Err(Error::Stalled(format!("{topic}: no end in sight of partitions {:?}", self.ends.keys())));
        }
        Ok(Polled::Nothing)
    }
}

impl Reader<'_> {
    /// Where the partitions of a topic stand now.
    pub(crate) fn bounds(&self, topic: &str) -> Result<BTreeMap<i32, Bounds>> {
        bounds(self.bootstrap, topic)
    }

    /// Calls `each` for every record within `bounds`, each partition in offset order, until it breaks.
    pub(crate) fn read<F>(&self, topic: &str, bounds: &BTreeMap<i32, Bounds>, mut each: F) -> Result<()>
    where
        F: FnMut(&BorrowedMessage<'_>) -> Result<ControlFlow<()>>,
    {
        let consumer = consumer(self.bootstrap, self.isolation, &[])?;
        assign(&consumer, topic, bounds)?;
        let mut pending = Pending::new(bounds);
        let mut progress = self.out.progress(&format!("reading {topic}"), None);
        while !pending.done() {
            if let Polled::Record(message) = pending.poll(&consumer, topic, POLL)? {
                progress.step();
                if each(&message)?.is_break() {
                    break;
                }
            }
        }
        Ok(())
    }
}
