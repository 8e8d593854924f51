//! A partition unit in memory: what its state says, kept ready. Everything here can be dropped and read
//! again from the state, and is after an abort.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::memories::Memories;
use super::meter::SessionCounts;
use super::retrieval_path::read_session;
use super::sources::Sources;
use super::{Engine, Registry, gate};
use crate::breaker::{Breaker, Held};
use crate::clock::Millis;
use crate::embed::Encoded;
use crate::error::{Code, Error, Result};
use crate::schema::{Boundary, Scope, Vector, Versions};
use crate::score::{Fitted, History};
use crate::screen::Screening;
use crate::sink::Output;
use crate::source::{At, partition_of};
use crate::state::{self, Kind, State, Store, UnitMeta, key, topic_key};
use crate::topology::Role;

/// Honeypots of a boundary in force.
#[derive(Debug, Default)]
pub(super) struct Traps {
    pub(super) version: u64,
    /// Record id to opaque id.
    pub(super) by_record: HashMap<String, String>,
}

/// One unit.
#[derive(Debug)]
pub struct Unit {
    pub(super) partition: i32,
    pub(super) meta: UnitMeta,
    /// `kind/scope` to the version in force.
    active: BTreeMap<String, u64>,
    /// Sources that failed lately.
    pub(super) breaker: Breaker,
    /// What waits behind dead letters.
    pub(super) held: Held,
    /// Next offset of each input, by physical topic name.
    pub(super) positions: BTreeMap<String, i64>,
    pub(super) calibrations: BTreeMap<Scope, Arc<Fitted>>,
    pub(super) screenings: BTreeMap<Scope, Arc<Screening>>,
    /// Rings and known entities of the screen.
    pub(super) sources: Sources,
    /// Windows and accepted writes of hardened MEMSAD.
    pub(super) memories: Memories,
    pub(super) traps: HashMap<Boundary, Traps>,
    pub(super) versions: HashMap<Boundary, Arc<Versions>>,
    histories: HashMap<Boundary, History>,
    stream_times: HashMap<Boundary, Millis>,
    /// No session of the boundary may close before this.
    next_expiry: HashMap<Boundary, Millis>,
    registry_seen: Option<u64>,
    meta_changed: bool,
    /// What sessions did in the open transaction, for `/metrics`.
    pub(super) sessions: SessionCounts,
    /// Which fact of an input is being decided, from 1 on; 0: the input as a whole.
    pub(super) child: u32,
    /// Vectors of the facts of the input whose turn is next.
    pub(super) parts: Vec<Option<Result<Encoded>>>,
    /// Topic ids that the state doesn't hold yet.
    unnoted: BTreeMap<Role, String>,
}

/// Largest number of a query in a history.
const MAX_SEQ: u64 = 1 << 53;
/// Sessions looked at in one sweep.
const SWEEP: usize = 32;

impl Unit {
    /// Reads a unit from the state.
    ///
    /// # Errors
    /// `state_failed`, `state_format`.
    pub fn load<S: Store>(
        partition: i32,
        positions: BTreeMap<String, i64>,
        topics: BTreeMap<Role, String>,
        state: &State<S>,
    ) -> Result<Self> {
        let mut unnoted = BTreeMap::new();
        for (role, id) in topics {
            if state.get(&topic_key(partition, role))?.is_none() {
                unnoted.insert(role, id);
            }
        }
        let meta = match state.get(&meta_key(partition))? {
            Some(bytes) => state::decode(&bytes)?,
            None => UnitMeta::default(),
        };
        Ok(Self {
            partition,
            meta,
            active: load_active(partition, state)?,
            breaker: gate::load_breaker(partition, state)?,
            held: gate::load_held(partition, state)?,
            positions,
            calibrations: BTreeMap::new(),
            screenings: BTreeMap::new(),
            sources: Sources::default(),
            memories: Memories::default(),
            traps: HashMap::new(),
            versions: HashMap::new(),
            histories: HashMap::new(),
            stream_times: HashMap::new(),
            next_expiry: HashMap::new(),
            registry_seen: None,
            meta_changed: false,
            sessions: SessionCounts::default(),
            child: 0,
            parts: Vec::new(),
            unnoted,
        })
    }

    /// Next offsets, by physical topic name.
    #[must_use]
    pub fn positions(&self) -> &BTreeMap<String, i64> {
        &self.positions
    }

    /// The unit's small state.
    #[must_use]
    pub fn meta(&self) -> &UnitMeta {
        &self.meta
    }

    /// Puts chain head and versions into the overlay; called before each commit.
    pub fn flush<S: Store>(&mut self, state: &mut State<S>) {
        for (role, id) in std::mem::take(&mut self.unnoted) {
            state.put(topic_key(self.partition, role), state::encode(&id));
        }
        if std::mem::take(&mut self.meta_changed) {
            state.put(meta_key(self.partition), state::encode(&self.meta));
        }
    }

    /// Bytes of the histories held ready.
    #[must_use]
    pub fn cached_bytes(&self) -> usize {
        self.histories.values().map(History::bytes).sum::<usize>() + self.sources.bytes() + self.memories.bytes()
    }

    /// Drops the histories; they are read again when needed.
    pub fn drop_histories(&mut self) {
        self.histories.clear();
        self.sources.clear();
        self.memories.clear();
        self.stream_times.clear();
        self.next_expiry.clear();
        self.versions.clear();
    }

    pub(super) fn take_sessions(&mut self) -> SessionCounts {
        std::mem::take(&mut self.sessions)
    }

    /// Boundaries held ready.
    #[must_use]
    pub fn cached_boundaries(&self) -> usize {
        self.stream_times.len().max(self.versions.len())
    }

    pub(super) fn append_to_chain(&mut self, head: [u8; 32]) {
        self.meta.chain.head = head;
        self.meta.chain.next_seq += 1;
        self.meta_changed = true;
    }

    /// Puts new versions in force, with an activation in `decisions` for each.
    pub(super) fn adopt<S: Store>(
        &mut self,
        engine: &Engine,
        registry: &Registry,
        at: At,
        state: &mut State<S>,
    ) -> Vec<Output> {
        if self.registry_seen == Some(registry.generation()) {
            return Vec::new();
        }
        self.registry_seen = Some(registry.generation());
        let mut outputs = Vec::new();
        for (what, version) in registry.active() {
            let known = match what.split_once('/') {
                Some(("memsad", scope)) => registry.calibration(scope, *version).is_some(),
                Some(("screen", scope)) => registry.screening(scope, *version).is_some(),
                Some(("honeypots", scope)) => registry.honeypots(scope, *version).is_some(),
                _ => false,
            };
            if !known || !self.concerns(engine, what) || self.active.get(what) == Some(version) {
                continue;
            }
            self.active.insert(what.clone(), *version);
            state.put(key(Kind::Active, self.partition, &[what], None, &[]), state::encode(version));
            outputs.push(engine.activation(self, what, *version, at));
        }
        self.resolve(registry);
        outputs
    }

    /// Boundary scopes concern the unit they live in; the others concern all.
    fn concerns(&self, engine: &Engine, what: &str) -> bool {
        let scope = what.split_once('/').map_or("", |(_, s)| s);
        match (Scope::parse(scope), engine.units()) {
            (Some(Scope::Boundary(b)), Some(units)) => partition_of(b.as_str().as_bytes(), units) == self.partition,
            (scope, _) => scope.is_some(),
        }
    }

    fn resolve(&mut self, registry: &Registry) {
        self.calibrations.clear();
        self.screenings.clear();
        self.traps.clear();
        self.versions.clear();
        for (what, version) in &self.active {
            match what.split_once('/') {
                Some(("memsad", scope)) => {
                    if let (Some(key), Some(c)) = (Scope::parse(scope), registry.calibration(scope, *version)) {
                        self.calibrations.insert(key, c.clone());
                    }
                }
                Some(("screen", scope)) => {
                    if let (Some(key), Some(c)) = (Scope::parse(scope), registry.screening(scope, *version)) {
                        self.screenings.insert(key, c.clone());
                    }
                }
                Some(("honeypots", scope)) => {
                    if let (Some(Scope::Boundary(b)), Some(set)) =
                        (Scope::parse(scope), registry.honeypots(scope, *version))
                    {
                        let active = set.honeypots.iter().filter(|h| h.state == crate::schema::HoneypotState::Active);
                        let by_record = active.map(|h| (h.record_id.clone(), h.honeypot_id.clone())).collect();
                        self.traps.insert(b, Traps { version: *version, by_record });
                    }
                }
                _ => {}
            }
        }
    }

    /// The query history of a boundary.
    pub(super) fn history<S: Store>(
        &mut self,
        b: &Boundary,
        engine: &Engine,
        state: &State<S>,
    ) -> Result<&mut History> {
        if !self.histories.contains_key(b) {
            let history = load_history(self.partition, b, engine, state)?;
            self.histories.insert(b.clone(), history);
        }
        let missing = || Error::new(Code::Internal, "a history that was just read");
        self.histories.get_mut(b).ok_or_else(missing)
    }

    /// Advances a boundary's stream time and returns it.
    pub(super) fn advance<S: Store>(&mut self, b: &Boundary, at: Millis, state: &mut State<S>) -> Result<Millis> {
        let key = key(Kind::Boundary, self.partition, &[b.as_str()], None, &[]);
        let known = match self.stream_times.get(b) {
            Some(t) => *t,
            None => state.get(&key)?.map(|v| state::decode(&v)).transpose()?.unwrap_or(Millis::MIN),
        };
        let now = known.max(at);
        if now != known {
            state.put(key, state::encode(&now));
        }
        self.stream_times.insert(b.clone(), now);
        Ok(now)
    }

    /// Notes when a session may close.
    pub(super) fn schedule<S: Store>(&mut self, b: &Boundary, session: &str, closes: Millis, state: &mut State<S>) {
        let key = key(Kind::SessionExpiry, self.partition, &[b.as_str()], Some(time_bits(closes)), &[session]);
        state.put(key, Vec::new());
        let next = self.next_expiry.entry(b.clone()).or_insert(Millis::MIN);
        *next = (*next).min(closes);
    }

    /// Deletes sessions of the boundary that closed before `now`, a few at a time.
    pub(super) fn sweep<S: Store>(
        &mut self,
        b: &Boundary,
        now: Millis,
        engine: &Engine,
        state: &mut State<S>,
    ) -> Result<()> {
        if self.next_expiry.get(b).is_some_and(|t| now <= *t) {
            return Ok(());
        }
        let prefix = key(Kind::SessionExpiry, self.partition, &[b.as_str()], None, &[]);
        let due = state.scan(&prefix, SWEEP)?;
        // Entries stand in the order of their times: behind the first that isn't due none is.
        let mut last = due.len() < SWEEP;
        let mut next = Millis::MAX;
        for (entry, _) in due {
            let rest = &entry[prefix.len()..];
            let (Some(bits), Some(name)) = (rest.get(..8), rest.get(8..rest.len().saturating_sub(1))) else {
                continue;
            };
            let closes = bits_time(bits);
            if closes >= now {
                next = next.min(closes);
                last = true;
                break;
            }
            let session = String::from_utf8_lossy(name).into_owned();
            state.delete(entry);
            let session_key = key(Kind::Session, self.partition, &[b.as_str(), &session], None, &[]);
            let Some(value) = state.get(&session_key)? else {
                continue;
            };
            let known = read_session(&value)?;
            let closes = known.closes_at(engine.sprt());
            if closes < now {
                state.delete(session_key);
            } else {
                let moved =
                    key(Kind::SessionExpiry, self.partition, &[b.as_str()], Some(time_bits(closes)), &[&session]);
                state.put(moved, Vec::new());
                next = next.min(closes);
            }
        }
        self.next_expiry.insert(b.clone(), if last { next } else { Millis::MIN });
        Ok(())
    }
}

fn load_active<S: Store>(partition: i32, state: &State<S>) -> Result<BTreeMap<String, u64>> {
    let prefix = state::prefix(Kind::Active, partition);
    let mut active = BTreeMap::new();
    for (key, value) in state.scan(&prefix, usize::MAX)? {
        let name = key.get(prefix.len()..key.len().saturating_sub(1)).unwrap_or_default();
        active.insert(String::from_utf8_lossy(name).into_owned(), state::decode(&value)?);
    }
    Ok(active)
}

fn load_history<S: Store>(partition: i32, b: &Boundary, engine: &Engine, state: &State<S>) -> Result<History> {
    let prefix = key(Kind::HistorySlot, partition, &[b.as_str()], None, &[]);
    let mut entries = Vec::new();
    for (_, value) in state.scan(&prefix, usize::MAX)? {
        let (seq, bytes): (u64, Vec<u8>) = state::decode(&value)?;
        let components: Vec<i16> = bytes.chunks_exact(2).map(|c| i16::from_le_bytes([c[0], c[1]])).collect();
        // Sums and products of unit vectors alone stay in range.
        if seq > MAX_SEQ || Vector::from_unit(components.clone()).is_none() {
            return Err(Error::new(Code::StateFormat, "a query of a history is broken"));
        }
        entries.push((seq, components));
    }
    Ok(History::restore(engine.dimension(), engine.history_capacity(), entries))
}

fn meta_key(partition: i32) -> Vec<u8> {
    key(Kind::Unit, partition, &[], None, &[])
}

/// Order-preserving bits of a time.
fn time_bits(t: Millis) -> u64 {
    t.cast_unsigned() ^ (1 << 63)
}

fn bits_time(bits: &[u8]) -> Millis {
    let value = bits.iter().fold(0_u64, |acc, b| acc << 8 | u64::from(*b));
    (value ^ (1 << 63)).cast_signed()
}
