//! What `policy.yaml` says, as it is written.

use std::collections::BTreeMap;

use serde::de::{Deserialize, Deserializer, Error as _};

use super::Fixtures;
use crate::schema::{Op, Origin};

/// A list that is written down has something in it: an empty one would ask nothing, and hold for every write.
fn listed<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    let list = Vec::deserialize(from)?;
    if list.is_empty() {
        return Err(D::Error::custom("an empty list asks nothing: leave it out"));
    }
    Ok(list)
}

/// How a rule counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Skipped.
    Off,
    /// Recorded.
    Shadow,
    /// Decides.
    #[default]
    Enforce,
}

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleAction {
    /// Forward.
    Allow,
    /// Forward, with the rule's TTL.
    SetTtl,
    /// Hold, unless enough independent sources say the same.
    RequireCorroboration,
    /// Forward without the parts that a reader must not see.
    Redact,
    /// Hold.
    Quarantine,
    /// Hold, two reviewers.
    Block,
}

/// Conditions; all that are given must hold, and one about a fact that is not known doesn't.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// Effective origin is one of these.
    #[serde(deserialize_with = "listed")]
    pub origin: Vec<Origin>,
    /// Tenant is one of these patterns.
    #[serde(deserialize_with = "listed")]
    pub tenant: Vec<String>,
    /// Store is one of these patterns.
    #[serde(deserialize_with = "listed")]
    pub store: Vec<String>,
    /// Record id is one of these patterns.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "listed")]
    pub record: Vec<String>,
    /// Operation is one of these.
    #[serde(deserialize_with = "listed")]
    pub op: Vec<Op>,
    /// Content is longer than this, bytes.
    pub content_bytes_over: Option<usize>,
    /// Label is at most this, 0 to 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust_at_most: Option<u8>,
    /// The principal is authenticated, or is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authenticated: Option<bool>,
    /// The authenticated principal is one of these patterns.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "listed")]
    pub principal: Vec<String>,
    /// `written_by` is one of these patterns.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "listed")]
    pub agent: Vec<String>,
    /// `created_at` is longer ago than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_over: Option<String>,
    /// A letter is of one of these scripts (Unicode names).
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "listed")]
    pub script: Vec<String>,
    /// A letter is of none of these scripts.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "listed")]
    pub script_other_than: Vec<String>,
    /// The text has at least so many credentials by their shape, 1 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets_at_least: Option<u16>,
    /// The text has wording of one of these classes ([`super::CLASSES`]).
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "listed")]
    pub classes: Vec<String>,
    /// The screen reached one of these floors ([`super::FLOORS`]).
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "listed")]
    pub floors: Vec<String>,
    /// At least so many mails, hosts and accounts that the boundary doesn't know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unseen_sinks_at_least: Option<u32>,
    /// At least so many hidden characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden_at_least: Option<u32>,
    /// Writes of today are more than so many times the baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth_over: Option<f64>,
    /// The screen's calibrated p is at most this, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub screen_p_at_most: Option<f64>,
    /// MEMSAD's calibrated p is at most this, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memsad_p_at_most: Option<f64>,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name is the reason code `policy:<name>`.
    pub name: String,
    /// Conditions.
    #[serde(default)]
    pub when: When,
    /// Action.
    pub action: RuleAction,
    /// Mode.
    #[serde(default)]
    pub mode: Mode,
    /// RFC 3339; from then on (record time) the rule is off.
    #[serde(default)]
    pub expires: Option<String>,
    /// Longest life of what it lets through or holds; needed by `set_ttl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
    /// Independent domains that `require_corroboration` asks for, default 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domains: Option<u32>,
    /// Writes that it must match and must not; no part of the policy's hash.
    #[serde(default, skip_serializing)]
    pub fixtures: Fixtures,
}

/// Another mode for the rules in some tenants.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantMode {
    /// Tenant pattern.
    pub(super) tenant: String,
    /// Rules it is about; all when left out.
    #[serde(default, deserialize_with = "listed")]
    pub(super) rules: Vec<String>,
    /// Mode there.
    pub(super) mode: Mode,
    /// RFC 3339; from then on (record time) the rule's own mode is back.
    #[serde(default)]
    pub(super) expires: Option<String>,
}

/// What the producers of a topic may declare.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trust {
    /// Tenants they may write for; `*` is all.
    pub tenants: Vec<String>,
    /// Origins they may declare; others count as `external`.
    pub origins: Vec<Origin>,
    /// Whether their vectors are used.
    #[serde(default)]
    pub may_embed: bool,
    /// Pattern of the principals that the broker's ACLs let write here; a record's principal that fits is
    /// authenticated, any other is a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

/// Time to live.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ttl {
    /// Assigned when the write names none.
    pub default: String,
    /// Longest.
    pub cap: String,
    /// Longest for the origins below.
    pub untrusted_cap: String,
    /// Origins with the shorter cap.
    pub untrusted: Vec<Origin>,
}

/// `policy.yaml`.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyFile {
    pub(super) trust: BTreeMap<String, Trust>,
    pub(super) ttl: Ttl,
    pub(super) rules: Vec<Rule>,
    /// Tools whose output is believed as far as their input is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<String>,
    /// Patterns of the boundaries `tenant/store` into which nothing comes without its provenance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) strict: Vec<String>,
    /// Other modes for single tenants; the first entry that fits counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) tenant_modes: Vec<TenantMode>,
}
