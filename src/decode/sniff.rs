//! Which shape a document has.

use serde_json::Value;

use super::adapters::ADAPTERS;
use super::shape::{Asked, Draft, Read, dead, has};
use crate::error::{Code, Result};
use crate::topology::Format;

/// What a document turned out to be.
#[derive(Debug)]
pub(super) enum Found<T> {
    /// Our own JSON.
    Native,
    /// A producer's shape.
    Shape(Format, Vec<T>),
}

/// A write in the declared shape, or in the one shape that it fits.
pub(super) fn writes(doc: &Value, declared: Format) -> Result<Found<Draft>> {
    let native = has(doc, &["tenant", "store", "record_id", "op"]);
    let each = ADAPTERS.iter().map(|a| (a.format, a.writes));
    find(doc, declared, native, each)
}

/// A retrieval, as above.
pub(super) fn reads(doc: &Value, declared: Format) -> Result<Found<Asked>> {
    let native = has(doc, &["tenant", "store", "event_id", "session_id", "results"]);
    let each = ADAPTERS.iter().map(|a| (a.format, a.reads));
    find(doc, declared, native, each)
}

fn find<T>(
    doc: &Value,
    declared: Format,
    native: bool,
    each: impl Iterator<Item = (Format, fn(&Value) -> Read<T>)>,
) -> Result<Found<T>> {
    let any = matches!(declared, Format::Auto | Format::CloudEvents);
    let mut found: Vec<(Format, Option<Result<Vec<T>>>)> = Vec::new();
    if native && any {
        found.push((Format::Native, None));
    }
    for (format, read) in each.filter(|(f, _)| any || *f == declared) {
        found.extend(read(doc).map(|r| (format, Some(r))));
    }
    if found.len() > 1 {
        let names: Vec<&str> = found.iter().map(|(f, _)| f.as_str()).collect();
        return Err(dead(Code::ShapeAmbiguous, format!("the value fits {}", names.join(" and "))));
    }
    match found.pop() {
        Some((_, None)) => Ok(Found::Native),
        Some((format, Some(read))) => read.map(|facts| Found::Shape(format, facts)),
        None if any => Err(dead(Code::ShapeUnknown, "the value has no known shape")),
        None => Err(dead(Code::ShapeUnknown, format!("the value doesn't have the shape {}", declared.as_str()))),
    }
}
