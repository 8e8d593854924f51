//! CloudEvents 1.0 around a document: binary mode in headers, structured mode in the value.

use base64::Engine as _;
use serde_json::Value;

use super::shape::{dead, text, wrong};
use super::tree;
use crate::error::{Code, Result};
use crate::schema::header;
use crate::source::Fetched;

/// A document and what its envelope says of it.
#[derive(Debug)]
pub(super) struct Opened {
    /// The producer's document.
    pub(super) inner: Value,
    /// The envelope's own object, in structured mode.
    pub(super) outer: Option<Value>,
    /// `id` of the event.
    pub(super) id: Option<String>,
    /// `source` of the event.
    pub(super) source: Option<String>,
    /// `time` of the event.
    pub(super) time: Option<String>,
}

impl Opened {
    /// There is an envelope.
    pub(super) fn is_event(&self) -> bool {
        self.id.is_some()
    }
}

/// Takes the envelope off, if there is one.
pub(super) fn open(fetched: &Fetched, doc: Value) -> Result<Opened> {
    let declared = fetched.header(header::CONTENT_TYPE).is_some_and(|t| t.starts_with(b"application/cloudevents"));
    let marked = ["specversion", "id", "source", "type"].iter().all(|n| doc.get(n).is_some_and(Value::is_string));
    if declared || marked {
        if !marked {
            return Err(wrong("an attribute of the CloudEvent"));
        }
        return structured(doc);
    }
    let named = |name: &str| fetched.header(name).and_then(|v| std::str::from_utf8(v).ok()).map(str::to_owned);
    let binary = named(header::CE_SPECVERSION).is_some();
    let id = named(header::CE_ID).filter(|_| binary);
    if binary && id.is_none() {
        return Err(wrong("the header ce_id"));
    }
    let (source, time) = if binary { (named(header::CE_SOURCE), named(header::CE_TIME)) } else { (None, None) };
    Ok(Opened { inner: doc, outer: None, id, source, time })
}

fn structured(mut doc: Value) -> Result<Opened> {
    let (id, source, time) = (text(&doc, "id")?, text(&doc, "source")?, text(&doc, "time")?);
    let data = doc.as_object_mut().and_then(|o| o.remove("data")).filter(|d| !d.is_null());
    let packed = text(&doc, "data_base64")?;
    let inner = match (data, packed) {
        (Some(_), Some(_)) => return Err(dead(Code::InvalidRecord, "the CloudEvent has data and data_base64")),
        (Some(Value::String(json)), None) => tree::parse(json.as_bytes())?,
        (Some(data), None) => data,
        (None, Some(packed)) => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(packed).map_err(|_| wrong("data_base64"))?;
            tree::parse(&bytes)?
        }
        (None, None) => return Err(wrong("data")),
    };
    Ok(Opened { inner, outer: Some(doc), id, source, time })
}
