//! Wald's sequential probability ratio test (`mempot.md` 4). The sum is computed from integer counts, so
//! a replay gives identical bits.

use crate::error::Result;
use crate::topology::Sprt;

/// Comparison slack at the bounds (`mempot.md` 4.3).
const SLACK: f64 = 1e-12;

/// Increments and bounds of one test.
#[derive(Debug, Clone, PartialEq)]
pub struct SprtTable {
    /// ln(p1 / p0).
    pub hit: f64,
    /// ln((1 - p1) / (1 - p0)).
    pub miss: f64,
    /// ln((1 - beta) / alpha): attack.
    pub upper: f64,
    /// ln(beta / (1 - alpha)): benign.
    pub lower: f64,
    /// Observations after which the test is inconclusive.
    pub max_observations: u32,
    /// A gap this long closes the session, ms.
    pub idle_ms: i64,
    /// The parameters.
    pub parameters: Sprt,
}

/// Where a test stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Between the bounds.
    Open,
    /// At or above the upper bound.
    Attack,
    /// At or below the lower bound.
    Benign,
    /// Open at the last observation.
    Inconclusive,
}

/// Real error rates and rounds from the exact recursion (`mempot.md` 4.3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exact {
    /// Probability of the upper bound.
    pub upper: f64,
    /// Expected observations.
    pub rounds: f64,
    /// Still open after `max_observations`.
    pub open: f64,
}

impl SprtTable {
    /// Checks the parameters and derives increments and bounds.
    ///
    /// # Errors
    /// `sprt_invalid`.
    pub fn new(p: &Sprt) -> Result<Self> {
        p.check()?;
        let idle_ms = i64::try_from(p.idle.as_millis()).unwrap_or(i64::MAX);
        Ok(Self {
            hit: (p.p1 / p.p0).ln(),
            miss: ((1.0 - p.p1) / (1.0 - p.p0)).ln(),
            upper: ((1.0 - p.beta) / p.alpha).ln(),
            lower: (p.beta / (1.0 - p.alpha)).ln(),
            max_observations: p.max_observations,
            idle_ms,
            parameters: p.clone(),
        })
    }

    /// Log-likelihood ratio of `hits` among `n` observations.
    #[must_use]
    pub fn llr(&self, n: u32, hits: u32) -> f64 {
        f64::from(hits) * self.hit + f64::from(n - hits) * self.miss
    }

    /// Where `hits` among `n` stands.
    #[must_use]
    pub fn step(&self, n: u32, hits: u32) -> Step {
        let s = self.llr(n, hits);
        if s >= self.upper - SLACK {
            Step::Attack
        } else if s <= self.lower + SLACK {
            Step::Benign
        } else if n >= self.max_observations {
            Step::Inconclusive
        } else {
            Step::Open
        }
    }

    /// Exact behaviour at true hit rate `p`, without truncation but for the `open` share.
    #[must_use]
    pub fn exact(&self, p: f64) -> Exact {
        let mut open = vec![1.0_f64];
        let mut result = Exact { upper: 0.0, rounds: 0.0, open: 0.0 };
        for n in 1..=100_000_u32 {
            let mass: f64 = open.iter().sum();
            if mass < 1e-15 {
                break;
            }
            result.rounds += mass;
            let mut next = vec![0.0; open.len() + 1];
            for (hits, mass) in open.iter().enumerate() {
                next[hits] += mass * (1.0 - p);
                next[hits + 1] += mass * p;
            }
            for (hits, mass) in next.iter_mut().enumerate() {
                let s = self.llr(n, u32::try_from(hits).unwrap_or(u32::MAX).min(n));
                if s >= self.upper - SLACK {
                    result.upper += *mass;
                    *mass = 0.0;
                } else if s <= self.lower + SLACK {
                    *mass = 0.0;
                }
            }
            if n == self.max_observations {
                result.open = next.iter().sum();
            }
            while next.last() == Some(&0.0) {
                next.pop();
            }
            open = next;
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn table(p1: f64, p0: f64, alpha: f64) -> SprtTable {
        SprtTable::new(&Sprt {
            p1,
            p0,
            alpha,
            beta: 0.05,
            max_observations: 20,
            idle: Duration::from_secs(1800),
            assumed: true,
        })
        .unwrap()
    }

    #[allow(clippy::approx_constant)] // ln(10) is only the table's value
    /// `mempot.md` 4.4, first table: bounds, increments, hits to flag, misses to clear.
    #[test]
    fn golden_bounds() {
        for (p1, p0, alpha, a, b, hit, miss, flag, clear) in [
            (0.6, 0.02, 0.01, 4.5539, -2.9857, 3.4012, -0.8961, 2, 4),
            (0.6, 0.02, 0.001, 6.8565, -2.9947, 3.4012, -0.8961, 3, 4),
            (0.3, 0.02, 0.01, 4.5539, -2.9857, 2.7081, -0.3365, 2, 9),
            (0.9, 0.014, 0.01, 4.5539, -2.9857, 4.1633, -2.2885, 2, 2),
            (0.5, 0.05, 0.01, 4.5539, -2.9857, 2.3026, -0.6419, 2, 5),
        ] {
            let t = table(p1, p0, alpha);
            for (found, wanted) in [(t.upper, a), (t.lower, b), (t.hit, hit), (t.miss, miss)] {
                assert!((found - wanted).abs() < 1e-4, "{p1}/{p0}: {found} != {wanted}");
            }
            assert_eq!((1..).find(|n| t.step(*n, *n) == Step::Attack), Some(flag));
            assert_eq!((1..).find(|n| t.step(*n, 0) == Step::Benign), Some(clear));
        }
    }

    /// Second table: exact rates, rounds, open share; operating characteristic of design 1.
    #[test]
    fn golden_exact() {
        for (p1, p0, alpha, up1, asn1, up0, asn0, open1, open0) in [
            (0.6, 0.02, 0.01, 0.97251, 3.519, 0.00265, 4.405, 0.00007, 0.00004),
            (0.6, 0.02, 0.001, 0.97239, 5.150, 0.00018, 4.431, 0.00036, 0.00013),
            (0.3, 0.02, 0.01, 0.95175, 9.021, 0.00433, 10.856, 0.05659, 0.03451),
            (0.9, 0.014, 0.01, 0.98979, 2.220, 0.00060, 2.084, 0.0, 0.0),
            (0.5, 0.05, 0.01, 0.96122, 6.085, 0.00540, 6.479, 0.00688, 0.00514),
        ] {
            let t = table(p1, p0, alpha);
            for (rate, up, asn, open) in [(p1, up1, asn1, open1), (p0, up0, asn0, open0)] {
                let e = t.exact(rate);
                assert!(
                    (e.upper - up).abs() < 1e-4 && (e.rounds - asn).abs() < 1e-3 && (e.open - open).abs() < 1e-4,
                    "{p1}/{p0} at {rate}: {e:?}"
                );
            }
        }
        let t = table(0.6, 0.02, 0.01);
        for (p, up, asn) in [
            (0.01, 0.0006, 4.201),
            (0.1, 0.0860, 5.953),
            (0.3, 0.6402, 6.368),
            (0.5, 0.9269, 4.298),
            (0.8, 0.9984, 2.528),
        ] {
            let e = t.exact(p);
            assert!((e.upper - up).abs() < 1e-4 && (e.rounds - asn).abs() < 1e-3, "{p}: {e:?}");
        }
    }

    /// Trajectories of design 1.
    #[test]
    fn golden_trajectories() {
        let t = table(0.6, 0.02, 0.01);
        let run = |bits: &[u32]| {
            let (mut n, mut x, mut sums) = (0, 0, Vec::new());
            for b in bits {
                n += 1;
                x += b;
                sums.push((t.llr(n, x), t.step(n, x)));
            }
            sums
        };
        let first = run(&[0, 0, 0, 1, 1]);
        for (found, wanted) in first.iter().zip([-0.8961, -1.7922, -2.6883, 0.7129, 4.1141]) {
            assert!((found.0 - wanted).abs() < 1e-4);
            assert_eq!(found.1, Step::Open);
        }
        assert_eq!(run(&[0, 0, 0, 0])[3].1, Step::Benign);
        assert_eq!(run(&[1, 1])[1].1, Step::Attack);
        let last = run(&[1, 0, 0, 0, 0, 0, 0, 0])[7];
        assert!((last.0 - -2.8714).abs() < 1e-4 && last.1 == Step::Open);
    }
}
