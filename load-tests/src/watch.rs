//! `watch`: tells when a topic's partitions get new committed records, and `behind`: how far a group is from
//! the end of its inputs. For `restore-race`; hidden.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use rdkafka::message::Message as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::error::{Doing, Error, Result};
use crate::out::Out;
use crate::read::{Isolation, bounds, consumer};
use crate::soak::settle;

/// Print a line when a topic has its first new committed record, and one when each partition has one
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  load-tests watch --bootstrap 127.0.0.1:19092 --topic decisions")]
pub(crate) struct Args {
    /// Bootstrap servers, host:port[,...]
    #[arg(long)]
    bootstrap: String,
    /// Full name of the topic
    #[arg(long)]
    topic: String,
    /// Give up after this long, seconds
    #[arg(long, default_value_t = 600)]
    limit: u64,
}

/// Print how many records a group has not taken yet
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  load-tests behind --bootstrap 127.0.0.1:19092 --group memsluice --topic retrieval-logs"
)]
pub(crate) struct BehindArgs {
    /// Bootstrap servers, host:port[,...]
    #[arg(long)]
    bootstrap: String,
    /// Group
    #[arg(long)]
    group: String,
    /// Full name of an input topic; may be repeated
    #[arg(long)]
    topic: Vec<String>,
}

/// Runs `watch`.
pub(crate) fn run(args: &Args, out: &Out) -> Result<bool> {
    let bounds = bounds(&args.bootstrap, &args.topic)?;
    let consumer =
        consumer(&args.bootstrap, Isolation::Committed, &[("fetch.wait.max.ms".to_owned(), "10".to_owned())])?;
    let mut list = TopicPartitionList::new();
    for (&partition, b) in &bounds {
        list.add_partition_offset(&args.topic, partition, Offset::Offset(b.high)).doing("listing partitions")?;
    }
    consumer.assign(&list).doing("assigning")?;
    let mut waiting: BTreeSet<i32> = bounds.keys().copied().collect();
    let all = waiting.len();
    let began = Instant::now();
    out.result(&"ready", || "ready".to_owned())?;
    while !waiting.is_empty() {
        if began.elapsed() > Duration::from_secs(args.limit) {
            return Err(Error::Stalled(format!("no new record in partitions {waiting:?}")));
        }
        let Some(Ok(message)) = consumer.poll(Duration::from_millis(5)) else { continue };
        if waiting.len() == all {
            out.result(&"first", || "first".to_owned())?;
        }
        waiting.remove(&message.partition());
    }
    out.result(&"all", || "all".to_owned())?;
    Ok(true)
}

/// Runs `behind`.
pub(crate) fn behind(args: &BehindArgs, out: &Out) -> Result<bool> {
    let count = settle::behind(&args.bootstrap, &args.group, &args.topic)?;
    out.result(&count, || count.to_string())?;
    Ok(true)
}
