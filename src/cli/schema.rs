//! `memsluice schema print | list`.

use clap::{Args, Subcommand};

use super::out;
use crate::error::{Code, Error, Result};
use crate::schema::{document, names};

#[derive(Debug, Args)]
pub(super) struct SchemaArgs {
    #[command(subcommand)]
    command: Which,
}

#[derive(Debug, Subcommand)]
enum Which {
    /// Print one schema.
    #[command(after_help = "Example:\n  memsluice schema print memory-write")]
    Print {
        /// Record name
        name: String,
    },
    /// List the records.
    #[command(after_help = "Example:\n  memsluice schema list")]
    List,
}

pub(super) fn run(args: &SchemaArgs) -> Result<()> {
    match &args.command {
        Which::List => names().iter().try_for_each(|n| out::line(n)),
        Which::Print { name } => {
            let unknown =
                || Error::new(Code::ConfigInvalid, format!("no schema '{name}'; there are {}", names().join(", ")));
            let value = document(name).ok_or_else(unknown)?;
            let text = serde_json::to_string_pretty(&value)
                .map_err(|e| Error::with(Code::OutputFailed, "a schema can't be written", e))?;
            out::line(&text)
        }
    }
}
