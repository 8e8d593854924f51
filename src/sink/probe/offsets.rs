//! Offsets inside of transactions.
#![allow(clippy::disallowed_methods)] // calls of throw-away clients, each with a deadline

use std::time::Duration;

use rdkafka::consumer::{Consumer, ConsumerGroupMetadata};
use rdkafka::producer::Producer;
use rdkafka::{Offset, TopicPartitionList};

use super::bench::{Bench, CALL, Consuming, Producing};
use super::{Trouble, Verdict, broken, groups, unknown};

const TIMEOUT: Duration = Duration::from_secs(30);
const NEXT: i64 = 7;

/// Offsets count once their transaction is committed.
pub(super) fn committed_with_commit(b: &Bench) -> Verdict {
    let (producer, group) = outside(b, "with-commit")?;
    send(b, &producer, &group)?;
    producer.commit_transaction(CALL)?;
    match committed(b, "with-commit")? {
        Some(NEXT) => Ok(()),
        other => broken(format!("offset {NEXT} was sent with a committed transaction, the group has {other:?}")),
    }
}

/// Offsets are dropped with their transaction.
pub(super) fn dropped_with_abort(b: &Bench) -> Verdict {
    let (producer, group) = outside(b, "with-abort")?;
    send(b, &producer, &group)?;
    producer.abort_transaction(CALL)?;
    match committed(b, "with-abort")? {
        None => Ok(()),
        Some(n) => broken(format!("offset {n} of an aborted transaction was kept")),
    }
}

/// A member of an earlier generation can't send offsets.
pub(super) fn stale_generation_refused(b: &Bench) -> Verdict {
    let old = groups::member(b, "stale", &groups::CLASSIC)?;
    old.subscribe(&[&b.name("left")])?;
    groups::until(&[&old], || !groups::partitions(&old).is_empty())?;
    let stale = metadata(&old)?;
    let new = groups::member(b, "stale", &groups::CLASSIC)?;
    new.subscribe(&[&b.name("left")])?;
    groups::settled(&[&old, &new], || !groups::partitions(&new).is_empty() && !groups::partitions(&old).is_empty())?;
    let producer = b.opened("stale", TIMEOUT)?;
    b.send(&producer, "offsets", 1)?;
    if send(b, &producer, &stale).is_err() {
        drop(producer.abort_transaction(CALL));
        return Ok(());
    }
    producer.commit_transaction(CALL)?;
    broken("offsets of an earlier generation were accepted")
}

/// A producer with an open transaction and the metadata of a group without members.
fn outside(b: &Bench, group: &str) -> Result<(Producing, ConsumerGroupMetadata), Trouble> {
    let consumer = b.consumer(group, "read_committed", &[])?;
    let metadata = metadata(&consumer)?;
    let producer = b.opened(group, TIMEOUT)?;
    b.send(&producer, "offsets", 1)?;
    Ok((producer, metadata))
}

fn metadata(consumer: &Consuming) -> Result<ConsumerGroupMetadata, Trouble> {
    consumer.group_metadata().ok_or_else(|| unknown("the client has no group metadata"))
}

fn send(b: &Bench, producer: &Producing, group: &ConsumerGroupMetadata) -> Verdict {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&b.name("offsets"), 0, Offset::Offset(NEXT))?;
    Ok(producer.send_offsets_to_transaction(&list, group, CALL)?)
}

/// The group's committed offset, read by a client that has not seen it before.
fn committed(b: &Bench, group: &str) -> Result<Option<i64>, Trouble> {
    let mut list = TopicPartitionList::new();
    list.add_partition(&b.name("offsets"), 0);
    let consumer = b.consumer(group, "read_committed", &[])?;
    let found = b.ask(|| consumer.committed_offsets(list.clone(), CALL))?;
    let offset = found.find_partition(&b.name("offsets"), 0).map(|p| p.offset());
    Ok(match offset {
        Some(Offset::Offset(n)) => Some(n),
        _ => None,
    })
}
