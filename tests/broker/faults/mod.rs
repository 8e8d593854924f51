//! Faults with a defined outcome each (`docs/faults.md`). Every run that goes on is checked by
//! `load-tests verify`.

mod brokers;
mod encoder;
mod machine;
mod topics;

use std::time::Duration;

use memsluice::source::Client;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};

use crate::support::Bench;

/// Long tests run in tier `full` alone.
fn full(what: &str) -> bool {
    let full = std::env::var("MEMSLUICE_TEST_TIER").is_ok_and(|t| t == "full");
    if !full {
        eprintln!("skipped: {what} runs in tier full");
    }
    full
}

/// A transaction of somebody else on one partition, left open.
fn open_transaction(client: &Client, id: &str, topic: &str, partition: i32) -> BaseProducer {
    let mut config = client.clone();
    config.set("transactional.id", id).set("transaction.timeout.ms", "600000");
    let producer: BaseProducer = config.create().unwrap();
    let call = Duration::from_secs(30);
    producer.init_transactions(call).unwrap();
    producer.begin_transaction().unwrap();
    let record: BaseRecord<'_, str, str> = BaseRecord::to(topic).partition(partition).key("k").payload("{}");
    producer.send(record).map_err(|(e, _)| e).unwrap();
    producer.flush(call).unwrap();
    producer
}

/// The same with a committed offset of a group, which it hides until it ends.
fn open_offsets(bench: &Bench, partition: i32) -> BaseProducer {
    let mut config = bench.client();
    config.set("group.id", format!("{}group", bench.prefix()));
    let outsider: BaseConsumer = config.create().unwrap();
    let topic = bench.topic("foreign");
    let producer = open_transaction(&bench.client(), &topic, &bench.topic("attacks"), 0);
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&bench.topic("memory-writes"), partition, Offset::Offset(1)).unwrap();
    let group = outsider.group_metadata().unwrap();
    producer.send_offsets_to_transaction(&list, &group, Duration::from_secs(30)).unwrap();
    producer
}
