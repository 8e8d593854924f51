//! `dead-letters`: raw bytes with KIP-1034 headers; a stub where the bytes themselves can't be written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
