//! `memsluice encoder compare`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Format, out};
use crate::calibrate::{Sample, Samples};
use crate::config::Config;
use crate::error::Result;
use crate::measure::Spread;
use crate::measure::encoders::{self, Drift, Report, Texts};

#[derive(Debug, Args)]
pub(super) struct EncoderArgs {
    #[command(subcommand)]
    command: Which,
}

#[derive(Debug, Subcommand)]
enum Which {
    /// Compare encoders on the same texts: batch stability, separability margin, drift from the first one.
    #[command(
        after_help = "Each --encoder is a configuration file with an encoder section; variables of the environment stand above it, so unset those.\nDrift means something between forms of one model (fp32 and int8), not between models.\n\nExamples:\n  memsluice encoder compare --encoder fp32.yaml --encoder int8.yaml --writes benign.jsonl --queries queries.jsonl --poison poison.jsonl\n  memsluice encoder compare --encoder e5.yaml --writes examples/demo/calibrate.jsonl --queries examples/demo/retrievals.jsonl --output json"
    )]
    Compare(CompareArgs),
}

#[derive(Debug, Args)]
struct CompareArgs {
    /// Configuration file of an encoder; the first is what the others are compared with
    #[arg(long = "encoder", value_name = "FILE", required = true)]
    encoders: Vec<PathBuf>,
    /// Benign writes, JSONL
    #[arg(long, value_name = "FILE", required = true)]
    writes: Vec<PathBuf>,
    /// Retrieval events with queries, JSONL
    #[arg(long, value_name = "FILE", required = true)]
    queries: Vec<PathBuf>,
    /// Known poison, JSONL: gives the margin
    #[arg(long, value_name = "FILE")]
    poison: Vec<PathBuf>,
    /// At most so many texts of each kind, the first ones
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    most: u32,
    /// How results are printed
    #[arg(long, value_enum, default_value = "table")]
    output: Format,
}

pub(super) fn run(args: &EncoderArgs) -> Result<()> {
    let Which::Compare(compare) = &args.command;
    let mut encoders = Vec::new();
    for file in &compare.encoders {
        encoders.push((file.display().to_string(), Config::load(Some(file))?.encoder));
    }
    let dimension = encoders.first().map_or(384, |(_, e)| e.dimension);
    let samples = Samples::read(&compare.writes, &compare.queries, &compare.poison, dimension)?;
    let most = compare.most as usize;
    let texts = Texts {
        queries: first(samples.queries.into_values(), most),
        benign: first(samples.writes.into_values(), most),
        poison: first(samples.poison.into_values(), most),
    };
    encoders::compare(&encoders, &texts, |report| match compare.output {
        Format::Json => out::json(report),
        Format::Table => table(report),
    })?;
    Ok(())
}

/// Each text once.
fn first(samples: impl Iterator<Item = Vec<Sample>>, most: usize) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    samples.flatten().map(|s| s.text).filter(|t| !t.is_empty() && seen.insert(t.clone())).take(most).collect()
}

fn table(r: &Report) -> Result<()> {
    let margin = |m: Option<f64>| match m {
        None => "not measured (give --poison)".to_owned(),
        Some(m) if m <= 0.0 => format!("{m:.4}: no threshold separates"),
        Some(m) => format!("{m:.4}"),
    };
    let rows = [
        ("encoder", r.name.clone()),
        ("identity", r.identity.clone()),
        ("texts", format!("{}, {} cut, {} of an unknown script", r.texts, r.truncated, r.uncovered)),
        ("batch rule of the probe", r.batch_rule.to_owned()),
        (
            "mixed batches of 8",
            format!(
                "{} of {} vectors move; worst cosine {:.6}, worst change of s_max {:.6}",
                r.moved_by_batch, r.texts, r.batch_cosine, r.batch_score
            ),
        ),
        ("microseconds a text", format!("{:.0} alone, {:.0} in batches of 8", r.micros_alone, r.micros_batched)),
        ("margin, s_max", margin(r.margin_max)),
        ("margin, s_comb", margin(r.margin_combined)),
    ];
    rows.iter().try_for_each(|(name, value)| out::line(&format!("{name:<26} {value}")))?;
    r.drift.as_ref().map_or(Ok(()), drift)?;
    out::line("")
}

fn drift(d: &Drift) -> Result<()> {
    let spread = |s: &Spread| format!("median {:.6} ({:.6} to {:.6})", s.median, s.low, s.high);
    let rows = [
        ("cosine to the first", spread(&d.cosine)),
        ("change of s_max", spread(&d.score_max)),
        ("change of s_comb", spread(&d.score_combined)),
        ("verdicts that flip", format!("{} of {} at the first one's mean + 2 deviations", d.flips, d.memories)),
    ];
    rows.iter().try_for_each(|(name, value)| out::line(&format!("{name:<26} {value}")))
}
