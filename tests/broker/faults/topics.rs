//! Topics and offsets that are not what they were.

use std::time::Duration;

use rdkafka::producer::Producer;

use super::{full, open_offsets, open_transaction};
use crate::support::{self, Bench, Outcome, Run};

/// Retention passed the committed offset: the default stops; `earliest` goes on and counts what was lost.
#[test]
fn inputs_deleted_unread_stop_or_are_counted() {
    let Some(mut bench) = Bench::new("unread") else { return };
    let data = support::generated(2_000, 100);
    bench.load(&data);
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    bench.load_more(&data, 600);
    bench.delete_inputs_read();
    bench.load_more(&data, 300);
    bench.refused(3, "offset_out_of_range");
    bench.replace_in_topology("on_out_of_range: stop", "on_out_of_range: earliest");
    let totals = bench.totals(Run::until_end());
    assert_eq!(totals["inputs"], 300);
    // Offsets, not records: end markers of transactions take some too.
    assert!(totals["lost"].as_u64().unwrap() >= 600, "{totals}");
    bench.load_more(&data, 200);
    let totals = bench.totals(Run::until_end());
    assert_eq!((totals["inputs"].as_u64(), totals["lost"].as_u64()), (Some(200), Some(0)));
    let found = bench.verify();
    assert!(found.clean(), "{found:?}");
}

/// Retention passes a member that lags: it stops by default, and goes on under `earliest`.
#[test]
fn inputs_deleted_in_front_of_a_running_member() {
    for (setting, goes_on) in [("stop", false), ("earliest", true)] {
        let Some(mut bench) = Bench::new(&format!("overtaken-{setting}")) else { return };
        bench.replace_in_topology("on_out_of_range: stop", &format!("on_out_of_range: {setting}"));
        bench.replace_in_topology("in_flight_bytes: 64MiB", "in_flight_bytes: 1MiB");
        bench.replace_policy("may_embed: true", "may_embed: false");
        bench.set("MEMSLUICE__SABOTAGE", "encoder_slow");
        let data = support::generated(20_000, 100);
        bench.load(&data);
        let running = bench.spawn(Run::live("one"));
        bench.wait_for_committed(500, Duration::from_secs(60));
        bench.delete_inputs_read();
        if !goes_on {
            let (status, log) = running.ends(Duration::from_secs(120));
            assert_eq!(status, Some(3), "{log}");
            assert!(log.contains("[offset_out_of_range]"), "{log}");
            continue;
        }
        running.wait_for_log("inputs were deleted unread: going on", Duration::from_secs(120));
        let before = bench.count("decisions");
        bench.load_more(&data, 300);
        bench.wait_for_decisions(before + 300, Duration::from_secs(60));
        assert_eq!(running.terminate(), Outcome::Exit(0));
        let found = bench.verify();
        assert!(found.clean(), "{found:?}");
    }
}

/// The group has no offset where decisions were made: starting over would double all of them.
#[test]
fn a_group_without_offsets_is_refused() {
    let Some(mut bench) = Bench::new("groupless") else { return };
    let data = support::generated(1_000, 100);
    bench.load(&data);
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    bench.set("MEMSLUICE__KAFKA__GROUP", &format!("{}other", bench.prefix()));
    bench.refused(3, "topic_recreated");
    bench.wipe_state();
    bench.refused(3, "topic_recreated");
    assert!(bench.verify().clean());
}

/// An input that was deleted and made again, as large as before.
#[test]
fn a_recreated_input_is_refused() {
    let Some(bench) = Bench::new("again-input") else { return };
    let data = support::generated(1_000, 100);
    bench.load(&data);
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    bench.delete_topic("memory-writes");
    bench.apply();
    bench.load_more(&data, 1_000);
    bench.refused(3, "topic_recreated");
    bench.wipe_state();
    bench.refused(3, "topic_recreated");
}

/// A changelog that was deleted and made again: neither the local state nor an empty one fits it.
#[test]
fn a_recreated_changelog_is_refused() {
    let Some(bench) = Bench::new("again-log") else { return };
    let data = support::generated(1_000, 100);
    bench.load(&data);
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    bench.delete_topic("memsluice-changelog");
    bench.apply();
    bench.refused(3, "topic_recreated");
    bench.wipe_state();
    bench.refused(4, "chain_mismatch");
    assert!(bench.verify().clean());
}

/// An input goes away under a running member.
#[test]
fn an_input_deleted_in_a_run_stops() {
    let Some(bench) = Bench::new("gone") else { return };
    let data = support::generated(500, 50);
    bench.load(&data);
    let running = bench.spawn(Run::live("one"));
    bench.wait_for_committed(300, Duration::from_secs(60));
    bench.delete_topic("memory-writes");
    let (status, log) = running.ends(Duration::from_secs(120));
    assert_eq!(status, Some(3), "{log}");
    // Which of the two the client meets first is up to timing; the next start knows.
    assert!(log.contains("[topic_missing]") || log.contains("[offset_out_of_range]"), "{log}");
    bench.refused(3, "topic_missing");
}

/// A producer of inputs leaves its transaction open: it is told, and all is decided once it ends.
#[test]
fn a_hanging_input_transaction_is_told() {
    let Some(bench) = Bench::new("hang-input") else { return };
    let data = support::generated(1_000, 50);
    bench.load(&data);
    let topic = bench.topic("memory-writes");
    let foreign = open_transaction(&bench.client(), &bench.topic("foreign"), &topic, 0);
    bench.load_more(&data, 1_000);
    let running = bench.spawn(Run::live("one"));
    running.wait_for_log("hides the end of this input", Duration::from_secs(90));
    assert!(running.log().contains("age_s=3"), "{}", running.log());
    foreign.abort_transaction(Duration::from_secs(30)).unwrap();
    bench.wait_for_decisions(2_000, Duration::from_secs(60));
    assert_eq!(running.terminate(), Outcome::Exit(0));
    let found = bench.verify();
    assert!(found.clean() && found.inputs == 2_000, "{found:?}");
}

/// A foreign transaction on the changelog: state is never used before its end is known.
#[test]
fn a_hanging_changelog_transaction_stalls_restore() {
    if !full("a_hanging_changelog_transaction_stalls_restore") {
        return;
    }
    let Some(bench) = Bench::new("hang-log") else { return };
    let data = support::generated(1_000, 50);
    bench.load(&data);
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    let foreign = open_transaction(&bench.client(), &bench.topic("foreign"), &bench.topic("memsluice-changelog"), 0);
    bench.load_more(&data, 500);
    bench.refused(4, "restore_stalled");
    foreign.abort_transaction(Duration::from_secs(30)).unwrap();
    assert_eq!(bench.totals(Run::until_end())["inputs"], 500);
    let found = bench.verify();
    assert!(found.clean() && found.inputs == 1_500, "{found:?}");
}

/// Committed offsets that an open transaction hides are waited for.
#[test]
fn hidden_offsets_are_waited_for() {
    let Some(bench) = Bench::new("hang-offsets") else { return };
    let data = support::generated(500, 50);
    bench.load(&data);
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    let foreign = open_offsets(&bench, 0);
    bench.load_more(&data, 500);
    let running = bench.spawn(Run::until_end());
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while !running.log().contains("an open transaction hides the committed offsets") {
        assert!(std::time::Instant::now() < until, "{}", running.log());
        std::thread::sleep(Duration::from_millis(200));
    }
    foreign.abort_transaction(Duration::from_secs(30)).unwrap();
    let (status, log) = running.ends(Duration::from_secs(60));
    assert_eq!(status, Some(0), "{log}");
    let found = bench.verify();
    assert!(found.clean() && found.inputs == 1_000, "{found:?}");
}

/// Those that stay hidden are named, not taken for a broker that is away.
#[test]
fn offsets_that_stay_hidden_stall_restore() {
    if !full("offsets_that_stay_hidden_stall_restore") {
        return;
    }
    let Some(bench) = Bench::new("hung-offsets") else { return };
    bench.load(&support::generated(500, 50));
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    let foreign = open_offsets(&bench, 0);
    bench.refused(4, "restore_stalled");
    foreign.abort_transaction(Duration::from_secs(30)).unwrap();
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    assert!(bench.verify().clean());
}
