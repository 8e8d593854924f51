//! What a start does with a state and topics that have changed behind its back.

use std::cell::Cell;
use std::time::Duration;

use super::support::{self, Bench, Outcome, Run};
use super::tools;

/// A cancelled restore keeps what it has replayed and goes on from there.
#[test]
fn a_cancelled_restore_goes_on_where_it_stood() {
    let Some(bench) = Bench::new("cancel") else { return };
    let data = support::generated(2_000, 20_000);
    bench.load(&data);
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    let whole = bench.state();
    bench.wipe_state();
    let (mut cancelled, mut replayed) = (0, 0);
    for unit in 0..support::UNITS {
        let mut rounds = 0;
        loop {
            let calls = Cell::new(0);
            let watch = |p: memsluice::state::Progress| {
                calls.set(calls.get() + 1);
                p.replayed == 0 || rounds > 2
            };
            match bench.restore(unit, &watch) {
                Some(done) => {
                    replayed += done.replayed;
                    break;
                }
                None => cancelled += 1,
            }
            rounds += 1;
        }
    }
    assert!(cancelled > 0 && replayed > 0, "{cancelled} {replayed}");
    assert_eq!(tools::differing(&whole, &bench.state()), 0);
}

/// Tombstones may be gone after half of `delete.retention.ms`: a state that was away longer starts over.
#[test]
fn a_state_that_was_away_too_long_is_rebuilt() {
    for standby in [false, true] {
        let Some(mut bench) = Bench::new("away") else { return };
        if standby {
            bench.replace_in_topology("{ changelog: changelog }", "{ changelog: changelog, standby: true }");
        }
        let data = support::generated(1_000, 300);
        bench.load(&data);
        assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
        bench.load_more(&data, 10);
        assert_eq!(bench.totals(Run::until_end())["replayed"], 0, "not away for long");
        bench.set_topic("memsluice-changelog", "delete.retention.ms", "2000");
        std::thread::sleep(Duration::from_secs(2));
        bench.load_more(&data, 10);
        let totals = bench.totals(Run::until_end());
        // A standby copies the unit anew before the stream restores it, or the stream does.
        let anew = standby && bench.log_ends().contains("away longer than half of delete.retention.ms");
        assert!(anew || totals["replayed"].as_u64().unwrap() > 100, "{totals}\n{}", bench.log_ends());
        assert!(bench.verify().clean());
    }
}

/// A damaged database is put aside and rebuilt, and the stream goes on.
#[test]
fn a_corrupt_state_is_put_aside_and_rebuilt() {
    let Some(bench) = Bench::new("corrupt") else { return };
    let data = support::generated(1_000, 300);
    bench.load(&data);
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    let whole = bench.state();
    bench.corrupt_state();
    let totals = bench.totals(Run::until_end());
    assert!(totals["replayed"].as_u64().unwrap() > 100, "{totals}");
    assert!(bench.verify().clean());
    assert!(bench.folder("state-one/rocksdb-corrupt").exists());
    assert_eq!(tools::differing(&whole, &bench.state()), 0);
    bench.corrupt_state();
    bench.refused(4, "state_corrupt");
}

/// A topic deleted and made again under its name is another topic, even where its offsets fit.
#[test]
fn a_recreated_topic_is_refused() {
    for role in ["memory-writes", "memsluice-changelog"] {
        let Some(bench) = Bench::new("recreated") else { return };
        let data = support::generated(1_000, 100);
        bench.load(&data);
        assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
        bench.recreate_topic(role);
        for _ in 0..2 {
            bench.load_more(&data, 1_000);
        }
        bench.refused(3, "topic_recreated");
    }
}

/// More partitions move the keys: the running process stops, and so does every later start.
#[test]
fn added_partitions_stop_the_stream() {
    let Some(bench) = Bench::new("grown") else { return };
    let data = support::generated(500, 20);
    bench.load(&data);
    bench.config("kafka: { properties: { topic.metadata.refresh.interval.ms: '2000' } }");
    let running = bench.spawn(Run::live("one"));
    bench.wait_for_input_decisions(500, Duration::from_secs(60));
    bench.grow_topic("memory-writes", 8);
    let (_, status, log) = support::first_to_end([("one", running)], Duration::from_secs(60));
    assert_eq!(status, Some(3), "{log}");
    assert!(log.contains("[partition_count_mismatch]"), "{log}");
    bench.refused(3, "partition_count_mismatch");
}
