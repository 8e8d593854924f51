//! Every fault between every two commit steps of the real program, against the real broker.

use super::support::{self, Bench, Outcome, Run};
use super::tools;

const STEPS: [&str; 5] = ["begin", "drain", "offsets", "commit", "apply"];

/// Inputs keep coming while each step in turn is refused, unanswered or the end of the process: one decision
/// for each input, and a state that is the fold of the changelog.
#[test]
fn every_fault_between_every_two_commit_steps() {
    let Some(mut bench) = Bench::new("crash") else { return };
    let full = std::env::var("MEMSLUICE_TEST_TIER").is_ok_and(|t| t == "full");
    let data = support::generated(4_000, 200);
    bench.load(&data);
    bench.load_honeypots(&data);
    let (mut died, mut survived) = (0, 0);
    for step in STEPS {
        for side in ["before", "after"] {
            for fault in ["abort", "error", "timeout"] {
                // The in-process matrix has them all; here the ends of the process and the unknown outcomes.
                if !full && fault == "error" {
                    continue;
                }
                bench.load_more(&data, 300);
                bench.set("MEMSLUICE__FAILPOINT", &format!("{side}_{step}={fault}@1"));
                match bench.run_quietly(Run::until_end()) {
                    Outcome::Exit(0) => survived += 1,
                    _ => died += 1,
                }
                bench.unset("MEMSLUICE__FAILPOINT");
            }
        }
    }
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    eprintln!("{died} runs ended at the failpoint, {survived} got over it");
    assert!(died >= 10 && survived >= 8, "{died} {survived}");
    let found = bench.verify();
    assert!(found.clean(), "{found:?}");
    let kept = bench.state();
    bench.wipe_state();
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    assert_eq!(tools::differing(&kept, &bench.state()), 0, "the state is not the fold of the changelog");
}

/// The guard goes red: state written before the commit is ahead of Kafka when the commit fails.
#[test]
fn apply_before_commit_goes_red() {
    let Some(mut bench) = Bench::new("early") else { return };
    bench.load(&support::generated(4_000, 200));
    bench.set("MEMSLUICE__SABOTAGE", "apply_before_commit");
    bench.set("MEMSLUICE__FAILPOINT", "before_commit=error@1");
    let outcome = bench.run_quietly(Run::until_end());
    assert!(outcome != Outcome::Exit(0) || !bench.verify().clean(), "state ahead of Kafka must be seen");
}

/// The guard goes red: a state change that the changelog lacks shows when the state is rebuilt.
#[test]
fn changelog_dropped_goes_red() {
    let Some(mut bench) = Bench::new("dropped") else { return };
    let data = support::generated(4_000, 200);
    bench.load(&data);
    bench.set("MEMSLUICE__SABOTAGE", "changelog_dropped");
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    bench.unset("MEMSLUICE__SABOTAGE");
    bench.wipe_state();
    bench.refused(4, "chain_mismatch");
}

/// The guard goes red: records of before a rollback, taken after it, are decided twice.
#[test]
fn generation_filter_off_goes_red() {
    let run = |nth: u32, filter: bool| -> Option<bool> {
        let mut bench = Bench::new(&format!("generation-{nth}-{filter}"))?;
        // A small budget, so that there is more to fetch when the rollback comes.
        bench.replace_in_topology("in_flight_bytes: 64MiB", "in_flight_bytes: 1MiB");
        bench.load(&support::generated(40_000, 500));
        bench.set("MEMSLUICE__FAILPOINT", &format!("before_commit=error@{nth}"));
        if !filter {
            bench.set("MEMSLUICE__SABOTAGE", "generation_filter_off");
        }
        Some(bench.run_quietly(Run::until_end()) == Outcome::Exit(0) && bench.verify().clean())
    };
    let Some(clean) = run(2, true) else { return };
    assert!(clean, "the filter holds");
    // Records that were fetched and not yet taken are on the way at most rollbacks, not at all.
    let red = (1..=8).any(|nth| run(nth, false) == Some(false));
    assert!(red, "old records must be seen");
}
