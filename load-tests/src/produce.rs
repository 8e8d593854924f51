//! `produce`: a file of records to a topic.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rdkafka::producer::BaseRecord;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::kafka::{Counted, drain, pair, producer, send};
use crate::out::{Out, rate};
use crate::time::millis;

/// Send each line of a file as one record
///
/// Key: tenant/store of the JSON, or --key with --raw. Partition: murmur2 of the key. Time: created_at or
/// at, as CreateTime. The producer is idempotent and has memsluice's settings (linger 5 ms, lz4).
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  load-tests produce --bootstrap 127.0.0.1:19092 --topic memory-writes --file /tmp/writes.jsonl\n  \
    load-tests produce --bootstrap 127.0.0.1:19092 --topic memory-writes --file bad.txt --raw --key acme/support"
)]
pub(crate) struct Args {
    /// Bootstrap servers, host:port[,...]
    #[arg(long)]
    bootstrap: String,
    /// Full name of the topic
    #[arg(long)]
    topic: String,
    /// JSON Lines, or any lines with --raw
    #[arg(long)]
    file: PathBuf,
    /// Which field is the time; without it, whichever is there
    #[arg(long)]
    kind: Option<Kind>,
    /// Send the bytes of the line as they are; needs --key
    #[arg(long, requires = "key")]
    raw: bool,
    /// Key of raw records
    #[arg(long, requires = "raw")]
    key: Option<String>,
    /// A setting of the producer; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    settings: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Kind {
    Write,
    Retrieval,
}

/// What is read of a line.
#[derive(Debug, Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    tenant: Cow<'a, str>,
    #[serde(borrow)]
    store: Cow<'a, str>,
    #[serde(borrow)]
    created_at: Option<Cow<'a, str>>,
    #[serde(borrow)]
    at: Option<Cow<'a, str>>,
}

/// Result.
#[derive(Debug, Serialize)]
struct Report {
    records: u64,
    /// Records without a time of their own: they got the time of sending.
    unstamped: u64,
    bytes: u64,
    seconds: f64,
    records_per_s: f64,
}

/// Runs it.
pub(crate) fn run(args: &Args, out: &Out) -> Result<bool> {
    let producer = producer(&args.bootstrap, None, &args.settings)?;
    let mut input = BufReader::new(File::open(&args.file).map_err(|e| Error::io("open", &args.file, e))?);
    let mut progress = out.progress(&format!("producing to {}", args.topic), None);
    let (mut report, started) =
        (Report { records: 0, unstamped: 0, bytes: 0, seconds: 0.0, records_per_s: 0.0 }, Instant::now());
    let (mut line, mut number) = (Vec::new(), 0_u64);
    while next(&mut input, &mut line, &args.file)? {
        number += 1;
        if line.is_empty() {
            continue;
        }
        let (key, time) = if args.raw {
            (args.key.clone().unwrap_or_default(), None)
        } else {
            addressed(&line, args.kind).map_err(|e| Error::json(format!("{} line {number}", args.file.display()), e))?
        };
        one(&producer, &args.topic, &key, &line, time)?;
        report.bytes += line.len() as u64;
        report.unstamped += u64::from(time.is_none());
        progress.step();
    }
    drain(&producer)?;
    report.records = producer_count(&producer);
    finish(&mut report, started.elapsed());
    out.result(&report, || {
        let Report { records, unstamped, seconds, records_per_s, .. } = &report;
        format!(
            "{records} records to {} in {seconds:.2} s, {records_per_s:.0}/s; {unstamped} without a time",
            args.topic
        )
    })?;
    Ok(true)
}

fn producer_count(producer: &Counted) -> u64 {
    use rdkafka::producer::Producer as _;
    producer.context().delivered()
}

fn finish(report: &mut Report, time: Duration) {
    report.seconds = time.as_secs_f64();
    report.records_per_s = rate(report.records, time);
}

/// Reads the next line without its end; false at the end of the file.
fn next(input: &mut BufReader<File>, line: &mut Vec<u8>, path: &Path) -> Result<bool> {
    line.clear();
    let read = input.read_until(b'\n', line).map_err(|e| Error::io("read", path, e))?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(read > 0)
}

/// Key and time (milliseconds) of a JSON line.
fn addressed(line: &[u8], kind: Option<Kind>) -> std::result::Result<(String, Option<i64>), serde_json::Error> {
    let record: Line<'_> = serde_json::from_slice(line)?;
    let time = match kind {
        Some(Kind::Write) => record.created_at,
        Some(Kind::Retrieval) => record.at,
        None => record.created_at.or(record.at),
    };
    Ok((format!("{}/{}", record.tenant, record.store), time.as_deref().and_then(millis)))
}

fn one(producer: &Counted, topic: &str, key: &str, value: &[u8], time: Option<i64>) -> Result<()> {
    let mut record = BaseRecord::to(topic).key(key).payload(value);
    if let Some(time) = time {
        record = record.timestamp(time);
    }
    send(producer, record)?;
    producer.poll(Duration::ZERO);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_and_time() {
        let line = br#"{"tenant":"a","store":"b","at":"1970-01-01T00:00:01Z","x":1}"#;
        assert_eq!(addressed(line, None).unwrap(), ("a/b".to_owned(), Some(1000)));
        assert_eq!(addressed(line, Some(Kind::Write)).unwrap().1, None);
        assert!(addressed(br#"{"store":"b"}"#, None).is_err());
    }
}
