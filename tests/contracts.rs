//! What other programs may rely on: schemas, canonical form, findings, the topology's text, ids.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memsluice::calibrate::{Samples, fit_boundary};
use memsluice::config::{Backend, Encoder, Secret};
use memsluice::decode::{self, Rules};
use memsluice::embed::Embedder;
use memsluice::error::{Action, Code};
use memsluice::pipeline::{Engine, EngineSettings, Registry};
use memsluice::policy::Policy;
use memsluice::scan::{ScanInput, scan};
use memsluice::schema::{
    Activation, Attack, Boundary, Calibration, Certificate, ChainLink, CharacterFacts, ConformalFacts, ContentFacts,
    Copied, DeadLetterStub, Decision, DecisionBody, DecisionKind, Honeypot, HoneypotSet, IdKind, Ids, InputRef,
    MemsadFacts, MemsadStatus, Meta, PolicyFacts, RawRetrieval, RawWrite, ResetFacts, RetractionFacts, Review,
    RollingFacts, ScreenCalibration, ScreenFacts, ScreenStatus, ShareFacts, SourceFacts, Tail, Tally, Verdict,
    Versions, WindowFacts, canonical, document, names,
};
use memsluice::sink::Output;
use memsluice::source::{At, Fetched};
use memsluice::topology::{Form, Role, Topology, describe, dot};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Example files of a record, in order of name.
fn examples(which: &str, name: &str) -> Vec<PathBuf> {
    let folder = root().join("schemas/examples").join(which).join(name);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

// ---- schemas ----

/// The published files are what the types say: `memsluice schema print NAME > schemas/NAME/v1.json`.
#[test]
fn schema_files_are_fresh_and_valid() {
    for name in names() {
        let path = root().join("schemas").join(name).join("v1.json");
        let text = fs::read_to_string(&path).unwrap();
        let made = document(name).unwrap();
        let wanted = serde_json::to_string_pretty(&made).unwrap() + "\n";
        assert!(text == wanted, "{} is stale: memsluice schema print {name} > schemas/{name}/v1.json", path.display());
        assert_eq!(made["$schema"], "https://json-schema.org/draft/2020-12/schema");
        if let Err(e) = jsonschema::draft202012::meta::validate(&made) {
            panic!("{name}: {e}");
        }
    }
    let folders: BTreeSet<String> = fs::read_dir(root().join("schemas"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n != "examples")
        .collect();
    assert_eq!(folders, names().iter().map(|n| (*n).to_owned()).collect());
}

/// Each schema that a topic names is there.
#[test]
fn topics_name_known_schemas() {
    let topology = Topology::sample().unwrap();
    for topic in topology.topics.values() {
        if let Some(schema) = &topic.schema {
            assert!(document(schema).is_some(), "{} names the schema {schema}", topic.name);
        }
    }
}

fn fetched(role: Role, value: &[u8]) -> Fetched {
    let at = At { generation: 0, role, partition: 0, offset: 0, timestamp: 0 };
    Fetched { at, key: None, value: Some(value.to_vec()), headers: Vec::new() }
}

/// With the default encoder and the limits of the sample topology.
fn rules() -> Rules {
    let max_bytes = Topology::sample().unwrap().main.limits.max_record_bytes;
    Rules { max_bytes, dimension: Encoder::default().dimension, units: None }
}

fn code_of(e: &serde_json::Error) -> &'static str {
    match e.classify() {
        serde_json::error::Category::Data => Code::InvalidRecord.name(),
        _ => Code::InvalidJson.name(),
    }
}

/// Through the type and back.
fn typed<T: DeserializeOwned + Serialize>(bytes: &[u8]) -> Result<Value, &'static str> {
    let value: T = serde_json::from_slice(bytes).map_err(|e| code_of(&e))?;
    Ok(serde_json::to_value(&value).unwrap())
}

/// Takes a record the way the program takes it: the value of its type as JSON, or the error code.
fn take(name: &str, bytes: &[u8]) -> Result<Value, &'static str> {
    match name {
        "memory-write" | "committed-memory" | "quarantine" => {
            decode::write(&fetched(Role::MemoryWrites, bytes), &rules()).map_err(|e| e.code().name())?;
            let raw: RawWrite<'_> = serde_json::from_slice(bytes).unwrap();
            Ok(serde_json::to_value(&raw).unwrap())
        }
        "retrieval-log" => {
            decode::retrieval(&fetched(Role::RetrievalLogs, bytes), &rules()).map_err(|e| e.code().name())?;
            let raw: RawRetrieval<'_> = serde_json::from_slice(bytes).unwrap();
            Ok(serde_json::to_value(&raw).unwrap())
        }
        "honeypot" => {
            // The topic carries sets; the schema is that of a member, as in the registry's file.
            let set = format!(
                r#"{{"scope": "acme/support", "version": 1, "honeypots": [{}]}}"#,
                String::from_utf8_lossy(bytes)
            );
            let mut registry = Registry::default();
            registry
                .apply(Role::Honeypots, b"honeypots/acme/support@1", Some(set.as_bytes()))
                .map_err(|e| e.code().name())?;
            assert!(registry.honeypots("acme/support", 1).is_some());
            typed::<Honeypot>(bytes)
        }
        "calibration" => {
            let known: Option<Calibration> = serde_json::from_slice(bytes).ok();
            let key = known.as_ref().map_or("memsad/*@1".to_owned(), |c| format!("memsad/{}@{}", c.scope, c.version));
            let mut registry = Registry::default();
            registry.apply(Role::Calibrations, key.as_bytes(), Some(bytes)).map_err(|e| e.code().name())?;
            let known = known.unwrap();
            let found = registry.calibration(&known.scope, known.version).map(|c| &c.record);
            assert_eq!(found, Some(&known));
            typed::<Calibration>(bytes)
        }
        "screen-calibration" => {
            let known: Option<ScreenCalibration> = serde_json::from_slice(bytes).ok();
            let key = known.as_ref().map_or("screen/*@1".to_owned(), |c| format!("screen/{}@{}", c.scope, c.version));
            let mut registry = Registry::default();
            registry.apply(Role::Calibrations, key.as_bytes(), Some(bytes)).map_err(|e| e.code().name())?;
            let known = known.unwrap();
            assert!(registry.screening(&known.scope, known.version).is_some());
            typed::<ScreenCalibration>(bytes)
        }
        "meta" => typed::<Meta>(bytes),
        "review" => typed::<Review>(bytes),
        "decision" => typed::<Decision>(bytes),
        "attack" => typed::<Attack>(bytes),
        "dead-letter" => typed::<DeadLetterStub>(bytes),
        _ => panic!("no type for {name}"),
    }
}

/// Schema and type agree: what one accepts the other does, and what the type writes the schema accepts.
#[test]
fn valid_examples_pass_schema_and_type() {
    for name in names() {
        let validator = jsonschema::draft202012::new(&document(name).unwrap()).unwrap();
        let check = |value: &Value, what: &str| {
            let errors: Vec<String> =
                validator.iter_errors(value).map(|e| format!("{}: {e}", e.instance_path())).collect();
            assert!(errors.is_empty(), "{what}: {errors:?}");
        };
        let files = examples("valid", name);
        assert!(files.len() >= 2, "{name} has {} valid examples", files.len());
        for file in files {
            let bytes = fs::read(&file).unwrap();
            let value: Value = serde_json::from_slice(&bytes).unwrap();
            check(&value, &file.display().to_string());
            let written = take(name, &bytes).unwrap_or_else(|code| panic!("{}: {code}", file.display()));
            check(&written, &format!("{}, written again", file.display()));
            let again = take(name, &serde_json::to_vec(&written).unwrap()).unwrap();
            assert_eq!(again, written, "{}", file.display());
            if matches!(*name, "decision" | "attack" | "dead-letter" | "calibration" | "screen-calibration") {
                assert_eq!(written, value, "{}: the type loses something", file.display());
            }
        }
    }
}

/// `<error_code>[-detail].json` is refused with that code.
#[test]
fn invalid_examples_are_refused_with_their_code() {
    let mut seen = BTreeSet::new();
    for name in names() {
        let files = examples("invalid", name);
        assert!(files.len() >= 2, "{name} has {} invalid examples", files.len());
        for file in files {
            let stem = file.file_stem().unwrap().to_str().unwrap();
            let wanted = stem.split_once('-').map_or(stem, |(code, _)| code);
            assert!(Code::ALL.iter().any(|c| c.name() == wanted), "{stem} names no error code");
            match take(name, &fs::read(&file).unwrap()) {
                Err(code) => assert_eq!(code, wanted, "{}", file.display()),
                Ok(_) => panic!("{} was accepted", file.display()),
            }
            seen.insert(wanted.to_owned());
        }
    }
    // What isn't a matter of the value alone: size, key, headers, partition, output, what came before.
    let elsewhere = [
        Code::RecordTooLarge,
        Code::TombstoneWithoutRecord,
        Code::MisplacedPartition,
        Code::OutputTooLarge,
        Code::SourceIsolated,
        Code::KeyHeld,
        // Of other shapes: tests/adapters.rs.
        Code::ShapeAmbiguous,
        Code::ShapeIncomplete,
        Code::ShapeUnknown,
        Code::TooManyFacts,
    ];
    for code in Code::ALL.iter().filter(|c| c.action() == Action::DeadLetter && !elsewhere.contains(c)) {
        assert!(seen.contains(code.name()), "{} has no example", code.name());
    }
}

/// The size is looked at before the JSON.
#[test]
fn a_value_above_the_limit_is_too_large_whatever_it_holds() {
    let rules = rules();
    let e = decode::write(&fetched(Role::MemoryWrites, &vec![b'{'; rules.max_bytes + 1]), &rules).unwrap_err();
    assert_eq!(e.code(), Code::RecordTooLarge);
    let e = decode::write(&fetched(Role::MemoryWrites, &vec![b'{'; rules.max_bytes]), &rules).unwrap_err();
    assert_eq!(e.code(), Code::InvalidJson);
}

// ---- canonical form ----

/// The body as an independent implementation of RFC 8785 writes it.
fn jcs(body: &impl Serialize) -> String {
    serde_json_canonicalizer::to_string(body).unwrap()
}

fn ours(body: &DecisionBody) -> String {
    String::from_utf8(canonical(body)).unwrap()
}

/// The chain's hash covers the canonical body: anyone can check it with any JCS library.
#[test]
fn example_decisions_are_canonical_and_chained() {
    for file in examples("valid", "decision") {
        let text = fs::read_to_string(&file).unwrap();
        let decision: Decision = serde_json::from_str(&text).unwrap();
        let text_of_body = ours(&decision.body);
        assert_eq!(text_of_body, jcs(&decision.body), "{}", file.display());
        let untyped: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(text_of_body, jcs(&untyped["body"]), "{}", file.display());
        let prev: [u8; 32] = hex::decode(&decision.chain.prev_hash).unwrap().try_into().unwrap();
        let (link, _) = ChainLink::next(decision.chain.seq, &prev, text_of_body.as_bytes());
        assert_eq!(link, decision.chain, "{}", file.display());
    }
}

/// Quotes, backslashes, controls, separators, astral characters, noncharacters.
fn odd() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        any::<char>().prop_map(|c| c.to_string()),
        (0_u8..0x20).prop_map(|b| char::from(b).to_string()),
        prop::sample::select(vec![
            "\"",
            "\\",
            "/",
            "\u{7f}",
            "\u{85}",
            "\u{2028}",
            "\u{2029}",
            "\u{feff}",
            "\u{ffff}",
            "😀",
            "\u{10ffff}",
            "e\u{301}",
            "</script>",
            "\\u0000",
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
}

/// JCS numbers are doubles: integers are exact up to 2^53, far above any offset or score.
fn integer() -> impl Strategy<Value = i64> {
    prop_oneof![-9..9_i64, -(1_i64 << 53)..=1 << 53]
}

fn hardened() -> impl Strategy<Value = (Certificate, ConformalFacts, WindowFacts)> {
    let tail = || (any::<u32>(), prop::option::of(integer())).prop_map(|(rank, threshold)| Tail { rank, threshold });
    let conformal = (tail(), tail(), tail(), any::<u32>(), any::<u32>());
    let window = (odd(), any::<u32>(), 0..=1_u64 << 53);
    let counts = (any::<u32>(), prop::option::of(any::<u32>()), any::<u32>(), any::<u32>());
    let rest = (prop::option::of(integer()), prop::option::of(any::<bool>()), prop::option::of(0..=1_u64 << 53));
    (conformal, window, counts, rest).prop_map(
        |((comb, max, mean, level, of), (digest, excluded, version), counts, (nearest, paper_condition, radius))| {
            let (contrast, coverage, lipschitz, stored) = counts;
            (
                Certificate { contrast, coverage, k: 5, lipschitz, nearest, paper_condition, radius, stored },
                ConformalFacts { comb, level, max, mean, of },
                WindowFacts { digest, excluded, version },
            )
        },
    )
}

fn memsad() -> impl Strategy<Value = MemsadFacts> {
    let status = prop::sample::select(vec![MemsadStatus::Enforced, MemsadStatus::Shadow, MemsadStatus::Uncalibrated]);
    let scores = (integer(), integer(), integer(), prop::option::of(integer()));
    let hardened = prop::option::of(hardened());
    (prop::option::of(odd()), any::<bool>(), any::<u32>(), scores, odd(), status, hardened).prop_map(
        |(calibration, flagged, m, (s_comb, s_max, s_mean, threshold), statistic, status, hardened)| {
            let (certificate, conformal, window) =
                hardened.map_or((None, None, None), |(a, b, c)| (Some(a), Some(b), Some(c)));
            MemsadFacts {
                calibration,
                certificate,
                conformal,
                flagged,
                m,
                s_comb,
                s_max,
                s_mean,
                statistic,
                status,
                threshold,
                window,
            }
        },
    )
}

prop_compose! {
    fn share()(
        counts in prop::collection::vec(any::<u32>(), 4),
        alarm in prop::option::of(odd()),
        of in odd(),
        (based, raised) in any::<(bool, bool)>(),
    ) -> ShareFacts {
        let tally = |i: usize| Tally { hits: counts[i], n: counts[i + 1] };
        ShareFacts { alarm, base: based.then(|| tally(0)), block: tally(2), of, raised }
    }
}

prop_compose! {
    fn screen()(
        (b, hidden, j, unseen_calls, unseen_sinks) in any::<(u32, u32, u32, u32, u32)>(),
        (c, d, p) in (0..=1_u64 << 53, 0..=1_u64 << 53, 0..=1_u64 << 53),
        (of, rank) in any::<(Option<u32>, Option<u32>)>(),
        c_counts in any::<bool>(),
        calibration in prop::option::of(odd()),
        characters in prop::option::of((0_u32..20_000, 0_u32..9, 21_u32..66, 1_u32..66)
            .prop_map(|(cost, length, of, rank)| CharacterFacts { cost, length, of, rank })),
        (classes, floors) in (prop::collection::vec(odd(), 0..3), prop::collection::vec(odd(), 0..3)),
        (form, lexicon) in (odd(), odd()),
        status in prop::sample::select(vec![ScreenStatus::Enforced, ScreenStatus::Shadow, ScreenStatus::Uncalibrated]),
        verdict in prop::sample::select(vec![Verdict::Allow, Verdict::Quarantine, Verdict::Block]),
        share in prop::option::of(share()),
    ) -> ScreenFacts {
        ScreenFacts {
            b, c, characters, c_counts, calibration, classes, d, floors, form, hidden, j, lexicon, of, p, rank, share, status,
            unseen_calls, unseen_sinks, verdict,
        }
    }
}

prop_compose! {
    fn facts()(
        texts in prop::collection::vec(odd(), 10),
        maybe in prop::collection::vec(prop::option::of(odd()), 8),
        lists in prop::collection::vec(prop::collection::vec(odd(), 0..3), 3),
        present in prop::collection::vec(any::<bool>(), 5),
        numbers in prop::collection::vec(0..=1_u64 << 53, 4),
        partition in any::<i32>(),
    ) -> DecisionBody {
        let t = |i: usize| texts[i].clone();
        let m = |i: usize| maybe[i].clone();
        let number = |i: usize| i64::try_from(numbers[i]).unwrap();
        DecisionBody {
            activation: present[0].then(|| Activation {
                rolling: present[3].then(|| RollingFacts {
                    before: present[4].then(|| number(1)),
                    calibration: t(5),
                    copy: if present[1] { Copied::Published } else { Copied::TooLarge },
                    drift: numbers[1],
                    ks: 1,
                    ks_new: u32::MAX,
                    length: 0,
                    n: 512,
                    outvoted: 2,
                    sigma: numbers[2],
                    threshold: present[2].then(|| -number(2)),
                }),
                version: numbers[0],
                what: t(0),
            }),
            content: present[1].then(|| ContentFacts { bytes: numbers[1], chars: numbers[2], hmac: t(1), key_id: t(2) }),
            child: present[3].then_some(3),
            error: m(0),
            expires_at: m(1),
            facts: present[4].then_some(2),
            flags: lists[0].clone(),
            id: t(3),
            input: present[2].then(|| InputRef { offset: number(3), partition, topic: t(4) }),
            input_vector: BTreeMap::new(),
            kind: if present[0] { DecisionKind::Activation } else { DecisionKind::Decision },
            memsad: None,
            op: m(2),
            policy: present[3].then(|| PolicyFacts { rule: m(3), shadow: lists[1].clone() }),
            reasons: lists[2].clone(),
            record_id: m(4),
            reset: present[1].then(|| ResetFacts {
                before: BTreeMap::from([("a".to_owned(), 1)]),
                outputs: BTreeMap::from([("b".to_owned(), 2), ("a".to_owned(), 3)]),
            }),
            retraction: present[2].then(|| RetractionFacts {
                action: t(0),
                decision: t(1),
                input: InputRef { offset: number(1), partition, topic: t(2) },
            }),
            screen: None,
            source: present[4].then(|| SourceFacts {
                basis: t(5),
                origin: t(6),
                principal: m(5),
                session_id: m(6),
                trust: present[0].then_some(2),
            }),
            store: m(7),
            tenant: m(0),
            time: t(7),
            verdict: None,
            versions: Versions { config_set: t(8), encoder: t(9), policy: t(0), program: t(1), topology: t(2) }.into(),
        }
    }
}

prop_compose! {
    fn body()(
        facts in facts(),
        memsad in prop::option::of(memsad()),
        screen in prop::option::of(screen()),
        // Topic names are ASCII, so the map's byte order is the order of RFC 8785.
        input_vector in prop::collection::btree_map("[A-Za-z0-9._-]{1,12}", integer(), 0..4),
        verdict in prop::option::of(prop::sample::select(vec![
            Verdict::Allow, Verdict::Redact, Verdict::Quarantine, Verdict::Block, Verdict::DeadLetter,
        ])),
    ) -> DecisionBody {
        DecisionBody { memsad, screen, input_vector, verdict, ..facts }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_body_is_canonical(body in body()) {
        let text = ours(&body);
        prop_assert_eq!(&text, &jcs(&body));
        prop_assert_eq!(serde_json::from_str::<DecisionBody>(&text).unwrap(), body);
    }
}

// ---- findings and content ----

/// In every content and query of the run below, at both ends and in the middle.
const MARKER: &str = "zqmarker7f3a";

/// The demo's records with the marker in each text, some broken records, one record of another tenant
/// and a honeypot whose write is held.
struct Marked {
    folder: tempfile::TempDir,
    honeypots: Vec<Honeypot>,
}

impl Marked {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let demo = root().join("examples/demo");
        for (file, field) in
            [("writes.jsonl", "content"), ("calibrate.jsonl", "content"), ("retrievals.jsonl", "query")]
        {
            let marked: String = lines(&demo.join(file)).map(|record| format!("{}\n", mark(record, field))).collect();
            fs::write(folder.path().join(file), marked).unwrap();
        }
        let append = |file: &str, more: String| {
            let path = folder.path().join(file);
            fs::write(&path, fs::read_to_string(&path).unwrap() + &more).unwrap();
        };
        let broken = fs::read_to_string(demo.join("malformed.txt")).unwrap().replace("The ", &format!("The {MARKER} "));
        let held = json!({"tenant": "acme", "store": "support", "record_id": "m-trap", "op": "create",
            "content": MARKER, "origin": "external", "principal": "u-1", "created_at": "2026-11-28T11:59:59Z"});
        append("writes.jsonl", format!("{broken}\n{{\"content\": \"{MARKER}\", \n{held}\n"));
        let foreign = json!({"tenant": "acme", "store": "support", "event_id": "r-foreign", "session_id": "s-foreign",
            "principal": "u-1", "query": MARKER, "results": [{"id": "n-1", "tenant": "globex"}],
            "at": "2026-11-28T11:59:58Z"});
        append("retrievals.jsonl", format!("{foreign}\n"));
        let mut honeypots: Vec<Honeypot> =
            lines(&demo.join("honeypots.jsonl")).map(|h| serde_json::from_value(h).unwrap()).collect();
        honeypots.push(Honeypot { record_id: "m-trap".into(), honeypot_id: "hp-held".into(), ..honeypots[0].clone() });
        Self { folder, honeypots }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Every output of the write and retrieval paths.
    fn run(&self) -> Vec<Output> {
        let settings = Encoder { backend: Backend::Hash, ..Encoder::default() };
        let embedder = Embedder::start(&settings).unwrap();
        // A form that needs no more writes than the demo has.
        let mut topology = Topology::sample().unwrap();
        topology.main.memsad.form = Form::Reference;
        let topology = Arc::new(topology);
        let input = ScanInput { writes: vec![self.file("writes.jsonl")], queries: vec![self.file("retrievals.jsonl")] };
        let samples = Samples::read(&[self.file("calibrate.jsonl")], &input.queries, &[], settings.dimension).unwrap();
        let mut registry = Registry::default();
        for boundary in samples.writes.keys() {
            let fitted = fit_boundary(&samples, boundary, 1, &topology, &embedder, settings.backend, || ()).unwrap();
            registry.activate(format!("memsad/{}", fitted.scope), 1);
            registry.add_calibration(fitted).unwrap();
        }
        let set = HoneypotSet { scope: "acme/support".into(), version: 1, honeypots: self.honeypots.clone() };
        registry.add_honeypots(set).unwrap();
        registry.activate("honeypots/acme/support".into(), 1);
        let engine = Engine::new(EngineSettings {
            topology,
            policy: Policy::sample().unwrap(),
            secret: Secret::new(&[7; 32]).unwrap(),
            encoder: embedder.identity().to_owned(),
            dimension: settings.dimension,
            partitioned: true,
        })
        .unwrap();
        let mut outputs = Vec::new();
        let each = |o: &Output| {
            outputs.push(o.clone());
            Ok(())
        };
        scan(&input, &engine, &embedder, &registry, each, |_| ()).unwrap();
        outputs
    }
}

fn lines(path: &Path) -> impl Iterator<Item = Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect::<Vec<Value>>().into_iter()
}

/// Puts the marker into a text field. A producer's vector would say nothing about the marker.
fn mark(mut record: Value, field: &str) -> Value {
    if let Some(text) = record.get(field).and_then(Value::as_str) {
        let middle = (text.len() / 2..).find(|i| text.is_char_boundary(*i)).unwrap();
        record[field] = format!("{MARKER} {} {MARKER} {} {MARKER}", &text[..middle], &text[middle..]).into();
    }
    record
}

/// Key, value and headers as one text, in lower case.
fn visible(o: &Output) -> String {
    let mut text = String::from_utf8_lossy(&o.key).into_owned();
    text.push_str(&String::from_utf8_lossy(o.value.as_deref().unwrap_or_default()));
    for (name, value) in &o.headers {
        text.push_str(&format!("\n{name}: {}", String::from_utf8_lossy(value.as_deref().unwrap_or_default())));
    }
    text.to_lowercase()
}

#[test]
fn outputs_hold_no_content_and_tell_no_honeypot() {
    let marked = Marked::new();
    let outputs = marked.run();
    let of = |role: Role| outputs.iter().filter(move |o| o.role == role);
    for role in [Role::CommittedMemory, Role::Quarantine, Role::DeadLetters] {
        assert!(of(role).any(|o| visible(o).contains(MARKER)), "the run is too tame: no marker in {role:?}");
    }
    for o in outputs.iter().filter(|o| !matches!(o.role, Role::CommittedMemory | Role::Quarantine | Role::DeadLetters))
    {
        assert!(matches!(o.role, Role::Decisions | Role::Attacks), "an output of {:?}", o.role);
        assert!(!visible(o).contains(MARKER), "content in {:?}: {}", o.role, visible(o));
    }
    let attacks: Vec<Attack> =
        of(Role::Attacks).map(|o| serde_json::from_slice(o.value.as_deref().unwrap()).unwrap()).collect();
    for kind in ["memory-poisoning", "memory-extraction", "cross-tenant-retrieval"] {
        assert!(attacks.iter().any(|a| a.finding_info.types == [kind]), "the run is too tame: no finding of {kind}");
    }
    assert!(attacks.iter().any(|a| a.unmapped.reasons.iter().any(|r| r.starts_with("memsad:"))), "no MEMSAD finding");
    attacks.iter().for_each(check_finding);
    for h in &marked.honeypots {
        let own = format!("{}/{}/{}", h.tenant, h.store, h.record_id);
        let mut own_decisions = 0;
        for o in of(Role::Decisions).chain(of(Role::Attacks)).filter(|o| visible(o).contains(&h.record_id)) {
            assert_eq!(o.role, Role::Decisions, "{} in a finding", h.record_id);
            assert_eq!(String::from_utf8_lossy(&o.key), own, "{} in another record's decision", h.record_id);
            assert!(!visible(o).contains(&h.honeypot_id), "{} beside its record id", h.honeypot_id);
            own_decisions += 1;
        }
        assert!(own_decisions > 0, "{} has no decision", h.record_id);
        for o in outputs.iter().filter(|o| o.role != Role::Attacks) {
            assert!(!visible(o).contains(&h.honeypot_id), "{} in {:?}", h.honeypot_id, o.role);
        }
    }
}

/// The decision on a honeypot's write has the fields and words of any other.
#[test]
fn a_honeypots_decision_looks_like_any_other() {
    let marked = Marked::new();
    let traps: BTreeSet<&str> = marked.honeypots.iter().map(|h| h.record_id.as_str()).collect();
    let mut shapes: BTreeMap<bool, BTreeSet<String>> = BTreeMap::new();
    for o in marked.run().iter().filter(|o| o.role == Role::Decisions) {
        let decision: Decision = serde_json::from_slice(o.value.as_deref().unwrap()).unwrap();
        let b = decision.body;
        if b.tenant.as_deref() != Some("acme") {
            continue;
        }
        let trap = b.record_id.as_deref().is_some_and(|r| traps.contains(r));
        let names: Vec<&str> = o.headers.iter().map(|(n, _)| n.as_str()).collect();
        let shape = format!("{:?} {:?} {} {:?}", b.verdict, b.flags, b.versions.config_set, names);
        shapes.entry(trap).or_default().insert(shape);
    }
    assert!(shapes[&true].is_subset(&shapes[&false]), "{:#?}", shapes[&true]);
}

/// OCSF 1.8.0, class Detection Finding with the profile security_control: required fields, numbers that
/// agree, enums in range.
fn check_finding(a: &Attack) {
    let value = serde_json::to_value(a).unwrap();
    for field in ["class_uid", "category_uid", "activity_id", "type_uid", "severity_id", "time", "metadata"] {
        assert!(!value[field].is_null(), "{field} lacks");
    }
    for pointer in [
        "/metadata/version",
        "/metadata/product/name",
        "/metadata/product/vendor_name",
        "/metadata/uid",
        "/metadata/tenant_uid",
        "/finding_info/uid",
        "/finding_info/title",
        "/finding_info/analytic/uid",
        "/finding_info/analytic/name",
        "/message",
        "/unmapped/boundary",
    ] {
        assert!(value.pointer(pointer).and_then(Value::as_str).is_some_and(|s| !s.is_empty()), "{pointer} lacks");
    }
    assert_eq!((a.class_uid, a.category_uid), (2004, 2));
    assert!((1..=3).contains(&a.activity_id));
    assert_eq!(a.type_uid, a.class_uid * 100 + a.activity_id);
    assert!((1..=6).contains(&a.severity_id));
    assert!((1..=6).contains(&a.status_id));
    assert!((1..=4).contains(&a.action_id));
    assert!((1..=27).contains(&a.disposition_id));
    assert!((1..=4).contains(&a.finding_info.analytic.type_id));
    assert!(a.is_alert && a.metadata.profiles == ["security_control"]);
    assert_eq!(a.metadata.version, "1.8.0");
    assert!(a.start_time <= a.end_time && a.end_time <= a.time);
    assert_eq!((a.finding_info.first_seen_time, a.finding_info.last_seen_time), (a.start_time, a.end_time));
    assert_eq!(a.metadata.uid.len(), 36);
    for attack in &a.finding_info.attacks {
        let technique = &attack.technique.uid;
        assert!(attack.tactic.uid.starts_with("AML.TA") && technique.starts_with("AML.T"), "{attack:?}");
        assert!(attack.sub_technique.as_ref().is_none_or(|s| s.uid.starts_with(technique.as_str())), "{attack:?}");
    }
    assert!(!a.finding_info.attacks.is_empty() && !a.finding_info.types.is_empty());
    for evidence in &a.evidences {
        assert!(!evidence.uid.is_empty());
    }
    assert!(!a.evidences.is_empty() && !a.unmapped.reasons.is_empty());
    // A denied write names its decision; an observed retrieval has none.
    assert_eq!(a.unmapped.decision.is_some(), a.action_id == 2);
}

#[test]
fn example_findings_keep_the_ocsf_rules() {
    for file in examples("valid", "attack") {
        check_finding(&serde_json::from_slice(&fs::read(file).unwrap()).unwrap());
    }
}

// ---- topology ----

/// A change of the sample must be seen: it is in every decision, through the hash.
#[test]
fn the_sample_topology_is_described_as_golden() {
    let folder = root().join("topology");
    let loaded = Topology::load(&folder).unwrap();
    assert_eq!(loaded, Topology::sample().unwrap());
    let golden = fs::read_to_string(root().join("tests/golden/describe.txt")).unwrap();
    assert_eq!(
        describe(&loaded),
        golden,
        "if that is meant: memsluice topology describe --topology topology > tests/golden/describe.txt"
    );
    assert!(golden.contains(&format!("(topology {})", loaded.hash)));
    let golden = fs::read_to_string(root().join("tests/golden/topology.dot")).unwrap();
    assert_eq!(
        dot(&loaded),
        golden,
        "if that is meant: memsluice topology dot --topology topology > tests/golden/topology.dot"
    );
    let policy = Policy::load(&folder.join("policy.yaml")).unwrap();
    assert_eq!(policy.hash(), Policy::sample().unwrap().hash());
}

// ---- ids ----

#[test]
fn ids_repeat_and_differ_by_kind() {
    let ids = Ids::new("memsluice");
    let id = |kind| ids.of_input("memory-writes", 3, 250, 0, kind);
    // Made with Python: uuid5(uuid5(NAMESPACE_URL, "memsluice:memsluice"), "memory-writes\n3\n250\n0\ndecision").
    assert_eq!(id(IdKind::Decision), "a5309dfa-a439-5190-b19a-ab1d8f3174f6");
    assert_eq!(id(IdKind::Finding), "71e5b223-b8ef-59f7-91eb-eec05f9e54cb");
    let kinds = [IdKind::Decision, IdKind::Finding, IdKind::Activation, IdKind::Event, IdKind::Retraction];
    for kind in kinds {
        assert_eq!(id(kind), Ids::new("memsluice").of_input("memory-writes", 3, 250, 0, kind));
    }
    let boundary = Boundary::parse("acme/support").unwrap();
    let mut all: Vec<String> = kinds.into_iter().map(id).collect();
    all.extend([
        ids.of_input("memory-writes", 3, 250, 1, IdKind::Decision),
        ids.of_input("memory-writes", 3, 251, 0, IdKind::Decision),
        ids.of_input("memory-writes", 4, 250, 0, IdKind::Decision),
        ids.of_input("retrieval-logs", 3, 250, 0, IdKind::Decision),
        Ids::new("other").of_input("memory-writes", 3, 250, 0, IdKind::Decision),
        ids.of_session(&boundary, "s-9", 0),
        ids.of_session(&boundary, "s-9", 1),
        ids.of_session(&boundary, "s-10", 0),
        ids.of_activation(0, "memsad/acme/support", 1, 0),
        ids.of_activation(0, "memsad/acme/support", 2, 0),
        ids.of_activation(0, "honeypots/acme/support", 1, 0),
        ids.of_activation(1, "memsad/acme/support", 1, 0),
    ]);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
}
