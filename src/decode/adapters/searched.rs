//! Responses of search calls, wrapped as `{"request", "response", "session_id", "principal", ...}`.

use serde_json::Value;

use crate::decode::shape::{Asked, Read, any, first, ident, list, lists, object, text, wrong};
use crate::error::Result;

/// What one product calls the parts of its search.
pub(super) struct Names {
    /// Lists of the response that hold results.
    pub(super) lists: &'static [&'static str],
    /// Id of one result.
    pub(super) ids: &'static [&'static str],
    /// Fields of a request that none of the other products' requests have.
    pub(super) request: &'static [&'static str],
    /// Fields of a response or of its results that none of the others' have.
    pub(super) marks: &'static [&'static str],
    /// How many results were asked for.
    pub(super) limit: &'static str,
    /// The session's names in the request.
    pub(super) session: &'static [&'static str],
}

/// Reads a wrapped response, if it has this product's shape.
pub(super) fn read(v: &Value, names: &Names) -> Read<Asked> {
    let (request, response) = (v.get("request")?, v.get("response")?);
    let held = names.lists.iter().filter(|l| lists(response, l)).count();
    let item = names.lists.iter().find_map(|l| response.get(*l)?.get(0));
    let marked = any(request, names.request) || any(response, names.marks) || item.is_some_and(|i| any(i, names.marks));
    (held > 0 && marked).then(|| asked(v, request, response, names).map(|a| vec![a]))
}

fn asked(v: &Value, request: &Value, response: &Value, names: &Names) -> Result<Asked> {
    let mut results = Vec::new();
    for name in names.lists {
        for item in list(response, name)? {
            results.push((id_of(item, names.ids)?, text(item, "tenant")?));
        }
    }
    let filters = request.get("filters").filter(|f| f.is_object());
    let filtered = |name: &str| filters.and_then(|f| f.get(name)).and_then(Value::as_str).map(str::to_owned);
    let session = first(v, &["session_id"])?.or(first(request, names.session)?);
    Ok(Asked {
        tenant: text(v, "tenant")?.or(first(request, &["user_id", "group_id", "graph_id"])?).or(filtered("user_id")),
        store: text(v, "store")?,
        id: ident(v, "event_id")?,
        session: session.or_else(|| names.session.iter().find_map(|s| filtered(s))),
        principal: first(v, &["principal", "agent_id"])?.or(filtered("agent_id")),
        query: text(request, "query")?,
        output: text(v, "output_id")?,
        k: request.get(names.limit).and_then(Value::as_u64),
        results,
    })
}

fn id_of(item: &Value, ids: &[&str]) -> Result<String> {
    for name in ids {
        if let Some(id) = ident(item, name)? {
            return Ok(id);
        }
    }
    Err(wrong("the id of a result"))
}

/// An object under a name, when it is one.
pub(super) fn under<'a>(v: &'a Value, name: &str) -> Option<&'a Value> {
    object(v, name).ok()
}
