//! LangGraph store: put, delete, items, rows of the Postgres store and their change events; LangMem's tool.

use serde_json::Value;

use super::searched::{self, Names};
use crate::decode::shape::{
    Asked, Draft, Read, arguments, call, entries, has, ident, lists, need, text, texts, words, wrong,
};
use crate::decode::tree;
use crate::error::Result;
use crate::schema::{Op, Origin};

pub(super) fn writes(v: &Value) -> Read<Draft> {
    if lists(v, "namespace") && has(v, &["key"]) {
        return Some(item(v).map(|d| vec![d]));
    }
    if let Some(("manage_memory", inner)) = call(v) {
        return Some(arguments(inner).and_then(|a| tool(&a)).map(|d| vec![d]));
    }
    if row_like(v) {
        return Some(row(v, Op::Update).map(|d| vec![d]));
    }
    change(v)
}

pub(super) fn reads(v: &Value) -> Read<Asked> {
    searched::read(
        v,
        &Names {
            lists: &["items"],
            ids: &["key"],
            request: &["namespace_prefix"],
            marks: &["namespace"],
            limit: "limit",
            session: &["session_id"],
        },
    )
    .map(|read| read.and_then(|asked| named(v, asked)))
}

/// Results by the ids that their writes have.
fn named(v: &Value, mut asked: Vec<Asked>) -> Result<Vec<Asked>> {
    let items = v.get("response").and_then(|r| r.get("items")).and_then(Value::as_array);
    for (item, result) in items.into_iter().flatten().zip(asked.iter_mut().flat_map(|a| a.results.iter_mut())) {
        result.0 = id(&texts(item, "namespace")?.join("."), &result.0);
    }
    Ok(asked)
}

/// Labels hold no dot, so that the joined form, which the Postgres store keeps as `prefix`, names one namespace.
fn id(prefix: &str, key: &str) -> String {
    if prefix.is_empty() { key.to_owned() } else { format!("{prefix}/{key}") }
}

fn item(v: &Value) -> Result<Draft> {
    let namespace = texts(v, "namespace")?;
    if namespace.iter().any(|label| label.contains('.')) {
        return Err(wrong("a label of namespace"));
    }
    let value = v.get("value").filter(|value| !value.is_null());
    // The body of a DELETE has nothing else.
    if value.is_none() && v.get("value").is_none() && entries(v)?.len() != 2 {
        return Err(wrong("value"));
    }
    Ok(Draft {
        id: Some(id(&namespace.join("."), &need(v, "key")?)),
        op: Some(if value.is_some() { Op::Create } else { Op::Delete }),
        content: value.map(content).unwrap_or_default(),
        created_at: text(v, "updated_at")?.or(text(v, "created_at")?),
        ttl_minutes: minutes(v, "ttl")?,
        ..Draft::default()
    })
}

/// `{"kind": "Memory", "content": {...}}` is how LangMem's manager stores what it extracted.
fn content(value: &Value) -> String {
    match value.get("content").filter(|_| value.get("kind").is_some_and(|k| k == "Memory")) {
        Some(inner) if value.as_object().is_some_and(|o| o.len() == 2) => words(inner),
        _ => words(value),
    }
}

fn minutes(v: &Value, name: &str) -> Result<Option<f64>> {
    match v.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(n) => n.as_f64().map(Some).ok_or_else(|| wrong(name)),
    }
}

fn tool(v: &Value) -> Result<Draft> {
    let op = match text(v, "action")?.as_deref() {
        None | Some("create") => Op::Create,
        Some("update") => Op::Update,
        Some("delete") => Op::Delete,
        Some(_) => return Err(wrong("action")),
    };
    if op != Op::Create && ident(v, "id")?.is_none() {
        return Err(wrong("id"));
    }
    let content = v.get("content").filter(|_| op != Op::Delete).map(words).unwrap_or_default();
    Ok(Draft { id: ident(v, "id")?, op: Some(op), content, origin: Origin::AgentGenerated, ..Draft::default() })
}

fn row_like(v: &Value) -> bool {
    has(v, &["prefix", "key"]) && v.get("value").is_some()
}

fn row(v: &Value, op: Op) -> Result<Draft> {
    let value = match v.get("value") {
        // Change capture writes jsonb as a text.
        Some(Value::String(json)) => tree::parse(json.as_bytes())?,
        Some(Value::Null) | None if op != Op::Delete => return Err(wrong("value")),
        other => other.cloned().unwrap_or_default(),
    };
    Ok(Draft {
        id: Some(id(&need(v, "prefix")?, &need(v, "key")?)),
        op: Some(op),
        content: if op == Op::Delete { String::new() } else { content(&value) },
        created_at: v.get("updated_at").and_then(Value::as_str).map(str::to_owned),
        expires_at: v.get("expires_at").and_then(Value::as_str).map(str::to_owned),
        ttl_minutes: minutes(v, "ttl_minutes")?,
        ..Draft::default()
    })
}

/// Debezium: `{before, after, op, ts_ms, source}`, with or without its schema.
fn change(v: &Value) -> Read<Draft> {
    let v = v.get("payload").filter(|_| v.get("schema").is_some()).unwrap_or(v);
    let word = v.get("op")?.as_str()?;
    let (op, side) = match word {
        "c" | "r" => (Op::Create, "after"),
        "u" => (Op::Update, "after"),
        "d" => (Op::Delete, "before"),
        _ => return None,
    };
    let image = v.get(side).filter(|i| has(i, &["prefix", "key"]))?;
    Some(row(image, op).map(|d| vec![d]))
}
