//! Provenance policy: what a topic's producers may declare, ordered rules (first match wins), trust labels, TTL.
//! Pure: the record's facts and its time in, a verdict with its rule out.

mod compile;
mod diff;
mod elevation;
mod facts;
mod file;
mod fixture;
mod label;
mod lint;
mod model;
mod pattern;
mod secrets;
mod seen;
mod strict;

pub use diff::{Change, Said, change};
pub use elevation::{Approvals, DOMAINS, Support, action, independent, may_act};
pub use facts::{CLASSES, FLOORS, Facts, Ratio, Signals, memsad_p};
pub use file::Policy;
pub use fixture::{Case, Checked, FixtureFile, Fixtures, Kind, Suite};
pub use label::{Channel, Label, LabelNote, Labels, Parent, TOOL, TRUSTED, UNTRUSTED, is_foreign, label, trust};
pub use lint::{Level, Note};
pub use model::{Mode, Rule, RuleAction, Trust, Ttl, When};

pub(crate) use model::PolicyFile;

use std::borrow::Cow;

use self::compile::Ready;
use self::seen::Seen;
use crate::clock::Millis;
use crate::decode::Write;
use crate::schema::{Op, Origin, Verdict};

/// What the policy said of one write.
#[derive(Debug, Clone, PartialEq)]
pub struct Ruling {
    /// Verdict.
    pub verdict: Verdict,
    /// Rule that decided.
    pub rule: Option<String>,
    /// Shadow rules that would have held or changed it.
    pub shadow: Vec<String>,
    /// Effective origin.
    pub origin: Origin,
    /// `topic` or `none`.
    pub basis: &'static str,
    /// The producer's vector may be used.
    pub may_embed: bool,
    /// When the memory ends; `None` for deletes.
    pub expires_at: Option<Millis>,
    /// Fields of the provenance that a strict boundary asks for and the write lacks.
    pub missing: Vec<&'static str>,
}

/// Reason code of a write for a tenant outside the producer's mapping, or made from a record of another tenant.
pub const CROSS_BOUNDARY: &str = "cross_boundary";

/// Reason code of a write into a strict boundary that doesn't say where it came from.
pub const PROVENANCE_MISSING: &str = "provenance_missing";

/// What stands before the name in a `source_ref` that names a tool.
const TOOL_REF: &str = "tool:";

impl Policy {
    /// The ruling on `write`, which came from topic role `topic` at record time `at`, before anything was scored.
    #[must_use]
    pub fn rule(&self, topic: &str, write: &Write, at: Millis) -> Ruling {
        self.judge(topic, write, at, &Facts::default())
    }

    /// The same with all that is known of the write.
    #[must_use]
    pub fn judge(&self, topic: &str, write: &Write, at: Millis, facts: &Facts<'_>) -> Ruling {
        let trust = self.trust(topic);
        let origin = self.origin(topic, write);
        let mut ruling = Ruling {
            verdict: Verdict::Allow,
            rule: None,
            shadow: Vec::new(),
            origin,
            basis: if trust.is_some() { "topic" } else { "none" },
            may_embed: trust.is_some_and(|t| t.may_embed),
            expires_at: (write.op != Op::Delete).then(|| self.expiry(origin, write.expires_at, at)),
            missing: self.missing(write, origin),
        };
        let gate = match () {
            () if self.is_cross(topic, write, facts) => Some(CROSS_BOUNDARY),
            () if !ruling.missing.is_empty() => Some(PROVENANCE_MISSING),
            () => None,
        };
        if let Some(gate) = gate {
            ruling.verdict = Verdict::Block;
            ruling.rule = Some(gate.to_owned());
            return ruling;
        }
        self.first_match(&self.seen(topic, write, at, facts), &mut ruling);
        ruling
    }

    /// The label of a write, given those of the records that it names and that are known.
    #[must_use]
    pub fn label(&self, topic: &str, write: &Write, parents: &[Label]) -> Label {
        let channel = Channel::of(self.origin(topic, write), self.lists_tool(write));
        label(channel, write.boundary.tenant(), write.derived_from.len(), parents)
    }

    /// Whether the conditions of the rule named `rule` hold, as if it were in force, with the rules before it as they
    /// are; `None` when it isn't asked.
    fn asked(&self, rule: &str, topic: &str, write: &Write, at: Millis, facts: &Facts<'_>) -> Option<bool> {
        let seen = self.seen(topic, write, at, facts);
        if self.is_cross(topic, write, facts) || !self.missing(write, seen.origin).is_empty() {
            return None;
        }
        for ready in self.rules() {
            if ready.name() == rule {
                return Some(ready.holds(&seen));
            }
            if ready.mode(seen.tenant(), at) == Mode::Enforce && ready.holds(&seen) {
                return None;
            }
        }
        None
    }

    fn seen<'a>(&'a self, topic: &str, write: &'a Write, at: Millis, facts: &'a Facts<'a>) -> Seen<'a> {
        let origin = self.origin(topic, write);
        let channel = Channel::of(origin, self.lists_tool(write));
        let trust = trust(channel, write.derived_from.len(), facts.parents);
        let claimed = write.principal.as_deref();
        let principal = claimed.filter(|p| self.principals(topic).is_some_and(|pattern| pattern.matches(p)));
        Seen::new(write, at, facts, origin, trust, principal)
    }

    fn origin(&self, topic: &str, write: &Write) -> Origin {
        match self.trust(topic) {
            Some(t) if t.origins.contains(&write.origin) => write.origin,
            _ => Origin::External,
        }
    }

    fn is_cross(&self, topic: &str, write: &Write, facts: &Facts<'_>) -> bool {
        let tenant = write.boundary.tenant();
        !self.vouches(topic, tenant) || is_foreign(tenant, facts.parents)
    }

    fn missing(&self, write: &Write, origin: Origin) -> Vec<&'static str> {
        if self.is_strict(write.boundary.as_str()) { strict::missing(write, origin) } else { Vec::new() }
    }

    fn lists_tool(&self, write: &Write) -> bool {
        let named = write.source_ref.as_deref().and_then(|r| r.strip_prefix(TOOL_REF));
        named.is_some_and(|tool| self.tools().iter().any(|t| t == tool))
    }

    fn first_match(&self, seen: &Seen<'_>, ruling: &mut Ruling) {
        for rule in self.rules() {
            let mode = rule.mode(seen.tenant(), seen.at());
            if mode == Mode::Off || !rule.holds(seen) {
                continue;
            }
            let (verdict, ttl) = (rule.verdict(seen), rule.ttl());
            if mode == Mode::Shadow {
                let shorter = ttl.zip(ruling.expires_at).is_some_and(|(t, end)| seen.at().saturating_add(t) < end);
                if verdict != Verdict::Allow || shorter {
                    ruling.shadow.push(rule.name().to_owned());
                }
                continue;
            }
            ruling.verdict = verdict;
            ruling.rule = Some(rule.name().to_owned());
            if let Some(ttl) = ttl {
                ruling.expires_at = ruling.expires_at.map(|e| e.min(seen.at().saturating_add(ttl)));
            }
            return;
        }
    }

    fn expiry(&self, origin: Origin, declared: Option<Millis>, at: Millis) -> Millis {
        let (default, cap) = self.ttl(origin);
        declared.unwrap_or(at.saturating_add(default)).min(at.saturating_add(cap))
    }
}

/// Reason of a ruling, as in decisions.
#[must_use]
pub fn reason(ruling: &Ruling) -> Cow<'static, str> {
    match &ruling.rule {
        Some(rule) => Cow::Owned(format!("policy:{rule}")),
        None => Cow::Borrowed("policy:default"),
    }
}

#[cfg(test)]
mod tests;
