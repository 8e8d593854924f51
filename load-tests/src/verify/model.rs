//! What the inputs alone say that decisions and state must be. Pure.
//!
//! Holds for the sample policy and topology, vectors in every record, no calibration, and one version of
//! each honeypot set from the start. `soak` makes it so.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::murmur2::partition;
use crate::verify::session::{Event, Session, Test};
use crate::verify::tally::Verdict;
use crate::verify::window::{Who, Windows};

/// A vector, shared by all records that brought the same one.
pub(crate) type Vector = Arc<[i16]>;

#[derive(Debug, Deserialize)]
struct Embedding {
    i16: String,
}

#[derive(Debug, Deserialize)]
struct Write {
    tenant: String,
    store: String,
    #[serde(rename = "record_id")]
    _record_id: String,
    op: String,
    content: Option<String>,
    origin: Option<String>,
    principal: Option<String>,
    session_id: Option<String>,
    output_id: Option<String>,
    embedding: Option<Embedding>,
}

#[derive(Debug, Deserialize)]
struct Returned {
    id: String,
}

#[derive(Debug, Deserialize)]
struct Retrieval {
    tenant: String,
    store: String,
    event_id: String,
    session_id: String,
    principal: String,
    output_id: Option<String>,
    results: Vec<Returned>,
    query_embedding: Option<Embedding>,
    k: Option<usize>,
    #[serde(default)]
    background: bool,
}

/// What a write must become.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    pub(crate) verdict: Verdict,
    /// Boundary, writer and vector of what is scored.
    pub(crate) scored: Option<(Arc<str>, Who, Vector)>,
}

/// Exact scores in units of 1 / 32767^2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Scores {
    pub(crate) m: i64,
    pub(crate) max: i64,
    pub(crate) mean: i64,
    pub(crate) comb: i64,
}

/// Honeypots of a boundary: record id to opaque id.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traps {
    pub(crate) version: u64,
    pub(crate) by_record: BTreeMap<String, String>,
}

/// What a partition unit must hold.
#[derive(Debug, Default)]
pub(crate) struct Unit {
    /// Query windows of each boundary.
    pub(crate) windows: BTreeMap<Arc<str>, Windows>,
    pub(crate) sessions: BTreeMap<(Arc<str>, String), Session>,
    /// Stream time of each boundary.
    pub(crate) times: BTreeMap<Arc<str>, i64>,
    /// Retrievals that can't be read, by offset.
    pub(crate) dead: BTreeSet<i64>,
    /// Times that a session crossed the upper bound.
    pub(crate) crossings: BTreeMap<(Arc<str>, String), u64>,
}

/// Everything derived.
#[derive(Debug)]
pub(crate) struct Model {
    partitions: u32,
    traps: BTreeMap<String, Traps>,
    names: HashSet<Arc<str>>,
    vectors: HashMap<String, Vector>,
    writes: HashMap<(i32, i64), Expected>,
    /// By partition.
    pub(crate) units: BTreeMap<i32, Unit>,
}

impl Model {
    /// For inputs of `partitions` partitions.
    pub(crate) fn new(partitions: u32, traps: BTreeMap<String, Traps>) -> Self {
        Self {
            partitions,
            traps,
            names: HashSet::new(),
            vectors: HashMap::new(),
            writes: HashMap::new(),
            units: BTreeMap::new(),
        }
    }

    /// Honeypot sets, each of which makes one activation.
    pub(crate) fn sets(&self) -> usize {
        self.traps.len()
    }

    /// Versions that must be in force in a unit that has taken anything.
    pub(crate) fn active(&self, at: i32) -> BTreeMap<String, u64> {
        let here = |b: &str| i32::try_from(partition(b.as_bytes(), self.partitions)).is_ok_and(|p| p == at);
        let sets = self.traps.iter().filter(|(b, _)| here(b));
        sets.map(|(b, traps)| (format!("honeypots/{b}"), traps.version)).collect()
    }

    /// Takes a write.
    pub(crate) fn write(&mut self, at: (i32, i64), value: &[u8]) {
        let expected = self.judge(at.0, value).unwrap_or(Expected { verdict: Verdict::DeadLetter, scored: None });
        self.writes.insert(at, expected);
    }

    /// `None`: a dead letter.
    fn judge(&mut self, at: i32, value: &[u8]) -> Option<Expected> {
        let write: Write = serde_json::from_slice(value).ok()?;
        let boundary = self.boundary(&write.tenant, &write.store, at)?;
        let delete = match write.op.as_str() {
            "delete" => true,
            "create" | "update" => false,
            _ => return None,
        };
        if !delete && write.content.unwrap_or_default().trim().is_empty() {
            return None;
        }
        let untrusted = match write.origin.as_deref().unwrap_or("external") {
            "external" | "retrieved" | "web_page" => true,
            "user_input" | "user_message" | "system" | "operator" | "agent_generated" | "tool_output" => false,
            _ => return None,
        };
        let verdict = if untrusted { Verdict::Quarantine } else { Verdict::Allow };
        let vector = write.embedding.filter(|_| !delete).and_then(|e| self.vector(e));
        let who = Who { principal: write.principal, session: write.session_id, output: write.output_id };
        Some(Expected { verdict, scored: vector.map(|v| (boundary, who, v)) })
    }

    /// Takes a retrieval; those of a partition come in order.
    pub(crate) fn retrieval(&mut self, at: (i32, i64), time: i64, value: &[u8]) {
        if self.retrieved(at, time, value).is_none() {
            self.units.entry(at.0).or_default().dead.insert(at.1);
        }
    }

    fn retrieved(&mut self, at: (i32, i64), time: i64, value: &[u8]) -> Option<()> {
        let r: Retrieval = serde_json::from_slice(value).ok()?;
        let boundary = self.boundary(&r.tenant, &r.store, at.0)?;
        let vector = r.query_embedding.filter(|_| !r.background).and_then(|e| self.vector(e));
        let unit = self.units.entry(at.0).or_default();
        let now = unit.times.entry(boundary.clone()).or_insert(time);
        *now = time.max(*now);
        if let Some(vector) = vector {
            let (principal, session) = (Some(r.principal.clone()), Some(r.session_id.clone()));
            let who = Who { principal, session, output: r.output_id.clone() };
            unit.windows.entry(boundary.clone()).or_default().ask(at.1, *now, who, vector);
        }
        let Some(traps) = self.traps.get(&*boundary) else { return Some(()) };
        let k = r.k.unwrap_or(r.results.len());
        if r.background || r.results.is_empty() || k == 0 {
            return Some(());
        }
        let hits = r.results.iter().take(k).filter_map(|x| traps.by_record.get(&x.id)).map(String::as_str).collect();
        let event =
            Event { offset: at.1, at: time, stream_time: *now, id: &r.event_id, hits, set_version: traps.version };
        let name = (boundary, r.session_id);
        let (next, crossed) = Session::after(unit.sessions.remove(&name), &Test::SAMPLE, &event);
        if crossed {
            *unit.crossings.entry(name.clone()).or_default() += 1;
        }
        unit.sessions.insert(name, next);
        Some(())
    }

    /// What a write must become; `None` when there is no such write.
    pub(crate) fn expected(&self, at: (i32, i64)) -> Option<&Expected> {
        self.writes.get(&at)
    }

    /// Scores of a vector against the window that the queries of a boundary below offset `next` make.
    pub(crate) fn scores(&self, at: i32, boundary: &str, next: i64, who: &Who, vector: &Vector) -> Scores {
        let windows = self.units.get(&at).and_then(|u| u.windows.get(boundary));
        let dots = windows.map(|w| w.dots(next, who, vector)).unwrap_or_default();
        let (m, sum) = (i64::try_from(dots.len()).unwrap_or(i64::MAX), dots.iter().sum::<i64>());
        match dots.iter().max() {
            None => Scores::default(),
            Some(&max) => Scores { m, max, mean: sum.div_euclid(m), comb: (max * m + sum).div_euclid(2 * m) },
        }
    }

    fn boundary(&mut self, tenant: &str, store: &str, at: i32) -> Option<Arc<str>> {
        let name = format!("{tenant}/{store}");
        let placed = i32::try_from(partition(name.as_bytes(), self.partitions)).ok()? == at;
        if !placed {
            return None;
        }
        if let Some(known) = self.names.get(name.as_str()) {
            return Some(known.clone());
        }
        let name: Arc<str> = name.into();
        self.names.insert(name.clone());
        Some(name)
    }

    fn vector(&mut self, embedding: Embedding) -> Option<Vector> {
        if let Some(known) = self.vectors.get(&embedding.i16) {
            return Some(known.clone());
        }
        let bytes = STANDARD.decode(&embedding.i16).ok()?;
        let vector: Vector = bytes.chunks_exact(2).map(|c| i16::from_le_bytes([c[0], c[1]])).collect();
        self.vectors.insert(embedding.i16, vector.clone());
        Some(vector)
    }
}

/// Dot product.
pub(crate) fn dot(a: &[i16], b: &[i16]) -> i64 {
    a.iter().zip(b).map(|(a, b)| i64::from(i32::from(*a) * i32::from(*b))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        let traps = Traps { version: 1, by_record: BTreeMap::from([("trap".to_owned(), "hp".to_owned())]) };
        Model::new(1, BTreeMap::from([("t/s".to_owned(), traps)]))
    }

    fn packed(values: [i16; 2]) -> String {
        STANDARD.encode(values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
    }

    fn query(model: &mut Model, offset: i64, values: [i16; 2], results: &str) {
        let text = format!(
            r#"{{"tenant":"t","store":"s","event_id":"e{offset}","session_id":"x","principal":"p","results":[{results}],"query_embedding":{{"i16":"{}"}}}}"#,
            packed(values)
        );
        model.retrieval((0, offset), 10 + offset, text.as_bytes());
    }

    #[test]
    fn verdicts_follow_from_the_record() {
        let mut model = model();
        let cases = [
            (r#""op":"create","content":"a","origin":"user_input""#, Verdict::Allow),
            (r#""op":"create","content":"a""#, Verdict::Quarantine),
            (r#""op":"delete","origin":"system""#, Verdict::Allow),
            (r#""op":"create","content":" ","origin":"user_input""#, Verdict::DeadLetter),
            (r#""op":"create","content":"a","origin":"rumour""#, Verdict::DeadLetter),
        ];
        for (offset, (fields, verdict)) in (0_i64..).zip(cases) {
            let text = format!(r#"{{"tenant":"t","store":"s","record_id":"r",{fields}}}"#);
            model.write((0, offset), text.as_bytes());
            assert_eq!(model.expected((0, offset)).unwrap().verdict, verdict, "{fields}");
        }
        model.write((0, 9), b"{");
        assert_eq!(model.expected((0, 9)).unwrap().verdict, Verdict::DeadLetter);
    }

    #[test]
    fn scores_see_the_window_that_the_queries_before_them_make() {
        let mut model = model();
        (0..5).for_each(|i| query(&mut model, i, [100, 10 * i as i16], ""));
        let (vector, nobody): (Vector, Who) = ([1_i16, 3].into(), Who::default());
        assert_eq!(model.scores(0, "t/s", 0, &nobody, &vector), Scores::default());
        assert_eq!(model.scores(0, "t/s", 2, &nobody, &vector), Scores { m: 2, max: 130, mean: 115, comb: 122 });
        assert_eq!(model.scores(0, "t/s", 9, &nobody, &vector).m, 5);
        let own = Who { principal: Some("p".to_owned()), ..Who::default() };
        assert_eq!(model.scores(0, "t/s", 9, &own, &vector), Scores::default());
        assert_eq!(model.units[&0].windows["t/s"].held().count(), 5);
    }

    #[test]
    fn hits_cross_once_and_garbage_is_dead() {
        let mut model = model();
        (0..5).for_each(|i| query(&mut model, i, [1, 1], r#"{"id":"trap"}"#));
        model.retrieval((0, 5), 99, b"{");
        let unit = &model.units[&0];
        assert_eq!(unit.crossings.values().sum::<u64>(), 1);
        assert_eq!((unit.dead.len(), unit.times["t/s"]), (1, 14));
    }
}
