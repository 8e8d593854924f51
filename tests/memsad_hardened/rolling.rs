//! Rolling calibration in the stream: what enters and when, what decisions and activations say, cold start, jumps,
//! and that a restart changes nothing.

use std::time::Duration;

use memsluice::schema::{Activation, Calibration, Copied, DecisionKind};
use memsluice::topology::Switch;
use memsluice::verify::{RollingRows, rolling};

use super::*;

const AGEING: i64 = 60;

/// A line whose writes age in 60 s; each record takes one.
fn line(change: impl FnOnce(&mut Topology)) -> Line {
    Line::new(|t| {
        t.main.memsad.rolling.ageing = Duration::from_secs(AGEING.unsigned_abs());
        change(t);
    })
}

/// What one write became.
struct Became {
    decision: Decision,
    activations: Vec<Activation>,
    alarms: Vec<Attack>,
    /// Keys and values on `calibrations`.
    copies: Vec<(String, Option<Calibration>)>,
}

fn write(line: &mut Line, record: &str, v: Vector, more: Value) -> Became {
    let mut value = json!({"tenant": "acme", "store": "support", "record_id": record, "op": "create",
        "content": "A note.", "origin": "user_input", "principal": format!("p-{record}"), "session_id": record});
    for (name, field) in more.as_object().unwrap() {
        value[name] = field.clone();
    }
    let outputs = line.take(Role::MemoryWrites, &value, v);
    let of = |role: Role| outputs.iter().filter(move |o| o.role == role).map(|o| o.value.as_deref().unwrap());
    let mut decisions: Vec<Decision> = of(Role::Decisions).map(|v| serde_json::from_slice(v).unwrap()).collect();
    let decision = decisions.pop().unwrap();
    assert_eq!(decision.body.kind, DecisionKind::Decision);
    let attacks = of(Role::Attacks).map(|v| serde_json::from_slice::<Attack>(v).unwrap());
    let copy = |o: &Output| {
        assert_eq!(o.partition, 0);
        let value = o.value.as_deref().map(|v| serde_json::from_slice(v).unwrap());
        (String::from_utf8(o.key.clone()).unwrap(), value)
    };
    Became {
        copies: outputs.iter().filter(|o| o.role == Role::Calibrations).map(copy).collect(),
        decision,
        activations: decisions.into_iter().filter_map(|d| d.body.activation).filter(|a| a.rolling.is_some()).collect(),
        alarms: attacks.filter(|a| a.finding_info.types == ["calibration-frozen"]).collect(),
    }
}

/// `n` writes of as many principals; the activations among them.
fn writes(line: &mut Line, from: u64, n: u64) -> Vec<Activation> {
    (from..from + n).flat_map(|i| write(line, &format!("m-{i}"), vector(i), json!({})).activations).collect()
}

fn name(became: &Became) -> String {
    became.decision.body.memsad.as_ref().unwrap().calibration.clone().unwrap_or_default()
}

fn plain(line: &mut Line) -> Became {
    write(line, "plain", vector(5), json!({"origin": "tool_output"}))
}

/// Accepted writes are rows once they have aged; decisions name the calibration that they make, an activation says
/// what it rests on, and a newer published record begins anew.
#[test]
fn writes_enter_after_their_age_and_a_published_record_resets() {
    let mut line = line(|_| ());
    asked(&mut line, 0, 60);
    line.calibrate(250);
    assert_eq!(name(&plain(&mut line)), "acme/support@1");
    // 50 must have aged, and a record takes a second.
    assert!(writes(&mut line, 30_000, 100).is_empty());
    let made = writes(&mut line, 30_100, 30);
    let [activation] = made.as_slice() else { panic!("{made:?}") };
    assert_eq!((activation.what.as_str(), activation.version), ("rolling/acme/support", 1));
    let facts = activation.rolling.clone().unwrap();
    assert_eq!((facts.calibration.as_str(), facts.n), ("acme/support@1+rolling.1", 300));
    assert!(facts.threshold.is_some() && facts.before.is_some() && facts.sigma > 0 && facts.length > 0, "{facts:?}");
    assert_eq!(name(&plain(&mut line)), "acme/support@1+rolling.1");
    assert_eq!(plain(&mut line).decision.body.memsad.unwrap().conformal.unwrap().of, 301);
    let rows = line.keys(Kind::RollingRow);
    assert!(rows > 300, "the rows of the fit are the state's now, and others wait: {rows}");
    line.calibrate(260);
    let reset = plain(&mut line);
    assert_eq!((name(&reset).as_str(), line.keys(Kind::RollingRow)), ("acme/support@2", 0));
    let made = writes(&mut line, 31_000, 130);
    assert_eq!(made[0].rolling.as_ref().unwrap().calibration, "acme/support@2+rolling.2");
    // Switched off, the published rows stay in force.
    let mut off = super::Line::new(|t| t.main.memsad.rolling.mode = Switch::Off);
    asked(&mut off, 0, 60);
    off.calibrate(250);
    assert!(writes(&mut off, 30_000, 200).is_empty());
    assert_eq!((name(&plain(&mut off)).as_str(), off.keys(Kind::RollingRow)), ("acme/support@1", 0));
}

/// Only writes of users and the system wait, and not those that are deleted, replaced, or held.
#[test]
fn what_is_taken_back_does_not_enter() {
    let mut line = line(|_| ());
    asked(&mut line, 0, 30);
    write(&mut line, "m-1", vector(1), json!({}));
    write(&mut line, "m-2", vector(2), json!({"origin": "system"}));
    assert_eq!(line.keys(Kind::RollingRow), 2);
    for origin in ["tool_output", "agent_generated", "external"] {
        write(&mut line, "m-3", vector(3), json!({"origin": origin}));
    }
    assert_eq!(line.keys(Kind::RollingRow), 2);
    write(&mut line, "m-1", vector(1), json!({"op": "delete"}));
    assert_eq!(line.keys(Kind::RollingRow), 1);
    write(&mut line, "m-2", vector(9), json!({"op": "update"}));
    assert_eq!(line.keys(Kind::RollingRow), 1);
    write(&mut line, "m-2", vector(9), json!({"op": "update", "origin": "tool_output"}));
    assert_eq!(line.keys(Kind::RollingRow), 0);
    // What the test alone held doesn't wait either.
    line.calibrate(250);
    let held = write(&mut line, "m-7", vector(7), json!({"session_id": "other"}));
    if held.decision.body.verdict == Some(Verdict::Quarantine) {
        assert_eq!(line.keys(Kind::RollingRow), 0);
    }
    assert_eq!(held.decision.body.reasons, ["memsad:above_threshold"]);
}

/// Without any published record the stream calibrates itself, once it has what the level needs.
#[test]
fn a_cold_start_becomes_enforced() {
    let mut line = line(|_| ());
    asked(&mut line, 0, 60);
    let first = plain(&mut line);
    assert!(first.decision.body.flags.contains(&"uncalibrated".to_owned()) && name(&first).is_empty());
    assert!(writes(&mut line, 40_000, 258).is_empty());
    let made = writes(&mut line, 41_000, 2);
    assert_eq!(made.len(), 1, "199 writes are older than 60 s");
    assert_eq!(made[0].rolling.as_ref().unwrap().before, None);
    let now = plain(&mut line);
    assert_eq!(name(&now), "rolling/acme/support@1");
    assert_eq!(now.decision.body.memsad.as_ref().unwrap().status, MemsadStatus::Enforced);
    let echo = write(&mut line, "echo", vector(7), json!({"session_id": "other"}));
    assert_eq!(echo.decision.body.verdict, Some(Verdict::Quarantine));
}

/// Accepted notes on what nobody asks yet, of many principals; then it is asked: their scores jump. The threshold
/// stays, decisions say so, one finding is raised, and a published record ends it.
#[test]
fn a_jump_freezes_and_is_told_once() {
    let mut line = line(|_| ());
    asked(&mut line, 0, 60);
    line.calibrate(250);
    let near = |i: u64| {
        let (a, b) = (vector(777), vector(900 + i));
        let both = a.as_slice().iter().zip(b.as_slice()).map(|(a, b)| f64::from(*a) + 0.25 * f64::from(*b));
        Vector::from_f64(&both.collect::<Vec<_>>()).unwrap()
    };
    for i in 0..50 {
        let became = write(&mut line, &format!("a-{i}"), near(i), json!({}));
        assert_eq!(became.decision.body.verdict, Some(Verdict::Allow), "{i}");
    }
    for i in 0..70 {
        let value = json!({"tenant": "acme", "store": "support", "event_id": format!("q-{i}"),
            "session_id": format!("q-{i}"), "principal": format!("q-{i}"), "results": [], "query": "q"});
        line.take(Role::RetrievalLogs, &value, near(100 + i));
    }
    let before = plain(&mut line);
    assert_eq!(before.alarms.len(), 1, "{:?}", before.decision.body.flags);
    assert_eq!(before.alarms[0].unmapped.reasons, ["memsad:calibration_frozen"]);
    let facts = &before.alarms[0].evidences[0].data;
    assert_eq!(facts["calibration"], "acme/support@1");
    assert!(facts["threshold_with_new_rows"] > facts["threshold"], "{facts:?}");
    for i in 0..20 {
        let frozen = write(&mut line, &format!("f-{i}"), vector(60_000 + i), json!({}));
        assert!(frozen.alarms.is_empty() && frozen.activations.is_empty());
        assert!(frozen.decision.body.flags.contains(&"calibration_frozen".to_owned()));
        assert_eq!(name(&frozen), "acme/support@1");
    }
    line.restart();
    assert!(
        plain(&mut line).decision.body.flags.contains(&"calibration_frozen".to_owned()),
        "a restart forgets nothing"
    );
    line.calibrate(250);
    assert!(!plain(&mut line).decision.body.flags.contains(&"calibration_frozen".to_owned()));
}

/// The same inputs with and without restarts: the same bytes, the same state, over several calibrations.
#[test]
fn a_restart_changes_nothing() {
    let run = |every: u64| {
        let mut line = line(|t| t.main.memsad.rolling.every = 20);
        let mut seen = Vec::new();
        asked(&mut line, 0, 60);
        for i in 0..420_u64 {
            if i == 150 {
                line.calibrate(230);
            }
            if i % 9 == 0 {
                line.ask(&format!("u-{}", i % 7), &format!("s-{i}"), 5000 + i);
            }
            let op = if i % 17 == 5 { "delete" } else { "create" };
            let became = write(&mut line, &format!("m-{}", i % 300), vector(30_000 + i), json!({"op": op}));
            seen.push((serde_json::to_string(&became.decision).unwrap(), became.activations));
            if every > 0 && i % every == 0 {
                line.restart();
            }
        }
        line.commit();
        (seen, line.state.store().dump())
    };
    let plain = run(0);
    let made: usize = plain.0.iter().map(|(_, a)| a.len()).sum();
    assert!(made > 5, "the run is too tame: {made}");
    for every in [1, 13] {
        let other = run(every);
        assert!(plain.0 == other.0, "decisions differ with a restart every {every}");
        assert!(plain.1 == other.1, "the state differs with a restart every {every}");
    }
}

/// Its rows are in the state folder: a decision under them is recomputed from there.
#[test]
fn a_decision_under_rolling_rows_verifies_from_the_state() {
    let mut line = line(|_| ());
    asked(&mut line, 0, 60);
    line.calibrate(250);
    writes(&mut line, 30_000, 130);
    let decision = plain(&mut line).decision;
    line.commit();
    let folder = tempfile::tempdir().unwrap();
    let mut db = Db::open(folder.path(), "test", 8 << 20).unwrap();
    db.apply(line.state.store().dump().into_iter().map(|(k, v)| (k, Some(v))).collect()).unwrap();
    let (view, b) = (View::open(folder.path()).unwrap(), Boundary::parse("acme/support").unwrap());
    let window = memsluice::verify::window(&view, 1, &b, Limits::of(&line.topology.main.memsad)).unwrap();
    let rows: RollingRows = rolling(&view, 1, &b).unwrap().unwrap();
    assert_eq!((rows.name.as_str(), rows.rows.len()), ("acme/support@1+rolling.1", 300));
    let outcome = |rows: &RollingRows| {
        let evidence = Evidence { rolling: Some(rows), window: window.as_ref(), ..Evidence::default() };
        let of = |name: &str| verify(&decision, &evidence).into_iter().find(|c| c.name == name).map(|c| c.outcome);
        (of("calibration"), of("thresholds"))
    };
    assert_eq!(outcome(&rows), (Some(Outcome::Ok), Some(Outcome::Ok)));
    let mut changed = rows.clone();
    changed.rows[9].vector = vector(7);
    (10..60).for_each(|i| changed.rows[i].vector = vector(8));
    assert_eq!(outcome(&changed).1, Some(Outcome::Failed));
    changed.name = "acme/support@1+rolling.2".into();
    assert_eq!(outcome(&changed), (Some(Outcome::NotChecked), None));
    assert!(rolling(&view, 1, &Boundary::parse("acme/other").unwrap()).unwrap().is_none());
}

/// `n` writes; copies and what the activations say of them.
fn rolled(line: &mut Line, from: u64, n: u64) -> (Vec<(String, Option<Calibration>)>, Vec<Copied>) {
    let (mut copies, mut said) = (Vec::new(), Vec::new());
    for i in from..from + n {
        let became = write(line, &format!("m-{i}"), vector(i), json!({}));
        assert!(became.copies.is_empty() || became.activations.len() == 1, "a copy comes with its activation");
        copies.extend(became.copies);
        said.extend(became.activations.into_iter().filter_map(|a| a.rolling).map(|r| r.copy));
    }
    (copies, said)
}

/// What came into force is on the topic, whole: nobody adopts it there, and published again it decides as it did.
#[test]
fn a_rolling_calibration_is_copied_and_can_be_taken_up_again() {
    let mut line = line(|_| ());
    asked(&mut line, 0, 60);
    line.calibrate(250);
    let (copies, said) = rolled(&mut line, 30_000, 130);
    assert_eq!(said, [Copied::Published]);
    let [(key, Some(copy))] = copies.as_slice() else { panic!("{copies:?}") };
    assert_eq!((key.as_str(), copy.rolling.as_deref()), ("rolling/acme/support@1", Some("acme/support@1+rolling.1")));
    let now = plain(&mut line).decision.body.memsad.unwrap();
    assert_eq!((copy.n + 1, Some(copy.threshold_units)), (now.conformal.as_ref().unwrap().of, now.threshold));
    // As each instance sees the topic.
    let mut seen = Registry::default();
    let value = serde_json::to_vec(copy).unwrap();
    seen.apply(Role::Calibrations, key.as_bytes(), Some(&value)).unwrap();
    assert!(seen.active().is_empty() && seen.latest("memsad/acme/support") == 0 && seen.generation() == 0);
    assert!(seen.apply(Role::Calibrations, b"memsad/acme/support@1", Some(&value)).is_ok(), "it is a whole record");
    // Later versions have moved on; the copy is put in force again.
    rolled(&mut line, 40_000, 120);
    let later = plain(&mut line);
    assert_ne!(name(&later), "acme/support@1+rolling.1");
    line.registry.add_calibration(Calibration { version: 2, ..copy.clone() }).unwrap();
    line.registry.activate("memsad/acme/support".into(), 2);
    let back = plain(&mut line).decision.body.memsad.unwrap();
    assert_eq!(back.calibration.as_deref(), Some("acme/support@2"));
    assert_eq!((back.threshold, back.conformal), (now.threshold, now.conformal));
}

/// A copy a day of stream time, the newest seven; restarts change nothing; what is too large is told and left out.
#[test]
fn copies_are_bounded() {
    let run = |restarts: bool| {
        let mut line = line(|t| t.main.memsad.rolling.every = 8);
        asked(&mut line, 0, 60);
        line.calibrate(250);
        let (mut copies, mut said) = (Vec::new(), Vec::new());
        for day in 0..9 {
            let (more, says) = rolled(&mut line, 30_000 + 1000 * day, 100);
            copies.extend(more);
            said.push(says);
            line.now += 86_400_000;
            if restarts {
                line.restart();
            }
        }
        assert_eq!(line.keys(Kind::RollingCopies), 1);
        (copies, said)
    };
    let (copies, said) = run(false);
    assert_eq!(run(true), (copies.clone(), said.clone()));
    for says in &said {
        assert_eq!(says.iter().filter(|c| **c == Copied::Published).count(), 1, "{says:?}");
        assert!(says.len() > 1 && says.iter().all(|c| *c != Copied::TooLarge), "{says:?}");
    }
    let made: Vec<&str> = copies.iter().filter(|c| c.1.is_some()).map(|c| c.0.as_str()).collect();
    let gone: Vec<&str> = copies.iter().filter(|c| c.1.is_none()).map(|c| c.0.as_str()).collect();
    assert_eq!((made.len(), gone.as_slice()), (9, &made[..2]));

    let mut small = line(|t| t.main.limits.max_output_bytes = 16_384);
    asked(&mut small, 0, 60);
    small.calibrate(250);
    assert_eq!(rolled(&mut small, 30_000, 130), (Vec::new(), vec![Copied::TooLarge]));
    assert_eq!((name(&plain(&mut small)).as_str(), small.keys(Kind::RollingCopies)), ("acme/support@1+rolling.1", 0));
}
