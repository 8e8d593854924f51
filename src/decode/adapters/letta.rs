//! Letta: archival passages, blocks, the memory tools, and commits of the file memory.

use serde_json::Value;

use super::searched::{self, Names};
use crate::decode::shape::{Asked, Draft, Read, any, arguments, call, first, has, ident, need, renamed, text, wrong};
use crate::error::Result;
use crate::schema::{Op, Origin};

const TOOLS: [&str; 4] = ["archival_memory_insert", "core_memory_append", "core_memory_replace", "memory_insert"];

pub(super) fn writes(v: &Value) -> Read<Draft> {
    if let Some((name, inner)) = call(v) {
        if TOOLS.contains(&name) {
            return Some(arguments(inner).and_then(|a| tool(name, &a, v)));
        }
        return arguments(inner).ok().filter(|a| name == "memory" && edits(a)).map(|a| edit(&a, v));
    }
    if any(v, &["command"]) {
        return edits(v).then(|| edit(v, v));
    }
    if has(v, &["repo", "commit", "path"]) {
        return Some(file(v).map(|d| vec![d]));
    }
    if has(v, &["label"]) && v.get("value").is_some_and(Value::is_string) {
        return Some(block(v).map(|d| vec![d]));
    }
    let passage = any(v, &["tags", "archive_id", "embedding_config", "organization_id"]);
    (passage && v.get("text").is_some_and(Value::is_string)).then(|| archival(v).map(|d| vec![d]))
}

pub(super) fn reads(v: &Value) -> Read<Asked> {
    searched::read(
        v,
        &Names {
            lists: &["results"],
            ids: &["id"],
            request: &["tag_match_mode", "start_datetime", "end_datetime"],
            marks: &["count", "timestamp"],
            limit: "top_k",
            session: &["conversation_id", "session_id"],
        },
    )
}

/// Fields by which this tool's edits differ from those of other tools with the same name.
fn edits(v: &Value) -> bool {
    let Some(command) = v.get("command").and_then(Value::as_str) else { return false };
    match command {
        "str_replace" => has(v, &["path", "new_string"]),
        "create" => has(v, &["path", "file_text"]) && !anthropic_path(v),
        "insert" => has(v, &["path", "insert_text"]) && !anthropic_path(v),
        "delete" => has(v, &["path"]) && !anthropic_path(v),
        "rename" => has(v, &["old_path", "new_path"]) || (has(v, &["path", "description"])),
        _ => false,
    }
}

/// Anthropic's paths all begin so; others may.
fn anthropic_path(v: &Value) -> bool {
    v.get("path").and_then(Value::as_str).is_some_and(|p| p == "/memories" || p.starts_with("/memories/"))
        && !any(v, &["description"])
}

fn agent(v: &Value) -> Result<Draft> {
    Ok(Draft {
        origin: Origin::AgentGenerated,
        written_by: first(v, &["agent_id", "created_by_id", "last_updated_by_id"])?,
        ..Draft::default()
    })
}

/// An edit carries a piece of the text only: the piece is the fact, under an id of its own.
fn tool(name: &str, a: &Value, outer: &Value) -> Result<Vec<Draft>> {
    let base = agent(outer)?;
    let (under, content) = match name {
        "archival_memory_insert" => ("passage".to_owned(), need(a, "content")?),
        "core_memory_append" => (need(a, "label")?, need(a, "content")?),
        "core_memory_replace" => (need(a, "label")?, need(a, "new_content")?),
        _ => (need(a, "label")?, need(a, "new_str")?),
    };
    if content.trim().is_empty() {
        return Ok(Vec::new());
    }
    Ok(vec![Draft { op: Some(Op::Update), under, content, source: ident(outer, "id")?, ..base }])
}

fn edit(a: &Value, outer: &Value) -> Result<Vec<Draft>> {
    let base = agent(outer)?;
    let path = first(a, &["path", "new_path"])?.ok_or_else(|| wrong("path"))?;
    let whole = |op, content| Draft { id: Some(path.clone()), op: Some(op), content, ..base.clone() };
    let piece = |content| Draft { under: path.clone(), op: Some(Op::Update), content, ..base.clone() };
    Ok(match need(a, "command")?.as_str() {
        "create" => vec![whole(Op::Create, need(a, "file_text")?)],
        "delete" => vec![whole(Op::Delete, String::new())],
        "str_replace" => vec![piece(need(a, "new_string")?)],
        "insert" => vec![piece(need(a, "insert_text")?)],
        _ => return Err(renamed()),
    }
    .into_iter()
    .filter(|d| d.op == Some(Op::Delete) || !d.content.trim().is_empty())
    .collect())
}

fn file(v: &Value) -> Result<Draft> {
    let after = text(v, "new_text")?;
    Ok(Draft {
        id: Some(need(v, "path")?),
        op: Some(if after.is_some() { Op::Update } else { Op::Delete }),
        content: after.unwrap_or_default(),
        store: None,
        written_by: text(v, "author")?,
        source: Some(format!("{}@{}", need(v, "repo")?, need(v, "commit")?)),
        ..Draft::default()
    })
}

fn block(v: &Value) -> Result<Draft> {
    let value = need(v, "value")?;
    let content = match text(v, "description")? {
        Some(d) if !d.trim().is_empty() => format!("{value}\n{d}"),
        _ => value,
    };
    let id = ident(v, "id")?.or(text(v, "label")?);
    Ok(Draft { id, op: Some(Op::Update), content, ..agent(v)? })
}

fn archival(v: &Value) -> Result<Draft> {
    let gone = v.get("is_deleted").and_then(Value::as_bool).unwrap_or(false);
    Ok(Draft {
        id: ident(v, "id")?,
        under: "passage".to_owned(),
        op: Some(if gone { Op::Delete } else { Op::Create }),
        content: if gone { String::new() } else { need(v, "text")? },
        source: first(v, &["file_name", "file_id", "source_id"])?,
        created_at: text(v, "created_at")?,
        ..agent(v)?
    })
    .map(|d| if d.source.is_some() { Draft { origin: Origin::External, ..d } } else { d })
}
