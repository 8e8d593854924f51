//! `memsluice verify decision`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;

use super::{Common, Format, out, scan};
use crate::app::Setup;
use crate::decode::{self, Rules, Write};
use crate::embed::{Embedder, Purpose};
use crate::error::{Code, Error, Result};
use crate::files::Lines;
use crate::schema::{Boundary, Calibration, Decision, DecisionKind, Vector};
use crate::score::{Fitted, Keys, Limits, Window};
use crate::state::View;
use crate::topology::Role;
use crate::verify::{Check, Evidence, Outcome, RollingRows, rolling, verify, window};

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    #[command(subcommand)]
    command: Which,
}

#[derive(Debug, Subcommand)]
enum Which {
    /// Recompute what a decision says about MEMSAD and its certificate.
    #[command(
        after_help = "Each check says ok, failed, or what lacks for it. Exit status 1 (decision_differs) when one failed.\n\nExamples:\n  memsluice verify decision --decision decisions.jsonl --id 6f0c... --calibration calibration.json --state memsluice-state\n  memsluice verify decision --decision decisions.jsonl --writes writes.jsonl --queries retrievals.jsonl --calibrate benign.jsonl"
    )]
    Decision(Box<DecisionArgs>),
}

#[derive(Debug, Args)]
struct DecisionArgs {
    #[command(flatten)]
    common: Common,
    /// Records of `decisions`, JSON one after another
    #[arg(long, value_name = "FILE")]
    decision: PathBuf,
    /// Id of the decision [default: the first on a write]
    #[arg(long)]
    id: Option<String>,
    /// The calibration that it names: a record of `calibrate fit --output json`
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// The write itself, JSONL; needs the encoder where it has no vector
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// State folder of an instance that holds its unit
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Run these writes again, JSONL
    #[arg(long, value_name = "FILE")]
    writes: Vec<PathBuf>,
    /// With these retrieval events
    #[arg(long, value_name = "FILE", requires = "writes")]
    queries: Vec<PathBuf>,
    /// And these benign writes or calibration records, as `scan --calibrate` takes them
    #[arg(long, value_name = "FILE", requires = "writes")]
    calibrate: Vec<PathBuf>,
    /// How the checks are printed
    #[arg(long, value_enum, default_value = "table")]
    output: Format,
}

pub(super) fn run(args: &VerifyArgs) -> Result<()> {
    let Which::Decision(args) = &args.command;
    let setup = args.common.setup()?;
    let decision = find(&read(&args.decision)?, args.id.as_deref())?;
    let calibration = args.calibration.as_deref().map(fitted).transpose()?;
    let found = args.state.as_deref().map(|folder| from_state(&setup, &decision, folder)).transpose()?;
    let (window, rolling) = found.unwrap_or_default();
    let write = args.record.as_deref().map(|file| written(&setup, &decision, file)).transpose()?;
    let again = if args.writes.is_empty() { None } else { Some(again(args, &decision)?) };
    let evidence = Evidence {
        calibration: calibration.as_ref(),
        rolling: rolling.as_ref(),
        window: window.as_ref(),
        write: write.as_ref().map(|(vector, keys)| (vector, *keys)),
        again: again.as_ref(),
    };
    let checks = verify(&decision, &evidence);
    print(&decision, &checks, args.output)?;
    let failed: Vec<&str> = checks.iter().filter(|c| c.outcome == Outcome::Failed).map(|c| c.name).collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Error::new(Code::DecisionDiffers, format!("{}: {}", decision.body.id, failed.join(", "))))
}

fn print(decision: &Decision, checks: &[Check], output: Format) -> Result<()> {
    if output == Format::Json {
        return out::json(&json!({"decision": decision.body.id, "checks": checks}));
    }
    out::line(&format!("decision     {}", decision.body.id))?;
    checks.iter().try_for_each(|c| {
        let word = match c.outcome {
            Outcome::Ok => "ok",
            Outcome::Failed => "FAILED",
            Outcome::NotChecked => "not checked",
        };
        out::line(&format!("{:<12} {word:<12} {}", c.name, c.detail))
    })
}

/// Decisions on writes in a file; other records are left out.
fn read(file: &Path) -> Result<Vec<Decision>> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| Error::with(Code::FileUnreadable, format!("can't read {}", file.display()), e))?;
    let values =
        serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>().map_while(std::result::Result::ok);
    let decisions = values.filter_map(|v| serde_json::from_value::<Decision>(v).ok());
    Ok(decisions.filter(|d| d.body.kind == DecisionKind::Decision).collect())
}

fn find(decisions: &[Decision], id: Option<&str>) -> Result<Decision> {
    let found = decisions.iter().find(|d| id.is_none_or(|id| d.body.id == id));
    let missing = || Error::new(Code::FileUnreadable, "the file has no such decision on a write");
    found.cloned().ok_or_else(missing)
}

fn fitted(file: &Path) -> Result<Fitted> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| Error::with(Code::FileUnreadable, format!("can't read {}", file.display()), e))?;
    let record: Calibration = serde_json::from_str(text.trim())
        .map_err(|e| Error::new(Code::CalibrationInvalid, format!("line {} column {}", e.line(), e.column())))?;
    Fitted::of(record)
}

fn boundary(decision: &Decision) -> Result<Boundary> {
    let part = |p: &Option<String>| p.clone().unwrap_or_default();
    Boundary::new(&part(&decision.body.tenant), &part(&decision.body.store))
}

type OfState = (Option<Window>, Option<RollingRows>);

fn from_state(setup: &Setup, decision: &Decision, folder: &Path) -> Result<OfState> {
    let limits = Limits::of(&setup.topology.main.memsad);
    let (view, units, boundary) = (View::open(folder)?, setup.topology.units(), boundary(decision)?);
    Ok((window(&view, units, &boundary, limits)?, rolling(&view, units, &boundary)?))
}

/// Vector and keys of the decision's write in a file.
fn written(setup: &Setup, decision: &Decision, file: &Path) -> Result<(Vector, Keys)> {
    let rules = Rules { max_bytes: usize::MAX, dimension: setup.config.encoder.dimension, units: None };
    let mut lines = Lines::new(Role::MemoryWrites, 1, &[file.to_owned()]);
    let boundary = boundary(decision)?;
    let same = |w: &Write| w.boundary == boundary && Some(&w.record_id) == decision.body.record_id.as_ref();
    while let Some(record) = lines.next_record()? {
        let Some(write) = decode::write(&record, &rules).ok().filter(same) else { continue };
        let ruling = setup.policy.rule(Role::MemoryWrites.as_str(), &write, record.at.timestamp);
        let keys = Keys::of_write(&write.principal, &write.session_id, &write.output_id, ruling.basis);
        if let Some(vector) = write.embedding.filter(|_| ruling.may_embed) {
            return Ok((vector, keys));
        }
        let embedder = Embedder::start(&setup.config.encoder)?;
        let text = embedder.prefixes().text(Purpose::Passage, &write.content);
        let encoded = embedder.encode_all(&[text], || ())?;
        let first = encoded.into_iter().next().map(|e| (e.vector, keys));
        return first.ok_or_else(|| Error::new(Code::EncoderFailed, "the encoder gave nothing"));
    }
    Err(Error::new(Code::FileUnreadable, format!("{} holds no write of the decision's record", file.display())))
}

/// What the files lead to: the decision of the same id, else the one on the same record and time.
fn again(args: &DecisionArgs, decision: &Decision) -> Result<Decision> {
    let all = scan::decisions(&args.common, &args.writes, &args.queries, &args.calibrate)?;
    let wanted = &decision.body;
    let place = |d: &&Decision| {
        let b = &d.body;
        let same = (&b.tenant, &b.store, &b.record_id, &b.time);
        same == (&wanted.tenant, &wanted.store, &wanted.record_id, &wanted.time)
    };
    let found = all.iter().find(|d| d.body.id == wanted.id).or_else(|| all.iter().find(place));
    let missing = || Error::new(Code::FileUnreadable, "the files lead to no decision on this write");
    found.cloned().ok_or_else(missing)
}
