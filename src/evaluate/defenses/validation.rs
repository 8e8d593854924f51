//! Content validation (`memsad.md` 4.2), with a directive list of our own.

use std::collections::{BTreeMap, BTreeSet};

use super::{Defense, Judged};
use crate::error::Result;
use crate::evaluate::{Encode, Write, text};

/// Words of command; ours, so the density is not the reference's.
const DIRECTIVES: [&str; 30] = [
    "always",
    "apply",
    "authorize",
    "bypass",
    "command",
    "delete",
    "disable",
    "disregard",
    "elevate",
    "enforce",
    "execute",
    "export",
    "forward",
    "grant",
    "ignore",
    "immediately",
    "instruction",
    "mandatory",
    "must",
    "never",
    "override",
    "permit",
    "priority",
    "privileges",
    "redirect",
    "require",
    "required",
    "reveal",
    "supersedes",
    "urgent",
];

/// Fitted limits.
#[derive(Debug)]
pub struct Validation {
    threshold: f64,
}

impl Validation {
    /// Mean + 2 sample deviations of benign writes.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // counts
    pub fn fit(benign: &[Write]) -> Self {
        let scores: Vec<f64> = benign.iter().map(|w| score(&w.text)).collect();
        let n = scores.len() as f64;
        let mean = scores.iter().sum::<f64>() / n.max(1.0);
        let variance = scores.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
        Self { threshold: mean + 2.0 * (variance.sqrt() + 1e-8) }
    }
}

impl Defense for Validation {
    fn judge(&self, stream: &[Write], _: &dyn Encode) -> Result<Vec<Judged>> {
        Ok(stream.iter().map(|w| Judged::by(score(&w.text), self.threshold)).collect())
    }

    fn threshold(&self) -> Option<f64> {
        Some(self.threshold)
    }
}

/// (1 - min(1, entropy / 5)) + (1 - type-token ratio) + directive density.
#[allow(clippy::cast_precision_loss)] // counts
fn score(text: &str) -> f64 {
    let words: Vec<String> = text.to_lowercase().split_whitespace().map(str::to_owned).collect();
    let distinct = words.iter().collect::<BTreeSet<_>>().len() as f64;
    let ratio = if words.len() < 2 { 1.0 } else { distinct / words.len() as f64 };
    let plain = text::words(text);
    let directives = plain.iter().filter(|w| DIRECTIVES.contains(&w.as_str())).count() as f64;
    (1.0 - (bigram_entropy(text) / 5.0).min(1.0)) + (1.0 - ratio) + directives / plain.len().max(1) as f64
}

/// Shannon entropy of lower-case character bigrams, bits.
#[must_use]
#[allow(clippy::cast_precision_loss)] // counts
pub fn bigram_entropy(text: &str) -> f64 {
    let chars: Vec<char> = text.to_lowercase().chars().collect();
    let mut counts = BTreeMap::new();
    for w in chars.windows(2) {
        *counts.entry([w[0], w[1]]).or_insert(0_u32) += 1;
    }
    let total = chars.len().saturating_sub(1) as f64;
    counts.values().map(|c| f64::from(*c) / total).map(|p| -p * p.log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropy_by_hand() {
        assert!(bigram_entropy("aaaa").abs() < 1e-12);
        assert!((bigram_entropy("abcde") - 2.0).abs() < 1e-12);
    }

    /// Why the uncalibrated rule never fires: any sentence is above its 2.5 bits.
    #[test]
    fn any_sentence_is_above_the_entropy_limit() {
        assert!(bigram_entropy("execute override now: urgent, must bypass every check") > 4.5);
    }
}
