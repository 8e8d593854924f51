//! Statistics of an evaluation; pure. Scores grow with suspicion.

mod bootstrap;
mod ranks;
mod significance;

pub use bootstrap::{Bootstrap, Group};
pub use ranks::{AtFpr, auroc, margin, permuted_auroc, quantile_above, roc, tpr_at_fpr};
pub use significance::{bonferroni, fisher_greater, mcnemar};

use serde::{Deserialize, Serialize};

use crate::score::clopper_pearson;

/// x of n with its 95 % Clopper-Pearson interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Hits.
    pub x: u32,
    /// Denominator.
    pub n: u32,
    /// 95 % interval; (0, 1) for n = 0.
    pub interval: [f64; 2],
}

impl Rate {
    /// From counts.
    #[must_use]
    pub fn new(x: usize, n: usize) -> Self {
        let count = |v: usize| u32::try_from(v).unwrap_or(u32::MAX);
        let (x, n) = (count(x), count(n));
        Self { x, n, interval: clopper_pearson(x, n) }
    }

    /// The share of `true`.
    #[must_use]
    pub fn of(flags: &[bool]) -> Self {
        Self::new(flags.iter().filter(|f| **f).count(), flags.len())
    }

    /// x / n; 0 for n = 0.
    #[must_use]
    pub fn value(&self) -> f64 {
        if self.n == 0 { 0.0 } else { f64::from(self.x) / f64::from(self.n) }
    }

    /// Whether another rate lies within this one's interval.
    #[must_use]
    pub fn covers(&self, value: f64) -> bool {
        (self.interval[0]..=self.interval[1]).contains(&value)
    }
}

/// A value with a bootstrap interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// On the data as they are.
    pub value: f64,
    /// 2.5 and 97.5 percentiles over resampled templates.
    pub interval: [f64; 2],
}
