//! Event log of Apache Flink Agents: updates of and searches in long-term memory.

use serde_json::Value;

use crate::decode::shape::{Asked, Draft, Read, dead, entries, ident, list, need, object, text, words, wrong};
use crate::error::{Code, Result};
use crate::schema::{Op, Origin};

pub(super) fn writes(v: &Value) -> Read<Draft> {
    (v.get("eventType")? == "_long_term_update_event").then(|| updates(v))
}

pub(super) fn reads(v: &Value) -> Read<Asked> {
    (v.get("eventType")? == "_long_term_search_event").then(|| searches(v))
}

fn updates(v: &Value) -> Result<Vec<Draft>> {
    let event = object(v, "event")?;
    let attributes = object(event, "attributes")?;
    if !list(attributes, "cleared_sets")?.is_empty() {
        return Err(dead(Code::ShapeIncomplete, "cleared_sets doesn't name the records that are gone"));
    }
    let key = need(attributes, "key")?;
    let mut out = Vec::new();
    for (set, items) in entries(object(attributes, "value")?)? {
        for (item, value) in entries(items)? {
            out.push(Draft {
                id: Some(format!("{key}/{set}/{item}")),
                op: Some(if value.is_null() { Op::Delete } else { Op::Update }),
                content: words(value),
                origin: Origin::AgentGenerated,
                source: ident(event, "id")?,
                created_at: text(v, "timestamp")?,
                ..Draft::default()
            });
        }
    }
    Ok(out)
}

/// One retrieval a query.
fn searches(v: &Value) -> Result<Vec<Asked>> {
    let event = object(v, "event")?;
    let attributes = object(event, "attributes")?;
    let key = need(attributes, "key")?;
    let mut out = Vec::new();
    for (set, queries) in entries(object(attributes, "value")?)? {
        for (query, found) in entries(queries)? {
            let found = found.as_array().ok_or_else(|| wrong("the results of a query"))?;
            let id = |f: &Value| Ok((format!("{key}/{set}/{}", ident(f, "id")?.ok_or_else(|| wrong("id"))?), None));
            out.push(Asked {
                id: ident(event, "id")?.map(|id| format!("{id}/{}", out.len())),
                session: Some(key.clone()),
                query: Some(query.clone()),
                results: found.iter().map(id).collect::<Result<_>>()?,
                ..Asked::default()
            });
        }
    }
    Ok(out)
}
