//! Anthropic: the memory tool's calls, and memories and versions of managed stores.

use serde_json::Value;

use crate::decode::shape::{Draft, Read, any, call, dead, has, ident, need, renamed, text};
use crate::error::{Code, Result};
use crate::schema::{Op, Origin};

pub(super) fn writes(v: &Value) -> Read<Draft> {
    if has(v, &["memory_store_id", "operation"]) {
        return Some(version(v).map(|d| vec![d]));
    }
    if has(v, &["memory_store_id", "path"]) {
        return Some(memory(v).map(|d| vec![d]));
    }
    match call(v) {
        Some(("memory", input)) if v.get("type").is_some_and(|t| t == "tool_use") || tool(input) => {
            Some(edit(input, v))
        }
        Some(_) => None,
        None => tool(v).then(|| edit(v, v)),
    }
}

/// Commands whose fields only this tool has, or whose paths do.
fn tool(v: &Value) -> bool {
    let under = |name: &str| {
        v.get(name).and_then(Value::as_str).is_some_and(|p| p == "/memories" || p.starts_with("/memories/"))
    };
    match v.get("command").and_then(Value::as_str) {
        Some("view") => under("path"),
        Some("str_replace") => has(v, &["path", "new_str"]),
        Some("create" | "insert" | "delete") => under("path") && !any(v, &["description", "new_string"]),
        Some("rename") => under("old_path") && under("new_path"),
        _ => false,
    }
}

/// An edit carries a piece of the text only: the piece is the fact, under an id of its own.
fn edit(a: &Value, outer: &Value) -> Result<Vec<Draft>> {
    let base = Draft { origin: Origin::AgentGenerated, source: ident(outer, "id")?, ..Draft::default() };
    let command = need(a, "command")?;
    if command == "rename" {
        return Err(renamed());
    }
    let path = need(a, "path")?;
    let whole = |op, content| Draft { id: Some(path.clone()), op: Some(op), content, ..base.clone() };
    let piece = |content| Draft { under: path.clone(), op: Some(Op::Update), content, ..base.clone() };
    Ok(match command.as_str() {
        "view" => Vec::new(),
        "create" => vec![whole(Op::Create, need(a, "file_text")?)],
        "delete" => vec![whole(Op::Delete, String::new())],
        "str_replace" => vec![piece(need(a, "new_str")?)],
        "insert" => vec![piece(need(a, "insert_text")?)],
        _ => return Err(dead(Code::InvalidRecord, "command is not a known word")),
    }
    .into_iter()
    .filter(|d| d.op != Some(Op::Update) || !d.content.trim().is_empty())
    .collect())
}

fn memory(v: &Value) -> Result<Draft> {
    Ok(Draft {
        store: text(v, "memory_store_id")?,
        id: Some(need(v, "path")?),
        content: need(v, "content")?,
        created_at: text(v, "updated_at")?.or(text(v, "created_at")?),
        ..Draft::default()
    })
}

/// Who made a version is Anthropic's own word.
fn version(v: &Value) -> Result<Draft> {
    let op = match need(v, "operation")?.as_str() {
        "created" => Op::Create,
        "modified" => Op::Update,
        "deleted" => Op::Delete,
        _ => return Err(dead(Code::InvalidRecord, "operation is not a known word")),
    };
    let by = v.get("created_by").cloned().unwrap_or_default();
    let (origin, principal) = match text(&by, "type")?.as_deref() {
        Some("user_actor") => (Origin::UserInput, text(&by, "user_id")?),
        Some("api_actor") => (Origin::External, text(&by, "api_key_id")?),
        Some("session_actor") => (Origin::AgentGenerated, None),
        _ => (Origin::External, None),
    };
    if op != Op::Delete && text(v, "content")?.is_none() {
        return Err(dead(Code::ShapeIncomplete, "the version's content was redacted or left out"));
    }
    Ok(Draft {
        store: text(v, "memory_store_id")?,
        id: Some(need(v, "path")?),
        op: Some(op),
        content: if op == Op::Delete { String::new() } else { need(v, "content")? },
        origin,
        principal,
        session: text(&by, "session_id")?,
        source: text(v, "id")?,
        created_at: text(v, "created_at")?,
        ..Draft::default()
    })
}
