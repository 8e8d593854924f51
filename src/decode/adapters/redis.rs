//! Redis agent-memory-server: batches of long-term memories, and searches.

use serde_json::Value;

use super::searched::{self, Names};
use crate::decode::shape::{Asked, Draft, Read, any, facts, ident, list, lists, need, text, texts};
use crate::error::Result;

pub(super) fn writes(v: &Value) -> Read<Draft> {
    let memories = list(v, "memories").ok().filter(|_| lists(v, "memories"))?;
    let marked =
        any(v, &["deduplicate"]) || memories.iter().any(|m| any(m, &["memory_type", "memory_hash", "namespace"]));
    (marked && memories.iter().all(|m| any(m, &["text"])))
        .then(|| facts(v, "memories").and_then(|all| all.iter().map(memory).collect()))
}

pub(super) fn reads(v: &Value) -> Read<Asked> {
    searched::read(
        v,
        &Names {
            lists: &["memories"],
            ids: &["id"],
            request: &["distance_threshold", "memory_type"],
            marks: &["dist", "memory_hash"],
            limit: "limit",
            session: &["session_id"],
        },
    )
}

fn memory(m: &Value) -> Result<Draft> {
    Ok(Draft {
        tenant: text(m, "namespace")?,
        id: ident(m, "id")?,
        under: "memory".to_owned(),
        content: need(m, "text")?,
        principal: text(m, "user_id")?,
        session: text(m, "session_id")?,
        derived_from: texts(m, "extracted_from")?,
        created_at: text(m, "created_at")?,
        ..Draft::default()
    })
}
