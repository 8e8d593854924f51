//! Content validation (`memsad.md` 4.2).

use super::{Defense, Judged};
use crate::error::Result;
use crate::evaluate::{Encode, Write};
use crate::score::{Deviation, Threshold, validation};

/// Fitted limit.
#[derive(Debug)]
pub struct Validation {
    threshold: f64,
}

impl Validation {
    /// Mean + 2 sample deviations of benign writes.
    #[must_use]
    pub fn fit(benign: &[Write]) -> Self {
        let scores: Vec<f64> = benign.iter().map(|w| validation(&w.text).score).collect();
        Self { threshold: Threshold::fit(&scores, 2.0, Deviation::SampleFloored).threshold }
    }
}

impl Defense for Validation {
    fn judge(&self, stream: &[Write], _: &dyn Encode) -> Result<Vec<Judged>> {
        Ok(stream.iter().map(|w| Judged::by(validation(&w.text).score, self.threshold)).collect())
    }

    fn threshold(&self) -> Option<f64> {
        Some(self.threshold)
    }
}
