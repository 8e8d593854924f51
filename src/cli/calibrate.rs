//! `memsluice calibrate fit`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Common, Format, out};
use crate::app::{self, Setup};
use crate::calibrate::{Samples, fit_boundary};
use crate::embed::Embedder;
use crate::error::{Code, Error, Result};
use crate::schema::{Boundary, Calibration};
use crate::score::kernel;
use crate::source;

#[derive(Debug, Args)]
pub(super) struct CalibrateArgs {
    #[command(subcommand)]
    command: Which,
}

#[derive(Debug, Subcommand)]
enum Which {
    /// Fit a MEMSAD threshold from benign writes and queries.
    #[command(
        after_help = "Examples:\n  memsluice calibrate fit --writes benign.jsonl --queries queries.jsonl --boundary acme/support\n  memsluice calibrate fit --topic-range --boundary acme/support --publish"
    )]
    Fit(FitArgs),
}

#[derive(Debug, Args)]
struct FitArgs {
    #[command(flatten)]
    common: Common,
    /// Benign writes, JSONL
    #[arg(long, value_name = "FILE", required_unless_present = "topic_range")]
    writes: Vec<PathBuf>,
    /// Retrieval events with queries, JSONL
    #[arg(long, value_name = "FILE", required_unless_present = "topic_range")]
    queries: Vec<PathBuf>,
    /// Known poison, JSONL: gives the separability margin
    #[arg(long, value_name = "FILE")]
    poison: Vec<PathBuf>,
    /// Take allowed writes from committed-memory and queries from retrieval-logs
    #[arg(long, conflicts_with_all = ["writes", "queries"])]
    topic_range: bool,
    /// First offset in both topics [default: the log's start]
    #[arg(long, requires = "topic_range")]
    from: Option<i64>,
    /// tenant/store
    #[arg(long)]
    boundary: String,
    /// Publish the record and put it in force
    #[arg(long)]
    publish: bool,
    /// How the record is printed
    #[arg(long, value_enum, default_value = "table")]
    output: Format,
}

pub(super) fn run(args: &CalibrateArgs) -> Result<()> {
    let Which::Fit(fit) = &args.command;
    let setup = fit.common.setup()?;
    let boundary = Boundary::parse(&fit.boundary)?;
    let dimension = setup.config.encoder.dimension;
    let samples = if fit.topic_range {
        from_topics(&setup, &boundary, fit.from)?
    } else {
        Samples::read(&fit.writes, &fit.queries, &fit.poison, dimension)?
    };
    kernel::choose(&setup.config.score)?;
    let embedder = Embedder::start(&setup.config.encoder)?;
    let total =
        samples.writes.get(&boundary).map_or(0, Vec::len) * 2 + samples.queries.get(&boundary).map_or(0, Vec::len);
    let bar = out::progress(total as u64, "texts");
    let calibration =
        fit_boundary(&samples, &boundary, 1, &setup.topology, &embedder, setup.config.encoder.backend, || bar.inc(1))?;
    bar.finish_and_clear();
    if samples.skipped > 0 {
        out::note(&format!("{} records were skipped: not decodable, deletes, or without a query", samples.skipped));
    }
    let calibration = if fit.publish { app::publish_calibration(&setup, calibration)? } else { calibration };
    match fit.output {
        Format::Json => out::json(&calibration),
        Format::Table => print(&calibration, fit.publish),
    }
}

/// Prints a record with denominators, intervals and the control.
pub(super) fn print(c: &Calibration, published: bool) -> Result<()> {
    let control = if c.control.n == 0 {
        "not measured (vectors only)".to_owned()
    } else {
        format!(
            "{} of {} flagged, 95 % interval {:.3} to {:.3}",
            c.control.flagged, c.control.n, c.control.interval[0], c.control.interval[1]
        )
    };
    let margin = match c.margin {
        None => "not measured (give --poison)".to_owned(),
        Some(m) if m <= 0.0 => format!("{m:.4}: no threshold separates for this encoder"),
        Some(m) => format!("{m:.4}"),
    };
    let rows = [
        ("scope", format!("{}@{}{}", c.scope, c.version, if published { " (published, in force)" } else { "" })),
        ("benign writes n", c.n.to_string()),
        ("queries m", format!("{} (norm of the mean {:.4})", c.history.m, c.history.mean_norm)),
        ("statistic", c.statistic.clone()),
        ("mean", format!("{:.6}", c.mean)),
        ("standard deviation", format!("{:.6}", c.std)),
        ("kappa", c.kappa.to_string()),
        ("threshold", format!("{:.6} ({} units)", c.threshold, c.threshold_units)),
        (
            "flagged in the fit",
            format!(
                "{} of {}, 95 % interval {:.3} to {:.3} (not held out)",
                c.flagged, c.n, c.interval[0], c.interval[1]
            ),
        ),
        ("random-trigger control", control),
        ("separability margin", margin),
        ("encoder", c.encoder.clone()),
        ("as of", c.as_of.clone()),
    ];
    rows.iter().try_for_each(|(name, value)| out::line(&format!("{name:<24} {value}")))
}

/// Allowed writes and queries of a boundary.
fn from_topics(setup: &Setup, boundary: &Boundary, from: Option<i64>) -> Result<Samples> {
    let mut samples = Samples::default();
    let client = source::client(&setup.config)?;
    source::each_record(&client, &setup.topology, boundary, from, |record| {
        samples.add(&record, setup.config.encoder.dimension, false);
        Ok(())
    })?;
    samples.sort();
    if samples.writes.get(boundary).is_none_or(Vec::is_empty) {
        return Err(Error::new(Code::CalibrationTooSmall, format!("the topics hold no write of {boundary}")));
    }
    Ok(samples)
}
