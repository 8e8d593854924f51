//! What two policies make of the same write.

use super::Ruling;
use crate::clock::rfc3339;
use crate::schema::Verdict;

/// A ruling, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Said {
    /// Verdict.
    pub verdict: Verdict,
    /// Rule that decided; null when none matched.
    pub rule: Option<String>,
    /// Shadow rules that would have held or changed it.
    pub shadow: Vec<String>,
    /// Effective origin.
    pub origin: &'static str,
    /// When the memory ends, RFC 3339; null for a delete.
    pub expires_at: Option<String>,
}

impl Said {
    /// Of a ruling.
    #[must_use]
    pub fn of(ruling: &Ruling) -> Self {
        Self {
            verdict: ruling.verdict,
            rule: ruling.rule.clone(),
            shadow: ruling.shadow.clone(),
            origin: ruling.origin.as_str(),
            expires_at: ruling.expires_at.map(rfc3339),
        }
    }
}

/// A write that two policies treat differently.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Change {
    /// The fixture, or the place of the write.
    pub what: String,
    /// The verdict itself changes, not only rule, shadow, origin or end.
    pub verdict: bool,
    /// Before.
    pub old: Said,
    /// After.
    pub new: Said,
}

/// The change, if there is one.
#[must_use]
pub fn change(what: &str, old: &Ruling, new: &Ruling) -> Option<Change> {
    let (before, after) = (Said::of(old), Said::of(new));
    let verdict = before.verdict != after.verdict;
    (before != after).then(|| Change { what: what.to_owned(), verdict, old: before, new: after })
}
