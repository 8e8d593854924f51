//! Clients of librdkafka with the settings that all measurements share, and the drain loop.
#![allow(clippy::disallowed_methods)] // the harness measures these calls; it serves nobody meanwhile

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, ToBytes};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};

use crate::error::{Doing, Error, Result};

/// Longest wait for one call.
pub(crate) const CALL: Duration = Duration::from_secs(30);
/// Pause of the drain loop while records are in flight.
const DRAIN_PAUSE: Duration = Duration::from_micros(200);

/// A producer that counts its delivery reports.
pub(crate) type Counted = BaseProducer<Reports>;

/// What became of the records.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    delivered: AtomicU64,
    failed: AtomicU64,
    first: Mutex<Option<KafkaError>>,
}

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _opaque: ()) {
        match result {
            Ok(_) => {
                self.delivered.fetch_add(1, Ordering::Relaxed);
            }
            Err((error, _)) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                if let Ok(mut first) = self.first.lock() {
                    first.get_or_insert_with(|| error.clone());
                }
            }
        }
    }
}

impl Reports {
    /// Records that the broker has.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// An error when any record was refused; the first reason stands for all.
    pub(crate) fn check(&self) -> Result<()> {
        let failed = self.failed.load(Ordering::Relaxed);
        let first = self.first.lock().ok().and_then(|f| f.clone());
        match first {
            Some(source) => {
                Err(Error::Kafka { what: format!("{failed} records were not delivered; the first"), source })
            }
            None => Ok(()),
        }
    }
}

/// A `key=value` argument.
pub(crate) fn pair(text: &str) -> std::result::Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("'{text}' is not key=value"))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Settings of every client.
pub(crate) fn client(bootstrap: &str, extra: &[(String, String)]) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("client.id", "load-tests").set("socket.nagle.disable", "true");
    for (key, value) in extra {
        config.set(key, value);
    }
    config
}

/// An idempotent producer; transactional when `id` is given, and then ready for its first transaction.
/// Settings are those of memsluice's sink unless `extra` says otherwise.
pub(crate) fn producer(bootstrap: &str, id: Option<&str>, extra: &[(String, String)]) -> Result<Counted> {
    let mut config = client(bootstrap, &[]);
    config
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("linger.ms", "5")
        .set("compression.type", "lz4")
        .set("retry.backoff.ms", "20")
        .set("partitioner", "murmur2_random")
        .set("queue.buffering.max.messages", "500000")
        .set("queue.buffering.max.kbytes", "262144");
    if let Some(id) = id {
        config.set("transactional.id", id).set("transaction.timeout.ms", "60000");
    }
    for (key, value) in extra {
        config.set(key, value);
    }
    let producer: Counted = config.create_with_context(Reports::default()).doing("making a producer")?;
    if id.is_some() {
        producer.init_transactions(CALL).doing("init_transactions")?;
    }
    Ok(producer)
}

/// Sends a record, waiting while the queue is full.
pub(crate) fn send<K, P>(producer: &Counted, mut record: BaseRecord<'_, K, P>) -> Result<()>
where
    K: ToBytes + ?Sized,
    P: ToBytes + ?Sized,
{
    let started = Instant::now();
    loop {
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) if started.elapsed() < CALL => {
                record = back;
                producer.poll(Duration::from_millis(1));
            }
            Err((source, _)) => {
                return Err(Error::Kafka { what: "sending a record failed".to_owned(), source });
            }
        }
    }
}

/// Waits until no record is in flight, without the 100 ms slices of `flush` and `poll`.
pub(crate) fn drain(producer: &Counted) -> Result<()> {
    let started = Instant::now();
    loop {
        match producer.flush(Duration::ZERO) {
            Ok(()) => return producer.context().check(),
            Err(KafkaError::Flush(RDKafkaErrorCode::OperationTimedOut)) => {}
            Err(source) => {
                return Err(Error::Kafka { what: "flush failed".to_owned(), source });
            }
        }
        producer.poll(Duration::ZERO);
        if producer.in_flight_count() > 0 {
            if started.elapsed() > CALL {
                return Err(Error::Stalled(format!(
                    "{} records were in flight for {CALL:?}",
                    producer.in_flight_count()
                )));
            }
            sleep(DRAIN_PAUSE);
        }
    }
}

/// A name that two processes don't share.
pub(crate) fn unique(what: &str) -> String {
    format!("load-tests-{what}-{}", std::process::id())
}
