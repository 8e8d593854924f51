//! `memsluice honeypots load`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::{Common, out};
use crate::app;
use crate::error::{Code, Error, Result};
use crate::pipeline::Registry;
use crate::schema::{Boundary, Honeypot, HoneypotSet};

#[derive(Debug, Args)]
pub(super) struct HoneypotsArgs {
    #[command(subcommand)]
    command: Which,
}

#[derive(Debug, Subcommand)]
enum Which {
    /// Publish a JSONL file of honeypots as new versions of their boundaries' sets.
    #[command(
        after_help = "Example:\n  MEMSLUICE__KAFKA__BOOTSTRAP=127.0.0.1:19092 memsluice honeypots load --file honeypots.jsonl"
    )]
    Load {
        #[command(flatten)]
        common: Common,
        /// One honeypot a line (`memsluice schema print honeypot`)
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
}

pub(super) fn run(args: &HoneypotsArgs) -> Result<()> {
    let Which::Load { common, file } = &args.command;
    let setup = common.setup()?;
    for set in read(file)? {
        let set = app::publish_honeypots(&setup, set)?;
        out::line(&format!("published {}@{} with {} honeypots", set.scope, set.version, set.honeypots.len()))?;
    }
    Ok(())
}

/// Sets by boundary, version 1.
///
/// # Errors
/// `file_unreadable`, `honeypot_invalid`.
pub(super) fn read(file: &Path) -> Result<Vec<HoneypotSet>> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| Error::with(Code::FileUnreadable, format!("can't read {}", file.display()), e))?;
    let mut sets: BTreeMap<Boundary, Vec<Honeypot>> = BTreeMap::new();
    for (number, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        let at =
            |why: String| Error::new(Code::HoneypotInvalid, format!("{} line {}: {why}", file.display(), number + 1));
        let honeypot: Honeypot = serde_json::from_str(line).map_err(|e| at(format!("column {}", e.column())))?;
        let boundary = Boundary::new(&honeypot.tenant, &honeypot.store).map_err(|e| at(e.message().to_owned()))?;
        sets.entry(boundary).or_default().push(honeypot);
    }
    let sets: Vec<HoneypotSet> =
        sets.into_iter().map(|(b, honeypots)| HoneypotSet { scope: b.to_string(), version: 1, honeypots }).collect();
    let mut probe = Registry::default();
    sets.iter().cloned().try_for_each(|s| probe.add_honeypots(s))?;
    Ok(sets)
}
