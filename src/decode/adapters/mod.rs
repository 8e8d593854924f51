//! One file a producer, or a family of them. Each says by a document's own fields whether it has its shape.

mod acs;
mod anthropic;
mod flink;
mod graphiti;
mod langgraph;
mod letta;
mod mcp;
mod mem0;
mod openai;
mod otel;
mod redis;
mod searched;
mod zep;

use serde_json::Value;

use super::shape::{Asked, Draft, Read};
use crate::topology::Format;

/// A shape's two readings.
#[derive(Debug)]
pub(super) struct Adapter {
    pub(super) format: Format,
    pub(super) writes: fn(&Value) -> Read<Draft>,
    pub(super) reads: fn(&Value) -> Read<Asked>,
}

/// All shapes but our own and CloudEvents, which wrap them.
pub(super) const ADAPTERS: &[Adapter] = &[
    Adapter { format: Format::Mem0, writes: mem0::writes, reads: mem0::reads },
    Adapter { format: Format::LangGraph, writes: langgraph::writes, reads: langgraph::reads },
    Adapter { format: Format::Letta, writes: letta::writes, reads: letta::reads },
    Adapter { format: Format::Zep, writes: zep::writes, reads: zep::reads },
    Adapter { format: Format::Graphiti, writes: graphiti::writes, reads: graphiti::reads },
    Adapter { format: Format::Anthropic, writes: anthropic::writes, reads: none },
    Adapter { format: Format::OpenAi, writes: openai::writes, reads: none },
    Adapter { format: Format::Mcp, writes: mcp::writes, reads: mcp::reads },
    Adapter { format: Format::Redis, writes: redis::writes, reads: redis::reads },
    Adapter { format: Format::Flink, writes: flink::writes, reads: flink::reads },
    Adapter { format: Format::Otel, writes: otel::writes, reads: otel::reads },
    Adapter { format: Format::Acs, writes: acs::writes, reads: acs::reads },
];

/// The shape has no such records.
fn none(_: &Value) -> Read<Asked> {
    None
}
