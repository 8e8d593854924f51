//! `dead-letters`: raw bytes with KIP-1034 headers; a stub where the bytes themselves can't be written.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::headers::{Headers, names as h};
use crate::error::{Code, Error, Result};

/// Stands for a record whose bytes are too large to be written anywhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "dead-letter")]
pub struct DeadLetterStub {
    /// Error code.
    pub code: String,
    /// Length of the value, bytes.
    pub length: u64,
    /// Keyed hash of the value, hex.
    pub hmac: String,
    /// Id of the key that made the hash.
    pub key_id: String,
    /// Input topic.
    pub topic: String,
    /// Input partition.
    pub partition: i32,
    /// Input offset.
    pub offset: i64,
}

/// Where a record stands; written `topic/partition/offset`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Coordinates {
    /// Physical topic name.
    pub topic: String,
    /// Partition, from 0.
    pub partition: i32,
    /// Offset, from 0.
    pub offset: i64,
}

impl fmt::Display for Coordinates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.topic, self.partition, self.offset)
    }
}

impl FromStr for Coordinates {
    type Err = Error;

    /// # Errors
    /// `invalid_record` unless it is `topic/partition/offset` with numbers from 0.
    fn from_str(text: &str) -> Result<Self> {
        let refused = || Error::new(Code::InvalidRecord, "coordinates are written topic/partition/offset");
        let mut parts = text.splitn(3, '/');
        let mut part = || parts.next().filter(|p| !p.is_empty()).ok_or_else(refused);
        let (topic, partition, offset) = (part()?.to_owned(), number(part()?), number(part()?));
        let partition = partition.and_then(|p| i32::try_from(p).ok()).ok_or_else(refused)?;
        Ok(Self { topic, partition, offset: offset.ok_or_else(refused)? })
    }
}

/// Decimal digits alone: no sign, no space.
fn number(text: &str) -> Option<i64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Why the source of a dead letter was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Isolation {
    /// The source, as the breaker names it.
    pub source: String,
    /// Error code that opened its breaker.
    pub cause: String,
    /// Record time of the opening, RFC 3339.
    pub since: String,
}

/// All headers of a dead letter, as values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterHeaders {
    /// Where the refused record stands.
    pub input: Coordinates,
    /// Its record time, ms since 1970.
    pub timestamp: i64,
    /// Error code.
    pub code: String,
    /// What was found; no content.
    pub message: String,
    /// Stage that refused it: `decode`, `breaker`, `hold`, `decide`.
    pub stage: String,
    /// Version of the program that refused it.
    pub version: String,
    /// What a redrive or skip must name: the input, or for a record that was redriven what it was redriven
    /// from.
    pub origin: Coordinates,
    /// Its key was null, not empty.
    pub null_key: bool,
    /// The value is a [`DeadLetterStub`]; the bytes are in the input topic alone.
    pub stub: bool,
    /// Set while its source was isolated.
    pub isolation: Option<Isolation>,
    /// The headers it came with, under their own names.
    pub original: Headers,
}

impl DeadLetterHeaders {
    /// As headers of the record: those it came with under a prefix, then ours.
    #[must_use]
    pub fn to_headers(&self) -> Headers {
        let mut out: Headers =
            self.original.iter().map(|(name, value)| (format!("{}{name}", h::ORIGINAL), value.clone())).collect();
        let mut add = |name: &str, value: &str| out.push((name.to_owned(), Some(value.as_bytes().to_vec())));
        let (partition, offset) = (self.input.partition.to_string(), self.input.offset.to_string());
        add(h::EXCEPTION, &self.code);
        add(h::MESSAGE, &self.message);
        add(h::STACKTRACE, &self.stage);
        add(h::TOPIC, &self.input.topic);
        add(h::PARTITION, &partition);
        add(h::OFFSET, &offset);
        add(h::ERROR_CODE, &self.code);
        add(h::ERROR_STAGE, &self.stage);
        add(h::VERSION, &self.version);
        add(h::INPUT_TIMESTAMP, &self.timestamp.to_string());
        add(h::DLQ_ORIGIN, &self.origin.to_string());
        if self.null_key {
            add(h::NULL_KEY, "true");
        }
        if self.stub {
            add(h::STUB, "true");
        }
        if let Some(isolation) = &self.isolation {
            add(h::SOURCE, &isolation.source);
            add(h::ISOLATED_BY, &isolation.cause);
            add(h::ISOLATED_SINCE, &isolation.since);
        }
        out
    }

    /// Reads the headers of a record of `dead-letters`; those of other programs are passed over.
    ///
    /// # Errors
    /// `invalid_record` when one is missing or can't be read.
    pub fn read(headers: &Headers) -> Result<Self> {
        let find = |name: &str| {
            let value = headers.iter().rev().find(|(n, _)| n == name).and_then(|(_, v)| v.as_deref())?;
            std::str::from_utf8(value).ok()
        };
        let missing = |name: &str| Error::new(Code::InvalidRecord, format!("the header {name} can't be read"));
        let text = |name: &str| find(name).map(str::to_owned).ok_or_else(|| missing(name));
        let whole = |name: &str| find(name).and_then(|v| v.parse::<i64>().ok()).ok_or_else(|| missing(name));
        let partition = i32::try_from(whole(h::PARTITION)?).map_err(|_| missing(h::PARTITION))?;
        let isolation = match find(h::SOURCE) {
            Some(source) => Some(Isolation {
                source: source.to_owned(),
                cause: text(h::ISOLATED_BY)?,
                since: text(h::ISOLATED_SINCE)?,
            }),
            None => None,
        };
        let original = headers
            .iter()
            .filter_map(|(name, value)| Some((name.strip_prefix(h::ORIGINAL)?.to_owned(), value.clone())))
            .collect();
        Ok(Self {
            input: Coordinates { topic: text(h::TOPIC)?, partition, offset: whole(h::OFFSET)? },
            timestamp: whole(h::INPUT_TIMESTAMP)?,
            code: text(h::ERROR_CODE)?,
            message: text(h::MESSAGE)?,
            stage: text(h::ERROR_STAGE)?,
            version: text(h::VERSION)?,
            origin: text(h::DLQ_ORIGIN)?.parse()?,
            null_key: find(h::NULL_KEY) == Some("true"),
            stub: find(h::STUB) == Some("true"),
            isolation,
            original,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What is written is read back field by field, whatever headers the record came with; names that a
        /// producer forged stay under the prefix.
        #[test]
        fn written_is_read(numbers in (0..i32::MAX, 0..i64::MAX, any::<i64>(), 0..i64::MAX),
                           texts in prop::collection::vec("[ -~]{0,20}", 5),
                           original in prop::collection::vec(("[a-z_.-]{1,30}", prop::option::of(any::<[u8; 4]>())), 0..4),
                           forged in prop::sample::select(vec![h::ERROR_CODE, h::OFFSET, h::DLQ_ORIGIN, h::REDRIVE]),
                           flags in any::<[bool; 3]>()) {
            let at = |offset| Coordinates { topic: "app.memory-writes".into(), partition: numbers.0, offset };
            let mut original: Headers = original.into_iter().map(|(n, v)| (n, v.map(|b| b.to_vec()))).collect();
            original.push((forged.to_owned(), Some(b"7".to_vec())));
            let isolation = Isolation { source: texts[3].clone(), cause: texts[4].clone(), since: "t".into() };
            let letter = DeadLetterHeaders {
                input: at(numbers.1),
                timestamp: numbers.2,
                code: texts[0].clone(),
                message: texts[1].clone(),
                stage: texts[2].clone(),
                version: "1.2.3".into(),
                origin: at(numbers.3),
                null_key: flags[0],
                stub: flags[1],
                isolation: flags[2].then_some(isolation),
                original,
            };
            prop_assert_eq!(DeadLetterHeaders::read(&letter.to_headers()).unwrap(), letter);
        }

        #[test]
        fn coordinates_are_strict(text in "[a-z./0-9+ -]{0,20}") {
            if let Ok(c) = text.parse::<Coordinates>() {
                prop_assert!(c.partition >= 0 && c.offset >= 0 && !c.topic.contains('/'));
                prop_assert_eq!(c.to_string().parse::<Coordinates>().unwrap(), c);
            }
        }
    }

    /// Each header that a dead letter always has is needed to read it.
    #[test]
    fn a_missing_header_is_named() {
        let at = Coordinates { topic: "t".into(), partition: 1, offset: 2 };
        let text = String::new;
        let letter = DeadLetterHeaders {
            input: at.clone(),
            timestamp: 3,
            code: text(),
            message: text(),
            stage: text(),
            version: text(),
            origin: at,
            null_key: false,
            stub: false,
            isolation: None,
            original: Headers::new(),
        };
        let whole = letter.to_headers();
        for name in [h::TOPIC, h::PARTITION, h::OFFSET, h::INPUT_TIMESTAMP, h::ERROR_CODE, h::MESSAGE, h::DLQ_ORIGIN] {
            let without: Headers = whole.iter().filter(|(n, _)| n != name).cloned().collect();
            assert!(DeadLetterHeaders::read(&without).unwrap_err().message().contains(name), "{name}");
        }
    }

    #[test]
    fn coordinates_have_three_parts() {
        let c: Coordinates = "p-memory-writes/3/41".parse().unwrap();
        assert_eq!(c, Coordinates { topic: "p-memory-writes".into(), partition: 3, offset: 41 });
        for wrong in ["", "t", "t/1", "/1/2", "t//2", "t/-1/2", "t/1/-2", "t/+1/2", "t/1/2/3", "t/3000000000/1"] {
            assert!(wrong.parse::<Coordinates>().is_err(), "{wrong}");
        }
    }
}
