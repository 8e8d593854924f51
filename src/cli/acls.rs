//! `memsluice topology acls`.

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{Common, out};
use crate::error::Result;
use crate::topology::{Acl, Actor, Names, acls, kafka_acls};

#[derive(Debug, Args)]
pub(super) struct AclsArgs {
    #[command(flatten)]
    common: Common,
    /// Who signs in
    #[arg(long, value_enum)]
    role: ActorName,
    /// Kafka principal that gets the rights
    #[arg(long, default_value = "User:memsluice", value_name = "TYPE:NAME")]
    principal: String,
    /// How the rights are printed
    #[arg(long, value_enum, default_value = "table")]
    output: AclFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ActorName {
    /// Runs the stream
    Processor,
    /// Works the review queue
    Reviewer,
    /// Replays topics
    Auditor,
    /// Carries committed memories into the store
    Committer,
    /// Publishes honeypots
    HoneypotKeeper,
    /// Creates and checks topics, publishes calibrations
    Operator,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AclFormat {
    /// For people
    Table,
    /// One JSON value a line
    Json,
    /// Commands for kafka-acls.sh
    KafkaAcls,
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    principal: &'a str,
    #[serde(flatten)]
    acl: &'a Acl,
}

pub(super) fn run(args: &AclsArgs) -> Result<()> {
    let setup = args.common.setup()?;
    let ids = setup.transactional_id("");
    let names = Names { group: setup.group(), transactional_ids: &ids };
    let rights = acls(&setup.topology, names, args.role.actor());
    match args.output {
        AclFormat::Table => table(&args.principal, &rights),
        AclFormat::Json => rights.iter().try_for_each(|acl| out::json(&Line { principal: &args.principal, acl })),
        AclFormat::KafkaAcls => {
            let bootstrap = setup.config.kafka.bootstrap.as_deref().unwrap_or("BOOTSTRAP");
            out::line(kafka_acls(&rights, bootstrap, &args.principal).trim_end())
        }
    }
}

fn table(principal: &str, rights: &[Acl]) -> Result<()> {
    let width = rights.iter().map(|a| a.target().len()).max().unwrap_or_default();
    out::line(&format!("{principal} needs:"))?;
    rights.iter().try_for_each(|a| {
        let need = if a.advised { "advised " } else { "required" };
        out::line(&format!("  {need}  {:<16}  {:<width$}  {}", a.operation.as_str(), a.target(), a.why))
    })
}

impl ActorName {
    fn actor(self) -> Actor {
        match self {
            Self::Processor => Actor::Processor,
            Self::Reviewer => Actor::Reviewer,
            Self::Auditor => Actor::Auditor,
            Self::Committer => Actor::Committer,
            Self::HoneypotKeeper => Actor::HoneypotKeeper,
            Self::Operator => Actor::Operator,
        }
    }
}
