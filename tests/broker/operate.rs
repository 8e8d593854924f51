//! Operator commands against the real broker: plan, dead letters, reset, state.

use std::collections::BTreeSet;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use memsluice::source::{read, watermarks};
use memsluice::state::{Kind, Store, key, prefix};
use rdkafka::Message;
use rdkafka::message::{Header, Headers, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use serde_json::Value;

use super::support::{self, Bench, Outcome, Run};

const UNITS: i32 = 6;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lines(output: &str) -> Vec<Value> {
    output.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// What a record of an input is, without its place.
type Sent = (Vec<u8>, Vec<u8>, Vec<(String, Option<Vec<u8>>)>);

impl Bench {
    fn raw_output(&self, args: &[&str]) -> Output {
        self.cli(args).output().unwrap()
    }

    fn state_dir(&self, run: &str) -> std::path::PathBuf {
        self.folder(&format!("state-{run}"))
    }

    /// The command ends with this status and names this code.
    fn refuses(&self, args: &[&str], status: i32, code: &str) -> String {
        let out = self.raw_output(args);
        assert_eq!(out.status.code(), Some(status), "{args:?}: {}", text(&out.stderr));
        assert!(text(&out.stderr).contains(&format!("[{code}]")), "{args:?}: {}", text(&out.stderr));
        text(&out.stdout)
    }

    fn json(&self, args: &[&str]) -> Vec<Value> {
        lines(&self.cli_ok(&[args, &["--output", "json"]].concat()))
    }

    /// Writes values with headers to memory-writes.
    fn send_writes(&self, values: impl Iterator<Item = Vec<u8>>) {
        let mut config = self.client();
        config.set("partitioner", "murmur2_random");
        let producer: BaseProducer = config.create().unwrap();
        let topic = self.topic("memory-writes");
        for value in values {
            let headers = OwnedHeaders::new()
                .insert(Header { key: "own", value: Some("a") })
                .insert(Header::<&str> { key: "own", value: None })
                .insert(Header { key: "__streams.errors.exception", value: Some("forged") });
            let record = BaseRecord::to(&topic).key("acme/support").payload(&value).headers(headers);
            producer.send(record.timestamp(1_760_000_000_000)).map_err(|(e, _)| e).unwrap();
        }
        while producer.in_flight_count() > 0 {
            producer.poll(Duration::from_millis(10));
        }
    }

    /// Every record of memory-writes.
    fn writes(&self) -> Vec<Sent> {
        let (reader, topic) = (self.reader(), self.topic("memory-writes"));
        let mut all = Vec::new();
        for p in 0..UNITS {
            let bounds = watermarks(&reader, &topic, p).unwrap();
            if bounds.low == bounds.high {
                continue;
            }
            read(&reader, &topic, p, bounds.low, |m| {
                if let Some(m) = m {
                    let headers = m
                        .headers()
                        .map(|h| h.iter().map(|x| (x.key.to_owned(), x.value.map(<[u8]>::to_vec))).collect::<Vec<_>>());
                    let bytes = |b: Option<&[u8]>| b.unwrap_or_default().to_vec();
                    all.push((bytes(m.key()), bytes(m.payload()), headers.unwrap_or_default()));
                }
                Ok(std::ops::ControlFlow::Continue(()))
            })
            .unwrap();
        }
        all
    }

    /// Resets once the group's static member is forgotten.
    fn reset(&self, to: &str) -> Value {
        let until = Instant::now() + Duration::from_secs(90);
        loop {
            let out = self.raw_output(&["reset", "--to", to, "--execute", "--output", "json"]);
            if out.status.success() {
                return lines(&text(&out.stdout)).pop().unwrap();
            }
            assert!(text(&out.stderr).contains("[group_active]") && Instant::now() < until, "{}", text(&out.stderr));
            std::thread::sleep(Duration::from_secs(1));
        }
    }
}

/// `plan` is empty after `apply`, names each drift, and writes nothing.
#[test]
fn plan_names_what_differs() {
    let Some(mut bench) = Bench::new("plan") else { return };
    let kept = bench.json(&["topology", "plan"]);
    assert!(kept.iter().all(|t| t["action"] == "keep") && kept.len() == 11, "{kept:?}");
    bench.replace_topics("retention: 90d", "retention: 80d");
    let plan = bench.refuses(&["topology", "plan", "--output", "json"], 1, "topology_differs");
    let differing: Vec<Value> = lines(&plan).into_iter().filter(|t| t["action"] != "keep").collect();
    assert_eq!(differing.len(), 1, "{differing:?}");
    assert_eq!(differing[0]["role"], "quarantine");
    assert_eq!(differing[0]["differences"][0]["setting"], "retention.ms");
    assert_eq!(differing[0]["differences"][0]["found"], "7776000000");
    bench.set("MEMSLUICE__KAFKA__TOPIC_PREFIX", "never-made-");
    for _ in 0..2 {
        let plan = bench.refuses(&["topology", "plan", "--output", "json"], 1, "topology_differs");
        assert!(lines(&plan).iter().all(|t| t["action"] == "create"));
    }
}

/// Dead letters are listed, shown, edited, sent again once with all that they came with, and given up.
#[test]
fn dead_letters_are_redriven_once() {
    let Some(mut bench) = Bench::new("redrive") else { return };
    // What is above it becomes a stub.
    bench.replace_in_topology("max_output_bytes: 1MiB", "max_output_bytes: 64KiB");
    let good = r#""tenant":"acme","store":"support","record_id":"m","op":"create""#;
    let broken = vec![
        b"{not json".to_vec(),
        vec![0xff, 0xfe, 0x00],
        format!(r#"{{{good},"content":""}}"#).into_bytes(),
        format!(r#"{{{good},"content":"x","origin":"somewhere"}}"#).into_bytes(),
        format!(r#"{{{good},"content":"{}"}}"#, "a".repeat(100_000)).into_bytes(),
    ];
    bench.send_writes(broken.clone().into_iter());
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    let listed = bench.json(&["dlq", "list"]);
    let codes: BTreeSet<&str> = listed.iter().map(|l| l["code"].as_str().unwrap()).collect();
    assert_eq!(codes, BTreeSet::from(["empty_content", "invalid_json", "output_too_large", "unknown_origin"]));
    let at = |code: &str| {
        let l = listed.iter().find(|l| l["code"] == code).unwrap();
        format!("{}/{}", l["partition"], l["offset"])
    };
    assert_eq!(bench.json(&["dlq", "list", "--code", "invalid_json"]).len(), 2);
    assert_eq!(bench.json(&["dlq", "list", "--boundary", "acme/other"]).len(), 0);
    assert_eq!(bench.json(&["dlq", "list", "--limit", "2"]).len(), 2);
    assert_eq!(bench.json(&["dlq", "list", "--to", "2020-01-01T00:00:00Z"]).len(), 0);

    // Show: every byte, every header.
    let raw = bench.folder("raw.bin");
    let shown = &bench.json(&["dlq", "show", &at("invalid_json"), "--raw", raw.to_str().unwrap()])[0];
    assert_eq!(std::fs::read(&raw).unwrap(), broken[0]);
    assert_eq!(shown["headers"].as_array().unwrap().len(), 3, "{shown}");
    bench.refuses(&["dlq", "show", "0/999999"], 1, "dead_letter_missing");

    // A dry run writes nothing, a stub can't be sent.
    bench.cli_ok(&["dlq", "redrive"]);
    assert_eq!(bench.writes().len(), 5);
    let stub = at("output_too_large");
    bench.refuses(&["dlq", "redrive", "--at", &stub, "--execute"], 1, "dead_letter_incomplete");

    // One is corrected, the others go as they were, each once.
    let fixed = bench.folder("fixed.json");
    std::fs::write(&fixed, format!(r#"{{{good},"content":"hello","origin":"user_input"}}"#)).unwrap();
    let origin = at("unknown_origin");
    bench.cli_ok(&["dlq", "redrive", "--at", &origin, "--edit", fixed.to_str().unwrap(), "--execute"]);
    let done = bench.json(&["dlq", "redrive", "--execute"]).pop().unwrap();
    assert_eq!((&done["done"]["handled"], &done["done"]["incomplete"]), (&3.into(), &1.into()), "{done}");
    for _ in 0..2 {
        let again = &bench.json(&["dlq", "redrive", "--execute"]);
        assert_eq!(again.last().unwrap()["done"]["handled"], 0, "{again:?}");
    }
    let writes = bench.writes();
    assert_eq!(writes.len(), 9);
    for (key, value, headers) in &writes[5..] {
        assert_eq!(key, b"acme/support");
        assert!(broken.contains(value) || value.starts_with(b"{\"tenant\""));
        let names: Vec<&str> = headers.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(names, ["own", "own", "__streams.errors.exception", "memsluice-redrive"]);
        assert_eq!((headers[0].1.as_deref(), headers[1].1.as_deref()), (Some(&b"a"[..]), None));
    }

    // The rest is given up; what failed again is a new dead letter.
    let skipped = &bench.json(&["dlq", "skip", "--at", &stub, "--reason", "test", "--execute"])[0];
    assert_eq!(skipped["done"]["handled"], 1);
    assert_eq!(bench.json(&["dlq", "list"]).len(), 0);
    assert_eq!(bench.json(&["dlq", "list", "--all"]).len(), 5);
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    assert_eq!(bench.json(&["dlq", "list"]).len(), 3);
    let found = bench.verify();
    assert!(found.clean() && found.inputs == 9, "{found:?}");
}

/// Two redrives at once: one fences the other, and no record is sent twice, whichever comes through.
#[test]
fn two_redrives_send_nothing_twice() {
    let Some(bench) = Bench::new("race") else { return };
    bench.send_writes((0..3_000).map(|i| format!("{{broken {i}").into_bytes()));
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    let start = || {
        let args = ["dlq", "redrive", "--limit", "3000", "--execute"];
        bench.cli(&args).stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    let mut both = [start(), start()];
    for child in &mut both {
        child.wait().unwrap();
    }
    bench.cli_ok(&["dlq", "redrive", "--limit", "3000", "--execute"]);
    let sent = bench.writes();
    let values: BTreeSet<&Vec<u8>> = sent.iter().skip(3_000).map(|(_, v, _)| v).collect();
    assert_eq!((sent.len(), values.len()), (6_000, 3_000));
}

/// After a reset everything is decided anew, the chain goes on, and a folder from before it is corrected.
#[test]
fn a_reset_decides_everything_anew() {
    for assignor in ["range", "consumer-range"] {
        let Some(mut bench) = Bench::new(&format!("reset-{assignor}")) else { return };
        bench.replace_in_topology("assignor: range", &format!("assignor: {assignor}"));
        bench.replace_in_topology("session_timeout: 30s", "session_timeout: 20s");
        let state_dir = bench.state_dir("one");
        bench.set("MEMSLUICE__STATE_DIR", state_dir.to_str().unwrap());
        let data = support::generated(2_000, 300);
        bench.load(&data);
        bench.load_honeypots(&data);
        let live = bench.spawn(Run::until_end().forever());
        bench.wait_for_decisions(2_000, Duration::from_secs(90));
        bench.refuses(&["reset", "--execute", "--force"], 4, "state_failed");
        bench.set("MEMSLUICE__STATE_DIR", bench.state_dir("elsewhere").to_str().unwrap());
        bench.refuses(&["reset", "--execute"], 3, "group_active");
        bench.set("MEMSLUICE__STATE_DIR", state_dir.to_str().unwrap());
        assert_eq!(live.terminate(), Outcome::Exit(0));
        let (before, first) = (bench.state(), bench.verify());
        assert!(first.clean() && first.superseded == 0, "{assignor}: {first:?}");
        copy(&state_dir, &bench.state_dir("stale"));
        bench.cli_ok(&["reset"]);
        assert!(bench.state() == before && bench.verify().superseded == 0, "a dry run writes");

        let done = bench.reset("earliest");
        assert_eq!(done["done"]["local"], true);
        assert!(done["done"]["keys"].as_u64().unwrap() > 300, "{done}");
        assert!(!state_dir.join("rocksdb").exists());
        assert!(!bench.verify().clean(), "{assignor}: after a reset every input is undecided");
        // A folder from before the reset, as on another host.
        assert_eq!(bench.totals(Run::until_end().in_folder("stale"))["inputs"], 2_300);
        let again = bench.verify();
        assert!(again.clean() && again.superseded > 2_000, "{assignor}: {again:?}");
        assert_eq!(support::differing_lines(&first.dump, &again.dump), 0);
        copy(&bench.state_dir("stale"), &state_dir);
        assert_eq!(bench.state(), before, "{assignor}: state differs");
        bench.cli_ok(&["state", "verify"]);
    }
}

/// A reset forward passes inputs over.
#[test]
fn a_reset_to_the_end_passes_inputs_over() {
    let Some(mut bench) = Bench::new("forward") else { return };
    let state_dir = bench.state_dir("one");
    bench.set("MEMSLUICE__STATE_DIR", state_dir.to_str().unwrap());
    let data = support::generated(1_000, 100);
    bench.load(&data);
    bench.reset("latest");
    assert_eq!(bench.totals(Run::until_end())["inputs"], 0);
    bench.load_more(&data, 300);
    assert_eq!(bench.totals(Run::until_end())["inputs"], 300);
    let found = bench.verify();
    assert!(found.clean() && found.inputs == 1_300, "{found:?}");
}

/// The fold of the changelog equals the store, and each kind of difference is seen and counted.
#[test]
fn state_verify_sees_each_difference() {
    let Some(mut bench) = Bench::new("audit") else { return };
    bench.set("MEMSLUICE__STATE_DIR", bench.state_dir("one").to_str().unwrap());
    bench.refuses(&["state", "inspect"], 4, "state_failed");
    let data = support::generated(3_000, 600);
    bench.load(&data);
    bench.load_honeypots(&data);
    let live = bench.spawn(Run::until_end().forever());
    bench.wait_for_decisions(3_000, Duration::from_secs(90));
    let beside = bench.json(&["state", "inspect"]);
    assert!(!beside.is_empty(), "a running stream can be looked at");
    assert_eq!(live.terminate(), Outcome::Exit(0));
    let units = bench.json(&["state", "inspect"]);
    let keys = |kind: &str| units.iter().filter_map(|u| u["kinds"][kind]["keys"].as_u64()).sum::<u64>();
    assert!(keys("query") > 12 && keys("stored") > 300, "{units:?}");
    assert!(keys("rolling") > 0 && keys("rolling-row") > 300, "{units:?}");
    let rolling = bench.json(&["calibrate", "show", "--rolling"]);
    let waiting: u64 = rolling.iter().filter_map(|r| r["waiting"].as_u64()).sum();
    assert!(
        waiting == keys("rolling-row") && rolling.iter().all(|r| r["rows"] == 0),
        "nothing is a day old: {rolling:?}"
    );
    let keys = bench.cli_ok(&["state", "inspect", "--keys", "--limit", "20"]);
    assert!(keys.contains("hmac:") && !keys.contains('/'), "ids are hashed: {keys}");
    let plain = bench.cli_ok(&["state", "inspect", "--keys", "--kind", "query", "--show-ids"]);
    assert!(plain.contains('/'), "{plain}");
    let equal = bench.json(&["state", "verify"]);
    assert!(equal.iter().all(|u| u["differences"] == 0 && u["undecided"] == 0), "{equal:?}");
    assert!(equal.iter().filter_map(|u| u["keys"].as_u64()).sum::<u64>() > 300);

    // One value is corrupted, one key is lost by the store, one by the changelog.
    let mut db = bench.db();
    let all = (0..UNITS).flat_map(|u| db.scan(&prefix(Kind::Query, u), 2).unwrap()).collect::<Vec<_>>();
    let (mut value, lost) = (all[0].1.clone(), all[1].0.clone());
    value[3] ^= 1;
    let extra = key(Kind::Session, 0, &["acme/support", "never-logged"], None, &[]);
    db.apply(vec![(all[0].0.clone(), Some(value)), (lost, None), (extra, Some(vec![1]))]).unwrap();
    drop(db);
    let found = lines(&bench.refuses(&["state", "verify", "--output", "json"], 1, "state_differs"));
    let mut kinds: Vec<&str> = found.iter().filter_map(|f| f["difference"].as_str()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["missing_in_changelog", "missing_in_store", "value_differs"]);
    assert_eq!(found.iter().filter_map(|f| f["differences"].as_u64()).sum::<u64>(), 3);
    assert!(
        !bench
            .state_dir("one")
            .read_dir()
            .unwrap()
            .any(|e| text(e.unwrap().file_name().as_encoded_bytes()).starts_with("scratch"))
    );
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    drop(std::fs::remove_dir_all(to));
    assert!(Command::new("cp").arg("-r").args([from, to]).status().unwrap().success());
}
