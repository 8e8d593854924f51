//! `roof`: the same records through librdkafka alone, as the ceiling of a race.
#![allow(clippy::disallowed_methods)] // blocking calls on the one thread there is

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{BorrowedMessage, Header, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _};
use rdkafka::topic_partition_list::Offset;
use serde::Serialize;

use crate::cpu;
use crate::error::{Doing, Error, Result};
use crate::kafka::{CALL, Counted, drain, pair, producer, send, unique};
use crate::out::{Out, Progress, median, rate};
use crate::read::{Isolation, Pending, Polled, assign, bounds, consumer};

const POLL: Duration = Duration::from_millis(10);

/// Move a topic through a raw transactional librdkafka loop: the roof of the race
///
/// Reads the input topic to its end. For each input it writes the value to <prefix>committed-memory and
/// a record of --decision-bytes to <prefix>decisions, same partition; for each transaction and touched
/// partition one record of --changelog-bytes to <prefix>memsluice-changelog. The topics must exist.
/// Sizes come from `describe-outputs`; client settings are memsluice's (linger 5 ms, lz4).
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  load-tests --json roof --bootstrap 127.0.0.1:19092 --in t1.memory-writes --prefix roof. \\\n    \
    --header-bytes 400 --decision-bytes 1100 --changelog-bytes 300"
)]
pub(crate) struct Args {
    /// Bootstrap servers, host:port[,...]
    #[arg(long)]
    bootstrap: String,
    /// Full name of the input topic
    #[arg(long = "in", value_name = "TOPIC")]
    input: String,
    /// In front of the output topics
    #[arg(long)]
    prefix: String,
    /// Headers of a committed record, names and values, bytes
    #[arg(long)]
    header_bytes: usize,
    /// Number of those headers
    #[arg(long, default_value_t = 11)]
    header_count: usize,
    /// Key and value of a decision, bytes
    #[arg(long)]
    decision_bytes: usize,
    /// Headers of a decision, bytes
    #[arg(long, default_value_t = 0)]
    decision_header_bytes: usize,
    /// Key of both records, bytes; 0 keeps the input's key
    #[arg(long, default_value_t = 0)]
    key_bytes: usize,
    /// One changelog record for each partition and transaction, bytes; 0 for none
    #[arg(long, default_value_t = 0)]
    changelog_bytes: usize,
    /// Time between commits, milliseconds
    #[arg(long, default_value_t = 100)]
    commit_ms: u64,
    /// A setting of the producer; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    settings: Vec<(String, String)>,
    /// A setting of the consumer; may be repeated
    #[arg(long = "consumer-set", value_name = "NAME=VALUE", value_parser = pair)]
    consumer_settings: Vec<(String, String)>,
}

/// Result.
#[derive(Debug, Serialize)]
struct Report {
    records: u64,
    seconds: f64,
    records_per_s: f64,
    /// Input values, decimal megabytes.
    megabytes_per_s: f64,
    cpu_us_per_record: f64,
    transactions: usize,
    commit_median_ms: Option<f64>,
    /// Part of the time spent in commits.
    commit_share: f64,
}

/// Bytes that are the same for every record.
#[derive(Debug)]
struct Template {
    committed: String,
    decisions: String,
    changelog: String,
    headers: OwnedHeaders,
    decision_headers: OwnedHeaders,
    key: Option<Vec<u8>>,
    decision: Vec<u8>,
    /// Bytes that lz4 can't shorten: a third of each decision comes from here.
    pool: Vec<u8>,
    change: Vec<u8>,
}

/// More than the 64 KiB that lz4 looks back.
const POOL: usize = 1 << 20;

struct Roof<'a> {
    args: &'a Args,
    template: Template,
    consumer: BaseConsumer,
    producer: Counted,
    /// Next offset of each partition in the open transaction.
    next: BTreeMap<i32, i64>,
    opened: Instant,
    commits: Vec<f64>,
    records: u64,
    bytes: u64,
}

/// Runs it.
pub(crate) fn run(args: &Args, out: &Out) -> Result<bool> {
    let bounds = bounds(&args.bootstrap, &args.input)?;
    let consumer = consumer(&args.bootstrap, Isolation::Committed, &args.consumer_settings)?;
    let producer = producer(&args.bootstrap, Some(&unique("roof")), &args.settings)?;
    let mut roof = Roof {
        args,
        template: Template::new(args),
        consumer,
        producer,
        next: BTreeMap::new(),
        opened: Instant::now(),
        commits: Vec::new(),
        records: 0,
        bytes: 0,
    };
    let (started, cpu) = (Instant::now(), cpu::micros()?);
    assign(&roof.consumer, &args.input, &bounds)?;
    roof.all(&mut Pending::new(&bounds), &mut out.progress("roof", None))?;
    let report = roof.report(started.elapsed(), cpu::micros()?.saturating_sub(cpu));
    out.result(&report, || text(&report))?;
    if report.records == 0 { Err(Error::Input(format!("{} is empty", args.input))) } else { Ok(true) }
}

impl Template {
    fn new(args: &Args) -> Self {
        let name = |topic: &str| format!("{}{topic}", args.prefix);
        // The decision's key is in its size.
        let key = (args.key_bytes > 0).then(|| vec![b'k'; args.key_bytes]);
        Self {
            committed: name("committed-memory"),
            decisions: name("decisions"),
            changelog: name("memsluice-changelog"),
            headers: headers(args.header_bytes, args.header_count),
            decision_headers: headers(args.decision_header_bytes, 6),
            key,
            decision: filler(args.decision_bytes),
            pool: filler(POOL + args.decision_bytes),
            change: filler(args.changelog_bytes.saturating_sub(4)),
        }
    }

    /// Makes the decision of record `n`: hashes and ids differ between decisions, field names don't.
    fn stamp(&mut self, n: u64) {
        let own = self.decision.len() / 3;
        let at = usize::try_from(n).unwrap_or(0).wrapping_mul(own) % POOL;
        let start = self.decision.len() - own;
        if let (Some(to), Some(from)) = (self.decision.get_mut(start..), self.pool.get(at..at + own)) {
            to.copy_from_slice(from);
        }
    }
}

/// Hex digits without pattern.
fn filler(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut made = Vec::with_capacity(bytes + 16);
    while made.len() < bytes {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        made.extend_from_slice(format!("{:016x}", state ^ (state >> 32)).as_bytes());
    }
    made.truncate(bytes);
    made
}

/// `count` headers whose names and values have `bytes` bytes together.
fn headers(bytes: usize, count: usize) -> OwnedHeaders {
    let mut made = OwnedHeaders::new_with_capacity(count);
    let count = if bytes == 0 { 0 } else { count.max(1) };
    for i in 0..count {
        let share = bytes / count + usize::from(i < bytes % count);
        let name = "n".repeat(share.div_ceil(3).min(20));
        let value = filler(share - name.len());
        made = made.insert(Header { key: &name, value: Some(&value) });
    }
    made
}

impl Roof<'_> {
    fn all(&mut self, pending: &mut Pending, progress: &mut Progress) -> Result<()> {
        let interval = Duration::from_millis(self.args.commit_ms);
        while !pending.done() {
            let polled = pending.poll(&self.consumer, &self.args.input, POLL)?;
            if let Polled::Record(message) = polled {
                if self.next.is_empty() {
                    self.producer.begin_transaction().doing("begin_transaction")?;
                    self.opened = Instant::now();
                }
                self.template.stamp(self.records);
                forward(&self.template, &self.producer, &message)?;
                self.next.insert(message.partition(), message.offset() + 1);
                self.records += 1;
                self.bytes += message.payload_len() as u64;
                progress.step();
            }
            self.producer.poll(Duration::ZERO);
            if !self.next.is_empty() && self.opened.elapsed() >= interval {
                self.commit()?;
            }
        }
        if self.next.is_empty() { Ok(()) } else { self.commit() }
    }

    fn commit(&mut self) -> Result<()> {
        let started = Instant::now();
        let mut offsets = TopicPartitionList::new();
        for (&partition, &next) in &self.next {
            offsets.add_partition_offset(&self.args.input, partition, Offset::Offset(next)).doing("listing offsets")?;
            if self.args.changelog_bytes > 0 {
                let record = BaseRecord::to(&self.template.changelog).partition(partition).key("head");
                send(&self.producer, record.payload(&self.template.change))?;
            }
        }
        let group =
            self.consumer.group_metadata().ok_or_else(|| Error::Input("the consumer has no group".to_owned()))?;
        self.producer.send_offsets_to_transaction(&offsets, &group, CALL).doing("sendOffsetsToTransaction")?;
        drain(&self.producer)?;
        self.producer.commit_transaction(CALL).doing("commit_transaction")?;
        self.next.clear();
        self.commits.push(started.elapsed().as_secs_f64() * 1000.0);
        Ok(())
    }

    #[allow(clippy::cast_precision_loss)] // counts stay far below 2^53
    fn report(&self, time: Duration, cpu: u64) -> Report {
        let seconds = time.as_secs_f64();
        Report {
            records: self.records,
            seconds,
            records_per_s: rate(self.records, time),
            megabytes_per_s: rate(self.bytes, time) / 1e6,
            cpu_us_per_record: cpu as f64 / self.records.max(1) as f64,
            transactions: self.commits.len(),
            commit_median_ms: median(&self.commits),
            commit_share: if seconds > 0.0 { self.commits.iter().sum::<f64>() / 1000.0 / seconds } else { 0.0 },
        }
    }
}

/// Sends what one input becomes.
fn forward(template: &Template, producer: &Counted, message: &BorrowedMessage<'_>) -> Result<()> {
    let (partition, value) = (message.partition(), message.payload().unwrap_or_default());
    let key = template.key.as_deref().unwrap_or_else(|| message.key().unwrap_or_default());
    let record = BaseRecord::to(&template.committed).partition(partition).key(key).payload(value);
    send(producer, record.headers(template.headers.clone()))?;
    let rest = template.decision.get(key.len()..).unwrap_or_default();
    let record = BaseRecord::to(&template.decisions).partition(partition).key(key).payload(rest);
    send(producer, record.headers(template.decision_headers.clone()))
}

fn text(report: &Report) -> String {
    let commit = report.commit_median_ms.unwrap_or(0.0);
    format!(
        "{} records in {:.2} s: {:.0}/s, {:.1} MB/s, {:.2} us CPU a record; {} transactions, median commit {commit:.1} ms, {:.0} % of the time",
        report.records,
        report.seconds,
        report.records_per_s,
        report.megabytes_per_s,
        report.cpu_us_per_record,
        report.transactions,
        report.commit_share * 100.0
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use rdkafka::message::Headers as _;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn headers_have_the_bytes_asked_for() {
        for (bytes, count) in [(400, 11), (7, 3), (0, 5), (100, 0)] {
            let made = headers(bytes, count);
            let sum: usize = made.iter().map(|h| h.key.len() + h.value.map_or(0, <[u8]>::len)).sum();
            assert_eq!(sum, bytes);
        }
        assert_eq!(headers(400, 11).count(), 11);
        assert_eq!(filler(33).len(), 33);
    }

    #[test]
    fn a_third_of_each_decision_is_its_own() {
        let text = ["x", "--bootstrap=b", "--in=i", "--prefix=p", "--header-bytes=0", "--decision-bytes=300"];
        let mut template = Template::new(&Line::parse_from(text).args);
        let first = template.decision.clone();
        template.stamp(5);
        assert_eq!(first[..200], template.decision[..200]);
        let second = template.decision.clone();
        template.stamp(6);
        assert_ne!(second[200..], template.decision[200..]);
    }
}
