//! A record of `dead-letters` read back: a dead letter, or the mark of a handled one. Pure.

use serde::Serialize;

use crate::clock::Millis;
use crate::schema::{Coordinates, Headers, header as h};
use crate::source::Fetched;

/// What was done about a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Handled {
    /// It was sent again.
    Redriven,
    /// It was given up.
    Skipped,
}

impl Handled {
    /// The wire word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Handled::Redriven => "redriven",
            Handled::Skipped => "skipped",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Handled::Redriven, Handled::Skipped].into_iter().find(|h| h.as_str() == word)
    }
}

/// A dead letter, read back into the record it was made of and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Where it stands.
    pub at: Coordinates,
    /// Record time.
    pub timestamp: Millis,
    /// The input's coordinates.
    pub source: Coordinates,
    /// What a redrive or skip names: the input, or what that was a redrive of.
    pub origin: Coordinates,
    /// Error code.
    pub code: String,
    /// Stage that refused it.
    pub stage: String,
    /// What was found.
    pub message: String,
    /// Program version that refused it.
    pub version: String,
    /// The input's key; empty where it had none.
    pub key: Vec<u8>,
    /// The input had no key.
    pub null_key: bool,
    /// The input's value, or the stub.
    pub value: Option<Vec<u8>>,
    /// The input's headers.
    pub original: Headers,
    /// Why the whole record isn't here, if it isn't.
    pub incomplete: Option<&'static str>,
    /// What was done about it.
    pub handled: Option<Handled>,
}

/// A mark that a dead letter was handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Offset of the dead letter, in the mark's own partition.
    pub offset: i64,
    /// What was done.
    pub handled: Handled,
}

/// A record of `dead-letters`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Letter {
    /// A dead letter.
    Dead(Box<DeadLetter>),
    /// A mark.
    Mark(Mark),
    /// Neither: written by something else.
    Other,
}

impl Letter {
    /// Reads a record. Our error headers begin with the last `__streams.errors.exception`: what stands in front
    /// of it is the producer's, under a prefix or (before 0.2) as it was, and no input can pass for a mark. Pure.
    #[must_use]
    pub fn parse(topic: &str, record: Fetched) -> Self {
        let at = Coordinates { topic: topic.to_owned(), partition: record.at.partition, offset: record.at.offset };
        let Some(split) = record.headers.iter().rposition(|(name, _)| name == h::EXCEPTION) else {
            return mark(&at, &record.headers).map_or(Letter::Other, Letter::Mark);
        };
        let mut original = record.headers;
        let ours = original.split_off(split);
        let text = |name: &str| {
            let value = ours.iter().find(|(n, _)| n == name).and_then(|(_, v)| v.as_deref());
            value.map(|v| String::from_utf8_lossy(v).into_owned())
        };
        let number = |name: &str| text(name).and_then(|t| t.parse::<i64>().ok());
        let source = || {
            Some(Coordinates {
                topic: text(h::TOPIC)?,
                partition: i32::try_from(number(h::PARTITION)?).ok()?,
                offset: number(h::OFFSET)?,
            })
        };
        let Some(source) = source() else { return Letter::Other };
        let origin = text(h::DLQ_ORIGIN).and_then(|o| o.parse::<Coordinates>().ok());
        if origin.is_some() {
            original.retain_mut(|(name, _)| {
                let own = name.strip_prefix(h::ORIGINAL).map(str::to_owned);
                own.map(|o| *name = o).is_some()
            });
        }
        let stub = ours.iter().any(|(name, _)| name == h::STUB);
        let unreadable = original.iter().any(|(name, _)| name == h::UNREADABLE);
        let incomplete = match (stub, unreadable) {
            (true, _) => Some("it is a stub: the record was too large to be kept"),
            (_, true) => Some("its header names were not UTF-8 and are gone"),
            _ => None,
        };
        Letter::Dead(Box::new(DeadLetter {
            at,
            timestamp: record.at.timestamp,
            origin: origin.unwrap_or_else(|| source.clone()),
            source,
            code: text(h::ERROR_CODE).unwrap_or_default(),
            stage: text(h::ERROR_STAGE).unwrap_or_default(),
            message: text(h::MESSAGE).unwrap_or_default(),
            version: text(h::VERSION).unwrap_or_default(),
            key: record.key.unwrap_or_default(),
            null_key: ours.iter().any(|(name, _)| name == h::NULL_KEY),
            value: record.value,
            original,
            incomplete,
            handled: None,
        }))
    }
}

fn mark(at: &Coordinates, headers: &Headers) -> Option<Mark> {
    let text = |name: &str| {
        let value = headers.iter().find(|(n, _)| n == name).and_then(|(_, v)| v.as_deref())?;
        std::str::from_utf8(value).ok()
    };
    let handled = Handled::parse(text(h::DLQ_HANDLED)?)?;
    let of: Coordinates = text(h::DLQ_LETTER)?.parse().ok()?;
    (of.topic == at.topic && of.partition == at.partition).then_some(Mark { offset: of.offset, handled })
}
