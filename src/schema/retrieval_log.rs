//! `retrieval-logs`: what was read back from a store.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Embedding;

/// One returned record, best first, before honeypots are stripped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResultItem<'a> {
    /// Record id.
    #[serde(borrow)]
    pub id: Cow<'a, str>,
    /// The retriever's score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Tenant of the record; another one than the event's is a critical finding.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Cow<'a, str>>,
}

/// One retrieval, as on the wire. Ids suffice; the query feeds the history when it is there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "retrieval-log")]
pub struct RawRetrieval<'a> {
    /// Tenant.
    #[serde(borrow)]
    pub tenant: Cow<'a, str>,
    /// Store.
    #[serde(borrow)]
    pub store: Cow<'a, str>,
    /// Unique id of the event.
    #[serde(borrow)]
    pub event_id: Cow<'a, str>,
    /// Session of the reader.
    #[serde(borrow)]
    pub session_id: Cow<'a, str>,
    /// Who read.
    #[serde(borrow)]
    pub principal: Cow<'a, str>,
    /// Ranked results, before honeypots are stripped.
    #[serde(borrow)]
    pub results: Vec<ResultItem<'a>>,
    /// The query's text.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub query: Option<Cow<'a, str>>,
    /// The query's vector; used only where the mapping says `may_embed`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub query_embedding: Option<Embedding<'a>>,
    /// How many results the agent asked for; default: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k: Option<u32>,
    /// The agent's answer; events of one session with the same id are one observation.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub output_id: Option<Cow<'a, str>>,
    /// A job's read: not scored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<bool>,
    /// RFC 3339.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Cow<'a, str>>,
}
