//! The breaker and held keys through the engine, record after record.

use std::collections::BTreeMap;

use memsluice::config::Backend;
use memsluice::error::Code;
use memsluice::schema::{DeadLetterHeaders, Isolation, header};
use memsluice::sink::Output;
use memsluice::source::Fetched;
use memsluice::topology::Role;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Bench, KEY, Line, fetched, partition, patched, valid_retrieval, valid_write};

const START: i64 = 1_764_000_000_000;

fn rules(breaker: &str, on_dead_letter: &str) -> Bench {
    let flows = format!("flows: {{ writes: {{ on_dead_letter: {on_dead_letter} }} }}");
    Bench::new(Backend::Hash, &format!("main: {{ breaker: {{ {breaker} }}, {flows} }}"))
}

/// A write of a principal at an offset; its time is `START` and as many ms.
fn write(offset: i64, principal: &str, id: &str, content: &str) -> Fetched {
    let patch = json!({ "principal": principal, "record_id": id, "content": content });
    let mut record = fetched(Role::MemoryWrites, Some(patched(valid_write(), &patch)));
    (record.at.offset, record.at.timestamp) = (offset, START + offset);
    record
}

/// The same without text: it fails.
fn broken(offset: i64, principal: &str, id: &str) -> Fetched {
    write(offset, principal, id, "")
}

fn at(mut record: Fetched, timestamp: i64) -> Fetched {
    record.at.timestamp = timestamp;
    record
}

fn with(mut record: Fetched, name: &str, origin: i64) -> Fetched {
    let value = format!("memory-writes/{}/{origin}", partition());
    record.headers.push((name.to_owned(), Some(value.into_bytes())));
    record
}

fn skip(offset: i64, origin: i64) -> Fetched {
    let mut record = with(write(offset, "op", "none", "x"), header::DLQ_SKIP, origin);
    record.value = None;
    record
}

/// `allow`, or the code of the dead letter; the outputs must agree with the decision.
fn fate(outputs: &[Output]) -> String {
    let body = body(outputs);
    let verdict = body["verdict"].as_str().unwrap_or("control").to_owned();
    let count = |role| outputs.iter().filter(|o| o.role == role).count();
    assert_eq!(count(Role::DeadLetters), usize::from(verdict == "dead_letter"));
    assert_eq!(count(Role::CommittedMemory), usize::from(verdict == "allow"));
    if verdict == "dead_letter" { letter(outputs).code } else { verdict }
}

fn body(outputs: &[Output]) -> Value {
    let decisions: Vec<_> = outputs.iter().filter(|o| o.role == Role::Decisions).collect();
    assert_eq!(decisions.len(), 1, "{outputs:?}");
    serde_json::from_slice::<Value>(decisions[0].value.as_deref().unwrap()).unwrap()["body"].clone()
}

fn letter(outputs: &[Output]) -> DeadLetterHeaders {
    let letter = outputs.iter().find(|o| o.role == Role::DeadLetters).unwrap();
    DeadLetterHeaders::read(&letter.headers).unwrap()
}

fn fates(line: &mut Line<'_>, records: Vec<Fetched>) -> Vec<String> {
    records.into_iter().map(|r| fate(&line.take(r).unwrap())).collect()
}

/// Its neighbour in the same boundary is decided all the while; a restart keeps it; after the cool-down it
/// is tried. Its broken records keep their own code, so that a redrive by code takes the good ones alone.
#[test]
fn a_failing_source_is_isolated_alone() {
    let bench = rules("consecutive: 3", "continue");
    let mut line = Line::new(&bench);
    let early = vec![broken(0, "bad", "a"), write(1, "bad", "b", "x"), broken(2, "bad", "a"), broken(3, "bad", "a")];
    assert_eq!(fates(&mut line, early), ["empty_content", "allow", "empty_content", "empty_content"]);
    let opening = letter(&line.take(broken(4, "bad", "a")).unwrap());
    let isolation = Isolation {
        source: format!("memory-writes/{KEY}/principal:bad"),
        cause: "empty_content".into(),
        since: "2025-11-24T16:00:00.004Z".into(),
    };
    assert_eq!(opening.isolation.as_ref(), Some(&isolation));
    for restart in [false, true] {
        if restart {
            line.restart(&bench);
        }
        let outputs = line.take(write(5, "bad", "b", "x")).unwrap();
        assert_eq!(fate(&outputs), "source_isolated");
        let found = letter(&outputs);
        assert_eq!((found.stage.as_str(), found.isolation.as_ref()), ("breaker", Some(&isolation)));
        assert_eq!(body(&outputs)["error"], "source_isolated");
        let others = vec![write(6, "good", "b", "x"), broken(7, "bad", "c"), write(8, "new", "c", "x")];
        assert_eq!(fates(&mut line, others), ["allow", "empty_content", "allow"]);
    }
    let (before, due) = (START + 4 + 59_999, START + 4 + 60_000);
    let late =
        vec![at(write(9, "bad", "b", "x"), before), at(write(10, "bad", "b", "x"), due), write(11, "bad", "b", "x")];
    assert_eq!(fates(&mut line, late), ["source_isolated", "allow", "allow"]);
}

/// Unreadable records among many good ones of their boundary are noise; alone they are a source.
#[test]
fn a_little_noise_isolates_nobody() {
    let bench = rules("consecutive: 3, ratio: 0, stop_sources: 2", "continue");
    let garbage = |offset| Fetched { value: Some(b"{no".to_vec()), ..write(offset, "p", "m", "x") };
    let mut line = Line::new(&bench);
    for offset in 0..40 {
        let outputs = line.take(if offset % 4 == 0 { write(offset, "p", "m", "x") } else { garbage(offset) });
        let isolated = outputs.unwrap().iter().any(|o| o.header(header::SOURCE).is_some());
        assert_eq!(isolated, offset >= 3 && offset % 4 != 0, "three of four are a row");
    }
    let mut line = Line::new(&bench);
    for offset in 0..40 {
        let outputs =
            line.take(if offset % 3 == 0 { write(offset, &format!("p-{offset}"), "m", "x") } else { garbage(offset) });
        assert!(outputs.unwrap().iter().all(|o| o.header(header::SOURCE).is_none()), "{offset}");
    }
}

/// The inputs are apart: events that fail isolate no writes of the same principal.
#[test]
fn events_and_writes_are_two_sources() {
    let bench = rules("consecutive: 2", "continue");
    let mut line = Line::new(&bench);
    let event = |offset, patch| {
        let mut r = fetched(Role::RetrievalLogs, Some(patched(valid_retrieval(), &patch)));
        (r.at.offset, r.at.timestamp) = (offset, START);
        r
    };
    for offset in 0..2 {
        line.take(event(offset, json!({ "results": null }))).unwrap();
    }
    assert_eq!(letter(&line.take(event(2, json!({}))).unwrap()).code, "source_isolated");
    assert_eq!(fates(&mut line, vec![write(0, "u-1", "a", "x")]), ["allow"]);
}

/// The record that would isolate one source too many is unread: nothing is noted, again and again, until
/// the limit is raised.
#[test]
fn several_sources_stop_the_line() {
    let bench = rules("consecutive: 2, stop_sources: 3", "continue");
    let raised = [4, 0].map(|n| rules(&format!("consecutive: 2, stop_sources: {n}"), "continue"));
    let mut line = Line::new(&bench);
    let name = |n: i64| format!("p-{n}");
    for n in 0..5 {
        fates(&mut line, vec![broken(n, &name(n / 2), "a")]);
    }
    let open = line.open();
    let last = || broken(5, &name(2), "a");
    for _ in 0..2 {
        let error = line.take(last()).unwrap_err();
        assert_eq!((error.code(), error.exit_status()), (Code::PoisonFlood, 3));
        assert!(error.message().contains(&format!("memory-writes/{}/5", partition())), "{error}");
        assert_eq!(line.open(), open, "a refused record leaves nothing");
    }
    line.restart(&bench);
    assert_eq!(line.take(last()).unwrap_err().code(), Code::PoisonFlood, "nor does a restart help");
    for higher in &raised {
        line.rewind(higher);
        assert_eq!(fates(&mut line, vec![last(), write(6, &name(2), "a", "x")]), ["empty_content", "source_isolated"]);
    }
}

/// An update waits for the broken create before it; each is let through in order. Without the hold it
/// overtakes.
#[test]
fn a_later_record_waits_for_the_broken_one() {
    let records = || vec![broken(0, "p", "m"), write(1, "p", "m", "second"), write(2, "p", "other", "x")];
    let passing = rules("", "continue");
    assert_eq!(fates(&mut Line::new(&passing), records()), ["empty_content", "allow", "allow"], "the control");

    let bench = rules("", "hold_key");
    let mut line = Line::new(&bench);
    assert_eq!(fates(&mut line, records()), ["empty_content", "key_held", "allow"]);
    line.restart(&bench);
    let held = letter(&line.take(write(3, "p", "m", "third")).unwrap());
    assert_eq!((held.code.as_str(), held.stage.as_str(), held.origin.offset), ("key_held", "hold", 3));
    assert!(held.message.contains("offset 0"), "{}", held.message);
    // Out of order, then still broken: both stay what they were.
    let early = letter(&line.take(with(write(4, "p", "m", "second"), header::REDRIVE, 1)).unwrap());
    assert_eq!((early.code.as_str(), early.input.offset, early.origin.offset), ("key_held", 4, 1));
    let again = letter(&line.take(with(broken(5, "p", "m"), header::REDRIVE, 0)).unwrap());
    assert_eq!((again.code.as_str(), again.input.offset, again.origin.offset), ("empty_content", 5, 0));
    line.restart(&bench);
    let rest = vec![
        with(write(6, "p", "m", "first"), header::REDRIVE, 0),
        write(7, "p", "m", "fourth"),
        with(write(8, "p", "m", "second"), header::REDRIVE, 1),
        skip(9, 3),
        with(write(10, "p", "m", "fourth"), header::REDRIVE, 7),
        write(11, "p", "m", "fifth"),
    ];
    assert_eq!(fates(&mut line, rest), ["allow", "key_held", "allow", "control", "allow", "allow"]);
    line.restart(&bench);
    assert!(!line.dump().iter().any(|(k, _)| k[0] == memsluice::state::Kind::Held as u8), "nothing is left behind");
}

/// Of a record that can't be read nothing is known but its Kafka key: all under it wait, each in its order.
#[test]
fn an_unreadable_record_holds_its_kafka_key() {
    let bench = rules("", "hold_key");
    let mut line = Line::new(&bench);
    let mut garbage = write(0, "p", "m", "x");
    garbage.value = Some(b"{no".to_vec());
    let mut keyless = garbage.clone();
    (keyless.key, keyless.at.offset) = (None, 1);
    let mut foreign = write(2, "p", "m", "x");
    (foreign.key, foreign.value) = (Some(b"globex/x".to_vec()), Some(b"{no".to_vec()));
    let records =
        vec![keyless, foreign, write(3, "p", "m", "x"), garbage, write(4, "p", "n", "x"), write(5, "p", "m", "x")];
    let wanted = ["invalid_json", "invalid_json", "allow", "invalid_json", "key_held", "key_held"];
    assert_eq!(fates(&mut line, records), wanted);
    let rest = vec![
        skip(6, 0),
        write(7, "p", "new", "x"),
        write(8, "p", "m", "x"),
        with(write(9, "p", "m", "x"), header::REDRIVE, 5),
        with(write(10, "p", "n", "x"), header::REDRIVE, 4),
        with(write(11, "p", "m", "x"), header::REDRIVE, 8),
        write(12, "p", "m", "x"),
    ];
    assert_eq!(fates(&mut line, rest), ["control", "allow", "key_held", "allow", "allow", "allow", "allow"]);
}

/// A record of another boundary's partition holds nobody here, and a session is the key of an event.
#[test]
fn what_a_hold_is_about() {
    let flows = "flows: { writes: { on_dead_letter: hold_key }, retrievals: { on_dead_letter: hold_key } }";
    let bench = Bench::new(Backend::Hash, &format!("main: {{ {flows} }}"));
    let mut line = Line::new(&bench);
    let mut misplaced = write(0, "p", "m", "x");
    misplaced.value = Some(patched(valid_write(), &json!({ "tenant": "globex" })));
    assert_eq!(fates(&mut line, vec![misplaced, write(1, "p", "m", "x")]), ["misplaced_partition", "allow"]);
    let event = |offset, session: &str, k: i64| {
        let patch = json!({ "session_id": session, "k": k });
        let mut r = fetched(Role::RetrievalLogs, Some(patched(valid_retrieval(), &patch)));
        r.at.offset = offset;
        r
    };
    line.take(event(0, "s-1", -1)).unwrap();
    assert_eq!(letter(&line.take(event(1, "s-1", 5)).unwrap()).code, "key_held");
    assert!(line.take(event(2, "s-2", 5)).unwrap().is_empty(), "another session goes on");
    assert_eq!(fates(&mut line, vec![write(2, "p", "m", "x")]), ["allow"], "so do writes");
}

/// A skip is consumed with a decision of its own kind; one that names nothing says so, and one that can't
/// be read is a dead letter.
#[test]
fn a_skip_has_a_control_decision() {
    let bench = rules("", "hold_key");
    let mut line = Line::new(&bench);
    line.take(broken(0, "p", "m")).unwrap();
    for (offset, flags) in [(1, json!([])), (2, json!(["nothing_held"]))] {
        let outputs = line.take(skip(offset, 0)).unwrap();
        let body = body(&outputs);
        assert_eq!((outputs.len(), &body["kind"], &body["verdict"]), (1, &json!("control"), &Value::Null));
        assert_eq!(body["reasons"], json!([format!("dlq_skip:memory-writes/{}/0", partition())]));
        assert_eq!(body["flags"], flags);
    }
    for value in ["", "memory-writes/0", "retrieval-logs/0/0", "memory-writes/0/0"] {
        let mut record = skip(3, 0);
        record.headers.pop();
        record.headers.push((header::DLQ_SKIP.to_owned(), Some(value.as_bytes().to_vec())));
        let here = format!("memory-writes/{}/0", partition()) == value;
        assert_eq!(fate(&line.take(record).unwrap()), if here { "control" } else { "invalid_record" }, "{value}");
    }
    let mut write = skip(4, 0);
    write.value = Some(patched(valid_write(), &json!({ "record_id": "free" })));
    assert_eq!(fate(&line.take(write).unwrap()), "allow", "with a value the header says nothing");
}

/// No room for one more: the line stops rather than let it pass.
#[test]
fn a_full_hold_stops() {
    let bench = rules("max_held: 2", "hold_key");
    let mut line = Line::new(&bench);
    fates(&mut line, vec![broken(0, "p", "m"), write(1, "p", "m", "x"), write(2, "p", "free", "x")]);
    line.restart(&bench);
    let error = line.take(write(3, "p", "m", "x")).unwrap_err();
    assert_eq!((error.code(), error.exit_status()), (Code::HeldKeysFull, 3));
    line.rewind(&bench);
    assert_eq!(fates(&mut line, vec![skip(3, 0), write(4, "p", "m", "x")]), ["control", "key_held"]);
    let raised = rules("max_held: 3", "hold_key");
    line.restart(&raised);
    assert_eq!(fates(&mut line, vec![write(5, "p", "m", "x")]), ["key_held"]);
}

#[derive(Debug, Clone)]
enum Act {
    Send(usize, bool),
    Garbage,
    Redrive(usize, bool),
    Skip(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => (0..3_usize, prop::bool::weighted(0.7)).prop_map(|(k, good)| Act::Send(k, good)),
        1 => Just(Act::Garbage),
        4 => (0..3_usize, prop::bool::weighted(0.8)).prop_map(|(n, good)| Act::Redrive(n, good)),
        2 => (0..3_usize).prop_map(Act::Skip),
    ];
    prop::collection::vec(act, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is sent, redriven and skipped: no record is committed while an older one of its key, or an
    /// unreadable one of its Kafka key, waits. A restart after each record changes no output and no state.
    #[test]
    fn nothing_overtakes_what_waits(acts in acts()) {
        let bench = rules("consecutive: 4, cool_down: 10ms, stop_sources: 0", "hold_key");
        let (mut line, mut restarted) = (Line::new(&bench), Line::new(&bench));
        // Origin of what waits, with its key; `None` is unreadable.
        let mut waits: BTreeMap<i64, Option<usize>> = BTreeMap::new();
        for (offset, act) in (0..).zip(acts) {
            let nth = |n: usize| waits.iter().nth(n).map(|(o, k)| (*o, *k));
            let sent = |key: Option<usize>, good: bool| {
                let key = key.unwrap_or(0);
                write(offset, "p", &format!("m-{key}"), if good { "x" } else { "" })
            };
            let (record, origin, key) = match act {
                Act::Send(key, good) => (sent(Some(key), good), offset, Some(key)),
                Act::Garbage => (Fetched { value: Some(b"{".to_vec()), ..sent(None, true) }, offset, None),
                Act::Redrive(n, good) => match nth(n) {
                    Some((origin, key)) => (with(sent(key, good), header::REDRIVE, origin), origin, Some(key.unwrap_or(0))),
                    None => continue,
                },
                Act::Skip(n) => match nth(n) {
                    Some((origin, _)) => (skip(offset, origin), origin, None),
                    None => continue,
                },
            };
            let outputs = line.take(record.clone()).unwrap();
            prop_assert_eq!(&restarted.take(record).unwrap(), &outputs);
            restarted.restart(&bench);
            match fate(&outputs).as_str() {
                "allow" => {
                    let older = waits.iter().find(|(o, k)| **o < origin && (k.is_none() || **k == key));
                    prop_assert_eq!(older, None, "offset {} of {:?} overtook", origin, key);
                    waits.remove(&origin);
                }
                "control" => prop_assert!(waits.remove(&origin).is_some()),
                _ => {
                    prop_assert_eq!(letter(&outputs).origin.offset, origin);
                    waits.entry(origin).or_insert(key);
                }
            }
        }
        line.restart(&bench);
        prop_assert_eq!(line.dump(), restarted.dump());
    }
}
