//! Exactly-once, rebalance, restore and refusals against a real Apache Kafka.
//!
//! `scripts/test` starts the broker and sets `MEMSLUICE_TEST_KAFKA`; without it every test says that it
//! was skipped. The verifier is `load-tests verify`, which shares no code with the pipeline.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stderr)] // tests, with what they measured

mod adapters;
mod breaker;
mod cluster;
mod crash;
mod data;
mod faults;
mod operate;
mod probe;
mod repartition;
mod restore;
mod rolling;
mod running;
mod support;
mod takeover;
mod telemetry;
mod tools;
mod upgrade;

use std::time::Duration;

use support::{Bench, Outcome, Run};

/// The same inputs, killed again and again: one decision for each input, none lost, none twice, and
/// decisions and state equal to a run without a kill.
#[test]
fn kill_nine_loses_and_doubles_nothing() {
    let Some(calm) = Bench::new("calm") else { return };
    let Some(killed) = Bench::new("killed") else { return };
    let data = support::generated(30_000, 2_000);
    for bench in [&calm, &killed] {
        bench.load(&data);
        bench.load_honeypots(&data);
    }
    assert_eq!(calm.run(Run::until_end()), Outcome::Exit(0));
    let kills = killed.run_with_kills(30_000, 4);
    assert!(kills >= 2, "the run was killed only {kills} times");
    let (a, b) = (calm.verify(), killed.verify());
    assert!(a.clean() && b.clean(), "calm {a:?}\nkilled {b:?}");
    assert_eq!(b.inputs, 30_000);
    assert_eq!(support::differing_lines(&a.dump, &b.dump), 0);
    assert_eq!(calm.state(), killed.state(), "state differs");
    assert!(calm.readable("attacks") > 0, "no session was found");
}

/// The guard goes red: without transactions the same kills double records.
#[test]
fn transactions_off_goes_red() {
    let Some(bench) = Bench::new("sabotage") else { return };
    let data = support::generated(30_000, 500);
    bench.load(&data);
    let mut bench = bench;
    bench.set("MEMSLUICE__SABOTAGE", "transactions_off");
    let kills = bench.run_with_kills(30_000, 4);
    assert!(kills >= 2);
    let found = bench.verify();
    assert!(!found.clean(), "the verifier must see what transactions prevent: {found:?}");
    assert!(found.duplicate + found.torn > 0, "{found:?}");
}

/// Files and broker give the same verdict, reasons, flags and integer scores for each record, in both forms of MEMSAD.
#[test]
fn scan_equals_run() {
    for form in ["hardened", "reference"] {
        let Some(mut bench) = Bench::new(&format!("scan-{form}")) else { return };
        bench.replace_in_topology("form: hardened", &format!("form: {form}"));
        let Some(files) = support::converted() else { return };
        let encoder = bench.use_real_encoder();
        if !encoder {
            eprintln!("scan_equals_run: no model in the environment, so the hash encoder stands in");
        }
        let calibrations = bench.calibrate(&files);
        bench.produce("memory-writes", &files.writes);
        bench.produce("retrieval-logs", &files.queries);
        assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
        let found = bench.verify();
        assert!(found.clean(), "{form}: {found:?}");
        let held = found.dump.iter().filter(|l| l.contains("memsad:above_threshold")).count();
        let screened = found.dump.iter().filter(|l| l.contains("screen:")).count();
        eprintln!("{form}: {} inputs, {held} held by MEMSAD, {screened} by the screen", found.inputs);
        assert!(screened > 100, "the screen holds something of the poison");
        assert!(!encoder || form == "hardened" || held > 0, "a calibrated test holds something of the poison");
        let scanned = bench.scan(&files, &calibrations);
        assert_eq!(scanned.len() as u64, found.inputs);
        assert_eq!(support::differing_lines(&scanned, &found.dump), 0, "{form}");
    }
}

/// Two members share the units; one leaves in the middle; nothing is lost or doubled.
#[test]
fn two_members_co_assign_and_survive_a_leave() {
    for assignor in ["range", "consumer-range"] {
        let Some(mut bench) = Bench::new(&format!("pair-{assignor}")) else { return };
        bench.replace_in_topology("assignor: range", &format!("assignor: {assignor}"));
        let data = support::generated(20_000, 500);
        bench.load(&data);
        let first = bench.spawn(Run::live("first"));
        let second = bench.spawn(Run::live("second"));
        bench.wait_for_committed(5_000, Duration::from_secs(90));
        // Writes keep coming while the member leaves, so that transactions are open in the rebalance.
        std::thread::scope(|scope| {
            scope.spawn(|| (0..20).for_each(|_| bench.load_more(&data, 500)));
            std::thread::sleep(Duration::from_secs(2));
            assert_eq!(second.terminate(), Outcome::Exit(0), "{assignor}");
        });
        bench.wait_for_decisions(30_000, Duration::from_secs(120));
        let logs = first.log();
        assert_eq!(first.terminate(), Outcome::Exit(0), "{assignor}");
        assert!(!logs.contains("split between members"), "{assignor}: {logs}");
        let found = bench.verify();
        assert!(found.clean() && found.inputs == 30_000, "{assignor}: {found:?}");
    }
}

/// A small commit costs a few milliseconds, at most a fifth of the library's default.
#[test]
fn small_commits_are_fast() {
    let Some(bench) = Bench::new("latency") else { return };
    let (library, drained) = bench.commit_latency();
    eprintln!(
        "median of 50 small commits: library {library:.1} ms, drain loop {drained:.1} ms, ratio {:.1}",
        library / drained
    );
    assert!(drained * 5.0 <= library);
}

/// A restart replays only the tail, and the chain goes on where it stood.
#[test]
fn restart_replays_a_tail() {
    let Some(bench) = Bench::new("restart") else { return };
    let data = support::generated(4_000, 200);
    bench.load(&data);
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    bench.load_more(&data, 1_000);
    let totals = bench.totals(Run::until_end());
    assert_eq!(totals["inputs"], 1_000);
    assert_eq!(totals["replayed"], 0, "a clean stop leaves nothing to replay");
    bench.wipe_state();
    bench.load_more(&data, 1_000);
    let totals = bench.totals(Run::until_end());
    assert_eq!(totals["inputs"], 1_000);
    assert!(totals["replayed"].as_u64().unwrap() > 0, "a lost folder is rebuilt from the changelog");
    assert!(bench.verify().clean());
}

/// Retention moves an input's start: what was read before is gone, and every later start goes on.
#[test]
fn starts_behind_a_moved_log_start() {
    let Some(bench) = Bench::new("moved") else { return };
    let data = support::generated(2_000, 100);
    bench.load(&data);
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    bench.delete_inputs_read();
    for _ in 0..4 {
        bench.load_more(&data, 300);
        assert_eq!(bench.totals(Run::until_end())["inputs"], 300);
    }
}

/// Hostile and broken inputs become dead letters with their bytes; what follows them is decided.
#[test]
fn hostile_inputs_block_nothing() {
    let Some(bench) = Bench::new("hostile") else { return };
    let sent = bench.produce_hostile();
    let data = support::generated(200, 20);
    bench.load(&data);
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    let found = bench.verify();
    assert!(found.clean(), "{found:?}");
    assert_eq!(found.inputs, 200 + sent);
    assert_eq!(bench.dead_letter_codes().len() as u64, sent);
}

/// What `run` refuses, each with its code and exit status.
#[test]
fn refusals() {
    let Some(mut bench) = Bench::new("refuse") else { return };
    bench.set("MEMSLUICE__KAFKA__TOPIC_PREFIX", "no-such-");
    bench.refused(3, "topic_missing");
    let Some(mut bench) = Bench::new("refuse2") else { return };
    bench.replace_topics("partitions: 6", "partitions: 7");
    bench.refused(3, "partition_count_mismatch");
    let Some(mut bench) = Bench::new("refuse3") else { return };
    bench.set("MEMSLUICE__KAFKA__BOOTSTRAP", "127.0.0.1:1");
    bench.refused(3, "broker_unreachable");
    let Some(mut bench) = Bench::new("refuse4") else { return };
    bench.set("MEMSLUICE__SECRET_FILE", "/nonexistent");
    bench.refused(2, "secret_missing");
    let Some(mut bench) = Bench::new("refuse5") else { return };
    bench.set("MEMSLUICE__ENCODER__BACKEND", "onnx");
    bench.set("MEMSLUICE__ENCODER__MODEL", "/nonexistent");
    bench.refused(5, "model_missing");
    let Some(mut bench) = Bench::new("refuse6") else { return };
    bench.replace_in_topology("assignor: range", "assignor: cooperative-sticky");
    bench.refused(2, "topology_assignor");
}

/// A state that disagrees with the committed decisions stops the process.
#[test]
fn a_foreign_chain_is_refused() {
    let Some(bench) = Bench::new("chain") else { return };
    let data = support::generated(500, 20);
    bench.load(&data);
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    bench.forge_decision();
    bench.refused(4, "chain_mismatch");
}

/// A second process with the same instance id is fenced off, and the first or the second says so.
#[test]
fn one_instance_id_one_process() {
    let Some(bench) = Bench::new("twice") else { return };
    let data = support::generated(500, 20);
    bench.load(&data);
    let first = bench.spawn(Run::live("same"));
    bench.wait_for_committed(400, Duration::from_secs(60));
    let second = bench.spawn(Run::live("same").in_folder("other-folder"));
    let (name, status, log) = support::first_to_end([("first", first), ("second", second)], Duration::from_secs(90));
    assert_eq!(status, Some(3), "{name}: {log}");
    assert!(log.contains("instance_fenced"), "{name}: {log}");
}
