//! `verify`: exactly once, seen from outside.

mod chain;
mod finding;
mod model;
mod passes;
mod postcard;
mod record;
mod reset;
mod session;
mod state;
mod tally;
mod views;
mod window;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::error::Result;
use crate::out::{Out, columns};
use crate::read::{Isolation, Reader};
use crate::verify::passes::Verifier;
use crate::verify::tally::{Counts, Tally, Verdict};

/// Longest wait for open transactions at the end of a soak, seconds: timeout of the transaction and the
/// broker's own 10 s.
const SETTLE: u64 = 45;

/// Check that every write was decided once, and that outputs and hash chain agree
///
/// Reads the topics whole by its own consumer. Run it when the stream is at rest: what is open or not yet
/// read counts as lost. An empty input topic fails: nothing was checked.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit 1 unless all of lost, duplicate, torn, aborted_read, out_of_order, state_diverged, wrong_verdict, chain_broken, \
    unknown_input, misplaced, malformed are 0.\n\n\
    Example:\n  load-tests verify --bootstrap 127.0.0.1:19092 --prefix t1. --dump run1.jsonl\n  \
    load-tests verify --bootstrap 127.0.0.1:19092 --reader read_uncommitted   # must go red after a kill"
)]
pub(crate) struct Args {
    /// Bootstrap servers, host:port[,...]
    #[arg(long)]
    bootstrap: String,
    /// In front of every topic name
    #[arg(long, default_value = "")]
    prefix: String,
    /// Topic of the inputs
    #[arg(long, default_value = "memory-writes")]
    writes_topic: String,
    /// Topic of the decisions
    #[arg(long, default_value = "decisions")]
    decisions_topic: String,
    /// Topic of the allowed writes
    #[arg(long, default_value = "committed-memory")]
    committed: String,
    /// Topic of the held writes
    #[arg(long, default_value = "quarantine")]
    quarantine: String,
    /// Topic of the dead letters
    #[arg(long, default_value = "dead-letters")]
    dead_letters: String,
    /// Topic of the findings
    #[arg(long, default_value = "attacks")]
    attacks: String,
    /// Topic of the retrievals; read with --derive
    #[arg(long, default_value = "retrieval-logs")]
    retrievals_topic: String,
    /// Topic of the state; read with --derive
    #[arg(long, default_value = "memsluice-changelog")]
    changelog: String,
    /// Topic of the honeypots; read with --derive
    #[arg(long, default_value = "honeypots")]
    honeypots: String,
    /// What is seen of transactions; read_uncommitted must go red where anything was aborted
    #[arg(long, alias = "reader", default_value = "read_committed")]
    isolation: Isolation,
    /// The inputs are the source of a repartition: outputs stand in other partitions than theirs
    #[arg(long)]
    repartitioned: bool,
    /// Wait this long for open transactions, seconds; what is open then is a fault
    #[arg(long, default_value_t = 0)]
    settle: u64,
    /// Derive verdicts, scores, findings and state from the inputs and compare: sample policy, vectors in all
    /// records, no calibration, one set of honeypots a boundary from the start
    #[arg(long)]
    derive: bool,
    /// State folder of a stopped member, to be compared with the changelog; may be repeated
    #[arg(long, requires = "derive")]
    state: Vec<PathBuf>,
    /// Also fail unless the dump would be this one
    #[arg(long)]
    expect_file: Option<PathBuf>,
    /// Write one line for each decision, sorted by boundary and record
    #[arg(long)]
    dump: Option<PathBuf>,
}

/// Result.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) ok: bool,
    /// What was counted.
    #[serde(flatten)]
    pub(crate) counts: Counts,
    verdicts: BTreeMap<Verdict, u64>,
    /// Lines that differ from --expect-file.
    differs: Option<usize>,
    named: Vec<String>,
}

impl Args {
    /// Arguments that the self-test needs, all else by default.
    pub(crate) fn plain(bootstrap: &str, prefix: &str, isolation: Isolation) -> Self {
        let name = str::to_owned;
        Self {
            bootstrap: name(bootstrap),
            prefix: name(prefix),
            writes_topic: name("memory-writes"),
            decisions_topic: name("decisions"),
            committed: name("committed-memory"),
            quarantine: name("quarantine"),
            dead_letters: name("dead-letters"),
            attacks: name("attacks"),
            retrievals_topic: name("retrieval-logs"),
            changelog: name("memsluice-changelog"),
            honeypots: name("honeypots"),
            isolation,
            repartitioned: false,
            settle: 0,
            derive: false,
            state: Vec::new(),
            expect_file: None,
            dump: None,
        }
    }

    /// Everything, with the state folders of all members.
    pub(crate) fn whole(bootstrap: &str, prefix: &str, isolation: Isolation, state: Vec<PathBuf>) -> Self {
        Self { settle: SETTLE, derive: true, state, ..Self::plain(bootstrap, prefix, isolation) }
    }
}

/// Runs it.
pub(crate) fn run(args: &Args, out: &Out) -> Result<bool> {
    let report = verify(args, out)?;
    out.result(&report, || text(&report))?;
    Ok(report.ok)
}

/// Reads everything and adds up.
pub(crate) fn verify(args: &Args, out: &Out) -> Result<Report> {
    let mut verifier = Verifier::new(args, Reader { bootstrap: &args.bootstrap, isolation: args.isolation, out });
    verifier.all()?;
    let differs = verifier.dumped()?;
    let Verifier { tally: Tally { counts, named, .. }, verdicts, .. } = verifier;
    let clean = counts.faults().iter().all(|(_, n)| *n == 0);
    let at_rest = args.settle == 0 || counts.open_partitions == 0;
    let ok = clean && at_rest && counts.inputs > 0 && differs.unwrap_or(0) == 0;
    Ok(Report { ok, counts, verdicts, differs, named })
}

pub(crate) fn text(report: &Report) -> String {
    let counts = &report.counts;
    let mut rows = vec![
        ("inputs", counts.inputs),
        ("decisions", counts.decisions),
        ("activations", counts.activations),
        ("controls", counts.controls),
        ("committed", counts.committed),
        ("quarantined", counts.quarantined),
        ("dead_letters", counts.dead_letters),
        ("findings", counts.findings),
        ("other_dead_letters", counts.other_dead_letters),
        ("superseded", counts.superseded),
        ("marks", counts.marks),
        ("expired", counts.expired),
        ("aborted_records", counts.aborted_records),
        ("local_units", counts.local_units),
        ("open_partitions", counts.open_partitions),
    ];
    rows.extend(counts.faults());
    rows.extend(report.differs.map(|n| ("differs", n as u64)));
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(name, n)| vec![name.to_owned(), n.to_string()]).collect();
    let mut text = columns(&["count", "records"], &rows);
    for finding in &report.named {
        text.push_str("\n  ");
        text.push_str(finding);
    }
    let verdict = match (report.ok, counts.inputs) {
        (true, _) => "ok: every input decided once, outputs and chain agree",
        (false, 0) => "FAILED: there was no input, so nothing was checked",
        (false, _) => "FAILED",
    };
    format!("{text}\n{verdict}")
}
