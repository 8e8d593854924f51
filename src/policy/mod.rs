//! Provenance policy: what a topic's producers may declare, ordered rules (first match wins), TTL caps.
//! Pure: the record's facts in, a verdict with its rule out.

mod file;

use std::collections::BTreeMap;

use crate::clock::Millis;
use crate::decode::Write;
use crate::schema::{Op, Origin, Verdict};

pub use file::Policy;

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
    /// Hold.
    Quarantine,
    /// Hold, two reviewers.
    Block,
}

impl RuleAction {
    fn verdict(self) -> Verdict {
        match self {
            RuleAction::Allow => Verdict::Allow,
            RuleAction::Quarantine => Verdict::Quarantine,
            RuleAction::Block => Verdict::Block,
        }
    }
}

/// Conditions; all that are given must hold.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// Effective origin is one of these.
    pub origin: Vec<Origin>,
    /// Tenant is one of these.
    pub tenant: Vec<String>,
    /// Store is one of these.
    pub store: Vec<String>,
    /// Operation is one of these.
    pub op: Vec<Op>,
    /// Content is longer than this, bytes.
    pub content_bytes_over: Option<usize>,
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

/// What the policy said of one write.
#[derive(Debug, Clone, PartialEq)]
pub struct Ruling {
    /// Verdict.
    pub verdict: Verdict,
    /// Rule that decided.
    pub rule: Option<String>,
    /// Shadow rules that would have held it.
    pub shadow: Vec<String>,
    /// Effective origin.
    pub origin: Origin,
    /// `topic` or `none`.
    pub basis: &'static str,
    /// The producer's vector may be used.
    pub may_embed: bool,
    /// When the memory ends; `None` for deletes.
    pub expires_at: Option<Millis>,
}

/// Reason code of a write for a tenant outside the producer's mapping.
pub const CROSS_BOUNDARY: &str = "cross_boundary";

impl Policy {
    /// The ruling on `write`, which came from topic role `topic` at record time `at`.
    #[must_use]
    pub fn rule(&self, topic: &str, write: &Write, at: Millis) -> Ruling {
        let trust = self.trust(topic);
        let origin = match trust {
            Some(t) if t.origins.contains(&write.origin) => write.origin,
            _ => Origin::External,
        };
        let mut ruling = Ruling {
            verdict: Verdict::Allow,
            rule: None,
            shadow: Vec::new(),
            origin,
            basis: if trust.is_some() { "topic" } else { "none" },
            may_embed: trust.is_some_and(|t| t.may_embed),
            expires_at: (write.op != Op::Delete).then(|| self.expiry(origin, write.expires_at, at)),
        };
        let tenant = write.boundary.tenant();
        if !trust.is_some_and(|t| t.tenants.iter().any(|x| x == "*" || x == tenant)) {
            ruling.verdict = Verdict::Block;
            ruling.rule = Some(CROSS_BOUNDARY.to_owned());
            return ruling;
        }
        self.first_match(write, at, &mut ruling);
        ruling
    }

    fn first_match(&self, write: &Write, at: Millis, ruling: &mut Ruling) {
        for rule in self.rules() {
            if rule.off_at(at) || !rule.matches(write, ruling.origin) {
                continue;
            }
            if rule.shadow {
                if rule.verdict != Verdict::Allow {
                    ruling.shadow.push(rule.name.clone());
                }
                continue;
            }
            ruling.verdict = rule.verdict;
            ruling.rule = Some(rule.name.clone());
            return;
        }
    }

    fn expiry(&self, origin: Origin, declared: Option<Millis>, at: Millis) -> Millis {
        let (default, cap) = self.ttl(origin);
        declared.unwrap_or(at.saturating_add(default)).min(at.saturating_add(cap))
    }
}

/// A rule ready to be asked.
#[derive(Debug, Clone)]
pub(crate) struct Ready {
    name: String,
    when: When,
    verdict: Verdict,
    shadow: bool,
    expires: Option<Millis>,
}

impl Ready {
    fn off_at(&self, at: Millis) -> bool {
        self.expires.is_some_and(|e| at >= e)
    }

    fn enforces(&self) -> bool {
        !self.shadow && self.verdict != Verdict::Allow
    }

    fn matches(&self, write: &Write, origin: Origin) -> bool {
        let w = &self.when;
        (w.origin.is_empty() || w.origin.contains(&origin))
            && (w.op.is_empty() || w.op.contains(&write.op))
            && (w.tenant.is_empty() || w.tenant.iter().any(|t| t == write.boundary.tenant()))
            && (w.store.is_empty() || w.store.iter().any(|s| s == write.boundary.store()))
            && w.content_bytes_over.is_none_or(|n| write.content.len() > n)
    }
}

/// `policy.yaml`.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyFile {
    trust: BTreeMap<String, Trust>,
    ttl: Ttl,
    rules: Vec<Rule>,
}
