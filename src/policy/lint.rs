//! What is wrong with a policy that can be parsed.

use super::{Kind, Policy, Suite};
use crate::clock::Millis;

/// How much a lint finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The policy is refused.
    Error,
    /// Look at it.
    Warning,
}

/// A finding of lint.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Note {
    /// Weight.
    pub level: Level,
    /// The rule.
    pub rule: String,
    /// What is wrong.
    pub what: String,
}

impl Suite {
    /// What is wrong with the policy at a time; errors first.
    #[must_use]
    pub fn lint(&self, at: Millis) -> Vec<Note> {
        let note = |level, rule: &str, what: String| Note { level, rule: rule.to_owned(), what };
        let mut notes = Vec::new();
        for rule in &self.rules {
            for kind in [Kind::Positive, Kind::Negative] {
                if !self.has(rule, kind) {
                    notes.push(note(Level::Error, rule, format!("has no {} fixture", kind.as_str())));
                }
            }
            if self.has(rule, Kind::Negative) && !self.is_declined(rule, at) {
                let what = "is asked about none of its negative fixtures: nothing shows what it leaves out";
                notes.push(note(Level::Error, rule, what.to_owned()));
            }
        }
        let lost = |rule: &String| note(Level::Error, rule, "has fixtures and is no rule of the policy".to_owned());
        notes.extend(self.unknown.iter().map(lost));
        notes.extend(self.policy.doubts(at).into_iter().map(|(level, rule, what)| Note { level, rule, what }));
        notes.sort_by_key(|n| n.level != Level::Error);
        notes
    }
}

impl Policy {
    /// What may be wrong with the rules themselves.
    fn doubts(&self, at: Millis) -> Vec<(Level, String, String)> {
        let mut out = Vec::new();
        let mut taken: Option<&str> = None;
        for rule in self.rules() {
            let mut doubt = |level, what: String| out.push((level, rule.name().to_owned(), what));
            if let Some(by) = taken {
                doubt(Level::Error, format!("is never asked: '{by}' before it takes every write"));
            }
            match rule.expires() {
                Some(e) if at >= e => doubt(Level::Warning, "has expired".to_owned()),
                None if rule.is_shadow() => {
                    doubt(Level::Warning, "is in shadow without an end: set expires".to_owned())
                }
                _ => {}
            }
            if let Some(what) = rule.unmet() {
                doubt(Level::Warning, what.to_owned());
            }
            if rule.ttl().is_some_and(|t| t > self.longest()) {
                doubt(Level::Warning, "has a ttl above ttl.cap, which counts".to_owned());
            }
            if taken.is_none() && rule.takes_all() {
                taken = Some(rule.name());
            }
        }
        out
    }
}
