//! `memsluice honeypots load`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Common, out};
use crate::app;
use crate::error::Result;
use crate::files::read_honeypots;

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
    for set in read_honeypots(file)? {
        let set = app::publish_honeypots(&setup, set)?;
        out::line(&format!("published {}@{} with {} honeypots", set.scope, set.version, set.honeypots.len()))?;
    }
    Ok(())
}
