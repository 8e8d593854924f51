//! `self-test`: shows that `verify` goes green on a clean stream and red on every fault.
//!
//! A small decider writes what memsluice would write, with one fault at a time, to a real broker.
#![allow(clippy::disallowed_methods)] // transactions on the one thread there is

use std::collections::BTreeMap;

use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::error::{Doing, Result};
use crate::kafka::{CALL, Counted, drain, producer, send};
use crate::out::{Out, columns};
use crate::read::Isolation;
use crate::topics;
use crate::verify;

const TOPICS: [&str; 6] = ["memory-writes", "decisions", "committed-memory", "quarantine", "dead-letters", "attacks"];
const PARTITIONS: i32 = 2;
/// Inputs of each partition.
const INPUTS: i64 = 40;
/// Inputs of an aborted transaction behind them.
const ABORTED: i64 = 4;
/// The input that the fault strikes.
const STRUCK: (i32, i64) = (1, 8);

/// Show that `verify` sees every fault, against a real broker
///
/// For each case: fresh topics, a decider with one fault (and two aborted transactions, always), then
/// `verify`. The aborted transactions must be invisible read-committed and red read-uncommitted.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  load-tests self-test --bootstrap 127.0.0.1:19092")]
pub(crate) struct Args {
    /// Bootstrap servers, host:port[,...]
    #[arg(long)]
    bootstrap: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Uncommitted,
    Lost,
    Duplicate,
    NoOutput,
    WrongOutput,
    OutputAlone,
    Order,
    Body,
    Sequence,
    Unknown,
    Misplaced,
    Malformed,
    NoFinding,
    AbortedInput,
    AbortedHead,
}

/// Fault and the counts that it must raise.
const CASES: [(Fault, &[&str]); 16] = [
    (Fault::None, &[]),
    (Fault::Uncommitted, &["duplicate", "torn", "aborted_read", "out_of_order", "chain_broken"]),
    (Fault::Lost, &["lost"]),
    (Fault::Duplicate, &["duplicate"]),
    (Fault::NoOutput, &["torn"]),
    (Fault::WrongOutput, &["torn"]),
    (Fault::OutputAlone, &["lost", "torn"]),
    (Fault::Order, &["out_of_order"]),
    (Fault::Body, &["chain_broken"]),
    (Fault::Sequence, &["chain_broken"]),
    (Fault::Unknown, &["unknown_input", "misplaced"]),
    (Fault::Misplaced, &["misplaced"]),
    (Fault::Malformed, &["lost", "torn", "chain_broken", "malformed"]),
    (Fault::NoFinding, &["torn"]),
    (Fault::AbortedInput, &["aborted_read"]),
    (Fault::AbortedHead, &["aborted_read", "chain_broken"]),
];

/// One case.
#[derive(Debug, Serialize)]
struct Case {
    fault: String,
    expected: Vec<&'static str>,
    raised: Vec<&'static str>,
    ok: bool,
}

/// Runs it.
pub(crate) fn run(args: &Args, out: &Out) -> Result<bool> {
    let mut cases = Vec::new();
    for (i, (fault, expected)) in CASES.into_iter().enumerate() {
        out.note(&format!("case {} of {}: {fault:?}", i + 1, CASES.len()));
        let prefix = format!("lt-self-test-{}-{i}.", std::process::id());
        let names: Vec<String> = TOPICS.iter().map(|t| format!("{prefix}{t}")).collect();
        topics::create(&args.bootstrap, &names, PARTITIONS, &[])?;
        let raised = case(&args.bootstrap, &prefix, fault, out);
        topics::delete(&args.bootstrap, &names)?;
        let raised = raised?;
        cases.push(Case { fault: format!("{fault:?}"), ok: raised == expected, expected: expected.to_vec(), raised });
    }
    out.result(&cases, || text(&cases))?;
    Ok(cases.iter().all(|c| c.ok))
}

/// Plays one case; the counts that were raised.
fn case(bootstrap: &str, prefix: &str, fault: Fault, out: &Out) -> Result<Vec<&'static str>> {
    inputs(bootstrap, prefix)?;
    Decider::new(bootstrap, prefix, fault)?.all()?;
    let isolation = if fault == Fault::Uncommitted { Isolation::Uncommitted } else { Isolation::Committed };
    let report = verify::verify(&verify::Args::plain(bootstrap, prefix, isolation), out)?;
    Ok(report.counts.faults().into_iter().filter(|(_, n)| *n > 0).map(|(name, _)| name).collect())
}

fn inputs(bootstrap: &str, prefix: &str) -> Result<()> {
    let producer = producer(bootstrap, None, &[])?;
    let topic = format!("{prefix}memory-writes");
    let send_all = |producer: &Counted, count: i64| {
        for partition in 0..PARTITIONS {
            for _ in 0..count {
                send(producer, BaseRecord::to(&topic).partition(partition).key("t/s").payload("{}"))?;
            }
        }
        drain(producer)
    };
    send_all(&producer, INPUTS)?;
    let aborting = crate::kafka::producer(bootstrap, Some(&format!("{prefix}inputs")), &[])?;
    aborting.begin_transaction().doing("begin_transaction")?;
    send_all(&aborting, ABORTED)?;
    aborting.abort_transaction(CALL).doing("abort_transaction")
}

/// Writes decisions and outputs as memsluice does.
struct Decider<'a> {
    prefix: &'a str,
    fault: Fault,
    producer: Counted,
    /// Next sequence and head of each partition.
    chains: BTreeMap<i32, (u64, [u8; 32])>,
}

impl<'a> Decider<'a> {
    fn new(bootstrap: &str, prefix: &'a str, fault: Fault) -> Result<Self> {
        let producer = producer(bootstrap, Some(&format!("{prefix}decider")), &[])?;
        Ok(Self { prefix, fault, producer, chains: BTreeMap::new() })
    }

    /// Decides everything; half of it is decided before and again after in transactions that abort, so that
    /// aborted records stand inside and at the very end of the logs.
    fn all(mut self) -> Result<()> {
        self.transaction(0, INPUTS / 2, false)?;
        if self.fault != Fault::AbortedHead {
            self.chains.clear();
        }
        self.transaction(0, INPUTS / 2, true)?;
        let all = if self.fault == Fault::AbortedInput { INPUTS + 1 } else { INPUTS };
        self.transaction(INPUTS / 2, all, true)?;
        self.transaction(0, INPUTS / 2, false)
    }

    fn transaction(&mut self, from: i64, to: i64, commit: bool) -> Result<()> {
        self.producer.begin_transaction().doing("begin_transaction")?;
        self.range(from, to)?;
        drain(&self.producer)?;
        if commit {
            self.producer.commit_transaction(CALL).doing("commit_transaction")
        } else {
            self.producer.abort_transaction(CALL).doing("abort_transaction")
        }
    }

    fn range(&mut self, from: i64, to: i64) -> Result<()> {
        for partition in 0..PARTITIONS {
            let mut offsets: Vec<i64> = (from..to).collect();
            if self.fault == Fault::Order && partition == STRUCK.0 && from == 0 {
                offsets.swap(4, 8);
            }
            for offset in offsets {
                self.one(partition, offset)?;
            }
        }
        Ok(())
    }

    fn one(&mut self, partition: i32, offset: i64) -> Result<()> {
        let struck = (partition, offset) == STRUCK;
        let fault = if struck { self.fault } else { Fault::None };
        // The struck input is an allowed one; the held one behind it lacks its finding.
        let fault =
            if (partition, offset - 1) == STRUCK && self.fault == Fault::NoFinding { self.fault } else { fault };
        let (verdict, topic) = match offset % 4 {
            0 => ("allow", "committed-memory"),
            1 => ("quarantine", "quarantine"),
            2 => ("block", "quarantine"),
            _ => ("dead_letter", "dead-letters"),
        };
        match fault {
            Fault::Lost => return Ok(()),
            Fault::NoOutput => {}
            Fault::WrongOutput => self.output("quarantine", partition, offset)?,
            _ => self.output(topic, partition, offset)?,
        }
        if matches!(verdict, "quarantine" | "block") && fault != Fault::NoFinding {
            self.finding(partition, offset)?;
        }
        let stands = if fault == Fault::Misplaced { 0 } else { partition };
        match fault {
            Fault::OutputAlone => Ok(()),
            Fault::Duplicate => {
                self.decision(stands, partition, offset, verdict, fault)?;
                self.decision(stands, partition, offset, verdict, fault)
            }
            Fault::Unknown => {
                self.decision(stands, partition, offset, verdict, fault)?;
                self.decision(stands, partition + 100, offset, verdict, fault)
            }
            _ => self.decision(stands, partition, offset, verdict, fault),
        }
    }

    fn output(&self, topic: &str, partition: i32, offset: i64) -> Result<()> {
        let writes = format!("{}memory-writes", self.prefix);
        let headers = if topic == "dead-letters" {
            let (partition, offset) = (partition.to_string(), offset.to_string());
            let of = |key, value| Header { key, value: Some(value) };
            OwnedHeaders::new()
                .insert(of("__streams.errors.topic", &writes))
                .insert(of("__streams.errors.partition", &partition))
                .insert(of("__streams.errors.offset", &offset))
        } else {
            let sequence = format!("{writes}-{partition}-{offset}");
            OwnedHeaders::new().insert(Header { key: "ce_sequence", value: Some(&sequence) })
        };
        let topic = format!("{}{topic}", self.prefix);
        send(&self.producer, BaseRecord::to(&topic).partition(partition).key("k").payload("{}").headers(headers))
    }

    fn finding(&self, partition: i32, offset: i64) -> Result<()> {
        let prefix = self.prefix;
        let value = format!(
            r#"{{"finding_info":{{"types":["memory-poisoning"]}},"metadata":{{}},"evidences":[{{"data":{{"input":"{prefix}memory-writes-{partition}@{offset}"}}}}],"unmapped":{{"boundary":"t/s"}}}}"#
        );
        let topic = format!("{prefix}attacks");
        send(&self.producer, BaseRecord::to(&topic).partition(partition).key("k").payload(&value))
    }

    fn decision(&mut self, stands: i32, of: i32, offset: i64, verdict: &str, fault: Fault) -> Result<()> {
        let prefix = self.prefix;
        let body = format!(
            r#"{{"flags":[],"id":"x","input":{{"offset":{offset},"partition":{of},"topic":"{prefix}memory-writes"}},"kind":"decision","memsad":null,"reasons":[],"record_id":"r-{of}-{offset}","store":"s","tenant":"t","verdict":"{verdict}"}}"#
        );
        let (seq, prev) = self.chains.get(&stands).copied().unwrap_or((0, [0; 32]));
        let entry: [u8; 32] = Sha256::new().chain_update(prev).chain_update(&body).finalize().into();
        self.chains.insert(stands, (seq + 1, entry));
        let seq = if fault == Fault::Sequence { seq + 7 } else { seq };
        let body = if fault == Fault::Body { body.replace("\"x\"", "\"y\"") } else { body };
        let mut value = format!(
            r#"{{"body":{body},"chain":{{"entry_hash":"{}","prev_hash":"{}","seq":{seq}}}}}"#,
            hex::encode(entry),
            hex::encode(prev)
        );
        if fault == Fault::Malformed {
            value.truncate(40);
        }
        let topic = format!("{prefix}decisions");
        send(&self.producer, BaseRecord::to(&topic).partition(stands).key("k").payload(&value))
    }
}

fn text(cases: &[Case]) -> String {
    let list = |names: &[&str]| if names.is_empty() { "clean".to_owned() } else { names.join(" ") };
    let row = |c: &Case| {
        vec![c.fault.clone(), list(&c.expected), list(&c.raised), if c.ok { "ok" } else { "WRONG" }.to_owned()]
    };
    let rows: Vec<Vec<String>> = cases.iter().map(row).collect();
    columns(&["fault", "must raise", "raised", ""], &rows)
}
