//! What readers see of transactions.
#![allow(clippy::disallowed_methods)] // transaction calls of a throw-away producer, each with a deadline

use std::time::Duration;

use rdkafka::producer::Producer;

use super::bench::{Bench, CALL};
use super::{Verdict, unknown};

const TIMEOUT: Duration = Duration::from_secs(30);
const RECORDS: usize = 20;

/// Records of a committed transaction are seen.
pub(super) fn commit_visible(b: &Bench) -> Verdict {
    let producer = b.opened("visible", TIMEOUT)?;
    b.send(&producer, "visible", RECORDS)?;
    producer.commit_transaction(CALL)?;
    b.expect("visible", "read_committed", RECORDS, "after the commit")
}

/// Records of an open transaction are not seen by a read-committed reader.
pub(super) fn open_hidden(b: &Bench) -> Verdict {
    let producer = b.opened("open", TIMEOUT)?;
    b.send(&producer, "open", RECORDS)?;
    if b.seen("open", "read_uncommitted")?.len() != RECORDS {
        return Err(unknown("an open transaction's records did not reach the log"));
    }
    b.expect("open", "read_committed", 0, "while the transaction was open a read-committed reader saw")?;
    producer.commit_transaction(CALL)?;
    b.expect("open", "read_committed", RECORDS, "after the commit")
}

/// Records of an aborted transaction are never seen by a read-committed reader.
pub(super) fn aborted_hidden(b: &Bench) -> Verdict {
    let producer = b.opened("aborted", TIMEOUT)?;
    b.send(&producer, "aborted", RECORDS)?;
    producer.abort_transaction(CALL)?;
    producer.begin_transaction()?;
    b.send(&producer, "aborted", 1)?;
    producer.commit_transaction(CALL)?;
    b.expect("aborted", "read_committed", 1, "after an abort of 20 records and a commit of 1")
}
