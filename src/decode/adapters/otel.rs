//! OpenTelemetry GenAI memory spans: OTLP as JSON, or one span.

use serde_json::{Map, Value};

use crate::decode::shape::{Asked, Draft, MAX_FACTS, Read, dead, ident, list, lists, text, words, wrong};
use crate::decode::tree;
use crate::error::{Code, Result};
use crate::schema::{Op, Origin};

const OPERATION: &str = "gen_ai.operation.name";

pub(super) fn writes(v: &Value) -> Read<Draft> {
    spans(v).map(|found| each(found?, written))
}

pub(super) fn reads(v: &Value) -> Read<Asked> {
    spans(v).map(|found| each(found?, |s| Ok(asked(s)?.into_iter().collect())))
}

/// A span's attributes as plain values.
struct Span {
    id: Option<String>,
    fields: Value,
}

fn each<T>(spans: Vec<Span>, one: impl Fn(&Span) -> Result<Vec<T>>) -> Result<Vec<T>> {
    let all = spans.iter().map(one).collect::<Result<Vec<_>>>()?;
    Ok(all.into_iter().flatten().collect())
}

fn spans(v: &Value) -> Option<Result<Vec<Span>>> {
    if lists(v, "resourceSpans") {
        return Some(batch(v));
    }
    (v.get("spanId").is_some() && v.get("attributes").is_some()).then(|| Ok(vec![span(v)?]))
}

fn batch(v: &Value) -> Result<Vec<Span>> {
    let mut out = Vec::new();
    for resource in list(v, "resourceSpans")? {
        for scope in list(resource, "scopeSpans")? {
            for one in list(scope, "spans")? {
                out.push(span(one)?);
            }
        }
    }
    Ok(out)
}

fn span(v: &Value) -> Result<Span> {
    let fields = match v.get("attributes") {
        Some(Value::Array(pairs)) => {
            let mut map = Map::new();
            for pair in pairs {
                let key = text(pair, "key")?.ok_or_else(|| wrong("key"))?;
                let value = pair.get("value").map(plain).transpose()?.unwrap_or_default();
                // Two values of one key: two readers could take each another one.
                if map.insert(key, value).is_some() {
                    return Err(dead(Code::InvalidRecord, "an attribute stands twice"));
                }
            }
            Value::Object(map)
        }
        Some(Value::Object(map)) => Value::Object(map.clone()),
        _ => return Err(wrong("attributes")),
    };
    let id = text(v, "traceId")?.zip(text(v, "spanId")?).map(|(t, s)| format!("{t}-{s}"));
    Ok(Span { id, fields })
}

/// An `AnyValue` of OTLP.
fn plain(v: &Value) -> Result<Value> {
    let (kind, value) = v.as_object().and_then(|o| o.iter().next()).ok_or_else(|| wrong("an attribute's value"))?;
    Ok(match kind.as_str() {
        "arrayValue" => Value::Array(list(value, "values")?.iter().map(plain).collect::<Result<_>>()?),
        "kvlistValue" => {
            let mut map = Map::new();
            for pair in list(value, "values")? {
                let key = text(pair, "key")?.ok_or_else(|| wrong("key"))?;
                map.insert(key, pair.get("value").map(plain).transpose()?.unwrap_or_default());
            }
            Value::Object(map)
        }
        _ => value.clone(),
    })
}

/// Records: a list, or its JSON in a text.
fn records(fields: &Value, name: &str) -> Result<Vec<Value>> {
    let value = match fields.get(name) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::String(json)) => tree::parse(json.as_bytes())?,
        Some(other) => other.clone(),
    };
    match value {
        Value::Array(items) => Ok(items),
        one @ Value::Object(_) => Ok(vec![one]),
        _ => Err(wrong(name)),
    }
}

fn written(span: &Span) -> Result<Vec<Draft>> {
    let f = &span.fields;
    let op = match text(f, OPERATION)?.as_deref() {
        Some("create_memory") => Op::Create,
        Some("update_memory" | "upsert_memory") => Op::Update,
        Some("delete_memory") => Op::Delete,
        // A whole store's end names no record.
        Some("delete_memory_store") => {
            return Err(dead(Code::ShapeIncomplete, "delete_memory_store names no record"));
        }
        _ => return Ok(vec![Draft::passed_over()]),
    };
    let base = Draft {
        store: text(f, "gen_ai.memory.store.id")?,
        op: Some(op),
        origin: Origin::AgentGenerated,
        session: text(f, "gen_ai.conversation.id")?,
        written_by: text(f, "gen_ai.agent.id")?,
        source: span.id.clone(),
        ..Draft::default()
    };
    let named = text(f, "gen_ai.memory.record.id")?;
    let found = records(f, "gen_ai.memory.records")?;
    if found.is_empty() && op == Op::Delete && named.is_some() {
        return Ok(vec![Draft { id: named, ..base }]);
    }
    if found.is_empty() {
        return Err(dead(
            Code::ShapeIncomplete,
            "the span has no gen_ai.memory.records: let the producer capture content",
        ));
    }
    if found.len() > MAX_FACTS {
        return Err(dead(Code::TooManyFacts, format!("a span has {} records, {MAX_FACTS} are taken", found.len())));
    }
    let alone = found.len() == 1;
    let one = |r: &Value| {
        let content =
            if op == Op::Delete { String::new() } else { words(r.get("content").ok_or_else(|| wrong("content"))?) };
        let id = ident(r, "id")?.or_else(|| named.clone().filter(|_| alone));
        Ok(Draft { id, under: "record".to_owned(), content, ..base.clone() })
    };
    found.iter().map(one).collect()
}

fn asked(span: &Span) -> Result<Option<Asked>> {
    let f = &span.fields;
    let (name, query) = match text(f, OPERATION)?.as_deref() {
        Some("search_memory") => ("gen_ai.memory.records", "gen_ai.memory.query.text"),
        Some("retrieval") => ("gen_ai.retrieval.documents", "gen_ai.retrieval.query.text"),
        _ => return Ok(None),
    };
    let id = |r: &Value| Ok((ident(r, "id")?.ok_or_else(|| wrong("id"))?, None));
    Ok(Some(Asked {
        store: text(f, "gen_ai.memory.store.id")?,
        id: span.id.clone(),
        session: text(f, "gen_ai.conversation.id")?,
        principal: text(f, "gen_ai.agent.id")?,
        query: text(f, query)?,
        results: records(f, name)?.iter().map(id).collect::<Result<_>>()?,
        ..Asked::default()
    }))
}
