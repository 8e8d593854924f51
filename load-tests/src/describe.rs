//! `describe-outputs`: how big memsluice's records are, to feed `roof`.

use std::ops::ControlFlow;

use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use serde::Serialize;

use crate::error::Result;
use crate::out::{Out, columns};
use crate::read::{Isolation, Reader};

/// Mean sizes of the records on committed-memory, decisions and the changelog
///
/// Reads the first records of each topic. The last line holds the arguments for `roof`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  load-tests describe-outputs --bootstrap 127.0.0.1:19092 --prefix t1.")]
pub(crate) struct Args {
    /// Bootstrap servers, host:port[,...]
    #[arg(long)]
    bootstrap: String,
    /// In front of every topic name
    #[arg(long, default_value = "")]
    prefix: String,
    /// Topic of the allowed writes
    #[arg(long, default_value = "committed-memory")]
    committed: String,
    /// Topic of the decisions
    #[arg(long, default_value = "decisions")]
    decisions_topic: String,
    /// Topic of the state
    #[arg(long, default_value = "memsluice-changelog")]
    changelog: String,
    /// Records read of each topic
    #[arg(long, default_value_t = 1000)]
    records: u64,
}

/// Mean sizes of one topic; bytes a record.
#[derive(Debug, Default, Serialize)]
struct Sizes {
    topic: String,
    records: u64,
    key: f64,
    value: f64,
    headers: f64,
    headers_count: f64,
}

/// Result.
#[derive(Debug, Serialize)]
struct Report {
    topics: Vec<Sizes>,
    roof: String,
}

/// Runs it.
pub(crate) fn run(args: &Args, out: &Out) -> Result<bool> {
    let reader = Reader { bootstrap: &args.bootstrap, isolation: Isolation::Committed, out };
    let of = |topic: &str| sizes(&reader, &format!("{}{topic}", args.prefix), args.records);
    let (committed, decisions, changelog) = (of(&args.committed)?, of(&args.decisions_topic)?, of(&args.changelog)?);
    let roof = format!(
        "--key-bytes {:.0} --header-bytes {:.0} --header-count {:.0} --decision-bytes {:.0} --decision-header-bytes {:.0} --changelog-bytes {:.0}",
        committed.key,
        committed.headers,
        committed.headers_count,
        decisions.key + decisions.value,
        decisions.headers,
        changelog.key + changelog.value
    );
    let report = Report { topics: vec![committed, decisions, changelog], roof };
    out.result(&report, || text(&report))?;
    Ok(report.topics.iter().take(2).all(|t| t.records > 0))
}

fn sizes(reader: &Reader<'_>, topic: &str, limit: u64) -> Result<Sizes> {
    let mut sums = [0_usize; 4];
    let mut records = 0;
    let bounds = reader.bounds(topic)?;
    reader.read(topic, &bounds, |message| {
        for (sum, size) in sums.iter_mut().zip(size(message)) {
            *sum += size;
        }
        records += 1;
        Ok(if records >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    let [key, value, headers, headers_count] = sums.map(|sum| mean(sum, records));
    Ok(Sizes { topic: topic.to_owned(), records, key, value, headers, headers_count })
}

/// Bytes of key, value and headers (names and values), and how many headers.
fn size(message: &BorrowedMessage<'_>) -> [usize; 4] {
    let (mut bytes, mut count) = (0, 0);
    for header in message.headers().into_iter().flat_map(|h| h.iter()) {
        bytes += header.key.len() + header.value.map_or(0, <[u8]>::len);
        count += 1;
    }
    [message.key().map_or(0, <[u8]>::len), message.payload().map_or(0, <[u8]>::len), bytes, count]
}

#[allow(clippy::cast_precision_loss)] // a sum of bytes stays below 2^53
fn mean(sum: usize, records: u64) -> f64 {
    if records == 0 { 0.0 } else { sum as f64 / records as f64 }
}

fn text(report: &Report) -> String {
    let row = |s: &Sizes| {
        let mut row = vec![s.topic.clone(), s.records.to_string()];
        row.extend([s.key, s.value, s.headers, s.headers_count].map(|v| format!("{v:.1}")));
        row
    };
    let rows: Vec<Vec<String>> = report.topics.iter().map(row).collect();
    let table = columns(&["topic", "records", "key bytes", "value bytes", "header bytes", "headers"], &rows);
    format!("{table}\n{}", report.roof)
}
