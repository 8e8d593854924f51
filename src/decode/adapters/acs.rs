//! Envelopes of the Agent Control Standard: `steps/memoryStore`, `steps/memoryContextRetrieval`,
//! `steps/knowledgeRetrieval`.

use serde_json::Value;

use crate::decode::shape::{
    Asked, Draft, MAX_FACTS, Read, dead, first, ident, list, lists, object, text, texts, words, wrong,
};
use crate::error::{Code, Result};
use crate::schema::{Op, Origin};

pub(super) fn writes(v: &Value) -> Read<Draft> {
    (v.get("method")? == "steps/memoryStore").then(|| stored(v))
}

pub(super) fn reads(v: &Value) -> Read<Asked> {
    let method = v.get("method")?.as_str()?;
    ["steps/memoryContextRetrieval", "steps/knowledgeRetrieval"].contains(&method).then(|| Ok(vec![asked(v)?]))
}

/// The envelope's own fields, and its payload; older envelopes have the fields of the payload in `params`.
fn parts(v: &Value) -> Result<(&Value, Value, &Value)> {
    let params = object(v, "params")?;
    let metadata = params.get("metadata").cloned().unwrap_or_default();
    Ok((params, metadata, params.get("payload").filter(|p| p.is_object()).unwrap_or(params)))
}

/// Entries; older envelopes call them `memory`.
fn items<'a>(payload: &'a Value, names: &[&str]) -> Result<&'a [Value]> {
    let name = names.iter().find(|n| lists(payload, n)).ok_or_else(|| wrong("entries"))?;
    list(payload, name)
}

fn stored(v: &Value) -> Result<Vec<Draft>> {
    let (params, metadata, payload) = parts(v)?;
    let base = Draft {
        tenant: text(params, "tenant_id")?,
        store: first(payload, &["target_store", "store"])?,
        session: text(&metadata, "session_id")?,
        output: text(&metadata, "turn_id")?,
        written_by: text(&metadata, "agent_id")?,
        created_at: text(params, "timestamp")?,
        source: text(params, "request_id")?,
        ..Draft::default()
    };
    let entries = items(payload, &["entries", "memory"])?;
    if entries.len() > MAX_FACTS {
        return Err(dead(Code::TooManyFacts, format!("there are {} entries, {MAX_FACTS} are taken", entries.len())));
    }
    entries.iter().map(|e| entry(e, &base)).collect()
}

/// Provenance is a claim; without one the origin is `external`.
fn entry(e: &Value, base: &Draft) -> Result<Draft> {
    if let Value::String(content) = e {
        return Ok(Draft { content: content.clone(), under: "entry".to_owned(), ..base.clone() });
    }
    let claimed = e.get("provenance").filter(|p| p.is_object()).unwrap_or(e);
    let origin = match text(claimed, "origin")?.as_deref() {
        None | Some("a2a_inbound") => Origin::External,
        Some(word) => Origin::parse(word).ok_or_else(|| dead(Code::UnknownOrigin, "origin is not a known word"))?,
    };
    let op = match text(e, "operation")?.as_deref() {
        None | Some("create") => Op::Create,
        Some("update") => Op::Update,
        Some("delete") => Op::Delete,
        Some(_) => return Err(wrong("operation")),
    };
    let value = e.get("content").or_else(|| e.get("value")).or_else(|| e.get("text"));
    Ok(Draft {
        id: ident(e, "id")?.or(ident(e, "entry_id")?).or(text(claimed, "provenance_id")?),
        under: "entry".to_owned(),
        op: Some(op),
        content: value.filter(|_| op != Op::Delete).map(words).unwrap_or_default(),
        origin,
        source: text(claimed, "source_id")?.or_else(|| base.source.clone()),
        derived_from: texts(claimed, "derived_from")?,
        expires_at: text(e, "expires_at")?,
        ..base.clone()
    })
}

fn asked(v: &Value) -> Result<Asked> {
    let (params, metadata, payload) = parts(v)?;
    let payload = payload.get("knowledgeStep").filter(|k| k.is_object()).unwrap_or(payload);
    let found = items(payload, &["entries", "memory", "results", "documents"])?;
    let id = |e: &Value| {
        let id = ident(e, "id")?.or(ident(e, "entry_id")?).ok_or_else(|| wrong("the id of a result"))?;
        Ok((id, text(e, "tenant_id")?))
    };
    Ok(Asked {
        tenant: text(params, "tenant_id")?,
        store: first(payload, &["target_store", "store"])?,
        id: text(params, "request_id")?,
        session: text(&metadata, "session_id")?,
        principal: text(&metadata, "agent_id")?,
        query: text(payload, "query")?,
        output: text(&metadata, "turn_id")?,
        results: found.iter().map(id).collect::<Result<_>>()?,
        k: None,
    })
}
