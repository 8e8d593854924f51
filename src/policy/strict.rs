//! Strict boundaries: a write whose provenance is not recorded is refused there (R5, R15 of `defenses.md` 7).

use crate::decode::Write;
use crate::schema::{Origin, valid_id};

/// Fields of the provenance that a write lacks, all of them. The end is not among them: the policy assigns one.
pub(super) fn missing(write: &Write, origin: Origin) -> Vec<&'static str> {
    let derived = !write.derived_from.is_empty() && write.derived_from.iter().all(|p| valid_id(p));
    let named = is_said(write.source_ref.as_deref()) || (origin == Origin::AgentGenerated && derived);
    let said = matches!(origin, Origin::UserInput | Origin::System);
    let checks = [
        ("origin", origin != Origin::External),
        ("source_ref", named || said),
        ("written_by", is_said(write.written_by.as_deref())),
        ("created_at", write.created_at.is_some()),
    ];
    checks.into_iter().filter(|(_, there)| !there).map(|(field, _)| field).collect()
}

/// An empty or blank word says nothing.
fn is_said(word: Option<&str>) -> bool {
    word.is_some_and(|w| !w.trim().is_empty())
}
