//! What happens inside a poll when partitions come and go: bump the generation, tell the task thread, assign
//! or unassign. Nothing here waits, but for the task thread's acknowledgement of a revoke.
#![allow(clippy::disallowed_methods)] // called on the consumer's own thread

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use super::HiddenEnds;
use super::kafka::Event;
use super::lag::{Lags, read_statistics};
use crate::error::{Code, Error};
use crate::topology::Role;

/// The consumer's callbacks.
pub(super) struct Context {
    pub(super) events: Sender<Event>,
    pub(super) generation: Arc<AtomicU64>,
    pub(super) assigned: Arc<AtomicBool>,
    pub(super) names: Vec<(String, Role)>,
    pub(super) revoke_deadline: Duration,
    pub(super) lags: Lags,
    pub(super) hidden: HiddenEnds,
}

impl ClientContext for Context {
    fn stats_raw(&self, statistics: &[u8]) {
        read_statistics(statistics, &self.lags, |topic| self.role(topic));
        if let Ok(statistics) = serde_json::from_slice::<rdkafka::Statistics>(statistics) {
            self.hidden.see(&statistics);
        }
    }

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        super::client::client_log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, reason, "consumer");
    }
}

impl Context {
    pub(super) fn role(&self, topic: &str) -> Option<Role> {
        self.names.iter().find(|(n, _)| n == topic).map(|(_, r)| *r)
    }

    fn partitions(&self, list: &TopicPartitionList) -> Vec<(Role, i32)> {
        list.elements().iter().filter_map(|e| Some((self.role(e.topic())?, e.partition()))).collect()
    }

    fn bump(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn assign(&self, consumer: &BaseConsumer<Self>, list: &TopicPartitionList) {
        let generation = self.bump();
        // Offsets come from the task thread after restore. Until then nothing is assigned; an incremental protocol
        // must be answered with the partitions themselves: what comes at their end is of an older generation.
        let done = match consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => consumer.incremental_assign(&at_end(list)),
            _ => consumer.assign(&TopicPartitionList::new()),
        };
        if let Err(e) = done {
            let error = Error::with(Code::BrokerRefused, "the assignment can't be taken", e);
            drop(self.events.send(Event::Failed(error)));
        }
        self.assigned.store(true, Ordering::SeqCst);
        let partitions = match (consumer.rebalance_protocol(), consumer.assignment()) {
            (RebalanceProtocol::Cooperative, Ok(all)) => self.partitions(&all),
            _ => self.partitions(list),
        };
        drop(self.events.send(Event::Assigned { generation, partitions }));
    }

    fn revoke(&self, consumer: &BaseConsumer<Self>, list: &TopicPartitionList) {
        let lost = consumer.assignment_lost();
        let gone = self.partitions(list);
        let remaining: Vec<(Role, i32)> = match (consumer.rebalance_protocol(), consumer.assignment()) {
            (RebalanceProtocol::Cooperative, Ok(all)) => {
                self.partitions(&all).into_iter().filter(|p| !gone.contains(p)).collect()
            }
            _ => Vec::new(),
        };
        self.assigned.store(!remaining.is_empty(), Ordering::SeqCst);
        let generation = self.bump();
        self.lags.clear();
        let (ack, acked) = bounded(1);
        if self.events.send(Event::Revoked { generation, lost, remaining, ack }).is_ok() {
            // The task thread never waits for this thread, so this ends.
            let _ = acked.recv_timeout(self.revoke_deadline);
        }
        let done = match consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => consumer.incremental_unassign(list),
            _ => consumer.unassign(),
        };
        if let Err(error) = done {
            tracing::warn!(%error, "unassign");
        }
    }
}

fn at_end(list: &TopicPartitionList) -> TopicPartitionList {
    let mut held = TopicPartitionList::new();
    for e in list.elements() {
        drop(held.add_partition_offset(e.topic(), e.partition(), Offset::End));
    }
    held
}

impl ConsumerContext for Context {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, error: RDKafkaRespErr, list: &mut TopicPartitionList) {
        match error {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => self.assign(consumer, list),
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS => self.revoke(consumer, list),
            other => {
                tracing::error!(?other, "rebalance");
                drop(consumer.unassign());
            }
        }
    }
}
