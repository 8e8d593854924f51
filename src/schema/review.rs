//! `reviews`: a person's command on a held write.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the reviewer decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReviewAction {
    /// Release the held write.
    Approve,
    /// Keep it out.
    Reject,
    /// Remove a committed record.
    Forget,
    /// The record's time is up.
    Expire,
    /// A note only.
    Comment,
}

/// One review command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "review")]
pub struct Review {
    /// Tenant.
    pub tenant: String,
    /// Store.
    pub store: String,
    /// Id of the decision or record it is about.
    pub target: String,
    /// What is asked.
    pub action: ReviewAction,
    /// Who asks.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// RFC 3339.
    pub at: String,
}
