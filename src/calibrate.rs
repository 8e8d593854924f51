//! Fitting MEMSAD thresholds from benign writes and queries.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::clock::{Millis, rfc3339};
use crate::config::Backend;
use crate::decode::{self, Rules};
use crate::embed::{Embedder, Encoded, Purpose};
use crate::error::{Code, Error, Result};
use crate::files::Lines;
use crate::schema::{Boundary, Calibration, Op, Scope, Vector};
use crate::score::{FitInput, HardenedInput, History, Keys, Limits, Row, Sampled, Window, fit, fit_hardened};
use crate::screen::source_id;
use crate::source::Fetched;
use crate::topology::{Form, Role, Topology};

/// A text with its record time and, where the record brought one, its vector.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Text.
    pub text: String,
    /// Record time.
    pub at: Millis,
    /// Vector of the producer.
    pub vector: Option<Vector>,
    /// Who asked or wrote it.
    pub keys: Keys,
    /// Source of a write.
    pub source: String,
}

/// Samples of each boundary.
#[derive(Debug, Default)]
pub struct Samples {
    /// Benign writes.
    pub writes: BTreeMap<Boundary, Vec<Sample>>,
    /// Queries, oldest first.
    pub queries: BTreeMap<Boundary, Vec<Sample>>,
    /// Known poison, for the margin.
    pub poison: BTreeMap<Boundary, Vec<Sample>>,
    /// Records that could not be used.
    pub skipped: u64,
}

impl Samples {
    /// Reads JSONL files.
    ///
    /// # Errors
    /// `file_unreadable`.
    pub fn read(writes: &[PathBuf], queries: &[PathBuf], poison: &[PathBuf], dimension: usize) -> Result<Self> {
        let mut samples = Self::default();
        for (role, files, is_poison) in [
            (Role::MemoryWrites, writes, false),
            (Role::RetrievalLogs, queries, false),
            (Role::MemoryWrites, poison, true),
        ] {
            let mut lines = Lines::new(role, 1, files);
            while let Some(record) = lines.next_record()? {
                samples.add(&record, dimension, is_poison);
            }
        }
        samples.sort();
        Ok(samples)
    }

    /// Adds a record as it came from a topic or file.
    pub fn add(&mut self, record: &Fetched, dimension: usize, is_poison: bool) {
        let rules = Rules { max_bytes: usize::MAX, dimension, units: None };
        let at = record.at.timestamp;
        let taken = match record.at.role {
            Role::RetrievalLogs => decode::retrieval(record, &rules)
                .ok()
                .filter(|r| !r.background && (r.query.is_some() || r.embedding.is_some()))
                .map(|r| {
                    let keys = Keys::of(Some(&r.principal), Some(&r.session_id), r.output_id.as_deref());
                    let text = r.query.unwrap_or_default();
                    let sample = Sample { text, at, vector: r.embedding, keys, source: String::new() };
                    self.queries.entry(r.boundary).or_default().push(sample);
                }),
            _ => decode::write(record, &rules).ok().filter(|w| w.op != Op::Delete).map(|w| {
                let source = source_id(&w, Role::MemoryWrites.as_str());
                let keys = Keys::of(w.principal.as_deref(), w.session_id.as_deref(), w.output_id.as_deref());
                let sample = Sample { text: w.content, at, vector: w.embedding, keys, source };
                let target = if is_poison { &mut self.poison } else { &mut self.writes };
                target.entry(w.boundary).or_default().push(sample);
            }),
        };
        self.skipped += u64::from(taken.is_none());
    }

    /// Puts queries in order of time, keeping the order of equal ones.
    pub fn sort(&mut self) {
        self.queries.values_mut().for_each(|q| q.sort_by_key(|s| s.at));
    }
}

/// Fits a boundary's calibration in the form that the topology names, on a window of at most `memsad.history`
/// queries.
///
/// # Errors
/// `calibration_too_small`, `calibration_no_queries`, `encoder_failed`.
pub fn fit_boundary(
    samples: &Samples,
    boundary: &Boundary,
    version: u64,
    topology: &Topology,
    embedder: &Embedder,
    backend: Backend,
    mut progress: impl FnMut(),
) -> Result<Calibration> {
    if topology.main.memsad.form == Form::Hardened {
        return fit_boundary_hardened(samples, boundary, version, topology, embedder, backend, progress);
    }
    let of = |map: &BTreeMap<Boundary, Vec<Sample>>| map.get(boundary).cloned().unwrap_or_default();
    let (writes, queries, poison) = (of(&samples.writes), of(&samples.queries), of(&samples.poison));
    let memsad = &topology.main.memsad;
    let newest = window(&queries, &writes, memsad.history);
    let mut encode = |samples: &[Sample], purpose| vectors(samples, purpose, embedder, backend, &mut progress);
    let query_vectors = encode(newest, Purpose::Query)?;
    let benign = encode(&writes, Purpose::Passage)?;
    let poison = encode(&poison, Purpose::Passage)?;
    let prefix = random_words(boundary.as_str());
    let triggered: Vec<Sample> = writes
        .iter()
        .filter(|w| w.vector.is_none())
        .map(|w| Sample { text: format!("{prefix} {}", w.text), ..w.clone() })
        .collect();
    let triggered = if backend == Backend::Precomputed { Vec::new() } else { encode(&triggered, Purpose::Passage)? };
    let dimension = query_vectors.first().or(benign.first()).map_or(1, |v| v.as_slice().len());
    let mut history = History::new(dimension, memsad.history);
    query_vectors.iter().for_each(|v| {
        history.push(v.as_slice());
    });
    fit(&FitInput {
        scope: &Scope::Boundary(boundary.clone()),
        version,
        statistic: memsad.statistic,
        kappa: memsad.kappa,
        history: &history,
        benign: &benign,
        triggered: &triggered,
        poison: &poison,
        encoder: embedder.identity(),
        as_of: rfc3339(writes.iter().map(|w| w.at).max().unwrap_or_default()),
    })
}

fn fit_boundary_hardened(
    samples: &Samples,
    boundary: &Boundary,
    version: u64,
    topology: &Topology,
    embedder: &Embedder,
    backend: Backend,
    mut progress: impl FnMut(),
) -> Result<Calibration> {
    let of = |map: &BTreeMap<Boundary, Vec<Sample>>| map.get(boundary).cloned().unwrap_or_default();
    let (mut writes, queries, poison) = (of(&samples.writes), of(&samples.queries), of(&samples.poison));
    writes.sort_by_key(|w| w.at);
    let m = &topology.main.memsad;
    let mut encode = |samples: &[Sample], purpose| vectors(samples, purpose, embedder, backend, &mut progress);
    // More than the window holds, since copies and floods leave it.
    let asked = window(&queries, &writes, m.history.saturating_mul(4));
    // Each moves the window at once: the fit is as of the last.
    let limits = Limits { settle: 1, ..Limits::of(m) };
    let mut history = Window::new(limits);
    for (q, vector) in asked.iter().zip(encode(asked, Purpose::Query)?) {
        history.push(q.at, q.keys, vector);
    }
    history.finish();
    let prefix = random_words(boundary.as_str());
    let with_prefix = |w: &Sample| Sample { text: format!("{prefix} {}", w.text), ..w.clone() };
    let texts: Vec<Sample> = writes.iter().filter(|w| w.vector.is_none()).map(with_prefix).collect();
    let mut prefixed = encode(&texts, Purpose::Passage)?.into_iter();
    let benign = encode(&writes, Purpose::Passage)?;
    let sampled = writes.iter().zip(benign).map(|(w, vector)| Sampled {
        row: Row { keys: w.keys, vector },
        source: w.source.clone(),
        prefixed: if w.vector.is_none() { prefixed.next() } else { None },
    });
    let rows = |of: &[Sample], vectors: Vec<Vector>| -> Vec<Row> {
        of.iter().zip(vectors).map(|(s, vector)| Row { keys: s.keys, vector }).collect()
    };
    let benign = sampled.collect();
    let poison = rows(&poison, encode(&poison, Purpose::Passage)?);
    fit_hardened(HardenedInput {
        scope: &Scope::Boundary(boundary.clone()),
        version,
        memsad: m,
        window: &history,
        benign,
        poison: &poison,
        encoder: embedder.identity(),
        as_of: rfc3339(writes.iter().map(|w| w.at).max().unwrap_or_default()),
    })
}

/// The newest queries that were there when the newest benign write came; where the writes are older than
/// every query, the oldest queries. Queries of the time that is to be judged would only widen the fit.
fn window<'a>(queries: &'a [Sample], writes: &[Sample], size: usize) -> &'a [Sample] {
    let newest = writes.iter().map(|w| w.at).max().unwrap_or(Millis::MAX);
    match queries.partition_point(|q| q.at <= newest) {
        0 => &queries[..size.min(queries.len())],
        n => &queries[n.saturating_sub(size)..n],
    }
}

fn vectors(
    samples: &[Sample],
    purpose: Purpose,
    embedder: &Embedder,
    backend: Backend,
    progress: &mut impl FnMut(),
) -> Result<Vec<Vector>> {
    let text = |s: &Sample| embedder.prefixes().text(purpose, &s.text);
    let missing: Vec<String> = samples.iter().filter(|s| s.vector.is_none()).map(text).collect();
    if backend == Backend::Precomputed && !missing.is_empty() {
        return Err(Error::new(
            Code::EncoderFailed,
            format!("{} records carry no vector and the encoder is precomputed", missing.len()),
        ));
    }
    let mut encoded = embedder.encode_all(&missing, progress)?.into_iter();
    let vector = |s: &Sample| s.vector.clone().or_else(|| encoded.next().map(|e: Encoded| e.vector));
    Ok(samples.iter().filter_map(vector).collect())
}

/// Five ordinary words, the same for the same boundary: the random-trigger control.
#[must_use]
pub fn random_words(seed: &str) -> String {
    const WORDS: [&str; 32] = [
        "harbor", "velvet", "ladder", "copper", "meadow", "lantern", "gravel", "orchard", "thimble", "walnut",
        "ribbon", "canyon", "pebble", "marble", "saddle", "timber", "anchor", "barley", "cellar", "dagger", "ember",
        "falcon", "garnet", "hollow", "island", "jacket", "kettle", "lemon", "mirror", "nickel", "oyster", "parcel",
    ];
    let digest = Sha256::digest(format!("random-trigger\n{seed}"));
    digest.iter().take(5).map(|b| WORDS[*b as usize % WORDS.len()]).collect::<Vec<_>>().join(" ")
}
