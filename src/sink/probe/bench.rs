//! Throw-away topics, clients and reads of the probe.
#![allow(clippy::disallowed_methods)] // calls of a command with their own deadlines, on threads of their own

use std::sync::Arc;
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as E};
use rdkafka::message::{DeliveryResult, Message, OwnedMessage};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::{Offset, TopicPartitionList};

use super::{Trouble, unknown};
use crate::clock::{monotonic, wall_millis};
use crate::error::{Code, Error, Result};
use crate::source::passing;

/// Longest wait for one call.
pub(super) const CALL: Duration = Duration::from_secs(15);
/// The same for admin requests: what doesn't know them often answers nothing.
pub(super) const ADMIN: Duration = Duration::from_secs(8);

/// Topic of each check with its partitions.
const TOPICS: [(&str, i32); 9] = [
    ("visible", 1),
    ("open", 1),
    ("aborted", 1),
    ("zombie", 1),
    ("offsets", 1),
    ("timeout", 1),
    ("compacted", 1),
    ("left", 4),
    ("right", 4),
];
/// The client's own warnings say nothing here: what counts is what a check sees.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Silent;

impl ClientContext for Silent {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(target: "librdkafka", facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "probe");
    }
}

impl ConsumerContext for Silent {}

impl ProducerContext for Silent {
    type DeliveryOpaque = ();

    fn delivery(&self, _: &DeliveryResult<'_>, (): ()) {}
}

pub(super) type Consuming = rdkafka::consumer::BaseConsumer<Silent>;
pub(super) type Producing = BaseProducer<Silent>;

/// What every check uses.
#[derive(Debug, Clone)]
pub(super) struct Bench {
    client: ClientConfig,
    id: Arc<str>,
    /// The broker knows no admin requests.
    asked: bool,
}

impl Bench {
    /// Makes the topics. A broker that knows no such request gets them by asking for their metadata.
    pub(super) fn start(client: &ClientConfig, prefix: &str) -> Result<Self> {
        let mut client = client.clone();
        client.set("allow.auto.create.topics", "true");
        let seed = format!("{} {}", wall_millis(), std::process::id());
        let id = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, seed.as_bytes());
        let mut bench = Self { client, id: format!("{prefix}memsluice-probe-{id}").into(), asked: false };
        match bench.create() {
            Ok(()) => Ok(bench),
            Err(KafkaError::AdminOp(E::UnsupportedFeature | E::OperationTimedOut | E::TimedOutQueue)) => {
                bench.create_by_asking()?;
                bench.asked = true;
                Ok(bench)
            }
            Err(e) => Err(Error::with(Code::BrokerRefused, "the probe's throw-away topics can't be made", e)),
        }
    }

    /// Name of a topic, group or transactional id of this run.
    pub(super) fn name(&self, what: &str) -> String {
        format!("{}-{what}", self.id)
    }

    /// Whether the broker knows no admin requests.
    pub(super) fn asked(&self) -> bool {
        self.asked
    }

    /// An admin client with the runtime that drives it.
    pub(super) fn admin(
        &self,
    ) -> std::result::Result<(AdminClient<DefaultClientContext>, tokio::runtime::Runtime), KafkaError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|e| KafkaError::AdminOpCreation(e.to_string()))?;
        Ok((self.client.create()?, runtime))
    }

    fn create(&self) -> std::result::Result<(), KafkaError> {
        let (admin, runtime) = self.admin()?;
        let names: Vec<(String, i32)> = TOPICS.iter().map(|(what, n)| (self.name(what), *n)).collect();
        let new = names.iter().map(|(name, n)| {
            let new = NewTopic::new(name, *n, TopicReplication::Fixed(-1));
            if name.ends_with("-compacted") {
                new.set("cleanup.policy", "compact").set("message.timestamp.after.max.ms", "300000")
            } else {
                new
            }
        });
        let new: Vec<NewTopic<'_>> = new.collect();
        let options = AdminOptions::new().request_timeout(Some(ADMIN)).operation_timeout(Some(ADMIN));
        for answer in runtime.block_on(admin.create_topics(&new, &options))? {
            answer.map_err(|(_, e)| KafkaError::AdminOp(e))?;
        }
        Ok(())
    }

    fn create_by_asking(&self) -> Result<()> {
        let producer: Producing = self
            .client
            .create_with_context(Silent)
            .map_err(|e| Error::with(Code::ConfigInvalid, "the producer can't be made", e))?;
        for (what, _) in TOPICS {
            let until = monotonic() + ADMIN;
            let name = self.name(what);
            let made = || {
                let metadata = producer.client().fetch_metadata(Some(&name), ADMIN);
                let metadata =
                    metadata.map_err(|e| Error::with(Code::BrokerUnreachable, "the broker does not answer", e))?;
                Ok(metadata.topics().first().is_some_and(|t| !t.partitions().is_empty()))
            };
            while !made()? {
                if monotonic() > until {
                    return Err(Error::new(Code::BrokerRefused, "the probe's throw-away topics can't be made"));
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        Ok(())
    }

    /// Deletes the topics; their common prefix where that failed. Groups without members and offsets go by
    /// themselves.
    pub(super) fn clean_up(&self) -> Option<String> {
        let delete = || {
            let names: Vec<String> = TOPICS.iter().map(|(what, _)| self.name(what)).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let options = AdminOptions::new().request_timeout(Some(ADMIN)).operation_timeout(Some(ADMIN));
            let (admin, runtime) = self.admin()?;
            runtime.block_on(admin.delete_topics(&names, &options))
        };
        let all = !self.asked && delete().is_ok_and(|answers| answers.iter().all(std::result::Result::is_ok));
        (!all).then(|| self.id.to_string())
    }

    /// A transactional producer, not yet initialised; `id` names it in this run.
    pub(super) fn producer(&self, id: &str, timeout: Duration) -> std::result::Result<Producing, KafkaError> {
        let mut config = self.client.clone();
        config
            .set("transactional.id", self.name(id))
            .set("transaction.timeout.ms", timeout.as_millis().to_string())
            .set("enable.idempotence", "true")
            .set("acks", "all");
        config.create_with_context(Silent)
    }

    /// The same, initialised and with a transaction open.
    pub(super) fn opened(&self, id: &str, timeout: Duration) -> std::result::Result<Producing, KafkaError> {
        let producer = self.producer(id, timeout)?;
        self.ask(|| producer.init_transactions(CALL))?;
        producer.begin_transaction()?;
        Ok(producer)
    }

    /// A consumer of a group under an isolation level.
    pub(super) fn consumer(
        &self,
        group: &str,
        isolation: &str,
        more: &[(&str, &str)],
    ) -> std::result::Result<Consuming, KafkaError> {
        let mut config = self.client.clone();
        config
            .set("group.id", self.name(group))
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "earliest")
            .set("fetch.wait.max.ms", "50")
            .set("isolation.level", isolation);
        for (key, value) in more {
            config.set(*key, *value);
        }
        config.create_with_context(Silent)
    }

    /// A question, asked again while a new topic or coordinator has no leader.
    pub(super) fn ask<T>(
        &self,
        question: impl Fn() -> std::result::Result<T, KafkaError>,
    ) -> std::result::Result<T, KafkaError> {
        let until = monotonic() + CALL;
        loop {
            match question() {
                Err(e) if e.rdkafka_error_code().is_some_and(passing) && monotonic() < until => {
                    std::thread::sleep(Duration::from_millis(100));
                }
                other => return other,
            }
        }
    }

    /// Sends `count` records to partition 0 and waits for their delivery.
    pub(super) fn send(&self, producer: &Producing, topic: &str, count: usize) -> std::result::Result<(), KafkaError> {
        let topic = self.name(topic);
        for i in 0..count {
            let key = i.to_string();
            let record: BaseRecord<'_, str, str> =
                BaseRecord::to(&topic).partition(0).key(key.as_str()).payload("probe");
            producer.send(record).map_err(|(e, _)| e)?;
        }
        producer.flush(CALL)
    }

    /// Records of partition 0 that an isolation level shows now.
    pub(super) fn seen(&self, topic: &str, isolation: &str) -> std::result::Result<Vec<OwnedMessage>, Trouble> {
        let consumer = self.consumer("reader", isolation, &[])?;
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.name(topic), 0, Offset::Beginning)?;
        consumer.assign(&list)?;
        let until = monotonic() + CALL;
        let mut records = Vec::new();
        while monotonic() < until {
            match consumer.poll(Duration::from_millis(100)) {
                Some(Ok(m)) => records.push(m.detach()),
                Some(Err(KafkaError::PartitionEOF(_))) => return Ok(records),
                // A new topic may have no leader yet.
                Some(Err(_)) | None => {}
            }
        }
        Err(unknown(format!("a {isolation} reader did not reach the end of {topic}: {} records", records.len())))
    }

    /// Fails unless an isolation level shows `wanted` records.
    pub(super) fn expect(&self, topic: &str, isolation: &str, wanted: usize, what: &str) -> super::Verdict {
        let found = self.seen(topic, isolation)?.len();
        if found == wanted { Ok(()) } else { super::broken(format!("{what}: {found} records, not {wanted}")) }
    }
}

/// A record's time, ms.
pub(super) fn time(m: &OwnedMessage) -> Option<i64> {
    m.timestamp().to_millis()
}
