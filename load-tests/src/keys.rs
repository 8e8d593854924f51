//! `keys`: many keys for the state, for `restore-race`. Hidden.

use std::time::Duration;

use rdkafka::producer::BaseRecord;
use serde::Serialize;
use serde_json::json;

use crate::error::Result;
use crate::generate::store;
use crate::kafka::{drain, producer, send};
use crate::out::Out;

const TENANT: &str = "load";

/// Send records that each make a key in the state, or one probe to each partition
///
/// session: retrievals, each of a session of its own (two keys of memsluice's state). write: one allowed write to
/// each partition. plain and probe: the same for a peer that stores records as they are; a probe's value
/// begins with P.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  load-tests keys --bootstrap 127.0.0.1:19092 --topic retrieval-logs --kind session --count 500000"
)]
pub(crate) struct Args {
    /// Bootstrap servers, host:port[,...]
    #[arg(long)]
    bootstrap: String,
    /// Full name of the topic
    #[arg(long)]
    topic: String,
    /// What is sent
    #[arg(long)]
    kind: Kind,
    /// Records
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// Number of the first record
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Partitions of the topic
    #[arg(long, default_value_t = 6)]
    partitions: u32,
    /// Length of a plain key, bytes
    #[arg(long, default_value_t = 32)]
    key_bytes: usize,
    /// Length of a plain value, bytes
    #[arg(long, default_value_t = 32)]
    value_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Session,
    Write,
    Plain,
    Probe,
    /// Sends nothing: prints a honeypot for each boundary.
    Honeypots,
}

#[derive(Debug, Serialize)]
struct Report {
    sent: u64,
}

/// Runs it.
pub(crate) fn run(args: &Args, out: &Out) -> Result<bool> {
    let stores: Vec<String> = (0..args.partitions).map(|i| store(TENANT, i, args.partitions)).collect();
    if args.kind == Kind::Honeypots {
        let line = |s: &String| {
            json!({"tenant": TENANT, "store": s, "honeypot_id": format!("hp-{s}"), "record_id": "trap"}).to_string()
        };
        let lines: Vec<String> = stores.iter().map(line).collect();
        out.result(&lines, || lines.join("\n"))?;
        return Ok(true);
    }
    let probes = matches!(args.kind, Kind::Write | Kind::Probe);
    let count = if probes { u64::from(args.partitions) } else { args.count };
    let producer = producer(&args.bootstrap, None, &[])?;
    let mut progress = out.progress("keys", Some(count));
    for number in args.from..args.from + count {
        let partition = u32::try_from(number % u64::from(args.partitions)).unwrap_or(0);
        let (key, value) = record(args, number, &stores[partition as usize]);
        let to = BaseRecord::to(&args.topic).partition(partition.cast_signed()).key(&key).payload(&value);
        send(&producer, to)?;
        producer.poll(Duration::ZERO);
        progress.step();
    }
    drain(&producer)?;
    out.result(&Report { sent: count }, || format!("{count} records sent"))?;
    Ok(true)
}

fn record(args: &Args, number: u64, store: &str) -> (String, String) {
    let boundary = format!("{TENANT}/{store}");
    let width = args.key_bytes;
    let value = |first: char| format!("{first}{:0>width$}", number, width = args.value_bytes.saturating_sub(1));
    match args.kind {
        Kind::Session => (
            boundary,
            json!({"tenant": TENANT, "store": store, "event_id": format!("e-{number}"), "session_id": format!("k-{number:012}"),
                   "principal": "p", "results": [{"id": "m"}]})
            .to_string(),
        ),
        Kind::Write | Kind::Honeypots => (
            boundary,
            json!({"tenant": TENANT, "store": store, "record_id": format!("probe-{number}"), "op": "delete",
                   "origin": "user_input"})
            .to_string(),
        ),
        Kind::Plain => (format!("{number:0>width$}"), value('v')),
        Kind::Probe => (format!("p{number:0>width$}", width = width.saturating_sub(1)), value('P')),
    }
}
