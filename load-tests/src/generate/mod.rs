//! `generate`: seeded load.

pub(crate) mod rng;
pub(crate) mod text;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{Error, Result};
use crate::generate::rng::Rng;
use crate::generate::text::{direction, sentences, vector};
use crate::murmur2::partition;
use crate::out::Out;
use crate::time::{millis, rfc3339};

const TENANT: &str = "load";
/// Queries and calibration writes end before the writes begin, milliseconds.
const QUERIES_BEFORE: i64 = 24 * 3_600_000;
const CALIBRATION_BEFORE: i64 = 12 * 3_600_000;
/// Length of a query, bytes.
const QUERY_BYTES: usize = 60;
/// Queries of a session in each boundary.
const SESSION_QUERIES: i64 = 10;

/// Make seeded writes (and queries, and calibration writes) with text and vector
///
/// The same arguments give the same bytes everywhere. Boundaries are named so that murmur2 spreads them
/// evenly over the partitions. Times are 1 ms apart; queries lie a day and calibration writes half a day
/// before the writes. Times in the past fall to retention: give the test's input topics retention.ms=-1.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  load-tests generate --count 200000 --out w.jsonl --queries 600 --queries-out q.jsonl --calibration 300"
)]
pub(crate) struct Args {
    /// Writes
    #[arg(long)]
    count: u64,
    /// File of the writes
    #[arg(long)]
    out: PathBuf,
    /// Boundaries (tenant/store)
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    boundaries: u32,
    /// Partitions that the boundaries are spread over
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=4096))]
    partitions: u32,
    /// Length of each content, bytes
    #[arg(long, default_value_t = 1024)]
    content_bytes: usize,
    /// Seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Time of the first write, RFC 3339
    #[arg(long, default_value = "2026-06-01T00:00:00Z")]
    start: String,
    /// Retrieval events
    #[arg(long, default_value_t = 0)]
    queries: u64,
    /// File of the retrieval events [default: <out>.queries.jsonl]
    #[arg(long)]
    queries_out: Option<PathBuf>,
    /// Further writes of the same kind, to calibrate on
    #[arg(long, default_value_t = 0)]
    calibration: u64,
    /// File of the calibration writes [default: <out>.calibration.jsonl]
    #[arg(long)]
    calibration_out: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Embedding {
    i16: String,
}

#[derive(Debug, Serialize)]
struct Write<'a> {
    tenant: &'a str,
    store: &'a str,
    record_id: String,
    op: &'a str,
    content: String,
    origin: &'a str,
    principal: String,
    session_id: String,
    created_at: String,
    embedding: Embedding,
}

#[derive(Debug, Serialize)]
struct Query<'a> {
    tenant: &'a str,
    store: &'a str,
    event_id: String,
    session_id: String,
    principal: String,
    results: Vec<Found>,
    query: String,
    query_embedding: Embedding,
    at: String,
}

#[derive(Debug, Serialize)]
struct Found {
    id: String,
}

#[derive(Debug)]
struct Boundary {
    store: String,
    centre: Vec<f64>,
}

/// Result.
#[derive(Debug, Serialize)]
struct Report {
    writes: u64,
    queries: u64,
    calibration: u64,
    boundaries: Vec<String>,
    /// Mean length of a write, bytes.
    bytes_per_write: u64,
}

/// Runs it.
pub(crate) fn run(args: &Args, out: &Out) -> Result<bool> {
    let start =
        millis(&args.start).ok_or_else(|| Error::Input(format!("--start: '{}' is no RFC 3339 time", args.start)))?;
    if args.content_bytes < 2 {
        return Err(Error::Input("--content-bytes: at least 2".to_owned()));
    }
    let boundaries = boundaries(args);
    let bytes = file(
        &args.out,
        "writing writes",
        args.count,
        out,
        |i, rng| write(args, &boundaries, i, start + i, "g", rng),
        Rng::new(args.seed, 1),
    )?;
    if args.calibration > 0 {
        let at = start - CALIBRATION_BEFORE;
        let path = beside(&args.out, args.calibration_out.as_ref(), "calibration");
        file(
            &path,
            "writing calibration writes",
            args.calibration,
            out,
            |i, rng| write(args, &boundaries, i, at + i, "c", rng),
            Rng::new(args.seed, 2),
        )?;
    }
    if args.queries > 0 {
        let at = start - QUERIES_BEFORE;
        let path = beside(&args.out, args.queries_out.as_ref(), "queries");
        file(
            &path,
            "writing queries",
            args.queries,
            out,
            |i, rng| query(args, &boundaries, i, at + i, rng),
            Rng::new(args.seed, 3),
        )?;
    }
    let names = boundaries.iter().map(|b| format!("{TENANT}/{}", b.store)).collect();
    let bytes_per_write = bytes.checked_div(args.count).unwrap_or(0);
    let report = Report {
        writes: args.count,
        queries: args.queries,
        calibration: args.calibration,
        boundaries: names,
        bytes_per_write,
    };
    out.result(&report, || {
        let Report { writes, queries, calibration, .. } = &report;
        format!(
            "{writes} writes of {bytes_per_write} bytes, {queries} queries, {calibration} calibration writes; {}",
            report.boundaries.join(" ")
        )
    })?;
    Ok(true)
}

/// `<out without .jsonl>.<what>.jsonl` unless a path is given.
fn beside(out: &Path, given: Option<&PathBuf>, what: &str) -> PathBuf {
    given.cloned().unwrap_or_else(|| out.with_extension(format!("{what}.jsonl")))
}

/// Boundary i gets a name that lands in partition i mod `partitions`.
fn boundaries(args: &Args) -> Vec<Boundary> {
    let mut rng = Rng::new(args.seed, 0);
    let make = |i| Boundary { store: store(TENANT, i, args.partitions), centre: direction(&mut rng) };
    (0..args.boundaries).map(make).collect()
}

/// Name of store i of a tenant, such that their boundary lands in partition i mod `partitions`.
pub(crate) fn store(tenant: &str, i: u32, partitions: u32) -> String {
    let fits = |store: &String| partition(format!("{tenant}/{store}").as_bytes(), partitions) == i % partitions;
    (0_u32..).map(|n| format!("b{i}-{n}")).find(fits).unwrap_or_default()
}

/// Writes `count` lines; returns their bytes without line ends.
fn file<T, F>(path: &Path, what: &str, count: u64, out: &Out, mut make: F, mut rng: Rng) -> Result<u64>
where
    T: Serialize,
    F: FnMut(i64, &mut Rng) -> Result<T>,
{
    let mut sink = BufWriter::new(File::create(path).map_err(|e| Error::io("make", path, e))?);
    let mut progress = out.progress(what, Some(count));
    let mut bytes = 0;
    for i in 0..i64::try_from(count).unwrap_or(i64::MAX) {
        let mut line =
            serde_json::to_vec(&make(i, &mut rng)?).map_err(|e| Error::json("a line can't be written", e))?;
        bytes += line.len() as u64;
        line.push(b'\n');
        sink.write_all(&line).map_err(|e| Error::io("write to", path, e))?;
        progress.step();
    }
    sink.flush().map_err(|e| Error::io("write to", path, e))?;
    Ok(bytes)
}

fn time(ms: i64) -> Result<String> {
    rfc3339(ms).ok_or_else(|| Error::Input("the times leave the calendar".to_owned()))
}

fn chosen(boundaries: &[Boundary], i: i64) -> Result<&Boundary> {
    let index = usize::try_from(i).unwrap_or(0) % boundaries.len().max(1);
    boundaries.get(index).ok_or_else(|| Error::Input("there is no boundary".to_owned()))
}

fn write<'a>(args: &Args, boundaries: &'a [Boundary], i: i64, at: i64, kind: &str, rng: &mut Rng) -> Result<Write<'a>> {
    let boundary = chosen(boundaries, i)?;
    Ok(Write {
        tenant: TENANT,
        store: &boundary.store,
        record_id: format!("{kind}-{}-{i:08}", args.seed),
        op: "create",
        content: sentences(rng, args.content_bytes),
        origin: "user_input",
        principal: format!("u-{}", rng.below(200)),
        session_id: format!("s-{}", i / 50),
        created_at: time(at)?,
        embedding: Embedding { i16: vector(rng, &boundary.centre) },
    })
}

fn query<'a>(args: &Args, boundaries: &'a [Boundary], i: i64, at: i64, rng: &mut Rng) -> Result<Query<'a>> {
    let boundary = chosen(boundaries, i)?;
    let session = i / (SESSION_QUERIES * i64::try_from(boundaries.len()).unwrap_or(1));
    Ok(Query {
        tenant: TENANT,
        store: &boundary.store,
        event_id: format!("q-{}-{i:08}", args.seed),
        session_id: format!("qs-{session}"),
        principal: format!("u-{}", rng.below(200)),
        results: results(session, rng),
        query: sentences(rng, QUERY_BYTES).replace('.', "?"),
        query_embedding: Embedding { i16: vector(rng, &boundary.centre) },
        at: time(at)?,
    })
}

/// Five of the records k-10 to k-39 of the store; every fifth session sweeps k-0 to k-9, which tests make honeypots.
fn results(session: i64, rng: &mut Rng) -> Vec<Found> {
    let first = if session % 5 == 0 { rng.below(10) } else { 10 + rng.below(30) };
    let others: Vec<usize> = (0..4).map(|_| 10 + rng.below(30)).collect();
    std::iter::once(first).chain(others).map(|n| Found { id: format!("k-{n}") }).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(text: &str) -> Args {
        Line::parse_from(text.split(' ')).args
    }

    #[test]
    fn boundaries_cover_the_partitions() {
        let args = args("x --count 1 --out o --boundaries 8 --partitions 6");
        let at = |b: &Boundary| partition(format!("{TENANT}/{}", b.store).as_bytes(), 6);
        assert_eq!(boundaries(&args).iter().map(at).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 0, 1]);
    }

    #[test]
    fn the_same_seed_gives_the_same_line() {
        let args = args("x --count 1 --out o --content-bytes 40");
        let boundaries = boundaries(&args);
        let line = |seed| {
            serde_json::to_string(&write(&args, &boundaries, 0, 0, "g", &mut Rng::new(seed, 1)).unwrap()).unwrap()
        };
        assert_eq!(line(1), line(1));
        assert_ne!(line(1), line(2));
    }

    #[test]
    fn files_lie_beside_the_first() {
        assert_eq!(beside(Path::new("/t/w.jsonl"), None, "queries"), Path::new("/t/w.queries.jsonl"));
        assert_eq!(beside(Path::new("w.jsonl"), Some(&PathBuf::from("q")), "queries"), Path::new("q"));
    }
}
