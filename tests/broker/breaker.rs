//! Floods of broken records, held keys, redrives and skips on a real broker.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::ops::ControlFlow;
use std::time::Duration;

use memsluice::schema::{DeadLetterHeaders, Headers, header};
use memsluice::source::{Client, partition_of, reader, watermarks};
use rdkafka::message::{Header, Headers as _, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use serde_json::json;

use crate::support::{self, Bench, Outcome, Run};

const START: i64 = 1_760_000_000_000;
const UNITS: i32 = 6;
/// The boundary whose producers misbehave.
const KEY: &str = "acme/support";

/// A record to send to `memory-writes`.
#[derive(Clone)]
struct Sent {
    value: Option<String>,
    /// ms after `START`.
    at: i64,
    header: Option<(&'static str, String)>,
}

fn write(principal: &str, id: &str, content: &str, at: i64) -> Sent {
    let value = json!({
        "tenant": "acme", "store": "support", "record_id": id, "op": "create", "content": content,
        "origin": "user_input", "principal": principal,
    });
    Sent { value: Some(value.to_string()), at, header: None }
}

/// Empty content: it can't be decoded, and says whose it is.
fn broken(principal: &str, id: &str, at: i64) -> Sent {
    write(principal, id, "", at)
}

fn client() -> Client {
    let mut client = Client::new();
    client.set("bootstrap.servers", std::env::var("MEMSLUICE_TEST_KAFKA").unwrap());
    client
}

fn send(bench: &Bench, records: &[Sent]) {
    let producer: BaseProducer = client().set("enable.idempotence", "true").create().unwrap();
    let topic = bench.topic("memory-writes");
    for r in records {
        let mut record = BaseRecord::<str, str>::to(&topic).key(KEY).timestamp(START + r.at);
        record = record.partition(partition_of(KEY.as_bytes(), UNITS));
        record.payload = r.value.as_deref();
        if let Some((key, value)) = &r.header {
            record = record.headers(OwnedHeaders::new().insert(Header { key, value: Some(value) }));
        }
        producer.send(record).map_err(|(e, _)| e).unwrap();
        producer.poll(Duration::ZERO);
    }
    producer.flush(Duration::from_secs(30)).unwrap();
}

/// Key, value and headers of all records of an output of the boundary's unit, in order.
fn records(bench: &Bench, role: &str) -> Vec<(String, String, Headers)> {
    let (reader, topic) = (reader(&client(), "read_committed", "memsluice-test").unwrap(), bench.topic(role));
    let partition = partition_of(KEY.as_bytes(), UNITS);
    let bounds = watermarks(&reader, &topic, partition).unwrap();
    let mut out = Vec::new();
    if bounds.high > bounds.low {
        memsluice::source::read(&reader, &topic, partition, bounds.low, |m| {
            let Some(m) = m else { return Ok(ControlFlow::Continue(())) };
            let text = |b: Option<&[u8]>| String::from_utf8_lossy(b.unwrap_or_default()).into_owned();
            let headers =
                m.headers().map(|h| h.iter().map(|x| (x.key.to_owned(), x.value.map(<[u8]>::to_vec))).collect());
            out.push((text(m.key()), text(m.payload()), headers.unwrap_or_default()));
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
    }
    out
}

fn letters(bench: &Bench) -> Vec<DeadLetterHeaders> {
    records(bench, "dead-letters").iter().map(|(_, _, h)| DeadLetterHeaders::read(h).unwrap()).collect()
}

fn codes(bench: &Bench) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    letters(bench).into_iter().for_each(|l| *out.entry(l.code).or_default() += 1);
    out
}

/// Values of a record id that were committed, in order.
fn committed(bench: &Bench, id: &str) -> Vec<String> {
    let key = format!("{KEY}/{id}");
    let content =
        |v: &str| serde_json::from_str::<serde_json::Value>(v).unwrap()["content"].as_str().unwrap().to_owned();
    records(bench, "committed-memory").iter().filter(|(k, ..)| *k == key).map(|(_, v, _)| content(v)).collect()
}

/// One broken record of `bad` to each of two of its neighbour's, which now and then update its keys.
fn flood() -> Vec<Sent> {
    let mut out = Vec::new();
    for n in 0..1_500 {
        out.push(if n % 3 == 2 {
            write("bad", &format!("b-{n}"), "fine", n)
        } else {
            broken("bad", &format!("b-{n}"), n)
        });
        out.push(write("good", &format!("g-{n}"), "fine", n));
        out.push(if n % 50 == 0 {
            write("good", &format!("b-{n}"), "an update", n)
        } else {
            write("good", &format!("h-{n}"), "fine", n)
        });
    }
    out
}

/// One principal floods a boundary: it alone is cut off, also over kill -9 and a lost folder, and what is
/// decided and kept is the same as without a kill.
#[test]
fn a_flood_is_isolated_and_survives_kills() {
    let Some(mut calm) = Bench::new("flood-calm").map(Bench::without_screen) else { return };
    let Some(mut killed) = Bench::new("flood-killed").map(Bench::without_screen) else { return };
    let data = support::generated(15_000, 200);
    for bench in [&mut calm, &mut killed] {
        bench.replace_in_topology("on_dead_letter: continue # ", "on_dead_letter: hold_key # ");
        send(bench, &flood()[..2_000]);
        bench.load(&data);
        send(bench, &flood()[2_000..]);
    }
    let inputs = 15_000 + 4_500;
    assert_eq!(calm.run(Run::until_end()), Outcome::Exit(0));
    let kills = killed.run_with_kills(inputs, 4);
    assert!(kills >= 2, "the run was killed only {kills} times");
    let (a, b) = (calm.verify(), killed.verify());
    assert!(a.clean() && b.clean() && a.inputs == inputs, "calm {a:?}\nkilled {b:?}");
    assert_eq!(support::differing_lines(&a.dump, &b.dump), 0);
    assert_eq!(letters(&calm).len(), letters(&killed).len());
    assert_eq!(codes(&calm), codes(&killed));
    assert_eq!(calm.state(), killed.state(), "state differs");
    // Two of three of its records fail: a full window of 64 opens it. 29 updates wait for its keys; the key of one went through before.
    let found = codes(&calm);
    eprintln!("{kills} kills; dead letters: {found:?}");
    assert_eq!(found["empty_content"], 1_000);
    assert_eq!(found["source_isolated"], 500 - 64 / 3);
    assert_eq!(found["key_held"], 29);
    let good = records(&calm, "committed-memory")
        .iter()
        .filter(|(k, ..)| k.starts_with("acme/support/g-") || k.starts_with("acme/support/h-"))
        .count();
    assert_eq!(good, 3_000 - 30, "its neighbour is not held up");

    // A restart keeps it, also from the changelog; the cool-down ends it.
    calm.wipe_state();
    for bench in [&calm, &killed] {
        send(bench, &[write("bad", "later", "fine", 2_000), write("good", "later-too", "fine", 2_000)]);
        assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
        assert_eq!(codes(bench)["source_isolated"], 501 - 64 / 3);
        assert_eq!(committed(bench, "later-too"), ["fine"]);
        send(bench, &[write("bad", "much-later", "fine", 300_000)]);
        assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
        assert_eq!(committed(bench, "much-later"), ["fine"]);
        assert!(bench.verify().clean());
    }
    assert_eq!(calm.state(), killed.state());
}

/// Without the breaker nothing is cut off: what the test above sees is the breaker's work.
#[test]
fn a_flood_without_a_breaker_goes_on() {
    let Some(mut bench) = Bench::new("flood-off").map(Bench::without_screen) else { return };
    bench.replace_in_topology("consecutive: 20", "consecutive: 0");
    bench.replace_in_topology("ratio: 0.5", "ratio: 0");
    send(&bench, &flood()[..600]);
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    assert_eq!(codes(&bench).keys().collect::<Vec<_>>(), ["empty_content"]);
    assert!(bench.verify().clean());
}

/// Eight sources fail: the run stops at an unread record, each start stops there again, and a raised limit
/// lets it through. Nothing is lost or doubled on the way.
#[test]
fn a_flood_of_many_stops_the_line() {
    let Some(mut bench) = Bench::new("flood-many").map(Bench::without_screen) else { return };
    let mut sent: Vec<Sent> = (0..160).map(|n| broken(&format!("p-{}", n / 20), "m", n)).collect();
    sent.push(write("good", "after", "fine", 200));
    send(&bench, &sent);
    for start in 0..2 {
        bench.refused(3, "poison_flood");
        assert_eq!(codes(&bench)["empty_content"], 159, "start {start}");
        assert!(committed(&bench, "after").is_empty());
    }
    bench.replace_in_topology("stop_sources: 8", "stop_sources: 9");
    bench.cli_ok(&["upgrade", "begin", "--execute"]);
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    assert_eq!(codes(&bench)["empty_content"], 160);
    assert_eq!(committed(&bench, "after"), ["fine"]);
    assert!(bench.verify().clean());
}

/// The broken create of a key, its update, and another key; then redrives and a skip as an operator sends
/// them. The contents of the key as committed.
fn redriven(name: &str, mode: &str) -> Option<Vec<String>> {
    let mut bench = Bench::new(name)?.without_screen();
    bench.replace_in_topology("on_dead_letter: continue # ", &format!("on_dead_letter: {mode} # "));
    let run = |bench: &Bench| assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    send(&bench, &[broken("p", "m", 0), write("p", "m", "second", 1), write("p", "n", "fine", 2)]);
    run(&bench);
    assert_eq!(committed(&bench, "n"), ["fine"]);
    send(&bench, &[write("p", "m", "third", 3), broken("p", "m", 4)]);
    run(&bench);
    let held = letters(&bench);
    let again = |record: Sent, name: &'static str, letter: &DeadLetterHeaders| Sent {
        header: Some((name, letter.origin.to_string())),
        ..record
    };
    let mut sent = vec![again(write("p", "m", "first", 10), header::REDRIVE, &held[0])];
    for letter in &held[1..] {
        let content = match letter.input.offset {
            1 => "second",
            3 => "third",
            _ => {
                let skip = Sent { value: None, ..again(write("p", "m", "", 12), header::DLQ_SKIP, letter) };
                sent.push(skip);
                continue;
            }
        };
        sent.push(again(write("p", "m", content, 11), header::REDRIVE, letter));
    }
    sent.push(write("p", "m", "fourth", 13));
    send(&bench, &sent);
    run(&bench);
    let found = bench.verify();
    assert!(found.clean() && found.inputs == 5 + sent.len() as u64, "{found:?}");
    Some(committed(&bench, "m"))
}

/// With `hold_key` the key's records are committed in the order they were written; without it the later
/// ones overtook.
#[test]
fn held_keys_keep_their_order() {
    let Some(held) = redriven("hold", "hold_key") else { return };
    assert_eq!(held, ["first", "second", "third", "fourth"]);
    let Some(passed) = redriven("no-hold", "continue") else { return };
    assert_eq!(passed, ["second", "third", "first", "fourth"], "the control");
}

/// Names that are not UTF-8 only the C client sends.
fn send_with_headers(topic: &str, value: &str, headers: &[(&CStr, Option<&str>)]) {
    use rdkafka::bindings as c;
    use rdkafka::bindings::rd_kafka_vtype_t as v;
    let producer: BaseProducer = client().create().unwrap();
    let topic = CString::new(topic).unwrap();
    // SAFETY: all pointers live until the call returns; the library copies header names and values, and the
    // flag makes it copy the payload.
    let error = unsafe {
        let list = c::rd_kafka_headers_new(headers.len());
        for (name, value) in headers {
            let (at, length) = value.map_or((std::ptr::null(), 0), |v| (v.as_ptr(), v.len()));
            c::rd_kafka_header_add(list, name.as_ptr(), -1, at.cast(), isize::try_from(length).unwrap());
        }
        c::rd_kafka_producev(
            producer.client().native_ptr(),
            v::RD_KAFKA_VTYPE_TOPIC,
            topic.as_ptr(),
            v::RD_KAFKA_VTYPE_PARTITION,
            partition_of(KEY.as_bytes(), UNITS),
            v::RD_KAFKA_VTYPE_MSGFLAGS,
            c::RD_KAFKA_MSG_F_COPY,
            v::RD_KAFKA_VTYPE_KEY,
            KEY.as_ptr(),
            KEY.len(),
            v::RD_KAFKA_VTYPE_VALUE,
            value.as_ptr(),
            value.len(),
            v::RD_KAFKA_VTYPE_HEADERS,
            list,
            v::RD_KAFKA_VTYPE_END,
        )
    };
    assert_eq!(error, c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR);
    producer.flush(Duration::from_secs(30)).unwrap();
}

/// A header whose name is not UTF-8 is a dead letter that keeps the others, and blocks nothing.
#[test]
fn unreadable_header_names_leave_the_others() {
    let Some(bench) = Bench::new("names").map(Bench::without_screen) else { return };
    let value = write("p", "m", "fine", 0).value.unwrap();
    send_with_headers(
        &bench.topic("memory-writes"),
        &value,
        &[(c"before", Some("1")), (c"bad\xff", Some("2")), (c"after", None)],
    );
    send(&bench, &[write("p", "n", "fine", 1)]);
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    let found = letters(&bench);
    assert_eq!(found.len(), 1);
    let wanted: Headers =
        vec![("before".into(), Some(b"1".to_vec())), ("after".into(), None), (header::UNREADABLE.into(), None)];
    assert_eq!((found[0].code.as_str(), &found[0].original), ("invalid_record", &wanted));
    assert_eq!(committed(&bench, "n"), ["fine"]);
    assert!(bench.verify().clean());
}
