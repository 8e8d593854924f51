//! Tries a right to write before the stream needs it: some topics get their first record days after a start.

use super::{CommitError, Output, Transactions};
use crate::topology::Role;

/// Sends a record to a topic in a transaction of its own, and takes it back. Readers of committed records don't see it.
///
/// # Errors
/// `access_denied` where the right lacks; else by triage, and the producer is of no more use.
pub fn attempt<T: Transactions>(producer: &mut T, topic: &str, role: Role, key: &[u8]) -> Result<(), CommitError> {
    let record = Output { role, partition: 0, key: key.to_vec(), value: None, headers: Vec::new() };
    producer.begin()?;
    producer.send(topic, &record)?;
    producer.drain()?;
    producer.abort()
}
