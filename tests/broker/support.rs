//! Benches: topics, state folder and process environment of one test.

pub(crate) use super::data::{Data, Files, converted, generated, tool_ok};
use super::data::{load_tests, text};
pub(crate) use super::running::{Running, first_to_end};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use memsluice::source::{Client, Reader, reader, watermarks};
use memsluice::state::{Db, Kind, Store, prefix};
use rdkafka::Message;
use serde_json::Value;

pub(super) const MEMSLUICE: &str = env!("CARGO_BIN_EXE_memsluice");
pub(crate) const UNITS: i32 = 6;

/// How a process ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Exit status.
    Exit(i32),
    /// By a signal.
    Signal,
}

/// How to start the stream.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    until_end: bool,
    instance: String,
    folder: String,
}

impl Run {
    pub(crate) fn until_end() -> Self {
        Self { until_end: true, instance: "one".into(), folder: "one".into() }
    }

    pub(crate) fn live(instance: &str) -> Self {
        Self { until_end: false, instance: instance.into(), folder: instance.into() }
    }

    /// The same, until it is stopped.
    pub(crate) fn forever(mut self) -> Self {
        self.until_end = false;
        self
    }

    pub(crate) fn live_until_end(instance: &str) -> Self {
        Self { until_end: true, ..Self::live(instance) }
    }

    pub(crate) fn in_folder(mut self, folder: &str) -> Self {
        self.folder = folder.into();
        self
    }
}

/// What `load-tests verify` found.
pub(crate) struct Verified {
    pub(crate) superseded: u64,
    pub(crate) inputs: u64,
    pub(crate) lost: u64,
    pub(crate) duplicate: u64,
    pub(crate) torn: u64,
    pub(crate) dump: Vec<String>,
    faults: u64,
    passed: bool,
}

impl std::fmt::Debug for Verified {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { inputs, lost, duplicate, torn, faults, .. } = self;
        write!(f, "inputs {inputs} lost {lost} duplicate {duplicate} torn {torn} faults {faults}")
    }
}

impl Verified {
    pub(crate) fn clean(&self) -> bool {
        self.passed && self.faults == 0
    }
}

/// One test's topics and settings.
pub(crate) struct Bench {
    pub(super) bootstrap: String,
    pub(super) prefix: String,
    pub(super) folder: tempfile::TempDir,
    pub(super) env: BTreeMap<String, String>,
}

/// Lines that are not the same in both.
pub(crate) fn differing_lines(a: &[String], b: &[String]) -> usize {
    let wrong: Vec<_> = a.iter().zip(b).filter(|(x, y)| x != y).take(5).collect();
    if !wrong.is_empty() {
        eprintln!("first differences: {wrong:#?}");
    }
    a.iter().zip(b).filter(|(x, y)| x != y).count() + a.len().abs_diff(b.len())
}

impl Bench {
    /// Fresh topics under a prefix of their own; `None` without a broker.
    pub(crate) fn new(name: &str) -> Option<Self> {
        Self::with_topics(name, &[])
    }

    /// The same after replacing texts in `topics.yaml`.
    pub(crate) fn with_topics(name: &str, edits: &[(&str, &str)]) -> Option<Self> {
        let Ok(bootstrap) = std::env::var("MEMSLUICE_TEST_KAFKA") else {
            eprintln!("skipped: MEMSLUICE_TEST_KAFKA names no broker (scripts/test starts one)");
            return None;
        };
        let bench = Self::without_topics(name, &bootstrap);
        edits.iter().for_each(|(from, to)| bench.replace("topics.yaml", from, to));
        bench.cli_ok(&["topology", "apply"]);
        Some(bench)
    }

    /// The same on another cluster.
    pub(crate) fn at(name: &str, bootstrap: &str, replication: u8) -> Self {
        let bench = Self::without_topics(name, bootstrap);
        bench.cli_ok(&["topology", "apply", "--replication", &replication.to_string()]);
        bench
    }

    /// Settings and folders alone.
    pub(crate) fn without_topics(name: &str, bootstrap: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let topology = folder.path().join("topology");
        std::fs::create_dir(&topology).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("topology");
        for file in ["memsluice.yaml", "topics.yaml", "policy.yaml"] {
            let content = std::fs::read_to_string(source.join(file)).unwrap();
            // Test data is dated in the past: retention would delete it.
            std::fs::write(topology.join(file), content.replace("retention: 7d", "retention: forever")).unwrap();
        }
        std::fs::write(folder.path().join("secret"), [7_u8; 32]).unwrap();
        let nanos = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        let prefix = format!("{name}-{}-", nanos % 1_000_000_000_000);
        let env = BTreeMap::from([
            ("MEMSLUICE__KAFKA__BOOTSTRAP".to_owned(), bootstrap.to_owned()),
            ("MEMSLUICE__KAFKA__TOPIC_PREFIX".to_owned(), prefix.clone()),
            ("MEMSLUICE__KAFKA__GROUP".to_owned(), format!("{prefix}group")),
            ("MEMSLUICE__SECRET_FILE".to_owned(), text(&folder.path().join("secret")).to_owned()),
            ("MEMSLUICE__ENCODER__BACKEND".to_owned(), "hash".to_owned()),
            ("MEMSLUICE_TOPOLOGY".to_owned(), text(&topology).to_owned()),
            ("MEMSLUICE_LOG".to_owned(), "info".to_owned()),
            // Members of one test share a host.
            ("MEMSLUICE__HTTP__LISTEN".to_owned(), "off".to_owned()),
        ]);
        Self { bootstrap: bootstrap.to_owned(), prefix, folder, env }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A file or folder of this test.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn replace_policy(&self, from: &str, to: &str) {
        self.replace("policy.yaml", from, to);
    }

    /// A librdkafka setting of every client of the process.
    pub(crate) fn property(&self, key: &str, value: &str) {
        let text = format!("kafka: {{ properties: {{ {key}: \"{value}\" }} }}\n");
        std::fs::write(self.path("memsluice.yaml"), text).unwrap();
    }

    /// Short timeouts, for members that are to be evicted.
    pub(crate) fn short_session(&self) {
        self.replace("memsluice.yaml", "session_timeout: 30s", "session_timeout: 13s");
        self.replace("memsluice.yaml", "transaction_timeout: 10s", "transaction_timeout: 3s");
    }

    /// Status, standard output and standard error of a command.
    pub(crate) fn command(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let out = self.cli(args).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    }

    /// Deletes a topic and waits until it is gone.
    pub(crate) fn delete_topic(&self, role: &str) {
        tool_ok(&["topics", "--bootstrap", &self.bootstrap, "--delete", &self.topic(role)]);
        std::thread::sleep(Duration::from_secs(1));
    }

    /// Creates what the topology names and the broker lacks.
    pub(crate) fn apply(&self) {
        self.cli_ok(&["topology", "apply"]);
    }

    pub(crate) fn set(&mut self, key: &str, value: &str) {
        self.env.insert(key.to_owned(), value.to_owned());
    }

    pub(crate) fn replace_in_topology(&mut self, from: &str, to: &str) {
        self.replace("memsluice.yaml", from, to);
    }

    /// For records of one content, which a source may not repeat.
    pub(crate) fn without_screen(self) -> Self {
        self.replace("memsluice.yaml", "screen:\n  mode: enforce", "screen:\n  mode: off");
        self
    }

    pub(crate) fn replace_topics(&mut self, from: &str, to: &str) {
        self.replace("topics.yaml", from, to);
    }

    fn replace(&self, file: &str, from: &str, to: &str) {
        let path = self.folder.path().join("topology").join(file);
        let content = std::fs::read_to_string(&path).unwrap();
        assert!(content.contains(from));
        std::fs::write(&path, content.replace(from, to)).unwrap();
    }

    /// Uses the model named in the environment; `false` when there is none.
    pub(crate) fn use_real_encoder(&mut self) -> bool {
        for key in ["MODEL", "TOKENIZER", "RUNTIME"] {
            let key = format!("MEMSLUICE__ENCODER__{key}");
            let Ok(value) = std::env::var(&key) else { return false };
            self.set(&key, &value);
        }
        self.set("MEMSLUICE__ENCODER__BACKEND", "onnx");
        true
    }

    pub(crate) fn cli(&self, args: &[&str]) -> Command {
        let mut command = Command::new(MEMSLUICE);
        for (key, _) in std::env::vars().filter(|(k, _)| k.starts_with("MEMSLUICE")) {
            command.env_remove(key);
        }
        command.args(args).envs(&self.env).current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    pub(crate) fn cli_ok(&self, args: &[&str]) -> String {
        let out = self.cli(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "memsluice {args:?}: {stderr}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    pub(crate) fn topic(&self, role: &str) -> String {
        format!("{}{role}", self.prefix)
    }

    pub(crate) fn produce(&self, role: &str, files: &[PathBuf]) {
        self.produce_by(role, files, "murmur2_random");
    }

    /// By a partitioner of librdkafka.
    pub(crate) fn produce_by(&self, role: &str, files: &[PathBuf], partitioner: &str) {
        let (topic, partitioner) = (self.topic(role), format!("partitioner={partitioner}"));
        for file in files {
            let of = ["produce", "--bootstrap", &self.bootstrap, "--topic", &topic, "--set", &partitioner];
            tool_ok(&[&of[..], &["--file", text(file)]].concat());
        }
    }

    /// Each record in a partition by chance.
    pub(crate) fn scatter(&self, data: &Data) {
        self.produce_by("retrieval-logs", std::slice::from_ref(&data.queries), "random");
        self.produce_by("memory-writes", std::slice::from_ref(&data.writes), "random");
    }

    pub(crate) fn load(&self, data: &Data) {
        self.produce("retrieval-logs", std::slice::from_ref(&data.queries));
        self.produce("memory-writes", std::slice::from_ref(&data.writes));
    }

    /// Writes with long texts, without vectors.
    pub(crate) fn load_large(&self, count: usize, bytes: usize) {
        let topic = self.topic("memory-writes");
        for chunk in (0..count).collect::<Vec<_>>().chunks(1_000) {
            let record = |i: &usize| {
                let content = format!("{i} {}", "memory of a long day ".repeat(bytes / 21));
                let value = serde_json::json!({"tenant": "acme", "store": format!("s{}", i % 24), "record_id": format!("m{i}"),
                    "op": "create", "content": content});
                memsluice::sink::Publication {
                    topic: topic.clone(),
                    partition: None,
                    key: format!("acme/s{}", i % 24).into_bytes(),
                    value: value.to_string().into_bytes(),
                    timestamp: None,
                }
            };
            memsluice::sink::publish(&self.client(), &chunk.iter().map(record).collect::<Vec<_>>()).unwrap();
        }
    }

    /// The first `count` writes once more.
    pub(crate) fn load_more(&self, data: &Data, count: usize) {
        let content = std::fs::read_to_string(&data.writes).unwrap();
        let part: Vec<&str> = content.lines().take(count).collect();
        let file = data.folder.path().join("more.jsonl");
        std::fs::write(&file, part.join("\n")).unwrap();
        self.produce("memory-writes", &[file]);
    }

    /// Honeypots that some of the queries returned, so that sessions have state and findings.
    pub(crate) fn load_honeypots(&self, data: &Data) {
        let content = std::fs::read_to_string(&data.queries).unwrap();
        let mut seen = BTreeSet::new();
        let mut lines = Vec::new();
        for line in content.lines() {
            let v: Value = serde_json::from_str(line).unwrap();
            let (tenant, store) = (v["tenant"].as_str().unwrap(), v["store"].as_str().unwrap());
            let id = v["results"][0]["id"].as_str().unwrap();
            let swept = id.strip_prefix("k-").and_then(|n| n.parse::<u32>().ok()).is_some_and(|n| n < 10);
            if swept && seen.insert((tenant.to_owned(), store.to_owned(), id.to_owned())) {
                let n = seen.len();
                lines.push(serde_json::json!({"tenant": tenant, "store": store, "honeypot_id": format!("hp-{n}"), "record_id": id}).to_string());
            }
        }
        assert!(!lines.is_empty(), "no session of this data sweeps");
        let file = self.folder.path().join("honeypots.jsonl");
        std::fs::write(&file, lines.join("\n")).unwrap();
        self.cli_ok(&["honeypots", "load", "--file", text(&file)]);
    }

    pub(crate) fn spawn(&self, run: Run) -> Running {
        self.spawn_with(run, &[], None)
    }

    /// With more environment and a sabotage of this process alone.
    pub(crate) fn spawn_with(&self, run: Run, env: &[(&str, &str)], sabotage: Option<&str>) -> Running {
        let log = self.folder.path().join(format!("log-{}-{}", run.instance, run.folder));
        let mut args = vec!["run", "--output", "json"];
        if run.until_end {
            args.push("--until-end");
        }
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let mut command = self.cli(&args);
        command
            .env("MEMSLUICE__KAFKA__INSTANCE_ID", &run.instance)
            .env("MEMSLUICE__STATE_DIR", self.folder.path().join(format!("state-{}", run.folder)))
            .envs(env.iter().copied())
            .envs(sabotage.map(|s| ("MEMSLUICE__SABOTAGE", s)))
            .stdout(Stdio::piped())
            .stderr(file);
        Running { child: command.spawn().unwrap(), log }
    }

    pub(crate) fn run(&self, run: Run) -> Outcome {
        let running = self.spawn(run);
        let log = running.log.clone();
        let outcome = running.wait();
        if outcome != Outcome::Exit(0) {
            eprintln!("{}", std::fs::read_to_string(log).unwrap());
        }
        outcome
    }

    /// Totals of a run to its end.
    pub(crate) fn totals(&self, run: Run) -> Value {
        let mut running = self.spawn(run);
        let mut out = String::new();
        running.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        let log = running.log.clone();
        assert_eq!(running.wait(), Outcome::Exit(0), "{}", std::fs::read_to_string(log).unwrap());
        serde_json::from_str(out.trim()).unwrap()
    }

    /// Runs to the end with kill -9 whenever another part of the inputs was decided; the number of kills.
    pub(crate) fn run_with_kills(&self, inputs: u64, wanted: u64) -> u64 {
        self.run_with_kills_by("decisions", inputs, wanted)
    }

    /// The same, whenever another part of the inputs stands in a topic.
    pub(crate) fn run_with_kills_by(&self, role: &str, inputs: u64, wanted: u64) -> u64 {
        let mut kills = 0;
        for _ in 0..=wanted {
            let mut running = self.spawn(Run::until_end());
            let goal = inputs * (kills + 1) / (wanted + 1);
            loop {
                if let Some(status) = running.child.try_wait().unwrap() {
                    assert!(status.success(), "{}", running.log());
                    return kills;
                }
                if kills < wanted && self.count(role) >= goal {
                    running.child.kill().unwrap();
                    running.child.wait().unwrap();
                    kills += 1;
                    break;
                }
                std::thread::sleep(Duration::from_millis(7));
            }
        }
        assert_eq!(self.run(Run::until_end()), Outcome::Exit(0));
        kills
    }

    pub(crate) fn client(&self) -> Client {
        let mut client = Client::new();
        client.set("bootstrap.servers", &self.bootstrap);
        client
    }

    pub(crate) fn reader(&self) -> Reader {
        reader(&self.client(), "read_committed", "memsluice-test").unwrap()
    }

    /// Offsets taken on an output; markers and aborted records count too.
    pub(crate) fn count(&self, role: &str) -> u64 {
        let reader = self.reader();
        // A broker that was just killed leaves its partitions without a leader for a moment.
        let until = Instant::now() + Duration::from_secs(30);
        let high = |p| loop {
            match watermarks(&reader, &self.topic(role), p) {
                Ok(found) => break u64::try_from(found.high).unwrap(),
                Err(e) => assert!(Instant::now() < until, "{e:?}"),
            }
            std::thread::sleep(Duration::from_millis(200));
        };
        (0..UNITS).map(high).sum()
    }

    pub(crate) fn wait_for_committed(&self, count: u64, limit: Duration) {
        self.wait("committed-memory", count, limit);
    }

    pub(crate) fn wait_for_decisions(&self, count: u64, limit: Duration) {
        self.wait("decisions", count, limit);
        // Markers count above: the last inputs get a moment more.
        let until = Instant::now() + limit;
        while self.verify().inputs_without_decision() > 0 {
            assert!(Instant::now() < until, "inputs stay undecided");
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// The last lines of each member's log.
    pub(crate) fn log_ends(&self) -> String {
        let mut out = String::new();
        for entry in std::fs::read_dir(self.folder.path()).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            if name.starts_with("log-") {
                let text = std::fs::read_to_string(entry.path()).unwrap();
                let lines: Vec<&str> = text.lines().collect();
                out += &format!("{name}:\n{}\n", lines[lines.len().saturating_sub(40)..].join("\n"));
            }
        }
        out
    }

    fn wait(&self, role: &str, count: u64, limit: Duration) {
        let until = Instant::now() + limit;
        while self.count(role) < count {
            let found = || format!("{role} has {} of {count} records\n{}", self.count(role), self.log_ends());
            assert!(Instant::now() < until, "{}", found());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub(crate) fn verify(&self) -> Verified {
        self.verify_with(&[])
    }

    /// With more arguments.
    pub(crate) fn verify_with(&self, more: &[&str]) -> Verified {
        let dump = self.folder.path().join("dump.jsonl");
        let args =
            ["--json", "verify", "--bootstrap", &self.bootstrap, "--prefix", &self.prefix, "--dump", text(&dump)];
        let out = Command::new(load_tests()).args(args).args(more).output().unwrap();
        let line = String::from_utf8_lossy(&out.stdout).lines().last().unwrap_or_default().to_owned();
        let v: Value = serde_json::from_str(&line)
            .unwrap_or_else(|e| panic!("{e}: {line} {}", String::from_utf8_lossy(&out.stderr)));
        let n = |key: &str| v[key].as_u64().unwrap_or_else(|| panic!("verify prints no {key}: {line}"));
        let faults = ["lost", "duplicate", "torn", "out_of_order", "chain_broken"];
        if !out.status.success() {
            eprintln!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        }
        Verified {
            superseded: n("superseded"),
            inputs: n("inputs"),
            lost: n("lost"),
            duplicate: n("duplicate"),
            torn: n("torn"),
            faults: faults.iter().map(|f| n(f)).sum(),
            passed: out.status.success(),
            dump: std::fs::read_to_string(&dump)
                .unwrap_or_default()
                .lines()
                .map(|l| canonical(&serde_json::from_str(l).unwrap()))
                .collect(),
        }
    }

    /// Verdicts of `scan` in the dump's form and order.
    pub(crate) fn scan(&self, files: &Files, calibrations: &[PathBuf]) -> Vec<String> {
        let mut args = vec!["scan", "--output", "json"];
        calibrations.iter().for_each(|f| args.extend(["--calibrate", text(f)]));
        files.writes.iter().for_each(|f| args.extend(["--writes", text(f)]));
        files.queries.iter().for_each(|f| args.extend(["--queries", text(f)]));
        let mut rows = Vec::new();
        for line in self.cli_ok(&args).lines() {
            let v: Value = serde_json::from_str(line).unwrap();
            let b = &v["body"];
            if b["kind"] != "decision" {
                continue;
            }
            let score = |key: &str| b["memsad"].get(key).cloned().unwrap_or(Value::Null);
            let row = serde_json::json!({
                "tenant": b["tenant"], "store": b["store"], "record_id": b["record_id"], "verdict": b["verdict"], "reasons": b["reasons"],
                "flags": b["flags"], "s_max": score("s_max"), "s_mean": score("s_mean"), "s_comb": score("s_comb"),
            });
            let key = |k: &str| b[k].as_str().unwrap_or_default().to_owned();
            rows.push((
                (key("tenant"), key("store"), key("record_id"), b["input"]["offset"].as_i64()),
                canonical(&row),
            ));
        }
        rows.sort();
        rows.into_iter().map(|(_, row)| row).collect()
    }

    /// Fits MEMSAD and the screen on benign writes of the data, publishes the records, and returns them as files.
    pub(crate) fn calibrate(&self, files: &Files) -> Vec<PathBuf> {
        let benign = files.writes.iter().find(|f| text(f).contains("agent_memory")).expect("benign writes");
        let fit = |kind: &str| {
            let mut args = vec!["calibrate", "fit", "--kind", kind, "--writes", text(benign)];
            args.extend(["--boundary", "data/all", "--publish", "--output", "json"]);
            files.queries.iter().for_each(|f| args.extend(["--queries", text(f)]));
            let path = self.folder.path().join(format!("calibration-{kind}.json"));
            std::fs::write(&path, self.cli_ok(&args)).unwrap();
            path
        };
        ["memsad", "screen"].map(fit).to_vec()
    }

    /// Everything in the state but offsets and the chain (whose ids name the topics).
    pub(crate) fn state(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let db = self.db();
        // Slots of sources name the topic, whose prefix is the test's own.
        let kinds = [
            Kind::Boundary,
            Kind::HistorySlot,
            Kind::Query,
            Kind::Window,
            Kind::Stored,
            Kind::Rolling,
            Kind::RollingRow,
            Kind::FloorShare,
            Kind::RollingCopies,
            Kind::Label,
            Kind::LabelSlot,
            Kind::LabelMark,
            Kind::Session,
            Kind::SessionExpiry,
            Kind::Circuit,
            Kind::Held,
            Kind::SourceExpiry,
            Kind::Entity,
        ];
        let all = kinds.iter().flat_map(|k| (0..UNITS).map(|p| prefix(*k, p)));
        all.flat_map(|p| db.scan(&p, usize::MAX).unwrap()).collect()
    }

    pub(super) fn db(&self) -> Db {
        let identity = format!("{}memsluice units={UNITS} dimension=384 stores=chain,history,sessions", self.prefix);
        Db::open(&self.folder.path().join("state-one"), &identity, 32 << 20).unwrap()
    }

    pub(crate) fn wipe_state(&self) {
        std::fs::remove_dir_all(self.folder.path().join("state-one")).unwrap();
    }

    pub(crate) fn commit_latency(&self) -> (f64, f64) {
        let out = tool_ok(&[
            "--json",
            "commit-latency",
            "--bootstrap",
            &self.bootstrap,
            "--topic",
            &self.topic("attacks"),
            "--n",
            "50",
        ]);
        let v: Value = serde_json::from_str(out.lines().find(|l| l.starts_with('{')).unwrap()).unwrap();
        (v["default_median_ms"].as_f64().unwrap(), v["drained_median_ms"].as_f64().unwrap())
    }

    /// Broken values under an ordinary key; how many.
    pub(crate) fn produce_hostile(&self) -> u64 {
        let good = r#""tenant":"acme","store":"support","record_id":"m","op":"create""#;
        let values: Vec<Vec<u8>> = vec![
            b"{not json".to_vec(),
            b"[]".to_vec(),
            vec![0xff, 0xfe, 0x00],
            Vec::new(),
            br#"{"store":"support","record_id":"m","op":"create","content":"x"}"#.to_vec(),
            format!(r#"{{{good},"content":7}}"#).into_bytes(),
            format!(r#"{{{good},"content":""}}"#).into_bytes(),
            format!(r#"{{{good},"content":"\ud800"}}"#).into_bytes(),
            format!(r#"{{{good},"content":"x","embedding":[NaN]}}"#).into_bytes(),
            format!(r#"{{{good},"content":"x","embedding":[0.5,0.5]}}"#).into_bytes(),
            format!(r#"{{{good},"content":"x","origin":"somewhere"}}"#).into_bytes(),
            format!(r#"{{{good},"content":"{}"}}"#, "a".repeat(2 << 20)).into_bytes(),
            format!(r#"{{{good},"content":"{}"}}"#, "b".repeat(50 << 20)).into_bytes(),
        ];
        let mut config = self.client();
        config.set("message.max.bytes", "67108864").set("partitioner", "murmur2_random");
        let topic = self.topic("memory-writes");
        let records: Vec<_> = values
            .into_iter()
            .map(|value| memsluice::sink::Publication {
                topic: topic.clone(),
                partition: None,
                key: b"acme/support".to_vec(),
                value,
                timestamp: Some(1_760_000_000_000),
            })
            .collect();
        tool_ok(&["topics", "--bootstrap", &self.bootstrap, "--delete", &topic]);
        std::thread::sleep(Duration::from_secs(1));
        tool_ok(&[
            "topics",
            "--bootstrap",
            &self.bootstrap,
            "--create",
            &topic,
            "--set",
            "retention.ms=-1",
            "--set",
            "max.message.bytes=67108864",
            "--set",
            "message.timestamp.after.max.ms=300000",
        ]);
        memsluice::sink::publish(&config, &records).unwrap();
        records.len() as u64
    }

    /// Deletes every input record there is, as retention would.
    pub(crate) fn delete_inputs_read(&self) {
        use rdkafka::admin::{AdminClient, AdminOptions};
        let reader = self.reader();
        let mut list = rdkafka::TopicPartitionList::new();
        for (topic, p) in ["memory-writes", "retrieval-logs"].iter().flat_map(|t| (0..UNITS).map(move |p| (t, p))) {
            let topic = self.topic(topic);
            let high = watermarks(&reader, &topic, p).unwrap().high;
            list.add_partition_offset(&topic, p, rdkafka::Offset::Offset(high)).unwrap();
        }
        let admin: AdminClient<_> = self.client().create().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(admin.delete_records(&list, &AdminOptions::new())).unwrap();
    }

    /// Codes of all dead letters.
    pub(crate) fn dead_letter_codes(&self) -> Vec<String> {
        let reader = self.reader();
        let mut codes = Vec::new();
        for p in 0..UNITS {
            let bounds = watermarks(&reader, &self.topic("dead-letters"), p).unwrap();
            if bounds.high == bounds.low {
                continue;
            }
            memsluice::source::read(&reader, &self.topic("dead-letters"), p, bounds.low, |m| {
                use rdkafka::message::Headers;
                let Some(m) = m else { return Ok(std::ops::ControlFlow::Continue(())) };
                let code = m.headers().and_then(|h| {
                    h.iter().find(|x| x.key == "memsluice-error-code").and_then(|x| x.value.map(<[u8]>::to_vec))
                });
                codes.push(String::from_utf8(code.unwrap()).unwrap());
                Ok(std::ops::ControlFlow::Continue(()))
            })
            .unwrap();
        }
        codes
    }

    /// Appends a decision that the state knows nothing of.
    pub(crate) fn forge_decision(&self) {
        let reader = self.reader();
        let topic = self.topic("decisions");
        let (partition, last) = (0..UNITS)
            .find_map(|p| memsluice::source::last_record(&reader, &topic, p).unwrap().map(|m| (p, m)))
            .expect("a decision");
        let record = memsluice::sink::Publication {
            topic,
            partition: Some(partition),
            key: last.key().unwrap().to_vec(),
            value: String::from_utf8(last.payload().unwrap().to_vec())
                .unwrap()
                .replace("\"seq\":", "\"seq\":9")
                .into_bytes(),
            timestamp: None,
        };
        memsluice::sink::publish(&self.client(), &[record]).unwrap();
    }

    /// `run` ends with this status and names this code.
    pub(crate) fn refused(&self, status: i32, code: &str) {
        let running = self.spawn(Run::until_end());
        let log = running.log.clone();
        let outcome = running.wait();
        let log = std::fs::read_to_string(log).unwrap();
        assert_eq!(outcome, Outcome::Exit(status), "{log}");
        assert!(log.contains(&format!("[{code}]")), "{log}");
    }
}

impl Verified {
    fn inputs_without_decision(&self) -> u64 {
        self.faults
    }
}

/// JSON with sorted keys.
fn canonical(value: &Value) -> String {
    let sorted: BTreeMap<String, Value> = serde_json::from_value(value.clone()).unwrap();
    serde_json::to_string(&sorted).unwrap()
}
