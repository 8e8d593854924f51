//! The group's committed offsets, of which only those count that no open transaction hides (require stable, KIP-447).
#![allow(clippy::disallowed_methods)] // blocking calls with their own deadlines, on the task thread

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};

use crate::clock::monotonic;
use crate::error::{Code, Error, Result};
use crate::source::{Reader, group_reader, reader, refused};
use crate::topology::Role;

const CALL: Duration = Duration::from_secs(20);
/// An open transaction that hides the offsets is waited for at most this long. The own one was fenced before, and the
/// broker ends others within their timeout.
const STALL: Duration = Duration::from_secs(90);

/// Asks for the offsets of one group, of which it is no member.
pub(super) struct CommittedOffsets {
    reader: Reader,
    client: ClientConfig,
    group: String,
    inputs: Vec<(Role, String)>,
    right: String,
}

enum Failed {
    /// No answer in time: it may be that the offsets are hidden.
    Late(Error),
    Other(Error),
}

impl CommittedOffsets {
    pub(super) fn new(client: &ClientConfig, group: &str, inputs: &[(Role, String)]) -> Result<Self> {
        let names: Vec<&str> = inputs.iter().map(|(_, name)| name.as_str()).collect();
        Ok(Self {
            reader: group_reader(client, group)?,
            client: client.clone(),
            group: group.to_owned(),
            inputs: inputs.to_vec(),
            right: format!("READ on the group and on {}", names.join(" and ")),
        })
    }

    /// Next offset of each input, -1 where none was committed; `None` where `go_on` said no.
    ///
    /// # Errors
    /// `broker_unreachable`; `restore_stalled` when an open transaction hides them for 90 s.
    pub(super) fn of(&self, partition: i32, go_on: &dyn Fn() -> bool) -> Result<Option<BTreeMap<Role, i64>>> {
        let until = monotonic() + STALL;
        loop {
            let late = match self.ask(&self.reader, partition) {
                Ok(found) => return Ok(Some(found)),
                Err(Failed::Other(error)) => return Err(error),
                Err(Failed::Late(error)) => error,
            };
            if !self.are_hidden(partition) {
                return Err(late);
            }
            if monotonic() > until {
                let what = format!("an open transaction hides the committed offsets of group {}", self.group);
                return Err(Error::new(Code::RestoreStalled, what));
            }
            tracing::warn!(group = self.group, partition, "an open transaction hides the committed offsets");
            if !go_on() {
                return Ok(None);
            }
        }
    }

    /// Whether the broker answers, as long as it is not asked for what no transaction hides.
    fn are_hidden(&self, partition: i32) -> bool {
        let mut client = self.client.clone();
        client.set("group.id", &self.group);
        let Ok(unstable) = reader(&client, "read_uncommitted", &self.group) else { return false };
        self.ask(&unstable, partition).is_ok()
    }

    fn ask(&self, reader: &Reader, partition: i32) -> std::result::Result<BTreeMap<Role, i64>, Failed> {
        let mut list = TopicPartitionList::new();
        for (_, name) in &self.inputs {
            list.add_partition(name, partition);
        }
        let failed = |e: &KafkaError, what: &str| {
            let error = refused(e, Code::BrokerUnreachable, what, &self.right);
            match e.rdkafka_error_code() {
                Some(RDKafkaErrorCode::OperationTimedOut | RDKafkaErrorCode::RequestTimedOut) => Failed::Late(error),
                _ => Failed::Other(error),
            }
        };
        let found = reader.committed_offsets(list, CALL).map_err(|e| failed(&e, "committed offsets can't be read"))?;
        let mut inputs = BTreeMap::new();
        for (role, name) in &self.inputs {
            let next = match found.find_partition(name, partition) {
                None => -1,
                Some(p) => {
                    p.error().map_err(|e| failed(&e, &format!("no committed offset of {name}-{partition}")))?;
                    if let Offset::Offset(n) = p.offset() { n } else { -1 }
                }
            };
            inputs.insert(*role, next);
        }
        Ok(inputs)
    }
}
