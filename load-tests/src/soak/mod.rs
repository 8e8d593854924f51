//! `soak`: the real binary under random faults, and an account of it by `verify`.

pub(crate) mod cluster;
mod load;
mod logs;
pub(crate) mod member;
mod plan;
pub(crate) mod scene;
pub(crate) mod settle;
mod stage;
pub(crate) mod traffic;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::error::{Error, Result};
use crate::out::{Out, columns};
use crate::read::Isolation;
use crate::soak::load::Sent;
use crate::soak::logs::Seen;
use crate::soak::member::{Cause, Exit};
use crate::soak::stage::{Stage, Struck};
use crate::verify;

/// Strike the real binary at random and account for every record
///
/// Starts brokers (scripts/kafka), topics (memsluice topology apply), a steady load from a seed and members
/// with static membership. Then: kill -9, SIGTERM, SIGSTOP beyond the transaction timeout, members that join
/// and leave, and with --bounce kill -9 of a broker. At the end everything is drained and stopped, and
/// verify derives the result again from the inputs: lost, duplicate, torn, aborted_read, out_of_order and
/// state_diverged must be 0, the local state of every member included.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit 1 unless all counts are 0, every kill was made, no process ended by itself for a reason of its own, and \
    something was aborted.\n\n\
    Example:\n  load-tests soak --minutes 2 --kills 8\n  load-tests soak --minutes 12 --kills 60 --brokers 3 --bounce --seed 7\n  \
    load-tests soak --minutes 1 --reader read_uncommitted       # must go red\n  \
    load-tests soak --minutes 1 --sabotage transactions_off     # must go red"
)]
pub(crate) struct Args {
    /// Time of the faults; start, drain and check come on top
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,
    /// kill -9 of members
    #[arg(long, default_value_t = 8)]
    kills: u32,
    /// Brokers, 1 or 3; topics get as many replicas
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=3))]
    brokers: u16,
    /// Members of the group
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
    members: u16,
    /// Seed of load and faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Strike brokers too
    #[arg(long)]
    bounce: bool,
    /// Every member keeps a warm copy of all units
    #[arg(long)]
    standby: bool,
    /// Writes per second
    #[arg(long, default_value_t = 150)]
    writes: u32,
    /// Retrievals per second
    #[arg(long, default_value_t = 50)]
    retrievals: u32,
    /// What the verifier sees of transactions: read_uncommitted shows that it can go red
    #[arg(long, default_value = "read_committed")]
    reader: Isolation,
    /// A guarantee that the members break on purpose (MEMSLUICE__SABOTAGE): the soak must go red
    #[arg(long)]
    sabotage: Option<String>,
    /// Port of the first broker
    #[arg(long, default_value_t = 19392)]
    port: u16,
    /// A broker that runs already; --port and --bounce don't apply
    #[arg(long, conflicts_with = "bounce")]
    bootstrap: Option<String>,
    /// The binary under test [default: memsluice beside this one]
    #[arg(long)]
    memsluice: Option<PathBuf>,
    /// The checkout, for scripts and topology
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/.."))]
    root: PathBuf,
    /// Work folder; kept when given, else removed after a clean run
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// Number of the signal.
const SIGTERM: i32 = 15;

/// Result.
#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    seed: u64,
    seconds: u64,
    brokers: u16,
    members: u16,
    #[serde(flatten)]
    struck: Struck,
    sent: Sent,
    logs: Seen,
    /// How many processes ended how: cause, status, code.
    exits: BTreeMap<String, u64>,
    /// Ends that nothing explains.
    unexplained: Vec<Exit>,
    /// Seconds from the last record to the last commit.
    drain_s: f64,
    drained: bool,
    verify: verify::Report,
    why: Vec<String>,
}

/// Runs it.
pub(crate) fn run(args: &Args, out: &Out) -> Result<bool> {
    if args.brokers == 2 {
        return Err(Error::Input("--brokers: 1 or 3".to_owned()));
    }
    let folder = args
        .folder
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join(format!("memsluice-soak-{}", std::process::id())));
    let report = soak(args, &folder, out)?;
    out.result(&report, || text(&report))?;
    if report.ok && args.folder.is_none() {
        std::fs::remove_dir_all(&folder).map_err(|e| Error::io("remove", &folder, e))?;
    } else {
        out.note(&format!("logs and state: {}", folder.display()));
    }
    Ok(report.ok)
}

fn soak(args: &Args, folder: &std::path::Path, out: &Out) -> Result<Report> {
    let began = Instant::now();
    let mut stage = Stage::set(args, folder, out)?;
    let time = Duration::from_secs_f64(args.minutes * 60.0);
    stage.strike(args, time, out)?;
    let (sent, drain, drained) = stage.drain(out)?;
    stage.stop()?;
    let verify = stage.verify(args.reader, out)?;
    let logs = Seen::of(&folder.join("logs"))?;
    let mut exits: BTreeMap<String, u64> = BTreeMap::new();
    for exit in &stage.exits {
        *exits.entry(name(exit)).or_default() += 1;
    }
    let unexplained: Vec<Exit> = stage.exits.iter().filter(|e| !explained(e)).cloned().collect();
    let mut report = Report {
        ok: false,
        seed: args.seed,
        seconds: began.elapsed().as_secs(),
        brokers: args.brokers,
        members: args.members,
        struck: stage.struck,
        sent,
        logs,
        exits,
        unexplained,
        drain_s: drain.as_secs_f64(),
        drained,
        verify,
        why: Vec::new(),
    };
    report.why = reasons(&report, args);
    report.ok = report.why.is_empty();
    Ok(report)
}

/// What keeps a run from being a pass.
fn reasons(report: &Report, args: &Args) -> Vec<String> {
    let checks = [
        (report.verify.ok, "verify found faults".to_owned()),
        (report.struck.kills >= args.kills, format!("{} of {} kills were made", report.struck.kills, args.kills)),
        (report.drained, "the group did not reach the end of its inputs".to_owned()),
        (report.unexplained.is_empty(), format!("{} processes ended for no known reason", report.unexplained.len())),
        (report.logs.panics == 0, format!("{} panics on the logs", report.logs.panics)),
        (report.verify.counts.aborted_records > 0, "nothing was aborted: the run has shown nothing".to_owned()),
    ];
    checks.into_iter().filter(|(ok, _)| !ok).map(|(_, why)| why).collect()
}

/// A process may end by our hand, or by itself because of what was done to broker and group.
fn explained(exit: &Exit) -> bool {
    match exit.cause {
        Cause::Killed => true,
        // A process that has only just begun has no handler yet, and ends by the signal itself.
        Cause::Asked => exit.status == Some(0) || exit.signal == Some(SIGTERM) || outside(exit),
        Cause::Own => outside(exit),
        Cause::Stuck => false,
    }
}

/// Codes of what lies outside the process: it was fenced, or the broker was away.
fn outside(exit: &Exit) -> bool {
    let codes = ["instance_fenced", "broker_unreachable"];
    exit.status == Some(3) && exit.code.as_deref().is_some_and(|c| codes.contains(&c))
}

fn name(exit: &Exit) -> String {
    let cause = match exit.cause {
        Cause::Killed => "killed",
        Cause::Asked => "SIGTERM",
        Cause::Own => "by itself",
        Cause::Stuck => "stuck",
    };
    let status = exit.status.map_or_else(|| format!("signal {}", exit.signal.unwrap_or(0)), |s| format!("status {s}"));
    let code = exit.code.as_ref().map(|c| format!(" {c}")).unwrap_or_default();
    format!("{cause}: {status}{code}")
}

fn text(report: &Report) -> String {
    let Report { struck, sent, logs, .. } = report;
    let mut rows: Vec<(String, String)> = [
        ("seed", report.seed),
        ("seconds", report.seconds),
        ("brokers", u64::from(report.brokers)),
        ("members", u64::from(report.members)),
        ("kill -9", u64::from(struck.kills)),
        ("SIGTERM", u64::from(struck.terms)),
        ("SIGSTOP", u64::from(struck.pauses)),
        ("joins and leaves", u64::from(struck.joins)),
        ("broker kill -9", u64::from(struck.bounces)),
        ("revocations", logs.revoked),
        ("assignments", logs.assigned),
        ("rolled back", logs.rolled_back),
        ("rebuilt producers", logs.rebuilt),
        ("rejoined consumers", logs.rejoined),
        ("replayed changelog records", logs.replayed),
        ("sent writes", sent.writes),
        ("sent retrievals", sent.retrievals),
        ("sent transactions", sent.transactions),
        ("of them aborted", sent.aborted),
    ]
    .map(|(k, n)| (k.to_owned(), n.to_string()))
    .into();
    rows.extend(report.exits.iter().map(|(k, n)| (format!("ended, {k}"), n.to_string())));
    rows.push(("drain, seconds".to_owned(), format!("{:.1}", report.drain_s)));
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(k, v)| vec![k, v]).collect();
    let verdict = if report.ok { "ok".to_owned() } else { format!("FAILED: {}", report.why.join("; ")) };
    format!("{}\n\n{}\n{verdict}", columns(&["soak", ""], &rows), verify::text(&report.verify))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_that_need_no_excuse() {
        let exit = |cause, status, code: Option<&str>| Exit {
            member: 0,
            run: 1,
            at_s: 0.0,
            cause,
            status,
            signal: None,
            code: code.map(str::to_owned),
        };
        assert!(explained(&exit(Cause::Killed, None, None)));
        assert!(explained(&exit(Cause::Asked, Some(0), None)));
        assert!(explained(&exit(Cause::Own, Some(3), Some("instance_fenced"))));
        assert!(!explained(&exit(Cause::Own, Some(4), Some("chain_mismatch"))));
        assert!(!explained(&exit(Cause::Own, Some(0), None)));
        assert!(!explained(&exit(Cause::Asked, None, None)));
        assert!(explained(&Exit { signal: Some(SIGTERM), ..exit(Cause::Asked, None, None) }));
        assert!(!explained(&exit(Cause::Stuck, None, None)));
    }
}
