//! What the cases share: samples, an engine on its own, the program, and an embedded broker.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use memsluice::app::Setup;
use memsluice::config::{self, Backend, Config, Secret};
use memsluice::embed::{Embedder, Encoded, Job};
use memsluice::error::{Code, Error};
use memsluice::pipeline::{CommitStep, Committer, Embeds, Engine, EngineSettings, Registry, Unit};
use memsluice::sink::{Output, Publication, TransactionalProducer, publish};
use memsluice::source::{self, At, Budget, Client, Fetched, Heartbeat, Lags, PollThread, StartOptions};
use memsluice::state::{Change, Db, MemoryStore, State, Store};
use memsluice::topology::{Role, Topology};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use serde_json::{Value, json};
use serde_yaml_ng::Value as Yaml;

pub(crate) fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub(crate) fn file_names(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root(folder)).unwrap();
    entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

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
pub(crate) fn load(overlay: &serde_yaml_ng::Mapping) -> memsluice::error::Result<Setup> {
    let folder = tempfile::tempdir().unwrap();
    for (name, sample) in [("main", "memsluice.yaml"), ("topics", "topics.yaml"), ("policy", "policy.yaml")] {
        if let Some(text) = overlaid(sample, overlay.get(name), overlay.get(format!("raw_{name}"))) {
            fs::write(folder.path().join(sample), text).unwrap();
        }
    }
    Setup::load(Config::default(), Some(folder.path()), None)
}

pub(crate) const DIMENSION: usize = 8;
/// Stands in every content: no message may repeat it.
pub(crate) const CONTENT: &str = "the-content-7f3a";
pub(crate) const KEY: &str = "acme/support";

pub(crate) fn fetched(role: Role, value: Option<Vec<u8>>) -> Fetched {
    let at = At { generation: 0, role, partition: partition(), offset: 7, timestamp: 1_764_000_000_000 };
    let headers = vec![("from".to_owned(), Some(b"test".to_vec())), ("empty".to_owned(), None)];
    Fetched { at, key: Some(KEY.into()), value, headers }
}

fn unit_vector() -> Value {
    let mut bytes = vec![0_u8; 2 * DIMENSION];
    bytes[..2].copy_from_slice(&i16::MAX.to_le_bytes());
    json!({ "i16": base64::engine::general_purpose::STANDARD.encode(bytes) })
}

pub(crate) fn valid_write() -> Value {
    json!({
        "tenant": "acme", "store": "support", "record_id": "m-1", "op": "create", "content": CONTENT,
        "origin": "user_input", "principal": "u-1", "session_id": "s-1", "expires_at": "2027-01-01T00:00:00Z",
        "embedding": [0.5, -0.5, 0, 0, 1e-3, 0, 0, 2], "derived_from": ["m-0"], "extra": {"kept": [1, null]},
    })
}

pub(crate) fn valid_retrieval() -> Value {
    json!({
        "tenant": "acme", "store": "support", "event_id": "r-1", "session_id": "s-1", "principal": "u-1",
        "results": [{"id": "m-1", "score": 0.5, "tenant": "acme"}], "query": CONTENT, "k": 5,
        "query_embedding": unit_vector(), "output_id": "o-1", "background": false,
    })
}

pub(crate) fn patched(mut base: Value, patch: &Value) -> Vec<u8> {
    for (name, value) in patch.as_object().unwrap() {
        match value {
            Value::Null => drop(base.as_object_mut().unwrap().remove(name)),
            _ => base[name] = value.clone(),
        }
    }
    serde_json::to_vec(&base).unwrap()
}

pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) embedder: Embedder,
    pub(crate) secret: Secret,
}

impl Bench {
    pub(crate) fn new(backend: Backend, overlay: &str) -> Self {
        let overlay: serde_yaml_ng::Mapping = serde_yaml_ng::from_str(overlay).unwrap();
        let mut setup = load(&overlay).unwrap();
        // Records of these tests have one content, which a source may not repeat.
        std::sync::Arc::make_mut(&mut setup.topology).main.screen.mode = memsluice::topology::MemsadMode::Off;
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
    pub(crate) fn take(&self, record: Fetched) -> Vec<Output> {
        Line::new(self).take(record).unwrap()
    }

    fn embed(&self, text: String) -> memsluice::error::Result<Encoded> {
        self.embedder.submit(Job { unit: 0, ticket: 0, text, retry_until: None });
        self.embedder.done().recv().unwrap().result
    }
}

/// A unit with its state, for records that follow each other.
pub(crate) struct Line<'a> {
    bench: &'a Bench,
    state: State<MemoryStore>,
    unit: Unit,
}

impl<'a> Line<'a> {
    pub(crate) fn new(bench: &'a Bench) -> Self {
        Self::over(bench, Vec::new())
    }

    /// Over committed state.
    pub(crate) fn over(bench: &'a Bench, committed: Vec<Change>) -> Self {
        let mut store = MemoryStore::default();
        store.apply(committed).unwrap();
        let state = State::new(store);
        let unit = Unit::load(partition(), BTreeMap::new(), BTreeMap::new(), &state).unwrap();
        Self { bench, state, unit }
    }

    /// One record through all stages.
    pub(crate) fn take(&mut self, record: Fetched) -> memsluice::error::Result<Vec<Output>> {
        let (pending, embeds) = self.bench.engine.admit(record);
        let embedded = match embeds {
            Embeds::Nothing => None,
            Embeds::Given(vector) => Some(Ok(Encoded::given(vector))),
            Embeds::Text(text) => Some(self.bench.embed(text)),
        };
        self.bench.engine.finish(pending, embedded, &mut self.unit, &mut self.state, &Registry::default())
    }

    /// Commits, forgets all that is in memory, and goes on with the rules of `bench`.
    pub(crate) fn restart(&mut self, bench: &'a Bench) {
        self.unit.flush(&mut self.state);
        self.state.commit(Vec::new()).unwrap();
        self.rewind(bench);
    }

    /// Drops what is open.
    pub(crate) fn rewind(&mut self, bench: &'a Bench) {
        self.state.abort();
        self.unit = Unit::load(partition(), self.unit.positions().clone(), BTreeMap::new(), &self.state).unwrap();
        self.bench = bench;
    }

    /// What is open, and what a unit knows of it.
    pub(crate) fn open(&self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        self.state.overlay().iter().map(|(k, v)| (k.to_vec(), v.map(<[u8]>::to_vec))).collect()
    }

    /// All that is committed.
    pub(crate) fn dump(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.state.store().dump()
    }
}

/// The partition of [`KEY`].
pub(crate) fn partition() -> i32 {
    source::partition_of(KEY.as_bytes(), 6)
}

pub(crate) fn encoder(backend: Backend) -> config::Encoder {
    config::Encoder { backend, dimension: DIMENSION, ..config::Encoder::default() }
}

/// Raises a code; `None` where this machine lacks what it needs.
pub(crate) type Raise = fn(&Path) -> Option<Code>;

pub(crate) fn failed<T>(result: memsluice::error::Result<T>) -> Option<Code> {
    let error = result.err().unwrap_or_else(|| panic!("it did not fail"));
    let text = error.to_string();
    assert!(text.contains(&format!("[{}]", error.code().name())) && text.contains(error.code().hint()), "{text}");
    Some(error.code())
}

pub(crate) fn write(folder: &Path, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path
}

/// The program's code and exit status, which must agree.
pub(crate) fn program(args: &[&str], env: &[(&str, &Path)], folder: &Path, stdout: Stdio) -> Option<Code> {
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

/// A mock cluster with the sample's topics, whose requests can be made to fail.
pub(crate) struct Mock {
    pub(crate) cluster: MockCluster<'static, DefaultProducerContext>,
    pub(crate) topology: Arc<Topology>,
    pub(crate) client: Client,
}

impl Mock {
    pub(crate) fn new() -> Self {
        let topology = Topology::sample().unwrap();
        let cluster = MockCluster::new(1).unwrap();
        for role in Role::ALL {
            cluster.create_topic(topology.name(role), topology.topic(role).partitions, 1).unwrap();
        }
        let client = client(&cluster.bootstrap_servers());
        Self { cluster, topology: Arc::new(topology), client }
    }

    pub(crate) fn producer(&self) -> memsluice::error::Result<TransactionalProducer> {
        TransactionalProducer::start(&self.client, Some("errors-0"), Duration::from_secs(10), 1 << 20)
    }

    pub(crate) fn poll_thread(&self) -> PollThread {
        PollThread::start(StartOptions {
            client: &self.client,
            topology: &self.topology,
            group: "errors",
            instance: "0",
            budget: Budget::default(),
            task: Heartbeat::default(),
            lags: Lags::default(),
            sabotage: None,
        })
        .unwrap()
    }

    pub(crate) fn publish(&self, role: Role, value: &[u8]) {
        let topic = self.topology.name(role).to_owned();
        let record =
            Publication { topic, partition: Some(0), key: b"k".to_vec(), value: value.to_vec(), timestamp: None };
        publish(&self.client, &[record]).unwrap();
    }

    /// A transaction with one delivered record and no group to commit it for; `end` is the broker's
    /// answer to its end.
    pub(crate) fn transaction(&self, folder: &Path, end: &[RDKafkaRespErr]) -> CommitStep {
        let mut committer =
            Committer::new(self.producer().unwrap(), &self.topology, memsluice::pipeline::Faults::default());
        let mut state = State::new(Db::open(folder, "a", 8 << 20).unwrap());
        let (key, value) = (b"k".to_vec(), Some(b"{}".to_vec()));
        let output = Output { role: Role::Decisions, partition: 0, key, value, headers: Vec::new() };
        committer.stage(0, Role::MemoryWrites, 1, vec![output]);
        self.cluster.request_errors(RDKafkaApiKey::EndTxn, end);
        committer.commit(&mut state, None)
    }
}

pub(crate) fn client(bootstrap: &str) -> Client {
    let mut config = Config::default();
    config.kafka.bootstrap = Some(bootstrap.to_owned());
    config.kafka.properties.insert("socket.timeout.ms".to_owned(), "2000".to_owned());
    source::client(&config).unwrap()
}
