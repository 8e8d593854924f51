//! `verify`: exactly once, seen from outside.

mod chain;
mod record;
mod tally;

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use serde::Serialize;

use crate::compare::{differences, lines};
use crate::error::{Error, Result};
use crate::out::{Out, columns};
use crate::read::{Bounds, Isolation, Reader};
use crate::verify::chain::Chain;
use crate::verify::record::{Body, Input, Kind, Line, Record, sequence};
use crate::verify::tally::{Counts, Place, Tally, Verdict};

/// Check that every write was decided once, and that outputs and hash chain agree
///
/// Reads the topics whole by its own consumer. Run it when the stream is at rest: what is open or not yet
/// read counts as lost. An empty input topic fails: nothing was checked.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit 1 unless all of lost, duplicate, torn, out_of_order, chain_broken, unknown_input, misplaced, malformed are 0.\n\n\
    Example:\n  load-tests verify --bootstrap 127.0.0.1:19092 --prefix t1. --dump run1.jsonl\n  \
    load-tests verify --bootstrap 127.0.0.1:19092 --isolation read_uncommitted   # must go red after a kill"
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
    /// What is seen of transactions
    #[arg(long, default_value = "read_committed")]
    isolation: Isolation,
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
    ok: bool,
    /// What was counted.
    #[serde(flatten)]
    pub(crate) counts: Counts,
    verdicts: BTreeMap<Verdict, u64>,
    /// Lines that differ from --expect-file.
    differs: Option<usize>,
    named: Vec<String>,
}

/// Reads the topics one after the other.
struct Verifier<'a> {
    args: &'a Args,
    reader: Reader<'a>,
    writes: String,
    tally: Tally,
    verdicts: BTreeMap<Verdict, u64>,
    dump: Option<Vec<Line>>,
}

impl Args {
    /// The arguments that the self-test needs, all else by default.
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
            isolation,
            expect_file: None,
            dump: None,
        }
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
    let keep = args.dump.is_some() || args.expect_file.is_some();
    let mut verifier = Verifier {
        args,
        reader: Reader { bootstrap: &args.bootstrap, isolation: args.isolation, out },
        writes: format!("{}{}", args.prefix, args.writes_topic),
        tally: Tally::default(),
        verdicts: BTreeMap::new(),
        dump: keep.then(Vec::new),
    };
    verifier.inputs()?;
    verifier.decisions()?;
    verifier.outputs(&args.committed, Place::Committed)?;
    verifier.outputs(&args.quarantine, Place::Quarantine)?;
    verifier.outputs(&args.dead_letters, Place::DeadLetters)?;
    verifier.tally.finish();
    let differs = verifier.dumped()?;
    let Verifier { tally: Tally { counts, named, .. }, verdicts, .. } = verifier;
    let clean = counts.faults().iter().all(|(_, n)| *n == 0);
    let ok = clean && counts.inputs > 0 && differs.unwrap_or(0) == 0;
    Ok(Report { ok, counts, verdicts, differs, named })
}

impl Verifier<'_> {
    fn name(&self, topic: &str) -> String {
        format!("{}{topic}", self.args.prefix)
    }

    /// Where a topic stands; counts its partitions with open transactions.
    fn bounds(&mut self, topic: &str) -> Result<BTreeMap<i32, Bounds>> {
        let bounds = self.reader.bounds(topic)?;
        self.tally.counts.open_partitions += bounds.values().filter(|b| b.stable < b.high).count() as u64;
        Ok(bounds)
    }

    fn inputs(&mut self) -> Result<()> {
        let topic = self.writes.clone();
        let bounds = self.bounds(&topic)?;
        for (&partition, b) in &bounds {
            self.tally.partition(partition, b.low, b.high);
        }
        let tally = &mut self.tally;
        self.reader.read(&topic, &bounds, |message| {
            tally.input(message.partition(), message.offset());
            Ok(ControlFlow::Continue(()))
        })
    }

    fn decisions(&mut self) -> Result<()> {
        let topic = self.name(&self.args.decisions_topic);
        let bounds = self.bounds(&topic)?;
        let mut chains: BTreeMap<i32, Chain> = bounds.iter().map(|(&p, b)| (p, Chain::new(b.low == 0))).collect();
        let Self { tally, verdicts, dump, writes, .. } = self;
        self.reader.read(&topic, &bounds, |message| {
            let value = message.payload().unwrap_or_default();
            let at = (message.partition(), message.offset());
            let Ok(record) = serde_json::from_slice::<Record<'_>>(value) else {
                tally.counts.malformed += 1;
                tally.name(|| format!("malformed: decision at {}-{}", at.0, at.1));
                return Ok(ControlFlow::Continue(()));
            };
            if !chains
                .entry(at.0)
                .or_insert_with(|| Chain::new(true))
                .follows(&record.chain, record.body.get().as_bytes())
            {
                tally.counts.chain_broken += 1;
                tally.name(|| format!("chain_broken: at {}-{}, seq {}", at.0, at.1, record.chain.seq));
            }
            if let Some(body) = judged(tally, at, record.body.get(), writes) {
                if let Some(verdict) = body.verdict {
                    *verdicts.entry(verdict).or_default() += 1;
                }
                if let Some(lines) = dump {
                    lines.push(Line::new(body));
                }
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    fn outputs(&mut self, topic: &str, place: Place) -> Result<()> {
        let topic = self.name(topic);
        let bounds = self.bounds(&topic)?;
        let Self { tally, writes, .. } = self;
        self.reader.read(&topic, &bounds, |message| {
            match coordinates(message, place) {
                Some(input) if input.topic == *writes => {
                    tally.output(place, message.partition(), input.partition, input.offset)
                }
                Some(_) if place == Place::DeadLetters => tally.counts.other_dead_letters += 1,
                _ => {
                    tally.counts.malformed += 1;
                    tally.name(|| {
                        format!(
                            "malformed: {topic} {}-{} does not say its input",
                            message.partition(),
                            message.offset()
                        )
                    });
                }
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Writes and compares the dump; the number of lines that differ from --expect-file.
    fn dumped(&mut self) -> Result<Option<usize>> {
        let Some(mut dump) = self.dump.take() else {
            return Ok(None);
        };
        dump.sort_by(Line::order);
        let made: std::result::Result<Vec<String>, _> = dump.iter().map(serde_json::to_string).collect();
        let made = made.map_err(|e| Error::json("the dump can't be written", e))?;
        if let Some(path) = &self.args.dump {
            let text: String = made.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
            fs::write(path, text).map_err(|e| Error::io("write", path, e))?;
        }
        let Some(expected) = &self.args.expect_file else {
            return Ok(None);
        };
        let found = differences(&lines(expected)?, &made)?;
        for difference in found.iter().take(5) {
            self.tally.name(|| format!("differs: expected {:?}, got {:?}", difference.a, difference.b));
        }
        Ok(Some(found.len()))
    }
}

/// Enters a body into the tally; `None` unless it is a decision that could be read.
fn judged<'b>(tally: &mut Tally, at: (i32, i64), text: &'b str, writes: &str) -> Option<Body<'b>> {
    let body: Option<Body<'b>> = serde_json::from_str(text).ok();
    match &body {
        Some(Body { kind: Kind::Decision, input: Some(input), verdict: Some(verdict), .. }) => {
            if input.topic == writes {
                tally.decision(at.0, input.partition, input.offset, *verdict);
            } else {
                tally.unknown_topic(&format!("{} {}-{}", input.topic, input.partition, input.offset));
            }
            body
        }
        Some(Body { kind: Kind::Control, input: Some(input), verdict: None, .. }) if input.topic == writes => {
            tally.control(at.0, input.partition, input.offset);
            None
        }
        Some(Body { kind: Kind::Activation, .. }) => {
            tally.counts.activations += 1;
            None
        }
        Some(Body { kind: Kind::Other, .. }) => None,
        _ => {
            tally.counts.malformed += 1;
            tally.name(|| format!("malformed: body at {}-{}", at.0, at.1));
            None
        }
    }
}

/// The last header of that name as text: ours come after the producer's.
fn header<'m>(message: &'m BorrowedMessage<'_>, name: &str) -> Option<&'m str> {
    let headers = message.headers()?;
    let value = headers.iter().filter(|h| h.key == name).filter_map(|h| h.value).last()?;
    std::str::from_utf8(value).ok()
}

/// The input that an output names in its headers.
fn coordinates<'m>(message: &'m BorrowedMessage<'_>, place: Place) -> Option<Input<'m>> {
    if place != Place::DeadLetters {
        return sequence(header(message, "ce_sequence")?);
    }
    Some(Input {
        topic: header(message, "__streams.errors.topic")?.into(),
        partition: header(message, "__streams.errors.partition")?.parse().ok()?,
        offset: header(message, "__streams.errors.offset")?.parse().ok()?,
    })
}

fn text(report: &Report) -> String {
    let counts = &report.counts;
    let mut rows = vec![
        ("inputs", counts.inputs),
        ("decisions", counts.decisions),
        ("activations", counts.activations),
        ("controls", counts.controls),
        ("committed", counts.committed),
        ("quarantined", counts.quarantined),
        ("dead_letters", counts.dead_letters),
        ("other_dead_letters", counts.other_dead_letters),
        ("expired", counts.expired),
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
