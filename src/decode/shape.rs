//! What adapters make of a document before its boundary is known, and helpers to read documents with.

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::error::{Code, Error, Result};
use crate::schema::{Op, Origin};

/// Most facts of one input.
pub const MAX_FACTS: usize = 256;

/// Most items of a list that is read.
const MAX_ITEMS: usize = 10_000;

/// The items of a list of facts.
pub(super) fn facts<'a>(v: &'a Value, name: &str) -> Result<&'a [Value]> {
    let items = list(v, name)?;
    if items.len() > MAX_FACTS {
        return Err(dead(Code::TooManyFacts, format!("{name} has {} items, {MAX_FACTS} facts are taken", items.len())));
    }
    Ok(items)
}

/// One fact as a producer wrote it.
#[derive(Debug, Clone, Default)]
pub(super) struct Draft {
    /// Tenant, where the shape has one.
    pub(super) tenant: Option<String>,
    /// Store, where the shape has one.
    pub(super) store: Option<String>,
    /// Record id; derived where the producer gives none.
    pub(super) id: Option<String>,
    /// In front of a derived id.
    pub(super) under: String,
    /// Operation; default: create.
    pub(super) op: Option<Op>,
    pub(super) content: String,
    pub(super) origin: Origin,
    pub(super) principal: Option<String>,
    pub(super) session: Option<String>,
    pub(super) output: Option<String>,
    pub(super) written_by: Option<String>,
    pub(super) source: Option<String>,
    pub(super) derived_from: Vec<String>,
    /// RFC 3339.
    pub(super) created_at: Option<String>,
    /// RFC 3339, or a day.
    pub(super) expires_at: Option<String>,
    /// Minutes from the record's time on.
    pub(super) ttl_minutes: Option<f64>,
    /// No fact, though it may carry text: the record can't go on as it is.
    pub(super) passed_over: bool,
}

impl Draft {
    /// A part of the record that changes nothing.
    pub(super) fn passed_over() -> Self {
        Self { passed_over: true, ..Self::default() }
    }
}

/// One retrieval as a producer logged it.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    pub(super) tenant: Option<String>,
    pub(super) store: Option<String>,
    pub(super) id: Option<String>,
    pub(super) session: Option<String>,
    pub(super) principal: Option<String>,
    pub(super) query: Option<String>,
    pub(super) output: Option<String>,
    pub(super) k: Option<u64>,
    /// Record id, and its tenant where it has its own.
    pub(super) results: Vec<(String, Option<String>)>,
}

/// What a shape's own test and reading come to: nothing where the document has another shape.
pub(super) type Read<T> = Option<Result<Vec<T>>>;

/// A refusal.
pub(super) fn dead(code: Code, message: impl Into<String>) -> Error {
    Error::new(code, message)
}

/// The shape is known, but this part isn't as it should be.
pub(super) fn wrong(what: &str) -> Error {
    dead(Code::InvalidRecord, format!("{what} is missing or has the wrong type"))
}

/// What stands at the new path isn't in the record, so that it can't be screened there.
pub(super) fn renamed() -> Error {
    dead(
        Code::ShapeIncomplete,
        "a rename doesn't carry the text: send the file under its new path, then delete the old one",
    )
}

/// A text field; null counts as absent.
///
/// # Errors
/// `invalid_record` for another type.
pub(super) fn text(v: &Value, name: &str) -> Result<Option<String>> {
    match v.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(s)) => Ok(Some(s.clone())),
        Some(_) => Err(wrong(name)),
    }
}

/// A text field that must be there.
pub(super) fn need(v: &Value, name: &str) -> Result<String> {
    text(v, name)?.ok_or_else(|| wrong(name))
}

/// The first text of several fields.
pub(super) fn first(v: &Value, names: &[&str]) -> Result<Option<String>> {
    for name in names {
        if let Some(found) = text(v, name)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// An id: a text or a whole number.
pub(super) fn ident(v: &Value, name: &str) -> Result<Option<String>> {
    match v.get(name) {
        Some(Value::Number(n)) if n.is_i64() || n.is_u64() => Ok(Some(n.to_string())),
        _ => text(v, name),
    }
}

/// The items of a list; null and absent count as empty.
pub(super) fn list<'a>(v: &'a Value, name: &str) -> Result<&'a [Value]> {
    match v.get(name) {
        None | Some(Value::Null) => Ok(&[]),
        // Bounded before anything is made of them.
        Some(Value::Array(items)) if items.len() > MAX_ITEMS => {
            Err(dead(Code::TooManyFacts, format!("{name} has {} items, {MAX_ITEMS} are taken", items.len())))
        }
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(wrong(name)),
    }
}

/// A list of texts.
pub(super) fn texts(v: &Value, name: &str) -> Result<Vec<String>> {
    list(v, name)?.iter().map(|i| i.as_str().map(str::to_owned).ok_or_else(|| wrong(name))).collect()
}

/// An object that must be there.
pub(super) fn object<'a>(v: &'a Value, name: &str) -> Result<&'a Value> {
    v.get(name).filter(|o| o.is_object()).ok_or_else(|| wrong(name))
}

/// The object's keys and values.
pub(super) fn entries(v: &Value) -> Result<&Map<String, Value>> {
    v.as_object().ok_or_else(|| wrong("an object"))
}

/// Whether all fields are there and not null.
pub(super) fn has(v: &Value, names: &[&str]) -> bool {
    names.iter().all(|n| v.get(n).is_some_and(|f| !f.is_null()))
}

/// Whether one of the fields is there.
pub(super) fn any(v: &Value, names: &[&str]) -> bool {
    names.iter().any(|n| v.get(n).is_some())
}

/// Whether a field is a list.
pub(super) fn lists(v: &Value, name: &str) -> bool {
    v.get(name).is_some_and(Value::is_array)
}

/// All text of a value, so that none is forwarded unread: a text as it is, one under a customary name alone as
/// it is, else one line a leaf, each under the names of its fields. No longer than the JSON that it came from.
pub(super) fn words(v: &Value) -> String {
    if let Value::String(s) = v {
        return s.clone();
    }
    if let Value::Object(map) = v
        && map.len() == 1
        && let Some(inner) = ["content", "text", "memory", "data"].iter().find_map(|n| map.get(*n))
    {
        return words(inner);
    }
    let mut out = String::new();
    leaves(v, &mut out);
    out.trim_end().to_owned()
}

fn leaves(v: &Value, out: &mut String) {
    match v {
        Value::Null => out.push('\n'),
        Value::Object(map) => {
            for (name, inner) in map {
                out.push_str(name);
                out.push_str(": ");
                leaves(inner, out);
            }
        }
        Value::Array(items) => items.iter().for_each(|inner| leaves(inner, out)),
        leaf => {
            match leaf {
                Value::String(s) => out.push_str(s),
                other => out.push_str(&other.to_string()),
            }
            out.push('\n');
        }
    }
}

/// The text that a message carries: a text, or a list of parts with `text`.
pub(super) fn message(content: &Value) -> String {
    let Value::Array(parts) = content else {
        return words(content);
    };
    let empty = |v: &Value| v.is_null() || v.as_array().is_some_and(Vec::is_empty);
    let plain =
        |p: &Value| p.as_object().is_some_and(|o| o.iter().all(|(k, v)| k == "type" || k == "text" || empty(v)));
    let one =
        |p: &Value| p.get("text").and_then(Value::as_str).filter(|_| plain(p)).map_or_else(|| words(p), str::to_owned);
    parts.iter().map(one).collect::<Vec<_>>().join("\n")
}

/// What a message's role says about its origin; never more than a claim.
pub(super) fn origin_of(role: Option<&str>) -> Origin {
    match role {
        Some("user" | "USER") => Origin::UserInput,
        Some("assistant" | "ASSISTANT") => Origin::AgentGenerated,
        Some("tool" | "function" | "TOOL") => Origin::ToolOutput,
        _ => Origin::External,
    }
}

/// A tool call: its name and arguments, as the various clients write it.
pub(super) fn call(v: &Value) -> Option<(&str, &Value)> {
    let outer = v.get("params").filter(|_| v.get("method").is_some_and(|m| m == "tools/call")).unwrap_or(v);
    let inner = outer.get("function").filter(|f| f.is_object()).unwrap_or(outer);
    let name = inner.get("name")?.as_str()?;
    let arguments = ["arguments", "args", "input"].iter().find_map(|n| inner.get(n))?;
    Some((name, arguments))
}

/// Arguments of a call; those that are written as a text are read.
pub(super) fn arguments(v: &Value) -> Result<Value> {
    match v {
        Value::String(s) => super::tree::parse(s.as_bytes()),
        other => Ok(other.clone()),
    }
}

/// An id for what has none: the same parts give the same id wherever and whenever they are read.
pub(super) fn derived(parts: &[&str]) -> String {
    let namespace = Uuid::new_v5(&Uuid::NAMESPACE_URL, b"memsluice:record");
    let mut name = Vec::new();
    for part in parts {
        name.extend_from_slice(&(part.len() as u64).to_be_bytes());
        name.extend_from_slice(part.as_bytes());
    }
    Uuid::new_v5(&namespace, &name).hyphenated().to_string()
}
