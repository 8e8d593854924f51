//! Liveness, readiness and startup, and why. Threads report here; the HTTP endpoint reads.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Metrics;
use crate::clock::monotonic;

/// Says that a thread still turns.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    start: Instant,
    last: Arc<AtomicI64>,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self { start: monotonic(), last: Arc::default() }
    }
}

impl Heartbeat {
    /// Beats.
    pub fn beat(&self) {
        self.last.store(self.now(), Ordering::Relaxed);
    }

    /// Time since the last beat, or since it was made.
    #[must_use]
    pub fn age(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.now() - self.last.load(Ordering::Relaxed)).unwrap_or_default())
    }

    fn now(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

/// How long silence is taken for life. All follow from the topology's session timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A task thread silent for longer gets no more polls, so that the group evicts this member: one turn
    /// may hold four client calls of 20 s, and three sessions are 90 s in the sample.
    pub task: Duration,
    /// The poll thread waits for nothing but the acknowledgement of a revoke, half a session.
    pub poll: Duration,
    /// No progress for this long on an input that grows: stuck. Longer than `posture.hold_deadline`.
    pub stuck: Duration,
    /// Nothing comes of an input that has more for this long, though all that came is committed: the consumer is
    /// taken for broken and replaced.
    pub starved: Duration,
}

impl Limits {
    /// From `consumer.session_timeout` and `posture.hold_deadline`.
    #[must_use]
    pub fn new(session: Duration, hold: Duration) -> Self {
        Self { task: session * 3, poll: session, stuck: (session * 2).max(hold + session), starved: session * 2 }
    }
}

/// What an endpoint answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// 200 or 503.
    pub ok: bool,
    /// The reason and the facts it comes from.
    pub body: Value,
}

/// Where the process is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Life {
    #[default]
    Starting,
    Started,
    Stopping,
}

/// Where the assignment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Units {
    #[default]
    None,
    Restoring {
        restored: usize,
        assigned: usize,
        remaining: u64,
    },
    Running(usize),
}

#[derive(Debug, Default)]
struct Inner {
    life: Life,
    threads: Option<(Heartbeat, Heartbeat, Limits)>,
    units: Units,
    stuck: Vec<(String, i32)>,
    opened: Option<Instant>,
}

/// Health of the process.
#[derive(Debug, Default)]
pub struct Health {
    inner: Mutex<Inner>,
}

impl Health {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The broker answered and the topics are as the topology says.
    pub fn started(&self) {
        self.lock().life = Life::Started;
    }

    /// The process is on its way out.
    pub fn stopping(&self) {
        self.lock().life = Life::Stopping;
    }

    /// Whose heartbeats `/live` asks for; a new poll thread takes the place of the one before.
    pub fn watch(&self, task: &Heartbeat, poll: &Heartbeat, limits: Limits) {
        self.lock().threads = Some((task.clone(), poll.clone(), limits));
    }

    /// No assignment.
    pub fn unassigned(&self) {
        self.lock().units = Units::None;
    }

    /// `restored` of `assigned` units are restored; the next one begins.
    pub fn restoring(&self, restored: usize, assigned: usize) {
        self.lock().units = Units::Restoring { restored, assigned, remaining: 0 };
    }

    /// Offsets still to replay in the unit that is being restored.
    pub fn remaining(&self, offsets: u64) {
        if let Units::Restoring { remaining, .. } = &mut self.lock().units {
            *remaining = offsets;
        }
    }

    /// All assigned units are restored and fetched.
    pub fn running(&self, units: usize) {
        self.lock().units = Units::Running(units);
    }

    /// Topic and partition of inputs that stand still.
    pub fn stuck(&self, inputs: Vec<(String, i32)>) {
        self.lock().stuck = inputs;
    }

    /// When the open transaction began; `None` when none is open.
    pub fn transaction(&self, opened: Option<Instant>) {
        self.lock().opened = opened;
    }

    /// Whether poll thread and task thread turn. Before both run, and while they end, the process is taken
    /// to be alive.
    #[must_use]
    pub fn live(&self) -> Report {
        let inner = self.lock();
        let Some((task, poll, limits)) = inner.threads.as_ref().filter(|_| inner.life == Life::Started) else {
            return Report { ok: true, body: json!({"live": true, "why": life_word(inner.life)}) };
        };
        let row = |age: Duration, limit: Duration| json!({"silent_ms": millis(age), "limit_ms": millis(limit)});
        let (task_age, poll_age) = (task.age(), poll.age());
        let why = match (task_age > limits.task, poll_age > limits.poll) {
            (false, false) => "both threads turn",
            (true, false) => "the task thread is silent",
            (false, true) => "the poll thread is silent",
            (true, true) => "both threads are silent",
        };
        let ok = task_age <= limits.task && poll_age <= limits.poll;
        let threads = json!({"task": row(task_age, limits.task), "poll": row(poll_age, limits.poll)});
        Report { ok, body: json!({"live": ok, "why": why, "threads": threads}) }
    }

    /// Whether the assigned units are restored and none of their inputs stands still.
    #[must_use]
    pub fn ready(&self) -> Report {
        let inner = self.lock();
        let (restored, assigned, remaining) = match inner.units {
            Units::None => (0, 0, 0),
            Units::Restoring { restored, assigned, remaining } => (restored, assigned, remaining),
            Units::Running(n) => (n, n, 0),
        };
        let why = match (inner.life, inner.units) {
            (Life::Starting | Life::Stopping, _) => life_word(inner.life),
            (_, Units::None) => "no assignment",
            (_, Units::Restoring { .. }) => "restoring",
            _ if !inner.stuck.is_empty() => "an input stands still",
            _ => "assigned and restored",
        };
        let ok = why == "assigned and restored";
        let stuck: Vec<Value> = inner.stuck.iter().map(|(t, p)| json!({"topic": t, "partition": p})).collect();
        let body = json!({"ready": ok, "why": why, "units": {"assigned": assigned, "restored": restored},
            "restore_remaining_records": remaining, "stuck": stuck});
        Report { ok, body }
    }

    /// Whether the topology is valid (the endpoint runs only then) and the broker was reached.
    #[must_use]
    pub fn startup(&self) -> Report {
        let ok = self.lock().life != Life::Starting;
        let broker = if ok { "reached, topics as declared" } else { "not yet reached" };
        Report { ok, body: json!({"started": ok, "topology": "valid", "broker": broker}) }
    }

    /// Sets the metrics that are read from here.
    pub(super) fn publish(&self, metrics: &Metrics) {
        metrics.ready.set(i64::from(self.ready().ok));
        let inner = self.lock();
        let (assigned, remaining) = match inner.units {
            Units::None => (0, 0),
            Units::Restoring { assigned, remaining, .. } => (assigned, remaining),
            Units::Running(n) => (n, 0),
        };
        metrics.assigned_units.set(i64::try_from(assigned).unwrap_or(i64::MAX));
        metrics.restore_remaining.set(i64::try_from(remaining).unwrap_or(i64::MAX));
        metrics.txn_open_age.set(inner.opened.map_or(0.0, |t| t.elapsed().as_secs_f64()));
        if let Some((task, poll, _)) = &inner.threads {
            for (thread, heartbeat) in [("task", task), ("poll", poll)] {
                let labels = vec![("thread", thread.to_owned())];
                metrics.heartbeat_age.get_or_create(&labels).set(heartbeat.age().as_secs_f64());
            }
        }
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

fn life_word(life: Life) -> &'static str {
    match life {
        Life::Starting => "starting",
        Life::Started => "started, threads to come",
        Life::Stopping => "stopping",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silent(seconds: u64) -> Heartbeat {
        let start = monotonic().checked_sub(Duration::from_secs(seconds)).expect("the host is up for that long");
        Heartbeat { start, last: Arc::default() }
    }

    #[test]
    fn alive_means_that_both_threads_turn() {
        let limits = Limits::new(Duration::from_secs(10), Duration::from_secs(60));
        let of = |task: u64, poll: u64| {
            let health = Health::default();
            health.watch(&silent(task), &silent(poll), limits);
            health.started();
            let report = health.live();
            (report.ok, report.body["why"].as_str().unwrap_or_default().to_owned())
        };
        assert_eq!(of(29, 9), (true, "both threads turn".to_owned()));
        assert_eq!(of(31, 9), (false, "the task thread is silent".to_owned()));
        assert_eq!(of(29, 11), (false, "the poll thread is silent".to_owned()));
        assert_eq!(of(31, 11), (false, "both threads are silent".to_owned()));
        assert!(Health::default().live().ok, "a process that starts is alive");
    }

    #[test]
    fn ready_only_with_restored_units_that_move() {
        let health = Health::default();
        let why = || {
            let report = health.ready();
            (report.ok, report.body["why"].as_str().unwrap_or_default().to_owned())
        };
        assert_eq!(why(), (false, "starting".to_owned()));
        health.started();
        assert_eq!(why(), (false, "no assignment".to_owned()));
        health.restoring(1, 3);
        health.remaining(400);
        assert_eq!(why(), (false, "restoring".to_owned()));
        let body = health.ready().body;
        assert_eq!((&body["restore_remaining_records"], &body["units"]["restored"]), (&json!(400), &json!(1)));
        health.running(3);
        assert_eq!(why(), (true, "assigned and restored".to_owned()));
        health.stuck(vec![("memory-writes".to_owned(), 2)]);
        assert_eq!(why(), (false, "an input stands still".to_owned()));
        assert_eq!(health.ready().body["stuck"][0]["partition"], 2);
        health.stuck(Vec::new());
        health.unassigned();
        assert_eq!(why(), (false, "no assignment".to_owned()));
        health.running(0);
        assert!(why().0, "a spare member has nothing to restore");
        health.stopping();
        assert_eq!(why(), (false, "stopping".to_owned()));
    }

    #[test]
    fn startup_needs_the_broker() {
        let health = Health::default();
        assert!(!health.startup().ok);
        health.started();
        assert!(health.startup().ok);
        health.stopping();
        assert!(health.startup().ok, "what has started stays started");
    }

    /// A stuck input is reported only after a held one would have gone on.
    #[test]
    fn limits_follow_the_topology() {
        let limits = Limits::new(Duration::from_secs(30), Duration::from_secs(60));
        assert_eq!((limits.task.as_secs(), limits.poll.as_secs(), limits.stuck.as_secs()), (90, 30, 90));
    }
}
