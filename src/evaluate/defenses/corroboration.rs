//! Corroboration gates (`defenses.md` 3): a claim needs two supports. The naive gate counts source strings, the
//! other one independent authenticated identities.

use super::geometry::cosine;
use super::{Defense, Judged};
use crate::error::Result;
use crate::evaluate::{Encode, Write, text};
use crate::schema::{Origin, Vector};

/// Cosine to a claim's first record that makes a write support it.
const SAME_CLAIM: f64 = 0.85;
/// Texts this alike within the stream are one source.
const COPIES: f64 = 0.8;
/// Cosine of a copy.
const COPY_COSINE: f64 = 0.97;
/// Supports that promote a claim.
const NEEDED: usize = 2;

/// Which gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Corroboration {
    /// Different source strings.
    Naive,
    /// Independent components of authenticated, trusted identities.
    Identity,
}

impl Defense for Corroboration {
    /// Looks at the whole stream, so the result doesn't depend on its order.
    fn judge(&self, stream: &[Write], encode: &dyn Encode) -> Result<Vec<Judged>> {
        let vectors = encode.encode(&stream.iter().map(|w| w.text.as_str()).collect::<Vec<_>>())?;
        let mut claims: Vec<Vec<usize>> = Vec::new();
        for (i, vector) in vectors.iter().enumerate() {
            let same = |claim: &&mut Vec<usize>| {
                let first = claim[0];
                cosine(vector, &vectors[first]) >= SAME_CLAIM && !numbers_clash(&stream[i].text, &stream[first].text)
            };
            match claims.iter_mut().find(same) {
                Some(claim) => claim.push(i),
                None => claims.push(vec![i]),
            }
        }
        let mut judged = vec![Judged::by(0.0, 0.0); stream.len()];
        for claim in claims {
            let supports: Vec<(&Write, &Vector)> = claim.iter().map(|i| (&stream[*i], &vectors[*i])).collect();
            let support = match self {
                Corroboration::Naive => distinct_sources(&supports),
                Corroboration::Identity => effective_support(&supports),
            };
            #[allow(clippy::cast_precision_loss)] // small counts
            let score = -(support as f64);
            claim.iter().for_each(|i| judged[*i] = Judged { score, flagged: support < NEEDED, blocked: false });
        }
        Ok(judged)
    }

    fn threshold(&self) -> Option<f64> {
        Some(-1.5)
    }
}

fn numbers_clash(a: &str, b: &str) -> bool {
    let numbers = |t: &str| -> Vec<String> {
        let mut found: Vec<String> =
            text::words(t).into_iter().filter(|w| w.chars().any(|c| c.is_ascii_digit())).collect();
        found.sort();
        found.dedup();
        found
    };
    numbers(a) != numbers(b)
}

fn distinct_sources(supports: &[(&Write, &Vector)]) -> usize {
    supports.iter().map(|(w, _)| w.source.as_str()).collect::<std::collections::BTreeSet<_>>().len()
}

/// Components of trusted, authenticated supports that share no principal, domain, source or text.
#[must_use]
pub fn effective_support(supports: &[(&Write, &Vector)]) -> usize {
    let counted: Vec<&(&Write, &Vector)> = supports
        .iter()
        .filter(|(w, _)| {
            w.principal.is_some() && matches!(w.origin, Origin::UserInput | Origin::System | Origin::ToolOutput)
        })
        .collect();
    let mut parent: Vec<usize> = (0..counted.len()).collect();
    for (i, a) in counted.iter().enumerate() {
        for (j, b) in counted.iter().enumerate().skip(i + 1) {
            if dependent(a, b) {
                let (x, y) = (root(&parent, i), root(&parent, j));
                parent[x] = y;
            }
        }
    }
    (0..counted.len()).filter(|i| root(&parent, *i) == *i).count()
}

fn root(parent: &[usize], mut i: usize) -> usize {
    while parent[i] != i {
        i = parent[i];
    }
    i
}

fn dependent((a, va): &(&Write, &Vector), (b, vb): &(&Write, &Vector)) -> bool {
    a.principal == b.principal
        || (a.domain.is_some() && a.domain == b.domain)
        || a.source == b.source
        || text::jaccard(&a.text, &b.text, 5) >= COPIES
        || cosine(va, vb) >= COPY_COSINE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn support(id: &str, source: &str, principal: &str, domain: &str, text: &str) -> Write {
        let mut w = Write::new(id, text).with_origin(Origin::System);
        (w.source, w.principal, w.domain) = (source.into(), Some(principal.into()), Some(domain.into()));
        w
    }

    fn vector(i: usize) -> Vector {
        let mut v = vec![0.0; 8];
        v[i] = 1.0;
        v[7] = 2.0;
        Vector::from_f64(&v).unwrap()
    }

    fn counts(writes: &[Write]) -> (usize, usize) {
        let vectors: Vec<Vector> = (0..writes.len()).map(vector).collect();
        let supports: Vec<(&Write, &Vector)> = writes.iter().zip(&vectors).collect();
        (distinct_sources(&supports), effective_support(&supports))
    }

    /// The six steps of `attacks.md` 4: source strings, then effective support.
    #[test]
    fn the_ladder() {
        let texts = [
            "the vault moved to the annex building on monday",
            "since monday one finds the vault over in the annex",
            "annex building: new place of the vault from monday",
        ];
        let w = |i: usize, source: &str, principal: &str, domain: &str| {
            support(&format!("w{i}"), source, principal, domain, texts[i])
        };
        assert_eq!(counts(&[w(0, "a", "p", "d")]), (1, 1));
        assert_eq!(counts(&[w(0, "a", "p", "d"), w(1, "a", "p", "d")]), (1, 1));
        assert_eq!(counts(&[w(0, "a", "p", "d"), w(1, "a", "q", "e")]), (1, 1));
        assert_eq!(counts(&[w(0, "a", "p", "d"), w(1, "b", "p", "d"), w(2, "b", "p", "d")]), (2, 1));
        assert_eq!(counts(&[w(0, "a", "p", "d"), w(1, "b", "q", "d"), w(2, "c", "r", "d")]), (3, 1));
        assert_eq!(counts(&[w(0, "a", "p", "d"), w(1, "b", "q", "e"), w(2, "c", "r", "f")]), (3, 3));
        let outside: Vec<Write> =
            (0..3).map(|i| w(i, &format!("s{i}"), "p", "d").with_origin(Origin::Retrieved)).collect();
        assert_eq!(counts(&outside), (3, 0));
    }
}
