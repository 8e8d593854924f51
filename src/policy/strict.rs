//! Strict boundaries: a write whose provenance is not recorded is refused there (R5, R15 of `defenses.md` 7).

use crate::decode::Write;
use crate::schema::Origin;

/// Fields of the provenance that a write lacks, all of them. The end is not among them: the policy assigns one.
pub(super) fn missing(write: &Write, origin: Origin) -> Vec<&'static str> {
    let named = write.source_ref.is_some() || (origin == Origin::AgentGenerated && !write.derived_from.is_empty());
    let said = matches!(origin, Origin::UserInput | Origin::System);
    let checks = [
        ("origin", origin != Origin::External),
        ("source_ref", named || said),
        ("written_by", write.written_by.is_some()),
        ("created_at", write.created_at.is_some()),
    ];
    checks.into_iter().filter(|(_, there)| !there).map(|(field, _)| field).collect()
}
