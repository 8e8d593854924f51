//! MCP reference memory server: lines of its file, and calls of its tools.

use serde_json::Value;

use super::searched::under;
use crate::decode::shape::{
    Asked, Draft, Read, arguments, call, derived, facts, ident, list, lists, need, text, texts,
};
use crate::error::Result;
use crate::schema::{Op, Origin};

pub(super) fn writes(v: &Value) -> Read<Draft> {
    match v.get("type").and_then(Value::as_str) {
        Some("entity") if lists(v, "observations") => return Some(entity(v, Origin::External).map(|d| vec![d])),
        Some("relation") if v.get("relationType").is_some() => {
            return Some(relation(v, Op::Create, Origin::External).map(|d| vec![d]));
        }
        _ => {}
    }
    let (name, inner) = call(v)?;
    let made = Origin::AgentGenerated;
    let each = |field: &'static str, one: fn(&Value) -> Result<Vec<Draft>>| {
        Some(arguments(inner).and_then(|a| {
            let all = facts(&a, field)?.iter().map(one).collect::<Result<Vec<_>>>()?;
            Ok(all.into_iter().flatten().map(|d| Draft { origin: made, ..d }).collect())
        }))
    };
    match name {
        "create_entities" => each("entities", |e| Ok(vec![entity(e, Origin::External)?])),
        "create_relations" => each("relations", |r| Ok(vec![relation(r, Op::Create, Origin::External)?])),
        "add_observations" => each("observations", |o| observations(o, "contents", Op::Create)),
        "delete_observations" => each("deletions", |o| observations(o, "observations", Op::Delete)),
        "delete_relations" => each("relations", |r| Ok(vec![relation(r, Op::Delete, Origin::External)?])),
        "delete_entities" => Some(arguments(inner).and_then(|a| {
            let gone =
                |name: String| Draft { id: Some(format!("entity/{name}")), op: Some(Op::Delete), ..Draft::default() };
            Ok(texts(&a, "entityNames")?.into_iter().map(gone).collect())
        })),
        "read_graph" | "search_nodes" | "open_nodes" => Some(Ok(Vec::new())),
        _ => None,
    }
}

/// `{"request": tools/call, "response": {"entities": [...]}, "session_id", ...}`.
pub(super) fn reads(v: &Value) -> Read<Asked> {
    let (name, inner) = call(under(v, "request")?)?;
    if !["read_graph", "search_nodes", "open_nodes"].contains(&name) {
        return None;
    }
    Some(arguments(inner).and_then(|a| asked(v, &a)).map(|a| vec![a]))
}

fn asked(v: &Value, a: &Value) -> Result<Asked> {
    let response = v.get("response").cloned().unwrap_or_default();
    let mut results = Vec::new();
    for e in list(&response, "entities")? {
        results.push((format!("entity/{}", need(e, "name")?), None));
    }
    Ok(Asked {
        tenant: text(v, "tenant")?,
        store: text(v, "store")?,
        id: ident(v, "event_id")?,
        session: text(v, "session_id")?,
        principal: text(v, "principal")?.or(text(v, "agent_id")?),
        query: text(a, "query")?,
        output: text(v, "output_id")?,
        k: None,
        results,
    })
}

fn entity(e: &Value, origin: Origin) -> Result<Draft> {
    let name = need(e, "name")?;
    let mut content = format!("{name} ({})", text(e, "entityType")?.unwrap_or_default());
    for o in texts(e, "observations")? {
        content.push('\n');
        content.push_str(&o);
    }
    Ok(Draft { id: Some(format!("entity/{name}")), op: Some(Op::Update), content, origin, ..Draft::default() })
}

fn relation(r: &Value, op: Op, origin: Origin) -> Result<Draft> {
    let (from, to, kind) = (need(r, "from")?, need(r, "to")?, need(r, "relationType")?);
    Ok(Draft {
        id: Some(format!("relation/{}", derived(&[&from, &to, &kind]))),
        op: Some(op),
        content: if op == Op::Delete { String::new() } else { format!("{from} {kind} {to}") },
        origin,
        ..Draft::default()
    })
}

/// Each observation is a record, so that its delete finds it.
fn observations(o: &Value, field: &str, op: Op) -> Result<Vec<Draft>> {
    let name = need(o, "entityName")?;
    let one = |text: String| Draft {
        id: Some(format!("entity/{name}#{}", derived(&[&text]))),
        op: Some(op),
        content: if op == Op::Delete { String::new() } else { format!("{name}: {text}") },
        ..Draft::default()
    };
    Ok(texts(o, field)?.into_iter().map(one).collect())
}
