//! The perplexity control: bits a character under the boundary's own character model (`hardened.md` 6.6b), held to
//! a threshold by rank.

use std::collections::HashMap;

use super::memsad::conformal_threshold;
use super::{Defense, Judged};
use crate::error::Result;
use crate::evaluate::{Boundary, Encode, Write};

/// Weight of the shorter context.
const BACK_OFF: f64 = 6.0;
/// Characters of context at most.
const CONTEXT: usize = 3;

/// Counts of characters after contexts of 0 to 3 characters.
#[derive(Debug, Default)]
pub struct CharModel {
    /// Context to (total, next character to count).
    counts: HashMap<Vec<char>, (f64, HashMap<char, f64>)>,
}

impl CharModel {
    /// Counts the texts, each with three line starts in front and every digit as 0.
    #[must_use]
    pub fn train<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut model = Self::default();
        for text in texts {
            let chars = prepared(text);
            for at in CONTEXT..chars.len() {
                for length in 0..=CONTEXT {
                    let entry = model.counts.entry(chars[at - length..at].to_vec()).or_default();
                    entry.0 += 1.0;
                    *entry.1.entry(chars[at]).or_insert(0.0) += 1.0;
                }
            }
        }
        model
    }

    /// Bits a character.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // lengths
    pub fn bits(&self, text: &str) -> f64 {
        let chars = prepared(text);
        let n = (chars.len() - CONTEXT).max(1) as f64;
        (CONTEXT..chars.len()).map(|at| -self.probability(&chars, at).log2()).sum::<f64>() / n
    }

    fn probability(&self, chars: &[char], at: usize) -> f64 {
        let mut p = 1.0 / 256.0;
        for length in 0..=CONTEXT {
            if let Some((total, next)) = self.counts.get(&chars[at - length..at]) {
                let count = next.get(&chars[at]).copied().unwrap_or(0.0);
                p = (count + BACK_OFF * p) / (total + BACK_OFF);
            }
        }
        p
    }
}

fn prepared(text: &str) -> Vec<char> {
    let line = text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
    std::iter::repeat_n('\n', CONTEXT).chain(line.chars().map(|c| if c.is_ascii_digit() { '0' } else { c })).collect()
}

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
        let model = CharModel::train(boundary.fit.iter().map(|w| w.text.as_str()));
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

#[cfg(test)]
mod tests {
    use super::CharModel;

    #[test]
    fn known_text_costs_less_than_noise() {
        let model = CharModel::train(["the meeting is on friday", "the report is on monday"]);
        let (known, noise) = (model.bits("the meeting is on monday"), model.bits("zqx jvw kkf"));
        assert!(known < 3.0 && noise > 6.0, "{known} {noise}");
        assert!((CharModel::default().bits("abc") - 8.0).abs() < 1e-12);
    }
}
