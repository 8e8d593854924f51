//! The poll thread: the only owner of the group's consumer. It polls, pauses and assigns; it never
//! waits for work, but for the task thread's acknowledgement of a revoke.
#![allow(clippy::disallowed_methods)] // the consumer's own thread

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, RebalanceProtocol};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{Offset, TopicPartitionList};

use super::lag::Lags;
use super::pausing::{Pausing, Queued};
use super::rebalance::Context;
use super::snapshot::Snapshot;
use super::{At, Budget, Fetched, HiddenEnds};
use crate::clock::monotonic;
use crate::config::Sabotage;
use crate::error::{Code, Error, Result};
use crate::telemetry::{Heartbeat, Labels, Limits, health, metrics};
use crate::topology::{Assignor, Role, Topology};

/// What the task thread hears.
#[derive(Debug)]
pub enum Event {
    /// Records in offset order for each partition.
    Records(Vec<Fetched>),
    /// New assignment; nothing of it counts until [`Command::Start`].
    Assigned {
        /// Generation from now on.
        generation: u64,
        /// Input partitions.
        partitions: Vec<(Role, i32)>,
    },
    /// Partitions go; commit or abort, then acknowledge.
    Revoked {
        /// Generation from now on.
        generation: u64,
        /// They are gone already: abort only.
        lost: bool,
        /// Partitions that stay (incremental protocols only).
        remaining: Vec<(Role, i32)>,
        /// Acknowledgement.
        ack: Sender<()>,
    },
    /// The consumer is of no more use.
    Failed(Error),
}

/// What the poll thread is asked.
#[derive(Debug)]
pub enum Command {
    /// Fetch from these offsets, under this generation; negative is the beginning.
    Start {
        /// Generation.
        generation: u64,
        /// Next offset of each input partition.
        offsets: Vec<(Role, i32, i64)>,
    },
    /// Leave the group and end.
    Stop,
}

/// How to start the poll thread.
#[derive(Debug)]
pub struct StartOptions<'a> {
    /// Client settings.
    pub client: &'a ClientConfig,
    /// Topology.
    pub topology: &'a Topology,
    /// Group.
    pub group: &'a str,
    /// Static membership id: a restart within the session timeout moves no partition.
    pub instance: &'a str,
    /// Byte counters.
    pub budget: Budget,
    /// The task thread's heartbeat.
    pub task: Heartbeat,
    /// Where inputs stand.
    pub lags: Lags,
    /// Breaks a guarantee, for tests.
    pub sabotage: Option<Sabotage>,
}

/// The running poll thread, as the task thread sees it.
#[derive(Debug)]
pub struct PollThread {
    /// Events.
    pub events: Receiver<Event>,
    /// Commands.
    pub commands: Sender<Command>,
    /// Group metadata.
    pub snapshot: Snapshot,
    /// Where inputs stand.
    pub lags: Lags,
    /// Ends of inputs that open transactions hide.
    pub hidden: HiddenEnds,
    generation: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// Longest wait for the poll thread to leave the group.
const CLOSE: Duration = Duration::from_secs(15);
/// Records handed over at once.
const BATCH: usize = 512;

impl PollThread {
    /// Joins the group.
    ///
    /// # Errors
    /// `config_invalid`.
    pub fn start(o: StartOptions<'_>) -> Result<Self> {
        let (events_in, events) = unbounded();
        let (commands, commands_out) = unbounded();
        let inputs = [Role::RetrievalLogs, Role::MemoryWrites];
        let names: Vec<(String, Role)> = inputs.iter().map(|r| (o.topology.name(*r).to_owned(), *r)).collect();
        let generation = Arc::new(AtomicU64::new(0));
        let assigned = Arc::new(AtomicBool::new(false));
        let hidden = HiddenEnds::default();
        let context = Context {
            events: events_in.clone(),
            generation: generation.clone(),
            assigned: assigned.clone(),
            names: names.clone(),
            hidden: hidden.clone(),
            revoke_deadline: o.topology.main.consumer.revoke_deadline(),
            lags: o.lags.clone(),
        };
        let consumer: BaseConsumer<Context> = settings(&o)
            .create_with_context(context)
            .map_err(|e| Error::with(Code::ConfigInvalid, "the consumer can't be made", e))?;
        let topics: Vec<&str> = names.iter().map(|(n, _)| n.as_str()).collect();
        consumer.subscribe(&topics).map_err(|e| Error::with(Code::BrokerRefused, "can't subscribe", e))?;
        let snapshot = Snapshot::new(o.sabotage);
        let heartbeat = Heartbeat::default();
        let limits = Limits::new(o.topology.main.consumer.session_timeout, o.topology.main.posture.hold_deadline);
        health().watch(&o.task, &heartbeat, limits);
        o.lags.clear();
        let poller = Poller {
            consumer,
            events: events_in,
            commands: commands_out,
            snapshot: snapshot.clone(),
            heartbeat,
            task: o.task,
            task_limit: limits.task,
            lags: o.lags.clone(),
            budget: o.budget,
            rights: [format!("READ on group {}", o.group), format!("READ on topic {}", topics.join(" or "))],
            share: o.topology.main.limits.in_flight_bytes,
            generation: generation.clone(),
            assigned,
            current: 0,
            published: 0,
            sabotage: o.sabotage,
            epoch_moves: o.topology.main.consumer.assignor == Assignor::ConsumerRange,
            partitions: Vec::new(),
            pausing: Pausing::default(),
            stalled: false,
        };
        let thread = std::thread::Builder::new()
            .name("memsluice-poll".to_owned())
            .spawn(move || poller.run())
            .map_err(|e| Error::with(Code::Internal, "can't start a thread", e))?;
        Ok(Self { events, commands, snapshot, lags: o.lags, hidden, generation, thread: Some(thread) })
    }

    /// The generation after `current`, for a rewind; `None` when a rebalance came first: its event is on
    /// the way and brings its own start.
    #[must_use]
    pub fn bump(&self, current: u64) -> Option<u64> {
        let next = current + 1;
        self.generation.compare_exchange(current, next, Ordering::SeqCst, Ordering::SeqCst).ok().map(|_| next)
    }

    /// Whether no rebalance came since.
    #[must_use]
    pub fn is_current(&self, generation: u64) -> bool {
        self.generation.load(Ordering::SeqCst) == generation
    }

    /// Leaves the group and waits. The task thread must keep answering revokes meanwhile, so this is
    /// called after it acknowledged the last one or ended.
    ///
    /// # Errors
    /// `broker_unreachable` when the thread does not end, `internal` when it broke.
    pub fn stop(&mut self) -> Result<()> {
        drop(self.commands.send(Command::Stop));
        // A revoke during close is acknowledged here.
        let until = monotonic() + CLOSE;
        while self.thread.as_ref().is_some_and(|t| !t.is_finished()) && monotonic() < until {
            if let Ok(Event::Revoked { ack, .. }) = self.events.recv_timeout(Duration::from_millis(20)) {
                let _ = ack.send(());
            }
        }
        match self.thread.take() {
            Some(thread) if !thread.is_finished() => {
                Err(Error::new(Code::BrokerUnreachable, "the poll thread does not end: leaving it behind"))
            }
            Some(thread) => thread.join().map_err(|_| Error::new(Code::Internal, "the poll thread panicked")),
            None => Ok(()),
        }
    }
}

fn settings(o: &StartOptions<'_>) -> ClientConfig {
    let main = &o.topology.main;
    let share = (main.limits.in_flight_bytes / 1024).clamp(1024, 1 << 20);
    let mut c = o.client.clone();
    c.set("group.id", o.group)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("isolation.level", "read_committed")
        .set("auto.offset.reset", "error")
        .set("queued.max.messages.kbytes", share.to_string())
        .set("fetch.message.max.bytes", "4194304")
        .set("fetch.wait.max.ms", "100")
        .set("fetch.error.backoff.ms", "100");
    c.set("group.instance.id", o.instance)
        // Nothing in a poll takes longer; the least that librdkafka accepts evicts a stuck member soonest.
        .set("max.poll.interval.ms", main.consumer.session_timeout.as_millis().to_string())
        // Where fetches stand, for the lag.
        .set("statistics.interval.ms", "1000");
    match main.consumer.assignor {
        Assignor::ConsumerRange => {
            c.set("group.protocol", "consumer").set("group.remote.assignor", "range");
        }
        _ => {
            let sticky = o.sabotage == Some(Sabotage::CooperativeSticky);
            c.set("partition.assignment.strategy", if sticky { "cooperative-sticky" } else { "range" })
                .set("session.timeout.ms", main.consumer.session_timeout.as_millis().to_string());
        }
    }
    c
}

struct Poller {
    consumer: BaseConsumer<Context>,
    events: Sender<Event>,
    commands: Receiver<Command>,
    snapshot: Snapshot,
    heartbeat: Heartbeat,
    task: Heartbeat,
    task_limit: Duration,
    lags: Lags,
    budget: Budget,
    share: usize,
    /// What the broker must allow on the group and on the inputs.
    rights: [String; 2],
    generation: Arc<AtomicU64>,
    assigned: Arc<AtomicBool>,
    /// Generation of the records that are fetched now.
    current: u64,
    published: u64,
    epoch_moves: bool,
    sabotage: Option<Sabotage>,
    partitions: Vec<(Role, i32)>,
    pausing: Pausing<(Role, i32)>,
    stalled: bool,
}

impl Poller {
    fn run(mut self) {
        loop {
            self.heartbeat.beat();
            loop {
                match self.commands.try_recv() {
                    Ok(Command::Stop) | Err(crossbeam_channel::TryRecvError::Disconnected) => {
                        return self.close();
                    }
                    Ok(Command::Start { generation, offsets }) => self.start_fetching(generation, &offsets),
                    Err(crossbeam_channel::TryRecvError::Empty) => break,
                }
            }
            if self.task.age() > self.task_limit {
                tracing::error!("the task thread is silent: not polling, so that the group evicts this member");
                std::thread::sleep(Duration::from_secs(1));
                continue;
            }
            self.flow();
            if !self.fetch() {
                return self.close();
            }
            self.lags.polled();
            self.publish();
        }
    }

    fn close(&self) {
        self.snapshot.set(None);
        self.consumer.unsubscribe();
        // Serve the last revoke before the consumer is dropped.
        let until = monotonic() + Duration::from_secs(5);
        while self.assigned.load(Ordering::SeqCst) && monotonic() < until {
            drop(self.consumer.poll(Duration::from_millis(50)));
        }
    }

    fn start_fetching(&mut self, generation: u64, offsets: &[(Role, i32, i64)]) {
        // A rebalance since then has its own start to come.
        if self.generation.load(Ordering::SeqCst) != generation {
            return;
        }
        let mut list = TopicPartitionList::new();
        let role_name =
            |role: Role| self.consumer.context().names.iter().find(|(_, r)| *r == role).map(|(n, _)| n.clone());
        for (role, partition, offset) in offsets {
            let lost = self.sabotage == Some(Sabotage::FetchLost) && *role == Role::MemoryWrites;
            let Some(name) = role_name(*role).filter(|_| !lost) else {
                continue;
            };
            let offset = if *offset < 0 { Offset::Beginning } else { Offset::Offset(*offset) };
            drop(list.add_partition_offset(&name, *partition, offset));
        }
        self.partitions = offsets.iter().map(|(r, p, _)| (*r, *p)).collect();
        self.pausing.start(offsets.iter().map(|(r, p, next)| ((*r, *p), *next)));
        self.lags.start(offsets);
        metrics().source_paused.clear();
        for key in &self.partitions {
            metrics().source_paused.get_or_create(&self.labels(*key)).set(0);
        }
        // Resumed before, never after: a resume that meets the restart of its partition makes librdkafka drop one of
        // both as outdated, and the partition would stand still for good.
        let seek = || -> std::result::Result<(), KafkaError> {
            self.consumer.resume(&list)?;
            match self.consumer.rebalance_protocol() {
                RebalanceProtocol::Cooperative => {
                    self.consumer.incremental_unassign(&self.consumer.assignment()?)?;
                    self.consumer.incremental_assign(&list)?;
                }
                _ => self.consumer.assign(&list)?,
            }
            if self.sabotage == Some(Sabotage::ResumeLost) {
                std::thread::sleep(Duration::from_millis(200));
                self.consumer.pause(&list)?;
            }
            Ok(())
        };
        match seek() {
            Ok(()) => self.current = generation,
            Err(e) => drop(self.events.send(Event::Failed(Error::with(
                Code::BrokerRefused,
                "can't go to the committed offsets",
                e,
            )))),
        }
    }

    /// Pauses inputs above their share, resumes them below half of it.
    fn flow(&mut self) {
        // Before the start all is to stand still.
        if self.generation.load(Ordering::SeqCst) != self.current {
            return;
        }
        let share = self.share / self.partitions.len().max(1);
        let names = &self.consumer.context().names;
        let mut in_flight = 0;
        let queued = self.partitions.iter().filter_map(|key| {
            let bytes = self.budget.used(key.0, key.1);
            in_flight += bytes;
            let (topic, _) = names.iter().find(|(_, r)| *r == key.0)?;
            Some(Queued { key: *key, topic, partition: key.1, bytes })
        });
        let changed = self.pausing.step(&self.consumer, queued, share);
        for (key, paused) in changed {
            metrics().source_paused.get_or_create(&self.labels(key)).set(i64::from(paused));
        }
        metrics().source_in_flight.set(i64::try_from(in_flight).unwrap_or(i64::MAX));
    }

    /// One batch; `false` when the task thread is gone.
    fn fetch(&mut self) -> bool {
        let mut batch = Vec::new();
        let mut wait = Duration::from_millis(5);
        while batch.len() < BATCH {
            let generation = self.generation.load(Ordering::SeqCst);
            match self.consumer.poll(wait) {
                None => break,
                Some(Ok(message)) => {
                    // A rebalance inside the poll made this generation old.
                    let any = self.sabotage == Some(Sabotage::GenerationFilterOff);
                    let fresh = generation == self.current && self.generation.load(Ordering::SeqCst) == generation;
                    let record = (fresh || any).then(|| fetched(&message, self.consumer.context(), generation));
                    let mut once = |at: At| self.pausing.is_next((at.role, at.partition), at.offset) || any;
                    if let Some(record) = record.flatten().filter(|r| once(r.at)) {
                        self.budget.take(record.at.role, record.at.partition, record.bytes());
                        batch.push(record);
                    }
                }
                Some(Err(e)) => self.failed(e),
            }
            wait = Duration::ZERO;
        }
        self.count(&batch);
        if self.sabotage == Some(Sabotage::PollStalls) && !self.stalled && batch.len() > BATCH / 2 {
            self.stalled = true;
            std::thread::sleep(Duration::from_secs(30));
        }
        batch.is_empty() || self.events.send(Event::Records(batch)).is_ok()
    }

    /// Notes what is handed over, by runs of one partition.
    fn count(&self, batch: &[Fetched]) {
        for run in batch.chunk_by(|a, b| (a.at.role, a.at.partition) == (b.at.role, b.at.partition)) {
            let last = run[run.len() - 1].at;
            self.lags.taken((last.role, last.partition), last.offset + 1);
            metrics().source_records.get_or_create(&self.labels((last.role, last.partition))).inc_by(run.len() as u64);
        }
    }

    fn labels(&self, (role, partition): (Role, i32)) -> Labels {
        let names = &self.consumer.context().names;
        let topic = names.iter().find(|(_, r)| *r == role).map_or_else(String::new, |(n, _)| n.clone());
        vec![("topic", topic), ("partition", partition.to_string())]
    }

    fn failed(&self, e: KafkaError) {
        use rdkafka::error::RDKafkaErrorCode as E;
        let code = e.rdkafka_error_code().unwrap_or(E::Fail);
        // A fetch of before the start says nothing about the real offsets.
        let of_offset = matches!(code, E::AutoOffsetReset | E::OffsetOutOfRange);
        if of_offset && self.generation.load(Ordering::SeqCst) != self.current {
            return tracing::debug!(error = %e, "consumer, before its start");
        }
        let error = match code {
            E::AutoOffsetReset | E::OffsetOutOfRange => {
                Error::with(Code::OffsetOutOfRange, "the next offset is outside of its topic", e)
            }
            E::UnknownTopicOrPartition | E::UnknownTopic => {
                Error::with(Code::TopicMissing, "an input topic is gone", e)
            }
            E::FencedInstanceId => Error::with(Code::InstanceFenced, "another consumer uses this instance id", e),
            code if super::is_denied(code) => {
                let right = &self.rights[usize::from(code != E::GroupAuthorizationFailed)];
                super::refused(&e, Code::BrokerRefused, "the consumer can't go on", right)
            }
            E::Fatal | E::UnsupportedAssignor | E::InconsistentGroupProtocol => {
                Error::with(Code::BrokerRefused, "the consumer can't go on", e)
            }
            _ => return tracing::warn!(error = %e, "consumer"),
        };
        drop(self.events.send(Event::Failed(error)));
    }

    /// Under the classic protocol the metadata of an assignment never changes, and after a lost session it
    /// would hold generation -1, so it is taken once; under KIP-848 the epoch moves with each poll.
    fn publish(&mut self) {
        let generation = self.generation.load(Ordering::SeqCst);
        let blind = self.sabotage == Some(Sabotage::FreshGroupMetadata);
        let fresh = self.assigned.load(Ordering::SeqCst) && (generation == self.current || blind);
        if !fresh || (!self.epoch_moves && self.published == generation) {
            return;
        }
        if let Some(metadata) = self.consumer.group_metadata() {
            self.snapshot.set(Some((generation, Arc::new(metadata))));
            self.published = generation;
        }
    }
}

fn fetched(message: &BorrowedMessage<'_>, context: &Context, generation: u64) -> Option<Fetched> {
    Some(record(message, context.role(message.topic())?, generation))
}

/// A message as the stages take it.
pub(super) fn record(message: &BorrowedMessage<'_>, role: Role, generation: u64) -> Fetched {
    Fetched {
        at: At {
            generation,
            role,
            partition: message.partition(),
            offset: message.offset(),
            timestamp: message.timestamp().to_millis().unwrap_or_default(),
        },
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: super::headers::headers(message),
    }
}
