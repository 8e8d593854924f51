//! Bounded spans of topics and the offsets of a group, for commands.
#![allow(clippy::disallowed_methods)] // commands' calls with their own deadlines

use std::ops::ControlFlow;
use std::str::FromStr;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::{Offset, TopicPartitionList};

use super::client::{Reader, group_reader, reader};
use super::kafka::record;
use super::{Bounds, Fetched, GroupMetadata, read, watermarks};
use crate::clock::{Millis, monotonic, parse_rfc3339};
use crate::error::{Code, Error, Result};
use crate::topology::{Role, Topology};

const CALL: Duration = Duration::from_secs(20);
/// An open transaction that hides a partition's end is waited for at most this long.
const STALL: Duration = Duration::from_secs(90);

/// A place in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// The log's start.
    Earliest,
    /// The committed end.
    Latest,
    /// An offset.
    Offset(i64),
    /// The first record at or after a time.
    Time(Millis),
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "earliest" => return Ok(Point::Earliest),
            "latest" => return Ok(Point::Latest),
            _ => {}
        }
        if let Ok(offset) = text.parse::<u64>() {
            return i64::try_from(offset).map(Point::Offset).map_err(|_| "the offset is too large".to_owned());
        }
        parse_rfc3339(text)
            .map(Point::Time)
            .ok_or_else(|| "give earliest, latest, an offset, or a time such as 2026-11-30T02:00:00Z".to_owned())
    }
}

/// Reads spans of one cluster's topics.
pub struct Spans {
    uncommitted: Reader,
    committed: Reader,
}

impl std::fmt::Debug for Spans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spans").finish_non_exhaustive()
    }
}

impl Spans {
    /// Makes the readers.
    ///
    /// # Errors
    /// `config_invalid`.
    pub fn new(client: &ClientConfig) -> Result<Self> {
        Ok(Self {
            uncommitted: reader(client, "read_uncommitted", "memsluice-spans")?,
            committed: reader(client, "read_committed", "memsluice-spans")?,
        })
    }

    /// The readers' committed side.
    #[must_use]
    pub fn committed(&self) -> &Reader {
        &self.committed
    }

    /// Number of partitions of a topic.
    ///
    /// # Errors
    /// `broker_unreachable`, `topic_missing`.
    pub fn partitions(&self, topic: &str) -> Result<i32> {
        let metadata = self
            .committed
            .fetch_metadata(Some(topic), CALL)
            .map_err(|e| Error::with(Code::BrokerUnreachable, "the broker does not answer", e))?;
        let found = metadata.topics().iter().find(|t| t.name() == topic && t.error().is_none());
        match found.map_or(0, |t| t.partitions().len()) {
            0 => Err(Error::new(Code::TopicMissing, format!("topic {topic} does not exist"))),
            n => Ok(i32::try_from(n).unwrap_or(i32::MAX)),
        }
    }

    /// Start of the log and its end as it is now, once every transaction that was open below it has ended.
    ///
    /// # Errors
    /// `broker_unreachable`, `restore_stalled`.
    pub fn bounds(&self, topic: &str, partition: i32) -> Result<Bounds> {
        let target = watermarks(&self.uncommitted, topic, partition)?;
        let until = monotonic() + STALL;
        while watermarks(&self.committed, topic, partition)?.high < target.high {
            if monotonic() > until {
                let what = format!("an open transaction hides {topic}-{partition} below {}", target.high);
                return Err(Error::new(Code::RestoreStalled, what));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(target)
    }

    /// A point as an offset inside the bounds.
    ///
    /// # Errors
    /// `broker_unreachable`.
    pub fn resolve(&self, topic: &str, partition: i32, point: Point, bounds: Bounds) -> Result<i64> {
        let offset = match point {
            Point::Earliest => bounds.low,
            Point::Latest => bounds.high,
            Point::Offset(n) => n,
            Point::Time(t) => self.at_time(topic, partition, t)?.unwrap_or(bounds.high),
        };
        Ok(offset.clamp(bounds.low, bounds.high))
    }

    fn at_time(&self, topic: &str, partition: i32, time: Millis) -> Result<Option<i64>> {
        let failed =
            |e| Error::with(Code::BrokerUnreachable, format!("no offset of a time for {topic}-{partition}"), e);
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(time)).map_err(failed)?;
        let found = self.committed.offsets_for_times(list, CALL).map_err(failed)?;
        let offset = found.find_partition(topic, partition).map(|p| p.offset());
        Ok(if let Some(Offset::Offset(n)) = offset { Some(n) } else { None })
    }

    /// Records of a span, in order, until `each` breaks.
    ///
    /// # Errors
    /// `broker_unreachable`, `restore_stalled`, and what `each` returns.
    pub fn read(
        &self,
        (role, topic): (Role, &str),
        partition: i32,
        (from, to): (i64, i64),
        mut each: impl FnMut(Fetched) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        read(&self.committed, topic, partition, from, |m| {
            let Some(m) = m else { return Ok(ControlFlow::Continue(())) };
            let at = rdkafka::Message::offset(m);
            if at >= to || each(record(m, role, 0))?.is_break() || at + 1 >= to {
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(())
    }
}

/// Value of a record.
#[must_use]
pub fn payload(message: &rdkafka::message::OwnedMessage) -> Option<&[u8]> {
    rdkafka::Message::payload(message)
}

/// A consumer group seen from outside: never a member of it.
pub struct Group {
    name: String,
    consumer: Reader,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Group {
    /// Of a name.
    ///
    /// # Errors
    /// `config_invalid`.
    pub fn new(client: &ClientConfig, name: &str) -> Result<Self> {
        Ok(Self { name: name.to_owned(), consumer: group_reader(client, name)? })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Members that the broker shows, as `client id (host)`. Groups of the consumer protocol (KIP-848) show none
    /// here: [`Group::probe`] sees them.
    ///
    /// # Errors
    /// `broker_unreachable`.
    pub fn members(&self) -> Result<Vec<String>> {
        let groups = self
            .consumer
            .fetch_group_list(Some(&self.name), CALL)
            .map_err(|e| Error::with(Code::BrokerUnreachable, "the group can't be listed", e))?;
        let own = groups.groups().iter().filter(|g| g.name() == self.name);
        Ok(own.flat_map(|g| g.members()).map(|m| format!("{} ({})", m.client_id(), m.client_host())).collect())
    }

    /// Commits the offsets that are there once more: a broker refuses that while the group has members, of
    /// either protocol. `false` when it refused.
    ///
    /// # Errors
    /// `broker_unreachable`.
    pub fn probe(&self, offsets: &[(String, i32, i64)]) -> Result<bool> {
        let mut list = TopicPartitionList::new();
        for (topic, partition, offset) in offsets {
            drop(list.add_partition_offset(topic, *partition, Offset::Offset(*offset)));
        }
        if list.count() == 0 {
            return Ok(true);
        }
        use rdkafka::error::RDKafkaErrorCode as E;
        match self.consumer.commit(&list, CommitMode::Sync) {
            Ok(()) => Ok(true),
            Err(e) => match e.rdkafka_error_code() {
                Some(E::UnknownMemberId | E::IllegalGeneration | E::RebalanceInProgress | E::StaleMemberEpoch) => {
                    Ok(false)
                }
                _ => Err(Error::with(Code::BrokerRefused, "the group's offsets can't be committed", e)),
            },
        }
    }

    /// Committed offsets (require stable) of the topology's inputs: topic, partition, next offset; those
    /// without one are left out.
    ///
    /// # Errors
    /// `broker_unreachable`.
    pub fn offsets(&self, topology: &Topology) -> Result<Vec<(String, i32, i64)>> {
        let mut list = TopicPartitionList::new();
        for role in Role::INPUTS {
            for partition in 0..topology.topic(role).partitions {
                list.add_partition(topology.name(role), partition);
            }
        }
        let failed = |e| Error::with(Code::BrokerUnreachable, "committed offsets can't be read", e);
        let found = self.consumer.committed_offsets(list, CALL).map_err(failed)?;
        let mut offsets = Vec::new();
        for p in found.elements() {
            p.error().map_err(failed)?;
            if let Offset::Offset(n) = p.offset() {
                offsets.push((p.topic().to_owned(), p.partition(), n));
            }
        }
        Ok(offsets)
    }

    /// Identity for offsets that are sent in a transaction from outside of the group.
    #[must_use]
    pub fn metadata(&self) -> Option<GroupMetadata> {
        self.consumer.group_metadata()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points() {
        let parse = |t: &str| t.parse::<Point>();
        assert_eq!(parse("earliest"), Ok(Point::Earliest));
        assert_eq!(parse("latest"), Ok(Point::Latest));
        assert_eq!(parse("17"), Ok(Point::Offset(17)));
        assert_eq!(parse("1970-01-01T00:00:01Z"), Ok(Point::Time(1000)));
        for wrong in ["", "-1", "yesterday", "18446744073709551615", "1e3"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
