//! mem0: add requests, add results, webhooks, event status, history rows, stored payloads; searches.

use serde_json::Value;

use super::searched::{self, Names, under};
use crate::decode::shape::{
    Asked, Draft, Read, any, entries, facts, first, has, ident, list, lists, message, need, origin_of, text, words,
    wrong,
};
use crate::error::{Code, Result};
use crate::schema::Op;

const WHO: &[&str] = &["user_id", "agent_id", "run_id", "app_id"];

pub(super) fn writes(v: &Value) -> Read<Draft> {
    if under(v, "event_details").is_some() {
        return Some(webhook(v));
    }
    if has(v, &["memory_id", "event"]) && any(v, &["new_memory", "old_memory"]) {
        return Some(history(v).map(|d| d.into_iter().collect()));
    }
    if lists(v, "messages") && (any(v, &["infer", "memory_type"]) || has_who(v)) && !any(v, OTHERS) {
        return Some(request(v));
    }
    if lists(v, "results") && list(v, "results").is_ok_and(|r| r.iter().all(|i| any(i, &["event"]))) {
        return Some(results(v));
    }
    if has(v, &["event_id", "status"]) && !any(v, &["results", "tenant"]) {
        return Some(Ok(Vec::new()));
    }
    (has(v, &["data", "hash"]) && (has_who(v) || any(v, &["text_lemmatized"]))).then(|| stored(v).map(|d| vec![d]))
}

/// Fields of messages in other shapes.
const OTHERS: &[&str] = &["group_id", "ignore_roles", "return_context", "thread_id"];

pub(super) fn reads(v: &Value) -> Read<Asked> {
    searched::read(
        v,
        &Names {
            lists: &["results"],
            ids: &["id"],
            request: &["filters", "rerank"],
            marks: &["memory", "score_breakdown"],
            limit: "top_k",
            session: &["run_id", "session_id"],
        },
    )
}

fn has_who(v: &Value) -> bool {
    WHO.iter().any(|w| has(v, &[w]))
}

/// Who a document is about and by whom; an item's own fields come first.
fn whose(v: &Value) -> Result<Draft> {
    let user = text(v, "user_id")?;
    Ok(Draft {
        tenant: user.clone(),
        principal: user,
        session: text(v, "run_id")?,
        written_by: first(v, &["actor_id", "agent_id", "app_id"])?,
        created_at: first(v, &["updated_at", "created_at"])?,
        expires_at: text(v, "expiration_date")?,
        origin: origin_of(text(v, "role")?.as_deref()),
        ..Draft::default()
    })
}

fn within(outer: &Draft, inner: Draft) -> Draft {
    Draft {
        tenant: inner.tenant.or_else(|| outer.tenant.clone()),
        principal: inner.principal.or_else(|| outer.principal.clone()),
        session: inner.session.or_else(|| outer.session.clone()),
        written_by: inner.written_by.or_else(|| outer.written_by.clone()),
        created_at: inner.created_at.or_else(|| outer.created_at.clone()),
        expires_at: inner.expires_at.or_else(|| outer.expires_at.clone()),
        ..inner
    }
}

/// Each message is a fact, and so is each text that instructs the model which extracts memories.
fn request(v: &Value) -> Result<Vec<Draft>> {
    let outer = whose(v)?;
    let mut out = Vec::new();
    for m in facts(v, "messages")? {
        let role = text(m, "role")?;
        let content = message(m.get("content").ok_or_else(|| wrong("content"))?);
        let name = text(m, "name")?;
        let draft = Draft { content, origin: origin_of(role.as_deref()), written_by: name, ..Draft::default() };
        out.push(Draft { under: "message".to_owned(), ..within(&outer, draft) });
    }
    for name in ["prompt", "custom_instructions", "includes", "excludes"] {
        if let Some(content) = text(v, name)?.filter(|t| !t.trim().is_empty()) {
            out.push(within(&outer, Draft { content, under: name.to_owned(), ..Draft::default() }));
        }
    }
    Ok(out)
}

fn results(v: &Value) -> Result<Vec<Draft>> {
    let outer = whose(v.get("payload").filter(|p| p.is_object() && has_who(p)).unwrap_or(v))?;
    let mut out = Vec::new();
    for item in facts(v, "results")? {
        entries(item)?;
        let Some(op) = op(&need(item, "event")?)? else {
            out.push(Draft::passed_over());
            continue;
        };
        let data = item.get("data").filter(|d| d.is_object()).unwrap_or(item);
        let content = if op == Op::Delete { String::new() } else { need(data, "memory")? };
        let id = ident(item, "id")?;
        out.push(Draft { id, op: Some(op), content, ..within(&outer, whose(item)?) });
    }
    Ok(out)
}

fn webhook(v: &Value) -> Result<Vec<Draft>> {
    let event = v.get("event_details").unwrap_or(v);
    let word = need(event, "event")?;
    // Categories are mem0's own labels: the memory's text stays.
    if word == "CATEGORIZE" || word.starts_with("ingest_job") {
        return Ok(Vec::new());
    }
    let Some(op) = op(&word)? else { return Ok(Vec::new()) };
    let id = ident(event, "id")?.or(ident(event, "memory_id")?);
    let content = match event.get("data") {
        _ if op == Op::Delete => String::new(),
        Some(data) => need(data, "memory")?,
        None => return Err(wrong("data")),
    };
    Ok(vec![Draft { id, op: Some(op), content, ..within(&whose(v)?, whose(event)?) }])
}

fn history(v: &Value) -> Result<Option<Draft>> {
    let Some(op) = op(&need(v, "event")?)? else { return Ok(None) };
    let content = if op == Op::Delete { String::new() } else { need(v, "new_memory")? };
    Ok(Some(Draft { id: ident(v, "memory_id")?, op: Some(op), content, ..whose(v)? }))
}

fn stored(v: &Value) -> Result<Draft> {
    let content = v.get("data").map(words).unwrap_or_default();
    Ok(Draft { id: ident(v, "id")?, content, derived_from: linked(v)?, ..whose(v)? })
}

fn linked(v: &Value) -> Result<Vec<String>> {
    crate::decode::shape::texts(v, "linked_memory_ids")
}

fn op(word: &str) -> Result<Option<Op>> {
    Ok(Some(match word {
        "ADD" | "memory_add" => Op::Create,
        "UPDATE" | "memory_update" => Op::Update,
        "DELETE" | "memory_delete" => Op::Delete,
        "NONE" | "memory_categorize" => return Ok(None),
        _ => return Err(crate::decode::shape::dead(Code::InvalidRecord, "event is not a known word")),
    }))
}
