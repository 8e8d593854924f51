//! What members agree on, and changes of it while some of them run.

use std::time::Duration;

use memsluice::sink::{Publication, publish};
use serde_json::{Value, json};

use crate::support::{Bench, Outcome, Run, generated};
use crate::tools::wait_for;

/// The application's record as `upgrade plan` shows it.
fn planned(bench: &Bench) -> Value {
    let (_, out, err) = bench.command(&["upgrade", "plan", "--output", "json"]);
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out} {err}"))
}

/// The code and exit status of a run that does not get as far as the group.
fn refused(bench: &Bench, code: &str, status: i32) {
    let running = bench.spawn(Run::live_until_end("refused"));
    let log = running.log.clone();
    assert_eq!(running.wait(), Outcome::Exit(status));
    let text = std::fs::read_to_string(log).unwrap();
    assert!(text.contains(&format!("[{code}]")), "{code}: {text}");
}

/// Policy, secret and topology: a member that differs in one of them ends before it joins; free settings may differ.
#[test]
fn a_member_that_differs_does_not_join() {
    let Some(mut bench) = Bench::new("upgrade-differs") else { return };
    bench.load(&generated(60, 20));
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    bench.replace_in_topology("interval: 100ms", "interval: 50ms");
    assert_eq!(bench.run(Run::live_until_end("two")), Outcome::Exit(0));
    bench.replace_in_topology("kappa: 2.0", "kappa: 2.5");
    refused(&bench, "member_differs", 2);
    bench.replace_in_topology("kappa: 2.5", "kappa: 2.0");
    bench.replace_in_topology("history: 100 ", "history: 30 ");
    refused(&bench, "topology_incompatible", 2);
    bench.replace_in_topology("history: 30 ", "history: 100 ");
    bench.replace_policy("mode: shadow", "mode: enforce");
    refused(&bench, "member_differs", 2);
    bench.replace_policy("mode: enforce", "mode: shadow");
    let other = bench.path("other-secret");
    std::fs::write(&other, [8_u8; 32]).unwrap();
    let own = bench.path("secret");
    bench.set("MEMSLUICE__SECRET_FILE", other.to_str().unwrap());
    refused(&bench, "member_differs", 2);
    bench.set("MEMSLUICE__SECRET_FILE", own.to_str().unwrap());
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
}

/// Two members, one with the old files and one with the new, decide one stream side by side; the change is
/// finalized when the old one is gone, and the old files are refused from then on.
#[test]
fn a_change_is_rolled_out_with_old_members_running() {
    let Some(mut bench) = Bench::new("upgrade-roll") else { return };
    bench.short_session();
    let data = generated(400, 100);
    bench.load(&data);
    let old = bench.spawn(Run::live("old"));
    bench.wait_for_input_decisions(400, Duration::from_secs(90));
    bench.replace_in_topology("kappa: 2.0", "kappa: 2.5");
    refused(&bench, "member_differs", 2);
    // Dry first: nothing is admitted.
    bench.cli_ok(&["upgrade", "begin"]);
    assert_eq!(planned(&bench)["application"]["next"], Value::Null);
    bench.cli_ok(&["upgrade", "begin", "--execute"]);
    assert_eq!(planned(&bench)["application"]["revision"], 2);
    let new = bench.spawn(Run::live("new"));
    wait_for("second member", Duration::from_secs(60), || {
        planned(&bench)["live"].as_array().is_some_and(|l| l.len() == 2)
    });
    bench.load_more(&data, 200);
    bench.wait_for_input_decisions(600, Duration::from_secs(120));
    let (status, _, err) = bench.command(&["upgrade", "finalize", "--execute"]);
    assert!(status == Some(3) && err.contains("[upgrade_unfinished]") && err.contains("memsluice-old"), "{err}");
    let (status, _, err) = bench.command(&["upgrade", "cancel", "--execute"]);
    assert!(status == Some(3) && err.contains("memsluice-new"), "{err}");
    assert_eq!(old.terminate(), Outcome::Exit(0));
    wait_for("the old member to be gone", Duration::from_secs(60), || {
        planned(&bench)["live"].as_array().is_some_and(|l| l.len() == 1)
    });
    bench.cli_ok(&["upgrade", "finalize", "--execute"]);
    let done = planned(&bench);
    assert_eq!((&done["application"]["next"], &done["application"]["revision"]), (&Value::Null, &json!(3)));
    bench.replace_in_topology("kappa: 2.5", "kappa: 2.0");
    refused(&bench, "member_differs", 2);
    assert_eq!(new.terminate(), Outcome::Exit(0));
    assert!(bench.verify().clean());
}

/// The record that a later program would leave: one whose formats this one reads is shared, another is refused.
#[test]
fn a_state_of_a_later_program_is_not_joined() {
    let Some(bench) = Bench::new("upgrade-format") else { return };
    bench.load(&generated(30, 10));
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    let mut record = planned(&bench)["application"].clone();
    let put = |record: &Value| {
        let mut value = record.clone();
        value["kind"] = json!("application");
        let (topic, key) = (bench.topic("memsluice-meta"), b"application".to_vec());
        let value = value.to_string().into_bytes();
        publish(&bench.client(), &[Publication { topic, partition: Some(0), key, value, timestamp: None }]).unwrap();
    };
    record["program"] = json!("0.2.0");
    put(&record);
    assert_eq!(bench.run(Run::live_until_end("two")), Outcome::Exit(0));
    record["format"]["write"] = json!(2);
    put(&record);
    refused(&bench, "format_unsupported", 4);
    record["format"] = json!("unknown");
    put(&record);
    refused(&bench, "format_unsupported", 4);
}

/// Many first members at once: one record, the same for all.
#[test]
fn first_members_that_start_together_agree() {
    let Some(bench) = Bench::new("upgrade-first") else { return };
    let all: Vec<_> = (0..4).map(|i| bench.spawn(Run::live_until_end(&format!("m{i}")))).collect();
    for running in all {
        let log = running.log.clone();
        assert_eq!(running.wait(), Outcome::Exit(0), "{}", std::fs::read_to_string(log).unwrap());
    }
    let found = planned(&bench);
    assert_eq!(found["application"]["revision"], 1);
    assert_eq!(found["changes"], json!([]));
}

/// What only a reset can change goes on after one.
#[test]
fn a_reset_puts_the_new_topology_in_force() {
    let Some(mut bench) = Bench::new("upgrade-reset") else { return };
    bench.set("MEMSLUICE__STATE_DIR", bench.path("state-one").to_str().unwrap());
    bench.load(&generated(60, 40));
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    bench.replace_in_topology("history: 100 ", "history: 30 ");
    let (status, _, err) = bench.command(&["upgrade", "begin", "--execute"]);
    assert!(status == Some(2) && err.contains("[topology_incompatible]"), "{err}");
    wait_for("an empty group", Duration::from_secs(60), || bench.command(&["reset", "--execute"]).0 == Some(0));
    assert_eq!(planned(&bench)["changes"], json!([]));
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
}
