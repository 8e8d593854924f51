//! A thread that writes steadily: most records at once, some in transactions, half of which abort.
#![allow(clippy::disallowed_methods)] // transactions of a producer that nobody waits for

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::producer::{BaseRecord, Producer as _};
use serde::Serialize;

use crate::error::{Doing, Error, Result};
use crate::kafka::{CALL, Counted, drain, producer, send};
use crate::soak::traffic::{Made, Traffic};

/// Records are sent this often.
const TICK: Duration = Duration::from_millis(50);
/// A transaction is made every so many ticks.
const TRANSACTION: u32 = 12;
/// A broker may be away for this long before a record counts as refused.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where and how much.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) bootstrap: String,
    /// Physical names.
    pub(crate) writes: String,
    pub(crate) retrievals: String,
    /// Per second.
    pub(crate) writes_per_s: u32,
    pub(crate) retrievals_per_s: u32,
}

/// What was sent.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Sent {
    pub(crate) writes: u64,
    pub(crate) retrievals: u64,
    pub(crate) transactions: u64,
    /// Transactions of the producer that were aborted: their records must never be decided.
    pub(crate) aborted: u64,
    /// Times that the producer's transactions failed, as when the broker is struck.
    pub(crate) failed: u64,
}

/// The running thread.
#[derive(Debug)]
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Sent>>,
}

impl Load {
    /// Starts it.
    pub(crate) fn start(target: Target, traffic: Traffic) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let body = move || Source::new(target, traffic)?.run(&seen);
        let thread = std::thread::Builder::new().name("load".to_owned()).spawn(body);
        Ok(Self {
            stop,
            thread: thread.map_err(|source| Error::Io { what: "can't start a thread".to_owned(), source })?,
        })
    }

    /// Stops it; every record is on the broker then, and a plain one stands at the end of each partition.
    pub(crate) fn finish(self) -> Result<Sent> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| Error::Stalled("the load thread panicked".to_owned()))?
    }

    /// Whether it ended before it was told to.
    pub(crate) fn ended(&self) -> bool {
        self.thread.is_finished()
    }
}

struct Source {
    target: Target,
    traffic: Traffic,
    plain: Counted,
    sent: Sent,
}

impl Source {
    fn new(target: Target, traffic: Traffic) -> Result<Self> {
        let plain = producer(&target.bootstrap, None, &[timeout("delivery.timeout.ms", PATIENCE)])?;
        Ok(Self { target, traffic, plain, sent: Sent::default() })
    }

    fn run(mut self, stop: &AtomicBool) -> Result<Sent> {
        let began = Instant::now();
        let mut transactional = None;
        let mut tick = 0;
        while !stop.load(Ordering::Relaxed) {
            tick += 1;
            self.batch(began.elapsed())?;
            if tick % TRANSACTION == 0 && self.transaction(&mut transactional).is_err() {
                // Unknown outcome: the next producer of this id fences and ends it.
                transactional = None;
                self.sent.failed += 1;
            }
            std::thread::sleep((TICK * tick).saturating_sub(began.elapsed()));
        }
        self.settle(transactional)?;
        for index in 0..self.traffic.boundaries() {
            let (write, retrieval) = (self.traffic.allowed(index), self.traffic.retrieval_of(index));
            self.plain(true, &write)?;
            self.plain(false, &retrieval)?;
        }
        self.drained()?;
        Ok(self.sent)
    }

    /// What is due by now.
    fn batch(&mut self, elapsed: Duration) -> Result<()> {
        let due = |rate: u32| u64::try_from(elapsed.as_millis()).unwrap_or(0) * u64::from(rate) / 1000;
        while self.sent.writes < due(self.target.writes_per_s) {
            let made = self.traffic.write();
            self.plain(true, &made)?;
        }
        while self.sent.retrievals < due(self.target.retrievals_per_s) {
            let made = self.traffic.retrieval();
            self.plain(false, &made)?;
        }
        self.plain.poll(Duration::ZERO);
        Ok(())
    }

    fn plain(&mut self, write: bool, made: &Made) -> Result<()> {
        let topic = if write { &self.target.writes } else { &self.target.retrievals };
        send(&self.plain, BaseRecord::to(topic).key(&made.key).payload(&made.value))?;
        if write {
            self.sent.writes += 1;
        } else {
            self.sent.retrievals += 1;
        }
        Ok(())
    }

    /// A few records in one transaction; every other one is aborted.
    fn transaction(&mut self, kept: &mut Option<Counted>) -> Result<()> {
        let producer = match kept.take() {
            Some(producer) => producer,
            None => self.transactional()?,
        };
        producer.begin_transaction().doing("begin_transaction")?;
        for _ in 0..6 {
            let made = self.traffic.write();
            send(&producer, BaseRecord::to(&self.target.writes).key(&made.key).payload(&made.value))?;
        }
        for _ in 0..3 {
            let made = self.traffic.retrieval();
            send(&producer, BaseRecord::to(&self.target.retrievals).key(&made.key).payload(&made.value))?;
        }
        drain(&producer)?;
        if self.sent.transactions % 2 == 1 {
            producer.abort_transaction(CALL).doing("abort_transaction")?;
            self.sent.aborted += 1;
        } else {
            producer.commit_transaction(CALL).doing("commit_transaction")?;
        }
        self.sent.transactions += 1;
        *kept = Some(producer);
        Ok(())
    }

    fn transactional(&self) -> Result<Counted> {
        let id = format!("{}-load", self.target.writes);
        producer(&self.target.bootstrap, Some(&id), &[timeout("transaction.timeout.ms", Duration::from_secs(20))])
    }

    /// Ends what a failed transaction may have left open.
    fn settle(&self, kept: Option<Counted>) -> Result<()> {
        drop(kept);
        self.transactional().map(drop)
    }

    fn drained(&self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while self.plain.in_flight_count() > 0 && Instant::now() < until {
            self.plain.poll(Duration::from_millis(50));
        }
        drain(&self.plain)
    }
}

fn timeout(key: &str, time: Duration) -> (String, String) {
    (key.to_owned(), time.as_millis().to_string())
}
