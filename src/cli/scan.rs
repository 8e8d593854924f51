//! `memsluice scan`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use super::{Common, Format, out, render};
use crate::app::Setup;
use crate::calibrate::{Samples, fit_boundary};
use crate::config::Secret;
use crate::decode::{self, Rules};
use crate::embed::Embedder;
use crate::error::{Code, Error, Result};
use crate::files::{Lines, read_honeypots, total_bytes};
use crate::pipeline::{Engine, Registry};
use crate::scan::{ScanInput, scan};
use crate::schema::{Boundary, Calibration, Decision, Scope, ScreenCalibration};
use crate::score::kernel;
use crate::screening::{self, fit_screen};
use crate::topology::{Format as Shape, KeyKind, Mapping, Part, Role};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  memsluice scan --writes writes.jsonl --queries retrievals.jsonl --calibrate benign.jsonl\n  memsluice scan --writes dump.jsonl --output json > decisions.jsonl\n  memsluice scan --writes mem0.jsonl --format mem0 --tenant fixed:acme --facts"
)]
pub(super) struct ScanArgs {
    #[command(flatten)]
    common: Common,
    /// Memory writes, JSONL (several files are read in order)
    #[arg(long, value_name = "FILE", required = true)]
    writes: Vec<PathBuf>,
    /// Retrieval events, JSONL
    #[arg(long, value_name = "FILE")]
    queries: Vec<PathBuf>,
    /// Benign writes to fit on, JSONL, or a record of `calibrate fit --output json`
    #[arg(long, value_name = "FILE")]
    calibrate: Vec<PathBuf>,
    /// Honeypot registry, JSONL
    #[arg(long, value_name = "FILE")]
    honeypots: Option<PathBuf>,
    /// Shape of the writes and retrievals [default: as topics.yaml says]
    #[arg(long, value_name = "NAME", value_parser = format_names())]
    format: Option<String>,
    /// Where the tenant stands: fixed:NAME, header:NAME or field:PATH
    #[arg(long, value_name = "PART", requires = "format")]
    tenant: Option<String>,
    /// Where the store stands
    #[arg(long, value_name = "PART", requires = "format")]
    store: Option<String>,
    /// Print the facts that the adapter makes of the writes, as our own JSON, and decide nothing
    #[arg(long)]
    facts: bool,
    /// Show allowed writes too
    #[arg(long)]
    all: bool,
    /// How results are printed
    #[arg(long, value_enum, default_value = "table")]
    output: Format,
}

fn format_names() -> clap::builder::PossibleValuesParser {
    Shape::ALL.iter().map(|f| f.as_str()).collect::<Vec<_>>().into()
}

/// What the arguments say about the shape; `None`: nothing.
fn mapping(args: &ScanArgs) -> Result<Option<Mapping>> {
    let Some(name) = &args.format else { return Ok(None) };
    let format = Shape::ALL.iter().find(|f| f.as_str() == name).copied().unwrap_or_default();
    let part = |text: &Option<String>| {
        let read = text.clone().map(Part::try_from).transpose();
        read.map_err(|e| Error::new(Code::TopologyInput, e))
    };
    Ok(Some(Mapping { format, tenant: part(&args.tenant)?, store: part(&args.store)?, ..Mapping::default() }))
}

/// The facts of the files, a line each; what is refused is said with its code.
fn facts(args: &ScanArgs) -> Result<()> {
    let setup = args.common.setup()?;
    let declared = || setup.topology.source(Role::MemoryWrites).input.clone();
    let mapping = mapping(args)?.unwrap_or_else(declared);
    let max_bytes = setup.topology.main.limits.max_record_bytes;
    let rules = Rules { max_bytes, dimension: setup.config.encoder.dimension, units: None };
    let mut lines = Lines::new(Role::MemoryWrites, 1, &args.writes);
    while let Some(record) = lines.next_record()? {
        match decode::writes(&record, &rules, &mapping) {
            Ok(found) => {
                for write in &found.writes {
                    out::line(&String::from_utf8_lossy(&decode::render(write)))?;
                }
            }
            Err(e) => out::note(&format!("record {}: [{}] {}", record.at.offset + 1, e.code().name(), e.message())),
        }
    }
    Ok(())
}

pub(super) fn run(args: &ScanArgs) -> Result<()> {
    if args.facts {
        return facts(args);
    }
    let (engine, embedder, registry) = prepare(args)?;
    let input = ScanInput { writes: args.writes.clone(), queries: args.queries.clone() };
    let bar = out::progress(total_bytes(&input.writes)? + total_bytes(&input.queries)?, "bytes");
    let each = |o: &crate::sink::Output| match args.output {
        Format::Table => bar.suspend(|| render::output(o, args.all)),
        Format::Json if matches!(o.role, Role::Decisions | Role::Attacks) => {
            let text = String::from_utf8_lossy(o.value.as_deref().unwrap_or_default()).into_owned();
            bar.suspend(|| out::line(&text))
        }
        Format::Json => Ok(()),
    };
    let summary = scan(&input, &engine, &embedder, &registry, each, |bytes| bar.set_position(bytes))?;
    bar.finish_and_clear();
    match args.output {
        Format::Table => render::summary(&summary),
        Format::Json => {
            out::note(&serde_json::to_string(&summary).unwrap_or_default());
            Ok(())
        }
    }
}

/// Every decision that the files lead to.
pub(super) fn decisions(
    common: &Common,
    writes: &[PathBuf],
    queries: &[PathBuf],
    calibrate: &[PathBuf],
) -> Result<Vec<Decision>> {
    let args = ScanArgs {
        common: common.clone(),
        writes: writes.to_vec(),
        queries: queries.to_vec(),
        calibrate: calibrate.to_vec(),
        honeypots: None,
        format: None,
        tenant: None,
        store: None,
        facts: false,
        all: false,
        output: Format::Json,
    };
    let (engine, embedder, registry) = prepare(&args)?;
    let input = ScanInput { writes: args.writes, queries: args.queries };
    let mut found = Vec::new();
    let each = |o: &crate::sink::Output| {
        if o.role == Role::Decisions {
            found.extend(serde_json::from_slice::<Decision>(o.value.as_deref().unwrap_or_default()).ok());
        }
        Ok(())
    };
    scan(&input, &engine, &embedder, &registry, each, |_| ())?;
    Ok(found)
}

/// Everything that a scan needs.
fn prepare(args: &ScanArgs) -> Result<(Engine, Embedder, Registry)> {
    let mut setup = args.common.setup()?;
    let topology = Arc::make_mut(&mut setup.topology);
    topology.without_repartition();
    if let Some(mapping) = mapping(args)? {
        topology.topics.values_mut().filter(|t| t.key == KeyKind::Boundary).for_each(|t| t.input = mapping.clone());
    }
    let secret = match &setup.config.secret_file {
        Some(path) => Secret::from_file(path)?,
        None => Secret::from_file_or_new(&setup.config.state_dir().join("scan-secret"))?,
    };
    kernel::choose(&setup.config.score)?;
    let embedder = Embedder::start(&setup.config.encoder)?;
    let registry = registry(args, &setup, &embedder)?;
    let engine = setup.engine(secret, &embedder)?;
    Ok((engine, embedder, registry))
}

/// Calibrations and honeypots, in force before the first write.
fn registry(args: &ScanArgs, setup: &Setup, embedder: &Embedder) -> Result<Registry> {
    let mut registry = Registry::default();
    let mut benign = Vec::new();
    for file in &args.calibrate {
        match record(file)? {
            Some(Record::Memsad(c)) => activate(&mut registry, c)?,
            Some(Record::Screen(c)) => activate_screen(&mut registry, &c)?,
            None => benign.push(file.clone()),
        }
    }
    if !benign.is_empty() {
        let samples = Samples::read(&benign, &args.queries, &[], setup.config.encoder.dimension)?;
        let bar = out::progress(samples.writes.values().map(Vec::len).sum::<usize>() as u64 * 2, "texts to calibrate");
        for boundary in samples.writes.keys() {
            match fit_boundary(&samples, boundary, 1, &setup.topology, embedder, setup.config.encoder.backend, || {
                bar.inc(1)
            }) {
                Ok(c) => activate(&mut registry, c)?,
                Err(e) if matches!(e.code(), Code::CalibrationNoQueries | Code::CalibrationTooSmall) => {
                    bar.suspend(|| out::note(&format!("{boundary} stays uncalibrated: {}", e.message())));
                }
                Err(e) => return Err(e),
            }
            match screened(&benign, boundary, setup, embedder) {
                Ok(c) => activate_screen(&mut registry, &c)?,
                Err(e) if e.code() == Code::CalibrationTooSmall => {
                    bar.suspend(|| out::note(&format!("the screen of {boundary} stays uncalibrated: {}", e.message())));
                }
                Err(e) => return Err(e),
            }
        }
        bar.finish_and_clear();
    }
    if let Some(file) = &args.honeypots {
        for set in read_honeypots(file)? {
            let (what, version) = (format!("honeypots/{}", set.scope), set.version);
            registry.add_honeypots(set)?;
            registry.activate(what, version);
        }
    }
    Ok(registry)
}

fn activate(registry: &mut Registry, c: Calibration) -> Result<()> {
    let (what, version) = (format!("{}/{}", c.kind.as_str(), c.scope), c.version);
    registry.add_calibration(c)?;
    registry.activate(what, version);
    Ok(())
}

fn activate_screen(registry: &mut Registry, c: &ScreenCalibration) -> Result<()> {
    registry.add_screening(c)?;
    registry.activate(format!("screen/{}", c.scope), c.version);
    Ok(())
}

/// The screen fitted on the benign writes of a boundary.
fn screened(files: &[PathBuf], boundary: &Boundary, setup: &Setup, embedder: &Embedder) -> Result<ScreenCalibration> {
    let encoder = &setup.config.encoder;
    let samples = screening::Samples::read(files, &[], boundary, &setup.policy, encoder.dimension)?;
    let options = screening::Options { scope: Scope::Boundary(boundary.clone()), age: 0, reviewed: false };
    fit_screen(&samples, &options, embedder, encoder.backend, || ())
}

/// A record that `calibrate fit` printed.
enum Record {
    Memsad(Calibration),
    Screen(ScreenCalibration),
}

/// The file as a calibration record; `None` when it is something else.
fn record(file: &Path) -> Result<Option<Record>> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| Error::with(Code::FileUnreadable, format!("can't read {}", file.display()), e))?;
    let memsad = serde_json::from_str(text.trim()).map(Record::Memsad);
    Ok(memsad.or_else(|_| serde_json::from_str(text.trim()).map(Record::Screen)).ok())
}
