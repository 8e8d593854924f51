//! Metrics, probes, lag and stops of a running process.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use memsluice::telemetry::DEFINITIONS;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use serde_json::Value;

use crate::support::{self, Bench, Outcome, Run, Running};

const LIMIT: Duration = Duration::from_secs(120);

/// Samples of an exposition: name with labels, value.
#[derive(Debug)]
struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    fn of(running: &Running) -> Option<Self> {
        let (status, body) = running.get("/metrics")?;
        assert_eq!(status, 200);
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Some(Self(body.lines().filter(|l| !l.starts_with('#')).filter_map(sample).collect()))
    }

    fn family<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        let of = move |key: &str| key.split('{').next() == Some(name);
        self.0.iter().filter(move |(key, _)| of(key)).map(|(key, value)| (key.as_str(), *value))
    }

    fn sum(&self, name: &str) -> f64 {
        self.family(name).map(|(_, v)| v).sum()
    }
}

/// How a transaction of another producer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Commit,
    Abort,
    Open,
}

impl Bench {
    /// Metrics and probes on a free port, which the log names.
    fn serve(&mut self) {
        self.set("MEMSLUICE__HTTP__LISTEN", "127.0.0.1:0");
    }

    /// `count` valid writes in one transaction of another producer. The producer goes on holding an open one;
    /// the next call takes its place.
    fn transaction(&self, count: usize, end: End) -> BaseProducer {
        let mut config = self.client();
        config.set("transactional.id", format!("{}other", self.prefix)).set("partitioner", "murmur2_random");
        let producer: BaseProducer = config.create().unwrap();
        let limit = Duration::from_secs(20);
        producer.init_transactions(limit).unwrap();
        producer.begin_transaction().unwrap();
        let topic = self.topic("memory-writes");
        for i in 0..count {
            let (tenant, id) = (format!("t{}", i % 7), format!("m-{i}"));
            let key = format!("{tenant}/support");
            let value = serde_json::json!({"tenant": tenant, "store": "support", "record_id": id, "op": "create",
                "content": format!("fact {i}"), "origin": "user_input"})
            .to_string();
            producer.send(BaseRecord::to(&topic).key(&key).payload(&value)).unwrap();
        }
        producer.flush(limit).unwrap();
        match end {
            End::Commit => producer.commit_transaction(limit).unwrap(),
            End::Abort => producer.abort_transaction(limit).unwrap(),
            End::Open => {}
        }
        producer
    }
}

impl Running {
    fn log_path(&self) -> PathBuf {
        self.log.clone()
    }

    /// Status and body of a path of its HTTP endpoint; `None` while it does not answer.
    fn get(&self, path: &str) -> Option<(u16, String)> {
        let log = self.log();
        let line = log.lines().rev().find_map(|l| l.strip_prefix("http: "))?;
        let mut stream = TcpStream::connect(line.split(' ').next()?).ok()?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }
}

fn wait_for<T>(what: &str, running: &Running, mut found: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + LIMIT;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < until, "{what}: {:?}\n{}", running.get("/ready"), running.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn wait_for_scrape(what: &str, running: &Running, good: impl Fn(&Scrape) -> bool) -> Scrape {
    wait_for(what, running, || Scrape::of(running).filter(|s| good(s)))
}

fn probe(running: &Running, path: &str) -> Option<(u16, Value)> {
    let (status, body) = running.get(path)?;
    Some((status, serde_json::from_str(&body).unwrap()))
}

fn wait_until_ready(running: &Running) {
    wait_for("ready", running, || probe(running, "/ready").filter(|(status, _)| *status == 200));
}

/// Read up: every input has a lag, and all are 0.
fn read_up(s: &Scrape) -> bool {
    let lags: Vec<f64> = s.family("memsluice_source_lag_records").map(|(_, v)| v).collect();
    lags.len() == 12 && lags.iter().all(|l| *l == 0.0)
}

/// A run that does a bit of everything shows every metric, and the counts add up.
#[test]
fn every_defined_metric_appears_in_a_scrape() {
    let Some(mut bench) = Bench::new("scrape") else { return };
    bench.serve();
    let broken = bench.produce_hostile();
    let data = support::generated(2_000, 300);
    bench.load(&data);
    bench.load_honeypots(&data);
    let held =
        r#"{"tenant":"acme","store":"support","record_id":"m","op":"create","content":"x","origin":"retrieved"}"#;
    let file = bench.folder("held.jsonl");
    std::fs::write(&file, held).unwrap();
    bench.produce("memory-writes", &[file]);
    let running = bench.spawn(Run::live("one"));
    let inputs = 2_301 + broken;
    let done = |s: &Scrape| s.sum("memsluice_end_to_end_seconds_count") >= inputs as f64 && read_up(s);
    let scrape = wait_for_scrape("all is committed", &running, done);
    for d in DEFINITIONS {
        let suffix = if d.kind == "histogram" { "_count" } else { "" };
        let name = format!("{}{suffix}", d.name);
        let samples: Vec<&str> = scrape.family(&name).map(|(key, _)| key).collect();
        assert!(!samples.is_empty(), "{} is not in the scrape", d.name);
        let labelled = |key: &&str| d.labels.iter().all(|l| key.contains(&format!("{l}=\"")));
        assert!(samples.iter().all(labelled), "{}: {samples:?}", d.name);
    }
    assert_eq!(scrape.sum("memsluice_end_to_end_seconds_count"), inputs as f64);
    assert_eq!(scrape.sum("memsluice_txn_records_sum"), inputs as f64);
    assert_eq!(scrape.sum("memsluice_decision_total"), (2_001 + broken) as f64);
    assert_eq!(scrape.sum("memsluice_policy_verdict_total"), 2_001.0);
    assert_eq!(scrape.sum("memsluice_dlq_records_total"), broken as f64);
    assert_eq!(scrape.sum("memsluice_decode_errors_total"), broken as f64);
    assert!(scrape.sum("memsluice_source_records_total") >= inputs as f64);
    for fed in [
        "memsluice_txn_state_seconds_total",
        "memsluice_commit_latency_seconds_count",
        "memsluice_txn_duration_seconds_sum",
        "memsluice_score_seconds_count",
        "memsluice_state_read_seconds_count",
        "memsluice_embed_batch_records_count",
        "memsluice_embed_batch_tokens_sum",
        "memsluice_rebalance_seconds_count",
        "memsluice_sprt_observations_total",
        "memsluice_process_resident_memory_bytes",
        "memsluice_assigned_units",
        "memsluice_process_open_fds",
        "memsluice_process_cpu_seconds_total",
        "memsluice_decisions_uncalibrated_total",
    ] {
        assert!(scrape.sum(fed) > 0.0, "{fed} is {}: {}", scrape.sum(fed), running.log());
    }
    assert_eq!(scrape.sum("memsluice_ready"), 1.0);
    assert_eq!(probe(&running, "/live").unwrap().0, 200);
    assert_eq!(probe(&running, "/startup").unwrap().0, 200);
    assert_eq!(running.get("/nothing").unwrap().0, 404);
    assert_eq!(running.terminate(), Outcome::Exit(0));
}

/// The last thing in a log of a transactional producer is its marker: the lag is 0 all the same, also
/// behind aborted records, and what an open transaction holds is not behind.
#[test]
fn the_lag_returns_to_zero_on_transactional_topics() {
    let Some(mut bench) = Bench::new("lag").map(Bench::without_screen) else { return };
    bench.serve();
    let running = bench.spawn(Run::live("one"));
    wait_until_ready(&running);
    let writes = bench.transaction(40, End::Commit);
    wait_for_scrape("committed records", &running, |s| s.sum("memsluice_txn_records_sum") >= 40.0 && read_up(s));
    let open = bench.transaction(40, End::Open);
    std::thread::sleep(Duration::from_secs(5));
    assert!(read_up(&Scrape::of(&running).unwrap()), "an open transaction is no lag");
    drop(open);
    let _aborted = bench.transaction(40, End::Abort);
    std::thread::sleep(Duration::from_secs(5));
    let scrape = wait_for_scrape("aborted records", &running, read_up);
    assert_eq!(scrape.sum("memsluice_txn_records_sum"), 40.0, "nothing but the committed records was read");
    drop(writes);
    assert_eq!(running.terminate(), Outcome::Exit(0));
}

/// The state is lost and rebuilt from the changelog: `/ready` waits for it and says how far it is.
#[test]
fn ready_waits_for_the_restore() {
    let Some(mut bench) = Bench::new("ready") else { return };
    let data = support::generated(30_000, 2_000);
    bench.load(&data);
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    bench.wipe_state();
    bench.serve();
    let running = bench.spawn(Run::live("one"));
    let mut reasons = BTreeSet::new();
    let mut remaining = 0;
    wait_for("ready", &running, || {
        let (status, body) = probe(&running, "/ready")?;
        reasons.insert(body["why"].as_str().unwrap().to_owned());
        remaining = remaining.max(body["restore_remaining_records"].as_i64().unwrap());
        (status == 200).then_some(())
    });
    assert!(reasons.contains("restoring") && remaining > 0, "{remaining} {reasons:?}");
    assert_eq!(probe(&running, "/ready").unwrap().1["units"]["restored"], 6);
    assert_eq!(running.terminate(), Outcome::Exit(0));
}

/// A task thread that stands still: its inputs are called stuck, the process is called dead, the group
/// evicts it, and the other member decides everything.
#[test]
fn a_stuck_task_thread_is_seen_and_evicted() {
    let Some(mut bench) = Bench::new("stuck") else { return };
    bench.replace_in_topology("session_timeout: 30s", "session_timeout: 11s");
    bench.replace_in_topology("transaction_timeout: 10s", "transaction_timeout: 1s");
    bench.replace_in_topology("hold_deadline: 60s", "hold_deadline: 1s");
    bench.serve();
    bench.set("MEMSLUICE__SABOTAGE", "stuck_task");
    let stuck = bench.spawn(Run::live("stuck"));
    wait_until_ready(&stuck);
    let data = support::generated(500, 20);
    bench.load(&data);
    let deadline = Instant::now() + LIMIT;
    // What comes after the thread stopped makes the lag grow.
    let ready = loop {
        bench.load_more(&data, 100);
        let (status, body) = probe(&stuck, "/ready").unwrap();
        if body["why"] == "an input stands still" {
            assert_eq!(status, 503);
            break body;
        }
        assert!(Instant::now() < deadline, "{body} {}", stuck.log());
        std::thread::sleep(Duration::from_millis(500));
    };
    assert!(ready["stuck"].as_array().unwrap().len() > 1, "{ready}");
    assert!(Scrape::of(&stuck).unwrap().sum("memsluice_source_stuck") > 1.0);
    assert!(Scrape::of(&stuck).unwrap().sum("memsluice_source_lag_records") > 0.0);
    bench.unset("MEMSLUICE__SABOTAGE");
    let other = bench.spawn(Run::live("other"));
    let dead = wait_for("not live", &stuck, || probe(&stuck, "/live").filter(|(status, _)| *status == 503));
    assert_eq!(dead.1["why"], "the task thread is silent", "{}", dead.1);
    wait_for_scrape("all units move", &other, |s| s.sum("memsluice_assigned_units") == 6.0 && read_up(s));
    assert_eq!(probe(&other, "/live").unwrap().0, 200);
    assert!(stuck.log().contains("the task thread is silent"), "{}", stuck.log());
    assert!(bench.verify().clean());
    assert_eq!(other.terminate(), Outcome::Exit(0));
    stuck.kill();
}

/// The exit status of a stop says which step failed.
#[test]
fn a_failed_stop_names_its_step() {
    let steps = [
        ("before_drain=error", 10),
        ("before_offsets=error", 11),
        ("after_commit=timeout", 11),
        ("before_apply=error", 12),
        ("before_drain=error@1000", 0),
    ];
    let Some(mut bench) = Bench::new("stop") else { return };
    // Nothing is committed before the stop.
    bench.replace_in_topology("interval: 100ms", "interval: 9s");
    bench.serve();
    let data = support::generated(100, 10);
    for (failpoint, status) in steps {
        bench.set("MEMSLUICE__FAILPOINT", failpoint);
        bench.load(&data);
        let running = bench.spawn(Run::live("one"));
        wait_for_scrape("an open transaction", &running, |s| s.sum("memsluice_txn_open_age_seconds") > 0.0);
        let log = running.log_path();
        assert_eq!(
            running.terminate(),
            Outcome::Exit(status),
            "{failpoint}: {}",
            std::fs::read_to_string(&log).unwrap()
        );
        let log = std::fs::read_to_string(log).unwrap();
        let code = match status {
            10 => "[stop_drain_failed]",
            11 => "[stop_commit_failed]",
            12 => "[stop_flush_failed]",
            _ => "",
        };
        assert!(log.contains(code), "{failpoint}: {log}");
    }
    bench.unset("MEMSLUICE__FAILPOINT");
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    assert!(bench.verify().clean(), "no failed stop lost or doubled a record");
}
