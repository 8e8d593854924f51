//! Publishing a few records outside of any transaction: broadcast versions, demo inputs.
#![allow(clippy::disallowed_methods)] // a short-lived producer of a command, not of the stream

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};

use crate::clock::{Millis, monotonic};
use crate::error::{Code, Error, Result};
use crate::source::{connect, refused, without_group};

/// A record to publish.
#[derive(Debug, Clone)]
pub struct Publication {
    /// Physical topic.
    pub topic: String,
    /// Partition; `None` is murmur2 of the key.
    pub partition: Option<i32>,
    /// Key.
    pub key: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
    /// Record time; `None` is now.
    pub timestamp: Option<Millis>,
}

/// Writes records in order and waits for them.
///
/// # Errors
/// `broker_unreachable` when they are not delivered in 30 s.
pub fn publish(client: &ClientConfig, records: &[Publication]) -> Result<()> {
    connect(client)?;
    let mut config = without_group(client);
    config
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("message.timeout.ms", "30000")
        .set("partitioner", "murmur2_random");
    let producer: BaseProducer<Failures> = config
        .create_with_context(Failures::default())
        .map_err(|e| Error::with(Code::ConfigInvalid, "the producer can't be made", e))?;
    let failed = |e: KafkaError| Error::with(Code::BrokerUnreachable, "records can't be published", e);
    for r in records {
        let mut record = BaseRecord::to(&r.topic).key(&r.key).payload(&r.value);
        if let Some(p) = r.partition {
            record = record.partition(p);
        }
        if let Some(t) = r.timestamp {
            record = record.timestamp(t);
        }
        let mut next = Some(record);
        while let Some(record) = next.take() {
            match producer.send(record) {
                Ok(()) => {}
                Err((e, back)) if e.rdkafka_error_code() == Some(rdkafka::error::RDKafkaErrorCode::QueueFull) => {
                    producer.poll(Duration::from_millis(5));
                    next = Some(back);
                }
                Err((e, _)) => return Err(failed(e)),
            }
        }
    }
    let until = monotonic() + Duration::from_secs(31);
    while producer.in_flight_count() > 0 {
        producer.poll(Duration::from_millis(5));
        if monotonic() > until {
            return Err(Error::new(Code::BrokerUnreachable, "the broker did not take the records in 30 s"));
        }
    }
    match producer.context().first() {
        Some((e, topic)) => {
            let right = format!("WRITE on topic {topic}");
            Err(refused(&e, Code::BrokerUnreachable, "records can't be published", &right))
        }
        None => Ok(()),
    }
}

/// Keeps the first failed delivery.
#[derive(Debug, Default)]
struct Failures(Mutex<Option<(KafkaError, String)>>);

impl Failures {
    fn first(&self) -> Option<(KafkaError, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ClientContext for Failures {}

impl ProducerContext for Failures {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((e, message)) = result {
            let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(|| (e.clone(), message.topic().to_owned()));
        }
    }
}
