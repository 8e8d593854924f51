//! `repartition: auto` against a real Apache Kafka: exactly once, in order, by any key and partitioner.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use memsluice::source::{partition_of, read, watermarks};
use rdkafka::Message;
use rdkafka::message::{Header, Headers, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::support::{self, Bench, Outcome, Run};
use crate::tools;

const INTERNAL: &str = "memsluice-memory-writes-repartition";
const LOGS: &str = "memsluice-retrieval-logs-repartition";
const SOURCE: &[&str] = &["--repartitioned"];
/// Both inputs through internal topics, the sources with counts of their own.
const AUTO: [(&str, &str); 4] = [
    ("memory-writes:    { partitions: 6, key: boundary", "memory-writes:    { partitions: 4, key: original"),
    ("retrieval-logs:   { partitions: 6, key: boundary", "retrieval-logs:   { partitions: 3, key: original"),
    ("schema: memory-write, timestamps: bounded", "schema: memory-write, timestamps: bounded, repartition: auto"),
    ("schema: retrieval-log, timestamps: bounded", "schema: retrieval-log, timestamps: bounded, repartition: auto"),
];

/// Scattered inputs, killed while they are relayed and while they are decided, give each verdict and score
/// that well-placed inputs give without a kill or a repartition.
#[test]
fn auto_through_kill_nine_equals_never() {
    let Some(never) = Bench::new("never") else { return };
    let Some(auto) = Bench::with_topics("auto", &AUTO) else { return };
    let data = support::generated(30_000, 2_000);
    never.load(&data);
    auto.scatter(&data);
    for bench in [&never, &auto] {
        bench.load_honeypots(&data);
    }
    assert_eq!(never.run(Run::until_end()), Outcome::Exit(0));
    let relay_kills = auto.run_with_kills_by(INTERNAL, 30_000, 4);
    assert!(relay_kills >= 2, "the relay was killed only {relay_kills} times");
    let kills = {
        auto.scatter(&data);
        never.load(&data);
        assert_eq!(never.run(Run::until_end()), Outcome::Exit(0));
        auto.run_with_kills(60_000, 5)
    };
    assert!(kills >= 2, "the run was killed only {kills} times");
    let (a, b) = (never.verify(), auto.verify_with(SOURCE));
    assert!(a.clean() && b.clean(), "never {a:?}\nauto {b:?}");
    assert_eq!((a.inputs, b.inputs), (60_000, 60_000));
    // Both copies of a record have coordinates of their own in a scattered source: which comes first in a dump is open.
    let sorted = |mut dump: Vec<String>| {
        dump.sort_unstable();
        dump
    };
    assert_eq!(support::differing_lines(&sorted(a.dump), &sorted(b.dump)), 0);
    assert!(never.readable("attacks") > 0 && never.readable("attacks") == auto.readable("attacks"));
    assert_eq!(auto.readable(INTERNAL), 60_000);
    assert_eq!(auto.readable(LOGS), 4_000);
}

/// The guard goes red: without transactions the same kills double records in the internal topic.
#[test]
fn repartition_without_transactions_goes_red() {
    let Some(mut bench) = Bench::with_topics("auto-red", &AUTO) else { return };
    let data = support::generated(30_000, 500);
    bench.scatter(&data);
    bench.set("MEMSLUICE__SABOTAGE", "transactions_off");
    // A kill between two commits of the offsets doubles; one right behind a commit does not.
    let mut kills = 0;
    for round in 1..=5 {
        kills += bench.run_with_kills_by(INTERNAL, round * 30_000, 4 * round);
        let found = bench.verify_with(SOURCE);
        if found.duplicate > 0 {
            return;
        }
        bench.scatter(&data);
    }
    panic!("the verifier must see what transactions prevent: {kills} kills and nothing double");
}

/// Creates by a CRC32 producer and deletes by a murmur2 producer: each record ends deleted, whether they
/// come while the stream runs or are a backlog.
#[test]
fn a_create_and_a_delete_by_two_partitioners_keep_their_order() {
    let Some(bench) = Bench::with_topics("order", &AUTO).map(Bench::without_screen) else { return };
    let writers = Writers::new(&bench);
    let backlog = writers.create_and_delete(0..150);
    assert!(backlog > 50, "only {backlog} records were split between partitions");
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    let running = bench.spawn(Run::live("one"));
    let live = writers.create_and_delete(150..300);
    bench.wait_for_readable("committed-memory", 600, Duration::from_secs(90));
    assert_eq!(running.terminate(), Outcome::Exit(0));
    let last = bench.last_of_each_key("committed-memory");
    let alive: Vec<_> = last.iter().filter(|(_, deleted)| !**deleted).map(|(key, _)| key).collect();
    assert!(alive.is_empty(), "{} of {} are alive: {alive:?}", alive.len(), last.len());
    assert_eq!(last.len(), 300);
    let found = bench.verify_with(SOURCE);
    assert!(found.clean() && found.inputs == 600, "{found:?}");
    eprintln!("split between partitions: {backlog} of 150 in the backlog, {live} of 150 live");
}

/// The guard goes red: without the merge some deletes come before their creates.
#[test]
fn repartition_without_the_merge_goes_red() {
    let Some(mut bench) = Bench::with_topics("order-red", &AUTO).map(Bench::without_screen) else { return };
    bench.set("MEMSLUICE__SABOTAGE", "repartition_merge_off");
    Writers::new(&bench).create_and_delete(0..150);
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    let alive = bench.last_of_each_key("committed-memory").values().filter(|deleted| !**deleted).count();
    assert!(alive > 0, "the test of the order must see what the merge prevents");
}

/// The leader of both flows is killed under load: the other member takes over, nothing is lost or doubled.
#[test]
fn another_member_takes_over_a_killed_leader() {
    let Some(mut bench) = Bench::with_topics("takeover", &AUTO) else { return };
    bench.replace_in_topology("session_timeout: 30s", "session_timeout: 12s");
    bench.replace_in_topology("transaction_timeout: 10s", "transaction_timeout: 2s");
    let data = support::generated(10_000, 500);
    bench.scatter(&data);
    let first = bench.spawn(Run::live("first"));
    first.wait_for_log("leads the repartition", Duration::from_secs(60));
    let second = bench.spawn(Run::live("second"));
    std::thread::scope(|scope| {
        scope.spawn(|| (0..10).for_each(|_| bench.scatter(&data)));
        bench.wait_for_committed(5_000, Duration::from_secs(90));
        first.kill();
    });
    second.wait_for_log("leads the repartition", Duration::from_secs(60));
    bench.wait_for_readable(INTERNAL, 110_000, Duration::from_secs(120));
    bench.wait_for_readable("decisions", 110_000, Duration::from_secs(120));
    assert_eq!(second.terminate(), Outcome::Exit(0));
    let found = bench.verify_with(SOURCE);
    assert!(found.clean() && found.inputs == 110_000, "{found:?}");
}

/// Whatever a producer sends: what can't be decided is a dead letter with the bytes, key, headers and
/// coordinates of its source record, and what follows it is decided.
#[test]
fn garbage_keeps_its_coordinates() {
    let Some(bench) = Bench::with_topics("garbage", &AUTO) else { return };
    let writers = Writers::new(&bench);
    let good = r#"{"tenant":"acme","store":"s","record_id":"r","op":"create","content":"x","origin":"user_input"}"#;
    let large =
        format!(r#"{{"tenant":"acme","store":"s","record_id":"r","op":"create","content":"{}"}}"#, "x".repeat(1 << 20));
    let values: [Option<&[u8]>; 7] = [
        Some(good.as_bytes()),
        Some(b"{broken"),
        Some(b""),
        Some(&[0xff, 0xfe]),
        Some(br#"{"tenant":"a/b","store":"s","record_id":"r","op":"create","content":"x"}"#),
        Some(&large.as_bytes()[..900_000]),
        None,
    ];
    let keys: [Option<&[u8]>; 4] = [None, Some(b""), Some(&[0xff, 0x00]), Some(b"acme/s")];
    let forged = OwnedHeaders::new()
        .insert(Header { key: "memsluice-source-stamp", value: Some("other/0/0/0/=k") })
        .insert(Header { key: "memsluice-record-id", value: Some("") })
        .insert(Header::<&str> { key: "mine", value: None });
    let mut sent = 0;
    for (partition, value) in (0..).zip(values) {
        for key in keys {
            for headers in [None, Some(forged.clone())] {
                writers.any("memory-writes", partition % 4, key, value, headers.clone(), None);
                writers.any("memory-writes", partition % 4, key, value, headers, Some(0));
                sent += 2;
            }
        }
    }
    writers.any("retrieval-logs", 1, Some(b"k"), Some(b"{}"), Some(forged), None);
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    let found = bench.verify_with(SOURCE);
    assert!(found.clean() && found.inputs == sent, "{found:?}");
    let sources: BTreeMap<_, _> =
        ["memory-writes", "retrieval-logs"].iter().flat_map(|t| bench.records(t)).map(|r| (r.at.clone(), r)).collect();
    let letters = bench.records("dead-letters");
    assert_eq!(letters.len() as u64, sent - 16 + 1, "all but the good ones, and the retrieval");
    for letter in &letters {
        let text = |name: &str| {
            let value = letter.headers.iter().rev().find(|(n, _)| n == name).and_then(|(_, v)| v.clone());
            String::from_utf8(value.unwrap_or_default()).unwrap()
        };
        let number = |name| text(name).parse::<i64>().unwrap();
        let at = (
            text("__streams.errors.topic"),
            i32::try_from(number("__streams.errors.partition")).unwrap(),
            number("__streams.errors.offset"),
        );
        let source = &sources[&at];
        assert_eq!(
            (&letter.value, letter.key.clone().unwrap_or_default()),
            (&source.value, source.key.clone().unwrap_or_default())
        );
        let kept = source.headers.iter().map(|(n, v)| (format!("memsluice-original.{n}"), v.clone()));
        assert!(letter.headers.starts_with(&kept.collect::<Vec<_>>()), "{at:?}: {:?}", letter.headers);
        assert!(!text("memsluice-error-code").contains("misplaced"), "{at:?}");
    }
    for record in bench.records("committed-memory") {
        assert_eq!(record.at.1, partition_of(b"acme/s", 6));
        assert!(record.headers.iter().all(|(n, _)| n != "memsluice-source-stamp"));
    }
}

/// Without a repartition a misplaced record is refused, as ever.
#[test]
fn never_refuses_misplaced_records() {
    let Some(bench) = Bench::new("strict") else { return };
    let data = support::generated(600, 1);
    bench.scatter(&data);
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    let codes = bench.dead_letter_codes();
    assert!(codes.len() > 300 && codes.iter().all(|c| c == "misplaced_partition"), "{codes:?}");
}

/// An input that is switched to auto goes on where the units had read it.
#[test]
fn a_switch_to_auto_reads_nothing_twice() {
    let Some(mut bench) = Bench::new("switch") else { return };
    let data = support::generated(2_000, 100);
    bench.load(&data);
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    bench.replace_topics(
        "schema: memory-write, timestamps: bounded",
        "schema: memory-write, timestamps: bounded, repartition: auto",
    );
    bench.refused(3, "topic_missing");
    bench.cli_ok(&["topology", "apply"]);
    bench.cli_ok(&["topology", "check", "--live"]);
    tools::wait_for("the session of the member before", Duration::from_secs(60), || {
        bench.command(&["upgrade", "begin", "--execute"]).0 == Some(0)
    });
    bench.load_more(&data, 500);
    assert_eq!(bench.totals(Run::until_end())["inputs"], 500);
    let found = bench.verify_with(SOURCE);
    assert!(found.clean() && found.inputs == 2_500, "{found:?}");
    // The way back would read again what the units have decided.
    bench.replace_topics(", repartition: auto", "");
    bench.refused(2, "topology_incompatible");
}

/// A source that changed under the topology stops the process.
#[test]
fn a_source_with_other_partitions_is_refused() {
    let Some(mut bench) = Bench::with_topics("other-count", &AUTO) else { return };
    bench.replace_topics("memory-writes:    { partitions: 4", "memory-writes:    { partitions: 5");
    bench.refused(3, "partition_count_mismatch");
}

type At = (String, i32, i64);

/// A record as it stands in a topic.
struct Stored {
    at: At,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Bench {
    fn partitions(&self, topic: &str) -> i32 {
        use rdkafka::consumer::Consumer;
        let metadata = self.reader().fetch_metadata(Some(topic), Duration::from_secs(10)).unwrap();
        i32::try_from(metadata.topics()[0].partitions().len()).unwrap()
    }

    pub(crate) fn each(&self, role: &str, mut each: impl FnMut(&rdkafka::message::BorrowedMessage<'_>)) {
        let (reader, topic) = (self.reader(), self.topic(role));
        for p in 0..self.partitions(&topic) {
            let bounds = watermarks(&reader, &topic, p).unwrap();
            if bounds.high > bounds.low {
                read(&reader, &topic, p, bounds.low, |m| {
                    m.into_iter().for_each(&mut each);
                    Ok(std::ops::ControlFlow::Continue(()))
                })
                .unwrap();
            }
        }
    }

    pub(crate) fn readable(&self, role: &str) -> u64 {
        let mut count = 0;
        self.each(role, |_| count += 1);
        count
    }

    fn wait_for_readable(&self, role: &str, count: u64, limit: Duration) {
        let until = Instant::now() + limit;
        while self.count(role) < count || self.readable(role) < count {
            assert!(Instant::now() < until, "{role} has {} of {count} records", self.readable(role));
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    fn records(&self, role: &str) -> Vec<Stored> {
        let (topic, mut all) = (self.topic(role), Vec::new());
        self.each(role, |m| {
            let headers =
                m.headers().map(|h| h.iter().map(|x| (x.key.to_owned(), x.value.map(<[u8]>::to_vec))).collect());
            all.push(Stored {
                at: (topic.clone(), m.partition(), m.offset()),
                key: m.key().map(<[u8]>::to_vec),
                value: m.payload().map(<[u8]>::to_vec),
                headers: headers.unwrap_or_default(),
            });
        });
        all
    }

    /// Whether the last record of each key is a tombstone.
    fn last_of_each_key(&self, role: &str) -> BTreeMap<String, bool> {
        let mut last = BTreeMap::new();
        self.each(role, |m| {
            let key = String::from_utf8(m.key().unwrap().to_vec()).unwrap();
            last.insert(key, m.payload().is_none());
        });
        last
    }
}

/// Producers of two languages' defaults.
struct Writers {
    crc32: BaseProducer,
    murmur2: BaseProducer,
    prefix: String,
}

impl Writers {
    fn new(bench: &Bench) -> Self {
        let make = |partitioner: &str| {
            let mut config = bench.client();
            config
                .set("partitioner", partitioner)
                .set("acks", "all")
                .set("linger.ms", "0")
                .set("message.max.bytes", "2000000");
            config.create().unwrap()
        };
        Self { crc32: make("consistent"), murmur2: make("murmur2"), prefix: bench.topic("") }
    }

    fn sent(producer: &BaseProducer) {
        while producer.in_flight_count() > 0 {
            producer.poll(Duration::from_millis(1));
        }
    }

    /// Each create is acknowledged before its delete is sent; how many went to two partitions.
    fn create_and_delete(&self, ids: std::ops::Range<u32>) -> usize {
        let topic = format!("{}memory-writes", self.prefix);
        let mut split = 0;
        for id in ids {
            let key = format!("user-{id}");
            for (producer, op) in [(&self.crc32, "create"), (&self.murmur2, "delete")] {
                let value = format!(
                    r#"{{"tenant":"acme","store":"s{}","record_id":"r{id}","op":"{op}","content":"x","origin":"user_input"}}"#,
                    id % 5
                );
                producer.send(BaseRecord::to(&topic).key(&key).payload(&value)).map_err(|(e, _)| e).unwrap();
                Self::sent(producer);
            }
            split +=
                usize::from(crc32_of(key.as_bytes()) % 4 != u32::try_from(partition_of(key.as_bytes(), 4)).unwrap());
        }
        split
    }

    fn any(
        &self,
        role: &str,
        partition: i32,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: Option<OwnedHeaders>,
        time: Option<i64>,
    ) {
        let topic = format!("{}{role}", self.prefix);
        let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(&topic).partition(partition);
        record = key.into_iter().fold(record, BaseRecord::key);
        record = value.into_iter().fold(record, BaseRecord::payload);
        record = headers.into_iter().fold(record, BaseRecord::headers);
        record = time.into_iter().fold(record, BaseRecord::timestamp);
        self.murmur2.send(record).map_err(|(e, _)| e).unwrap();
        Self::sent(&self.murmur2);
    }
}

/// CRC-32 (IEEE), as librdkafka's `consistent` partitioner uses it.
fn crc32_of(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |c, _| if c & 1 == 1 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 })
    })
}
