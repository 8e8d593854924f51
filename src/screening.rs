//! Fitting the screen from records: files, or the writes that were allowed.

use std::path::PathBuf;

use crate::calibrate::random_words;
use crate::clock::Millis;
use crate::config::Backend;
use crate::decode::{self, Rules, Write};
use crate::embed::{Embedder, Encoded};
use crate::error::{Code, Error, Result};
use crate::files::Lines;
use crate::policy::Policy;
use crate::schema::{Boundary, Op, Origin, Scope, ScreenCalibration, Vector};
use crate::screen::{Features, FitInput, FitRow, fit, source_id};
use crate::source::Fetched;
use crate::topology::Role;

/// Writes of one boundary.
#[derive(Debug, Default)]
pub struct Samples {
    /// Trusted writes.
    pub writes: Vec<(Write, Millis, bool)>,
    /// Known poison.
    pub poison: Vec<(Write, Millis, bool)>,
    /// Records that could not be used, or are of another boundary.
    pub skipped: u64,
}

impl Samples {
    /// Reads JSONL files.
    ///
    /// # Errors
    /// `file_unreadable`.
    pub fn read(
        writes: &[PathBuf],
        poison: &[PathBuf],
        boundary: &Boundary,
        policy: &Policy,
        dimension: usize,
    ) -> Result<Self> {
        let mut samples = Self::default();
        for (files, is_poison) in [(writes, false), (poison, true)] {
            let mut lines = Lines::new(Role::MemoryWrites, 1, files);
            while let Some(record) = lines.next_record()? {
                samples.add(&record, boundary, policy, dimension, is_poison);
            }
        }
        Ok(samples)
    }

    /// Adds a record as it came from a topic or file.
    pub fn add(&mut self, record: &Fetched, boundary: &Boundary, policy: &Policy, dimension: usize, is_poison: bool) {
        let rules = Rules { max_bytes: usize::MAX, dimension, units: None };
        let at = record.at.timestamp;
        let usable = |w: &Write| w.op != Op::Delete && w.boundary == *boundary;
        let Some(write) = decode::write(record, &rules).ok().filter(usable) else {
            self.skipped += 1;
            return;
        };
        let ruling = policy.rule(Role::MemoryWrites.as_str(), &write, at);
        let trusted = matches!(ruling.origin, Origin::UserInput | Origin::System);
        let target = if is_poison { &mut self.poison } else { &mut self.writes };
        target.push((write, at, trusted));
    }
}

/// How a fit is made.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where it applies: the boundary of the writes, its tenant, or everything.
    pub scope: Scope,
    /// Writes younger than this before the newest don't enter, ms.
    pub age: Millis,
    /// A reviewer released the writes.
    pub reviewed: bool,
}

/// Fits a calibration of the screen.
///
/// # Errors
/// `calibration_too_small`, `encoder_failed`.
pub fn fit_screen(
    samples: &Samples,
    options: &Options,
    embedder: &Embedder,
    backend: Backend,
    mut progress: impl FnMut(),
) -> Result<ScreenCalibration> {
    let mut rows = |of: &[(Write, Millis, bool)]| rows(of, &options.scope, embedder, backend, &mut progress);
    let (writes, poison) = (rows(&samples.writes)?, rows(&samples.poison)?);
    fit(FitInput {
        scope: &options.scope,
        version: 1,
        encoder: embedder.identity(),
        rows: writes,
        poison: &poison,
        age: options.age,
        reviewed: options.reviewed,
    })
}

fn rows(
    of: &[(Write, Millis, bool)],
    scope: &Scope,
    embedder: &Embedder,
    backend: Backend,
    progress: &mut impl FnMut(),
) -> Result<Vec<FitRow>> {
    let missing: Vec<String> =
        of.iter().filter(|(w, ..)| w.embedding.is_none()).map(|(w, ..)| w.content.clone()).collect();
    if backend == Backend::Precomputed && !missing.is_empty() {
        let what = format!("{} records carry no vector and the encoder is precomputed", missing.len());
        return Err(Error::new(Code::EncoderFailed, what));
    }
    let mut encoded = embedder.encode_all(&missing, progress)?.into_iter().map(|e: Encoded| e.vector);
    let prefix = random_words(&scope.name());
    let row = |(write, at, trusted): &(Write, Millis, bool), vector: Option<Vector>| FitRow {
        features: Features::of(&write.content),
        prefixed: Some(Features::of(&format!("{prefix} {}", write.content))),
        vector,
        source: source_id(write, Role::MemoryWrites.as_str()),
        record: write.record_id.clone(),
        writer: write.written_by.clone(),
        trusted: *trusted,
        at: *at,
    };
    Ok(of
        .iter()
        .map(|sample| {
            let vector = sample.0.embedding.clone().or_else(|| encoded.next());
            row(sample, vector)
        })
        .collect())
}
