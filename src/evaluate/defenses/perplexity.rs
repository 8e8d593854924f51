//! The perplexity control: bits a character under the boundary's own character model (`hardened.md` 6.6b), held to
//! a threshold by rank.

use super::memsad::conformal_threshold;
use super::{Defense, Judged};
use crate::error::Result;
use crate::evaluate::{Boundary, Encode, Write};
use crate::screen::CharModel;

/// The control.
#[derive(Debug)]
pub struct Perplexity {
    model: CharModel,
    threshold: f64,
}

impl Perplexity {
    /// Model from the fit part, threshold from the calibration part.
    #[must_use]
    pub fn fit(boundary: &Boundary, level: f64) -> Self {
        let model = CharModel::of(boundary.fit.iter().map(|w| w.text.as_str()));
        let scores: Vec<f64> = boundary.calibrate.iter().map(|w| model.bits(&w.text)).collect();
        Self { threshold: conformal_threshold(&scores, level), model }
    }
}

impl Defense for Perplexity {
    fn judge(&self, stream: &[Write], _: &dyn Encode) -> Result<Vec<Judged>> {
        Ok(stream.iter().map(|w| Judged::by(self.model.bits(&w.text), self.threshold)).collect())
    }

    fn threshold(&self) -> Option<f64> {
        Some(self.threshold)
    }
}
