//! Fencing and the timeout of transactions.
#![allow(clippy::disallowed_methods)] // transaction calls of a throw-away producer, each with a deadline

use std::time::Duration;

use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as E};
use rdkafka::producer::Producer;

use super::bench::{Bench, CALL};
use super::{Trouble, Verdict, broken, unknown};
use crate::clock::monotonic;

/// Brokers look for expired transactions every 10 s by default.
const EXPIRY: Duration = Duration::from_secs(40);

/// `init_transactions` of a second producer shuts the first one out and aborts what it had open.
pub(super) fn zombie_fenced(b: &Bench) -> Verdict {
    let zombie = b.opened("zombie", Duration::from_secs(30))?;
    b.send(&zombie, "zombie", 1)?;
    let heir = b.opened("zombie", Duration::from_secs(30))?;
    let sent = b.send(&zombie, "zombie", 1);
    let committed = sent.and_then(|()| zombie.commit_transaction(Duration::from_secs(10)));
    heir.abort_transaction(CALL)?;
    b.expect("zombie", "read_committed", 0, "records of the fenced producer")?;
    match committed {
        Ok(()) => broken("the fenced producer's commit was accepted"),
        Err(e) if fenced(&e) => Ok(()),
        Err(e) => Err(unknown(format!("the fenced producer ended with: {e}"))),
    }
}

fn fenced(e: &KafkaError) -> bool {
    let code = e.rdkafka_error_code();
    let fatal = matches!(e, KafkaError::Transaction(t) if t.is_fatal());
    fatal || matches!(code, Some(E::Fenced | E::ProducerFenced | E::InvalidProducerEpoch | E::Fatal))
}

/// The broker aborts a transaction after its timeout, and readers get on.
pub(super) fn timeout_frees_readers(b: &Bench) -> Verdict {
    let producer = b.opened("timeout", Duration::from_secs(1))?;
    b.send(&producer, "timeout", 1)?;
    let high = end(b, "read_uncommitted")?;
    // On a slow machine the timeout may have struck already: then the record is hidden none the less.
    if end(b, "read_committed")? >= high && !b.seen("timeout", "read_committed")?.is_empty() {
        return broken("an open transaction does not hold back the last stable offset");
    }
    let until = monotonic() + EXPIRY;
    while end(b, "read_committed")? < high {
        if monotonic() > until {
            return broken(format!("a transaction with a timeout of 1 s was still open after {} s", EXPIRY.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    b.expect("timeout", "read_committed", 0, "after the timeout")?;
    match producer.commit_transaction(CALL) {
        Ok(()) => broken("a transaction was committed after its timeout"),
        Err(_) => Ok(()),
    }
}

/// High watermark, or last stable offset under read_committed.
fn end(b: &Bench, isolation: &str) -> Result<i64, Trouble> {
    let consumer = b.consumer("reader", isolation, &[])?;
    Ok(b.ask(|| consumer.fetch_watermarks(&b.name("timeout"), 0, CALL))?.1)
}
