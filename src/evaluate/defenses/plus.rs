//! MEMSAD+ (`memsad.md` 2): semantic score, character divergence, and a word list of our own.

use std::collections::HashMap;

use super::memsad::{Memsad, mean_and_deviation};
use super::{Defense, Judged};
use crate::error::Result;
use crate::evaluate::{Boundary, Encode, Write, text};
use crate::topology::Statistic;

/// Security and office words; ours, so scores with them are not the reference's.
const DOMAIN: [&str; 40] = [
    "access",
    "account",
    "admin",
    "alert",
    "api",
    "audit",
    "auth",
    "authority",
    "backup",
    "bypass",
    "calendar",
    "certificate",
    "config",
    "credential",
    "credentials",
    "database",
    "deploy",
    "directive",
    "elevated",
    "email",
    "encrypt",
    "endpoint",
    "firewall",
    "grant",
    "invoice",
    "key",
    "login",
    "override",
    "password",
    "payment",
    "permission",
    "policy",
    "privilege",
    "protocol",
    "role",
    "secret",
    "security",
    "server",
    "token",
    "validation",
];

/// How the parts are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Semantic or character above its own threshold.
    Paper,
    /// .5 semantic + .3 character + .2 words, in deviations, above 2.
    Weighted,
}

/// A fitted detector.
#[derive(Debug)]
pub struct Plus {
    semantic: Memsad,
    reference: CharReference,
    character: (f64, f64),
    domain: (f64, f64),
    rule: Rule,
}

/// Smallest deviation that a z value is divided by.
const SMALLEST: f64 = 1e-10;
const LIMIT: f64 = 2.0;

impl Plus {
    /// Fits all parts on the calibration part.
    ///
    /// # Errors
    /// `encoder_failed`.
    pub fn fit(boundary: &Boundary, rule: Rule, encode: &dyn Encode) -> Result<Self> {
        let texts: Vec<&str> = boundary.calibrate.iter().map(|w| w.text.as_str()).collect();
        let reference = CharReference::new(&texts);
        let fitted =
            |score: &dyn Fn(&str) -> f64| mean_and_deviation(&texts.iter().map(|t| score(t)).collect::<Vec<_>>());
        Ok(Self {
            semantic: Memsad::reference(boundary, Statistic::Combined, encode)?,
            character: fitted(&|t| reference.divergence(t)),
            domain: fitted(&domain_share),
            reference,
            rule,
        })
    }

    fn score(&self, semantic: f64, text: &str) -> f64 {
        let z = |(mean, deviation): (f64, f64), v: f64| (v - mean) / deviation.max(SMALLEST);
        let semantic = self.semantic.z(semantic);
        let character = z(self.character, self.reference.divergence(text));
        match self.rule {
            Rule::Paper => semantic.max(character),
            Rule::Weighted => 0.5 * semantic + 0.3 * character + 0.2 * z(self.domain, domain_share(text)),
        }
    }
}

impl Defense for Plus {
    fn judge(&self, stream: &[Write], encode: &dyn Encode) -> Result<Vec<Judged>> {
        let semantic = self.semantic.scores(stream, encode)?;
        Ok(stream.iter().zip(semantic).map(|(w, s)| Judged::by(self.score(s, &w.text), LIMIT)).collect())
    }

    fn threshold(&self) -> Option<f64> {
        Some(LIMIT)
    }
}

#[allow(clippy::cast_precision_loss)] // counts
fn domain_share(text: &str) -> f64 {
    let words = text::words(text);
    words.iter().filter(|w| DOMAIN.contains(&w.as_str())).count() as f64 / words.len().max(1) as f64
}

/// Pooled character trigrams of a reference set.
#[derive(Debug)]
pub struct CharReference(HashMap<[char; 3], f64>);

impl CharReference {
    /// Counts of all texts, pooled.
    #[must_use]
    pub fn new(texts: &[&str]) -> Self {
        let mut counts = HashMap::new();
        for text in texts {
            for (gram, n) in trigrams(text) {
                *counts.entry(gram).or_insert(0.0) += n;
            }
        }
        Self(shares(counts))
    }

    /// Jensen-Shannon divergence to the pooled distribution, natural log, 0 to ln 2; ln 2 / 2 terms for a text
    /// without a trigram are 0.
    #[must_use]
    pub fn divergence(&self, text: &str) -> f64 {
        let own = shares(trigrams(text));
        if own.is_empty() || self.0.is_empty() {
            return 0.0;
        }
        // In a fixed order, so that the sum repeats.
        let mut grams: Vec<&[char; 3]> = own.keys().collect();
        grams.sort_unstable();
        let part = |p: f64, q: f64| if p > 0.0 { p * (2.0 * p / (p + q)).ln() } else { 0.0 };
        let (mut sum, mut covered) = (0.0, 0.0);
        for gram in grams {
            let (p, q) = (own[gram], self.0.get(gram).copied().unwrap_or(0.0));
            sum += part(p, q) + part(q, p);
            covered += q;
        }
        // Trigrams that only the reference has: each adds q ln 2.
        0.5 * (sum + (1.0 - covered).max(0.0) * std::f64::consts::LN_2)
    }
}

fn trigrams(text: &str) -> HashMap<[char; 3], f64> {
    let line = text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
    let chars: Vec<char> = line.chars().collect();
    let mut counts = HashMap::new();
    for w in chars.windows(3) {
        *counts.entry([w[0], w[1], w[2]]).or_insert(0.0) += 1.0;
    }
    counts
}

fn shares(mut counts: HashMap<[char; 3], f64>) -> HashMap<[char; 3], f64> {
    let total: f64 = counts.values().sum();
    counts.values_mut().for_each(|v| *v /= total);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn divergence_is_bounded_and_symmetric(a in "[a-d ]{3,30}", b in "[a-d ]{3,30}") {
            let forth = CharReference::new(&[&a]).divergence(&b);
            let back = CharReference::new(&[&b]).divergence(&a);
            prop_assert!((0.0..=std::f64::consts::LN_2 + 1e-12).contains(&forth), "{forth}");
            prop_assert!((forth - back).abs() < 1e-12);
            prop_assert!(CharReference::new(&[&a]).divergence(&a).abs() < 1e-12);
        }
    }

    #[test]
    fn disjoint_texts_are_ln_two_apart_and_short_ones_have_none() {
        let reference = CharReference::new(&["aaaa"]);
        assert!((reference.divergence("bbbb") - std::f64::consts::LN_2).abs() < 1e-12);
        assert!(reference.divergence("ab").abs() < 1e-12);
    }
}
