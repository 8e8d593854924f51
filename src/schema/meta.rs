//! Records of the meta topic: what the members of an application agree on, under `application`, and what each
//! member started with, under `member/<instance>`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What no two members may differ in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Agreement {
    /// SHA-256 over `settings`, hex, first 16 digits.
    pub fingerprint: String,
    /// Hash of the policy.
    pub policy: String,
    /// Id of the deployment secret's key.
    pub key_id: String,
    /// The settings behind the fingerprint, by path: topology and encoder dimension.
    pub settings: BTreeMap<String, String>,
}

/// Formats of state values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateFormats {
    /// Oldest one that the state may hold.
    pub min: u8,
    /// The one that members write; nothing newer is in the state.
    pub write: u8,
}

/// Formats that a program reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadFormats {
    /// Oldest.
    pub min: u8,
    /// Newest.
    pub max: u8,
}

/// The value under `application`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApplicationMeta {
    /// Grows by one with each change.
    pub revision: u64,
    /// In force.
    pub agreement: Agreement,
    /// Also admitted, while a rolling change is made.
    #[serde(default)]
    pub next: Option<Agreement>,
    /// Formats of the state.
    pub format: StateFormats,
    /// Version of the program that wrote this.
    pub program: String,
}

/// The value under `member/<instance>`, written before each join that changes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberMeta {
    /// Instance id.
    pub instance: String,
    /// Fingerprint of its settings.
    pub fingerprint: String,
    /// Hash of its policy.
    pub policy: String,
    /// Id of its secret's key.
    pub key_id: String,
    /// Formats that it reads.
    pub reads: ReadFormats,
    /// Version of its program.
    pub program: String,
}

/// A record of the meta topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Meta {
    /// Of the application.
    Application(ApplicationMeta),
    /// Of one member.
    Member(MemberMeta),
}

impl Meta {
    /// Key of the application's record.
    pub const APPLICATION: &'static str = "application";

    /// Its key.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Meta::Application(_) => Self::APPLICATION.to_owned(),
            Meta::Member(m) => format!("member/{}", m.instance),
        }
    }
}
