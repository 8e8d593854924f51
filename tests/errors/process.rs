//! Everything that starts a client, opens a file or runs the program.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use memsluice::agreement::{Live, Own, admit, finalize};
use memsluice::app::Setup;
use memsluice::calibrate::{Samples, fit_boundary};
use memsluice::config::{Backend, Config, Kernel, Score, Secret};
use memsluice::dlq::{Act, Letter, sending};
use memsluice::embed::Embedder;
use memsluice::error::{Code, Error};
use memsluice::pipeline::{Ahead, CommitStep, Faults, Registry, RunOptions, StopStep, Task, TaskParts, Unit};
use memsluice::policy::Policy;
use memsluice::published::Published;
use memsluice::reset::check_members;
use memsluice::schema::{Agreement, ApplicationMeta, Boundary, StateFormats};
use memsluice::score::kernel;
use memsluice::source::{self, Bounds, BroadcastReader, Budget, Event, Heartbeat, MockBroker, preflight};
use memsluice::state::{Db, Kind, MemoryStore, Positions, READS, Restorer, State, Store, UnitPlan, key};
use memsluice::telemetry::{self, health, metrics};
use memsluice::topology::{Role, Topology, agreed, fingerprint};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use serde_json::{Value, json};

use crate::support::{
    Bench, DIMENSION, KEY, Mock, Raise, client, encoder, failed, fetched, patched, program, root, valid_retrieval,
    valid_write, write,
};

fn faiss(path: Option<PathBuf>) -> Option<Code> {
    failed(kernel::choose(&Score { kernel: Kernel::Faiss, faiss: path, ..Score::default() }))
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

fn stopped(step: StopStep) -> Option<Code> {
    Some(step.failed(Error::new(Code::BrokerUnreachable, "")).code())
}

/// A member of the sample topology with an edit and a policy.
fn own(from: &str, to: &str) -> Own {
    let main = include_str!("../../topology/memsluice.yaml").replace(from, to);
    let topology = Topology::parse(&main, include_str!("../../topology/topics.yaml")).unwrap();
    let settings = agreed(&topology.settings());
    let agreement =
        Agreement { fingerprint: fingerprint(&settings), policy: String::new(), key_id: String::new(), settings };
    Own { instance: "0".to_owned(), agreement, reads: READS, program: "0.1.0".to_owned() }
}

fn recorded(from: &str, to: &str, write: u8) -> ApplicationMeta {
    let (agreement, format) = (own(from, to).agreement, StateFormats { min: 1, write });
    ApplicationMeta { revision: 1, agreement, next: None, format, program: "0.1.0".to_owned() }
}

/// Configuration, secret and files.
pub(crate) const FILES: &[(Code, &str, Raise)] = &[
    (Code::MemberDiffers, "another threshold", |_| {
        failed(admit(&recorded("kappa: 2.0", "kappa: 2.5", 1), &own("", "")))
    }),
    (Code::TopologyIncompatible, "another ring", |_| {
        failed(admit(&recorded("history: 100 ", "history: 30 ", 1), &own("", "")))
    }),
    (Code::TopologyIncompatible, "topology diff", |f| {
        for (name, text) in [
            ("old", include_str!("../../topology/memsluice.yaml").to_owned()),
            (
                "new",
                include_str!("../../topology/memsluice.yaml").replace("application: memsluice", "application: other"),
            ),
        ] {
            fs::create_dir(f.join(name)).unwrap();
            write(&f.join(name), "memsluice.yaml", text);
            write(&f.join(name), "topics.yaml", include_str!("../../topology/topics.yaml"));
        }
        program(&["topology", "diff", "old", "new"], &[], f, Stdio::null())
    }),
    (Code::UpgradeUnfinished, "a member of the old kind", |_| {
        let live = [Live { client: "memsluice-0 (/h)".to_owned(), member: None }];
        failed(finalize(&recorded("", "", 1), &own("", ""), &live))
    }),
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
        config.kafka.properties.insert("no.such.property", "1");
        failed(source::client(&config))
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
    (Code::HttpUnavailable, "a busy port", |_| {
        let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        failed(telemetry::serve(&held.local_addr().unwrap().to_string(), metrics(), health()))
    }),
    (Code::HttpUnavailable, "no address", |_| failed(telemetry::serve("nowhere", metrics(), health()))),
    // What makes a running process say so stands in `a_failed_stop_names_its_step`.
    (Code::StopDrainFailed, "a step of the stop", |_| stopped(StopStep::Drain)),
    (Code::StopCommitFailed, "a step of the stop", |_| stopped(StopStep::Commit)),
    (Code::StopFlushFailed, "a step of the stop", |_| stopped(StopStep::Flush)),
    (Code::StopLeaveFailed, "a step of the stop", |_| stopped(StopStep::Leave)),
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
pub(crate) const MODELS: &[(Code, &str, Raise)] = &[
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
    (Code::KernelUnavailable, "no path of FAISS", |_| faiss(None)),
    (Code::KernelUnavailable, "no library", |f| faiss(Some(write(f, "libfaiss.so", "no library")))),
    (Code::KernelUnavailable, "a device that is not there", |_| {
        failed(kernel::choose(&Score { kernel: Kernel::Cuda, device: 4096, ..Score::default() }))
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
    (Code::CalibrationMissing, "an empty topic", |_| {
        failed(Published::of(std::iter::empty()).get("memsad/acme/support", 1).cloned())
    }),
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
pub(crate) const STATE: &[(Code, &str, Raise)] = &[
    (Code::FormatUnsupported, "a newer format", |_| {
        failed(memsluice::state::write_format(StateFormats { min: 1, write: READS.max + 1 }))
    }),
    (Code::FormatUnsupported, "a member", |_| failed(admit(&recorded("", "", READS.max + 1), &own("", "")))),
    (Code::StateFailed, "the folder is a file", |f| failed(Db::open(&write(f, "file", ""), "a", 8 << 20))),
    (Code::StateFailed, "the database is a file", |f| {
        write(f, "rocksdb", "");
        failed(Db::open(f, "a", 8 << 20))
    }),
    (Code::StateFailed, "another owner", |f| {
        let _held = Db::open(f, "a", 8 << 20).unwrap();
        failed(Db::open(f, "a", 8 << 20))
    }),
    (Code::StateCorrupt, "twice corrupt", |f| {
        for _ in 0..2 {
            drop(Db::open(f, "a", 8 << 20).unwrap());
            let current = fs::read_dir(f.join("rocksdb")).unwrap().map(|e| e.unwrap().path());
            for manifest in current.filter(|p| p.to_string_lossy().contains("MANIFEST")) {
                fs::write(manifest, b"not a manifest").unwrap();
            }
            if f.join("rocksdb-corrupt").exists() {
                break;
            }
            // Put aside once, and empty.
            let db = Db::open(f, "a", 8 << 20).unwrap();
            assert_eq!(Positions::of(&db, 0).unwrap(), None);
        }
        failed(Db::open(f, "a", 8 << 20))
    }),
    (Code::StateMismatch, "another identity", |f| {
        drop(Db::open(f, "memsluice units=6", 8 << 20).unwrap());
        drop(Db::open(f, "memsluice units=6", 8 << 20).unwrap());
        failed(Db::open(f, "memsluice units=7", 8 << 20))
    }),
    (Code::StateFormat, "another format", |f| {
        let mut db = Db::open(f, "a", 8 << 20).unwrap();
        db.apply(vec![positions(5).change(0)]).unwrap();
        assert_eq!(Positions::of(&db, 0).unwrap(), Some(positions(5)));
        let mut value = db.get(&offsets_key(0)).unwrap().unwrap();
        value[0] += 1;
        db.apply(vec![(offsets_key(0), Some(value))]).unwrap();
        failed(Positions::of(&db, 0))
    }),
    (Code::StateFormat, "a cut value", |_| {
        let mut store = MemoryStore::default();
        store.apply(vec![(key(Kind::Unit, 0, &[], None, &[]), Some(vec![1, 200]))]).unwrap();
        failed(Unit::load(0, BTreeMap::new(), BTreeMap::new(), &State::new(store)))
    }),
    (Code::StateFormat, "an empty value", |_| {
        let mut store = MemoryStore::default();
        store.apply(vec![(key(Kind::Unit, 0, &[], None, &[]), Some(Vec::new()))]).unwrap();
        failed(Unit::load(0, BTreeMap::new(), BTreeMap::new(), &State::new(store)))
    }),
    (Code::TopicRecreated, "the changelog ends before the state", |_| {
        failed(UnitPlan::new(Some(&positions(101)), Bounds { low: 0, high: 100 }, 0, 1000))
    }),
];

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
    poll.stop().unwrap();
    failed::<()>(Err(error))
}

/// An operator's command against an embedded broker.
fn operate(folder: &Path, args: &[&str], env: &[(&str, String)]) -> Option<Code> {
    let env: Vec<(&str, &Path)> = env.iter().map(|(k, v)| (*k, Path::new(v))).collect();
    program(args, &env, folder, Stdio::null())
}

/// What the poll thread says when it is sent behind the end of its inputs.
fn out_of_range() -> Option<Code> {
    let mock = Mock::new();
    let mut poll = mock.poll_thread();
    let error = loop {
        match poll.events.recv_timeout(Duration::from_secs(30)).unwrap() {
            Event::Assigned { generation, partitions } => {
                let offsets = partitions.iter().map(|(role, p)| (*role, *p, 999)).collect();
                poll.commands.send(source::Command::Start { generation, offsets }).unwrap();
            }
            Event::Failed(error) => break error,
            _ => {}
        }
    };
    poll.stop().unwrap();
    failed::<()>(Err(error))
}

/// Broker and transactions, on librdkafka's embedded broker with injected errors.
pub(crate) const BROKER: &[(Code, &str, Raise)] = &[
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
    (Code::TlsFailed, "a broker without TLS", |_| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = client(&listener.local_addr().unwrap().to_string());
        client.set("security.protocol", "ssl");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                drop(std::io::Write::write_all(&mut stream.unwrap(), b"no TLS here\r\n"));
            }
        });
        failed(source::connect(&client))
    }),
    (Code::AuthenticationFailed, "no token endpoint", |_| {
        let broker = MockBroker::start().unwrap();
        let mut client = client(&broker.bootstrap());
        let settings = [
            ("security.protocol", "sasl_plaintext"),
            ("sasl.mechanisms", "OAUTHBEARER"),
            ("sasl.oauthbearer.method", "oidc"),
            ("sasl.oauthbearer.client.id", "memsluice"),
            ("sasl.oauthbearer.client.secret", "secret"),
            ("sasl.oauthbearer.token.endpoint.url", "http://127.0.0.1:1/token"),
        ];
        for (key, value) in settings {
            client.set(key, value);
        }
        failed(source::connect(&client))
    }),
    (Code::AccessDenied, "init_transactions", |_| {
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
        let mut db = Db::open(f, "a", 8 << 20).unwrap();
        let restorer = Restorer::new(&mock.client, "errors", &mock.topology).unwrap();
        restorer.unit(&mut db, 0, &|_| true).unwrap();
        mock.publish(Role::Decisions, b"{}");
        failed(restorer.unit(&mut db, 0, &|_| true))
    }),
    (Code::TopicRecreated, "the live changelog", |f| {
        let mock = Mock::new();
        let mut db = Db::open(f, "a", 8 << 20).unwrap();
        db.apply(vec![positions(9).change(0)]).unwrap();
        failed(Restorer::new(&mock.client, "errors", &mock.topology).unwrap().unit(&mut db, 0, &|_| true))
    }),
    (Code::StateFormat, "a changelog record from outside", |f| {
        let mock = Mock::new();
        mock.publish(Role::Changelog, b"{}");
        let mut db = Db::open(f, "a", 8 << 20).unwrap();
        failed(Restorer::new(&mock.client, "errors", &mock.topology).unwrap().unit(&mut db, 0, &|_| true))
    }),
    (Code::TopologyDiffers, "no topic is there", |f| {
        let broker = MockBroker::start().unwrap();
        let env = [("MEMSLUICE__KAFKA__BOOTSTRAP", broker.bootstrap())];
        operate(f, &["topology", "plan"], &env)
    }),
    (Code::DeadLetterMissing, "an empty topic", |f| {
        let mock = Mock::new();
        let env = [("MEMSLUICE__KAFKA__BOOTSTRAP", mock.cluster.bootstrap_servers())];
        operate(f, &["dlq", "show", "0/5"], &env)
    }),
    (Code::DeadLetterIncomplete, "a stub", |_| {
        let names = ["exception", "topic", "partition", "offset"].map(|n| format!("__streams.errors.{n}"));
        let values = ["record_too_large", "memory-writes", "0", "7"].map(|v| Some(v.as_bytes().to_vec()));
        let mut record = fetched(Role::DeadLetters, Some(b"{}".to_vec()));
        record.headers.extend(names.into_iter().zip(values));
        record.headers.push(("memsluice-stub".to_owned(), Some(b"true".to_vec())));
        let Letter::Dead(letter) = Letter::parse("dead-letters", record) else { panic!("no dead letter") };
        failed(sending(&letter, &Act::Redrive { edit: None }))
    }),
    (Code::StateDiffers, "a key that the changelog has not", |f| {
        let mock = Mock::new();
        let identity = Setup::load(Config::default(), None, None).unwrap().identity();
        let mut db = Db::open(f, &identity, 8 << 20).unwrap();
        db.apply(vec![positions(0).change(0), (key(Kind::Unit, 0, &[], None, &[]), Some(vec![1]))]).unwrap();
        drop(db);
        let folder = f.to_str().unwrap().to_owned();
        let env = [("MEMSLUICE__KAFKA__BOOTSTRAP", mock.cluster.bootstrap_servers()), ("MEMSLUICE__STATE_DIR", folder)];
        operate(f, &["state", "verify", "--show-ids"], &env)
    }),
    (Code::DecisionDiffers, "another score", |f| {
        let text = fs::read_to_string(root("schemas/examples/valid/decision/allow.json")).unwrap();
        let changed = text.replace("\"s_max\": 466028529", "\"s_max\": 466028528");
        assert_ne!(text, changed);
        write(f, "d.json", &changed);
        operate(f, &["verify", "decision", "--decision", "d.json"], &[])
    }),
    (Code::GroupActive, "one member", |_| failed(check_members("g", &["memsluice-0".to_owned()]))),
    (Code::OffsetOutOfRange, "behind the end", |_| out_of_range()),
    (Code::InstanceFenced, "at joining", |_| fenced(RDKafkaApiKey::JoinGroup)),
    (Code::InstanceFenced, "at a heartbeat", |_| fenced(RDKafkaApiKey::Heartbeat)),
    (Code::Internal, "the poll thread is gone", |f| {
        let mock = Mock::new();
        let (broadcast, whole) = BroadcastReader::start(&mock.client, &mock.topology, false).unwrap();
        assert!(whole.is_empty());
        let mut poll = mock.poll_thread();
        poll.events = crossbeam_channel::unbounded().1;
        let bench = Bench::new(Backend::Hash, "{}");
        let parts = TaskParts {
            engine: bench.engine,
            embedder: bench.embedder,
            ahead: Ahead::start().unwrap(),
            state: State::new(Db::open(f, "a", 8 << 20).unwrap()),
            broadcast,
            registry: Registry::default(),
            restorer: Restorer::new(&mock.client, "errors", &mock.topology).unwrap(),
            standby: None,
            poll,
            budget: Budget::default(),
            heartbeat: Heartbeat::default(),
            ends: HashMap::new(),
        };
        let options =
            RunOptions { until_end: false, stop: Arc::default(), on_output: None, on_progress: None, on_restore: None };
        let producer = mock.producer().unwrap();
        failed(
            Task::new(
                parts,
                producer,
                options,
                Box::new(|| panic!("no rebuild")),
                Box::new(|| panic!("no rejoin")),
                Faults::default(),
            )
            .run(),
        )
    }),
];

/// Cases with a long wait, in a test of their own.
pub(crate) const SLOW: &[(Code, &str, Raise)] = &[
    (Code::BrokerUnreachable, "the broker goes away", |_| {
        let reader = source::reader(&client("127.0.0.1:1"), "read_committed", "errors").unwrap();
        failed(source::read(&reader, "changelog", 0, 0, |_| Ok(std::ops::ControlFlow::Continue(()))))
    }),
    (Code::RestoreStalled, "the broker stays and gives nothing", |_| {
        let cluster = rdkafka::mocking::MockCluster::new(1).unwrap();
        cluster.create_topic("changelog", 1, 1).unwrap();
        let mut client = client(&cluster.bootstrap_servers());
        client.set("socket.timeout.ms", "300000");
        let reader = source::reader(&client, "read_committed", "errors").unwrap();
        source::watermarks(&reader, "changelog", 0).unwrap();
        cluster.broker_round_trip_time(1, std::time::Duration::from_secs(250)).unwrap();
        failed(source::read(&reader, "changelog", 0, 0, |_| Ok(std::ops::ControlFlow::Continue(()))))
    }),
];

/// A broker that isolates nothing.
pub(crate) const PROBED: &[(Code, &str, Raise)] = &[(Code::BrokerUnsupported, "a mock broker", |f| {
    let broker = MockBroker::start().unwrap();
    let bootstrap = broker.bootstrap();
    program(&["check", "--broker"], &[("MEMSLUICE__KAFKA__BOOTSTRAP", Path::new(&bootstrap))], f, Stdio::null())
})];

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

#[test]
fn a_broker_that_lacks_something() {
    raise(PROBED);
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
