//! Bounded reads of a partition's committed end, outside of any group.
#![allow(clippy::disallowed_methods)] // blocking calls with their own deadlines, never on a tokio worker

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Message, OwnedMessage};
use rdkafka::{Offset, TopicPartitionList};

use super::client::{Reader, reader};
use super::connect::connect;
use super::refusal::{is_denied, refused};
use super::{At, Fetched};
use crate::clock::monotonic;
use crate::error::{Code, Error, Result};
use crate::schema::Boundary;
use crate::topology::{Role, Topology};

/// Longest wait for one answer.
const CALL: Duration = Duration::from_secs(20);
/// One question within it.
const ASK: Duration = Duration::from_secs(5);
/// Longest wait for a read to get on.
const STALL: Duration = Duration::from_secs(60);

/// First and next offset of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Log start.
    pub low: i64,
    /// High watermark, or last stable offset under read_committed.
    pub high: i64,
}

/// Asks for the bounds, under the handle's isolation level. A new topic may have no leader yet, so passing
/// errors are retried.
///
/// # Errors
/// `broker_unreachable`.
pub fn watermarks(consumer: &Reader, topic: &str, partition: i32) -> Result<Bounds> {
    let until = monotonic() + CALL;
    loop {
        match consumer.fetch_watermarks(topic, partition, ASK) {
            Ok((low, high)) => return Ok(Bounds { low, high }),
            Err(e) if e.rdkafka_error_code().is_some_and(passing) && monotonic() < until => {
                describable(consumer, topic)?;
                std::thread::sleep(Duration::from_millis(100));
            }
            Err(e) => {
                let (what, right) =
                    (format!("no watermarks of {topic}-{partition}"), format!("DESCRIBE on topic {topic}"));
                return Err(refused(&e, Code::BrokerUnreachable, &what, &right));
            }
        }
    }
}

/// A topic that may not be described has no partitions for the client: metadata alone says why.
fn describable(consumer: &Reader, topic: &str) -> Result<()> {
    let Ok(metadata) = consumer.fetch_metadata(Some(topic), CALL) else { return Ok(()) };
    let found = metadata.topics().iter().find(|t| t.name() == topic);
    match found.and_then(|t| t.error()).map(RDKafkaErrorCode::from) {
        Some(code) if is_denied(code) => {
            let right = format!("DESCRIBE on topic {topic}");
            Err(refused(&KafkaError::MetadataFetch(code), Code::BrokerRefused, "a topic is out of reach", &right))
        }
        _ => Ok(()),
    }
}

/// The last readable record below the committed end; `None` when there is none at or above `low`.
/// Control records and aborted records take offsets, so the search walks back in growing steps.
///
/// # Errors
/// `broker_unreachable`, `restore_stalled`.
pub fn last_record(consumer: &Reader, topic: &str, partition: i32) -> Result<Option<OwnedMessage>> {
    let Bounds { low, high } = watermarks(consumer, topic, partition)?;
    let mut step = 8;
    let mut from = high;
    while from > low {
        from = (high - step).max(low);
        step *= 8;
        let mut last = None;
        read(consumer, topic, partition, from, |m| {
            if let Some(m) = m.filter(|m| m.offset() < high) {
                last = Some(m.detach());
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if last.is_some() {
            return Ok(last);
        }
    }
    Ok(None)
}

/// Reads a partition from an offset to its committed end as it is now. `each` also gets `None` while
/// nothing comes; it may end the read early. Says whether the end was reached.
///
/// # Errors
/// `broker_unreachable`, `restore_stalled`, and what `each` returns.
pub fn read(
    consumer: &Reader,
    topic: &str,
    partition: i32,
    from: i64,
    mut each: impl FnMut(Option<&rdkafka::message::BorrowedMessage<'_>>) -> Result<ControlFlow<()>>,
) -> Result<bool> {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(from))
        .and_then(|()| consumer.assign(&list))
        .map_err(|e| Error::with(Code::BrokerRefused, format!("can't read {topic}-{partition}"), e))?;
    let mut moved = monotonic();
    let mut last_error = None;
    loop {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                moved = monotonic();
                last_error = None;
                if each(Some(&message))?.is_break() {
                    return Ok(false);
                }
            }
            Some(Err(KafkaError::PartitionEOF(_))) => return Ok(true),
            Some(Err(e)) if e.rdkafka_error_code().is_some_and(passing) => {
                tracing::debug!(error = %e, "read");
                last_error = Some(e);
            }
            Some(Err(e)) => {
                let (what, right) = (format!("reading {topic}-{partition} failed"), format!("READ on topic {topic}"));
                return Err(refused(&e, Code::BrokerRefused, &what, &right));
            }
            None if each(None)?.is_break() => return Ok(false),
            None => {}
        }
        if moved.elapsed() > STALL {
            if let Some(e) = last_error {
                return Err(Error::with(Code::BrokerUnreachable, format!("reading {topic}-{partition} stopped"), e));
            }
            return Err(Error::new(Code::RestoreStalled, format!("{topic}-{partition} gave nothing for {STALL:?}")));
        }
    }
}

/// Key and value of every record of a topic's one partition, from an offset to its committed end.
///
/// # Errors
/// `broker_unreachable`, `restore_stalled`.
pub fn each_pair(consumer: &Reader, topic: &str, from: i64, mut each: impl FnMut(&[u8], Option<&[u8]>)) -> Result<()> {
    read(consumer, topic, 0, from, |m| {
        if let Some(m) = m {
            each(m.key().unwrap_or_default(), m.payload());
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(())
}

/// Errors that the client gets over by itself.
pub(crate) fn passing(code: rdkafka::error::RDKafkaErrorCode) -> bool {
    use rdkafka::error::RDKafkaErrorCode as E;
    matches!(
        code,
        E::BrokerTransportFailure
            | E::AllBrokersDown
            | E::Resolve
            | E::OperationTimedOut
            | E::RequestTimedOut
            | E::NotLeaderForPartition
            | E::LeaderNotAvailable
            | E::CoordinatorNotAvailable
            | E::NotCoordinator
            | E::CoordinatorLoadInProgress
            | E::NetworkException
            | E::TimedOutQueue
            | E::UnknownTopicOrPartition
            | E::UnknownPartition
    )
}

/// Last readable offset of each input partition as of now; -1 where there is none.
///
/// # Errors
/// `broker_unreachable`, `restore_stalled`.
pub fn ends(client: &ClientConfig, topology: &Topology) -> Result<HashMap<(Role, i32), i64>> {
    let consumer: Reader = reader(client, "read_committed", "memsluice-ends")?;
    let mut ends = HashMap::new();
    for role in [Role::RetrievalLogs, Role::MemoryWrites] {
        for partition in 0..topology.units() {
            let last = last_record(&consumer, topology.name(role), partition)?;
            ends.insert((role, partition), last.map_or(-1, |m| m.offset()));
        }
    }
    Ok(ends)
}

/// Queries and committed (allowed) writes of a boundary, each from offset `from` on (default: log start).
///
/// # Errors
/// `broker_unreachable`, `restore_stalled`, and what `each` returns.
pub fn each_record(
    client: &ClientConfig,
    topology: &Topology,
    boundary: &Boundary,
    from: Option<i64>,
    mut each: impl FnMut(Fetched) -> Result<()>,
) -> Result<()> {
    connect(client)?;
    let consumer = reader(client, "read_committed", "memsluice-range")?;
    let partition = super::partition_of(boundary.as_str().as_bytes(), topology.units());
    let of_record = format!("{boundary}/");
    for (topic, role) in [(Role::RetrievalLogs, Role::RetrievalLogs), (Role::CommittedMemory, Role::MemoryWrites)] {
        let name = topology.name(topic);
        let log = watermarks(&consumer, name, partition)?;
        let start = from.unwrap_or(log.low).clamp(log.low, log.high);
        if start == log.high {
            continue;
        }
        read(&consumer, name, partition, start, |m| {
            let Some(m) = m else { return Ok(ControlFlow::Continue(())) };
            let key = m.key().unwrap_or_default();
            if key != boundary.as_str().as_bytes() && !key.starts_with(of_record.as_bytes()) {
                return Ok(ControlFlow::Continue(()));
            }
            let timestamp = m.timestamp().to_millis().unwrap_or_default();
            let at = At { generation: 0, role, partition, offset: m.offset(), timestamp };
            each(Fetched { at, key: Some(key.to_vec()), value: m.payload().map(<[u8]>::to_vec), headers: Vec::new() })?;
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(())
}
