//! What topics keep: headers, record times, compaction, the bound on record times.
#![allow(clippy::disallowed_methods)] // calls of throw-away clients, each with a deadline

use rdkafka::admin::{AdminOptions, ResourceSpecifier};
use rdkafka::consumer::Consumer;
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};

use super::bench::{ADMIN, Bench, CALL, time};
use super::{Verdict, broken, unknown};

/// Record times of the two records, ms.
const TIMES: [i64; 2] = [1_700_000_000_000, 1_700_000_060_000];

/// Headers and record times come back, offsets are found by time, and settings are taken.
pub(super) fn features(b: &Bench) -> Verdict {
    records(b)?;
    by_time(b)?;
    settings(b)
}

fn records(b: &Bench) -> Verdict {
    let topic = b.name("compacted");
    let producer = b.opened("compacted", CALL)?;
    for at in TIMES {
        let headers = OwnedHeaders::new()
            .insert(Header { key: "probe", value: Some("a") })
            .insert(Header { key: "probe", value: Some("b") })
            .insert(Header::<&str> { key: "null", value: None });
        let record: BaseRecord<'_, str, str> =
            BaseRecord::to(&topic).partition(0).key("k").payload("v").timestamp(at).headers(headers);
        producer.send(record).map_err(|(e, _)| e)?;
    }
    producer.flush(CALL)?;
    producer.commit_transaction(CALL)?;
    let seen = b.seen("compacted", "read_committed")?;
    // Compaction may have removed the first already.
    let Some(last) = seen.last() else { return broken("a committed record is not there") };
    if time(last) != Some(TIMES[1]) {
        return broken(format!("a record of time {} came back with {:?}", TIMES[1], last.timestamp()));
    }
    let headers: Vec<(&str, Option<&[u8]>)> =
        last.headers().map(|h| h.iter().map(|x| (x.key, x.value)).collect()).unwrap_or_default();
    let wanted = [("probe", Some(b"a".as_slice())), ("probe", Some(b"b".as_slice())), ("null", None)];
    if headers == wanted { Ok(()) } else { broken("headers came back changed") }
}

fn by_time(b: &Bench) -> Verdict {
    let topic = b.name("compacted");
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&topic, 0, Offset::Offset(TIMES[0] + 1))?;
    let consumer = b.consumer("reader", "read_committed", &[])?;
    let found = b.ask(|| consumer.offsets_for_times(list.clone(), CALL))?;
    match found.find_partition(&topic, 0).map(|p| p.offset()) {
        Some(Offset::Offset(1)) => Ok(()),
        other => broken(format!("the offset for a time is {other:?}, not 1")),
    }
}

fn settings(b: &Bench) -> Verdict {
    if b.asked() {
        return Err(unknown("the broker answers no admin requests"));
    }
    let (admin, runtime) = b.admin()?;
    let topic = b.name("compacted");
    let options = AdminOptions::new().request_timeout(Some(ADMIN));
    let answers = runtime.block_on(admin.describe_configs(&[ResourceSpecifier::Topic(&topic)], &options))?;
    let Some(Ok(resource)) = answers.into_iter().next() else {
        return Err(unknown("topic settings can't be read"));
    };
    for (key, wanted) in [("cleanup.policy", "compact"), ("message.timestamp.after.max.ms", "300000")] {
        let value = resource.get(key).and_then(|e| e.value.clone());
        if value.as_deref() != Some(wanted) {
            return broken(format!("{key} was set to {wanted} and is {value:?}"));
        }
    }
    Ok(())
}
