//! `memsluice kernel race`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Format, out};
use crate::config::Config;
use crate::error::Result;
use crate::measure::Spread;
use crate::measure::hardened as measure;
use crate::measure::kernels::{self, Contenders, Plan, Row};
use crate::topology::Topology;

#[derive(Debug, Args)]
pub(super) struct KernelArgs {
    #[command(subcommand)]
    command: Which,
}

#[derive(Debug, Subcommand)]
enum Which {
    /// Time the scoring kernels of this machine side by side: microseconds a write.
    #[command(
        after_help = "Each row is a median over rounds in which all take turns, with the range of the rounds.\n'times first' is the time as a multiple of the first kernel's in the same round.\nFAISS gives the largest dot product alone; the kernels also give its row and the mean.\n\nExamples:\n  memsluice kernel race --windows 100,1000\n  MEMSLUICE__SCORE__FAISS=~/.cache/memsluice/faiss/1.15.1/faiss/libfaiss.so memsluice kernel race --approximate-from 10000\n  memsluice kernel race --device 0 --boundaries 1,64 --output json"
    )]
    Race(RaceArgs),
    /// Time a write in the hardened form: scores and certificate, and taking it into memory.
    #[command(
        after_help = "Unrelated random queries and 500 stored memories, by the kernel that `auto` takes; CPU time of one thread.\n\nExamples:\n  memsluice kernel hardened\n  memsluice kernel hardened --windows 100,1000 --output json"
    )]
    Hardened(HardenedArgs),
}

#[derive(Debug, Args)]
struct SampleArgs {
    /// Components of a vector
    #[arg(long, default_value_t = 384, value_parser = clap::value_parser!(u32).range(1..=4096))]
    dimension: u32,
    /// Rounds
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seed of the vectors
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How results are printed
    #[arg(long, value_enum, default_value = "table")]
    output: Format,
}

#[derive(Debug, Args)]
struct HardenedArgs {
    /// Queries in a window
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1000, 10_000], value_parser = clap::value_parser!(u32).range(1..=32_768))]
    windows: Vec<u32>,
    #[command(flatten)]
    sample: SampleArgs,
}

#[derive(Debug, Args)]
struct RaceArgs {
    /// Configuration file, for score.faiss [default: ./memsluice.yaml if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Vectors in a window
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1000, 10_000, 100_000], value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    windows: Vec<u32>,
    /// Writes in a call
    #[arg(long, value_delimiter = ',', default_values_t = [1, 32], value_parser = clap::value_parser!(u32).range(1..=4096))]
    batches: Vec<u32>,
    /// Boundaries in a call, each with its window
    #[arg(long, value_delimiter = ',', default_values_t = [1], value_parser = clap::value_parser!(u32).range(1..=4096))]
    boundaries: Vec<u32>,
    #[command(flatten)]
    sample: SampleArgs,
    /// Race approximate FAISS indexes too, from this window on (building them takes minutes at 100000)
    #[arg(long, value_name = "WINDOW")]
    approximate_from: Option<usize>,
    /// Race this CUDA device too
    #[arg(long, value_name = "NUMBER")]
    device: Option<usize>,
}

pub(super) fn run(args: &KernelArgs) -> Result<()> {
    let race = match &args.command {
        Which::Race(race) => race,
        Which::Hardened(args) => return hardened(args),
    };
    let faiss = Config::load(race.config.as_deref())?.score.faiss;
    let contenders = Contenders::open(faiss.as_deref(), race.device)?;
    let wide = |values: &[u32]| values.iter().map(|v| *v as usize).collect::<Vec<_>>();
    let plan = Plan {
        dimension: race.sample.dimension as usize,
        windows: wide(&race.windows),
        batches: wide(&race.batches),
        boundaries: wide(&race.boundaries),
        rounds: race.sample.rounds as usize,
        seed: race.sample.seed,
        approximate_from: race.approximate_from,
    };
    if faiss.is_none() {
        out::note("score.faiss is not set: FAISS does not race (scripts/fetch-kernels faiss)");
    }
    if race.sample.output == Format::Json {
        kernels::run(&plan, &contenders, |rows| rows.iter().try_for_each(out::json))?;
        return Ok(());
    }
    out::line(&format!(
        "{} rounds, d = {}, one thread, microseconds of {} a write: median (range)",
        plan.rounds,
        plan.dimension,
        if race.device.is_some() { "wall time" } else { "CPU time" }
    ))?;
    out::line(&format!(
        "{:>8} {:>6} {:>10}  {:<24} {:>28}  {:>24}  {:>6}",
        "window", "batch", "boundaries", "kernel", "us a write", "times first", "recall"
    ))?;
    let rows = kernels::run(&plan, &contenders, |rows| rows.iter().try_for_each(line))?;
    growth(&rows)
}

fn hardened(args: &HardenedArgs) -> Result<()> {
    let memsad = Topology::sample()?.main.memsad;
    if args.sample.output == Format::Table {
        out::line(&format!(
            "{:>8} {:>8}  {:>28}  {:>28}",
            "window", "memories", "us to score a write", "us to take it in"
        ))?;
    }
    for window in &args.windows {
        let found = measure::cost(
            &memsad,
            args.sample.dimension as usize,
            *window as usize,
            args.sample.rounds as usize,
            args.sample.seed,
        )?;
        if args.sample.output == Format::Json {
            out::json(&found)?;
            continue;
        }
        let spread = |s: Spread| format!("{:.2} ({:.2} to {:.2})", s.median, s.low, s.high);
        let (score, accept) = (spread(found.score), spread(found.accept));
        out::line(&format!("{:>8} {:>8}  {score:>28}  {accept:>28}", found.window, found.memories))?;
    }
    Ok(())
}

fn line(row: &Row) -> Result<()> {
    let (m, r) = (row.micros, row.ratio);
    let micros = format!("{:.2} ({:.2} to {:.2})", m.median, m.low, m.high);
    let ratio = format!("{:.2} ({:.2} to {:.2})", r.median, r.low, r.high);
    let build = row.build_seconds.map_or(String::new(), |s| format!("  built in {s:.1} s"));
    out::line(&format!(
        "{:>8} {:>6} {:>10}  {:<24} {micros:>28}  {ratio:>24}  {:>6.3}{build}",
        row.window, row.batch, row.boundaries, row.kernel, row.recall
    ))
}

/// The exponent between neighbouring windows: 1 is linear.
fn growth(rows: &[Row]) -> Result<()> {
    let Some(first) = rows.first() else { return Ok(()) };
    let batches: std::collections::BTreeSet<usize> = rows.iter().map(|r| r.batch).collect();
    for batch in batches {
        let mine: Vec<&Row> = rows
            .iter()
            .filter(|r| r.kernel == first.kernel && r.batch == batch && r.boundaries == first.boundaries)
            .collect();
        for pair in mine.windows(2) {
            let by = (pair[1].micros.median / pair[0].micros.median).ln();
            let exponent = by / (pair[1].window as f64 / pair[0].window as f64).ln();
            let (from, to) = (pair[0].window, pair[1].window);
            out::line(&format!(
                "growth of {}, batch {batch}, {from} to {to}: window^{exponent:.2}, {:.2} ns a vector",
                first.kernel,
                pair[1].micros.median * 1000.0 / to as f64
            ))?;
        }
    }
    Ok(())
}
