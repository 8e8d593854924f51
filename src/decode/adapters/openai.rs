//! Sessions of the OpenAI Agents SDK: rows of `agent_messages`, and items with their session.

use serde_json::Value;

use crate::decode::shape::{Draft, Read, facts, has, ident, list, lists, message, need, origin_of, text, words};
use crate::decode::tree;
use crate::error::Result;
use crate::schema::Origin;

pub(super) fn writes(v: &Value) -> Read<Draft> {
    if !has(v, &["session_id"]) {
        return None;
    }
    if let Some(data) = v.get("message_data") {
        return Some(row(v, data).map(|d| vec![d]));
    }
    let items = list(v, "items").ok().filter(|i| lists(v, "items") && i.iter().all(is_item))?;
    Some(facts(v, "items").and_then(|_| items.iter().map(|i| item(i, v)).collect()))
}

fn is_item(v: &Value) -> bool {
    has(v, &["role", "content"]) || v.get("type").and_then(Value::as_str).is_some()
}

fn row(v: &Value, data: &Value) -> Result<Draft> {
    let data = match data {
        Value::String(json) => tree::parse(json.as_bytes())?,
        other => other.clone(),
    };
    let draft = item(&data, v)?;
    Ok(Draft { id: ident(v, "id")?.or(draft.id), created_at: text(v, "created_at")?, ..draft })
}

fn item(i: &Value, outer: &Value) -> Result<Draft> {
    let (origin, content) = match i.get("type").and_then(Value::as_str) {
        None | Some("message") => {
            let role = text(i, "role")?;
            (origin_of(role.as_deref()), i.get("content").map(message).unwrap_or_default())
        }
        Some("function_call") => (Origin::AgentGenerated, format!("{} {}", need(i, "name")?, need(i, "arguments")?)),
        Some(kind) if kind.ends_with("_output") => {
            (Origin::ToolOutput, i.get("output").map(message).unwrap_or_default())
        }
        Some(_) => (Origin::External, words(i)),
    };
    Ok(Draft {
        id: text(i, "id")?,
        under: "item".to_owned(),
        content,
        origin,
        session: text(outer, "session_id")?,
        ..Draft::default()
    })
}
