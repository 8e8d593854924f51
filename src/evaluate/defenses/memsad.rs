//! MEMSAD as published (`memsad.md` 1), and with a threshold by rank (`memsad.md` 9.3).

use super::{Defense, Judged};
use crate::error::Result;
use crate::evaluate::{Boundary, Encode, Write};
use crate::schema::{Vector, to_cosine};
use crate::score::{Deviation, History, Scores, Threshold};
use crate::topology::Statistic;

/// Deviations above the mean, as reported by the paper.
const KAPPA: f64 = 2.0;

/// A fitted test.
#[derive(Debug)]
pub struct Memsad {
    queries: Vec<String>,
    vectors: Vec<Vector>,
    statistic: Statistic,
    threshold: f64,
    /// Leave the query that caused a write out of its history.
    without_cause: bool,
}

impl Memsad {
    /// Mean + 2 population deviations of the calibration part; the same history for fit and test.
    ///
    /// # Errors
    /// `encoder_failed`.
    pub fn reference(boundary: &Boundary, statistic: Statistic, encode: &dyn Encode) -> Result<Self> {
        let texts: Vec<&str> = boundary.calibrate.iter().map(|w| w.text.as_str()).collect();
        let queries: Vec<&str> = boundary.history.iter().map(String::as_str).collect();
        Self::on(&texts, &queries, &queries, statistic, encode)
    }

    /// Fitted on `texts` against `calibrated` queries, scoring against `scored` ones: the published scripts use
    /// different ones for the two.
    ///
    /// # Errors
    /// `encoder_failed`.
    pub fn on(
        texts: &[&str],
        calibrated: &[&str],
        scored: &[&str],
        statistic: Statistic,
        encode: &dyn Encode,
    ) -> Result<Self> {
        let first = history(&encode.encode(calibrated)?);
        let scores: Vec<f64> =
            encode.encode(texts)?.iter().map(|v| to_cosine(Scores::of(v, &first).tested(statistic))).collect();
        let fitted = Threshold::fit(&scores, KAPPA, Deviation::PopulationFloored);
        Ok(Self {
            queries: scored.iter().map(|q| (*q).to_owned()).collect(),
            vectors: encode.encode(scored)?,
            statistic,
            threshold: fitted.threshold,
            without_cause: false,
        })
    }

    /// Largest cosine against the rank threshold of a level; infinite when the calibration part is too small.
    ///
    /// # Errors
    /// `encoder_failed`.
    pub fn conformal(boundary: &Boundary, level: f64, encode: &dyn Encode) -> Result<Self> {
        let mut fitted = Self::reference(boundary, Statistic::Max, encode)?;
        fitted.without_cause = true;
        let scores = fitted.scores(&boundary.calibrate, encode)?;
        fitted.threshold = conformal_threshold(&scores, level);
        Ok(fitted)
    }

    /// Scores without a verdict.
    ///
    /// # Errors
    /// `encoder_failed`.
    pub fn scores(&self, stream: &[Write], encode: &dyn Encode) -> Result<Vec<f64>> {
        let texts: Vec<&str> = stream.iter().map(|w| w.text.as_str()).collect();
        let whole = history(&self.vectors);
        let score = |write: &Write, vector: &Vector| {
            let cause = write.cause.as_ref().filter(|c| self.without_cause && self.queries.contains(c));
            let scores = match cause {
                None => Scores::of(vector, &whole),
                Some(cause) => {
                    let kept = self.queries.iter().zip(&self.vectors).filter(|(q, _)| *q != cause);
                    Scores::of(vector, &history(&kept.map(|(_, v)| v.clone()).collect::<Vec<_>>()))
                }
            };
            to_cosine(scores.tested(self.statistic))
        };
        Ok(stream.iter().zip(encode.encode(&texts)?).map(|(w, v)| score(w, &v)).collect())
    }
}

impl Defense for Memsad {
    fn judge(&self, stream: &[Write], encode: &dyn Encode) -> Result<Vec<Judged>> {
        Ok(self.scores(stream, encode)?.into_iter().map(|s| Judged::by(s, self.threshold)).collect())
    }

    fn threshold(&self) -> Option<f64> {
        Some(self.threshold)
    }
}

/// A history that holds all of the vectors.
fn history(vectors: &[Vector]) -> History {
    let dimension = vectors.first().map_or(1, |v| v.as_slice().len());
    let mut history = History::new(dimension, vectors.len().max(1));
    vectors.iter().for_each(|v| {
        history.push(v.as_slice());
    });
    history
}

/// The threshold above which (1 + number of calibration scores >= s) / (n + 1) <= level; infinite when n is too
/// small for the level.
#[must_use]
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // counts
pub fn conformal_threshold(scores: &[f64], level: f64) -> f64 {
    let allowed = (level * (scores.len() as f64 + 1.0) - 1.0 + 1e-9).floor();
    if allowed < 0.0 {
        return f64::INFINITY;
    }
    let mut sorted = scores.to_vec();
    sorted.sort_by(|a, b| f64::total_cmp(b, a));
    sorted.get(allowed as usize).copied().unwrap_or(f64::NEG_INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_level_needs_enough_rows() {
        let scores: Vec<f64> = (0..98).map(f64::from).collect();
        assert!(conformal_threshold(&scores, 0.01).is_infinite());
        let scores: Vec<f64> = (0..99).map(f64::from).collect();
        assert!((conformal_threshold(&scores, 0.01) - 98.0).abs() < 1e-12);
    }

    proptest! {
        /// The threshold is the p-value's rule.
        #[test]
        fn threshold_is_the_rank_rule(scores in prop::collection::vec(0_u8..40, 1..60), s in 0_u8..41, level in 0.01_f64..0.5) {
            let wide: Vec<f64> = scores.iter().map(|v| f64::from(*v)).collect();
            let s = f64::from(s);
            let p = (1.0 + wide.iter().filter(|v| **v >= s).count() as f64) / (wide.len() as f64 + 1.0);
            prop_assume!((p - level).abs() > 1e-6);
            prop_assert_eq!(s > conformal_threshold(&wide, level), p <= level);
        }
    }
}
