//! What the stream reads back: changelog, state, broadcast topics.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::{Arc, LazyLock};

use memsluice::breaker::Circuit;
use memsluice::config::Secret;
use memsluice::embed::Encoded;
use memsluice::error::Result;
use memsluice::inspect::Names;
use memsluice::pipeline::{Embeds, Engine, EngineSettings, Registry, Unit};
use memsluice::policy::{LabelNote, Policy};
use memsluice::schema::Vector;
use memsluice::score::{AcceptedValue, Copies, QueryValue, RollingMark, StoredValue, WindowMark};
use memsluice::screen::{Entry, ShareMark, Slot};
use memsluice::session::SessionState;
use memsluice::source::{At, Fetched};
use memsluice::state::{
    Change, Kind, MemoryStore, Positions, State, Store as _, UnitMeta, decode, encode, key, of_unit, parse, prefix,
};
use memsluice::topology::{Role, Topology};

use crate::bytes::Bytes;

const UNIT: i32 = 0;

const MAIN: &str = include_str!("../../topology/memsluice.yaml");
const TOPICS: &str = include_str!("../../topology/topics.yaml");

/// The sample, or the sample with both inputs behind internal topics.
fn engine(repartitioned: bool) -> Result<Engine> {
    let with = if repartitioned { "timestamps: bounded, repartition: auto" } else { "timestamps: bounded" };
    let topology = Topology::parse(MAIN, &TOPICS.replace("timestamps: bounded", with))?;
    Engine::new(EngineSettings {
        topology: Arc::new(topology),
        policy: Policy::sample()?,
        secret: Secret::new(&[7; 32])?,
        encoder: "fuzz".to_owned(),
        dimension: 4,
        partitioned: false,
    })
}

static ENGINE: LazyLock<Option<Engine>> = LazyLock::new(|| engine(false).ok());
static BEHIND_REPARTITION: LazyLock<Option<Engine>> = LazyLock::new(|| engine(true).ok());

/// Records of both inputs through all stages, one behind the other.
pub fn pipeline(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let engine = if bytes.byte() & 1 == 0 { ENGINE.as_ref() } else { BEHIND_REPARTITION.as_ref() };
    let Some(engine) = engine else { return };
    let mut records = Vec::new();
    while !bytes.is_empty() && records.len() < 4 {
        let role = if bytes.byte() & 1 == 0 { Role::MemoryWrites } else { Role::RetrievalLogs };
        let length = usize::from(bytes.byte()) << 3;
        let mut record = Bytes::new(bytes.take(length)).record(role);
        record.at.partition = UNIT;
        records.push(record);
    }
    run(engine, MemoryStore::default(), &HONEYPOTS, records);
}

fn json(role: Role, offset: i64, text: &str) -> Fetched {
    let at = At { generation: 1, role, partition: UNIT, offset, timestamp: 1_790_000_000_000 };
    Fetched { at, key: Some(b"acme/support".to_vec()), value: Some(text.as_bytes().to_vec()), headers: Vec::new() }
}

/// A write, a read of a honeypot and a broken record of boundary `acme/support`.
fn records() -> [Fetched; 3] {
    let write =
        r#"{"tenant":"acme","store":"support","record_id":"m-1","op":"create","content":"text","principal":"p-1"}"#;
    let read = r#"{"tenant":"acme","store":"support","event_id":"e-1","session_id":"s-1","principal":"p-1","query":"q","results":[{"id":"h-1"}],"k":1}"#;
    let broken = r#"{"tenant":"acme","store":"support","record_id":"m-2","principal":"p-1"}"#;
    [json(Role::RetrievalLogs, 10, read), json(Role::MemoryWrites, 10, write), json(Role::MemoryWrites, 11, broken)]
}

/// Takes records through the stages, over what was read back.
fn run(engine: &Engine, store: MemoryStore, registry: &Registry, records: impl IntoIterator<Item = Fetched>) {
    let mut state = State::new(store);
    let Ok(mut unit) = Unit::load(UNIT, BTreeMap::new(), BTreeMap::new(), &state) else { return };
    for record in records {
        let (pending, embeds) = engine.admit(record);
        let vector = match embeds {
            Embeds::Nothing => None,
            Embeds::Given(vector) => Some(vector),
            Embeds::Text(_) => Vector::from_f64(&[1.0, 0.5, 0.0, -0.5]),
        };
        let embedded = vector.map(|vector| Ok(Encoded::given(vector)));
        if engine.finish(pending, embedded, &mut unit, &mut state, registry).is_err() {
            return;
        }
        unit.flush(&mut state);
        black_box(state.commit(Vec::new()).is_ok());
    }
}

/// The source of the records of `p-1`.
const SOURCE: &str = "ff54176bb32423949942d0738c6341fd";

/// Whether a value of a kind can be read, as a start, a restore or a record would.
fn readable(kind: Kind, value: &[u8]) -> bool {
    match kind {
        Kind::Meta | Kind::SessionExpiry | Kind::SourceExpiry | Kind::Entity => true,
        Kind::Offsets => decode::<Positions>(value).is_ok_and(|p| decode::<Positions>(&encode(&p)).is_ok()),
        Kind::Unit => decode::<UnitMeta>(value).is_ok(),
        Kind::Boundary => decode::<i64>(value).is_ok(),
        Kind::HistorySlot => decode::<(u64, Vec<u8>)>(value).is_ok(),
        Kind::Session => decode::<SessionState>(value).is_ok(),
        Kind::Active | Kind::LabelMark => decode::<u64>(value).is_ok(),
        Kind::Label => decode::<LabelNote>(value).is_ok(),
        Kind::Topic | Kind::LabelSlot => decode::<String>(value).is_ok(),
        Kind::Circuit => decode::<Circuit>(value).is_ok(),
        Kind::Held => decode::<()>(value).is_ok(),
        Kind::Query => decode::<QueryValue>(value).is_ok(),
        Kind::Window => decode::<(WindowMark, u64)>(value).is_ok(),
        Kind::Stored => decode::<StoredValue>(value).is_ok(),
        Kind::Rolling => decode::<RollingMark>(value).is_ok(),
        Kind::RollingRow => decode::<AcceptedValue>(value).is_ok(),
        Kind::RollingCopies => decode::<Copies>(value).is_ok(),
        Kind::FloorShare => decode::<ShareMark>(value).is_ok(),
        Kind::SourceSlot => decode::<Slot>(value).is_ok_and(|s| Entry::read(s).is_none_or(|e| e.seq < u64::MAX)),
    }
}

/// Records of the changelog with any key and value: taken in as a restore does, listed as `state inspect` does,
/// and started from.
pub fn changelog(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let mut changes: Vec<Change> = Vec::new();
    while !bytes.is_empty() && changes.len() < 8 {
        let (flags, key) = (bytes.byte(), bytes.chunk());
        let value = (flags & 1 != 0).then(|| bytes.chunk().to_vec());
        black_box(Names::Plain.entry(key, value.as_ref().map_or(0, Vec::len)));
        if let Some(parsed) = parse(key) {
            let made = remake(&parsed.parts, parsed.number, parsed.kind, parsed.partition);
            assert_eq!(made, key);
        }
        for kind in Kind::LOGGED.into_iter().chain([Kind::Offsets]) {
            black_box(value.as_deref().is_some_and(|v| readable(kind, v)));
        }
        if of_unit(key, UNIT) {
            changes.push((key.to_vec(), value));
        }
    }
    let (Some(engine), false) = (ENGINE.as_ref(), changes.is_empty()) else { return };
    let mut store = MemoryStore::default();
    if store.apply(changes).is_ok() {
        run(engine, store, &Registry::default(), records());
    }
}

fn remake(parts: &[String], number: Option<u64>, kind: Kind, partition: i32) -> Vec<u8> {
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let head = match (kind, number) {
        (Kind::SourceSlot, _) => 2,
        (_, Some(_)) => 1,
        (_, None) => parts.len(),
    };
    key(kind, partition, &parts[..head], number, &parts[head..])
}

/// Values of every kind under the keys that the records of `acme/support` read.
pub fn state(data: &[u8]) {
    let Some(engine) = ENGINE.as_ref() else { return };
    let mut bytes = Bytes::new(data);
    let mut changes: Vec<Change> = Vec::new();
    let boundary = "acme/support";
    while !bytes.is_empty() && changes.len() < 12 {
        let (what, number) = (bytes.byte(), u64::from(bytes.byte()));
        let at = |kind: Kind, parts: &[&str]| key(kind, UNIT, parts, None, &[]);
        let key = match what % 22 {
            0 => at(Kind::Unit, &[]),
            1 => at(Kind::Boundary, &[boundary]),
            2 => key(Kind::HistorySlot, UNIT, &[boundary], Some(number), &[]),
            3 => at(Kind::Session, &[boundary, "s-1"]),
            4 => key(Kind::SessionExpiry, UNIT, &[boundary], Some(number << 56), &["s-1"]),
            5 => at(Kind::Active, &[if number % 2 == 0 { "memsad/*" } else { "honeypots/acme/support" }]),
            6 => at(Kind::Circuit, &[if number % 2 == 0 { "memory-writes/acme/support/principal:p-1" } else { "x" }]),
            7 => key(Kind::Held, UNIT, &["memory-writes/own/acme/support/m-1"], Some(number), &[]),
            8 => key(Kind::SourceSlot, UNIT, &[boundary, SOURCE], Some(number), &[]),
            9 => key(Kind::SourceExpiry, UNIT, &[boundary], Some(number << 56), &[SOURCE]),
            10 => key(Kind::Entity, UNIT, &[boundary], Some(number), &[]),
            11 => key(Kind::Query, UNIT, &[boundary], Some(number), &[]),
            12 => at(Kind::Window, &[boundary]),
            13 => key(Kind::Stored, UNIT, &[boundary], Some(number), &[]),
            14 => at(Kind::Rolling, &[boundary]),
            15 => key(Kind::RollingRow, UNIT, &[boundary], Some(number), &[]),
            16 => at(Kind::FloorShare, &[boundary]),
            17 => at(Kind::RollingCopies, &[boundary]),
            18 => at(Kind::Label, &[boundary, "m-1"]),
            19 => key(Kind::LabelSlot, UNIT, &[boundary], Some(number), &[]),
            20 => at(Kind::LabelMark, &[boundary]),
            _ => [prefix(Kind::Held, UNIT).as_slice(), bytes.chunk()].concat(),
        };
        let mut value = vec![1];
        value.extend_from_slice(bytes.chunk());
        changes.push((key, Some(value)));
    }
    let mut store = MemoryStore::default();
    if store.apply(changes).is_ok() {
        run(engine, store, &HONEYPOTS, records());
    }
}

/// A registry in which the read of [`records`] is a hit.
static HONEYPOTS: LazyLock<Registry> = LazyLock::new(|| {
    let mut registry = Registry::default();
    let set = br#"{"scope":"acme/support","version":1,"honeypots":[{"tenant":"acme","store":"support","honeypot_id":"hp-1","record_id":"h-1"}]}"#;
    black_box(registry.apply(Role::Honeypots, b"honeypots/acme/support@1", Some(set)).is_ok());
    registry.activate("honeypots/acme/support".to_owned(), 1);
    registry
});

/// Records of `calibrations` and `honeypots`, then records that they apply to. JSON as it stands is taken
/// under the key that its value names.
pub fn broadcast(data: &[u8]) {
    let mut registry = Registry::default();
    let mut bytes = Bytes::new(data);
    if data.first() == Some(&b'{') {
        named(&mut registry, data);
    } else {
        for _ in 0..8 {
            if bytes.is_empty() {
                break;
            }
            let flags = bytes.byte();
            let role = if flags & 1 == 0 { Role::Calibrations } else { Role::Honeypots };
            let key = bytes.chunk();
            let value = if flags & 4 != 0 { bytes.rest() } else { bytes.chunk() };
            black_box(registry.apply(role, key, (flags & 2 == 0).then_some(value)).is_ok());
        }
    }
    let (Some(engine), true) = (ENGINE.as_ref(), registry.generation() > 0) else { return };
    run(engine, MemoryStore::default(), &registry, records());
}

fn named(registry: &mut Registry, data: &[u8]) {
    let field = |value: &serde_json::Value, name: &str| value.get(name).map(ToString::to_string).unwrap_or_default();
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(data) else { return };
    let (scope, version) = (field(&value, "scope").replace('"', ""), field(&value, "version"));
    for (role, kind) in [(Role::Calibrations, "memsad"), (Role::Honeypots, "honeypots")] {
        let key = format!("{kind}/{scope}@{version}");
        if registry.apply(role, key.as_bytes(), Some(data)).is_ok() {
            registry.activate(format!("{kind}/{scope}"), version.parse().unwrap_or_default());
        }
    }
}
