//! `memsluice calibrate fit | show | compare | publish`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::{Common, Format, out, published};
use crate::app::{self, Setup};
use crate::calibrate::{Samples, fit_boundary};
use crate::embed::Embedder;
use crate::error::{Code, Error, Result};
use crate::schema::{Boundary, Calibration, Control, Scope, ScreenCalibration};
use crate::score::kernel;
use crate::screening::{self, fit_screen};
use crate::source;
use crate::topology::Role;

#[derive(Debug, Args)]
pub(super) struct CalibrateArgs {
    #[command(subcommand)]
    command: Which,
}

#[derive(Debug, Subcommand)]
enum Which {
    /// Fit a MEMSAD threshold from benign writes and queries, or the screen from benign writes.
    #[command(
        after_help = "Examples:\n  memsluice calibrate fit --writes benign.jsonl --queries queries.jsonl --boundary acme/support\n  memsluice calibrate fit --topic-range --boundary acme/support --publish\n  memsluice calibrate fit --kind screen --writes benign.jsonl --boundary acme/support\n  memsluice calibrate fit --kind screen --topic-range --boundary acme/support --age 3d --publish"
    )]
    Fit(Box<FitArgs>),
    /// List the calibrations on the topic, and which are in force.
    #[command(
        after_help = "Examples:\n  memsluice calibrate show --topology topology\n  memsluice calibrate show --scope acme/support --output json\n  memsluice calibrate show --rolling --scope acme/support"
    )]
    Show(published::ShowArgs),
    /// Show how two versions differ.
    #[command(
        after_help = "Examples:\n  memsluice calibrate compare --scope acme/support --from 3\n  memsluice calibrate compare --scope acme/support --from rolling.40\n  memsluice calibrate compare --kind screen --scope acme/support --from 1 --to 2 --output json"
    )]
    Compare(published::CompareArgs),
    /// Publish a record from a file, or put a version that is there in force: forward, or back.
    #[command(
        after_help = "Nothing is written without --execute.\n\nExamples:\n  memsluice calibrate publish --file calibration.json --execute\n  memsluice calibrate publish --scope acme/support --version 3\n  memsluice calibrate publish --scope acme/support --version rolling.40 --execute\n  memsluice calibrate publish --kind screen --scope acme/support --version 1 --execute"
    )]
    Publish(published::PublishArgs),
}

/// What is fitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// The threshold of the rolling-window test.
    Memsad,
    /// What trusted writes contain and how they score in the screen.
    Screen,
}

/// How far a screen calibration reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Reach {
    /// The boundary.
    Boundary,
    /// All stores of its tenant.
    Tenant,
    /// Everything.
    Deployment,
}

#[derive(Debug, Args)]
struct FitArgs {
    #[command(flatten)]
    common: Common,
    /// What to fit
    #[arg(long, value_enum, default_value = "memsad")]
    kind: Kind,
    /// Benign writes, JSONL
    #[arg(long, value_name = "FILE", required_unless_present = "topic_range")]
    writes: Vec<PathBuf>,
    /// Retrieval events with queries, JSONL; not for the screen
    #[arg(long, value_name = "FILE")]
    queries: Vec<PathBuf>,
    /// Known poison, JSONL: gives the separability margin, or the share that the screen holds
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
    /// Screen: where the record applies, when the boundary has none of its own
    #[arg(long, value_enum, default_value = "boundary")]
    scope: Reach,
    /// Screen: leave out writes younger than this before the newest [default: 1d with --topic-range, else 0s]
    #[arg(long, value_parser = humantime::parse_duration)]
    age: Option<Duration>,
    /// Screen: a reviewer released all writes; those that reach a floor enter too
    #[arg(long)]
    reviewed: bool,
    /// Publish the record and put it in force
    #[arg(long)]
    publish: bool,
    /// How the record is printed
    #[arg(long, value_enum, default_value = "table")]
    output: Format,
}

pub(super) fn run(args: &CalibrateArgs) -> Result<()> {
    match &args.command {
        Which::Fit(fit) => fitted(fit),
        Which::Show(args) => published::show(args),
        Which::Compare(args) => published::compared(args),
        Which::Publish(args) => published::publish(args),
    }
}

fn fitted(fit: &FitArgs) -> Result<()> {
    let setup = fit.common.setup()?;
    let boundary = Boundary::parse(&fit.boundary)?;
    if fit.kind == Kind::Screen {
        return screen(fit, &setup, &boundary);
    }
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

fn screen(fit: &FitArgs, setup: &Setup, boundary: &Boundary) -> Result<()> {
    let (dimension, policy) = (setup.config.encoder.dimension, &setup.policy);
    let samples = if fit.topic_range {
        let mut samples = screening::Samples::default();
        source::each_record(&source::client(&setup.config)?, &setup.topology, boundary, fit.from, |record| {
            if record.at.role != Role::RetrievalLogs {
                samples.add(&record, boundary, policy, dimension, false);
            }
            Ok(())
        })?;
        samples
    } else {
        screening::Samples::read(&fit.writes, &fit.poison, boundary, policy, dimension)?
    };
    let age = fit.age.unwrap_or(if fit.topic_range { Duration::from_secs(86_400) } else { Duration::ZERO });
    let options = screening::Options {
        scope: match fit.scope {
            Reach::Boundary => Scope::Boundary(boundary.clone()),
            Reach::Tenant => Scope::Tenant(boundary.tenant().to_owned()),
            Reach::Deployment => Scope::Deployment,
        },
        age: i64::try_from(age.as_millis()).unwrap_or(i64::MAX),
        reviewed: fit.reviewed,
    };
    let embedder = Embedder::start(&setup.config.encoder)?;
    let bar = out::progress((samples.writes.len() + samples.poison.len()) as u64, "texts");
    let fitted = fit_screen(&samples, &options, &embedder, setup.config.encoder.backend, || bar.inc(1))?;
    bar.finish_and_clear();
    if samples.skipped > 0 {
        out::note(&format!("{} records were skipped: not decodable, deletes, or of another boundary", samples.skipped));
    }
    let fitted = if fit.publish { app::publish_screening(setup, fitted)? } else { fitted };
    match fit.output {
        Format::Json => out::json(&fitted),
        Format::Table => print_screen(&fitted, fit.publish),
    }
}

fn print_screen(c: &ScreenCalibration, published: bool) -> Result<()> {
    let share =
        |s: &Control| format!("{} of {}, 95 % interval {:.3} to {:.3}", s.flagged, s.n, s.interval[0], s.interval[1]);
    let l = &c.left_out;
    let ranks = if c.n < 19 { " (below 19: no p-value, floors alone)" } else { "" };
    let mut rows = vec![
        ("scope", format!("{}@{}{}", c.scope, c.version, if published { " (published, in force)" } else { "" })),
        ("fitted writes", c.fitted.to_string()),
        ("ranking writes n", format!("{}{ranks}", c.n)),
        ("sources", c.sources.to_string()),
        (
            "left out",
            format!(
                "{} reached a floor, {} over their source's share, {} too young",
                l.reached_floor, l.source_share, l.young
            ),
        ),
        ("held by the floors", format!("{} (newer benign writes, not fitted)", share(&c.held))),
        ("random-prefix control", share(&c.control)),
        ("known poison held", c.poison.as_ref().map_or("not measured (give --poison)".to_owned(), share)),
    ];
    for g in &c.groups {
        let writer = g.writer.as_deref().unwrap_or("-");
        rows.push(("form of record", format!("{} by {writer}: {} fitted, {} ranking", g.form, g.fitted, g.rows.len())));
    }
    rows.push(("lexicon", c.lexicon.clone()));
    rows.push(("encoder", c.encoder.clone()));
    rows.push(("as of", c.as_of.clone()));
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
