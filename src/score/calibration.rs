//! Fitting and choosing thresholds (`memsad.md` 1.2): mean + kappa * population deviation of the benign
//! scores.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::memsad::Scores;
use super::{History, clopper_pearson};
use crate::error::{Code, Error, Result};
use crate::schema::{
    Boundary, Calibration, CalibrationHistory, CalibrationKind, Control, ONE, Scope, Vector, to_cosine,
};
use crate::topology::Statistic;

/// What a fit needs.
#[derive(Debug)]
pub struct FitInput<'a> {
    /// Where it applies.
    pub scope: &'a Scope,
    /// Version to give it.
    pub version: u64,
    /// Tested score.
    pub statistic: Statistic,
    /// Deviations above the mean.
    pub kappa: f64,
    /// Queries.
    pub history: &'a History,
    /// Benign writes.
    pub benign: &'a [Vector],
    /// The same texts behind a random five-word prefix.
    pub triggered: &'a [Vector],
    /// Known poison, for the margin.
    pub poison: &'a [Vector],
    /// Encoder identity.
    pub encoder: &'a str,
    /// Record time of the newest benign write, RFC 3339.
    pub as_of: String,
}

/// Fits a calibration record.
///
/// # Errors
/// `calibration_too_small` below two writes, `calibration_no_queries` for an empty history.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // counts and scores stay below 2^53
pub fn fit(input: &FitInput<'_>) -> Result<Calibration> {
    if input.history.is_empty() {
        return Err(Error::new(Code::CalibrationNoQueries, format!("no query for {}", input.scope.name())));
    }
    if input.benign.len() < 2 {
        return Err(Error::new(
            Code::CalibrationTooSmall,
            format!("{} benign writes for {}", input.benign.len(), input.scope.name()),
        ));
    }
    let scored = |vectors: &[Vector]| -> Vec<i64> {
        Scores::of_all(vectors, input.history).iter().map(|s| s.tested(input.statistic)).collect()
    };
    let scores = scored(input.benign);
    let n = scores.len() as f64;
    let mean = scores.iter().map(|s| to_cosine(*s)).sum::<f64>() / n;
    let variance = scores.iter().map(|s| (to_cosine(*s) - mean).powi(2)).sum::<f64>() / n;
    let std = variance.sqrt() + 1e-8;
    let threshold = mean + input.kappa * std;
    let threshold_units = (threshold * ONE as f64).floor() as i64;
    let above = |vectors: &[Vector]| scored(vectors).into_iter().filter(|s| *s > threshold_units).count();
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let (flagged, triggered) = (count(above(input.benign)), count(above(input.triggered)));
    let worst_benign = scores.iter().max().copied().unwrap_or_default();
    let margin = scored(input.poison).into_iter().min().map(|p| to_cosine(p - worst_benign));
    Ok(Calibration {
        kind: CalibrationKind::Memsad,
        scope: input.scope.name(),
        version: input.version,
        mode: "reference".to_owned(),
        statistic: input.statistic.as_str().to_owned(),
        n: count(scores.len()),
        mean,
        std,
        kappa: input.kappa,
        threshold,
        threshold_units,
        flagged,
        interval: clopper_pearson(flagged, count(scores.len())),
        margin,
        control: Control {
            flagged: triggered,
            n: count(input.triggered.len()),
            interval: clopper_pearson(triggered, count(input.triggered.len())),
        },
        encoder: input.encoder.to_owned(),
        dimension: count(input.benign[0].as_slice().len()),
        history: CalibrationHistory {
            m: count(input.history.len()),
            mean_norm: input.history.mean_norm(),
            digest: input.history.digest(),
        },
        as_of: input.as_of.clone(),
        conformal: None,
        rolling: None,
    })
}

/// The calibration in force for a boundary: its own, else its tenant's, else the deployment's.
#[must_use]
pub fn applicable<'a, T>(active: &'a BTreeMap<Scope, Arc<T>>, boundary: &Boundary) -> Option<&'a Arc<T>> {
    if active.is_empty() {
        return None;
    }
    active
        .get(&Scope::Boundary(boundary.clone()))
        .or_else(|| active.get(&Scope::Tenant(boundary.tenant().to_owned())))
        .or_else(|| active.get(&Scope::Deployment))
}
