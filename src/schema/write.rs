//! `memory-writes`: one fact about to be stored.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the write does to the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// A new record.
    Create,
    /// A new version of a record.
    Update,
    /// Removes the record; needs no content.
    Delete,
}

impl Op {
    /// The wire word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Op::Create => "create",
            Op::Update => "update",
            Op::Delete => "delete",
        }
    }
}

/// Where the text came from, in ACS words. Missing is `external`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A user said it to the agent.
    #[serde(alias = "user_message")]
    UserInput,
    /// The operator of the deployment.
    #[serde(alias = "operator")]
    System,
    /// The agent itself.
    AgentGenerated,
    /// A tool's output.
    ToolOutput,
    /// Text retrieved from outside, such as a web page.
    #[serde(alias = "web_page")]
    Retrieved,
    /// Unknown or outside.
    #[default]
    External,
}

impl Origin {
    /// The ACS word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::UserInput => "user_input",
            Origin::System => "system",
            Origin::AgentGenerated => "agent_generated",
            Origin::ToolOutput => "tool_output",
            Origin::Retrieved => "retrieved",
            Origin::External => "external",
        }
    }

    /// Parses an ACS word or one of the four older words.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "user_input" | "user_message" => Origin::UserInput,
            "system" | "operator" => Origin::System,
            "agent_generated" => Origin::AgentGenerated,
            "tool_output" => Origin::ToolOutput,
            "retrieved" | "web_page" => Origin::Retrieved,
            "external" => Origin::External,
            _ => return None,
        })
    }
}

/// A vector in the record: d finite numbers, or i16 (scale 32767, little-endian, base64).
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Embedding<'a> {
    /// d finite numbers.
    Numbers(Vec<f64>),
    /// `{"i16": base64}` of 2 d bytes.
    Packed {
        /// Base64 of little-endian i16, scale 32767.
        i16: Cow<'a, str>,
    },
}

/// By hand: an untagged enum would buffer the whole vector first.
impl<'de: 'a, 'a> Deserialize<'de> for Embedding<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(EmbeddingVisitor)
    }
}

struct EmbeddingVisitor;

#[derive(Deserialize)]
struct Packed<'a> {
    #[serde(borrow)]
    i16: Cow<'a, str>,
}

impl<'de> serde::de::Visitor<'de> for EmbeddingVisitor {
    type Value = Embedding<'de>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array of numbers or {\"i16\": base64}")
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        Vec::deserialize(serde::de::value::SeqAccessDeserializer::new(seq)).map(Embedding::Numbers)
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let packed = Packed::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        Ok(Embedding::Packed { i16: packed.i16 })
    }
}

/// One write, as on the wire. Unknown fields are kept in the forwarded bytes and ignored here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "memory-write")]
pub struct RawWrite<'a> {
    /// Tenant, `[A-Za-z0-9._-]{1,128}`.
    #[serde(borrow)]
    pub tenant: Cow<'a, str>,
    /// Store, `[A-Za-z0-9._-]{1,128}`.
    #[serde(borrow)]
    pub store: Cow<'a, str>,
    /// Id of the record in its store, 1 to 512 bytes.
    #[serde(borrow)]
    pub record_id: Cow<'a, str>,
    /// What the write does.
    pub op: Op,
    /// The text; not needed for a delete.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Cow<'a, str>>,
    /// Declared origin; counts only up to what the trust mapping allows.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Cow<'a, str>>,
    /// Where it came from, such as a ticket or an address.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub source_ref: Option<Cow<'a, str>>,
    /// The component that wrote it.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub written_by: Option<Cow<'a, str>>,
    /// Claimed principal.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Cow<'a, str>>,
    /// Session in which it was written.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Cow<'a, str>>,
    /// The agent's answer that caused it.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub output_id: Option<Cow<'a, str>>,
    /// Records it was derived from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived_from: Option<Vec<String>>,
    /// RFC 3339.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Cow<'a, str>>,
    /// RFC 3339; capped by the policy.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Cow<'a, str>>,
    /// A vector made by the producer; used only where the mapping says `may_embed`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub embedding: Option<Embedding<'a>>,
}
