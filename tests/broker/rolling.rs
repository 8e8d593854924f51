//! Rolling calibrations on the topic: copies that are listed, compared, and taken up again.

use serde_json::Value;

use crate::data::tool_ok;
use crate::support::{Bench, Run, generated};

fn json(bench: &Bench, args: &[&str]) -> Vec<Value> {
    let out = bench.cli_ok(&[args, &["--output", "json"]].concat());
    out.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// Writes of a later day, when those before have aged.
fn load_later(bench: &Bench, count: &str, start: &str) {
    let file = bench.path("later.jsonl");
    let out = file.to_str().unwrap();
    tool_ok(&["generate", "--count", count, "--out", out, "--start", start, "--content-bytes", "200", "--seed", "8"]);
    bench.produce("memory-writes", &[file]);
}

/// Each boundary's unit writes a copy with its activation; nobody adopts it until an operator publishes it, and then
/// the unit begins anew with it.
#[test]
fn rolling_calibrations_are_copied_and_taken_up_again() {
    let Some(mut bench) = Bench::new("copies") else { return };
    bench.replace_in_topology("level: 0.005", "level: 0.05");
    bench.replace_in_topology("every: 50", "every: 8");
    let state = bench.path("state-one");
    bench.set("MEMSLUICE__STATE_DIR", state.to_str().unwrap());
    let data = generated(600, 120);
    bench.load(&data);
    assert_eq!(bench.totals(Run::until_end())["inputs"], 720);
    assert!(json(&bench, &["calibrate", "show"]).is_empty(), "nothing has aged");
    load_later(&bench, "60", "2026-06-03T00:00:00Z");
    assert_eq!(bench.totals(Run::until_end())["inputs"], 60);

    let listed = json(&bench, &["calibrate", "show"]);
    assert_eq!(listed.len(), 6, "{listed:?}");
    let what = listed[0]["what"].as_str().unwrap().to_owned();
    let scope = what.strip_prefix("rolling/").unwrap();
    let name = format!("rolling/{scope}@1");
    assert!(listed.iter().all(|r| r["active"] == false && r["version"] == 1), "{listed:?}");
    assert_eq!(listed[0]["rolling"], name.as_str());
    let made = json(&bench, &["calibrate", "show", "--rolling", "--scope", scope]);
    assert!(made[0]["calibration"].as_str().unwrap().starts_with(&format!("rolling/{scope}@")), "{made:?}");
    let table = bench.cli_ok(&["calibrate", "show", "--scope", scope]);
    assert!(table.starts_with(&name) && table.contains(" rolling "), "{table}");

    let back = ["calibrate", "publish", "--scope", scope, "--version", "rolling.1"];
    let planned = bench.cli_ok(&back);
    assert!(planned.contains("would publish") && planned.contains("instead of none"), "{planned}");
    assert_eq!(json(&bench, &["calibrate", "show"]).len(), 6, "a dry run publishes nothing");
    let done = bench.cli_ok(&[&back[..], &["--execute"]].concat());
    assert!(done.contains(&format!("as memsad/{scope}@1, in force")), "{done}");
    let compared = json(&bench, &["calibrate", "compare", "--scope", scope, "--from", "rolling.1"]).remove(0);
    assert_eq!((&compared["from"], &compared["to"]), (&Value::from("rolling.1"), &Value::from(1)));
    assert!(compared["fields"].as_array().unwrap().iter().all(|f| f["before"] == f["after"]), "{compared}");

    load_later(&bench, "30", "2026-06-03T01:00:00Z");
    assert_eq!(bench.totals(Run::until_end())["inputs"], 30);
    let now = json(&bench, &["calibrate", "show", "--rolling", "--scope", scope]);
    assert_eq!(now[0]["calibration"], format!("{scope}@1"), "the unit began anew with it: {now:?}");
    assert!(bench.verify().clean());
}
