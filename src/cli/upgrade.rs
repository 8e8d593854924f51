//! `memsluice upgrade plan | begin | finalize | cancel`.

use clap::{Args, Subcommand};
use serde_json::json;

use super::{Common, Format, out};
use crate::agreement::{self, Live, MetaTopic, Own, Recorded};
use crate::app::Setup;
use crate::error::{Code, Error, Result};
use crate::schema::{Agreement, ApplicationMeta};
use crate::source::{self, Client, Group};
use crate::topology::{Assignor, Change, Effect};

#[derive(Debug, Args)]
pub(super) struct UpgradeArgs {
    #[command(subcommand)]
    command: Which,
}

#[derive(Debug, Subcommand)]
enum Which {
    /// Show what is in force, how these files differ, who runs, and the next step. Writes nothing.
    #[command(
        after_help = "Exit status 0 when the change can be made, 2 (topology_incompatible) when it needs a reset or another application.\n\nExample:\n  memsluice upgrade plan --topology topology-new"
    )]
    Plan(Step),
    /// Admit members with these files beside those in force; where no two may differ, put them in force while none runs.
    #[command(
        after_help = "Without --execute nothing is written.\n\nExample:\n  memsluice upgrade begin --topology topology-new --execute"
    )]
    Begin(Step),
    /// Admit members with these files alone, and let this program's newest state format be written.
    #[command(
        after_help = "Refused while a member of the old kind runs. Members of an older program can't join afterwards. Without --execute nothing is written.\n\nExample:\n  memsluice upgrade finalize --topology topology-new --execute"
    )]
    Finalize(Step),
    /// Take back what was begun.
    #[command(
        after_help = "Refused while a member with the new files runs. Without --execute nothing is written.\n\nExample:\n  memsluice upgrade cancel --topology topology --execute"
    )]
    Cancel(Step),
}

#[derive(Debug, Args)]
struct Step {
    #[command(flatten)]
    common: Common,
    /// Do it
    #[arg(long)]
    execute: bool,
    /// How it is printed
    #[arg(long, value_enum, default_value = "table")]
    output: Format,
}

/// What a step looks at.
struct Scene {
    client: Client,
    setup: Setup,
    own: Own,
    group: Group,
}

impl Scene {
    fn new(common: &Common) -> Result<Self> {
        let setup = common.setup()?;
        let own = setup.own(setup.secret()?.key_id());
        let client = source::client(&setup.config)?;
        source::preflight(&client, &setup.topology, false)?;
        let group = Group::new(&client, setup.group())?;
        Ok(Self { client, setup, own, group })
    }

    fn meta(&self) -> MetaTopic<'_> {
        self.setup.meta(&self.client)
    }

    /// Live members. Those of the consumer protocol are not shown by name: they count as one without a record.
    fn members(&self) -> Result<Vec<String>> {
        let mut members = self.group.members()?;
        if members.is_empty()
            && self.setup.topology.main.consumer.assignor == Assignor::ConsumerRange
            && !self.group.probe(&self.group.offsets(&self.setup.topology)?)?
        {
            members.push("a member of the consumer protocol".to_owned());
        }
        Ok(members)
    }

    fn live(&self, recorded: &Recorded) -> Result<Vec<Live>> {
        Ok(agreement::live(&self.members()?, &recorded.members))
    }

    /// Pure step on what is recorded, written under the fence when it is to be.
    fn step(
        &self,
        execute: bool,
        step: impl Fn(&ApplicationMeta, &Recorded) -> Result<Option<ApplicationMeta>>,
    ) -> Result<Option<ApplicationMeta>> {
        let on = |r: &Recorded| {
            let none = || Error::new(Code::ConfigInvalid, "no member has started yet: there is nothing to upgrade");
            step(r.application.as_ref().ok_or_else(none)?, r)
        };
        if execute { self.meta().change(on) } else { on(&self.meta().read()?) }
    }
}

pub(super) fn run(args: &UpgradeArgs) -> Result<()> {
    let (step, verb) = match &args.command {
        Which::Plan(step) => return plan(step),
        Which::Begin(step) => (step, "begin"),
        Which::Finalize(step) => (step, "finalize"),
        Which::Cancel(step) => (step, "cancel"),
    };
    let scene = Scene::new(&step.common)?;
    let changed = scene.step(step.execute, |application, recorded| match args.command {
        Which::Begin(_) => agreement::begin(application, &scene.own, &scene.members()?),
        Which::Finalize(_) => agreement::finalize(application, &scene.own, &scene.live(recorded)?),
        _ => agreement::cancel(application, &scene.own, &scene.live(recorded)?),
    })?;
    if step.output == Format::Json {
        out::json(&json!({"step": verb, "executed": step.execute, "application": changed}))?;
    } else {
        match &changed {
            None => out::line("nothing to change")?,
            Some(a) => shown(a)?,
        }
    }
    if changed.is_some() && !step.execute {
        out::note("dry run: nothing was written. --execute does it");
    }
    Ok(())
}

fn one(what: &str, a: &Agreement) -> Result<()> {
    out::line(&format!("{what:<10} topology {}, policy {}, key id {}", a.fingerprint, a.policy, a.key_id))
}

fn shown(a: &ApplicationMeta) -> Result<()> {
    one("in force", &a.agreement)?;
    if let Some(next) = &a.next {
        one("admitted", next)?;
    }
    out::line(&format!(
        "formats    {} to {}, written {} (revision {})",
        a.format.min, a.format.write, a.format.write, a.revision
    ))
}

fn plan(step: &Step) -> Result<()> {
    let scene = Scene::new(&step.common)?;
    let recorded = scene.meta().read()?;
    let Some(application) = &recorded.application else {
        return out::line("no member has started yet: the first one records what it runs with");
    };
    let differs = agreement::differences(&application.agreement, &scene.own.agreement);
    let live = scene.live(&recorded)?;
    let next = next(application, &scene.own, &differs, &live);
    if step.output == Format::Json {
        out::json(
            &json!({"application": application, "here": scene.own.agreement, "changes": differs, "live": live, "next": next}),
        )?;
    } else {
        shown(application)?;
        one("here", &scene.own.agreement)?;
        differs.iter().try_for_each(change)?;
        for l in &live {
            let program = l.member.as_ref().map_or("no record", |m| m.program.as_str());
            out::line(&format!("member     {} ({program})", l.client))?;
        }
        out::line(&format!("next: {next}"))?;
    }
    verdict(&differs)
}

fn next(application: &ApplicationMeta, own: &Own, differs: &[Change], live: &[Live]) -> String {
    if application.next.is_some() {
        return match agreement::finalize(application, own, live) {
            Ok(_) => "memsluice upgrade finalize --execute".to_owned(),
            Err(e) => format!("{}, then memsluice upgrade finalize --execute", e.code().hint()),
        };
    }
    let worst = differs.iter().map(|c| c.effect).max();
    match worst {
        None if own.reads.max > application.format.write => {
            "restart every member with this program, then memsluice upgrade finalize --execute".to_owned()
        }
        None => "nothing to do".to_owned(),
        Some(e) => command(e).to_owned(),
    }
}

/// The command that a change goes on with.
fn command(effect: Effect) -> &'static str {
    match effect {
        Effect::Free => "restart the members one by one with the new files",
        Effect::Rolling => {
            "memsluice upgrade begin --execute, restart the members one by one, memsluice upgrade finalize --execute"
        }
        Effect::Together => "stop all members, memsluice upgrade begin --execute with the new files, start them",
        Effect::Reset => {
            "stop all members, memsluice reset --execute with the new files (all stores, the named one too), start them"
        }
        Effect::Refused => "start with a new application id and new topics (docs/operations.md, Upgrades)",
    }
}

/// One line of a change.
pub(super) fn change(c: &Change) -> Result<()> {
    let of = c.store.map(|s| format!(" {s}")).unwrap_or_default();
    out::line(&format!(
        "{:<16} {}: '{}' -> '{}'\n                 {}",
        format!("{}{of}", c.effect.as_str()),
        c.setting,
        c.old,
        c.new,
        c.why
    ))
}

/// An incompatible change is an error.
pub(super) fn verdict(differs: &[Change]) -> Result<()> {
    let grave: Vec<&str> = differs.iter().filter(|c| c.effect >= Effect::Reset).map(|c| c.setting.as_str()).collect();
    if grave.is_empty() {
        return Ok(());
    }
    Err(Error::new(Code::TopologyIncompatible, format!("not under the state that is there: {}", grave.join(", "))))
}

/// Prints the changes between two folders.
pub(super) fn diff(differs: &[Change], output: Format) -> Result<()> {
    if output == Format::Json {
        differs.iter().try_for_each(out::json)?;
        return verdict(differs);
    }
    differs.iter().try_for_each(change)?;
    match differs.iter().map(|c| c.effect).max() {
        None => out::line("no difference"),
        Some(worst) => out::line(&format!("{} differ; next: {}", differs.len(), command(worst))),
    }?;
    verdict(differs)
}
