//! `memsluice state inspect | verify`.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::json;

use super::{Common, Format, out};
use crate::app::Setup;
use crate::clock::rfc3339;
use crate::error::{Code, Error, Result};
use crate::inspect::{self, Entry, Names, Scope, UnitView};
use crate::schema::Boundary;
use crate::state::{Kind, What};

#[derive(Debug, Args)]
pub(super) struct StateArgs {
    #[command(subcommand)]
    command: Which,
}

#[derive(Debug, Subcommand)]
enum Which {
    /// Show what the local state holds: kinds, keys, bytes, positions. No content, no vectors.
    #[command(
        after_help = "Works beside a running stream, too.\n\nExamples:\n  memsluice state inspect --topology topology\n  memsluice state inspect --keys --kind session --key acme/support --show-ids --limit 20"
    )]
    Inspect {
        #[command(flatten)]
        common: Common,
        /// Only this unit
        #[arg(long)]
        unit: Option<i32>,
        /// Only this kind
        #[arg(long, value_parser = PossibleValuesParser::new(Kind::LOGGED.map(Kind::as_str)))]
        kind: Option<String>,
        /// Only keys of this boundary
        #[arg(long, value_name = "TENANT/STORE")]
        key: Option<String>,
        /// List keys, too
        #[arg(long)]
        keys: bool,
        /// At most this many keys
        #[arg(long, default_value_t = 100, requires = "keys")]
        limit: usize,
        /// Show ids as they are, not as keyed hashes
        #[arg(long)]
        show_ids: bool,
        /// How it is printed
        #[arg(long, value_enum, default_value = "table")]
        output: Format,
    },
    /// Check that the local state equals the fold of the committed changelog.
    #[command(
        after_help = "Exit status 0 when every unit agrees, 1 (state_differs) when not. Folds into a scratch folder in state_dir: needs as much disk as the state.\n\nExample:\n  MEMSLUICE__KAFKA__BOOTSTRAP=127.0.0.1:19092 memsluice state verify --topology topology"
    )]
    Verify {
        #[command(flatten)]
        common: Common,
        /// Only this unit
        #[arg(long)]
        unit: Option<i32>,
        /// List at most this many differences; all are counted
        #[arg(long, default_value_t = 20)]
        limit: usize,
        /// Show ids as they are, not as keyed hashes
        #[arg(long)]
        show_ids: bool,
        /// How it is printed
        #[arg(long, value_enum, default_value = "table")]
        output: Format,
    },
}

pub(super) fn run(args: &StateArgs) -> Result<()> {
    match &args.command {
        Which::Inspect { common, unit, kind, key, keys, limit, show_ids, output } => {
            let setup = common.setup()?;
            let scope = Scope {
                unit: *unit,
                kind: kind.as_deref().and_then(|k| Kind::LOGGED.into_iter().find(|l| l.as_str() == k)),
                boundary: key.as_deref().map(Boundary::parse).transpose()?,
            };
            let listed = keys.then(|| names(&setup, *show_ids)).transpose()?;
            inspected(&setup, &scope, listed.as_ref(), *limit, *output)
        }
        Which::Verify { common, unit, limit, show_ids, output } => {
            let setup = common.setup()?;
            verify(&setup, *unit, *limit, &names(&setup, *show_ids)?, *output)
        }
    }
}

fn names(setup: &Setup, plain: bool) -> Result<Names> {
    if plain { Ok(Names::Plain) } else { Ok(Names::Hashed(Box::new(setup.secret()?))) }
}

fn inspected(setup: &Setup, scope: &Scope, listed: Option<&Names>, limit: usize, output: Format) -> Result<()> {
    let view = inspect::open(setup)?;
    for u in inspect::units(setup, &view, scope)? {
        match output {
            Format::Json => out::json(&u)?,
            Format::Table => unit(&u)?,
        }
    }
    let Some(names) = listed else { return Ok(()) };
    let count = inspect::entries(setup, &view, scope, limit, names, |e| match output {
        Format::Json => out::json(e),
        Format::Table => out::line(&entry(e)),
    })?;
    if count == limit && output == Format::Table {
        out::line(&format!("{count} keys: --limit ends the list"))?;
    }
    Ok(())
}

fn unit(u: &UnitView) -> Result<()> {
    let inputs: Vec<String> = u.positions.inputs.iter().map(|(topic, next)| format!("{topic} {next}")).collect();
    out::line(&format!(
        "unit {:<4} changelog {}, {}, saved {}",
        u.unit,
        u.positions.changelog,
        if inputs.is_empty() { "no input since its start".to_owned() } else { inputs.join(", ") },
        rfc3339(u.positions.saved_at)
    ))?;
    let sizes = u.kinds.iter();
    sizes
        .map(|(kind, s)| format!("  {kind:<16} {:>10} keys {:>14} bytes", s.keys, s.bytes))
        .try_for_each(|l| out::line(&l))
}

fn entry(e: &Entry) -> String {
    let number = e.number.map_or(String::new(), |n| format!(" #{n}"));
    format!("{:<4} {:<16} {}{number}  {} bytes", e.unit, e.kind, e.ids.join(" "), e.bytes)
}

fn verify(setup: &Setup, only: Option<i32>, limit: usize, names: &Names, output: Format) -> Result<()> {
    let view = inspect::open(setup)?;
    let bar = out::progress(0, "records");
    let mut listed = 0;
    let progress = |unit: i32, done: u64, total: u64| {
        bar.set_message(format!("records of unit {unit}"));
        bar.set_length(total);
        bar.set_position(done);
    };
    let found = inspect::verify(setup, &view, only, progress, |mismatch| {
        listed += 1;
        if listed > limit {
            return Ok(());
        }
        let e = names.entry(&mismatch.key, 0);
        match output {
            Format::Json => out::json(
                &json!({"difference": mismatch.what, "unit": e.unit, "kind": e.kind, "ids": e.ids, "number": e.number}),
            ),
            Format::Table => {
                let word = match mismatch.what {
                    What::MissingInStore => "missing in the store",
                    What::MissingInChangelog => "missing in the changelog",
                    What::ValueDiffers => "value differs",
                };
                let number = e.number.map_or(String::new(), |n| format!(" #{n}"));
                out::line(&format!("DIFFERS  unit {} {} {}{number}: {word}", e.unit, e.kind, e.ids.join(" ")))
            }
        }
    })?;
    bar.finish_and_clear();
    for u in &found {
        if output == Format::Json {
            out::json(u)?;
            continue;
        }
        let state = match (u.below_log, u.differences) {
            (true, _) => "below the log's start: a start rebuilds it".to_owned(),
            (_, 0) => format!("equal, {} keys, {} undecided", u.keys, u.undecided),
            (_, n) => format!("{n} of {} keys differ, {} undecided", u.keys, u.undecided),
        };
        let (low, high) = u.log;
        out::line(&format!(
            "unit {:<4} changelog {} of {low}..{high}, {} records read: {state}",
            u.unit, u.changelog, u.records
        ))?;
    }
    let differences: u64 = found.iter().map(|u| u.differences).sum();
    if differences == 0 {
        return Ok(());
    }
    let keys: u64 = found.iter().map(|u| u.keys).sum();
    Err(Error::new(Code::StateDiffers, format!("{differences} of {keys} keys differ from the changelog")))
}
