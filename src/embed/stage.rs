//! The encoder's threads: jobs in, vectors out, in any order. Each thread owns its own session.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use super::backend::{self, vector};
use super::sabotaged::Sabotaged;
use super::{Backend, BatchRule, Batcher, Cache, Encoded, Prefixes, Prepared, Sized};
use crate::clock::monotonic;
use crate::config::Encoder as Settings;
use crate::error::{Code, Error, Result};
use crate::telemetry::metrics;

/// A text to encode.
#[derive(Debug)]
pub struct Job {
    /// Unit.
    pub unit: i32,
    /// Place in the unit's order.
    pub ticket: u64,
    /// The text.
    pub text: String,
    /// Failed tries are repeated until then (posture `hold`).
    pub retry_until: Option<Instant>,
}

/// A job of the round that it was submitted in.
#[derive(Debug)]
struct Numbered {
    job: Job,
    round: u64,
    queued: Queued,
}

/// A text's outcome.
#[derive(Debug)]
pub struct Done {
    /// Unit.
    pub unit: i32,
    /// Place.
    pub ticket: u64,
    /// The vector, or why there is none.
    pub result: Result<Encoded>,
}

/// The stage's front: submit and collect.
#[derive(Debug)]
pub struct Embedder {
    identity: String,
    rule: BatchRule,
    prefixes: Prefixes,
    jobs: Option<Sender<Numbered>>,
    round: Arc<AtomicU64>,
    done: Receiver<Done>,
    cache: Arc<Cache>,
    threads: Vec<JoinHandle<()>>,
}

impl Embedder {
    /// Opens the encoder, probes it and starts its threads. With backend `precomputed` there is no
    /// thread and every job fails.
    ///
    /// # Errors
    /// Those of [`backend::open`] and `encoder_failed` from the probe.
    pub fn start(settings: &Settings) -> Result<Self> {
        let cache = Arc::new(Cache::new(settings.cache_entries));
        let (jobs, inbox) = unbounded::<Numbered>();
        let (outbox, done) = unbounded::<Done>();
        let round = Arc::new(AtomicU64::new(0));
        let prefixes = Prefixes { query: settings.query_prefix.clone(), passage: settings.passage_prefix.clone() };
        let Some(mut first) = backend::open(settings)? else {
            let identity = format!("precomputed/{}", settings.dimension);
            let thread = spawn("memsluice-embed-0", move || refuse(&inbox, &outbox))?;
            return Ok(Self {
                identity,
                rule: BatchRule::Any,
                prefixes,
                jobs: Some(jobs),
                round,
                done,
                cache,
                threads: vec![thread],
            });
        };
        let rule = super::probe(first.as_mut())?;
        first = Sabotaged::wrap(first, settings.sabotage);
        let identity = format!("{}/batch-{}", first.identity(), rule.as_str());
        let mut backends = vec![first];
        for _ in 1..settings.threads {
            backends.extend(backend::open(settings)?.map(|b| Sabotaged::wrap(b, settings.sabotage)));
        }
        let mut threads = Vec::new();
        for (i, backend) in backends.into_iter().enumerate() {
            let worker = Worker {
                backend,
                batcher: Batcher::new(settings.batch_tokens, rule == BatchRule::One),
                deadline: Duration::from_millis(settings.batch_deadline_ms),
                inbox: inbox.clone(),
                outbox: outbox.clone(),
                cache: cache.clone(),
                round: round.clone(),
            };
            threads.push(spawn(&format!("memsluice-embed-{i}"), move || worker.run())?);
        }
        Ok(Self { identity, rule, prefixes, jobs: Some(jobs), round, done, cache, threads })
    }

    /// Encoder identity with the batch rule.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// What the probe found.
    #[must_use]
    pub fn rule(&self) -> BatchRule {
        self.rule
    }

    /// What the encoder wants in front of texts. Texts that are submitted have it already.
    #[must_use]
    pub fn prefixes(&self) -> &Prefixes {
        &self.prefixes
    }

    /// A vector that is already known.
    #[must_use]
    pub fn cached(&self, text: &str) -> Option<Encoded> {
        let known = self.cache.get(text);
        metrics().embed_hits.inc_by(u64::from(known.is_some()));
        known
    }

    /// Hands a text to the threads; bounded by the bytes in flight of its input.
    pub fn submit(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // The threads outlive this sender; a dead thread shows in `alive`.
            let round = self.round.load(Ordering::Relaxed);
            drop(jobs.send(Numbered { job, round, queued: Queued::now() }));
        }
    }

    /// Drops the jobs that wait: nobody wants their outcome any more.
    pub fn forget(&self) {
        self.round.fetch_add(1, Ordering::Relaxed);
    }

    /// Where outcomes arrive.
    #[must_use]
    pub fn done(&self) -> &Receiver<Done> {
        &self.done
    }

    /// Whether all threads run.
    #[must_use]
    pub fn alive(&self) -> bool {
        self.threads.iter().all(|t| !t.is_finished())
    }

    /// Encodes texts and waits: for fits and files.
    ///
    /// # Errors
    /// `encoder_failed`.
    pub fn encode_all(&self, texts: &[String], mut progress: impl FnMut()) -> Result<Vec<Encoded>> {
        let mut out: Vec<Option<Encoded>> = vec![None; texts.len()];
        for (i, text) in texts.iter().enumerate() {
            self.submit(Job { unit: 0, ticket: i as u64, text: text.clone(), retry_until: None });
        }
        for _ in texts {
            let done = self.done.recv().map_err(|_| Error::new(Code::EncoderFailed, "the encoder's threads ended"))?;
            let slot = usize::try_from(done.ticket).unwrap_or_default();
            out[slot] = Some(done.result?);
            progress();
        }
        Ok(out.into_iter().flatten().collect())
    }
}

impl Drop for Embedder {
    fn drop(&mut self) {
        // What is queued belongs to records that nobody decides any more.
        self.forget();
        self.jobs = None;
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(|e| Error::with(Code::Internal, "can't start a thread", e))
}

fn refuse(inbox: &Receiver<Numbered>, outbox: &Sender<Done>) {
    for Numbered { job, .. } in inbox {
        let result =
            Err(Error::new(Code::EncoderFailed, "the record carries no vector and the encoder is precomputed"));
        if !answer(outbox, Done { unit: job.unit, ticket: job.ticket, result }) {
            return;
        }
    }
}

struct Worker {
    backend: Box<dyn Backend>,
    batcher: Batcher<Waiting>,
    deadline: Duration,
    inbox: Receiver<Numbered>,
    outbox: Sender<Done>,
    cache: Arc<Cache>,
    round: Arc<AtomicU64>,
}

struct Waiting {
    job: Job,
    round: u64,
    queued: Queued,
    prepared: Prepared,
}

impl Sized for Waiting {
    fn pieces(&self) -> usize {
        self.prepared.ids.len()
    }
}

impl Worker {
    fn run(mut self) {
        while let Ok(job) = self.inbox.recv() {
            let until = monotonic() + self.deadline;
            self.take(job);
            while !self.batcher.is_full() {
                match self.inbox.recv_deadline(until) {
                    Ok(job) => self.take(job),
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                }
            }
            for batch in self.batcher.take() {
                self.encode(batch);
            }
        }
    }

    fn is_stale(&self, round: u64) -> bool {
        round != self.round.load(Ordering::Relaxed)
    }

    fn take(&mut self, Numbered { job, round, queued }: Numbered) {
        if self.is_stale(round) {
            return;
        }
        if let Some(known) = self.cache.get(&job.text) {
            metrics().embed_hits.inc();
            return self.send(job.unit, job.ticket, Ok(known));
        }
        metrics().embed_misses.inc();
        match self.backend.prepare(&job.text) {
            Ok(prepared) => self.batcher.push(Waiting { job, round, queued, prepared }),
            Err(e) => self.send(job.unit, job.ticket, Err(e)),
        }
    }

    fn encode(&mut self, mut batch: Vec<Waiting>) {
        batch.retain(|w| !self.is_stale(w.round));
        if batch.is_empty() {
            return;
        }
        let prepared: Vec<Prepared> = batch.iter().map(|w| w.prepared.clone()).collect();
        let start = monotonic();
        let rows = self.backend.encode(&prepared);
        measure(&batch, start);
        let Ok(rows) = rows else {
            return self.one_by_one(batch);
        };
        for (waiting, row) in batch.into_iter().zip(rows) {
            self.finish(waiting, vector(&row));
        }
    }

    /// A batch failed: each text again alone, so that one bad text fails alone.
    fn one_by_one(&mut self, batch: Vec<Waiting>) {
        for waiting in batch {
            let result = loop {
                let result = self.backend.encode(std::slice::from_ref(&waiting.prepared)).and_then(|rows| {
                    rows.first().map_or_else(|| Err(Error::new(Code::EncoderFailed, "no row")), |r| vector(r))
                });
                let again =
                    waiting.job.retry_until.is_some_and(|until| monotonic() < until) && !self.is_stale(waiting.round);
                if result.is_ok() || !again {
                    break result;
                }
                std::thread::sleep(Duration::from_millis(100));
            };
            self.finish(waiting, result);
        }
    }

    fn finish(&self, waiting: Waiting, result: Result<crate::schema::Vector>) {
        let Prepared { truncated, covered, .. } = waiting.prepared;
        let result = result.map(|vector| Encoded { vector, truncated, covered });
        if let Ok(encoded) = &result {
            self.cache.put(&waiting.job.text, encoded.clone());
        }
        self.send(waiting.job.unit, waiting.job.ticket, result);
    }

    fn send(&self, unit: i32, ticket: u64, result: Result<Encoded>) {
        answer(&self.outbox, Done { unit, ticket, result });
    }
}

/// A text that waits for its vector: counted from its submit until it is dropped.
#[derive(Debug)]
struct Queued(Instant);

impl Queued {
    fn now() -> Self {
        metrics().embed_queue.inc();
        Self(monotonic())
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        metrics().embed_queue.dec();
    }
}

/// Hands an outcome back; `false` when nobody waits any more.
fn answer(outbox: &Sender<Done>, done: Done) -> bool {
    metrics().embed_failures.inc_by(u64::from(done.result.is_err()));
    outbox.send(done).is_ok()
}

/// What a batch that began at `start` and has just ended was like.
#[allow(clippy::cast_precision_loss)] // small counts
fn measure(batch: &[Waiting], start: Instant) {
    let m = metrics();
    m.embed_inference.observe_duration(start.elapsed());
    let (pieces, longest) = batch.iter().map(Sized::pieces).fold((0, 0), |(sum, max), n| (sum + n, n.max(max)));
    let padded = longest * batch.len();
    m.embed_batch_records.observe(batch.len() as f64);
    m.embed_batch_tokens.observe(padded as f64);
    m.embed_padding.observe(1.0 - pieces as f64 / padded.max(1) as f64);
    for waiting in batch {
        m.embed_queue_seconds.observe_duration(start.duration_since(waiting.queued.0));
    }
}
