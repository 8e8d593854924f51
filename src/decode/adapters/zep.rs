//! Zep: graph data, thread messages, episodes and facts.

use serde_json::Value;

use super::searched::{self, Names};
use crate::decode::shape::{
    Asked, Draft, Read, any, facts, first, has, ident, lists, message, need, origin_of, text, texts, words, wrong,
};
use crate::decode::tree;
use crate::error::Result;
use crate::schema::{Op, Origin};

pub(super) fn writes(v: &Value) -> Read<Draft> {
    if has(v, &["data", "type"]) && (has(v, &["user_id"]) || has(v, &["graph_id"])) && kinds(v) {
        return Some(episode(v, v).map(|d| vec![d]));
    }
    if lists(v, "episodes") && (has(v, &["user_id"]) || has(v, &["graph_id"])) && !any(v, &["fact"]) {
        return Some(facts(v, "episodes").and_then(|all| all.iter().map(|e| episode(e, v)).collect()));
    }
    if lists(v, "messages") && any(v, &["ignore_roles", "return_context", "thread_id"]) && !any(v, &["group_id"]) {
        return Some(facts(v, "messages").and_then(|all| all.iter().map(|m| spoken(m, v)).collect()));
    }
    if has(v, &["uuid", "fact"]) && any(v, &["source_node_uuid", "episodes"]) && !any(v, &["group_id"]) {
        return Some(fact(v).map(|d| vec![d]));
    }
    (has(v, &["uuid", "content"]) && any(v, &["role_type", "processed"])).then(|| spoken(v, v).map(|d| vec![d]))
}

pub(super) fn reads(v: &Value) -> Read<Asked> {
    searched::read(
        v,
        &Names {
            lists: &["edges", "episodes", "nodes", "observations", "thread_summaries"],
            ids: &["uuid", "id"],
            request: &["scope", "reranker"],
            marks: &["edges", "episodes", "nodes"],
            limit: "limit",
            session: &["thread_id", "session_id"],
        },
    )
}

fn kinds(v: &Value) -> bool {
    v.get("type").and_then(Value::as_str).is_some_and(|t| ["text", "json", "message", "fact_triple"].contains(&t))
}

fn whose(v: &Value) -> Result<Draft> {
    Ok(Draft {
        tenant: first(v, &["graph_id", "user_id"])?,
        principal: text(v, "user_id")?,
        session: first(v, &["thread_id", "session_id"])?,
        ..Draft::default()
    })
}

fn episode(e: &Value, outer: &Value) -> Result<Draft> {
    let data = need(e, "data")?;
    // A document in a text: each of its leaves is read, and what isn't one is read as it is.
    let content = match text(e, "type")?.as_deref() {
        Some("json" | "fact_triple") => tree::parse(data.as_bytes()).map(|d| words(&d)).unwrap_or(data),
        _ => data,
    };
    Ok(Draft {
        under: "episode".to_owned(),
        id: ident(e, "uuid")?,
        content,
        source: text(e, "source_description")?,
        created_at: text(e, "created_at")?,
        ..whose(outer)?
    })
}

fn spoken(m: &Value, outer: &Value) -> Result<Draft> {
    let role = first(m, &["role_type", "role"])?;
    Ok(Draft {
        under: "message".to_owned(),
        id: ident(m, "uuid")?,
        content: message(m.get("content").ok_or_else(|| wrong("content"))?),
        origin: origin_of(role.as_deref()),
        written_by: text(m, "name")?,
        source: text(m, "source_description")?,
        created_at: text(m, "created_at")?,
        ..whose(outer)?
    })
}

/// A fact names the episodes that it was made from.
fn fact(v: &Value) -> Result<Draft> {
    Ok(Draft {
        id: Some(need(v, "uuid")?),
        op: Some(Op::Update),
        content: need(v, "fact")?,
        origin: Origin::AgentGenerated,
        derived_from: texts(v, "episodes")?,
        created_at: text(v, "created_at")?,
        ..whose(v)?
    })
}
