//! Where records go: outputs of one transaction, and the producer that commits them.

mod attempt;
mod kafka;
mod offsets;
mod probe;
mod publish;
mod transactions;
mod triage;

use crate::schema::Headers;
use crate::topology::Role;

pub use attempt::attempt;
pub use kafka::{Relayed, TransactionalProducer};
pub use probe::{Finding, Outcome, Report, probe};
pub use publish::{Publication, publish};
pub use transactions::{CommitError, Delivered, InputOffset, Transactions};
pub use triage::{Call, Failure, triage};

/// A record to be written in this transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Topic.
    pub role: Role,
    /// Partition: the unit's.
    pub partition: i32,
    /// Key.
    pub key: Vec<u8>,
    /// Value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Headers.
    pub headers: Headers,
}

impl Output {
    /// Size on the wire, roughly, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size(self.key.len(), self.value.as_deref(), &self.headers)
    }

    /// Text of the last header of a name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let value = self.headers.iter().rev().find(|(n, _)| n == name).and_then(|(_, v)| v.as_deref())?;
        std::str::from_utf8(value).ok()
    }
}

/// Size of a record with these parts, with room for the batch's own framing.
#[must_use]
pub fn size(key: usize, value: Option<&[u8]>, headers: &[(String, Option<Vec<u8>>)]) -> usize {
    let headers: usize = headers.iter().map(|(n, v)| n.len() + v.as_ref().map_or(0, Vec::len) + 10).sum();
    key + value.map_or(0, <[u8]>::len) + headers + 100
}
