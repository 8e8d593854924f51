//! What a unit keeps for hardened MEMSAD: the query window and the accepted writes of each boundary, and the
//! calibration scored against the window in force. Read from the state when needed, dropped with the other caches.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::screen_path::Occasion;
use super::{Engine, Unit, rolling_path};
use crate::clock::{Millis, monotonic};
use crate::decode::Retrieval;
use crate::error::{Code, Error, Result};
use crate::policy::Ruling;
use crate::schema::{Boundary, MemsadFacts, Vector};
use crate::score::{
    Against, Conformal, Fitted, Keys, Limits, Memory, OTHER_ENCODER, OTHER_FORM, Pushed, Query, QueryValue, Rolling,
    Row, Stored, StoredValue, Window, WindowMark, applicable, assess_hardened, tag,
};
use crate::sink::Output;
use crate::state::{self, Kind, State, Store, key};
use crate::telemetry::metrics;
use crate::topology::{Form, MemsadMode, Role, Statistic};

/// Numbers of queries and writes up to here.
const MAX_SEQ: u64 = 1 << 53;
/// Slots of accepted writes up to here.
const MAX_SLOTS: u64 = 100_000;

/// What is held ready.
#[derive(Debug, Default)]
pub(super) struct Memories {
    of: HashMap<Boundary, Ready>,
}

/// One boundary.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) window: Window,
    memory: Memory,
    pub(super) rolling: Rolling,
    /// Name of the calibration in force, and its scores against a version of the window.
    scored: Option<(String, u64, Conformal)>,
}

/// A calibration with its rows.
#[derive(Debug)]
struct InForce<'a> {
    name: String,
    rows: Vec<&'a Row>,
    frozen: bool,
}

/// The stream's own rows, else those that are published.
fn in_force<'a>(rolling: Option<&'a Rolling>, published: Option<&'a Fitted>, b: &Boundary) -> Option<InForce<'a>> {
    let frozen = rolling.is_some_and(|r| r.mark().frozen);
    if let Some((rolling, name)) = rolling.and_then(|r| Some((r, r.name(b.as_str())?))) {
        return Some(InForce { name, rows: rolling.rows().iter().map(|a| &a.row).collect(), frozen });
    }
    published.map(|c| InForce { name: published_name(c), rows: c.rows.iter().collect(), frozen })
}

/// Its name in decisions.
pub(super) fn published_name(c: &Fitted) -> String {
    format!("{}@{}", c.record.scope, c.record.version)
}

impl Memories {
    /// Memory of what is held, bytes, about.
    pub(super) fn bytes(&self) -> usize {
        let scored = |r: &Ready| r.scored.as_ref().map_or(0, |(.., c)| 24 * c.scores(Statistic::Max).len());
        self.of.values().map(|r| r.window.bytes() + r.memory.bytes() + r.rolling.bytes() + scored(r)).sum()
    }

    /// Drops what is held.
    pub(super) fn clear(&mut self) {
        self.of.clear();
    }

    pub(super) fn ready<S: Store>(
        &mut self,
        partition: i32,
        b: &Boundary,
        engine: &Engine,
        state: &State<S>,
    ) -> Result<&mut Ready> {
        if !self.of.contains_key(b) {
            let ready = load(partition, b, engine, state)?;
            self.of.insert(b.clone(), ready);
        }
        self.of.get_mut(b).ok_or_else(|| Error::new(Code::Internal, "a window that was just read"))
    }
}

impl Ready {
    fn mark(&self) -> (WindowMark, u64) {
        (self.window.mark(), self.memory.next())
    }
}

impl Engine {
    /// Takes the query of an authenticated user at stream time `now`.
    pub(super) fn asked<S: Store>(
        &self,
        unit: &mut Unit,
        state: &mut State<S>,
        r: &Retrieval,
        now: Millis,
        vector: &Vector,
    ) -> Result<()> {
        let (partition, b) = (unit.partition, &r.boundary);
        if !self.policy.vouches(Role::RetrievalLogs.as_str(), b.tenant()) {
            return Ok(());
        }
        let keys = Keys::of(Some(&r.principal), Some(&r.session_id), r.output_id.as_deref());
        let ready = unit.memories.ready(partition, b, self, state)?;
        let (seq, moved) = ready.window.push(now, keys, vector.clone());
        if !moved.left.contains(&seq) {
            let value = QueryValue { at: now, keys, vector: vector.to_bytes() };
            state.put(numbered(Kind::Query, partition, b, seq), state::encode(&value));
        }
        for left in moved.left.iter().filter(|s| **s != seq) {
            state.delete(numbered(Kind::Query, partition, b, *left));
        }
        state.put(mark_key(partition, b), state::encode(&ready.mark()));
        Ok(())
    }

    /// Scores a write against the window in force.
    pub(super) fn score_hardened<S: Store>(
        &self,
        unit: &mut Unit,
        state: &mut State<S>,
        o: Occasion<'_>,
        ruling: &Ruling,
        vector: &Vector,
    ) -> Result<(MemsadFacts, Vec<&'static str>)> {
        let (partition, b) = (unit.partition, &o.write.boundary);
        let mut flags = Vec::new();
        let published = self.published(unit, b, &mut flags);
        let rolls = self.rolls();
        let Ready { window, memory, rolling, scored } = unit.memories.ready(partition, b, self, state)?;
        let since = monotonic();
        for left in memory.expire(window, o.at.timestamp) {
            state.delete(numbered(Kind::Stored, partition, b, left));
        }
        memory.sync(window);
        let force = in_force(Some(&*rolling).filter(|_| rolls), published.as_deref(), b);
        let against = force.as_ref().map(|f| against(f, scored, window));
        let w = o.write;
        let keys = Keys::of_write(&w.principal, &w.session_id, &w.output_id, ruling.basis);
        let (facts, more) = assess_hardened(&self.memsad, vector, &keys, window, memory, against);
        metrics().score_seconds.observe_duration(since.elapsed());
        flags.extend(more);
        Ok((facts, flags))
    }

    /// The published calibration that applies, with flags for one that can't count.
    pub(super) fn published(&self, unit: &Unit, b: &Boundary, flags: &mut Vec<&'static str>) -> Option<Arc<Fitted>> {
        let found = applicable(&unit.calibrations, b)?;
        if found.record.conformal.is_none() {
            flags.push(OTHER_FORM);
            return None;
        }
        if found.record.encoder != self.memsad.encoder {
            flags.push(OTHER_ENCODER);
            return None;
        }
        Some(found.clone())
    }

    /// Whether rows follow the stream.
    pub(super) fn rolls(&self) -> bool {
        self.memsad.memsad.rolls()
    }

    /// Takes note of what a write put into `committed-memory`, or removed from it.
    pub(super) fn accepted<S: Store>(
        &self,
        unit: &mut Unit,
        state: &mut State<S>,
        o: Occasion<'_>,
        ruling: &Ruling,
        vector: Option<&Vector>,
        outputs: &[Output],
    ) -> Result<()> {
        let m = &self.memsad.memsad;
        if m.form != Form::Hardened || m.mode == MemsadMode::Off || m.memory == 0 {
            return Ok(());
        }
        let (partition, b) = (unit.partition, &o.write.boundary);
        for out in outputs.iter().filter(|out| out.role == Role::CommittedMemory) {
            let ready = unit.memories.ready(partition, b, self, state)?;
            let record = out.key.get(b.as_str().len() + 1..).unwrap_or_default();
            let record = tag(&String::from_utf8_lossy(record));
            let left = match (&out.value, vector) {
                (Some(_), Some(vector)) => {
                    let expires = ruling.expires_at.unwrap_or(Millis::MAX);
                    let Pushed { seq, slot, left } = ready.memory.push(&ready.window, record, expires, vector.clone());
                    let value = StoredValue { seq, record, expires, vector: vector.to_bytes() };
                    state.put(numbered(Kind::Stored, partition, b, slot), state::encode(&value));
                    state.put(mark_key(partition, b), state::encode(&ready.mark()));
                    left
                }
                // A version that has no vector replaces the one that had.
                _ => ready.memory.forget(&ready.window, &record),
            };
            for slot in left {
                state.delete(numbered(Kind::Stored, partition, b, slot));
            }
        }
        Ok(())
    }
}

/// A calibration scored against the window in force, anew where either has moved.
fn against<'a>(force: &'a InForce<'_>, kept: &'a mut Option<(String, u64, Conformal)>, window: &Window) -> Against<'a> {
    let version = window.version();
    drop(kept.take_if(|(name, at, _)| *name != force.name || *at != version));
    let fresh = || (force.name.clone(), version, Conformal::of(force.rows.iter().copied(), window));
    let (name, _, conformal) = kept.get_or_insert_with(fresh);
    let n = u32::try_from(force.rows.len()).unwrap_or(u32::MAX);
    Against { name, n, conformal, frozen: force.frozen }
}

fn load<S: Store>(partition: i32, b: &Boundary, engine: &Engine, state: &State<S>) -> Result<Ready> {
    let mark = state.get(&mark_key(partition, b))?;
    let (mark, next): (WindowMark, u64) = mark.map(|v| state::decode(&v)).transpose()?.unwrap_or_default();
    let broken = || Error::new(Code::StateFormat, "a query or an accepted write is broken");
    if mark.next > MAX_SEQ || mark.settled > mark.next || next > MAX_SEQ {
        return Err(broken());
    }
    let mut queries = Vec::new();
    for (seq, value) in scan(Kind::Query, partition, b, state)? {
        let q: QueryValue = state::decode(&value)?;
        let vector = vector(&q.vector).filter(|_| seq < mark.next).ok_or_else(broken)?;
        queries.push(Query { seq, at: q.at, keys: q.keys, vector });
    }
    let mut stored = Vec::new();
    for (slot, value) in scan(Kind::Stored, partition, b, state)? {
        let s: StoredValue = state::decode(&value)?;
        let vector = vector(&s.vector).filter(|_| s.seq < next && slot < MAX_SLOTS).ok_or_else(broken)?;
        stored.push(Stored { seq: s.seq, slot, record: s.record, expires: s.expires, vector });
    }
    if stored.iter().map(|s: &Stored| s.seq).collect::<HashSet<_>>().len() < stored.len() {
        return Err(broken());
    }
    // Another encoder's are not read, as those of a reset are not.
    queries.retain(|q| q.vector.as_slice().len() == engine.dimension());
    stored.retain(|s| s.vector.as_slice().len() == engine.dimension());
    let window = Window::restore(Limits::of(&engine.memsad.memsad), mark, queries);
    let memory = Memory::restore(engine.dimension(), engine.memsad.memsad.memory, next, stored);
    let rolling = rolling_path::load(partition, b, engine, state)?;
    Ok(Ready { window, memory, rolling, scored: None })
}

/// Numbers and values of a kind in a boundary.
pub(super) fn scan<S: Store>(
    kind: Kind,
    partition: i32,
    b: &Boundary,
    state: &State<S>,
) -> Result<Vec<(u64, Vec<u8>)>> {
    let prefix = key(kind, partition, &[b.as_str()], None, &[]);
    let number = |k: &[u8]| k.get(prefix.len()..)?.first_chunk::<8>().map(|n| u64::from_be_bytes(*n));
    let all = state.scan(&prefix, usize::MAX)?;
    Ok(all.into_iter().filter_map(|(k, v)| Some((number(&k)?, v))).collect())
}

/// Vectors of unit length alone stay in range.
pub(super) fn vector(bytes: &[u8]) -> Option<Vector> {
    Vector::from_unit(bytes.chunks_exact(2).map(|c| i16::from_le_bytes([c[0], c[1]])).collect())
}

pub(super) fn numbered(kind: Kind, partition: i32, b: &Boundary, seq: u64) -> Vec<u8> {
    key(kind, partition, &[b.as_str()], Some(seq), &[])
}

fn mark_key(partition: i32, b: &Boundary) -> Vec<u8> {
    key(Kind::Window, partition, &[b.as_str()], None, &[])
}
