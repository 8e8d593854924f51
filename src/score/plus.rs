//! MEMSAD+, reference mode (`memsad.md` 2): a character feature and a word list beside the semantic score. And the
//! two lexical defenses of the same repository (4.2, 4.6). Compared with, never a gate.

use std::collections::{BTreeSet, HashMap};

/// A threshold on a score: mean + kappa * deviation of benign scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Threshold {
    /// Mean.
    pub mean: f64,
    /// Standard deviation, with what the defense adds to it.
    pub std: f64,
    /// mean + kappa * std.
    pub threshold: f64,
}

/// How a deviation is estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deviation {
    /// Population.
    Population,
    /// Population plus 1e-8.
    PopulationFloored,
    /// Sample (n - 1) plus 1e-8.
    SampleFloored,
}

impl Threshold {
    /// From benign scores; kappa is negative for a lower bound.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // counts stay below 2^52
    pub fn fit(scores: &[f64], kappa: f64, deviation: Deviation) -> Self {
        let n = scores.len().max(1) as f64;
        let mean = scores.iter().sum::<f64>() / n;
        let squares = scores.iter().map(|s| (s - mean).powi(2)).sum::<f64>();
        let std = match deviation {
            Deviation::Population => (squares / n).sqrt(),
            Deviation::PopulationFloored => (squares / n).sqrt() + 1e-8,
            Deviation::SampleFloored => (squares / (n - 1.0).max(1.0)).sqrt() + 1e-8,
        };
        Self { mean, std, threshold: mean + kappa * std }
    }

    /// Deviations above the mean.
    #[must_use]
    pub fn z(&self, score: f64) -> f64 {
        (score - self.mean) / self.std.max(1e-10)
    }
}

/// Characters in an n-gram.
const GRAM: usize = 3;

type Grams = HashMap<[char; GRAM], f64>;

/// Character trigrams of a text: lower case, white space runs as one blank.
fn grams(text: &str) -> Grams {
    let lower = text.to_lowercase();
    let plain: Vec<char> = lower.split_whitespace().collect::<Vec<_>>().join(" ").chars().collect();
    let mut counts = Grams::new();
    for window in plain.windows(GRAM) {
        *counts.entry([window[0], window[1], window[2]]).or_default() += 1.0;
    }
    counts
}

/// The pooled trigrams of benign entries.
#[derive(Debug, Clone, Default)]
pub struct Trigrams {
    counts: Grams,
    total: f64,
}

impl Trigrams {
    /// Of all entries.
    #[must_use]
    pub fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut counts = Grams::new();
        for text in texts {
            for (gram, n) in grams(text) {
                *counts.entry(gram).or_default() += n;
            }
        }
        let total = counts.values().sum();
        Self { counts, total }
    }

    /// Number of trigrams, and of distinct ones.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a count
    pub fn size(&self) -> (usize, usize) {
        (self.total as usize, self.counts.len())
    }

    /// Jensen-Shannon divergence of a text from the pool, natural logarithm, 0 to ln 2; 0 for a text or pool without
    /// a trigram.
    #[must_use]
    pub fn divergence(&self, text: &str) -> f64 {
        let own = grams(text);
        let total: f64 = own.values().sum();
        if total <= 0.0 || self.total <= 0.0 {
            return 0.0;
        }
        let term = |p: f64, q: f64| if p > 0.0 { p * (2.0 * p / (p + q)).ln() } else { 0.0 };
        let mut shared = 0.0;
        let mut sum = 0.0;
        // Sorted: a sum in the order of a hash map would differ in its last bits.
        let mut entries: Vec<(&[char; GRAM], &f64)> = own.iter().collect();
        entries.sort_unstable_by_key(|(gram, _)| **gram);
        for (gram, n) in entries {
            let (p, q) = (n / total, self.counts.get(gram).copied().unwrap_or_default() / self.total);
            sum += term(p, q) + term(q, p);
            shared += q;
        }
        // A trigram that only the pool has adds q * ln 2.
        (0.5 * (sum + (1.0 - shared) * std::f64::consts::LN_2)).clamp(0.0, std::f64::consts::LN_2)
    }
}

/// Words of security and office talk; our own list, so that scores of it match no published number.
const DOMAIN: [&str; 40] = [
    "access",
    "account",
    "admin",
    "api",
    "approval",
    "audit",
    "authorization",
    "backup",
    "calendar",
    "certificate",
    "client",
    "cluster",
    "compliance",
    "config",
    "configuration",
    "credential",
    "credentials",
    "database",
    "deploy",
    "email",
    "endpoint",
    "firewall",
    "login",
    "meeting",
    "override",
    "password",
    "permission",
    "policy",
    "protocol",
    "query",
    "schedule",
    "secret",
    "security",
    "server",
    "session",
    "sync",
    "system",
    "token",
    "user",
    "vault",
];

/// Words that order something; our own list.
const DIRECTIVES: [&str; 30] = [
    "always",
    "approve",
    "bypass",
    "comply",
    "delete",
    "disable",
    "disregard",
    "enforce",
    "ensure",
    "execute",
    "forward",
    "grant",
    "ignore",
    "immediately",
    "mandatory",
    "must",
    "never",
    "obey",
    "override",
    "proceed",
    "redirect",
    "required",
    "route",
    "run",
    "send",
    "shall",
    "skip",
    "transfer",
    "urgent",
    "use",
];

#[allow(clippy::cast_precision_loss)] // counts stay below 2^52
fn share(of: usize, all: usize) -> f64 {
    of as f64 / all.max(1) as f64
}

fn words(text: &str) -> Vec<String> {
    let word = |w: &str| w.chars().filter(|c| c.is_alphanumeric() || *c == '_').collect::<String>().to_lowercase();
    text.split_whitespace().map(word).filter(|w| !w.is_empty()).collect()
}

/// Share of words that are domain words.
#[must_use]
pub fn domain_share(text: &str) -> f64 {
    let words = words(text);
    share(words.iter().filter(|w| DOMAIN.contains(&w.as_str())).count(), words.len())
}

/// MEMSAD+ fitted: one threshold for each feature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plus {
    /// Combined score.
    pub semantic: Threshold,
    /// Character divergence.
    pub character: Threshold,
    /// Share of domain words.
    pub domain: Threshold,
}

/// The verdicts of MEMSAD+.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlusScores {
    /// Semantic or character: the rule of the paper.
    pub paper: bool,
    /// One of the three: the published table.
    pub any: bool,
    /// Largest of the three z.
    pub any_score: f64,
    /// .5, .3 and .2 of the three z.
    pub weighted_score: f64,
    /// The weighted score above 2.
    pub weighted: bool,
}

impl Plus {
    /// Judges the three feature values of an entry.
    #[must_use]
    pub fn judge(&self, semantic: f64, character: f64, domain: f64) -> PlusScores {
        let z = [self.semantic.z(semantic), self.character.z(character), self.domain.z(domain)];
        let paper = semantic > self.semantic.threshold || character > self.character.threshold;
        let weighted_score = 0.5 * z[0] + 0.3 * z[1] + 0.2 * z[2];
        PlusScores {
            paper,
            any: paper || domain > self.domain.threshold,
            any_score: z.into_iter().fold(f64::NEG_INFINITY, f64::max),
            weighted_score,
            weighted: weighted_score > 2.0,
        }
    }
}

/// Words of the lexical gate: alphanumeric runs of two characters at least.
fn gate_words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    lower.split(|c: char| !c.is_alphanumeric()).filter(|w| w.chars().nth(1).is_some()).map(str::to_owned).collect()
}

/// The vocabulary of the query history.
#[must_use]
pub fn vocabulary<'a>(queries: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    queries.into_iter().flat_map(gate_words).collect()
}

/// Parts of the lexical gate (`memsad.md` 4.6).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lexical {
    /// Distinct words by words; 1 below five words.
    pub diversity: f64,
    /// Share of words in the vocabulary of the history.
    pub overlap: f64,
    /// Share of the most frequent word; 0 below five words.
    pub repetition: f64,
    /// diversity - .4 overlap - .6 repetition; low is suspicious.
    pub score: f64,
}

/// Scores a text against the vocabulary of the history.
#[must_use]
pub fn lexical(text: &str, vocabulary: &BTreeSet<String>) -> Lexical {
    let words = gate_words(text);
    let mut counts: HashMap<&str, usize> = HashMap::new();
    words.iter().for_each(|w| *counts.entry(w).or_default() += 1);
    let few = words.len() < 5;
    let diversity = if few { 1.0 } else { share(counts.len(), words.len()) };
    let overlap = share(words.iter().filter(|w| vocabulary.contains(*w)).count(), words.len());
    let top = counts.values().max().copied().unwrap_or_default();
    let repetition = if few { 0.0 } else { share(top, words.len()) };
    Lexical { diversity, overlap, repetition, score: diversity - 0.4 * overlap - 0.6 * repetition }
}

/// Parts of content validation (`memsad.md` 4.2).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Validation {
    /// Shannon entropy of character bigrams, bits.
    pub entropy: f64,
    /// Distinct words by words; 1 below two words.
    pub diversity: f64,
    /// Share of directive words, by our own list.
    pub directives: f64,
    /// (1 - min(1, entropy / 5)) + (1 - diversity) + directives.
    pub score: f64,
}

/// Scores a text by its own statistics.
#[must_use]
#[allow(clippy::cast_precision_loss)] // counts stay below 2^52
pub fn validation(text: &str) -> Validation {
    let lower = text.to_lowercase();
    let chars: Vec<char> = lower.chars().collect();
    let mut counts: HashMap<(char, char), usize> = HashMap::new();
    chars.windows(2).for_each(|w| *counts.entry((w[0], w[1])).or_default() += 1);
    let total = chars.len().saturating_sub(1);
    let mut counts: Vec<usize> = counts.into_values().collect();
    counts.sort_unstable();
    let bits = |n: &usize| -share(*n, total) * share(*n, total).log2();
    let entropy = counts.iter().map(bits).sum::<f64>();
    let words: Vec<&str> = lower.split_whitespace().collect();
    let distinct: BTreeSet<&str> = words.iter().copied().collect();
    let diversity = if words.len() < 2 { 1.0 } else { share(distinct.len(), words.len()) };
    let plain = self::words(text);
    let directives = share(plain.iter().filter(|w| DIRECTIVES.contains(&w.as_str())).count(), plain.len());
    Validation { entropy, diversity, directives, score: parts(entropy, diversity, directives) }
}

/// The score of content validation from its parts.
#[must_use]
pub fn parts(entropy: f64, diversity: f64, directives: f64) -> f64 {
    (1.0 - (entropy / 5.0).min(1.0)) + (1.0 - diversity) + directives
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn divergence_is_bounded_and_zero_of_itself(a in "[a-e ]{0,40}", b in "\\PC{0,40}") {
            let pool = Trigrams::of([a.as_str()]);
            let d = pool.divergence(&b);
            prop_assert!((0.0..=std::f64::consts::LN_2).contains(&d));
            prop_assert!(pool.divergence(&a).abs() < 1e-12);
            // Symmetric, as far as one text is a pool.
            prop_assert!((Trigrams::of([b.as_str()]).divergence(&a) - d).abs() < 1e-9);
        }
    }

    #[test]
    fn short_texts_have_neutral_features() {
        assert!(Trigrams::of(["a benign text"]).divergence("ab").abs() < f64::EPSILON);
        let v = validation("");
        assert!((v.entropy.abs(), v.diversity) == (0.0, 1.0));
        let l = lexical("one two", &BTreeSet::new());
        assert!((l.score - 1.0).abs() < f64::EPSILON);
    }
}
