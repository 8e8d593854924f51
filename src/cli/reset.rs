//! `memsluice reset`.

use clap::Args;
use serde_json::json;

use super::{Common, Format, out};
use crate::error::Result;
use crate::reset::{Plan, check_members, execute, plan};
use crate::source::Point;

#[derive(Debug, Args)]
#[command(
    after_help = "Moves the group's offsets of the inputs, deletes every key of the changelog and the local database, in this order of safety: one Kafka transaction, then the folder. Topics, inputs and outputs stay; the decision chain goes on with a record of kind reset in each unit. Without --execute nothing is written.\n\nExamples:\n  memsluice reset --topology topology\n  memsluice reset --topology topology --to earliest --execute\n  memsluice reset --topology topology --to 2026-11-30T02:00:00Z --output json"
)]
pub(super) struct ResetArgs {
    #[command(flatten)]
    common: Common,
    /// Where inputs are read from again: earliest, latest, an offset, or a time (RFC 3339)
    #[arg(long, value_name = "POINT", default_value = "earliest")]
    to: Point,
    /// Do it
    #[arg(long)]
    execute: bool,
    /// Go on although the group has members, or state and last decision disagree
    #[arg(long)]
    force: bool,
    /// How the plan is printed
    #[arg(long, value_enum, default_value = "table")]
    output: Format,
}

pub(super) fn run(args: &ResetArgs) -> Result<()> {
    let setup = args.common.setup()?;
    let plan = plan(&setup, args.to)?;
    match args.output {
        Format::Json => out::json(&json!({"plan": plan}))?,
        Format::Table => print(&plan)?,
    }
    if !args.execute {
        out::note("dry run: nothing was written. --execute does it");
        return Ok(());
    }
    if let Err(e) = check_members(&plan.group, &plan.members) {
        if !args.force {
            return Err(e);
        }
        out::note(&format!("warning: {}; going on by --force: they may write over the reset", e.message()));
    }
    let bar = out::progress(plan.units.iter().map(|u| u.changelog.unsigned_abs()).sum(), "records");
    let mut before = (0, 0, 0);
    let done = execute(&setup, &plan, args.force, |unit, n| {
        let (last, count, sum) = before;
        before = if last == unit { (unit, n, sum) } else { (unit, n, sum + count) };
        bar.set_message(format!("changelog records, unit {unit}"));
        bar.set_position(before.2 + n);
    })?;
    bar.finish_and_clear();
    match args.output {
        Format::Json => out::json(&json!({"done": done})),
        Format::Table => out::line(&format!(
            "reset: {} state keys of {} units deleted, offsets moved, {}",
            done.keys,
            done.units,
            if done.local { "local database deleted" } else { "no local database here" }
        )),
    }
}

fn print(plan: &Plan) -> Result<()> {
    let members = if plan.members.is_empty() { "none".to_owned() } else { plan.members.join(", ") };
    out::line(&format!("application {}, group {}, live members: {members}", plan.application, plan.group))?;
    for i in &plan.inputs {
        let before = i.before.map_or("none".to_owned(), |o| o.to_string());
        out::line(&format!("  {:<32} offset {before} -> {}", format!("{}-{}", i.topic, i.partition), i.after))?;
    }
    for u in &plan.units {
        out::line(&format!(
            "  unit {:<4} {} changelog offsets: every key is deleted; chain of {} decisions goes on",
            u.unit, u.changelog, u.chain
        ))?;
    }
    match &plan.local {
        Some(path) => out::line(&format!("  local database {path}: deleted")),
        None => out::line("  local database: none here"),
    }
}
