//! What an evaluation is about: writes, a boundary that takes them, attacks with their controls.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::schema::Origin;

/// Where a text comes from, for the reader of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    /// Published text, unchanged.
    Published,
    /// Put together here from published parts, or after a published method.
    Assembled,
    /// Written for this project.
    Own,
}

impl Provenance {
    /// The word in tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Provenance::Published => "published",
            Provenance::Assembled => "assembled",
            Provenance::Own => "own",
        }
    }
}

/// A memory about to be stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Write {
    /// Unique in its set.
    pub id: String,
    /// All of it.
    pub text: String,
    /// The question or instruction part, where the form separates it.
    pub key: Option<String>,
    /// The rest.
    pub value: String,
    /// Source string as the producer states it; the campaign signals count by it.
    pub source: String,
    /// Authenticated principal.
    pub principal: Option<String>,
    /// Administrative domain of the principal.
    pub domain: Option<String>,
    /// Origin after the trust mapping.
    pub origin: Origin,
    /// What wording or scenario it was made from: the block of the bootstrap.
    pub template: String,
    /// The query that caused it.
    pub cause: Option<String>,
}

impl Write {
    /// A text of its own source and template, written by an authenticated user.
    #[must_use]
    pub fn new(id: impl Into<String>, text: impl Into<String>) -> Self {
        let (id, text) = (id.into(), text.into());
        let (key, value) = key_and_value(&text);
        Self {
            source: id.clone(),
            template: id.clone(),
            principal: Some(format!("user-of-{id}")),
            domain: Some("own".to_owned()),
            origin: Origin::UserInput,
            cause: None,
            id,
            text,
            key,
            value,
        }
    }

    /// With key and value given.
    #[must_use]
    pub fn with_parts(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self.value = value.into();
        self
    }

    /// From this source.
    #[must_use]
    pub fn from_source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self.principal = Some(format!("user-of-{}", self.source));
        self
    }

    /// Made from this template.
    #[must_use]
    pub fn of_template(mut self, template: impl Into<String>) -> Self {
        self.template = template.into();
        self
    }

    /// Of this origin; anything but a user's or operator's write has no authenticated principal.
    #[must_use]
    pub fn with_origin(mut self, origin: Origin) -> Self {
        self.origin = origin;
        if !matches!(origin, Origin::UserInput | Origin::System | Origin::AgentGenerated) {
            self.principal = None;
            self.domain = None;
        }
        self
    }

    /// Caused by this query.
    #[must_use]
    pub fn caused_by(mut self, query: impl Into<String>) -> Self {
        self.cause = Some(query.into());
        self
    }
}

/// The two text forms of `hardened.md` 6.1; else no key.
#[must_use]
pub fn key_and_value(text: &str) -> (Option<String>, String) {
    for prefix in ["Question: ", "Instruction: "] {
        if let Some((key, value)) = text.strip_prefix(prefix).and_then(|rest| rest.split_once('\n')) {
            return (Some(key.to_owned()), value.to_owned());
        }
    }
    (None, text.to_owned())
}

/// A store with its benign stream, cut by time, and the queries it sees.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Boundary {
    /// Name in tables.
    pub name: String,
    /// Oldest part: models, entities and the trusted store are fitted on it.
    pub fit: Vec<Write>,
    /// Middle part: thresholds and p-values.
    pub calibrate: Vec<Write>,
    /// Newest part: judged.
    pub test: Vec<Write>,
    /// Queries in the history when the test part is judged.
    pub history: Vec<String>,
    /// Other benign queries, for the utility.
    pub queries: Vec<String>,
    /// Texts whose entities count as known.
    pub facts: Vec<String>,
}

impl Boundary {
    /// The stored part: what was accepted before the test part came.
    pub fn stored(&self) -> impl Iterator<Item = &Write> {
        self.fit.iter().chain(&self.calibrate)
    }

    /// All benign writes.
    pub fn benign(&self) -> impl Iterator<Item = &Write> {
        self.stored().chain(&self.test)
    }
}

/// How a control set is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Truth {
    /// Flags are false alarms.
    Benign,
    /// Flags are detections.
    Poison,
}

/// Texts measured beside an attack.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Control {
    /// Name, such as `random_trigger`.
    pub name: String,
    /// What the texts are.
    pub truth: Truth,
    /// The texts.
    pub writes: Vec<Write>,
    /// Queries that should retrieve them.
    pub victims: Vec<String>,
}

/// Poison for one boundary.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Attack {
    /// Name in tables.
    pub name: String,
    /// Where its texts come from.
    pub provenance: Provenance,
    /// Poison in order of arrival.
    pub poison: Vec<Write>,
    /// Queries that should retrieve it, with the trigger where there is one.
    pub victims: Vec<String>,
    /// Measured beside it.
    pub controls: Vec<Control>,
}

/// SHA-256 of a value's JSON, hex: part of the key of a cached cell.
#[must_use]
pub fn digest(value: &impl Serialize) -> String {
    hex::encode(Sha256::digest(serde_json::to_vec(value).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_split_by_form() {
        assert_eq!(key_and_value("Question: K?\nV 1\nV 2"), (Some("K?".into()), "V 1\nV 2".into()));
        assert_eq!(key_and_value("Instruction: K\nV"), (Some("K".into()), "V".into()));
        assert_eq!(key_and_value("Question: no value"), (None, "Question: no value".into()));
    }

    #[test]
    fn an_outside_write_has_no_principal() {
        let w = Write::new("a", "t").with_origin(Origin::Retrieved);
        assert_eq!((w.principal, w.domain), (None, None));
        assert!(Write::new("a", "t").with_origin(Origin::AgentGenerated).principal.is_some());
    }
}
