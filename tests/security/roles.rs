//! Each role works with exactly the rights that `topology acls` prints for it.

use crate::support::{Bench, QUERIES};

/// The set is enough, and no part of it is too much: without any one required right the stream stops and names
/// it; without the advised ones it runs and says what it did not check.
#[test]
fn the_processor_needs_exactly_the_printed_rights() {
    let Some(mut bench) = Bench::new("rights") else { return };
    // A few writes are enough for a calibration, once they have aged: then a copy of it is published.
    for (from, to) in [("level: 0.005", "level: 0.2"), ("min_calibration: 30", "min_calibration: 8")] {
        bench.edit(from, to);
    }
    bench.edit("every: 50", "every: 8");
    let access = bench.secured.sasl("SCRAM-SHA-512", "processor");
    let all = bench.rights("processor");
    let (advised, required): (Vec<_>, Vec<_>) = all.iter().cloned().partition(|r| r.advised);
    bench.give("processor", &all);
    bench.load(100);
    let ended = bench.run(&access).ok();
    assert_eq!(ended.totals()["inputs"], 100 + QUERIES);
    assert!(
        !ended.stderr.contains("is not checked") && !ended.stderr.contains("uthorization failed"),
        "{}",
        ended.tail()
    );

    bench.give("processor", &required);
    bench.load(50);
    let ended = bench.run(&access).ok();
    assert_eq!(ended.totals()["inputs"], 50 + QUERIES, "the advised rights are not needed");
    for right in &advised {
        assert!(ended.stderr.contains(&right.text), "no warning names {}: {}", right.text, ended.tail());
    }

    // Nothing is copied yet, and a start asks for the right all the same.
    let copies = format!("WRITE on topic {}calibrations", bench.prefix);
    let rest: Vec<_> = required.iter().filter(|r| r.text != copies).cloned().collect();
    bench.give("processor", &rest);
    bench.run(&access).refused(3, "access_denied", &copies);

    assert!(required.len() >= 15, "{required:?}");
    // No run below commits, so these inputs wait for each of them.
    bench.load_at(20, "2026-06-03T00:00:00Z");
    for right in &required {
        let rest: Vec<_> = required.iter().filter(|r| r != &right).cloned().collect();
        bench.give("processor", &rest);
        bench.wipe_state();
        // A member writes its record once; this one has none yet, and ends before it joins.
        let first_start = right.text.starts_with("WRITE") && right.text.ends_with("-meta");
        bench.set("MEMSLUICE__KAFKA__INSTANCE_ID", if first_start { "first-start" } else { "0" });
        let start = std::time::Instant::now();
        let ended = bench.run(&access);
        let first = ended.message().trim().lines().next().unwrap_or_default();
        eprintln!("without {}: {:.1} s: {first}", right.text, start.elapsed().as_secs_f64());
        // A topic that may be written or read can be described; without both the first look at it fails.
        let other = required.iter().any(|r| r.name == right.name && r != right);
        let alone = format!("DESCRIBE on topic {}", right.name);
        let named = if other || !right.text.contains("on topic") { right.text.as_str() } else { alone.as_str() };
        ended.refused(3, "access_denied", named);
    }
    bench.give("processor", &required);
    assert_eq!(bench.run(&access).ok().totals()["inputs"], 20 + QUERIES);
    let shown = bench.admin(&["calibrate", "show"]).ok().stdout;
    assert_eq!(shown.lines().filter(|l| l.starts_with("rolling/")).count(), 6, "{shown}");
    // A stream that makes none doesn't ask for the right.
    bench.edit("rolling:\n    mode: on", "rolling:\n    mode: off");
    let least = bench.rights("processor").into_iter().filter(|r| !r.advised).count();
    assert_eq!(least + 1, required.len());
    bench.verify();
}

/// The operator creates and checks the topics; the keeper loads honeypots; neither can do the other's work.
#[test]
fn operator_and_keeper_work_with_their_rights() {
    let Some(bench) = Bench::without_topics("roles") else { return };
    let operator = bench.secured.sasl("SCRAM-SHA-256", "operator");
    let keeper = bench.secured.sasl("PLAIN", "keeper");
    bench.give("operator", &bench.rights("operator"));
    bench.give("keeper", &bench.rights("honeypot-keeper"));
    bench.cli(&operator, &["topology", "apply"]).ok();
    let checked = bench.cli(&operator, &["topology", "check", "--live"]).ok();
    assert!(!checked.stderr.contains("is not checked"), "{}", checked.stderr);
    let file = bench.folder.path().join("honeypots.jsonl");
    std::fs::write(&file, r#"{"tenant":"acme","store":"support","honeypot_id":"hp-1","record_id":"m-1"}"#).unwrap();
    let load = ["honeypots", "load", "--file", crate::support::text(&file)];
    bench.cli(&keeper, &load).ok();
    bench.cli(&keeper, &load).ok();
    bench.cli(&operator, &load).refused(3, "access_denied", &format!("READ on topic {}honeypots", bench.prefix));
    bench.cli(&keeper, &["topology", "check", "--live"]).refused(3, "access_denied", "DESCRIBE on topic");
}
