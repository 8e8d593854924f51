//! How far the scores of trusted writes have moved (`memsad.md` 1.5, 9.4): spread, drift a step, window length, and
//! a test of two samples.
//!
//! Integers, and f64 with the four operations and the square root alone, in a fixed order: IEEE 754 rounds these the
//! same everywhere, so that a replay gets the same bits. Logarithms and powers, which it doesn't, are constants here.

use crate::schema::ONE;

/// Makes the median of absolute deviations that of a Gaussian's standard deviation.
const MAD: f64 = 1.4826;
/// Smallest drift a step, cosine units (`memsad.md` 1.5).
const FLOOR: f64 = 1e-6;
/// Weight of a new drift against the smoothed one.
const SMOOTHING: f64 = 0.25;
/// sqrt(2 ln(4 / delta)) at delta = .05.
const CONFIDENCE: f64 = 2.960_414_374_601_597;

/// The Kolmogorov-Smirnov bound -ln(level / 2) / 2 at level .01: two halves of the rows drift apart.
pub(super) const DRIFT: f64 = 2.649_158_683_274_018;
/// The same at level 1e-6: a jump.
pub(super) const JUMP: f64 = 7.254_328_869_262_11;

/// The constant of the window length: (1 + kappa / sqrt 2) sqrt(2 ln(4 / .05)).
#[must_use]
pub(super) fn constant(kappa: f64) -> f64 {
    (1.0 + kappa / std::f64::consts::SQRT_2) * CONFIDENCE
}

/// Robust standard deviation of scores, score units: 1.4826 times the median of absolute deviations. `sorted` is
/// ascending.
#[must_use]
#[allow(clippy::cast_precision_loss)] // scores stay below 2^53
pub(super) fn spread(sorted: &[i64]) -> f64 {
    let middle = median(sorted);
    let mut away: Vec<i64> = sorted.iter().map(|s| (s - middle).abs()).collect();
    away.sort_unstable();
    MAD * median(&away) as f64
}

/// Drift of scores in their order of time, cosine units a step: medians of the newest and the oldest third, over the
/// steps between the middles of the thirds; at least 1e-6.
#[must_use]
#[allow(clippy::cast_precision_loss)] // counts and scores stay below 2^53
pub(super) fn slope(in_order: &[i64]) -> f64 {
    let third = in_order.len() / 3;
    if third == 0 {
        return FLOOR;
    }
    let of = |part: &[i64]| {
        let mut part = part.to_vec();
        part.sort_unstable();
        median(&part)
    };
    let moved = (of(&in_order[in_order.len() - third..]) - of(&in_order[..third])).abs();
    let steps = in_order.len() - third;
    (moved as f64 / ONE as f64 / steps as f64).max(FLOOR)
}

/// A drift smoothed with the earlier ones; the first stands as it is.
#[must_use]
pub(super) fn smoothed(before: Option<f64>, drift: f64) -> f64 {
    before.map_or(drift, |before| before + SMOOTHING * (drift - before))
}

/// Rows that a window should have, `(c sigma / delta)^(2/3)`: more estimate the threshold better, and are older. The
/// error is then 1.5 (c sigma)^(2/3) delta^(1/3). `sigma` and `delta` in one unit, `delta` above 0.
#[must_use]
pub(super) fn length(c: f64, sigma: f64, delta: f64) -> f64 {
    let ratio = c * sigma / delta;
    cube_root(ratio * ratio)
}

/// Newton's method from above, with operations that IEEE 754 rounds exactly.
fn cube_root(a: f64) -> f64 {
    if a <= 0.0 {
        return 0.0;
    }
    let mut x = a.max(1.0);
    // Far from the root a step takes a third off: 128 of them reach it from anywhere below 1e20.
    for _ in 0..128 {
        x -= (x * x * x - a) / (3.0 * x * x);
    }
    x
}

/// Largest distance between the distributions of two samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Distance {
    /// In units of 1 / (n m).
    gap: u64,
    n: u64,
    m: u64,
}

impl Distance {
    /// Of two samples, each ascending.
    #[must_use]
    pub fn of(a: &[i64], b: &[i64]) -> Self {
        let (n, m) = (a.len() as u64, b.len() as u64);
        let below = |sorted: &[i64], s: i64| sorted.partition_point(|x| *x <= s) as u64;
        let gap = a.iter().chain(b).map(|s| (below(a, *s) * m).abs_diff(below(b, *s) * n)).max();
        Self { gap: gap.unwrap_or_default(), n, m }
    }

    /// Whether chance alone hardly does that: asymptotic test, gap^2 n m / (n + m) above `bound`. With fewer rows it
    /// says yes too seldom, never too often.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // at most a few thousand rows
    pub fn significant(&self, bound: f64) -> bool {
        let (gap, n, m) = (self.gap as f64, self.n as f64, self.m as f64);
        gap * gap > bound * (n + m) * n * m
    }

    /// The distance in millionths, 0 to 1000000.
    #[must_use]
    pub fn millionths(&self) -> u32 {
        u32::try_from(self.gap * 1_000_000 / (self.n * self.m).max(1)).unwrap_or(u32::MAX)
    }
}

/// Middle of ascending numbers, of two middles the floor of the mean; 0 for none.
fn median(sorted: &[i64]) -> i64 {
    match sorted.len() {
        0 => 0,
        n => (sorted[(n - 1) / 2] + sorted[n / 2]).div_euclid(2),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The check values of `memsad.md` 1.5, and the constants that stand for logarithms.
    #[test]
    fn lengths_and_constants_are_those_of_the_study() {
        for (delta, wanted) in [(1e-3, 18.6), (1e-4, 86.2), (1e-5, 400.0)] {
            assert!((length(1.0, 0.08, delta) - wanted).abs() < 0.05, "{}", length(1.0, 0.08, delta));
        }
        assert!((constant(2.0) - 7.15).abs() < 0.005);
        assert!((CONFIDENCE - (2.0 * (4.0_f64 / 0.05).ln()).sqrt()).abs() < 1e-9);
        for (bound, level) in [(DRIFT, 0.01_f64), (JUMP, 1e-6)] {
            assert!((bound + (level / 2.0).ln() / 2.0).abs() < 1e-9);
        }
        for a in [0.0, 1e-9, 0.5, 1.0, 27.0, 5e13, 1e19] {
            assert!((cube_root(a) - a.cbrt()).abs() <= 1e-9 * a.cbrt().max(1.0), "{a}");
        }
    }

    #[test]
    fn spread_and_slope_of_plain_numbers() {
        assert!((spread(&[1, 2, 3, 4, 1000]) - MAD).abs() < 1e-12, "one far value moves it little");
        assert!(spread(&[]).abs() < 1e-12 && spread(&[7, 7, 7]).abs() < 1e-12);
        // 90 scores that rise by a thousandth each.
        let rising: Vec<i64> = (0..90).map(|i| i * ONE / 1000).collect();
        let falling: Vec<i64> = rising.iter().rev().copied().collect();
        assert!((slope(&rising) - 1e-3).abs() < 1e-8 && (slope(&falling) - 1e-3).abs() < 1e-8);
        assert!((slope(&[5; 90]) - FLOOR).abs() < 1e-15 && (slope(&[1, 2]) - FLOOR).abs() < 1e-15);
        assert!((smoothed(Some(4.0), 8.0) - 5.0).abs() < 1e-12 && (smoothed(None, 8.0) - 8.0).abs() < 1e-12);
    }

    #[test]
    fn distances_of_known_samples() {
        let d = Distance::of(&[1, 2, 3, 4], &[3, 4, 5, 6]);
        assert_eq!((d.millionths(), d.significant(DRIFT)), (500_000, false));
        let (low, high): (Vec<i64>, Vec<i64>) = ((0..40).collect(), (100..140).collect());
        let apart = Distance::of(&low, &high);
        assert!(apart.millionths() == 1_000_000 && apart.significant(JUMP));
        assert_eq!(Distance::of(&low, &low).millionths(), 0);
        assert!(!Distance::of(&[], &low).significant(DRIFT), "nothing says nothing");
    }

    proptest! {
        /// Of pairs of samples of one kind at most about the level is called different.
        #[test]
        fn samples_of_one_kind_are_seldom_different(seed in any::<u64>()) {
            let mut x = seed | 1;
            let mut next = || {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                i64::try_from(x >> 40).unwrap_or_default()
            };
            let mut sample = |n: usize| {
                let mut s: Vec<i64> = (0..n).map(|_| next()).collect();
                s.sort_unstable();
                s
            };
            let found = (0..200).filter(|_| Distance::of(&sample(60), &sample(150)).significant(DRIFT)).count();
            // Binomial(200, .01): above 12 with probability 2e-7.
            prop_assert!(found <= 12, "{found} of 200");
        }
    }
}
