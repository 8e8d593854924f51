//! What a topic is declared as.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use super::format::Mapping;
use super::model::Role;

/// Cleanup policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cleanup {
    /// By time.
    Delete,
    /// By key.
    Compact,
}

/// What a topic's key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyKind {
    /// `tenant/store`.
    Boundary,
    /// `tenant/store/record_id`.
    Record,
    /// Finding uid.
    Finding,
    /// The input's key.
    Original,
    /// State key.
    State,
    /// `kind/scope@version`.
    Version,
    /// `application`, or `member/<instance>`.
    Meta,
}

/// How long records stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Retention {
    /// No limit.
    Forever,
    /// By record time.
    For(Duration),
}

impl<'de> Deserialize<'de> for Retention {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        if text == "forever" {
            return Ok(Retention::Forever);
        }
        humantime::parse_duration(&text).map(Retention::For).map_err(serde::de::Error::custom)
    }
}

/// One topic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topic {
    /// Physical name; default: the role.
    #[serde(default)]
    pub name: String,
    /// Partitions, fixed at creation.
    pub partitions: i32,
    /// Key.
    pub key: KeyKind,
    /// Cleanup.
    pub cleanup: Cleanup,
    /// Retention.
    pub retention: Retention,
    /// Schema of the value.
    #[serde(default)]
    pub schema: Option<String>,
    /// `bounded`: timestamps at most 5 minutes ahead (checked).
    #[serde(default)]
    pub timestamps: Option<Timestamps>,
    /// Inputs only: whether records go through an internal topic keyed by the boundary.
    #[serde(default, skip_serializing_if = "Repartition::is_never")]
    pub repartition: Repartition,
    /// Inputs only: how values are read.
    #[serde(default, skip_serializing_if = "Mapping::is_native")]
    pub input: Mapping,
}

/// What is done with an input whose key or partitioner isn't the stream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repartition {
    /// A misplaced record is a dead letter.
    #[default]
    Never,
    /// Every record goes through an internal topic.
    Auto,
}

impl Repartition {
    fn is_never(&self) -> bool {
        *self == Repartition::Never
    }
}

/// Rule for record timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timestamps {
    /// LogAppendTime, or CreateTime at most 5 minutes ahead.
    Bounded,
}

impl Topic {
    /// The topic of what the members agree on, where none is declared.
    pub(super) fn meta(application: &str) -> Self {
        Self {
            name: format!("{application}-{}", Role::Meta.as_str()),
            partitions: 1,
            key: KeyKind::Meta,
            cleanup: Cleanup::Compact,
            retention: Retention::Forever,
            schema: Some("meta".to_owned()),
            timestamps: None,
            repartition: Repartition::Never,
            input: Mapping::default(),
        }
    }
}
