//! Broadcast topics: read whole at start to their high watermark, then followed.
#![allow(clippy::disallowed_methods)] // blocking calls with their own deadlines, never on a tokio worker

use std::ops::ControlFlow;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};

use super::client::{Reader, follower};
use super::tail;
use crate::clock::monotonic;
use crate::error::{Code, Error, Result};
use crate::topology::{Role, Topology};

/// A record of a broadcast topic.
#[derive(Debug)]
pub struct BroadcastRecord {
    /// Topic.
    pub role: Role,
    /// Key.
    pub key: Vec<u8>,
    /// Value.
    pub value: Option<Vec<u8>>,
}

/// Follows all broadcast topics.
pub struct BroadcastReader {
    consumer: Reader,
    names: Vec<(String, Role)>,
    copies: bool,
}

impl std::fmt::Debug for BroadcastReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BroadcastReader").field("names", &self.names).finish_non_exhaustive()
    }
}

impl BroadcastReader {
    /// Starts at the beginning and returns what stood there up to the last stable offset. Copies of rolling
    /// calibrations, which nobody adopts, are passed over unless `copies` says otherwise.
    ///
    /// # Errors
    /// `broker_unreachable`, `restore_stalled`.
    pub fn start(client: &ClientConfig, topology: &Topology, copies: bool) -> Result<(Self, Vec<BroadcastRecord>)> {
        let consumer = follower(client, "memsluice-broadcast")?;
        let mut whole = Vec::new();
        let mut list = TopicPartitionList::new();
        let mut names = Vec::new();
        for role in topology.main.broadcast.iter().copied() {
            let name = topology.name(role).to_owned();
            let bounds = tail::watermarks(&consumer, &name, 0)?;
            let mut next = bounds.low;
            if bounds.high > bounds.low {
                tail::read(&consumer, &name, 0, bounds.low, |m| {
                    let Some(m) = m else { return Ok(ControlFlow::Continue(())) };
                    next = m.offset() + 1;
                    whole.extend(taken(role, m, copies));
                    Ok(ControlFlow::Continue(()))
                })?;
            }
            let added = list.add_partition_offset(&name, 0, Offset::Offset(next));
            added.map_err(|e| Error::with(Code::Internal, "a partition list", e))?;
            names.push((name, role));
        }
        consumer.assign(&list).map_err(|e| Error::with(Code::BrokerRefused, "can't follow the broadcast topics", e))?;
        Ok((Self { consumer, names, copies }, whole))
    }

    /// What came since, without waiting.
    #[must_use]
    pub fn poll(&self) -> Vec<BroadcastRecord> {
        let mut out = Vec::new();
        let until = monotonic() + Duration::from_millis(20);
        while let Some(item) = self.consumer.poll(Duration::ZERO) {
            match item {
                Ok(m) => {
                    let role = self.names.iter().find(|(n, _)| n == m.topic()).map(|(_, r)| *r);
                    out.extend(role.and_then(|role| taken(role, &m, self.copies)));
                }
                Err(KafkaError::PartitionEOF(_)) => {}
                Err(error) => tracing::warn!(%error, "broadcast topics"),
            }
            if monotonic() > until {
                break;
            }
        }
        out
    }
}

fn taken(role: Role, m: &impl Message, copies: bool) -> Option<BroadcastRecord> {
    let key = m.key().unwrap_or_default();
    let passed = !copies && role == Role::Calibrations && key.starts_with(b"rolling/");
    (!passed).then(|| BroadcastRecord { role, key: key.to_vec(), value: m.payload().map(<[u8]>::to_vec) })
}
