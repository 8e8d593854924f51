//! Which producer's shape an input has, and where its boundary stands.

use serde::{Deserialize, Serialize};

macro_rules! formats {
    ($($variant:ident = $name:literal, $doc:literal;)*) => {
        /// Shape of an input's values.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
        pub enum Format {
            /// Our own JSON.
            #[default]
            #[serde(rename = "native")]
            Native,
            $(#[doc = $doc] #[serde(rename = $name)] $variant,)*
        }

        impl Format {
            /// All shapes, `native` first.
            pub const ALL: &'static [Format] = &[Format::Native, $(Format::$variant,)*];

            /// The word in `topics.yaml`.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { Format::Native => "native", $(Format::$variant => $name,)* }
            }
        }
    };
}

formats! {
    Auto = "auto", "Told from its fields; what fits two shapes is refused.";
    CloudEvents = "cloudevents", "A CloudEvent around any of the others.";
    Mem0 = "mem0", "mem0: add, results, webhook, search.";
    LangGraph = "langgraph", "LangGraph store and LangMem.";
    Letta = "letta", "Letta: passages, blocks, memory tools.";
    Zep = "zep", "Zep: graph, threads, facts.";
    Graphiti = "graphiti", "Graphiti: REST and MCP.";
    Anthropic = "anthropic", "Anthropic's memory tool and managed memory stores.";
    OpenAi = "openai", "Sessions of the OpenAI Agents SDK.";
    Mcp = "mcp", "MCP memory server: JSONL and tool calls.";
    Redis = "redis", "Redis agent-memory-server.";
    Flink = "flink", "Event log of Apache Flink Agents.";
    Otel = "otel", "OpenTelemetry GenAI memory spans, OTLP as JSON.";
    Acs = "acs", "Envelopes of the Agent Control Standard.";
}

/// Where one half of a boundary comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Part {
    /// This name: `fixed:acme`.
    Fixed(String),
    /// A text header of the record: `header:x-tenant`.
    Header(String),
    /// A text in the value, by its path: `field:metadata.org`, `field:namespace.0`.
    Field(String),
}

impl TryFrom<String> for Part {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("fixed", name)) if crate::schema::valid_part(name) => Ok(Part::Fixed(name.to_owned())),
            Some(("header", name)) if !name.is_empty() => Ok(Part::Header(name.to_owned())),
            Some(("field", path)) if !path.is_empty() && path.split('.').all(|p| !p.is_empty()) => {
                Ok(Part::Field(path.to_owned()))
            }
            _ => Err("a part of a boundary is fixed:NAME, header:NAME or field:PATH".to_owned()),
        }
    }
}

impl From<Part> for String {
    fn from(part: Part) -> Self {
        match part {
            Part::Fixed(name) => format!("fixed:{name}"),
            Part::Header(name) => format!("header:{name}"),
            Part::Field(path) => format!("field:{path}"),
        }
    }
}

/// What is done with an input of several facts of which some are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnPartial {
    /// Each fact goes where its own verdict says.
    #[default]
    Split,
    /// One held fact holds all of them.
    HoldAll,
}

/// How the values of an input are read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// Shape.
    #[serde(default, skip_serializing_if = "is_default")]
    pub format: Format,
    /// Where the tenant stands; default: where the shape says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Part>,
    /// Where the store stands; default: where the shape says, else the shape's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<Part>,
    /// Inputs of several facts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_partial: OnPartial,
}

impl Mapping {
    /// Nothing but our own JSON.
    #[must_use]
    pub fn is_native(&self) -> bool {
        *self == Self::default()
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_read_as_written() {
        for text in ["fixed:acme", "header:x-tenant", "field:namespace.0"] {
            assert_eq!(String::from(Part::try_from(text.to_owned()).unwrap()), text);
        }
        for text in ["acme", "fixed:", "fixed:a/b", "header:", "field:", "field:a..b", "env:X"] {
            assert!(Part::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
