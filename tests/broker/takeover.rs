//! One member stands still with an open transaction while another takes its units: KAFKA-10167, KIP-447.

use std::time::Duration;

use super::support::{self, Bench, Outcome, Run};
use super::tools;

const INPUTS: u64 = 6_000;

/// A member stalls at `failpoint` until its units are another's, then goes on; what was found at the end.
fn stalled(name: &str, failpoint: &str, sabotage: Option<&str>) -> Option<support::Verified> {
    let mut bench = Bench::new(name)?;
    bench.replace_in_topology("session_timeout: 30s", "session_timeout: 44s\n  revoke_deadline: 3s");
    bench.replace_in_topology("transaction_timeout: 10s", "transaction_timeout: 33s");
    let data = support::generated(3_000, 100);
    bench.load(&data);
    assert_eq!(bench.run(Run::live_until_end("warm")), Outcome::Exit(0));
    bench.load_more(&data, 3_000);
    let calm = bench.spawn_with(Run::live("y-stalled"), &[("MEMSLUICE__FAILPOINT", failpoint)], sabotage);
    calm.wait_for_log("failpoint", Duration::from_secs(60));
    let second = bench.spawn(Run::live("x-other"));
    second.wait_for_log("restored", Duration::from_secs(60));
    bench.wait_for_input_decisions(INPUTS, Duration::from_secs(90));
    if sabotage.is_some() {
        eprintln!("{}", calm.log());
    }
    for member in [calm, second] {
        member.terminate();
    }
    Some(bench.verify())
}

/// Three stalls at once, each with topics of its own: before anything of the transaction is at the broker;
/// between its offsets and its commit, which then still goes through; and the guard that goes red.
#[test]
fn a_stalled_member_commits_nothing_that_others_decided() {
    if Bench::new("stalled").is_none() {
        return;
    }
    std::thread::scope(|s| {
        let early = s.spawn(|| stalled("stall-begin", "after_begin=30s@1", None));
        let late = s.spawn(|| stalled("stall-commit", "before_commit=30s@1", None));
        let red = s.spawn(|| stalled("stall-red", "after_begin=30s@1", Some("fresh_group_metadata")));
        for (what, found) in [("begin", early.join()), ("commit", late.join())] {
            let found = found.unwrap().unwrap();
            assert!(found.clean() && found.inputs == INPUTS, "{what}: {found:?}");
        }
        let found = red.join().unwrap().unwrap();
        assert!(!found.clean() && found.duplicate > 0, "fresh group metadata at commit must be seen: {found:?}");
    });
}

/// The guard goes red: an assignor that doesn't co-assign splits the units, and says so.
#[test]
fn cooperative_sticky_goes_red() {
    let Some(mut bench) = Bench::new("sticky") else { return };
    bench.set("MEMSLUICE__SABOTAGE", "cooperative_sticky");
    let data = support::generated(2_000, 100);
    bench.load(&data);
    let first = bench.spawn(Run::live("first"));
    let second = bench.spawn(Run::live("second"));
    tools::wait_for("a split unit", Duration::from_secs(60), || {
        [&first, &second].iter().any(|m| m.log().contains("split between members"))
    });
    for member in [first, second] {
        member.terminate();
    }
}

/// A member is killed; the other, with a standby, replays a tail; without one, everything.
#[test]
fn a_standby_takes_over_warm() {
    let replayed = |standby: bool| -> Option<(u64, u64)> {
        let mut bench = Bench::new(if standby { "warm" } else { "cold" })?;
        bench.replace_in_topology("session_timeout: 30s", "session_timeout: 20s");
        bench.replace_in_topology("transaction_timeout: 10s", "transaction_timeout: 8s");
        if standby {
            bench.replace_in_topology("{ changelog: changelog }", "{ changelog: changelog, standby: true }");
        }
        let data = support::generated(6_000, 3_000);
        bench.load(&data);
        let first = bench.spawn(Run::live("first"));
        // Else the second one may own all units for a moment, and keep their state.
        first.wait_for_log("restored", Duration::from_secs(60));
        let second = bench.spawn(Run::live("second"));
        bench.wait_for_input_decisions(6_000, Duration::from_secs(120));
        // The copy is at most a flush interval behind.
        std::thread::sleep(Duration::from_secs(2));
        let (before, restored) = (second.replayed(), second.log().matches("restored").count());
        first.kill();
        tools::wait_for("the takeover", Duration::from_secs(90), || {
            second.log().matches("restored").count() >= restored + 6
        });
        let after = second.replayed();
        bench.load_more(&data, 500);
        bench.wait_for_input_decisions(6_500, Duration::from_secs(60));
        assert_eq!(second.terminate(), Outcome::Exit(0));
        assert!(bench.verify().clean());
        Some((after - before, bench.changelog_records()))
    };
    let (Some((warm, _)), Some((cold, _))) = (replayed(true), replayed(false)) else { return };
    eprintln!("replayed at the takeover: {warm} records with a standby, {cold} without");
    assert!(cold > 100, "{cold}");
    assert!(warm * 20 < cold, "{warm} {cold}");
}
