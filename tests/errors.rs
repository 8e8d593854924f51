//! Every error code has a page that says what was done, and something that raises it.
//!
//! A code counts as raised only by a case here or by a file under `topology/invalid/`. What a real broker
//! adds to it stands in `tests/broker/`.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use base64::Engine as _;
use memsluice::app::Setup;
use memsluice::calibrate::{Samples, fit_boundary};
use memsluice::config::{self, Backend, Config, Secret};
use memsluice::decode::{self, Rules};
use memsluice::embed::{Embedder, Encoded, Job};
use memsluice::error::{Action, Code, Error};
use memsluice::pipeline::{
    CommitStep, Committer, Embeds, Engine, EngineSettings, Registry, RunOptions, Task, TaskParts, Unit,
};
use memsluice::policy::Policy;
use memsluice::schema::{Boundary, DeadLetterStub, header};
use memsluice::sink::{Output, Publication, TransactionalProducer, publish};
use memsluice::source::{
    self, At, Bounds, BroadcastReader, Budget, Client, Event, Fetched, Heartbeat, MockBroker, PollThread, StartOptions,
    preflight,
};
use memsluice::state::{Db, Kind, MemoryStore, Positions, Restorer, State, Store, UnitPlan, key};
use memsluice::topology::{Role, Topology};
use proptest::prelude::*;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use serde_json::{Value, json};
use serde_yaml_ng::Value as Yaml;

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn file_names(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root(folder)).unwrap();
    entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

// (a) pages

/// Each code has a page with the four sections, and the page says what the code's action does.
#[test]
fn every_code_has_its_page() {
    let table = fs::read_to_string(root("docs/errors/README.md")).unwrap();
    let mut wanted = BTreeSet::from(["README.md".to_owned()]);
    for code in Code::ALL {
        let name = code.name();
        let status = format!("exit status {}", Error::new(*code, "").exit_status());
        let (done, row) = match code.action() {
            Action::DeadLetter => ("`dead-letters`", "dead letter".to_owned()),
            Action::Abort => ("rolled back and is tried again", "roll back, run again".to_owned()),
            Action::Rebuild => ("is rebuilt from what Kafka holds", "rebuild, run again".to_owned()),
            Action::RetrySame => ("is tried again", "retry, then posture".to_owned()),
            Action::Stop => (status.as_str(), format!("stop, {status}")),
        };
        let page =
            fs::read_to_string(root(&format!("docs/errors/{name}.md"))).unwrap_or_else(|e| panic!("{name}: {e}"));
        let text = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.starts_with(&format!("# {name}\n")), "{name}: the title is the code");
        for section in ["**Meaning.**", "**Cause.**", "**What memsluice did.**", "**What to do.**", "```sh"] {
            assert_eq!(page.matches(section).count(), 1, "{name}: {section}");
        }
        assert!(text.contains(done), "{name}: the page does not say '{done}'");
        assert!((12..=20).contains(&page.lines().count()), "{name}: {} lines", page.lines().count());
        assert!(table.contains(&format!("| [{name}]({name}.md) | {row} | ")), "{name}: row in the table, '{row}'");
        wanted.insert(format!("{name}.md"));
    }
    assert_eq!(file_names("docs/errors"), wanted, "a page is left over");
    assert_eq!(table.lines().filter(|l| l.starts_with("| [")).count(), Code::ALL.len());
}

// (b) topology/invalid

/// Words of the message of each `fail(` in `validate.rs`; a file must raise each.
const TOPOLOGY_RULES: [&str; 22] = [
    "is not a topic name of Kafka",
    "shares the name",
    "is not a topic of a unit",
    "is not a broadcast topic",
    "don't make a test",
    "is not declared in topics.yaml",
    "names the unknown schema",
    "topic decisions has 10001 partitions",
    "must be in the co-partition group",
    "memory-writes has 6",
    "must be listed under broadcast",
    "differs from what the binary runs",
    "needs cleanup",
    "needs key",
    "must be declared with changelog",
    "the binary has no store",
    "does not co-assign",
    "don't fit each other",
    "application must match",
    "limits: output >=",
    "commit.max_records must be positive",
    "memsad.history must be",
];
/// The same for loading and policy, and for both flows.
const OTHER_RULES: [&str; 14] = [
    "which is no input topic",
    "flow writes differs",
    "flow retrievals differs",
    "memsluice.yaml [topology_unreadable]: No such file",
    "topics.yaml [topology_unreadable]: No such file",
    "memsluice.yaml can't be parsed",
    "topics.yaml can't be parsed",
    "policy.yaml can't be parsed",
    "rule name 'web' is taken",
    "rule name 'cross_boundary' is taken",
    "expires is not RFC 3339",
    "ttl.default:",
    "ttl.cap:",
    "ttl.untrusted_cap:",
];

/// RFC 7396 on YAML values, which know NaN.
fn merge(base: &mut Yaml, patch: &Yaml) {
    let Yaml::Mapping(patch) = patch else {
        base.clone_from(patch);
        return;
    };
    if !base.is_mapping() {
        *base = Yaml::Mapping(serde_yaml_ng::Mapping::new());
    }
    let base = base.as_mapping_mut().unwrap();
    for (key, value) in patch {
        match value {
            Yaml::Null => drop(base.remove(key)),
            _ => merge(base.entry(key.clone()).or_insert(Yaml::Null), value),
        }
    }
}

/// The text of one sample file under the overlay; `None` leaves the file out.
fn overlaid(sample: &str, patch: Option<&Yaml>, raw: Option<&Yaml>) -> Option<String> {
    if let Some(raw) = raw {
        return Some(raw.as_str().unwrap().to_owned());
    }
    let mut value: Yaml = serde_yaml_ng::from_str(&fs::read_to_string(root("topology").join(sample)).unwrap()).unwrap();
    match patch {
        Some(Yaml::Null) => return None,
        Some(patch) => merge(&mut value, patch),
        None => {}
    }
    Some(serde_yaml_ng::to_string(&value).unwrap())
}

/// Loads the sample under an overlay as a process would.
fn load(overlay: &serde_yaml_ng::Mapping) -> memsluice::error::Result<Setup> {
    let folder = tempfile::tempdir().unwrap();
    for (name, sample) in [("main", "memsluice.yaml"), ("topics", "topics.yaml"), ("policy", "policy.yaml")] {
        if let Some(text) = overlaid(sample, overlay.get(name), overlay.get(format!("raw_{name}"))) {
            fs::write(folder.path().join(sample), text).unwrap();
        }
    }
    Setup::load(Config::default(), Some(folder.path()), None)
}

/// What every file under `topology/invalid/` raises.
fn invalid_files() -> Vec<(String, serde_yaml_ng::Mapping, Error)> {
    let mut out = Vec::new();
    for name in file_names("topology/invalid") {
        let text = fs::read_to_string(root("topology/invalid").join(&name)).unwrap();
        let file: serde_yaml_ng::Mapping = serde_yaml_ng::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let error = load(&file).err().unwrap_or_else(|| panic!("{name} is valid"));
        out.push((name, file, error));
    }
    out
}

/// Each file fails with the code it names, each rule has a file, and the sample alone is valid.
#[test]
fn invalid_topologies_are_refused() {
    const KEYS: [&str; 8] = ["code", "why", "main", "topics", "policy", "raw_main", "raw_topics", "raw_policy"];
    load(&serde_yaml_ng::Mapping::new()).unwrap();
    let files = invalid_files();
    let mut seen = BTreeSet::new();
    for (name, file, error) in &files {
        let wanted = file["code"].as_str().unwrap();
        assert_eq!(error.code().name(), wanted, "{name}: {error}");
        let stem = name.strip_suffix(".yaml").unwrap();
        assert!(stem == wanted || stem.starts_with(&format!("{wanted}-")), "{name} is not named by its code");
        assert!(!file["why"].as_str().unwrap().is_empty(), "{name}: why");
        let keys: Vec<_> = file.keys().map(|k| k.as_str().unwrap()).collect();
        assert!(keys.len() == 3 && keys.iter().all(|k| KEYS.contains(k)), "{name}: {keys:?}");
        seen.insert(error.code());
    }
    let from = |prefix: &str| Code::ALL.iter().filter(|c| c.name().starts_with(prefix)).copied().collect::<Vec<_>>();
    for code in ["topology_", "policy_", "sprt_"].into_iter().flat_map(from) {
        assert!(seen.contains(&code), "no file raises {}", code.name());
    }
    for rule in TOPOLOGY_RULES.iter().chain(&OTHER_RULES) {
        assert!(files.iter().any(|(_, _, e)| e.to_string().contains(rule)), "no file raises the rule '{rule}'");
    }
    let calls = fs::read_to_string(root("src/topology/validate.rs")).unwrap().matches(" fail(").count();
    assert_eq!(calls, 1 + TOPOLOGY_RULES.len(), "a rule was added or removed: name it above, and give it a file");
}

// (c) decoding

const DIMENSION: usize = 8;
/// Stands in every content: no message may repeat it.
const CONTENT: &str = "the-content-7f3a";
const KEY: &str = "acme/support";

fn rules() -> Rules {
    Rules { max_bytes: 1 << 20, dimension: DIMENSION, units: Some(6) }
}

fn fetched(role: Role, value: Option<Vec<u8>>) -> Fetched {
    let partition = source::partition_of(KEY.as_bytes(), 6);
    let at = At { generation: 0, role, partition, offset: 7, timestamp: 1_764_000_000_000 };
    let headers = vec![("from".to_owned(), Some(b"test".to_vec())), ("empty".to_owned(), None)];
    Fetched { at, key: Some(KEY.into()), value, headers }
}

fn unit_vector() -> Value {
    let mut bytes = vec![0_u8; 2 * DIMENSION];
    bytes[..2].copy_from_slice(&i16::MAX.to_le_bytes());
    json!({ "i16": base64::engine::general_purpose::STANDARD.encode(bytes) })
}

fn valid_write() -> Value {
    json!({
        "tenant": "acme", "store": "support", "record_id": "m-1", "op": "create", "content": CONTENT,
        "origin": "user_input", "principal": "u-1", "session_id": "s-1", "expires_at": "2027-01-01T00:00:00Z",
        "embedding": [0.5, -0.5, 0, 0, 1e-3, 0, 0, 2], "derived_from": ["m-0"], "extra": {"kept": [1, null]},
    })
}

fn valid_retrieval() -> Value {
    json!({
        "tenant": "acme", "store": "support", "event_id": "r-1", "session_id": "s-1", "principal": "u-1",
        "results": [{"id": "m-1", "score": 0.5, "tenant": "acme"}], "query": CONTENT, "k": 5,
        "query_embedding": unit_vector(), "output_id": "o-1", "background": false,
    })
}

fn patched(mut base: Value, patch: &Value) -> Vec<u8> {
    for (name, value) in patch.as_object().unwrap() {
        match value {
            Value::Null => drop(base.as_object_mut().unwrap().remove(name)),
            _ => base[name] = value.clone(),
        }
    }
    serde_json::to_vec(&base).unwrap()
}

/// A write whose text has `from` replaced, for what a JSON value can't hold.
fn edited(from: &str, to: &[u8]) -> Vec<u8> {
    let text = serde_json::to_string(&valid_write()).unwrap();
    let (before, after) = text.split_once(from).unwrap();
    [before.as_bytes(), to, after.as_bytes()].concat()
}

fn packed(values: &[i16]) -> Value {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    json!({ "i16": base64::engine::general_purpose::STANDARD.encode(bytes) })
}

/// Every dead-letter code of decoding, with records that raise it.
fn decode_cases() -> Vec<(Code, &'static str, Fetched)> {
    let mut out = Vec::new();
    let mut raw = |code, what, value: &[u8]| out.push((code, what, fetched(Role::MemoryWrites, Some(value.to_vec()))));
    raw(Code::InvalidJson, "nothing", b"");
    raw(Code::InvalidJson, "cut", &edited("\"op\"", b"")[..40]);
    raw(Code::InvalidJson, "NaN in the embedding", &edited("-0.5", b"NaN"));
    raw(Code::InvalidJson, "NaN in an unknown field", &edited("null", b"NaN"));
    raw(Code::InvalidJson, "Infinity", &edited("-0.5", b"-Infinity"));
    raw(Code::InvalidJson, "outside of f64", &edited("-0.5", b"1e999"));
    raw(Code::InvalidJson, "lone surrogate", &edited(CONTENT, br"a\ud800"));
    raw(Code::InvalidJson, "lone low surrogate", &edited(CONTENT, br"a\udc00"));
    raw(Code::InvalidJson, "surrogate without its half", &edited(CONTENT, br"\ud83d\u0041"));
    raw(Code::InvalidJson, "not UTF-8", &edited(CONTENT, b"\xff\xfe"));
    raw(Code::InvalidJson, "control character in a string", &edited(CONTENT, b"a\nb"));
    raw(Code::InvalidJson, "a second document", &edited("\"acme\"}", br#""acme"}{}"#));
    raw(
        Code::InvalidJson,
        "schema-registry framing",
        &[&[0, 0, 0, 0, 1], valid_write().to_string().as_bytes()].concat(),
    );
    raw(Code::InvalidRecord, "a list", b"[]");
    raw(Code::InvalidRecord, "null", b"null");
    raw(Code::InvalidRecord, "a field twice", &edited("\"op\":\"create\"", br#""op":"create","op":"delete""#));
    raw(Code::RecordTooLarge, "50 MB", &patched(valid_write(), &json!({ "content": "x".repeat(50_000_000) })));

    let mut write = |code, what, patch: Value| {
        out.push((code, what, fetched(Role::MemoryWrites, Some(patched(valid_write(), &patch)))));
    };
    write(Code::InvalidRecord, "no tenant", json!({ "tenant": null }));
    write(Code::InvalidRecord, "no op", json!({ "op": null }));
    write(Code::InvalidRecord, "unknown op", json!({ "op": "merge" }));
    write(Code::InvalidRecord, "content is a list", json!({ "content": [CONTENT] }));
    write(Code::InvalidRecord, "record_id is a number", json!({ "record_id": 1 }));
    write(Code::InvalidRecord, "no time", json!({ "expires_at": "tomorrow" }));
    write(Code::InvalidRecord, "a time without zone", json!({ "expires_at": "2027-01-01T00:00:00" }));
    write(Code::InvalidRecord, "no base64", json!({ "embedding": { "i16": "***" } }));
    write(Code::InvalidRecord, "embedding is a text", json!({ "embedding": "0.5" }));
    write(Code::InvalidBoundary, "space", json!({ "tenant": "ac me" }));
    write(Code::InvalidBoundary, "slash", json!({ "store": "a/b" }));
    write(Code::InvalidBoundary, "empty", json!({ "store": "" }));
    write(Code::InvalidBoundary, "129 characters", json!({ "tenant": "a".repeat(129) }));
    write(Code::InvalidBoundary, "outside of ASCII", json!({ "tenant": "ac\u{e9}" }));
    write(Code::InvalidId, "empty", json!({ "record_id": "" }));
    write(Code::InvalidId, "513 bytes", json!({ "record_id": "a".repeat(513) }));
    write(Code::InvalidId, "zero byte", json!({ "record_id": "a\0b" }));
    write(Code::InvalidId, "C1 control", json!({ "principal": "a\u{85}" }));
    write(Code::InvalidId, "empty session", json!({ "session_id": "" }));
    write(Code::EmptyContent, "absent", json!({ "content": null }));
    write(Code::EmptyContent, "empty", json!({ "content": "" }));
    write(Code::EmptyContent, "white space", json!({ "op": "update", "content": " \n\u{2003}" }));
    write(Code::UnknownOrigin, "unknown", json!({ "origin": "hearsay" }));
    write(Code::UnknownOrigin, "case", json!({ "origin": "User_Input" }));
    write(Code::EmbeddingDimension, "numbers", json!({ "embedding": [1.0, 0.0] }));
    write(Code::EmbeddingDimension, "none", json!({ "embedding": [] }));
    write(Code::EmbeddingDimension, "i16", json!({ "embedding": packed(&[i16::MAX; 3]) }));
    write(Code::EmbeddingDimension, "odd bytes", json!({ "embedding": { "i16": "AAAAAAAAAAAAAAAAAAAAAAA=" } }));
    write(Code::EmbeddingNotFinite, "1e308", json!({ "embedding": vec![1e308; DIMENSION] }));
    write(Code::EmbeddingNotFinite, "zeros", json!({ "embedding": vec![0; DIMENSION] }));
    write(Code::EmbeddingNotFinite, "norm below f64", json!({ "embedding": vec![1e-200; DIMENSION] }));
    write(Code::EmbeddingNotUnit, "zeros", json!({ "embedding": packed(&[0; DIMENSION]) }));
    write(Code::EmbeddingNotUnit, "scale 127", json!({ "embedding": packed(&[127, 0, 0, 0, 0, 0, 0, 0]) }));
    write(Code::EmbeddingNotUnit, "norm 1.02", json!({ "embedding": packed(&[32_767, 6_600, 0, 0, 0, 0, 0, 0]) }));
    write(Code::EmbeddingNotUnit, "smallest i16", json!({ "embedding": packed(&[i16::MIN; DIMENSION]) }));
    write(Code::MisplacedPartition, "another tenant", json!({ "tenant": "globex" }));

    let mut event = |code, what, patch: Value| {
        out.push((code, what, fetched(Role::RetrievalLogs, Some(patched(valid_retrieval(), &patch)))));
    };
    event(Code::InvalidRecord, "no results", json!({ "results": null }));
    event(Code::InvalidRecord, "10001 results", json!({ "results": vec![json!({ "id": "m" }); 10_001] }));
    event(Code::InvalidRecord, "negative k", json!({ "k": -1 }));
    event(Code::InvalidBoundary, "retrieval", json!({ "tenant": "*" }));
    event(Code::InvalidId, "event", json!({ "event_id": "" }));
    event(Code::InvalidId, "result", json!({ "results": [{ "id": "m\u{7f}" }] }));
    event(Code::InvalidId, "answer", json!({ "output_id": "o\n" }));
    event(Code::EmbeddingDimension, "query", json!({ "query_embedding": [1] }));
    event(Code::EmbeddingNotFinite, "query", json!({ "query_embedding": [-1e308, 0, 0, 0, 0, 0, 0, 1e308] }));
    event(Code::MisplacedPartition, "retrieval", json!({ "store": "notes-2" }));
    out.push((Code::InvalidRecord, "retrieval without a value", fetched(Role::RetrievalLogs, None)));

    let mut null = |code, what, key: Option<&str>, id: Option<Option<&[u8]>>| {
        let mut f = fetched(Role::MemoryWrites, None);
        f.key = key.map(Into::into);
        f.headers.extend(id.map(|v| (header::RECORD_ID.to_owned(), v.map(<[u8]>::to_vec))));
        out.push((code, what, f));
    };
    null(Code::TombstoneWithoutRecord, "no header", Some(KEY), None);
    null(Code::TombstoneWithoutRecord, "null header", Some(KEY), Some(None));
    null(Code::TombstoneWithoutRecord, "header is not UTF-8", Some(KEY), Some(Some(b"\xff")));
    null(Code::InvalidId, "empty header", Some(KEY), Some(Some(b"")));
    null(Code::InvalidBoundary, "null without a key", None, Some(Some(b"m-1")));
    null(Code::InvalidBoundary, "null under a key without slash", Some("acme"), Some(Some(b"m-1")));
    null(Code::MisplacedPartition, "null under another key", Some("globex/notes"), Some(Some(b"m-1")));
    out
}

fn decoded(f: &Fetched) -> memsluice::error::Result<()> {
    match f.at.role {
        Role::RetrievalLogs => decode::retrieval(f, &rules()).map(drop),
        _ => decode::write(f, &rules()).map(drop),
    }
}

/// Records that are refused, each with its code, and no message that repeats the content.
#[test]
fn undecodable_records_have_their_code() {
    for value in [valid_write(), json!({"tenant":"acme","store":"support","record_id":"m-1","op":"delete"})] {
        decoded(&fetched(Role::MemoryWrites, Some(value.to_string().into()))).unwrap();
    }
    decoded(&fetched(Role::RetrievalLogs, Some(valid_retrieval().to_string().into()))).unwrap();
    for (code, what, record) in decode_cases() {
        let error = decoded(&record).err().unwrap_or_else(|| panic!("{}: {what} is valid", code.name()));
        assert_eq!(error.code(), code, "{what}: {error}");
        assert_eq!(code.action(), Action::DeadLetter, "{what}");
        assert!(!error.to_string().contains(CONTENT) && error.to_string().len() < 500, "{what}: {error}");
    }
}

// (d) dead letters through the engine

struct Bench {
    engine: Engine,
    embedder: Embedder,
    secret: Secret,
}

impl Bench {
    fn new(backend: Backend, overlay: &str) -> Self {
        let overlay: serde_yaml_ng::Mapping = serde_yaml_ng::from_str(overlay).unwrap();
        let setup = load(&overlay).unwrap();
        let embedder = Embedder::start(&encoder(backend)).unwrap();
        let secret = Secret::new(&[7; 32]).unwrap();
        let settings = EngineSettings {
            topology: setup.topology,
            policy: setup.policy,
            secret: secret.clone(),
            encoder: embedder.identity().to_owned(),
            dimension: DIMENSION,
            partitioned: true,
        };
        Self { engine: Engine::new(settings).unwrap(), embedder, secret }
    }

    /// One record through all stages, on a fresh unit.
    fn take(&self, record: Fetched) -> Vec<Output> {
        let mut state = State::new(MemoryStore::default());
        let mut unit = Unit::load(record.at.partition, BTreeMap::new(), &state).unwrap();
        let (pending, embeds) = self.engine.admit(record);
        let embedded = match embeds {
            Embeds::Nothing => None,
            Embeds::Given(vector) => Some(Ok(Encoded { vector, truncated: false })),
            Embeds::Text(text) => Some(self.embed(text)),
        };
        self.engine.finish(pending, embedded, &mut unit, &mut state, &Registry::default()).unwrap()
    }

    fn embed(&self, text: String) -> memsluice::error::Result<Encoded> {
        self.embedder.submit(Job { unit: 0, ticket: 0, text, retry_until: None });
        self.embedder.done().recv().unwrap().result
    }
}

fn encoder(backend: Backend) -> config::Encoder {
    config::Encoder { backend, dimension: DIMENSION, ..config::Encoder::default() }
}

fn of(outputs: &[Output], role: Role) -> Vec<&Output> {
    outputs.iter().filter(|o| o.role == role).collect()
}

fn decision(outputs: &[Output]) -> Value {
    let decisions = of(outputs, Role::Decisions);
    assert_eq!(decisions.len(), 1, "{outputs:?}");
    serde_json::from_slice::<Value>(decisions[0].value.as_ref().unwrap()).unwrap()["body"].clone()
}

static BENCH: LazyLock<Bench> = LazyLock::new(|| Bench::new(Backend::Hash, "{}"));

/// What can't be decoded keeps its bytes and headers, gets the KIP-1034 headers behind them, and a write
/// its decision; bytes that fit nowhere get a stub.
#[test]
fn dead_letters_keep_the_bytes() {
    for (code, what, record) in decode_cases() {
        let outputs = BENCH.take(record.clone());
        let letters = of(&outputs, Role::DeadLetters);
        assert_eq!(letters.len(), 1, "{what}");
        let letter = letters[0];
        assert_eq!(letter.partition, record.at.partition, "{what}");
        for (name, value) in [
            (header::ERROR_CODE, code.name()),
            (header::EXCEPTION, code.name()),
            (header::TOPIC, record.at.role.as_str()),
            (header::PARTITION, &record.at.partition.to_string()),
            (header::OFFSET, "7"),
        ] {
            assert_eq!(letter.header(name), Some(value), "{what}: {name}");
        }
        assert!(!letter.header(header::MESSAGE).unwrap().contains(CONTENT), "{what}");
        if code == Code::RecordTooLarge {
            check_stub(&BENCH, &record, letter, code);
        } else {
            assert_eq!(letter.value, record.value, "{what}");
            assert_eq!(letter.key, record.key.clone().unwrap_or_default(), "{what}");
            assert_eq!(letter.headers[..record.headers.len()], record.headers[..], "{what}");
        }
        let decisions = usize::from(record.at.role == Role::MemoryWrites);
        assert_eq!(outputs.len(), 1 + decisions, "{what}");
        if decisions == 1 {
            let body = decision(&outputs);
            assert_eq!(body["verdict"], "dead_letter", "{what}");
            assert_eq!(body["reasons"], json!([format!("dead_letter:{}", code.name())]), "{what}");
        }
    }
}

/// A stub says where the bytes are and names them by keyed hash; it holds nothing of them.
fn check_stub(bench: &Bench, record: &Fetched, letter: &Output, code: Code) {
    let value = record.value.as_deref().unwrap();
    let stub: DeadLetterStub = serde_json::from_slice(letter.value.as_ref().unwrap()).unwrap();
    let wanted = DeadLetterStub {
        code: code.name().to_owned(),
        length: value.len() as u64,
        hmac: bench.secret.hmac("deployment", value),
        key_id: bench.secret.key_id().to_owned(),
        topic: record.at.role.as_str().to_owned(),
        partition: record.at.partition,
        offset: record.at.offset,
    };
    assert_eq!(stub, wanted);
    assert_eq!(letter.header(header::STUB), Some("true"));
    assert_eq!(letter.header("from"), None, "headers of the record are left out");
    assert_eq!(letter.key, KEY.as_bytes());
    assert!(!String::from_utf8_lossy(letter.value.as_ref().unwrap()).contains(CONTENT));
}

fn small() -> Bench {
    Bench::new(Backend::Hash, "main: { limits: { max_output_bytes: 4096 } }")
}

fn write_of(content: usize) -> Fetched {
    let patch = json!({ "content": format!("{CONTENT} {}", "x".repeat(content)) });
    fetched(Role::MemoryWrites, Some(patched(valid_write(), &patch)))
}

/// The larger a write, the less of it can be written: forwarded, then a dead letter with its bytes, then
/// a stub. Nothing is ever above the limit.
#[test]
fn outputs_stay_below_the_limit() {
    let bench = small();
    let mut stages = Vec::new();
    for size in (2_000..6_000).step_by(20) {
        let record = write_of(size);
        let outputs = bench.take(record.clone());
        assert!(outputs.iter().all(|o| o.bytes() <= 4096), "{size}");
        let verdict = decision(&outputs)["verdict"].clone();
        let stage = match of(&outputs, Role::DeadLetters)[..] {
            [] => {
                assert_eq!(verdict, "allow", "{size}");
                "forwarded"
            }
            [letter] => {
                assert_eq!(verdict, "dead_letter", "{size}");
                assert_eq!(letter.header(header::ERROR_CODE), Some("output_too_large"), "{size}");
                assert_eq!(outputs.len(), 2, "{size}");
                if letter.value == record.value {
                    "raw"
                } else {
                    check_stub(&bench, &record, letter, Code::OutputTooLarge);
                    "stub"
                }
            }
            _ => panic!("{size}: {outputs:?}"),
        };
        if stages.last() != Some(&stage) {
            stages.push(stage);
        }
    }
    assert_eq!(stages, ["forwarded", "raw", "stub"]);
}

/// A long key leaves the stub, so that the stub itself always fits.
#[test]
fn a_stub_fits_under_any_key() {
    let mut record = write_of(6_000);
    record.key = Some(vec![b'k'; 5_000]);
    let outputs = small().take(record);
    let letter = of(&outputs, Role::DeadLetters)[0];
    assert!(letter.key.is_empty() && letter.bytes() <= 4096);
    assert_eq!(letter.header(header::STUB), Some("true"));
}

/// A text without a vector is held by the posture and says so.
#[test]
fn a_failed_encoder_holds_the_write() {
    for (posture, verdict) in [("quarantine", "quarantine"), ("hold", "quarantine"), ("pass_marked", "allow")] {
        let bench = Bench::new(Backend::Precomputed, &format!("main: {{ posture: {{ on_error: {posture} }} }}"));
        let record = fetched(Role::MemoryWrites, Some(patched(valid_write(), &json!({ "embedding": null }))));
        let body = decision(&bench.take(record));
        assert_eq!(body["verdict"], verdict, "{posture}");
        assert_eq!(body["flags"], json!(["fallback_encoder_failed"]), "{posture}");
    }
}

#[derive(Debug, Clone)]
enum Edit {
    Set(usize, u8),
    Insert(usize, u8),
    Remove(usize, usize),
    Repeat(usize, usize),
    Cut(usize),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let byte = || prop_oneof![any::<u8>(), prop::sample::select(br#"{}[]",:\-0e9.un"#.to_vec())];
    let edit = prop_oneof![
        4 => (any::<usize>(), byte()).prop_map(|(at, b)| Edit::Set(at, b)),
        3 => (any::<usize>(), byte()).prop_map(|(at, b)| Edit::Insert(at, b)),
        2 => (any::<usize>(), 1..40_usize).prop_map(|(at, n)| Edit::Remove(at, n)),
        2 => (any::<usize>(), 1..40_usize).prop_map(|(at, n)| Edit::Repeat(at, n)),
        1 => any::<usize>().prop_map(Edit::Cut),
    ];
    prop::collection::vec(edit, 0..4)
}

fn apply(mut bytes: Vec<u8>, edits: &[Edit]) -> Vec<u8> {
    for edit in edits {
        let len = bytes.len().max(1);
        let range = |at: usize, n: usize| (at % len).min(bytes.len())..(at % len + n).min(bytes.len());
        match *edit {
            Edit::Set(at, b) => {
                if let Some(x) = bytes.get_mut(at % len) {
                    *x = b;
                }
            }
            Edit::Insert(at, b) => bytes.insert((at % len).min(bytes.len()), b),
            Edit::Remove(at, n) => drop(bytes.drain(range(at, n))),
            Edit::Repeat(at, n) => {
                let part = bytes[range(at, n)].to_vec();
                let to = (at % len).min(bytes.len());
                bytes.splice(to..to, part);
            }
            Edit::Cut(at) => bytes.truncate(at % len),
        }
    }
    bytes
}

/// Every input has one fate: a write one decision and one of three topics; an event no decision.
fn one_fate(record: Fetched) -> Result<(), TestCaseError> {
    let refused = decoded(&record).err();
    if let Some(error) = &refused {
        prop_assert_eq!(error.code().action(), Action::DeadLetter);
    }
    let role = record.at.role;
    let outputs = BENCH.take(record);
    let count = |r: Role| of(&outputs, r).len();
    prop_assert_eq!(count(Role::DeadLetters) == 1, refused.is_some());
    let is_write = role == Role::MemoryWrites;
    prop_assert_eq!(count(Role::Decisions), usize::from(is_write));
    let fates = count(Role::CommittedMemory) + count(Role::Quarantine) + count(Role::DeadLetters);
    prop_assert!(fates == 1 || (!is_write && fates == 0));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// No bytes, key or header make decoding panic.
    #[test]
    fn random_bytes_never_panic(
        value in prop::option::of(prop::collection::vec(any::<u8>(), 0..400)),
        key in prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
        id in prop::option::of(prop::collection::vec(any::<u8>(), 0..600)),
        is_write in any::<bool>(),
    ) {
        let mut record = fetched(if is_write { Role::MemoryWrites } else { Role::RetrievalLogs }, value);
        record.key = key;
        record.headers.push((header::RECORD_ID.to_owned(), id));
        one_fate(record)?;
    }

    /// Nor does any small damage to a valid record.
    #[test]
    fn damaged_records_never_panic(edits in edits(), is_write in any::<bool>()) {
        let (role, valid) = if is_write {
            (Role::MemoryWrites, valid_write())
        } else {
            (Role::RetrievalLogs, valid_retrieval())
        };
        one_fate(fetched(role, Some(apply(valid.to_string().into_bytes(), &edits))))?;
    }
}

// (e) everything else

/// Raises a code; `None` where this machine lacks what it needs.
type Raise = fn(&Path) -> Option<Code>;

fn failed<T>(result: memsluice::error::Result<T>) -> Option<Code> {
    let error = result.err().unwrap_or_else(|| panic!("it did not fail"));
    let text = error.to_string();
    assert!(text.contains(&format!("[{}]", error.code().name())) && text.contains(error.code().hint()), "{text}");
    Some(error.code())
}

fn write(folder: &Path, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path
}

/// The program's code and exit status, which must agree.
fn program(args: &[&str], env: &[(&str, &Path)], folder: &Path, stdout: Stdio) -> Option<Code> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memsluice"));
    let output = command.args(args).env_clear().envs(env.iter().copied()).current_dir(folder).stdout(stdout).output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let found = Code::ALL.iter().find(|c| text.contains(&format!("[{}]", c.name())));
    let found = *found.unwrap_or_else(|| panic!("no code in: {text}"));
    let status = i32::from(Error::new(found, "").exit_status());
    assert_eq!(output.status.code(), Some(status), "{}", found.name());
    Some(found)
}

fn configured(folder: &Path, text: &str) -> Option<Code> {
    failed(Config::load(Some(&write(folder, "memsluice.yaml", text))))
}

/// A tokenizer of two words, enough to get past its check.
const TOKENIZER: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
    "pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,
    "model":{"type":"WordLevel","vocab":{"[UNK]":0,"a":1},"unk_token":"[UNK]"}}"#;

/// Opens the ONNX encoder with the named files, `runtime` from the environment when it is asked for.
fn onnx(folder: &Path, model: Option<&str>, tokenizer: Option<&str>, with_runtime: bool) -> Option<Code> {
    let runtime = std::env::var_os("MEMSLUICE__ENCODER__RUNTIME").map(PathBuf::from);
    if with_runtime && runtime.is_none() {
        eprintln!("skipped: MEMSLUICE__ENCODER__RUNTIME is not set");
        return None;
    }
    let mut settings = encoder(Backend::Onnx);
    settings.model = model.map(|t| write(folder, "model.onnx", t));
    settings.tokenizer = tokenizer.map(|t| write(folder, "tokenizer.json", t));
    settings.runtime = runtime.filter(|_| with_runtime);
    failed(Embedder::start(&settings))
}

/// Configuration, secret and files.
const FILES: &[(Code, &str, Raise)] = &[
    (Code::ConfigInvalid, "a property that breaks exactly-once", |f| {
        configured(f, "kafka: { properties: { isolation.level: read_uncommitted } }")
    }),
    (Code::ConfigInvalid, "an unknown key", |f| configured(f, "kafka: { boot: x }")),
    (Code::ConfigInvalid, "out of range", |f| configured(f, "encoder: { dimension: 0 }")),
    (Code::ConfigInvalid, "too many threads", |f| configured(f, "encoder: { threads: 65 }")),
    (Code::ConfigInvalid, "batch below a text", |f| configured(f, "encoder: { batch_tokens: 100, max_pieces: 256 }")),
    (Code::ConfigInvalid, "broken YAML", |f| configured(f, "kafka: [")),
    (Code::ConfigInvalid, "a missing file", |f| failed(Config::load(Some(&f.join("none.yaml"))))),
    (Code::ConfigInvalid, "no broker", |_| failed(source::client(&Config::default()))),
    (Code::ConfigInvalid, "a property that librdkafka doesn't know", |_| {
        let mut config = Config::default();
        config.kafka.bootstrap = Some("127.0.0.1:1".to_owned());
        config.kafka.properties.insert("no.such.property".to_owned(), "1".to_owned());
        failed(preflight(&source::client(&config).unwrap(), &Topology::sample().unwrap(), false))
    }),
    (Code::ConfigInvalid, "no such schema", |f| program(&["schema", "print", "none"], &[], f, Stdio::null())),
    (Code::TopologyUnreadable, "run without a topology", |f| program(&["run"], &[], f, Stdio::null())),
    (Code::SecretMissing, "31 bytes", |f| failed(Secret::from_file(&write(f, "secret", [1; 31])))),
    (Code::SecretMissing, "no file", |f| failed(Secret::from_file(&f.join("none")))),
    (Code::SecretMissing, "no place for a new one", |f| {
        failed(Secret::from_file_or_new(&write(f, "file", "").join("secret")))
    }),
    (Code::SecretMissing, "not set", |_| failed(Setup::load(Config::default(), None, None).unwrap().secret())),
    (Code::FileUnreadable, "policy", |f| failed(Policy::load(&f.join("none.yaml")))),
    (Code::FileUnreadable, "records", |f| failed(Samples::read(&[f.join("none.jsonl")], &[], &[], DIMENSION))),
    (Code::FileUnreadable, "a folder", |f| failed(Samples::read(&[f.to_owned()], &[], &[], DIMENSION))),
    (Code::FileUnreadable, "size", |f| failed(memsluice::files::total_bytes(&[f.join("none.jsonl")]))),
    (Code::OutputFailed, "a full disk", |f| {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        program(&["schema", "list"], &[], f, full.into())
    }),
];

/// Samples of one boundary from lines.
fn fit(folder: &Path, writes: usize, queries: usize) -> Option<Code> {
    let lines = |value: Value, n: usize| format!("{value}\n").repeat(n);
    let writes = write(folder, "writes.jsonl", lines(valid_write(), writes));
    let queries = write(folder, "queries.jsonl", lines(valid_retrieval(), queries));
    let samples = Samples::read(&[writes], &[queries], &[], DIMENSION).unwrap();
    let boundary = Boundary::parse(KEY).unwrap();
    let topology = Topology::sample().unwrap();
    let embedder = &BENCH_EMBEDDER;
    failed(fit_boundary(&samples, &boundary, 1, &topology, embedder, Backend::Hash, || ()))
}

static BENCH_EMBEDDER: LazyLock<Embedder> = LazyLock::new(|| Embedder::start(&encoder(Backend::Hash)).unwrap());

fn announce(role: Role, key: &str, value: &Value) -> memsluice::error::Result<()> {
    Registry::default().apply(role, key.as_bytes(), Some(value.to_string().as_bytes()))
}

/// A calibration with changes, under the key that it names itself; without changes it is taken.
fn calibration(patch: &Value) -> Option<Code> {
    let valid = json!({
        "kind": "memsad", "scope": KEY, "version": 1, "mode": "reference", "statistic": "combined", "n": 2, "mean": 0.1,
        "std": 0.1, "kappa": 2.0, "threshold": 0.3, "threshold_units": 322_102_886, "flagged": 0, "interval": [0, 1],
        "margin": null, "control": {"flagged": 0, "n": 2, "interval": [0, 1]}, "encoder": "e", "dimension": 8,
        "history": {"m": 1, "mean_norm": 1.0, "digest": ""}, "as_of": "2026-11-28T00:00:00Z",
    });
    announce(Role::Calibrations, "memsad/acme/support@1", &valid).unwrap();
    let value: Value = serde_json::from_slice(&patched(valid, patch)).unwrap();
    let key = format!("memsad/{}@{}", value["scope"].as_str().unwrap(), value["version"]);
    failed(announce(Role::Calibrations, &key, &value))
}

/// The same for a set of one honeypot.
fn honeypots(patch: &Value) -> Option<Code> {
    let member = json!({"tenant": "acme", "store": "support", "honeypot_id": "hp-1", "record_id": "m-1"});
    let set = |member: &Value| json!({"scope": KEY, "version": 1, "honeypots": [member]});
    announce(Role::Honeypots, "honeypots/acme/support@1", &set(&member)).unwrap();
    let member: Value = serde_json::from_slice(&patched(member, patch)).unwrap();
    failed(announce(Role::Honeypots, "honeypots/acme/support@1", &set(&member)))
}

/// Encoder, calibration and honeypots.
const MODELS: &[(Code, &str, Raise)] = &[
    (Code::ModelMissing, "not set", |f| onnx(f, None, Some(TOKENIZER), false)),
    (Code::ModelMissing, "no file", |f| {
        let mut settings = encoder(Backend::Onnx);
        settings.model = Some(f.join("none.onnx"));
        failed(Embedder::start(&settings))
    }),
    (Code::ModelCorrupt, "a text", |f| onnx(f, Some("this is no model"), Some(TOKENIZER), true)),
    (Code::ModelCorrupt, "an empty file", |f| onnx(f, Some(""), Some(TOKENIZER), true)),
    (Code::TokenizerInvalid, "not set", |f| onnx(f, Some("m"), None, false)),
    (Code::TokenizerInvalid, "a vocabulary", |f| onnx(f, Some("m"), Some("[UNK]\na\n"), true)),
    (Code::RuntimeMissing, "not set", |f| onnx(f, Some("m"), Some(TOKENIZER), false)),
    // The first library of a process is its only one, so this takes a process of its own.
    (Code::RuntimeMissing, "no library", |f| {
        let files = [write(f, "m", "m"), write(f, "t", TOKENIZER), write(f, "r.so", "r"), write(f, "w.jsonl", "")];
        let names = ["MODEL", "TOKENIZER", "RUNTIME"].map(|n| format!("MEMSLUICE__ENCODER__{n}"));
        let env: Vec<(&str, &Path)> =
            names.iter().map(String::as_str).zip(files.iter().map(PathBuf::as_path)).collect();
        program(&["scan", "--writes", "w.jsonl"], &env, f, Stdio::null())
    }),
    (Code::EncoderFailed, "no vector in the record", |_| {
        let embedder = Embedder::start(&encoder(Backend::Precomputed)).unwrap();
        failed(embedder.encode_all(&["a".to_owned()], || ()))
    }),
    (Code::CalibrationTooSmall, "one write", |f| fit(f, 1, 3)),
    (Code::CalibrationNoQueries, "no query", |f| fit(f, 3, 0)),
    (Code::CalibrationInvalid, "not of the schema", |_| failed(announce(Role::Calibrations, "memsad/x@1", &json!({})))),
    (Code::CalibrationInvalid, "a pointer", |_| failed(announce(Role::Calibrations, "active/memsad/x", &json!({})))),
    (Code::CalibrationInvalid, "mode", |_| calibration(&json!({"mode": "hardened"}))),
    (Code::CalibrationInvalid, "statistic", |_| calibration(&json!({"statistic": "median"}))),
    (Code::CalibrationInvalid, "scope", |_| calibration(&json!({"scope": "a/b/c"}))),
    (Code::CalibrationInvalid, "threshold and units differ", |_| calibration(&json!({"threshold": 0.9}))),
    (Code::CalibrationInvalid, "no deviation can be so large", |_| calibration(&json!({"std": 1e300}))),
    (Code::HoneypotInvalid, "not of the schema", |_| failed(announce(Role::Honeypots, "honeypots/x@1", &json!({})))),
    (Code::HoneypotInvalid, "a pointer", |_| failed(announce(Role::Honeypots, "active/honeypots/x", &json!(1)))),
    (Code::HoneypotInvalid, "another boundary's key", |_| {
        let set = json!({"scope": KEY, "version": 1, "honeypots": []});
        failed(announce(Role::Honeypots, "honeypots/globex/notes@1", &set))
    }),
    (Code::HoneypotInvalid, "another boundary's member", |_| honeypots(&json!({"tenant": "globex"}))),
    (Code::HoneypotInvalid, "id", |_| honeypots(&json!({"honeypot_id": ""}))),
    (Code::HoneypotInvalid, "state", |_| honeypots(&json!({"state": "gone"}))),
];

fn offsets_key(partition: i32) -> Vec<u8> {
    key(Kind::Offsets, partition, &[], None, &[])
}

fn positions(changelog: i64) -> Positions {
    Positions { changelog, inputs: BTreeMap::new(), saved_at: 0 }
}

/// Local state.
const STATE: &[(Code, &str, Raise)] = &[
    (Code::StateFailed, "the folder is a file", |f| failed(Db::open(&write(f, "file", ""), "a"))),
    (Code::StateFailed, "the database is a file", |f| {
        write(f, "rocksdb", "");
        failed(Db::open(f, "a"))
    }),
    (Code::StateFailed, "another owner", |f| {
        let _held = Db::open(f, "a").unwrap();
        failed(Db::open(f, "a"))
    }),
    (Code::StateMismatch, "another identity", |f| {
        drop(Db::open(f, "memsluice units=6").unwrap());
        drop(Db::open(f, "memsluice units=6").unwrap());
        failed(Db::open(f, "memsluice units=7"))
    }),
    (Code::StateFormat, "another format", |f| {
        let mut db = Db::open(f, "a").unwrap();
        db.apply(vec![Db::positions_change(0, &positions(5))]).unwrap();
        assert_eq!(db.positions(0).unwrap(), Some(positions(5)));
        let mut value = db.get(&offsets_key(0)).unwrap().unwrap();
        value[0] += 1;
        db.apply(vec![(offsets_key(0), Some(value))]).unwrap();
        failed(db.positions(0))
    }),
    (Code::StateFormat, "a cut value", |_| {
        let mut store = MemoryStore::default();
        store.apply(vec![(key(Kind::Unit, 0, &[], None, &[]), Some(vec![1, 200]))]).unwrap();
        failed(Unit::load(0, BTreeMap::new(), &State::new(store)))
    }),
    (Code::StateFormat, "an empty value", |_| {
        let mut store = MemoryStore::default();
        store.apply(vec![(key(Kind::Unit, 0, &[], None, &[]), Some(Vec::new()))]).unwrap();
        failed(Unit::load(0, BTreeMap::new(), &State::new(store)))
    }),
    (Code::TopicRecreated, "the changelog ends before the state", |_| {
        failed(UnitPlan::new(Some(&positions(101)), Bounds { low: 0, high: 100 }, 0))
    }),
];

/// A mock cluster with the sample's topics, whose requests can be made to fail.
struct Mock {
    cluster: MockCluster<'static, DefaultProducerContext>,
    topology: Arc<Topology>,
    client: Client,
}

impl Mock {
    fn new() -> Self {
        let topology = Topology::sample().unwrap();
        let cluster = MockCluster::new(1).unwrap();
        for role in Role::ALL {
            cluster.create_topic(topology.name(role), topology.topic(role).partitions, 1).unwrap();
        }
        let client = client(&cluster.bootstrap_servers());
        Self { cluster, topology: Arc::new(topology), client }
    }

    fn producer(&self) -> memsluice::error::Result<TransactionalProducer> {
        TransactionalProducer::start(&self.client, Some("errors-0"), Duration::from_secs(10), 1 << 20)
    }

    fn poll_thread(&self) -> PollThread {
        PollThread::start(StartOptions {
            client: &self.client,
            topology: &self.topology,
            group: "errors",
            instance: "0",
            budget: Budget::default(),
            task: Heartbeat::default(),
        })
        .unwrap()
    }

    fn publish(&self, role: Role, value: &[u8]) {
        let topic = self.topology.name(role).to_owned();
        let record =
            Publication { topic, partition: Some(0), key: b"k".to_vec(), value: value.to_vec(), timestamp: None };
        publish(&self.client, &[record]).unwrap();
    }

    /// A transaction with one delivered record and no group to commit it for; `end` is the broker's
    /// answer to its end.
    fn transaction(&self, folder: &Path, end: &[RDKafkaRespErr]) -> CommitStep {
        let mut committer = Committer::new(self.producer().unwrap(), &self.topology);
        let mut state = State::new(Db::open(folder, "a").unwrap());
        let (key, value) = (b"k".to_vec(), Some(b"{}".to_vec()));
        let output = Output { role: Role::Decisions, partition: 0, key, value, headers: Vec::new() };
        committer.stage(0, Role::MemoryWrites, 1, vec![output]);
        self.cluster.request_errors(RDKafkaApiKey::EndTxn, end);
        committer.commit(&mut state, None)
    }
}

fn client(bootstrap: &str) -> Client {
    let mut config = Config::default();
    config.kafka.bootstrap = Some(bootstrap.to_owned());
    config.kafka.properties.insert("socket.timeout.ms".to_owned(), "2000".to_owned());
    source::client(&config).unwrap()
}

/// Preflight against an embedded broker with the topics of `made`, none without.
fn checked(made: Option<&Topology>) -> Option<Code> {
    let broker = MockBroker::start().unwrap();
    if let Some(topology) = made {
        broker.create_topics(topology).unwrap();
    }
    failed(preflight(&client(&broker.bootstrap()), &Topology::sample().unwrap(), false))
}

/// What the poll thread says when the broker answers that the instance id is taken.
fn fenced(request: RDKafkaApiKey) -> Option<Code> {
    let mock = Mock::new();
    mock.cluster.request_errors(request, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID; 8]);
    let mut poll = mock.poll_thread();
    let error = loop {
        if let Event::Failed(error) = poll.events.recv_timeout(Duration::from_secs(30)).unwrap() {
            break error;
        }
    };
    poll.stop();
    failed::<()>(Err(error))
}

/// Broker and transactions, on librdkafka's embedded broker with injected errors.
const BROKER: &[(Code, &str, Raise)] = &[
    (Code::BrokerUnreachable, "nothing listens", |_| {
        failed(preflight(&client("127.0.0.1:1"), &Topology::sample().unwrap(), false))
    }),
    (Code::TopicMissing, "no topics", |_| checked(None)),
    (Code::PartitionCountMismatch, "one partition more", |_| {
        let mut topology = Topology::sample().unwrap();
        topology.topics.get_mut(&Role::Decisions).unwrap().partitions += 1;
        checked(Some(&topology))
    }),
    (Code::BrokerRefused, "a topic twice", |_| {
        let (broker, topology) = (MockBroker::start().unwrap(), Topology::sample().unwrap());
        broker.create_topics(&topology).unwrap();
        preflight(&client(&broker.bootstrap()), &topology, false).unwrap();
        failed(broker.create_topics(&topology))
    }),
    (Code::BrokerRefused, "init_transactions", |_| {
        let mock = Mock::new();
        let denied = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED;
        mock.cluster.request_errors(RDKafkaApiKey::InitProducerId, &[denied]);
        failed(mock.producer())
    }),
    (Code::TransactionAborted, "the assignment has changed", |f| match Mock::new().transaction(f, &[]) {
        CommitStep::Rollback(error) => Some(error.code()),
        other => panic!("{other:?}"),
    }),
    (Code::TransactionUnknown, "the abort fails", |f| {
        match Mock::new().transaction(f, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH]) {
            CommitStep::Rebuild(error) => Some(error.code()),
            other => panic!("{other:?}"),
        }
    }),
    (Code::ChainMismatch, "a decision from outside", |f| {
        let mock = Mock::new();
        let mut db = Db::open(f, "a").unwrap();
        let restorer = Restorer::new(&mock.client, "errors", &mock.topology).unwrap();
        restorer.unit(&mut db, 0, &|| ()).unwrap();
        mock.publish(Role::Decisions, b"{}");
        failed(restorer.unit(&mut db, 0, &|| ()))
    }),
    (Code::TopicRecreated, "the live changelog", |f| {
        let mock = Mock::new();
        let mut db = Db::open(f, "a").unwrap();
        db.apply(vec![Db::positions_change(0, &positions(9))]).unwrap();
        failed(Restorer::new(&mock.client, "errors", &mock.topology).unwrap().unit(&mut db, 0, &|| ()))
    }),
    (Code::StateFormat, "a changelog record from outside", |f| {
        let mock = Mock::new();
        mock.publish(Role::Changelog, b"{}");
        let mut db = Db::open(f, "a").unwrap();
        failed(Restorer::new(&mock.client, "errors", &mock.topology).unwrap().unit(&mut db, 0, &|| ()))
    }),
    (Code::InstanceFenced, "at joining", |_| fenced(RDKafkaApiKey::JoinGroup)),
    (Code::InstanceFenced, "at a heartbeat", |_| fenced(RDKafkaApiKey::Heartbeat)),
    (Code::Internal, "the poll thread is gone", |f| {
        let mock = Mock::new();
        let (broadcast, whole) = BroadcastReader::start(&mock.client, &mock.topology).unwrap();
        assert!(whole.is_empty());
        let mut poll = mock.poll_thread();
        poll.events = crossbeam_channel::unbounded().1;
        let bench = Bench::new(Backend::Hash, "{}");
        let parts = TaskParts {
            engine: bench.engine,
            embedder: bench.embedder,
            state: State::new(Db::open(f, "a").unwrap()),
            broadcast,
            registry: Registry::default(),
            restorer: Restorer::new(&mock.client, "errors", &mock.topology).unwrap(),
            poll,
            budget: Budget::default(),
            heartbeat: Heartbeat::default(),
            ends: HashMap::new(),
        };
        let options = RunOptions { until_end: false, stop: Arc::default(), on_output: None, on_progress: None };
        let producer = mock.producer().unwrap();
        failed(Task::new(parts, producer, options, Box::new(|| panic!("no rebuild"))).run())
    }),
];

/// Cases with a long wait, in a test of their own.
const SLOW: &[(Code, &str, Raise)] = &[
    (Code::BrokerUnreachable, "the broker goes away", |_| {
        let reader = source::reader(&client("127.0.0.1:1"), "read_committed", "errors").unwrap();
        failed(source::read(&reader, "changelog", 0, 0, |_| Ok(())))
    }),
    (Code::RestoreStalled, "the broker stays and gives nothing", |_| {
        let cluster = rdkafka::mocking::MockCluster::new(1).unwrap();
        cluster.create_topic("changelog", 1, 1).unwrap();
        let mut client = client(&cluster.bootstrap_servers());
        client.set("socket.timeout.ms", "300000");
        let reader = source::reader(&client, "read_committed", "errors").unwrap();
        source::watermarks(&reader, "changelog", 0).unwrap();
        cluster.broker_round_trip_time(1, std::time::Duration::from_secs(250)).unwrap();
        failed(source::read(&reader, "changelog", 0, 0, |_| Ok(())))
    }),
];

/// Runs a group; every case gets a folder of its own.
fn raise(group: &[(Code, &str, Raise)]) {
    for (code, what, case) in group {
        let folder = tempfile::tempdir().unwrap();
        match case(folder.path()) {
            Some(found) => assert_eq!(found, *code, "{what}"),
            None => eprintln!("{}: {what}: skipped", code.name()),
        }
    }
}

#[test]
fn configuration_and_files() {
    raise(FILES);
}

#[test]
fn encoder_and_detectors() {
    raise(MODELS);
}

#[test]
fn local_state() {
    raise(STATE);
}

#[test]
fn broker_and_transactions() {
    raise(BROKER);
}

/// Takes the minute that a read may stand still.
#[test]
fn a_read_from_a_dead_broker_ends() {
    raise(&SLOW[..1]);
}

#[test]
fn a_read_that_stands_still_ends() {
    raise(&SLOW[1..]);
}

// (f) nothing is left

/// No code is left that nothing raises.
#[test]
fn every_code_is_raised() {
    let mut here: BTreeSet<Code> = decode_cases().into_iter().map(|(code, _, _)| code).collect();
    here.extend(invalid_files().into_iter().map(|(_, _, error)| error.code()));
    here.extend([FILES, MODELS, STATE, BROKER, SLOW].into_iter().flatten().map(|(code, _, _)| *code));
    here.insert(Code::OutputTooLarge); // outputs_stay_below_the_limit
    let missing: Vec<&str> = Code::ALL.iter().filter(|c| !here.contains(c)).map(|c| c.name()).collect();
    assert!(missing.is_empty(), "nothing raises {missing:?}");
}
