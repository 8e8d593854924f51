//! A topic as read-committed and as read-uncommitted readers see it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use rdkafka::message::{BorrowedMessage, Message as _};

use crate::error::Result;
use crate::read::{Bounds, Isolation, Reader};

/// Offsets of records, by partition, each in order.
#[derive(Debug, Default)]
pub(crate) struct Offsets(BTreeMap<i32, Vec<i64>>);

impl Offsets {
    fn add(&mut self, message: &BorrowedMessage<'_>) {
        self.0.entry(message.partition()).or_default().push(message.offset());
    }

    /// Whether a record is among them.
    pub(crate) fn holds(&self, partition: i32, offset: i64) -> bool {
        self.0.get(&partition).is_some_and(|all| all.binary_search(&offset).is_ok())
    }

    fn count(&self) -> u64 {
        self.0.values().map(|all| all.len() as u64).sum()
    }
}

/// Calls `each` for every record that the reader sees; its offsets.
pub(crate) fn seen<F>(reader: &Reader<'_>, topic: &str, bounds: &BTreeMap<i32, Bounds>, mut each: F) -> Result<Offsets>
where
    F: FnMut(&BorrowedMessage<'_>) -> Result<()>,
{
    let mut offsets = Offsets::default();
    reader.read(topic, bounds, |message| {
        offsets.add(message);
        each(message)?;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(offsets)
}

/// After a topic was read as `reader` sees it (`offsets`): how many of its records belong to aborted
/// transactions, and how many of those the reader saw. Calls `each` for those that it did not see.
pub(crate) fn aborted<F>(
    reader: &Reader<'_>,
    topic: &str,
    bounds: &BTreeMap<i32, Bounds>,
    offsets: &Offsets,
    mut each: F,
) -> Result<(u64, u64)>
where
    F: FnMut(&BorrowedMessage<'_>),
{
    let other = |isolation| Reader { isolation, ..*reader };
    if reader.isolation == Isolation::Uncommitted {
        let committed = seen(&other(Isolation::Committed), topic, bounds, |_| Ok(()))?;
        let aborted = offsets.count().saturating_sub(committed.count());
        return Ok((aborted, aborted));
    }
    let mut aborted = 0;
    seen(&other(Isolation::Uncommitted), topic, bounds, |message| {
        if !offsets.holds(message.partition(), message.offset()) {
            aborted += 1;
            each(message);
        }
        Ok(())
    })?;
    Ok((aborted, 0))
}
