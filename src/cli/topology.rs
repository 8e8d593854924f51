//! `memsluice topology check | describe | dot | plan | diff | acls | apply`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Common, Format, out};
use crate::error::{Code, Error, Result};
use crate::source::{self, PlanAction, TopicPlan};
use crate::topology::{Topology, changes, describe, dot};

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
    /// Print what runs as a Graphviz graph.
    #[command(after_help = "Example:\n  memsluice topology dot --topology topology | dot -Tsvg > topology.svg")]
    Dot {
        #[command(flatten)]
        common: Common,
    },
    /// Show what `apply` would create, and where live topics differ.
    #[command(
        after_help = "Exit status 0 when the cluster is as the topology wants it, 1 (topology_differs) when not. Nothing is written.\n\nExamples:\n  MEMSLUICE__KAFKA__BOOTSTRAP=127.0.0.1:19092 memsluice topology plan --topology topology\n  memsluice topology plan --topology topology --output json | jq 'select(.action != \"keep\")'"
    )]
    Plan {
        #[command(flatten)]
        common: Common,
        /// How the plan is printed
        #[arg(long, value_enum, default_value = "table")]
        output: Format,
    },
    /// Show what a change of the topology asks for. Needs no broker.
    #[command(
        after_help = "Each setting that differs is free (each member's own), rolling, together (all members stop first), reset (of the named store) or refused. Exit status 0 when the change is compatible, 2 (topology_incompatible) when it needs a reset or is refused. The encoder's dimension is in no folder: `upgrade plan` compares that too.\n\nExample:\n  memsluice topology diff topology topology-new"
    )]
    Diff {
        /// Folder in force
        old: PathBuf,
        /// Folder of the change
        new: PathBuf,
        /// How it is printed
        #[arg(long, value_enum, default_value = "table")]
        output: Format,
    },
    /// Print the rights that a principal needs on the broker.
    #[command(
        after_help = "Examples:\n  memsluice topology acls --topology topology --role processor\n  memsluice topology acls --topology topology --role committer --principal User:store --output kafka-acls"
    )]
    Acls(super::acls::AclsArgs),
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
        Which::Dot { common } => out::line(dot(&common.setup()?.topology).trim_end()),
        Which::Plan { common, output } => {
            let setup = common.setup()?;
            plan(&source::plan(&source::client(&setup.config)?, &setup.topology)?, *output)
        }
        Which::Diff { old, new, output } => {
            let settings = |folder: &PathBuf| Topology::load(folder).map(|t| t.settings());
            super::upgrade::diff(&changes(&settings(old)?, &settings(new)?), *output)
        }
        Which::Acls(args) => super::acls::run(args),
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

/// Prints a plan; a difference is the error `topology_differs`.
fn plan(topics: &[TopicPlan], output: Format) -> Result<()> {
    for t in topics {
        match output {
            Format::Json => out::json(t)?,
            Format::Table => topic(t)?,
        }
    }
    let count = |action| topics.iter().filter(|t| t.action == action).count();
    let (create, differ) = (count(PlanAction::Create), count(PlanAction::Differs));
    if output == Format::Table {
        out::line(&format!("{create} to create, {differ} differ, {} as wanted", count(PlanAction::Keep)))?;
    }
    if create + differ == 0 {
        return Ok(());
    }
    Err(Error::new(Code::TopologyDiffers, format!("{create} topics lack and {differ} differ from the topology")))
}

fn topic(t: &TopicPlan) -> Result<()> {
    let word = match t.action {
        PlanAction::Create => "create",
        PlanAction::Keep => "keep",
        PlanAction::Differs => "DIFFERS",
    };
    out::line(&format!("{word:<8} {}", t.topic))?;
    t.differences.iter().try_for_each(|d| {
        let found = if t.action == PlanAction::Create { String::new() } else { format!("  found {}", d.found) };
        out::line(&format!("         {:<32} {}{found}", d.setting, d.wanted))
    })
}
