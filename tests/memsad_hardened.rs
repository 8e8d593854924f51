//! Hardened MEMSAD in the stream, over an engine with a state in memory: who is asked, what is left out, when the
//! window moves, what decisions say about it, and that a restart changes nothing.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use memsluice::config::Secret;
use memsluice::embed::Encoded;
use memsluice::pipeline::{Embeds, Engine, EngineSettings, Registry, Unit};
use memsluice::policy::Policy;
use memsluice::schema::{Attack, Boundary, Decision, MemsadFacts, MemsadStatus, ONE, Scope, Vector, Verdict};
use memsluice::score::{
    Conformal, Fitted, HardenedInput, Keys, Limits, Query, QueryValue, Row, Sampled, Window, WindowMark, fit_hardened,
    score,
};
use memsluice::sink::Output;
use memsluice::source::{At, Fetched};
use memsluice::state::{Db, Kind, MemoryStore, State, Store, View, decode, parse};
use memsluice::topology::{Form, MemsadMode, Role, Statistic, Topology};
use memsluice::verify::{Evidence, Outcome, verify};
use serde_json::{Value, json};

#[path = "memsad_hardened/rolling.rs"]
mod rolling;
#[path = "memsad_hardened/streams.rs"]
mod streams;

const DIMENSION: usize = 32;
const ENCODER: &str = "test";

/// One unit that takes writes and retrievals.
struct Line {
    engine: Engine,
    topology: Topology,
    unit: Unit,
    state: State<MemoryStore>,
    registry: Registry,
    offset: i64,
    now: i64,
}

/// An even spread of directions, the same for the same number.
fn vector(i: u64) -> Vector {
    let mut x = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        #[allow(clippy::cast_precision_loss)] // 53 bits
        let unit = (x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64;
        unit - 0.5
    };
    let values: Vec<f64> = (0..DIMENSION).map(|_| next() + next() + next()).collect();
    Vector::from_f64(&values).unwrap()
}

fn policy(text: impl FnOnce(String) -> String) -> Policy {
    Policy::parse(&text(include_str!("../topology/policy.yaml").to_owned())).unwrap()
}

impl Line {
    fn new(change: impl FnOnce(&mut Topology)) -> Self {
        Self::with(Policy::sample().unwrap(), change)
    }

    fn with(policy: Policy, change: impl FnOnce(&mut Topology)) -> Self {
        let mut topology = Topology::sample().unwrap();
        topology.main.screen.mode = MemsadMode::Off;
        change(&mut topology);
        let engine = Engine::new(EngineSettings {
            topology: Arc::new(topology.clone()),
            policy,
            secret: Secret::new(&[7; 32]).unwrap(),
            encoder: ENCODER.to_owned(),
            dimension: DIMENSION,
            partitioned: false,
        })
        .unwrap();
        let state = State::new(MemoryStore::default());
        let unit = Unit::load(0, BTreeMap::new(), BTreeMap::new(), &state).unwrap();
        let registry = Registry::default();
        Self { engine, topology, unit, state, registry, offset: 0, now: 1_764_000_000_000 }
    }

    fn commit(&mut self) {
        self.unit.flush(&mut self.state);
        self.state.commit(Vec::new()).unwrap();
    }

    /// A process that starts again: only what was committed is left.
    fn restart(&mut self) {
        self.commit();
        let positions = self.unit.positions().clone();
        self.unit = Unit::load(0, positions, BTreeMap::new(), &self.state).unwrap();
    }

    fn take(&mut self, role: Role, value: &Value, vector: Vector) -> Vec<Output> {
        self.offset += 1;
        self.now += 1000;
        let at = At { generation: 0, role, partition: 0, offset: self.offset, timestamp: self.now };
        let value = Some(serde_json::to_vec(value).unwrap());
        let fetched = Fetched { at, key: Some(b"acme/support".to_vec()), value, headers: Vec::new() };
        let (pending, embeds) = self.engine.admit(fetched);
        let embedded = match &embeds {
            Embeds::Nothing => None,
            _ => Some(Ok(Encoded::given(vector))),
        };
        self.engine.finish(pending, embedded, &mut self.unit, &mut self.state, &self.registry).unwrap()
    }

    fn ask(&mut self, principal: &str, session: &str, v: u64) {
        let value = json!({"tenant": "acme", "store": "support", "event_id": format!("r-{}", self.offset),
            "session_id": session, "principal": principal, "results": [], "query": "q", "output_id": format!("o-{v}")});
        assert!(self.take(Role::RetrievalLogs, &value, vector(v)).is_empty());
    }

    fn write(&mut self, record: &str, v: u64, more: Value) -> Decision {
        let mut value = json!({"tenant": "acme", "store": "support", "record_id": record, "op": "create",
            "content": "A note.", "origin": "user_input"});
        for (name, field) in more.as_object().unwrap() {
            value[name] = field.clone();
        }
        let outputs = self.take(Role::MemoryWrites, &value, vector(v));
        let decision = outputs.iter().rfind(|o| o.role == Role::Decisions).unwrap();
        serde_json::from_slice(decision.value.as_deref().unwrap()).unwrap()
    }

    fn memsad(&mut self, record: &str, v: u64, more: Value) -> MemsadFacts {
        self.write(record, v, more).body.memsad.unwrap()
    }

    fn keys(&mut self, kind: Kind) -> usize {
        self.commit();
        self.state.store().dump().iter().filter(|(k, _)| k[0] == kind as u8).count()
    }

    /// The window as the state has it.
    fn window(&mut self) -> Window {
        self.commit();
        let (mut mark, mut queries) = (WindowMark::default(), Vec::new());
        for (key, value) in self.state.store().dump() {
            let Some(parsed) = parse(&key) else { continue };
            match parsed.kind {
                Kind::Window => mark = decode::<(WindowMark, u64)>(&value).unwrap().0,
                Kind::Query => {
                    let q: QueryValue = decode(&value).unwrap();
                    let values = q.vector.chunks_exact(2).map(|c| i16::from_le_bytes([c[0], c[1]])).collect();
                    let vector = Vector::from_unit(values).unwrap();
                    queries.push(Query { seq: parsed.number.unwrap(), at: q.at, keys: q.keys, vector });
                }
                _ => {}
            }
        }
        Window::restore(Limits::of(&self.topology.main.memsad), mark, queries)
    }

    /// Calibrates with `n` benign writes, as of the window in the state.
    fn calibrate(&mut self, n: u64) -> Fitted {
        let window = self.window();
        let boundary = Boundary::parse("acme/support").unwrap();
        let row = |i: u64| Sampled {
            row: Row { keys: Keys::of(Some(&format!("w-{i}")), None, None), vector: vector(10_000 + i) },
            source: format!("w-{i}"),
            prefixed: None,
        };
        let version = self.registry.latest("memsad/acme/support") + 1;
        let record = fit_hardened(HardenedInput {
            scope: &Scope::Boundary(boundary),
            version,
            memsad: &self.topology.main.memsad,
            window: &window,
            benign: (0..n).map(row).collect(),
            poison: &[],
            encoder: ENCODER,
            as_of: "2026-11-30T00:00:00Z".into(),
        })
        .unwrap();
        self.registry.add_calibration(record.clone()).unwrap();
        self.registry.activate("memsad/acme/support".into(), version);
        Fitted::of(record).unwrap()
    }
}

fn asked(line: &mut Line, from: u64, n: u64) {
    (from..from + n).for_each(|i| line.ask(&format!("u-{}", i % 9), &format!("s-{i}"), i));
}

/// What a user asked doesn't speak against what the user's agent then writes; the same words from somebody else do.
#[test]
fn the_query_that_caused_a_write_is_left_out() {
    let mut line = Line::new(|_| ());
    asked(&mut line, 0, 30);
    let near = |m: &MemsadFacts| m.s_max > ONE * 99 / 100;
    let own = json!({"principal": "u-3", "session_id": "s-3"});
    let m = line.memsad("m-1", 3, own);
    assert!(!near(&m) && m.window.as_ref().unwrap().excluded == 1, "{m:?}");
    let by_output = line.memsad("m-2", 3, json!({"principal": "u-3", "session_id": "x", "output_id": "o-3"}));
    assert!(!near(&by_output));
    // Another session of the same user, another user, and another user who names the first one's answer.
    for other in [
        json!({"principal": "u-3", "session_id": "x"}),
        json!({"principal": "u-4", "session_id": "s-4"}),
        json!({"principal": "u-4", "session_id": "s-3", "output_id": "o-3"}),
    ] {
        let m = line.memsad("m-3", 3, other.clone());
        assert!(near(&m), "{other}");
    }
    // Without session and answer, all queries of the principal.
    let m = line.memsad("m-4", 3, json!({"principal": "u-3"}));
    assert!(!near(&m) && m.window.unwrap().excluded >= 3);
}

/// Thresholds and scores move together, in steps, and the step is in the decision.
#[test]
fn the_window_moves_in_steps_and_recalibrates() {
    let mut line = Line::new(|t| t.main.memsad.statistic = Statistic::Mean);
    asked(&mut line, 0, 100);
    line.calibrate(250);
    let first = line.memsad("m-1", 5000, json!({}));
    let at = |m: &MemsadFacts| m.window.clone().unwrap().version;
    assert_eq!((first.status, first.m >= 80), (MemsadStatus::Enforced, true), "{first:?}");
    assert_eq!(first.conformal.as_ref().unwrap().of, 251);
    // A step is a fifth of the window, at most 20: the last one may have left some waiting.
    let mut moved = 0;
    for i in 0..20 {
        line.ask(&format!("v-{i}"), "s", 20_000 + i);
        let now = line.memsad("m-1", 5000, json!({}));
        if at(&now) == at(&first) {
            assert_eq!((now.threshold, now.s_max, &now.conformal), (first.threshold, first.s_max, &first.conformal));
        } else {
            moved += 1;
            assert_ne!(now.threshold, first.threshold);
            let window = line.window();
            let rows = Fitted::of(line.registry.calibration("acme/support", 1).unwrap().record.clone()).unwrap().rows;
            let again = Conformal::of(&rows, &window).threshold(Statistic::Mean, 5000);
            assert_eq!(now.threshold, again, "the threshold is that of the window in force");
            break;
        }
    }
    assert_eq!(moved, 1);
}

#[test]
fn small_calibrations_and_those_of_another_form_or_encoder_dont_count() {
    let mut line = Line::new(|_| ());
    asked(&mut line, 0, 40);
    let none = line.write("m-1", 3, json!({}));
    assert!(none.body.flags.contains(&"uncalibrated".to_owned()));
    line.calibrate(198);
    let small = line.write("m-2", 3, json!({}));
    let m = small.body.memsad.unwrap();
    assert_eq!((m.status, m.threshold, m.flagged), (MemsadStatus::Shadow, None, false));
    assert!(small.body.flags.contains(&"calibration_small".to_owned()));
    line.calibrate(199);
    let m = line.memsad("m-3", 3, json!({}));
    assert!(m.status == MemsadStatus::Enforced && m.threshold.is_some());
    let flag = |line: &mut Line, change: fn(&mut memsluice::schema::Calibration)| {
        let mut record = line.registry.calibration("acme/support", 2).unwrap().record.clone();
        record.version = line.registry.latest("memsad/acme/support") + 1;
        change(&mut record);
        let version = record.version;
        line.registry.add_calibration(record).unwrap();
        line.registry.activate("memsad/acme/support".into(), version);
        let body = line.write("m-4", 3, json!({})).body;
        assert_eq!(body.memsad.unwrap().status, MemsadStatus::Uncalibrated);
        body.flags
    };
    assert!(flag(&mut line, |c| c.encoder = "other".into()).contains(&"calibration_of_other_encoder".to_owned()));
    let reference: fn(&mut memsluice::schema::Calibration) = |c| {
        c.conformal = None;
        c.mode = "reference".into();
    };
    assert!(flag(&mut line, reference).contains(&"calibration_of_other_form".to_owned()));
    // The reference form takes that one, and not a hardened one.
    let mut old = Line::new(|t| t.main.memsad.form = Form::Reference);
    old.registry = line.registry.clone();
    let m = old.write("m-1", 3, json!({})).body.memsad.unwrap();
    assert!(m.calibration.is_some() && m.window.is_none() && m.certificate.is_none());
    old.registry.activate("memsad/acme/support".into(), 2);
    assert!(old.write("m-2", 3, json!({})).body.flags.contains(&"calibration_of_other_form".to_owned()));
}

/// Queries count where somebody vouches for their producers; a write leaves queries out only then, too.
#[test]
fn nobody_vouches_for_an_unmapped_topic() {
    let unmapped = policy(|p| p.replace("retrieval-logs: { tenants: [\"*\"]", "retrieval-logs: { tenants: [globex]"));
    let mut line = Line::with(unmapped, |_| ());
    asked(&mut line, 0, 30);
    assert_eq!((line.keys(Kind::Query), line.memsad("m-1", 3, json!({})).m), (0, 0));
    let mut line = Line::new(|_| ());
    asked(&mut line, 0, 30);
    assert!(line.keys(Kind::Query) > 20);
}

/// A write close to what others asked is held, with a finding that says by what.
#[test]
fn an_echo_of_somebody_elses_question_is_held() {
    let mut line = Line::new(|t| t.main.memsad.statistic = Statistic::Max);
    asked(&mut line, 0, 60);
    line.calibrate(250);
    let value = json!({"tenant": "acme", "store": "support", "record_id": "m-1", "op": "create", "content": "A note.",
        "origin": "user_input", "principal": "u-5", "session_id": "x"});
    let outputs = line.take(Role::MemoryWrites, &value, vector(7));
    let of = |role: Role| outputs.iter().filter(move |o| o.role == role).map(|o| o.value.as_deref().unwrap());
    let decisions: Vec<Decision> = of(Role::Decisions).map(|v| serde_json::from_slice(v).unwrap()).collect();
    let body = &decisions.iter().find(|d| d.body.memsad.is_some()).unwrap().body;
    assert_eq!(
        (body.verdict, body.reasons.as_slice()),
        (Some(Verdict::Quarantine), &["memsad:above_threshold".to_owned()][..])
    );
    assert_eq!(body.memsad.as_ref().unwrap().conformal.as_ref().unwrap().max.rank, 1);
    let attack: Attack = serde_json::from_slice(of(Role::Attacks).next().unwrap()).unwrap();
    assert_eq!(attack.finding_info.analytic.uid, "memsad.hardened");
    // What is held is not stored.
    assert_eq!(line.keys(Kind::Stored), 0);
}

/// `verify decision --state` reads the window that the stream has.
#[test]
fn the_window_of_a_state_folder_is_that_of_the_stream() {
    let mut line = Line::new(|_| ());
    asked(&mut line, 0, 45);
    let wanted = line.window();
    let folder = tempfile::tempdir().unwrap();
    let mut db = Db::open(folder.path(), "test", 8 << 20).unwrap();
    db.apply(line.state.store().dump().into_iter().map(|(k, v)| (k, Some(v))).collect()).unwrap();
    let view = View::open(folder.path()).unwrap();
    let limits = Limits::of(&line.topology.main.memsad);
    let found =
        memsluice::verify::window(&view, 1, &Boundary::parse("acme/support").unwrap(), limits).unwrap().unwrap();
    assert_eq!((found.rows(), found.waiting(), found.mark()), (wanted.rows(), wanted.waiting(), wanted.mark()));
    assert_eq!(found.digest(), wanted.digest());
    let other = memsluice::verify::window(&view, 1, &Boundary::parse("acme/other").unwrap(), limits).unwrap();
    assert!(other.is_none());
}

/// Accepted writes are compared with until they are deleted, replaced, or over.
#[test]
fn certificates_look_at_what_is_stored() {
    let mut line = Line::new(|t| t.main.memsad.memory = 12);
    asked(&mut line, 0, 30);
    let first = line.memsad("m-0", 3, json!({}));
    let empty = first.certificate.unwrap();
    assert_eq!((empty.stored, empty.contrast, empty.nearest), (0, first.m, None), "every place is free");
    (1..8).for_each(|i| drop(line.write(&format!("m-{i}"), 3, json!({}))));
    let held = line.write("m-held", 4, json!({"origin": "external"}));
    assert_ne!(held.body.verdict, Some(Verdict::Allow));
    let c = line.memsad("m-8", 3, json!({})).certificate.unwrap();
    assert_eq!((c.stored, c.contrast), (8, 0), "eight memories of these words are stored, and what is held is not");
    assert!(c.nearest.unwrap() > ONE * 99 / 100);
    // A record is there once; a delete takes it out; the ring holds the newest.
    line.write("m-8", 9, json!({"op": "update"}));
    assert_eq!(line.keys(Kind::Stored), 9);
    line.write("m-1", 0, json!({"op": "delete"}));
    assert_eq!(line.keys(Kind::Stored), 8);
    (20..40).for_each(|i| drop(line.write(&format!("m-{i}"), i, json!({}))));
    assert_eq!(line.keys(Kind::Stored), 12);
    // All end.
    line.now += 400 * 86_400_000;
    assert_eq!(line.memsad("m-50", 1, json!({})).certificate.unwrap().stored, 0);
    assert_eq!(line.keys(Kind::Stored), 1);
    let mut off = Line::new(|t| t.main.memsad.memory = 0);
    off.write("m-1", 1, json!({}));
    assert_eq!(off.keys(Kind::Stored), 0);
}

/// The same inputs with and without restarts, and with restarts at other places: the same bytes, the same state.
#[test]
fn a_restart_changes_nothing() {
    let run = |every: u64| {
        let mut line = Line::new(|t| {
            t.main.memsad.memory = 15;
            t.main.memsad.statistic = Statistic::Max;
        });
        let mut seen = Vec::new();
        for i in 0..160_u64 {
            line.ask(&format!("u-{}", i % 7), &format!("s-{}", i / 3), i % 53);
            if i == 60 {
                line.calibrate(220);
            }
            let record = format!("m-{}", i % 40);
            let op = if i % 11 == 5 { "delete" } else { "create" };
            let more = json!({"op": op, "principal": format!("u-{}", i % 5), "session_id": format!("s-{}", i / 3)});
            // Some repeat what somebody else asked.
            let v = if i % 13 == 0 { (i + 20) % 53 } else { 1000 + i % 31 };
            seen.push(serde_json::to_string(&line.write(&record, v, more)).unwrap());
            if every > 0 && i % every == 0 {
                line.restart();
            }
        }
        line.commit();
        (seen, line.state.store().dump())
    };
    let plain = run(0);
    assert!(plain.0.iter().any(|d| d.contains("\"flagged\":true")), "the run is too tame");
    for every in [1, 7, 20] {
        let other = run(every);
        assert!(plain.0 == other.0, "decisions differ with a restart every {every}");
        assert!(plain.1 == other.1, "the state differs with a restart every {every}");
    }
}

/// The check that must fail, and what is changed.
type Change = (&'static str, fn(&mut MemsadFacts));

/// Each statement is recomputed, and a changed one is found.
#[test]
fn decisions_verify_and_changed_ones_dont() {
    for statistic in [Statistic::Max, Statistic::Mean, Statistic::Combined] {
        let mut line = Line::new(|t| t.main.memsad.statistic = statistic);
        asked(&mut line, 0, 60);
        let fitted = line.calibrate(300);
        (100..130).for_each(|i| drop(line.write(&format!("m-{i}"), i, json!({}))));
        let more = json!({"principal": "u-3", "session_id": "s-3"});
        let decision = line.write("m-1", 7, more);
        let (window, v) = (line.window(), vector(7));
        let keys = Keys::of(Some("u-3"), Some("s-3"), None);
        let evidence = Evidence {
            calibration: Some(&fitted),
            rolling: None,
            window: Some(&window),
            write: Some((&v, keys)),
            again: Some(&decision),
        };
        let outcome = |d: &Decision| {
            let checks = verify(d, &evidence);
            let failed: Vec<&str> = checks.iter().filter(|c| c.outcome == Outcome::Failed).map(|c| c.name).collect();
            (failed.join(" "), checks.iter().all(|c| c.outcome == Outcome::Ok))
        };
        assert_eq!(outcome(&decision), (String::new(), true), "{:?}", verify(&decision, &evidence));
        let changes: [Change; 9] = [
            ("result", |m| m.flagged = !m.flagged),
            ("p_values", |m| m.threshold = m.threshold.map(|t| t - ONE)),
            ("p_values", |m| m.conformal.as_mut().unwrap().max.rank = 0),
            ("thresholds", |m| m.conformal.as_mut().unwrap().of += 1),
            ("radius", |m| m.certificate.as_mut().unwrap().radius = Some(1 << 40)),
            ("lipschitz", |m| m.certificate.as_mut().unwrap().lipschitz += 1),
            ("scores", |m| m.s_max += 1),
            ("window", |m| m.window.as_mut().unwrap().digest = "0".into()),
            ("window", |m| m.window.as_mut().unwrap().excluded += 1),
        ];
        for (name, change) in changes {
            let mut other = decision.clone();
            change(other.body.memsad.as_mut().unwrap());
            let (failed, _) = outcome(&other);
            let named = failed.contains(name) || (name == "thresholds" && failed.contains("calibration"));
            assert!(failed.contains("hash") && failed.contains("replay") && named, "{statistic:?} {name}: {failed}");
        }
        // With nothing beside it, much is left open and nothing fails.
        let alone = verify(&decision, &Evidence::default());
        assert!(alone.iter().any(|c| c.outcome == Outcome::NotChecked));
        assert!(alone.iter().all(|c| c.outcome != Outcome::Failed), "{alone:?}");
    }
}

/// Held-out writes of the same kind are flagged at the level: over many calibrations the share is (n + 1 - k)/(n + 1)
/// = 2 of 400, and the Clopper-Pearson interval of what was counted holds it.
#[test]
fn the_level_holds_on_held_out_writes() {
    let mut line = Line::new(|_| ());
    asked(&mut line, 0, 100);
    let window = line.window();
    let keys = Keys::of(Some("nobody"), None, None);
    let row = |i: u64| Row { keys, vector: vector(50_000 + i) };
    for statistic in [Statistic::Max, Statistic::Mean, Statistic::Combined] {
        let (mut flagged, mut n) = (0, 0);
        for round in 0..40_u64 {
            let rows: Vec<Row> = (0..399).map(|i| row(1000 * round + i)).collect();
            let threshold = Conformal::of(&rows, &window).threshold(statistic, 5000).unwrap();
            for i in 400..700 {
                let r = row(1000 * round + i);
                flagged += u32::from(score(&r.vector, &keys, &window).scores.tested(statistic) > threshold);
                n += 1;
            }
        }
        let [low, high] = memsluice::score::clopper_pearson(flagged, n);
        println!("{}: {flagged} of {n} held-out writes flagged, interval {low:.4} to {high:.4}", statistic.as_str());
        assert!(low <= 0.005 && high >= 0.005 * 0.5, "{flagged} of {n}");
    }
}
