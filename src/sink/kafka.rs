//! The transactional producer: lazy begin, counted deliveries, and a drain by hand before the commit,
//! because the library's own `commit_transaction` waits about 100 ms a call (spec `anchors_streaming` 2.1).
#![allow(clippy::disallowed_methods)] // the one place that may call the blocking methods, on the task thread

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use super::offsets::OffsetsThread;
use super::transactions::{CommitError, Delivered, InputOffset, Transactions};
use super::triage::{Call, Failure, triage};
use super::{Output, size};
use crate::clock::{Millis, monotonic};
use crate::error::{Action, Code, Error, Result};
use crate::schema::Headers;
use crate::source::{GroupMetadata, is_denied, refused, without_group};

/// Longest wait for the name of a topic that was refused.
const NAME: Duration = Duration::from_millis(500);
/// Longest wait for one call.
const CALL: Duration = Duration::from_secs(20);
/// A drain that takes longer asks whether the transaction has failed.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// A step of an abort, and of serving what it gives back.
const STEP: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
struct Deliveries {
    changelog: Delivered,
    /// The first one, with its topic.
    failed: Option<(KafkaError, String)>,
}

#[derive(Debug, Default)]
struct Context {
    deliveries: Mutex<Deliveries>,
    /// Topic that the coordinator did not let into a transaction; the client says it in its log alone.
    denied: OnceLock<String>,
}

impl Context {
    fn with<R>(&self, f: impl FnOnce(&mut Deliveries) -> R) -> R {
        f(&mut self.deliveries.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        crate::source::client_log(level, facility, message);
        if facility == "ADDPARTS" && message.contains("authorization failed") {
            self.denied.get_or_init(|| message.split('"').nth(1).unwrap_or_default().to_owned());
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, reason, "producer");
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, unit: usize) {
        match result {
            // 0 marks anything but the changelog.
            Ok(m) if unit > 0 => self.with(|d| {
                let last = d.changelog.entry(m.partition()).or_insert(-1);
                *last = (*last).max(m.offset());
            }),
            Ok(_) => {}
            Err((e, m)) => self.with(|d| {
                d.failed.get_or_insert_with(|| (e.clone(), m.topic().to_owned()));
            }),
        }
    }
}

/// An input on its way into an internal topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relayed {
    /// Partition: the unit.
    pub partition: i32,
    /// Key.
    pub key: Option<Vec<u8>>,
    /// Value.
    pub value: Option<Vec<u8>>,
    /// Headers, with the stamp behind them.
    pub headers: Headers,
    /// Record time.
    pub timestamp: Millis,
}

impl Relayed {
    /// Size on the wire, roughly, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size(self.key.as_ref().map_or(0, Vec::len), self.value.as_deref(), &self.headers)
    }
}

/// One producer, owned by the thread that makes its transactions.
pub struct TransactionalProducer {
    producer: Arc<BaseProducer<Context>>,
    /// Absent without transactions.
    offsets: Option<OffsetsThread>,
    transactional: bool,
    timeout: Duration,
    opened: Option<Instant>,
}

type Outcome<T> = std::result::Result<T, CommitError>;

impl std::fmt::Debug for TransactionalProducer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransactionalProducer").field("opened", &self.opened).finish_non_exhaustive()
    }
}

impl TransactionalProducer {
    /// Creates the producer and fences earlier ones of the same id (`init_transactions`).
    ///
    /// # Errors
    /// `broker_refused`, `broker_unreachable`.
    pub fn start(
        base: &ClientConfig,
        transactional_id: Option<&str>,
        timeout: Duration,
        max_message: usize,
    ) -> Result<Self> {
        let mut config = without_group(base);
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("linger.ms", "5")
            .set("compression.type", "lz4")
            .set("retry.backoff.ms", "20")
            .set("message.max.bytes", max_message.to_string())
            .set("queue.buffering.max.messages", "500000")
            .set("queue.buffering.max.kbytes", "262144");
        if let Some(id) = transactional_id {
            config.set("transactional.id", id).set("transaction.timeout.ms", timeout.as_millis().to_string());
        }
        let producer: BaseProducer<Context> = config
            .create_with_context(Context::default())
            .map_err(|e| Error::with(Code::ConfigInvalid, "the producer can't be made", e))?;
        let producer = Arc::new(producer);
        let mut this =
            Self { producer, offsets: None, transactional: transactional_id.is_some(), timeout, opened: None };
        if let Some(id) = transactional_id {
            this.fence(id)?;
            this.offsets = Some(OffsetsThread::start(this.producer.clone(), false)?);
        }
        Ok(this)
    }

    /// Breaks it: offsets are sent and no answer comes.
    ///
    /// # Errors
    /// `internal` when a thread can't start.
    pub fn without_answers(self) -> Result<Self> {
        let offsets = Some(OffsetsThread::start(self.producer.clone(), true)?);
        Ok(Self { offsets, ..self })
    }

    fn fence(&self, id: &str) -> Result<()> {
        let deadline = monotonic() + Duration::from_secs(60);
        loop {
            let Err(e) = self.producer.init_transactions(CALL) else {
                return Ok(());
            };
            let retry = triage(Failure::of(Call::Init, &e)) == Action::RetrySame && monotonic() < deadline;
            if !retry {
                let right = format!("WRITE on transactional id {id}");
                return Err(refused(&e, Code::BrokerRefused, init_failed(&e), &right));
            }
        }
    }

    /// Hands a record to the client; a full queue is waited for.
    fn hand_over(
        &self,
        topic: &str,
        partition: i32,
        key: &[u8],
        value: Option<&[u8]>,
        headers: &Headers,
        changelog: bool,
    ) -> Outcome<()> {
        let opaque = usize::from(changelog);
        let mut record: BaseRecord<'_, [u8], [u8], usize> =
            BaseRecord::with_opaque_to(topic, opaque).partition(partition).key(key);
        if let Some(v) = value {
            record = record.payload(v);
        }
        if !headers.is_empty() {
            record = record.headers(owned(headers));
        }
        self.enqueue(record)
    }

    /// Hands a record of an input over under its own record time; a full queue is waited for.
    ///
    /// # Errors
    /// By triage.
    pub fn relay(&self, topic: &str, r: &Relayed) -> Outcome<()> {
        // To the client time 0 means now; the stamp keeps the original.
        let timestamp = if r.timestamp == 0 { 1 } else { r.timestamp };
        let mut record: BaseRecord<'_, [u8], [u8], usize> =
            BaseRecord::with_opaque_to(topic, 0).partition(r.partition).timestamp(timestamp);
        if let Some(key) = &r.key {
            record = record.key(key.as_slice());
        }
        if let Some(value) = &r.value {
            record = record.payload(value.as_slice());
        }
        self.enqueue(record.headers(owned(&r.headers)))
    }

    fn enqueue(&self, mut record: BaseRecord<'_, [u8], [u8], usize>) -> Outcome<()> {
        let deadline = self.deadline();
        loop {
            match self.producer.send(record) {
                Ok(()) => return Ok(()),
                Err((e, back)) => {
                    let failed = CommitError::of(Call::Send, &e);
                    if failed.action != Action::RetrySame || monotonic() > deadline {
                        return Err(self.cause().unwrap_or(failed).escalated());
                    }
                    record = back;
                    self.producer.poll(Duration::from_millis(1));
                }
            }
        }
    }

    /// Why the open transaction can't go on. The client keeps that to itself until a call needs another state: to
    /// begin once more changes nothing while one is open, and after a failure tells it (rdkafka_txnmgr.c,
    /// `rd_kafka_txn_require_states0`).
    fn cause(&self) -> Option<CommitError> {
        if !self.transactional || self.opened.is_none() {
            return None;
        }
        let e = self.producer.begin_transaction().err()?;
        let failure = Failure::of(Call::Deliver, &e);
        // The line that names the topic waits behind the client's other events.
        let until = monotonic() + NAME;
        while is_denied(failure.code) && self.producer.context().denied.get().is_none() && monotonic() < until {
            self.producer.poll(Duration::from_millis(5));
        }
        let topic = self.producer.context().denied.get().map_or("", String::as_str);
        (failure.abortable || failure.fatal).then(|| CommitError::naming(Call::Deliver, &e, topic))
    }

    /// A call ends before the broker would end the transaction (I6).
    fn deadline(&self) -> Instant {
        let call = monotonic() + CALL;
        self.opened.map_or(call, |t| call.min(t + self.timeout))
    }

    fn rest(&self) -> Duration {
        self.deadline().saturating_duration_since(monotonic()).max(Duration::from_millis(100))
    }
}

impl Transactions for TransactionalProducer {
    type Group = GroupMetadata;

    fn begin(&mut self) -> Outcome<()> {
        if self.opened.is_some() {
            return Ok(());
        }
        if self.transactional {
            self.producer.begin_transaction().map_err(|e| CommitError::of(Call::Begin, &e))?;
        }
        self.opened = Some(monotonic());
        Ok(())
    }

    fn send(&mut self, topic: &str, o: &Output) -> Outcome<()> {
        self.hand_over(topic, o.partition, &o.key, o.value.as_deref(), &o.headers, false)
    }

    fn log_change(&mut self, topic: &str, unit: i32, key: &[u8], value: Option<&[u8]>) -> Outcome<()> {
        self.hand_over(topic, unit, key, value, &Vec::new(), true)
    }

    fn drain(&mut self) -> Outcome<Delivered> {
        let deadline = self.deadline();
        let mut asked = monotonic();
        while self.producer.flush(Duration::ZERO).is_err() {
            self.producer.poll(Duration::ZERO);
            if self.producer.in_flight_count() == 0 {
                break;
            }
            if asked.elapsed() > ASK_AGAIN {
                // A failed transaction delivers nothing more, and no record says so.
                if let Some(cause) = self.cause() {
                    return Err(cause);
                }
                asked = monotonic();
            }
            if monotonic() > deadline {
                let e = KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut);
                return Err(CommitError::of(Call::Deliver, &e));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let mut deliveries = self.producer.context().with(std::mem::take);
        match deliveries.failed.take() {
            Some((e, topic)) => Err(self.cause().unwrap_or_else(|| CommitError::naming(Call::Deliver, &e, &topic))),
            None => Ok(deliveries.changelog),
        }
    }

    fn send_offsets(&mut self, offsets: &[InputOffset], group: &Arc<GroupMetadata>) -> Outcome<()> {
        let deadline = self.deadline();
        let rest = || deadline.saturating_duration_since(monotonic()).max(Duration::from_millis(100));
        let Some(thread) = &mut self.offsets else {
            return Ok(());
        };
        let mut list = TopicPartitionList::new();
        for o in offsets {
            drop(list.add_partition_offset(&o.topic, o.partition, Offset::Offset(o.next)));
        }
        loop {
            let Some(result) = thread.send(list.clone(), group.clone(), rest()) else {
                return Err(CommitError::abandoned(Call::Offsets));
            };
            let Err(e) = result else {
                return Ok(());
            };
            let failed = CommitError::of(Call::Offsets, &e);
            if failed.action != Action::RetrySame || monotonic() > deadline {
                return Err(failed.escalated());
            }
        }
    }

    fn commit(&mut self) -> Outcome<()> {
        let rest = self.rest();
        self.opened = None;
        if !self.transactional {
            return Ok(());
        }
        self.producer.commit_transaction(rest).map_err(|e| CommitError::of(Call::Commit, &e))
    }

    fn abort(&mut self) -> Outcome<()> {
        self.opened = None;
        if !self.transactional {
            return Ok(());
        }
        if self.offsets.as_ref().is_some_and(OffsetsThread::is_abandoned) {
            return Err(CommitError::abandoned(Call::Abort));
        }
        // Outstanding deliveries are served by this thread only, so the call is resumed in small steps. A poll without
        // a wait serves one event, and there may be one for each batch: a wait serves all that come.
        let deadline = monotonic() + CALL;
        let result = loop {
            let Err(e) = self.producer.abort_transaction(STEP) else { break Ok(()) };
            self.producer.poll(STEP);
            let failure = Failure::of(Call::Abort, &e);
            if !failure.retriable || failure.fatal || monotonic() > deadline {
                break Err(CommitError::of(Call::Abort, &e));
            }
        };
        self.producer.poll(Duration::ZERO);
        drop(self.producer.context().with(std::mem::take));
        result
    }

    fn poll(&mut self) {
        self.producer.poll(Duration::ZERO);
    }
}

fn owned(headers: &Headers) -> OwnedHeaders {
    let room = OwnedHeaders::new_with_capacity(headers.len());
    headers.iter().fold(room, |all, (name, value)| all.insert(Header { key: name, value: value.as_deref() }))
}

/// A coordinator that can't make or write its topic answers nothing at all.
fn init_failed(e: &KafkaError) -> &'static str {
    match e.rdkafka_error_code() {
        Some(RDKafkaErrorCode::OperationTimedOut) => {
            "no transaction coordinator answered: __transaction_state may have no leader or too few replicas"
        }
        _ => "init_transactions failed",
    }
}
