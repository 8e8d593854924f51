//! A slow or failing encoder.

use std::time::{Duration, Instant};

use crate::support::{self, Bench, Outcome, Run};

/// A third of the texts can't be encoded: the declared posture applies to each of them, and to no other.
#[test]
fn a_failing_encoder_follows_its_posture() {
    for (posture, sabotage, verdict) in [
        ("quarantine", "encoder_fails", Some("quarantine")),
        ("pass_marked", "encoder_fails", Some("allow")),
        ("hold", "encoder_flaky", None),
    ] {
        let Some(mut bench) = Bench::new(&format!("posture-{posture}")) else { return };
        bench.replace_in_topology("on_error: quarantine", &format!("on_error: {posture}"));
        bench.replace_policy("may_embed: true", "may_embed: false");
        bench.replace_policy(
            "origin: [retrieved, external] }\n    action: quarantine",
            "op: [create, update, delete] }\n    action: allow",
        );
        bench.set("MEMSLUICE__SABOTAGE", sabotage);
        let data = support::generated(600, 30);
        bench.load(&data);
        assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
        let found = bench.verify();
        assert!(found.clean() && found.inputs == 600, "{posture}: {found:?}");
        let failed: Vec<_> = found.dump.iter().filter(|l| l.contains("fallback_encoder_failed")).collect();
        match verdict {
            Some(verdict) => {
                assert!((100..350).contains(&failed.len()), "{posture}: {} of 600 failed", failed.len());
                let wanted = format!("\"verdict\":\"{verdict}\"");
                assert!(failed.iter().all(|l| l.contains(&wanted)), "{posture}: {failed:?}");
            }
            None => assert!(failed.is_empty(), "{posture}: what is retried does not fail: {failed:?}"),
        }
    }
}

/// 200 MB wait for an encoder that takes 2 ms a text: memory stays near the budget. Without a budget the
/// same run takes far more, so that the limit can be seen to bind.
#[test]
fn a_slow_encoder_holds_the_budget() {
    let grown = |name: &str, budget: &str| {
        let mut bench = Bench::new(name)?;
        bench.replace_in_topology("in_flight_bytes: 64MiB", &format!("in_flight_bytes: {budget}"));
        bench.replace_policy("may_embed: true", "may_embed: false");
        bench.set("MEMSLUICE__SABOTAGE", "encoder_slow");
        let before = bench.spawn(Run::live("one"));
        before.wait_for_log("restored", Duration::from_secs(60));
        let base = before.memory().0;
        bench.load_large(12_500, 16_000);
        std::thread::sleep(Duration::from_secs(8));
        let (_, peak) = before.memory();
        // What waits for the encoder is not encoded first.
        let stopped = Instant::now();
        assert_eq!(before.terminate(), Outcome::Exit(0));
        assert!(stopped.elapsed() < Duration::from_secs(30), "stopped after {:?}", stopped.elapsed());
        Some((peak - base) / 1024)
    };
    let Some(bounded) = grown("budget-1", "1MiB") else { return };
    let Some(unbounded) = grown("budget-2", "1GiB") else { return };
    eprintln!("grown by {bounded} MiB with a budget of 1 MiB, by {unbounded} MiB with one of 1 GiB");
    assert!(bounded < 110, "{bounded} MiB");
    assert!(unbounded > 2 * bounded, "{unbounded} MiB without a limit");
}
