//! `memsluice topology check | describe | apply`.

use clap::{Args, Subcommand};

use super::{Common, out};
use crate::error::Result;
use crate::source;
use crate::topology::describe;

#[derive(Debug, Args)]
pub(super) struct TopologyArgs {
    #[command(subcommand)]
    command: Which,
}

#[derive(Debug, Subcommand)]
enum Which {
    /// Validate the files; with --live also against the broker.
    #[command(
        after_help = "Examples:\n  memsluice topology check --topology topology\n  MEMSLUICE__KAFKA__BOOTSTRAP=127.0.0.1:19092 memsluice topology check --topology topology --live"
    )]
    Check {
        #[command(flatten)]
        common: Common,
        /// Ask the broker whether topics, partitions and settings agree
        #[arg(long)]
        live: bool,
    },
    /// Print what runs.
    #[command(after_help = "Example:\n  memsluice topology describe --topology topology")]
    Describe {
        #[command(flatten)]
        common: Common,
    },
    /// Create the topics that lack.
    #[command(
        after_help = "Example:\n  MEMSLUICE__KAFKA__BOOTSTRAP=127.0.0.1:19092 memsluice topology apply --topology topology --replication 3"
    )]
    Apply {
        #[command(flatten)]
        common: Common,
        /// Replicas of each partition
        #[arg(long, default_value_t = 1)]
        replication: i32,
    },
}

pub(super) fn run(args: &TopologyArgs) -> Result<()> {
    match &args.command {
        Which::Check { common, live } => {
            let setup = common.setup()?;
            if *live {
                source::preflight(&source::client(&setup.config)?, &setup.topology, true)?;
            }
            out::line(&format!("topology {} and policy {} are valid", setup.topology.hash, setup.policy.hash()))
        }
        Which::Describe { common } => out::line(describe(&common.setup()?.topology).trim_end()),
        Which::Apply { common, replication } => {
            let setup = common.setup()?;
            let created = source::apply(&source::client(&setup.config)?, &setup.topology, *replication)?;
            for name in &created {
                out::line(&format!("created {name}"))?;
            }
            out::line(&format!(
                "{} topics created, {} were there",
                created.len(),
                setup.topology.topics.len() + setup.topology.sources.len() - created.len()
            ))
        }
    }
}
