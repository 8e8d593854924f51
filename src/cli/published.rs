//! `memsluice calibrate show | compare | publish`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::calibrate::Kind;
use super::{Common, Format, out};
use crate::app::{self, Setup};
use crate::error::{Code, Error, Result};
use crate::inspect;
use crate::published::{Published, Record, Version, activate, compare, restore};
use crate::schema::{Boundary, Calibration, Scope, ScreenCalibration};

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    #[command(flatten)]
    common: Common,
    /// Only this scope: tenant/store, tenant or *
    #[arg(long)]
    scope: Option<String>,
    /// List what the stream has made of them since, from the local state
    #[arg(long)]
    rolling: bool,
    /// How it is printed
    #[arg(long, value_enum, default_value = "table")]
    output: Format,
}

#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    #[command(flatten)]
    common: Common,
    /// What they calibrate
    #[arg(long, value_enum, default_value = "memsad")]
    kind: Kind,
    /// tenant/store, tenant or *
    #[arg(long)]
    scope: String,
    /// First version; rolling.N is a copy of what the stream made
    #[arg(long, value_name = "VERSION")]
    from: Version,
    /// Second version [default: the published one in force]
    #[arg(long, value_name = "VERSION")]
    to: Option<Version>,
    /// How it is printed
    #[arg(long, value_enum, default_value = "table")]
    output: Format,
}

#[derive(Debug, Args)]
pub(super) struct PublishArgs {
    #[command(flatten)]
    common: Common,
    /// A record of `calibrate fit --output json`: it becomes the next version, in force
    #[arg(long, value_name = "FILE", required_unless_present = "version", conflicts_with = "version")]
    file: Option<PathBuf>,
    /// What the version calibrates
    #[arg(long, value_enum, default_value = "memsad")]
    kind: Kind,
    /// The version's scope: tenant/store, tenant or *
    #[arg(long, requires = "version")]
    scope: Option<String>,
    /// Put this version in force; rolling.N, a copy of what the stream made, becomes the next version
    #[arg(long, requires = "scope")]
    version: Option<Version>,
    /// Do it; else only what would be done is printed
    #[arg(long)]
    execute: bool,
}

fn what(kind: Kind, scope: &str) -> Result<String> {
    let word = match kind {
        Kind::Memsad => "memsad",
        Kind::Screen => "screen",
    };
    let invalid = || Error::new(Code::InvalidBoundary, format!("'{scope}' is no tenant/store, tenant or *"));
    Ok(format!("{word}/{}", Scope::parse(scope).ok_or_else(invalid)?.name()))
}

pub(super) fn show(args: &ShowArgs) -> Result<()> {
    let setup = args.common.setup()?;
    if args.rolling {
        return show_rolling(&setup, args);
    }
    let published = Published::read(&setup)?;
    let wanted = |what: &str| {
        let scope = what.split_once('/').map_or("", |(_, scope)| scope);
        args.scope.as_deref().is_none_or(|s| s == scope)
    };
    let mut count = 0;
    for (what, version, record, active) in published.all().filter(|(what, ..)| wanted(what)) {
        count += 1;
        match args.output {
            Format::Json => out::json(&summary(what, version, record, active))?,
            Format::Table => out::line(&line(what, version, record, active))?,
        }
    }
    if published.broken > 0 {
        out::note(&format!("{} records can't be read", published.broken));
    }
    if count == 0 {
        out::note("no calibration is published here: `memsluice calibrate fit --publish`");
    }
    Ok(())
}

fn show_rolling(setup: &Setup, args: &ShowArgs) -> Result<()> {
    let boundary = args.scope.as_deref().map(Boundary::parse).transpose()?;
    let scope = inspect::Scope { boundary, ..inspect::Scope::default() };
    let found = inspect::rolling(setup, &inspect::open(setup)?, &scope)?;
    for r in &found {
        let name = if r.calibration.is_empty() { "none yet" } else { &r.calibration };
        let mark = if r.frozen { "frozen" } else { "" };
        match args.output {
            Format::Json => out::json(r)?,
            Format::Table => out::line(&format!(
                "{:<24} {name:<36} {mark:<6} rows {}  waiting {}  as of {}",
                r.boundary, r.rows, r.waiting, r.stepped
            ))?,
        }
    }
    if found.is_empty() {
        out::note("no rolling calibration is in this state");
    }
    Ok(())
}

/// What a list needs; not the rows and hashes.
fn summary(what: &str, version: u64, record: &Record, active: bool) -> serde_json::Value {
    let common = json!({"what": what, "version": version, "active": active});
    let own = match record {
        Record::Memsad(c) => json!({"mode": c.mode, "statistic": c.statistic, "n": c.n, "m": c.history.m,
            "threshold": c.threshold, "margin": c.margin, "control": c.control, "encoder": c.encoder, "as_of": c.as_of,
            "rolling": c.rolling}),
        Record::Screen(c) => json!({"fitted": c.fitted, "n": c.n, "sources": c.sources, "held": c.held,
            "control": c.control, "poison": c.poison, "lexicon": c.lexicon, "encoder": c.encoder, "as_of": c.as_of}),
    };
    let fields = [common, own].into_iter().filter_map(|v| v.as_object().cloned()).flatten();
    serde_json::Value::Object(fields.collect())
}

fn line(what: &str, version: u64, record: &Record, active: bool) -> String {
    let name = format!("{what}@{version}");
    let mark = match what.starts_with("rolling/") {
        true => "rolling",
        false if active => "in force",
        false => "",
    };
    match record {
        Record::Memsad(c) => {
            let margin = c.margin.map_or("-".to_owned(), |m| format!("{m:.4}"));
            format!(
                "{name:<36} {mark:<9} {} {}  n {}  m {}  threshold {:.6}  margin {margin}  as of {}",
                c.mode, c.statistic, c.n, c.history.m, c.threshold, c.as_of
            )
        }
        Record::Screen(c) => format!(
            "{name:<36} {mark:<9} fitted {}  n {}  held {} of {}  as of {}",
            c.fitted, c.n, c.held.flagged, c.held.n, c.as_of
        ),
    }
}

pub(super) fn compared(args: &CompareArgs) -> Result<()> {
    let what = what(args.kind, &args.scope)?;
    let published = Published::read(&args.common.setup()?)?;
    let none = || Error::new(Code::CalibrationMissing, format!("no version of {what} is in force: give --to"));
    let to = args.to.or_else(|| published.active(&what).map(Version::Published)).ok_or_else(none)?;
    let rows = compare(published.find(&what, args.from)?, published.find(&what, to)?)?;
    if args.output == Format::Json {
        return out::json(&json!({"what": what, "from": args.from, "to": to, "fields": rows}));
    }
    out::line(&format!("{:<20} {:<28} {:<28}", what, format!("@{}", args.from), format!("@{to}")))?;
    rows.iter().try_for_each(|r| {
        let note = if r.note.is_empty() { String::new() } else { format!("  {}", r.note) };
        out::line(&format!("{:<20} {:<28} {:<28}{note}", r.field, r.before, r.after))
    })
}

pub(super) fn publish(args: &PublishArgs) -> Result<()> {
    let setup = args.common.setup()?;
    if let Some(file) = &args.file {
        let record = read(file)?;
        let what = match &record {
            Record::Memsad(c) => format!("memsad/{}", c.scope),
            Record::Screen(c) => format!("screen/{}", c.scope),
        };
        if !args.execute {
            return out::line(&format!("would publish the next version of {what} and put it in force (--execute)"));
        }
        let version = match record {
            Record::Memsad(c) => app::publish_calibration(&setup, *c)?.version,
            Record::Screen(c) => app::publish_screening(&setup, *c)?.version,
        };
        return out::line(&format!("published {what}@{version}, in force"));
    }
    let what = what(args.kind, args.scope.as_deref().unwrap_or_default())?;
    let missing = || Error::new(Code::CalibrationMissing, "no version is named");
    let version = args.version.ok_or_else(missing)?;
    let published = Published::read(&setup)?;
    let before = published.active(&what).map_or("none".to_owned(), |v| format!("@{v}"));
    let version = match version {
        Version::Published(version) => version,
        Version::Rolling(_) => return back(&setup, &what, version, published.find(&what, version)?, &before, args),
    };
    published.ready(&what, version)?;
    if !args.execute {
        return out::line(&format!("would put {what}@{version} in force instead of {before} (--execute)"));
    }
    activate(&setup, &published, &what, version)?;
    out::line(&format!("{what}@{version} is in force instead of {before}"))
}

/// Takes up again what the stream made once: copies have numbers of their own, so it becomes the next version.
fn back(setup: &Setup, what: &str, version: Version, copy: &Record, before: &str, args: &PublishArgs) -> Result<()> {
    if !args.execute {
        return out::line(&format!(
            "would publish {what}@{version} as the next version of {what} and put it in force instead of {before} (--execute)"
        ));
    }
    let next = restore(setup, copy)?.version;
    out::line(&format!("published {what}@{version} as {what}@{next}, in force instead of {before}"))
}

/// A record of `calibrate fit`, checked as the stream checks it.
fn read(file: &Path) -> Result<Record> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| Error::with(Code::FileUnreadable, format!("can't read {}", file.display()), e))?;
    let mut registry = crate::pipeline::Registry::default();
    if let Ok(c) = serde_json::from_str::<Calibration>(text.trim()) {
        registry.add_calibration(c.clone())?;
        return Ok(Record::Memsad(Box::new(c)));
    }
    let c: ScreenCalibration = serde_json::from_str(text.trim())
        .map_err(|e| Error::new(Code::CalibrationInvalid, format!("line {} column {}", e.line(), e.column())))?;
    registry.add_screening(&c)?;
    Ok(Record::Screen(Box::new(c)))
}
