//! Graphiti: messages over REST, `add_memory` over MCP, facts of a group.

use serde_json::Value;

use super::searched::{self, Names};
use crate::decode::shape::{
    Asked, Draft, Read, arguments, call, facts, first, has, ident, lists, need, origin_of, text, texts, words,
};
use crate::decode::tree;
use crate::error::Result;
use crate::schema::{Op, Origin};

pub(super) fn writes(v: &Value) -> Read<Draft> {
    if lists(v, "messages") && has(v, &["group_id"]) {
        let group = || text(v, "group_id");
        return Some(facts(v, "messages").and_then(|all| all.iter().map(|m| spoken(m, group()?)).collect()));
    }
    if let Some(("add_memory", inner)) = call(v) {
        return Some(arguments(inner).and_then(|a| added(&a)).map(|d| vec![d]));
    }
    (has(v, &["uuid", "fact", "group_id"])).then(|| fact(v).map(|d| vec![d]))
}

pub(super) fn reads(v: &Value) -> Read<Asked> {
    searched::read(
        v,
        &Names {
            lists: &["facts"],
            ids: &["uuid"],
            request: &["group_ids", "max_facts"],
            marks: &["fact"],
            limit: "max_facts",
            session: &["session_id"],
        },
    )
    .map(|read| read.map(|asked| asked.into_iter().map(|a| grouped(v, a)).collect()))
}

/// One group that was searched is the tenant; several name none.
fn grouped(v: &Value, asked: Asked) -> Asked {
    let groups = v.get("request").and_then(|r| r.get("group_ids")).and_then(Value::as_array);
    let one = groups.filter(|g| g.len() == 1).and_then(|g| g[0].as_str()).map(str::to_owned);
    Asked { tenant: asked.tenant.or(one), ..asked }
}

fn spoken(m: &Value, group: Option<String>) -> Result<Draft> {
    Ok(Draft {
        tenant: group,
        under: "message".to_owned(),
        id: ident(m, "uuid")?,
        content: need(m, "content")?,
        origin: origin_of(text(m, "role_type")?.as_deref()),
        written_by: first(m, &["name", "role"])?,
        source: text(m, "source_description")?,
        created_at: text(m, "timestamp")?,
        ..Draft::default()
    })
}

fn added(a: &Value) -> Result<Draft> {
    let body = need(a, "episode_body")?;
    let body = match text(a, "source")?.as_deref() {
        Some("json") => tree::parse(body.as_bytes()).map(|d| words(&d)).unwrap_or(body),
        _ => body,
    };
    Ok(Draft {
        tenant: text(a, "group_id")?,
        under: "episode".to_owned(),
        id: ident(a, "uuid")?,
        content: format!("{}\n{body}", need(a, "name")?),
        origin: Origin::AgentGenerated,
        source: text(a, "source_description")?,
        created_at: text(a, "reference_time")?,
        ..Draft::default()
    })
}

fn fact(v: &Value) -> Result<Draft> {
    Ok(Draft {
        tenant: text(v, "group_id")?,
        id: Some(need(v, "uuid")?),
        op: Some(Op::Update),
        content: need(v, "fact")?,
        origin: Origin::AgentGenerated,
        derived_from: texts(v, "episodes")?,
        created_at: text(v, "created_at")?,
        ..Draft::default()
    })
}
