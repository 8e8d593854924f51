//! `memsluice check`: what this process has, and what the broker provides.

use clap::Args;

use super::{Common, Format, out};
use crate::app::Setup;
use crate::embed::Embedder;
use crate::error::{Code, Error, Result};
use crate::sink::{Outcome, Report, probe};
use crate::source;
use crate::topology::MemsadMode;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  memsluice check --topology topology\n  MEMSLUICE__KAFKA__BOOTSTRAP=127.0.0.1:19092 memsluice check --broker\n  memsluice check --broker --output json"
)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    common: Common,
    /// Ask the broker what it really provides, on throw-away topics; takes up to a minute
    #[arg(long)]
    broker: bool,
    /// How the results are printed
    #[arg(long, value_enum, default_value = "table")]
    output: Format,
}

pub(super) fn run(args: &CheckArgs) -> Result<()> {
    if args.broker { broker(&args.common.setup()?, args.output) } else { files(args) }
}

/// One part of the configuration.
#[derive(Debug, serde::Serialize)]
struct Part {
    part: &'static str,
    ok: bool,
    found: String,
}

fn files(args: &CheckArgs) -> Result<()> {
    // Without these there is nothing to look for.
    let setup = args.common.setup()?;
    let secret = setup.secret().map(|s| format!("key id {}", s.key_id()));
    let encoder = Embedder::start(&setup.config.encoder).map(|e| e.identity().to_owned());
    let parts = [
        (
            "configuration",
            Ok(format!("instance {}, state in {}", setup.config.instance_id(), setup.config.state_dir().display())),
        ),
        (
            "topology",
            Ok(format!(
                "{} {}, {} units",
                setup.topology.main.application,
                setup.topology.hash,
                setup.topology.units()
            )),
        ),
        ("policy", Ok(setup.policy.hash().to_owned())),
        ("secret", secret),
        ("encoder", encoder),
        ("broker", setup.config.bootstrap().map(|b| format!("{b} (not asked: --broker)"))),
    ];
    let mut first = None;
    for (part, result) in parts {
        let (ok, found) = match &result {
            Ok(found) => (true, found.clone()),
            Err(e) => (false, format!("{} [{}]", e.message(), e.code().name())),
        };
        match args.output {
            Format::Json => out::json(&Part { part, ok, found })?,
            Format::Table => out::line(&format!("{:<6} {part:<14} {found}", if ok { "ok" } else { "FAILED" }))?,
        }
        first = first.or(result.err());
    }
    first.map_or(Ok(()), Err)
}

/// Something holds or blocks writes, so that a promise is at stake.
fn enforces(setup: &Setup) -> bool {
    setup.topology.main.memsad.mode == MemsadMode::Enforce || setup.policy.enforces()
}

fn broker(setup: &Setup, output: Format) -> Result<()> {
    let client = source::client(&setup.config)?;
    let report = probe(&client, &setup.config.kafka.topic_prefix, setup.topology.main.consumer.assignor)?;
    match output {
        Format::Json => out::json(&report)?,
        Format::Table => table(&report)?,
    }
    if let Some(left) = &report.left {
        out::note(&format!("topics {left}-* could not be deleted: delete them by hand"));
    }
    refuse(&report, enforces(setup))
}

/// What the broker lacks is an error where something is enforced, else a note.
fn refuse(report: &Report, enforces: bool) -> Result<()> {
    let lacking = report.lacking();
    if lacking.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = lacking.iter().map(|f| f.check).collect();
    let what = format!("the broker does not provide: {}", names.join(", "));
    if enforces {
        return Err(Error::new(Code::BrokerUnsupported, what));
    }
    out::note(&format!("{what}; nothing enforces here, so this is a warning"));
    Ok(())
}

fn table(report: &Report) -> Result<()> {
    for f in &report.findings {
        let note = if f.required { "" } else { " (not used by this topology)" };
        out::line(&format!("{:<8} {:<26} {:>5.1} s{note}", f.outcome.as_str(), f.check, f.seconds))?;
        if f.outcome != Outcome::Pass {
            out::line(&format!("         {}\n         {}", f.found, f.meaning))?;
        }
    }
    let passed = report.findings.iter().filter(|f| f.outcome == Outcome::Pass).count();
    out::line(&format!("{passed} of {} checks passed in {:.0} s", report.findings.len(), report.seconds))
}
