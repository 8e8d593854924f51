//! Whose write it is: the unit of campaigns and near duplicates.

use sha2::{Digest, Sha256};

use crate::decode::Write;

/// The first that a write has of principal, session, writer and reference, else its topic: hashed, so that a key
/// has one length and no content. No write is its own source.
///
/// An authenticated principal would be joined with its session; no record is authenticated yet.
#[must_use]
pub fn source_id(write: &Write, topic: &str) -> String {
    let named = [
        ("principal", &write.principal),
        ("session", &write.session_id),
        ("writer", &write.written_by),
        ("reference", &write.source_ref),
    ];
    let found = named.into_iter().find_map(|(what, value)| value.as_deref().map(|v| (what, v)));
    let (what, value) = found.unwrap_or(("topic", topic));
    let digest = Sha256::digest(format!("{what}\n{value}"));
    hex::encode(&digest[..16])
}
