//! `commit-latency`: what the drain loop saves a small transaction.
#![allow(clippy::disallowed_methods)] // the calls that memsluice forbids are what is measured

use std::thread::sleep;
use std::time::{Duration, Instant};

use rdkafka::producer::{BaseRecord, Producer as _};
use serde::Serialize;

use crate::error::{Doing, Result};
use crate::kafka::{CALL, Counted, drain, pair, producer, send, unique};
use crate::out::{Out, median};

/// Median time of a small transaction, library default against drain loop
///
/// One producer, one record a transaction, the two ways in turn (A B B A). Timed from the send to the end
/// of commit_transaction.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  load-tests --json commit-latency --bootstrap 127.0.0.1:19092 --topic latency-test --n 50"
)]
pub(crate) struct Args {
    /// Bootstrap servers, host:port[,...]
    #[arg(long)]
    bootstrap: String,
    /// Topic that gets the records
    #[arg(long)]
    topic: String,
    /// Transactions of each way
    #[arg(long, default_value_t = 50)]
    n: usize,
    /// Rest between two transactions, milliseconds, so that the broker has finished the last one
    #[arg(long, default_value_t = 20)]
    pause_ms: u64,
    /// A setting of the producer; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    settings: Vec<(String, String)>,
}

/// Result, milliseconds.
#[derive(Debug, Serialize)]
struct Report {
    n: usize,
    default_median_ms: f64,
    drained_median_ms: f64,
    default_range_ms: [f64; 2],
    drained_range_ms: [f64; 2],
    /// Default over drained.
    ratio: f64,
}

/// Runs it.
pub(crate) fn run(args: &Args, out: &Out) -> Result<bool> {
    let producer = producer(&args.bootstrap, Some(&unique("latency")), &args.settings)?;
    let pause = Duration::from_millis(args.pause_ms);
    let mut times = [Vec::new(), Vec::new()];
    let mut progress = out.progress("transactions", Some(2 * args.n as u64));
    one(&producer, &args.topic, true)?; // warms connections and metadata
    for i in 0..args.n {
        for drained in if i % 2 == 0 { [false, true] } else { [true, false] } {
            sleep(pause);
            times[usize::from(drained)].push(one(&producer, &args.topic, drained)?);
            progress.step();
        }
    }
    let report = report(args.n, &times);
    out.result(&report, || {
        let Report { default_median_ms: slow, drained_median_ms: fast, ratio, .. } = &report;
        format!("library default {slow:.2} ms, drain loop {fast:.2} ms, ratio {ratio:.1} (medians of {})", args.n)
    })?;
    Ok(true)
}

/// One transaction of one record; milliseconds.
fn one(producer: &Counted, topic: &str, drained: bool) -> Result<f64> {
    producer.begin_transaction().doing("begin_transaction")?;
    let started = Instant::now();
    send(producer, BaseRecord::to(topic).key("k").payload("v"))?;
    if drained {
        drain(producer)?;
    }
    producer.commit_transaction(CALL).doing("commit_transaction")?;
    let time = started.elapsed();
    producer.context().check()?;
    Ok(time.as_secs_f64() * 1000.0)
}

fn report(n: usize, [default, drained]: &[Vec<f64>; 2]) -> Report {
    let range = |v: &[f64]| [v.iter().copied().fold(f64::INFINITY, f64::min), v.iter().copied().fold(0.0, f64::max)];
    let (slow, fast) = (median(default).unwrap_or(0.0), median(drained).unwrap_or(0.0));
    Report {
        n,
        default_median_ms: slow,
        drained_median_ms: fast,
        default_range_ms: range(default),
        drained_range_ms: range(drained),
        ratio: if fast > 0.0 { slow / fast } else { 0.0 },
    }
}
