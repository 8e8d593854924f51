//! Reads the topics one after the other and enters what they hold.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use serde::Deserialize;

use crate::compare::{differences, lines};
use crate::error::{Error, Result};
use crate::read::{Bounds, Isolation, Reader};
use crate::verify::Args;
use crate::verify::chain::Chain;
use crate::verify::finding::{self, Finding};
use crate::verify::model::{Model, Scores, Traps};
use crate::verify::record::{Body, Input, Kind, Line, Record, sequence};
use crate::verify::reset::{Reset, Resets};
use crate::verify::state::{Fold, Known, Local, locals};
use crate::verify::tally::{Place, Tally, Verdict};
use crate::verify::views::{Offsets, aborted, seen};

/// Pause between two looks at open transactions.
const LOOK: Duration = Duration::from_millis(500);

/// Reads and counts.
pub(super) struct Verifier<'a> {
    args: &'a Args,
    reader: Reader<'a>,
    writes: String,
    retrievals: String,
    pub(super) tally: Tally,
    pub(super) verdicts: BTreeMap<Verdict, u64>,
    dump: Option<Vec<Line>>,
    /// What the inputs say; with --derive.
    model: Option<Model>,
    /// Dead letters of retrievals, by input.
    dead_retrievals: BTreeMap<(i32, i64), u64>,
    aborted_retrievals: HashSet<(i32, i64)>,
    resets: Resets,
    chains: BTreeMap<i32, Chain>,
}

/// Value of a version of a honeypot set.
#[derive(Debug, Deserialize)]
struct TrapSet {
    scope: String,
    version: u64,
    honeypots: Vec<Trap>,
}

#[derive(Debug, Deserialize)]
struct Trap {
    honeypot_id: String,
    record_id: String,
}

impl<'a> Verifier<'a> {
    pub(super) fn new(args: &'a Args, reader: Reader<'a>) -> Self {
        let keep = args.dump.is_some() || args.expect_file.is_some();
        Self {
            args,
            reader,
            writes: format!("{}{}", args.prefix, args.writes_topic),
            retrievals: format!("{}{}", args.prefix, args.retrievals_topic),
            tally: Tally::new(args.repartitioned),
            verdicts: BTreeMap::new(),
            dump: keep.then(Vec::new),
            model: None,
            dead_retrievals: BTreeMap::new(),
            aborted_retrievals: HashSet::new(),
            resets: Resets::default(),
            chains: BTreeMap::new(),
        }
    }

    /// Reads everything that the arguments ask for.
    pub(super) fn all(&mut self) -> Result<()> {
        self.rest()?;
        self.inputs()?;
        if self.args.derive {
            self.retrievals()?;
        }
        self.decisions()?;
        for (topic, place) in [
            (&self.args.committed, Place::Committed),
            (&self.args.quarantine, Place::Quarantine),
            (&self.args.dead_letters, Place::DeadLetters),
        ] {
            self.outputs(topic, place)?;
        }
        self.findings()?;
        if self.args.derive {
            self.dead_letters_of_retrievals();
            self.changelog()?;
        }
        self.tally.finish();
        Ok(())
    }

    fn name(&self, topic: &str) -> String {
        format!("{}{topic}", self.args.prefix)
    }

    /// Waits for open transactions, as long as the arguments say.
    fn rest(&mut self) -> Result<()> {
        let args = self.args;
        let outputs = [&args.decisions_topic, &args.committed, &args.quarantine, &args.dead_letters, &args.attacks];
        let mut topics: Vec<String> = outputs.map(|t| self.name(t)).into();
        topics.push(self.writes.clone());
        if args.derive {
            topics.extend([self.retrievals.clone(), self.name(&args.changelog)]);
        }
        let began = Instant::now();
        loop {
            let mut open = 0;
            for topic in &topics {
                open += self.reader.bounds(topic)?.values().filter(|b| b.stable < b.high).count() as u64;
            }
            self.tally.counts.open_partitions = open;
            if open == 0 || began.elapsed() >= Duration::from_secs(args.settle) {
                return Ok(());
            }
            sleep(LOOK);
        }
    }

    /// Truth about an input topic, whatever the reader under test sees: calls `each` for committed records and
    /// `dead` for those of aborted transactions.
    fn both<F, G>(&mut self, topic: &str, bounds: &BTreeMap<i32, Bounds>, mut each: F, mut dead: G) -> Result<()>
    where
        F: FnMut(&mut Self, &BorrowedMessage<'_>),
        G: FnMut(&mut Self, &BorrowedMessage<'_>),
    {
        let reader = Reader { isolation: Isolation::Committed, ..self.reader };
        let offsets = seen(&reader, topic, bounds, |message| {
            each(self, message);
            Ok(())
        })?;
        let (count, _) = aborted(&reader, topic, bounds, &offsets, |message| dead(self, message))?;
        self.tally.counts.aborted_records += count;
        Ok(())
    }

    /// Counts what of an output topic belongs to aborted transactions.
    fn aborted<F>(&mut self, topic: &str, bounds: &BTreeMap<i32, Bounds>, offsets: &Offsets, each: F) -> Result<()>
    where
        F: FnMut(&BorrowedMessage<'_>),
    {
        let (count, visible) = aborted(&self.reader, topic, bounds, offsets, each)?;
        self.tally.counts.aborted_records += count;
        self.tally.counts.aborted_read += visible;
        if visible > 0 {
            self.tally.name(|| format!("aborted_read: {visible} records of {topic} are of aborted transactions"));
        }
        Ok(())
    }

    fn inputs(&mut self) -> Result<()> {
        let topic = self.writes.clone();
        let bounds = self.reader.bounds(&topic)?;
        for (&partition, b) in &bounds {
            self.tally.partition(partition, b.low, b.high);
        }
        if self.args.derive {
            let partitions = u32::try_from(bounds.len()).unwrap_or(u32::MAX);
            self.model = Some(Model::new(partitions, self.traps()?));
        }
        let each = |v: &mut Self, message: &BorrowedMessage<'_>| {
            let at = (message.partition(), message.offset());
            v.tally.input(at.0, at.1);
            if let Some(model) = &mut v.model {
                model.write(at, message.payload().unwrap_or_default());
            }
        };
        self.both(&topic, &bounds, each, |v, message| v.tally.aborted_input(message.partition(), message.offset()))
    }

    fn traps(&self) -> Result<BTreeMap<String, Traps>> {
        let topic = self.name(&self.args.honeypots);
        let bounds = self.reader.bounds(&topic)?;
        let mut traps = BTreeMap::new();
        seen(&self.reader, &topic, &bounds, |message| {
            if let Ok(set) = serde_json::from_slice::<TrapSet>(message.payload().unwrap_or_default()) {
                let by_record = set.honeypots.into_iter().map(|h| (h.record_id, h.honeypot_id)).collect();
                let known = traps.insert(set.scope.clone(), Traps { version: set.version, by_record });
                if known.is_some() {
                    return Err(Error::Input(format!("--derive: {} has two sets of honeypots", set.scope)));
                }
            }
            Ok(())
        })?;
        Ok(traps)
    }

    fn retrievals(&mut self) -> Result<()> {
        let topic = self.retrievals.clone();
        let bounds = self.reader.bounds(&topic)?;
        let each = |v: &mut Self, message: &BorrowedMessage<'_>| {
            let time = message.timestamp().to_millis().unwrap_or(0);
            if let Some(model) = &mut v.model {
                model.retrieval((message.partition(), message.offset()), time, message.payload().unwrap_or_default());
            }
        };
        self.both(&topic, &bounds, each, |v, message| {
            v.aborted_retrievals.insert((message.partition(), message.offset()));
        })
    }

    fn decisions(&mut self) -> Result<()> {
        let topic = self.name(&self.args.decisions_topic);
        let bounds = self.reader.bounds(&topic)?;
        self.chains = bounds.iter().map(|(&p, b)| (p, Chain::new(b.low == 0))).collect();
        let (mut heads, mut built_on) = (HashSet::new(), Vec::new());
        let reader = self.reader;
        let offsets = seen(&reader, &topic, &bounds, |message| {
            let at = (message.partition(), message.offset());
            if let Some((head, previous)) = self.decision(at, message.payload().unwrap_or_default()) {
                heads.insert(head);
                built_on.push((at, previous));
            }
            Ok(())
        })?;
        let mut only_aborted = HashSet::new();
        self.aborted(&topic, &bounds, &offsets, |message| {
            let record = serde_json::from_slice::<Record<'_>>(message.payload().unwrap_or_default());
            only_aborted.extend(record.ok().map(|r| r.chain.entry_hash).filter(|head| !heads.contains(head)));
        })?;
        for ((partition, offset), previous) in built_on {
            if only_aborted.contains(&previous) {
                self.tally.aborted_read(|| format!("decision at {partition}-{offset} follows an aborted one"));
            }
        }
        let sets = self.model.as_ref().map_or(0, Model::sets) as u64;
        if self.args.derive && self.tally.counts.activations != sets {
            self.tally.diverged(&format!("{} activations of {sets} sets of honeypots", self.tally.counts.activations));
        }
        Ok(())
    }

    /// Enters a decision; its hash and that of the one before it.
    fn decision(&mut self, at: (i32, i64), value: &[u8]) -> Option<(String, String)> {
        let Ok(record) = serde_json::from_slice::<Record<'_>>(value) else {
            self.tally.counts.malformed += 1;
            self.tally.name(|| format!("malformed: decision at {}-{}", at.0, at.1));
            return None;
        };
        let chain = self.chains.entry(at.0).or_insert_with(|| Chain::new(true));
        if !chain.follows(&record.chain, record.body.get().as_bytes()) {
            self.tally.counts.chain_broken += 1;
            self.tally.name(|| format!("chain_broken: at {}-{}, seq {}", at.0, at.1, record.chain.seq));
        }
        if let Some(reset) = restarted(record.body.get(), &self.writes) {
            self.tally.restart(at.0, reset.next, reset.before);
            if let Some(lines) = &mut self.dump {
                lines.retain(|l| !l.is_of(at.0, reset.next));
            }
            self.resets.add(at.0, reset);
        } else if let Some(body) = judged(&mut self.tally, at, record.body.get(), &self.writes) {
            self.weigh(&body);
            if let Some(verdict) = body.verdict {
                *self.verdicts.entry(verdict).or_default() += 1;
            }
            if let Some(lines) = &mut self.dump {
                lines.push(Line::new(body));
            }
        }
        Some((record.chain.entry_hash, record.chain.prev_hash))
    }

    /// Compares a decision with what the inputs say.
    fn weigh(&mut self, body: &Body<'_>) {
        let (Some(model), Some(input)) = (&self.model, &body.input) else { return };
        let Some(expected) = model.expected((input.partition, input.offset)) else { return };
        let (at, place) = (input.partition, format!("{}-{}", input.partition, input.offset));
        // The screen is not derived here: what it says that it holds may be held.
        let screened = body.is_screened() && body.verdict.is_some_and(|v| v.held() && v >= expected.verdict);
        if body.verdict != Some(expected.verdict) && !screened {
            self.tally.counts.wrong_verdict += 1;
            let found = body.verdict;
            self.tally.name(|| format!("wrong_verdict: {place} is {found:?}, not {:?}", expected.verdict));
        }
        let next = body.input_vector.get(&self.retrievals).copied().unwrap_or(0);
        let due = expected.scored.as_ref().map(|(boundary, who, v)| model.scores(at, boundary, next, who, v));
        let found = body.memsad.map(|s| Scores {
            m: s.m.unwrap_or(-1),
            max: s.s_max.unwrap_or(-1),
            mean: s.s_mean.unwrap_or(-1),
            comb: s.s_comb.unwrap_or(-1),
        });
        if due != found {
            self.tally.diverged(&format!("{place} was scored {found:?}, the queries before it say {due:?}"));
        }
    }

    fn outputs(&mut self, topic: &str, place: Place) -> Result<()> {
        let topic = self.name(topic);
        let bounds = self.reader.bounds(&topic)?;
        let reader = self.reader;
        let offsets = seen(&reader, &topic, &bounds, |message| {
            match coordinates(message, place) {
                _ if is_mark(message, place) => self.tally.counts.marks += 1,
                Some(input) if input.topic == self.writes && self.superseded(&topic, message, input.offset) => {
                    self.tally.counts.superseded += 1;
                }
                Some(input) if input.topic == self.writes => {
                    self.tally.output(place, message.partition(), input.partition, input.offset);
                }
                Some(input) if place == Place::DeadLetters => {
                    self.tally.counts.other_dead_letters += 1;
                    if input.topic == self.retrievals {
                        *self.dead_retrievals.entry((input.partition, input.offset)).or_default() += 1;
                    }
                }
                _ => self.malformed(&topic, message),
            }
            Ok(())
        })?;
        self.aborted(&topic, &bounds, &offsets, |_| ())
    }

    /// Whether a reset had the input decided anew after this output.
    fn superseded(&self, topic: &str, message: &BorrowedMessage<'_>, input: i64) -> bool {
        self.resets.supersede(topic, message.partition(), message.offset(), input)
    }

    fn malformed(&mut self, topic: &str, message: &BorrowedMessage<'_>) {
        self.tally.counts.malformed += 1;
        self.tally
            .name(|| format!("malformed: {topic} {}-{} does not say its input", message.partition(), message.offset()));
    }

    fn findings(&mut self) -> Result<()> {
        let topic = self.name(&self.args.attacks);
        let bounds = self.reader.bounds(&topic)?;
        let mut sessions: BTreeMap<(i32, String, String), u64> = BTreeMap::new();
        let reader = self.reader;
        let offsets = seen(&reader, &topic, &bounds, |message| {
            match finding::read(message.payload().unwrap_or_default()) {
                Some(Finding::Held(input))
                    if input.topic == self.writes && self.superseded(&topic, message, input.offset) =>
                {
                    self.tally.counts.superseded += 1;
                }
                Some(Finding::Held(input)) if input.topic == self.writes => {
                    self.tally.output(Place::Findings, message.partition(), input.partition, input.offset);
                }
                Some(Finding::Session(boundary, session)) => {
                    *sessions.entry((message.partition(), boundary, session)).or_default() += 1;
                }
                Some(Finding::Other) => {}
                _ => self.malformed(&topic, message),
            }
            Ok(())
        })?;
        self.aborted(&topic, &bounds, &offsets, |_| ())?;
        let Some(model) = &self.model else { return Ok(()) };
        for (partition, unit) in &model.units {
            for ((boundary, session), due) in &unit.crossings {
                let found = sessions.remove(&(*partition, boundary.to_string(), session.clone())).unwrap_or(0);
                if found != *due {
                    self.tally.counts.torn += 1;
                    self.tally.name(|| format!("torn: session {boundary} {session} has {found} findings of {due}"));
                }
            }
        }
        for (partition, boundary, session) in sessions.keys() {
            self.tally.counts.torn += 1;
            self.tally
                .name(|| format!("torn: unit {partition} has a finding on {boundary} {session}, which is benign"));
        }
        Ok(())
    }

    /// Every retrieval that can't be read is one dead letter, and no other is.
    fn dead_letters_of_retrievals(&mut self) {
        let Some(model) = &self.model else { return };
        let due = model.units.iter().flat_map(|(p, unit)| unit.dead.iter().map(|offset| (*p, *offset)));
        for at in due {
            let found = self.dead_retrievals.remove(&at).unwrap_or(0);
            if found != 1 {
                *if found == 0 { &mut self.tally.counts.lost } else { &mut self.tally.counts.duplicate } += 1;
                self.tally.name(|| format!("retrieval {}-{} has {found} dead letters, not 1", at.0, at.1));
            }
        }
        for at in self.dead_retrievals.keys() {
            if self.aborted_retrievals.contains(at) {
                self.tally.aborted_read(|| format!("the aborted retrieval {}-{} is a dead letter", at.0, at.1));
            } else {
                self.tally.counts.torn += 1;
                self.tally.name(|| format!("torn: retrieval {}-{} is a dead letter and was fine", at.0, at.1));
            }
        }
    }

    /// The fold of the changelog beside the inputs and the members.
    fn changelog(&mut self) -> Result<()> {
        let topic = self.name(&self.args.changelog);
        let bounds = self.reader.bounds(&topic)?;
        let mut held: BTreeMap<i32, Vec<Local>> = BTreeMap::new();
        for folder in &self.args.state {
            for (partition, local) in locals(folder)? {
                held.entry(partition).or_default().push(local);
            }
        }
        let mut folds: BTreeMap<i32, Fold> =
            bounds.keys().map(|p| (*p, Fold::new(held.remove(p).unwrap_or_default()))).collect();
        let offsets = seen(&self.reader, &topic, &bounds, |message| {
            let fold = folds.entry(message.partition()).or_default();
            fold.take(message.partition(), message.offset(), message.key().unwrap_or_default(), message.payload());
            Ok(())
        })?;
        self.aborted(&topic, &bounds, &offsets, |_| ())?;
        for (partition, mut fold) in folds {
            fold.finish(bounds.get(&partition).map_or(0, |b| b.high));
            self.tally.counts.local_units += fold.compared;
            let mut findings = std::mem::take(&mut fold.findings);
            findings.extend(self.known(partition, &fold));
            findings.iter().for_each(|what| self.tally.diverged(what));
        }
        Ok(())
    }

    fn known(&self, partition: i32, fold: &Fold) -> Vec<String> {
        let none = Default::default();
        let Some(model) = &self.model else { return Vec::new() };
        let unit = model.units.get(&partition).unwrap_or(&none);
        let chain = self.chains.get(&partition).and_then(Chain::head).unwrap_or_default();
        let known = Known { partition, unit, chain, active: model.active(partition) };
        known.differs(&fold.pairs)
    }

    /// Writes and compares the dump; the number of lines that differ from --expect-file.
    pub(super) fn dumped(&mut self) -> Result<Option<usize>> {
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

/// A body of kind `reset`.
fn restarted(text: &str, writes: &str) -> Option<Reset> {
    let body: Body<'_> = serde_json::from_str(text).ok()?;
    if body.kind == Kind::Reset { Reset::read(text, writes) } else { None }
}

/// A mark says that a dead letter was redriven or skipped: it stands among them and is none.
fn is_mark(message: &BorrowedMessage<'_>, place: Place) -> bool {
    place == Place::DeadLetters
        && header(message, "memsluice-dlq-handled").is_some()
        && header(message, "__streams.errors.exception").is_none()
}

/// Enters a body into the tally; `None` unless it is a decision that could be read.
fn judged<'b>(tally: &mut Tally, at: (i32, i64), text: &'b str, writes: &str) -> Option<Body<'b>> {
    let body: Option<Body<'b>> = serde_json::from_str(text).ok();
    match &body {
        Some(Body { kind: Kind::Input, input: Some(input), facts: Some(facts), .. }) if input.topic == writes => {
            tally.parent(at.0, input.partition, input.offset, *facts);
            None
        }
        Some(Body { kind: Kind::Decision, input: Some(input), child: Some(child), verdict: Some(verdict), .. })
            if input.topic == writes =>
        {
            tally.fact(at.0, input.partition, input.offset, *child, *verdict);
            body
        }
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
