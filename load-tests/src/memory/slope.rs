//! Slope of a series with an interval that knows that neighbours are alike. Pure.

use serde::Serialize;

use crate::generate::rng::Rng;

/// Resamples of the bootstrap.
const RESAMPLES: usize = 2000;

/// A slope per step with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Slope {
    pub(crate) per_step: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Least squares, and a moving-block bootstrap of the residuals in blocks of `block` steps: bursts repeat, so a
/// block holds one. `None` for a series of less than three blocks.
pub(crate) fn slope(series: &[f64], block: usize, seed: u64) -> Option<Slope> {
    let n = series.len();
    if block == 0 || n < 3 * block {
        return None;
    }
    let (level, per_step) = fit(series);
    let line = |i: usize| level + per_step * position(i, n);
    let residuals: Vec<f64> = series.iter().enumerate().map(|(i, y)| y - line(i)).collect();
    let mut rng = Rng::new(seed, 30);
    let mut slopes: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let mut sample = Vec::with_capacity(n + block);
            while sample.len() < n {
                let start = rng.below(n - block + 1);
                sample.extend_from_slice(&residuals[start..start + block]);
            }
            let values: Vec<f64> = sample[..n].iter().enumerate().map(|(i, r)| line(i) + r).collect();
            fit(&values).1
        })
        .collect();
    slopes.sort_by(f64::total_cmp);
    let at = |share: usize| slopes[RESAMPLES * share / 1000];
    Some(Slope { per_step, low: at(25), high: at(975) })
}

/// Level at the middle, and slope.
#[allow(clippy::cast_precision_loss)] // lengths below 2^53
fn fit(series: &[f64]) -> (f64, f64) {
    let n = series.len();
    let level = series.iter().sum::<f64>() / n as f64;
    let xy: f64 = series.iter().enumerate().map(|(i, y)| position(i, n) * y).sum();
    let xx: f64 = (0..n).map(|i| position(i, n).powi(2)).sum();
    (level, xy / xx)
}

/// Steps from the middle.
#[allow(clippy::cast_precision_loss)] // lengths below 2^53
fn position(i: usize, n: usize) -> f64 {
    i as f64 - (n as f64 - 1.0) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waves of 60 steps with noise on a line.
    fn series(per_step: f64) -> Vec<f64> {
        let mut rng = Rng::new(9, 9);
        (0..600)
            .map(|i| {
                f64::from(i) * per_step + f64::from(i32::from((20..40).contains(&(i % 60)))) * 50.0 + rng.normal() * 5.0
            })
            .collect()
    }

    #[test]
    fn a_flat_series_with_waves_has_no_slope() {
        let found = slope(&series(0.0), 60, 1).unwrap();
        assert!(found.low <= 0.0 && found.high >= 0.0, "{found:?}");
    }

    #[test]
    fn a_leak_is_seen() {
        let found = slope(&series(0.5), 60, 1).unwrap();
        assert!(found.low > 0.2 && found.high < 0.8, "{found:?}");
    }

    #[test]
    fn too_short_says_nothing() {
        assert_eq!(slope(&[1.0; 100], 60, 1), None);
    }
}
