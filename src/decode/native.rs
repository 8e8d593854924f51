//! Our own JSON. Size first, then JSON, then each field; what fails becomes a dead letter.

use std::borrow::Cow;

use base64::Engine as _;

use crate::clock::{Millis, parse_rfc3339, rfc3339};
use crate::error::{Code, Error, Result};
use crate::schema::{Boundary, Embedding, Op, Origin, RawRetrieval, RawWrite, ResultItem, Vector, header, valid_id};
use crate::source::Fetched;

/// What decoding may assume about the record's surroundings.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Largest value, bytes.
    pub max_bytes: usize,
    /// Dimension of vectors.
    pub dimension: usize,
    /// Number of units, to refuse misplaced records; `None` where partitions mean nothing (files).
    pub units: Option<i32>,
}

/// A decoded write.
#[derive(Debug, Clone)]
pub struct Write {
    /// Boundary.
    pub boundary: Boundary,
    /// Record id.
    pub record_id: String,
    /// Operation.
    pub op: Op,
    /// Text; empty only for a delete.
    pub content: String,
    /// Declared origin.
    pub origin: Origin,
    /// Claimed principal.
    pub principal: Option<String>,
    /// Session.
    pub session_id: Option<String>,
    /// The agent's answer that caused it.
    pub output_id: Option<String>,
    /// The component that wrote it.
    pub written_by: Option<String>,
    /// Where it came from.
    pub source_ref: Option<String>,
    /// Records that it was made from, as it names them.
    pub derived_from: Vec<String>,
    /// Declared creation; `None` when it is no time.
    pub created_at: Option<Millis>,
    /// Declared end.
    pub expires_at: Option<Millis>,
    /// Vector of the producer.
    pub embedding: Option<Vector>,
}

/// One returned record.
#[derive(Debug, Clone)]
pub struct Returned {
    /// Record id.
    pub id: String,
    /// Belongs to another tenant.
    pub foreign: bool,
}

/// A decoded retrieval.
#[derive(Debug, Clone)]
pub struct Retrieval {
    /// Boundary.
    pub boundary: Boundary,
    /// Event id.
    pub event_id: String,
    /// Session.
    pub session_id: String,
    /// Principal.
    pub principal: String,
    /// Ranked results.
    pub results: Vec<Returned>,
    /// Query text.
    pub query: Option<String>,
    /// Query vector of the producer.
    pub embedding: Option<Vector>,
    /// How many results the agent asked for.
    pub k: usize,
    /// The agent's answer.
    pub output_id: Option<String>,
    /// A job's read.
    pub background: bool,
}

/// Most results that one event may list.
pub(super) const MAX_RESULTS: usize = 10_000;

/// Decodes a record of `memory-writes`.
///
/// # Errors
/// Any code with action `DeadLetter`.
pub fn write(fetched: &Fetched, rules: &Rules) -> Result<Write> {
    readable(fetched)?;
    let Some(value) = &fetched.value else {
        return delete_by_null(fetched, rules);
    };
    let raw: RawWrite<'_> = parse(value, rules)?;
    let boundary = Boundary::new(&raw.tenant, &raw.store)?;
    placed(&boundary, fetched, rules)?;
    checked(raw, boundary, rules)
}

/// A write that stands inside another record.
pub(super) fn inner_write(value: &[u8], rules: &Rules) -> Result<Write> {
    let raw: RawWrite<'_> = parse(value, rules)?;
    let boundary = Boundary::new(&raw.tenant, &raw.store)?;
    checked(raw, boundary, rules)
}

fn checked(raw: RawWrite<'_>, boundary: Boundary, rules: &Rules) -> Result<Write> {
    let content = raw.content.unwrap_or_default();
    if raw.op != Op::Delete && content.trim().is_empty() {
        return Err(Error::new(Code::EmptyContent, "content is empty"));
    }
    let origin = match raw.origin.as_deref() {
        None => Origin::External,
        Some(word) => {
            Origin::parse(word).ok_or_else(|| Error::new(Code::UnknownOrigin, "origin is not a known word"))?
        }
    };
    Ok(Write {
        boundary,
        record_id: id(raw.record_id, "record_id")?,
        op: raw.op,
        content: content.into_owned(),
        origin,
        principal: optional_id(raw.principal, "principal")?,
        session_id: optional_id(raw.session_id, "session_id")?,
        output_id: raw.output_id.filter(|o| valid_id(o)).map(Cow::into_owned),
        written_by: raw.written_by.map(Cow::into_owned),
        source_ref: raw.source_ref.map(Cow::into_owned),
        derived_from: raw.derived_from.unwrap_or_default(),
        created_at: raw.created_at.as_deref().and_then(parse_rfc3339),
        expires_at: optional_time(raw.expires_at.as_deref(), "expires_at")?,
        embedding: raw.embedding.map(|e| vector(&e, rules.dimension)).transpose()?,
    })
}

/// Decodes a record of `retrieval-logs`.
///
/// # Errors
/// Any code with action `DeadLetter`.
pub fn retrieval(fetched: &Fetched, rules: &Rules) -> Result<Retrieval> {
    readable(fetched)?;
    let Some(value) = &fetched.value else {
        return Err(Error::new(Code::InvalidRecord, "a retrieval event has no value"));
    };
    let raw: RawRetrieval<'_> = parse(value, rules)?;
    let boundary = Boundary::new(&raw.tenant, &raw.store)?;
    placed(&boundary, fetched, rules)?;
    searched(raw, boundary, rules)
}

/// A retrieval that stands inside another record.
pub(super) fn inner_retrieval(value: &[u8], rules: &Rules) -> Result<Retrieval> {
    let raw: RawRetrieval<'_> = parse(value, rules)?;
    let boundary = Boundary::new(&raw.tenant, &raw.store)?;
    searched(raw, boundary, rules)
}

fn searched(raw: RawRetrieval<'_>, boundary: Boundary, rules: &Rules) -> Result<Retrieval> {
    if raw.results.len() > MAX_RESULTS {
        return Err(Error::new(Code::InvalidRecord, "results lists more than 10000 records"));
    }
    let tenant = boundary.tenant();
    let returned = |r: ResultItem<'_>| {
        let foreign = r.tenant.is_some_and(|t| t != tenant);
        id(r.id, "results[].id").map(|id| Returned { foreign, id })
    };
    let results = raw.results.into_iter().map(returned).collect::<Result<Vec<_>>>()?;
    Ok(Retrieval {
        event_id: id(raw.event_id, "event_id")?,
        session_id: id(raw.session_id, "session_id")?,
        principal: id(raw.principal, "principal")?,
        k: raw.k.map_or(results.len(), |k| k as usize),
        results,
        query: raw.query.map(Cow::into_owned).filter(|q| !q.trim().is_empty()),
        embedding: raw.query_embedding.map(|e| vector(&e, rules.dimension)).transpose()?,
        output_id: optional_id(raw.output_id, "output_id")?,
        background: raw.background.unwrap_or(false),
        boundary,
    })
}

/// The boundary of an input, as [`write`] and [`retrieval`] would find it, at the cost of a look at two
/// fields; `None` where they would refuse the record.
#[must_use]
pub fn boundary(fetched: &Fetched, max_bytes: usize) -> Option<Boundary> {
    #[derive(serde::Deserialize)]
    struct Peek<'a> {
        #[serde(borrow)]
        tenant: Cow<'a, str>,
        #[serde(borrow)]
        store: Cow<'a, str>,
    }
    let Some(value) = fetched.value.as_deref() else {
        return Boundary::parse(std::str::from_utf8(fetched.key.as_deref()?).ok()?).ok();
    };
    if value.len() > max_bytes {
        return None;
    }
    let peek: Peek<'_> = serde_json::from_slice(value).ok()?;
    Boundary::new(&peek.tenant, &peek.store).ok()
}

pub(super) fn readable(fetched: &Fetched) -> Result<()> {
    if fetched.headers.iter().any(|(name, _)| name == header::UNREADABLE) {
        return Err(Error::new(Code::InvalidRecord, "a header name is not UTF-8"));
    }
    Ok(())
}

fn parse<'a, T: serde::Deserialize<'a>>(value: &'a [u8], rules: &Rules) -> Result<T> {
    if value.len() > rules.max_bytes {
        return Err(Error::new(Code::RecordTooLarge, format!("the value has {} bytes", value.len())));
    }
    // Unknown fields are skipped unread, so the bytes are checked as a whole before they are forwarded.
    let text = std::str::from_utf8(value)
        .map_err(|e| Error::new(Code::InvalidJson, format!("the value is not UTF-8 at byte {}", e.valid_up_to())))?;
    serde_json::from_str(text).map_err(|e| {
        let (code, what) = match e.classify() {
            serde_json::error::Category::Data => (Code::InvalidRecord, "a field is missing or has the wrong type"),
            _ => (Code::InvalidJson, "the value is not JSON"),
        };
        Error::new(code, format!("{what} (line {} column {})", e.line(), e.column()))
    })
}

/// A fact as our own JSON: what goes out for one of several facts of an input.
#[must_use]
pub fn render(write: &Write) -> Vec<u8> {
    let text = |t: &Option<String>| t.clone().map(Cow::Owned);
    let raw = RawWrite {
        tenant: Cow::Borrowed(write.boundary.tenant()),
        store: Cow::Borrowed(write.boundary.store()),
        record_id: Cow::Borrowed(&write.record_id),
        op: write.op,
        content: (write.op != Op::Delete).then_some(Cow::Borrowed(&write.content)),
        origin: Some(Cow::Borrowed(write.origin.as_str())),
        source_ref: text(&write.source_ref),
        written_by: text(&write.written_by),
        principal: text(&write.principal),
        session_id: text(&write.session_id),
        output_id: text(&write.output_id),
        derived_from: (!write.derived_from.is_empty()).then(|| write.derived_from.clone()),
        created_at: write.created_at.map(|t| Cow::Owned(rfc3339(t))),
        expires_at: write.expires_at.map(|t| Cow::Owned(rfc3339(t))),
        embedding: None,
    };
    serde_json::to_vec(&raw).unwrap_or_default()
}

/// A null value is a delete when a header names the record; its boundary is the key.
pub(super) fn delete_by_null(fetched: &Fetched, rules: &Rules) -> Result<Write> {
    let missing = || Error::new(Code::TombstoneWithoutRecord, "null value without the header memsluice-record-id");
    let record = fetched.header(header::RECORD_ID).ok_or_else(missing)?;
    let record_id = std::str::from_utf8(record).map_err(|_| missing())?;
    let key = fetched.key.as_deref().and_then(|k| std::str::from_utf8(k).ok()).unwrap_or_default();
    let boundary = Boundary::parse(key)?;
    placed(&boundary, fetched, rules)?;
    Ok(Write {
        boundary,
        record_id: id(Cow::Borrowed(record_id), "record id")?,
        op: Op::Delete,
        content: String::new(),
        origin: Origin::External,
        principal: None,
        session_id: None,
        output_id: None,
        written_by: None,
        source_ref: None,
        derived_from: Vec::new(),
        created_at: None,
        expires_at: None,
        embedding: None,
    })
}

pub(super) fn placed(boundary: &Boundary, fetched: &Fetched, rules: &Rules) -> Result<()> {
    let Some(units) = rules.units else {
        return Ok(());
    };
    if crate::source::partition_of(boundary.as_str().as_bytes(), units) == fetched.at.partition {
        return Ok(());
    }
    Err(Error::new(Code::MisplacedPartition, "the record's boundary belongs to another partition"))
}

pub(super) fn id(value: Cow<'_, str>, name: &str) -> Result<String> {
    if valid_id(&value) {
        return Ok(value.into_owned());
    }
    Err(Error::new(Code::InvalidId, format!("{name} is not a valid id")))
}

pub(super) fn optional_id(value: Option<Cow<'_, str>>, name: &str) -> Result<Option<String>> {
    value.map(|v| id(v, name)).transpose()
}

pub(super) fn optional_time(value: Option<&str>, name: &str) -> Result<Option<Millis>> {
    value
        .map(|v| parse_rfc3339(v).ok_or_else(|| Error::new(Code::InvalidRecord, format!("{name} is not RFC 3339"))))
        .transpose()
}

fn vector(embedding: &Embedding<'_>, dimension: usize) -> Result<Vector> {
    match embedding {
        Embedding::Numbers(numbers) => {
            if numbers.len() != dimension {
                return Err(dimension_error(numbers.len(), dimension));
            }
            Vector::from_f64(numbers)
                .ok_or_else(|| Error::new(Code::EmbeddingNotFinite, "the embedding has no finite norm above 0"))
        }
        Embedding::Packed { i16 } => {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(i16.as_bytes())
                .map_err(|_| Error::new(Code::InvalidRecord, "the embedding is not base64"))?;
            if bytes.len() != 2 * dimension {
                return Err(dimension_error(bytes.len().div_ceil(2), dimension));
            }
            let values = bytes.chunks_exact(2).map(|c| i16::from_le_bytes([c[0], c[1]])).collect();
            Vector::from_unit(values)
                .ok_or_else(|| Error::new(Code::EmbeddingNotUnit, "the i16 embedding is not a unit vector"))
        }
    }
}

fn dimension_error(found: usize, wanted: usize) -> Error {
    Error::new(Code::EmbeddingDimension, format!("the embedding has {found} values, the encoder {wanted}"))
}
