//! Character cross-entropy and prototype contrast: reported, never a gate (`hardened.md` 6.6b, 6.8).

use std::collections::HashMap;

use super::normal::norm;
use crate::schema::{Vector, dot};

/// Longest context, characters.
const ORDER: usize = 3;
/// Weight of the shorter context.
const LAMBDA: f64 = 6.0;
/// Probability without any context: one of 256 characters.
const BASE: f64 = 1.0 / 256.0;

/// How often a character followed a context.
#[derive(Debug, Clone, Default)]
struct Counts {
    total: u32,
    next: HashMap<char, u32>,
}

/// A character model of trusted texts.
#[derive(Debug, Clone, Default)]
pub struct CharModel {
    contexts: HashMap<Vec<char>, Counts>,
}

impl CharModel {
    /// Trained on raw texts.
    #[must_use]
    pub fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut model = Self::default();
        for text in texts {
            let chars = prepared(text);
            for at in ORDER..chars.len() {
                for order in 0..=ORDER {
                    let counts = model.contexts.entry(chars[at - order..at].to_vec()).or_default();
                    counts.total += 1;
                    *counts.next.entry(chars[at]).or_default() += 1;
                }
            }
        }
        model
    }

    /// Mean of -log2 p a character; 0 for an empty text.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a text has less than 2^52 characters
    pub fn bits(&self, text: &str) -> f64 {
        let chars = prepared(text);
        let n = chars.len() - ORDER;
        if n == 0 {
            return 0.0;
        }
        let sum: f64 = (ORDER..chars.len()).map(|at| -self.probability(&chars, at).log2()).sum();
        sum / n as f64
    }

    fn probability(&self, chars: &[char], at: usize) -> f64 {
        let mut p = BASE;
        for order in 0..=ORDER {
            let Some(counts) = self.contexts.get(&chars[at - order..at]) else { continue };
            let count = counts.next.get(&chars[at]).copied().unwrap_or_default();
            p = (f64::from(count) + LAMBDA * p) / (f64::from(counts.total) + LAMBDA);
        }
        p
    }
}

/// Normal form with every digit as 0, behind three line breaks.
fn prepared(text: &str) -> Vec<char> {
    let digit = |c: char| if c.is_numeric() { '0' } else { c };
    std::iter::repeat_n('\n', ORDER).chain(norm(text).chars().map(digit)).collect()
}

/// Largest, over the sentences, of the best cosine to a directive prototype minus the best to a harmless one, in
/// units of 1 / 32767^2; `None` without a sentence.
#[must_use]
pub fn prototype_contrast(sentences: &[Vector], directive: &[Vector], harmless: &[Vector]) -> Option<i64> {
    let best = |s: &Vector, to: &[Vector]| to.iter().map(|v| dot(s, v)).max().unwrap_or_default();
    sentences.iter().map(|s| best(s, directive) - best(s, harmless)).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seen_text_is_cheaper_than_unseen() {
        let model = CharModel::of(["the user likes tea", "the user likes walks"]);
        assert!(model.bits("the user likes tea") < model.bits("xq zvk wj"));
        assert!((model.bits("") - 0.0).abs() < f64::EPSILON);
        assert!((CharModel::default().bits("abc") - 8.0).abs() < 1e-12);
    }
}
