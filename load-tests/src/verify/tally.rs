//! Joins inputs, decisions and outputs by input coordinates, and counts what does not add up. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Findings of one kind that are named; the rest is counted only.
const NAMED: usize = 5;

/// Words of `verdict`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Allow,
    Redact,
    Quarantine,
    Block,
    DeadLetter,
}

/// A topic that a write can end in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Committed = 0,
    Quarantine = 1,
    DeadLetters = 2,
    /// Findings that name a held write.
    Findings = 3,
}

impl Verdict {
    /// Whether the write is held, so that there is a finding.
    pub(super) fn held(self) -> bool {
        matches!(self, Verdict::Quarantine | Verdict::Block)
    }

    fn place(self) -> Place {
        match self {
            Verdict::Allow | Verdict::Redact => Place::Committed,
            Verdict::Quarantine | Verdict::Block => Place::Quarantine,
            Verdict::DeadLetter => Place::DeadLetters,
        }
    }
}

/// Counts; every one of the second block must be zero.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    pub(crate) inputs: u64,
    pub(crate) decisions: u64,
    pub(crate) activations: u64,
    /// Records of an operator, such as skips.
    pub(crate) controls: u64,
    pub(crate) committed: u64,
    pub(crate) quarantined: u64,
    pub(crate) dead_letters: u64,
    /// Findings about held writes.
    pub(crate) findings: u64,
    /// Dead letters of other inputs, such as retrieval-logs: they have no decision.
    pub(crate) other_dead_letters: u64,
    /// Decisions whose input is below the start of its log: retention took it.
    pub(crate) expired: u64,
    /// Decisions and outputs made before a reset that had their input decided anew.
    pub(crate) superseded: u64,
    /// Inputs that a reset passed over.
    pub(crate) passed_over: u64,
    /// Marks of redriven or skipped dead letters.
    pub(crate) marks: u64,
    /// Records of aborted transactions, in all topics.
    pub(crate) aborted_records: u64,
    /// Units of members' local states that were compared with the changelog.
    pub(crate) local_units: u64,
    /// Partitions with an open transaction when reading began.
    pub(crate) open_partitions: u64,

    /// Inputs without a decision.
    pub(crate) lost: u64,
    /// Inputs with more than one decision.
    pub(crate) duplicate: u64,
    /// Inputs whose decision and outputs disagree.
    pub(crate) torn: u64,
    /// Records of aborted transactions that are seen, decided on or built on.
    pub(crate) aborted_read: u64,
    /// Decisions and outputs on an earlier offset than the one before them.
    pub(crate) out_of_order: u64,
    /// Scores, keys of the changelog and members' units that are not what inputs and changelog say.
    pub(crate) state_diverged: u64,
    /// Verdicts that the inputs don't ask for.
    pub(crate) wrong_verdict: u64,
    /// Decisions that don't continue the chain of their partition.
    pub(crate) chain_broken: u64,
    /// Decisions on an input that does not exist.
    pub(crate) unknown_input: u64,
    /// Decisions and outputs in another partition than their input.
    pub(crate) misplaced: u64,
    /// Decisions and outputs that can't be read.
    pub(crate) malformed: u64,
}

impl Counts {
    /// The counts that must be zero.
    pub(crate) fn faults(&self) -> [(&'static str, u64); 11] {
        [
            ("lost", self.lost),
            ("duplicate", self.duplicate),
            ("torn", self.torn),
            ("aborted_read", self.aborted_read),
            ("out_of_order", self.out_of_order),
            ("state_diverged", self.state_diverged),
            ("wrong_verdict", self.wrong_verdict),
            ("chain_broken", self.chain_broken),
            ("unknown_input", self.unknown_input),
            ("misplaced", self.misplaced),
            ("malformed", self.malformed),
        ]
    }
}

/// What is known of one input.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    input: bool,
    /// The input's transaction was aborted.
    aborted: bool,
    decisions: u8,
    /// Facts that were decided, of an input with several.
    facts: u32,
    outputs: [u16; 4],
    /// What the decisions on its facts lead to.
    wanted: [u16; 4],
    verdict: Option<Verdict>,
    /// A reset moved past it.
    passed_over: bool,
}

impl Seen {
    /// Whether the outputs are not exactly what the last decision says.
    fn torn(&self) -> bool {
        let mut expected = self.wanted;
        if let Some(verdict) = self.verdict {
            expected[verdict.place() as usize] += 1;
            expected[Place::Findings as usize] += u16::from(verdict.held());
        }
        self.outputs != expected
    }
}

/// One input partition; slot 0 is offset `low`.
#[derive(Debug)]
struct Unit {
    low: i64,
    slots: Vec<Seen>,
}

/// Joins the topics.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    units: BTreeMap<i32, Unit>,
    /// Offset of the last decision or output, by its place, its partition and its input's.
    last: BTreeMap<(Option<Place>, i32, i32), i64>,
    /// Outputs don't stand in the partition of their input.
    repartitioned: bool,
    /// The counts so far; `finish` fills in those that need all topics.
    pub(crate) counts: Counts,
    /// The first findings in words.
    pub(crate) named: Vec<String>,
    /// How many of each kind were named.
    kinds: BTreeMap<String, usize>,
}

impl Tally {
    /// Of inputs in their units, or of a repartition's source.
    pub(crate) fn new(repartitioned: bool) -> Self {
        Self { repartitioned, ..Self::default() }
    }

    /// Declares a partition of the input topic: offsets `low..high`.
    pub(crate) fn partition(&mut self, partition: i32, low: i64, high: i64) {
        let length = usize::try_from(high - low).unwrap_or(0);
        self.units.insert(partition, Unit { low, slots: vec![Seen::default(); length] });
    }

    /// Names a finding, if there is room for one more of its kind (the words before the colon).
    pub(crate) fn name(&mut self, text: impl FnOnce() -> String) {
        let text = text();
        let kind = text.split(':').next().unwrap_or_default().to_owned();
        let count = self.kinds.entry(kind).or_default();
        *count += 1;
        if *count <= NAMED {
            self.named.push(text);
        }
    }

    fn slot(&mut self, partition: i32, offset: i64) -> Option<&mut Seen> {
        let unit = self.units.get_mut(&partition)?;
        unit.slots.get_mut(usize::try_from(offset - unit.low).ok()?)
    }

    /// An input.
    pub(crate) fn input(&mut self, partition: i32, offset: i64) {
        self.counts.inputs += 1;
        if let Some(seen) = self.slot(partition, offset) {
            seen.input = true;
        }
    }

    /// An input whose transaction was aborted.
    pub(crate) fn aborted_input(&mut self, partition: i32, offset: i64) {
        if let Some(seen) = self.slot(partition, offset) {
            seen.aborted = true;
        }
    }

    /// A record that only an aborted transaction has was seen or built on.
    pub(crate) fn aborted_read(&mut self, what: impl FnOnce() -> String) {
        self.counts.aborted_read += 1;
        self.name(|| format!("aborted_read: {}", what()));
    }

    /// A score or a key of the state is not what it should be.
    pub(crate) fn diverged(&mut self, what: &str) {
        self.counts.state_diverged += 1;
        self.name(|| format!("state_diverged: {what}"));
    }

    fn ordered(&mut self, place: Option<Place>, partition: i32, of: i32, offset: i64) {
        if self.last.insert((place, partition, of), offset).is_some_and(|last| last > offset) {
            self.counts.out_of_order += 1;
            let what = place.map_or_else(|| "decision".to_owned(), |p| format!("{p:?}"));
            self.name(|| format!("out_of_order: {what} on {of}-{offset} after a later one"));
        }
    }

    /// A decision that stands in `partition`, about input (`of`, `offset`).
    pub(crate) fn decision(&mut self, partition: i32, of: i32, offset: i64, verdict: Verdict) {
        self.counts.decisions += 1;
        self.settled(partition, of, offset, Some(verdict));
    }

    /// A decision on one fact of an input: facts come in their order, before the decision on the input.
    pub(crate) fn fact(&mut self, partition: i32, of: i32, offset: i64, child: u32, verdict: Verdict) {
        self.placed("decision", partition, of, offset);
        self.ordered(None, partition, of, offset);
        let Some(seen) = self.slot(of, offset) else {
            return self.unknown(of, offset);
        };
        let next = seen.facts + 1 == child && seen.decisions == 0;
        seen.facts = child;
        for (place, n) in [(verdict.place(), 1), (Place::Findings, u16::from(verdict.held()))] {
            let wanted = &mut seen.wanted[place as usize];
            *wanted = wanted.saturating_add(n);
        }
        if !next {
            self.counts.duplicate += 1;
            self.name(|| format!("duplicate: fact {child} of {of}-{offset} is not the next one"));
        }
    }

    /// The decision on an input of `facts` facts.
    pub(crate) fn parent(&mut self, partition: i32, of: i32, offset: i64, facts: u32) {
        self.counts.decisions += 1;
        self.settled(partition, of, offset, None);
        if let Some(found) = self.slot(of, offset).map(|s| s.facts).filter(|found| *found != facts) {
            self.counts.lost += 1;
            self.name(|| format!("lost: {of}-{offset} holds {facts} facts and has {found} decisions on them"));
        }
    }

    /// An input that an operator sent to the stream itself: it has no output.
    pub(crate) fn control(&mut self, partition: i32, of: i32, offset: i64) {
        self.counts.controls += 1;
        self.settled(partition, of, offset, None);
    }

    fn settled(&mut self, partition: i32, of: i32, offset: i64, verdict: Option<Verdict>) {
        self.placed("decision", partition, of, offset);
        self.ordered(None, partition, of, offset);
        let Some(seen) = self.slot(of, offset) else {
            return self.unknown(of, offset);
        };
        seen.decisions = seen.decisions.saturating_add(1);
        seen.verdict = verdict;
    }

    /// A reset: inputs from `next` on are decided anew; those from `before` to below it never were.
    pub(crate) fn restart(&mut self, partition: i32, next: i64, before: i64) {
        self.last.remove(&(None, partition, partition));
        let Some(unit) = self.units.get_mut(&partition) else { return };
        for (slot, seen) in (unit.low..).zip(&mut unit.slots) {
            if slot >= next {
                self.counts.superseded += u64::from(seen.decisions);
                (seen.decisions, seen.verdict, seen.passed_over) = (0, None, false);
                (seen.facts, seen.wanted) = (0, [0; 4]);
            } else if slot >= before && seen.decisions == 0 {
                seen.passed_over = true;
            }
        }
    }

    /// An output that stands in `partition`, made from input (`of`, `offset`).
    pub(crate) fn output(&mut self, place: Place, partition: i32, of: i32, offset: i64) {
        *match place {
            Place::Committed => &mut self.counts.committed,
            Place::Quarantine => &mut self.counts.quarantined,
            Place::DeadLetters => &mut self.counts.dead_letters,
            Place::Findings => &mut self.counts.findings,
        } += 1;
        self.ordered(Some(place), partition, of, offset);
        self.placed("output", partition, of, offset);
        if let Some(seen) = self.slot(of, offset) {
            let count = &mut seen.outputs[place as usize];
            *count = count.saturating_add(1);
        } else if !self.expired(of, offset) {
            self.counts.torn += 1;
            self.name(|| format!("torn: {place:?} has a record of {of}-{offset}, which does not exist"));
        }
    }

    fn placed(&mut self, what: &str, partition: i32, of: i32, offset: i64) {
        if partition != of && !self.repartitioned {
            self.counts.misplaced += 1;
            self.name(|| format!("misplaced: {what} of {of}-{offset} is in partition {partition}"));
        }
    }

    fn expired(&self, of: i32, offset: i64) -> bool {
        offset >= 0 && self.units.get(&of).is_some_and(|u| offset < u.low)
    }

    fn unknown(&mut self, of: i32, offset: i64) {
        if self.expired(of, offset) {
            self.counts.expired += 1;
        } else {
            self.unknown_topic(&format!("{of}-{offset}"));
        }
    }

    /// A decision on something that isn't there.
    pub(crate) fn unknown_topic(&mut self, input: &str) {
        self.counts.unknown_input += 1;
        self.name(|| format!("unknown_input: there is a decision on {input}"));
    }

    /// Adds up. Call it once, after all topics were read.
    pub(crate) fn finish(&mut self) {
        let units = std::mem::take(&mut self.units);
        for (partition, unit) in &units {
            for (slot, seen) in (0_i64..).zip(&unit.slots) {
                self.settle(*partition, unit.low + slot, seen);
            }
        }
    }

    fn settle(&mut self, partition: i32, offset: i64, seen: &Seen) {
        let skipped = seen.passed_over && seen.input && seen.decisions == 0;
        self.counts.passed_over += u64::from(skipped);
        if seen.input && seen.decisions == 0 && !skipped {
            self.counts.lost += 1;
            self.name(|| format!("lost: {partition}-{offset} has no decision"));
        }
        if seen.aborted && (seen.decisions > 0 || seen.outputs != [0; 4]) {
            self.aborted_read(|| {
                format!("{partition}-{offset} was aborted by its producer and has {} decisions", seen.decisions)
            });
        } else if !seen.input && seen.decisions > 0 {
            self.unknown_topic(&format!("{partition}-{offset}"));
        }
        if seen.decisions > 1 {
            self.counts.duplicate += 1;
            self.name(|| format!("duplicate: {partition}-{offset} has {} decisions", seen.decisions));
        }
        if seen.torn() {
            self.counts.torn += 1;
            let [committed, quarantine, dead, found] = seen.outputs;
            let verdict = seen.verdict;
            self.name(|| {
                format!("torn: {partition}-{offset} is {verdict:?} with {committed} committed, {quarantine} quarantined, {dead} dead-lettered, {found} findings")
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two partitions: 0 with offsets 10..13, 1 with 0..2; all inputs present.
    fn tally() -> Tally {
        let mut tally = Tally::default();
        tally.partition(0, 10, 13);
        tally.partition(1, 0, 2);
        for (partition, offset) in [(0, 10), (0, 11), (0, 12), (1, 0), (1, 1)] {
            tally.input(partition, offset);
        }
        tally
    }

    fn complete(tally: &mut Tally) {
        for (partition, offset, verdict) in [
            (0, 10, Verdict::Allow),
            (0, 11, Verdict::Quarantine),
            (0, 12, Verdict::Block),
            (1, 0, Verdict::DeadLetter),
            (1, 1, Verdict::Redact),
        ] {
            tally.decision(partition, partition, offset, verdict);
            tally.output(verdict.place(), partition, partition, offset);
            if verdict.held() {
                tally.output(Place::Findings, partition, partition, offset);
            }
        }
    }

    fn faults(mut tally: Tally) -> Vec<(&'static str, u64)> {
        tally.finish();
        tally.counts.faults().into_iter().filter(|(_, n)| *n > 0).collect()
    }

    #[test]
    fn everything_once_is_clean() {
        let mut tally = tally();
        complete(&mut tally);
        assert_eq!((tally.counts.inputs, tally.counts.decisions, tally.counts.quarantined), (5, 5, 2));
        assert_eq!(faults(tally), []);
    }

    /// A control record counts as decided, once, and has no output.
    #[test]
    fn controls_have_no_output() {
        let with = |output: bool, again: bool| {
            let mut tally = Tally::default();
            tally.partition(0, 0, 1);
            tally.input(0, 0);
            tally.control(0, 0, 0);
            if output {
                tally.output(Place::Committed, 0, 0, 0);
            }
            if again {
                tally.control(0, 0, 0);
            }
            faults(tally)
        };
        assert_eq!(with(false, false), []);
        assert_eq!(with(true, false), [("torn", 1)]);
        assert_eq!(with(false, true), [("duplicate", 1)]);
    }

    /// A reset to the start: each input is decided once more, and once more only.
    #[test]
    fn a_reset_back() {
        let mut tally = tally();
        for (partition, offset) in [(0, 10), (0, 11), (0, 12), (1, 0), (1, 1)] {
            tally.decision(partition, partition, offset, Verdict::Allow);
        }
        tally.restart(0, 10, 13);
        tally.restart(1, 0, 2);
        assert_eq!(tally.counts.superseded, 5);
        complete(&mut tally);
        assert_eq!(faults(tally), []);
    }

    /// The guard goes red: without the reset the same records are doubled; after it, missing ones are lost.
    #[test]
    fn a_reset_hides_nothing() {
        let mut doubled = tally();
        complete(&mut doubled);
        complete(&mut doubled);
        assert!(faults(doubled).iter().any(|(name, n)| *name == "duplicate" && *n == 5));
        let mut lost = tally();
        lost.decision(0, 0, 10, Verdict::Allow);
        lost.restart(0, 10, 11);
        lost.restart(1, 0, 0);
        assert_eq!(faults(lost), [("lost", 5)]);
    }

    /// A reset forward passes inputs over: they are counted, not lost; those behind it are.
    #[test]
    fn a_reset_forward() {
        let mut tally = tally();
        tally.decision(0, 0, 10, Verdict::Allow);
        tally.output(Place::Committed, 0, 0, 10);
        tally.restart(0, 12, 11);
        tally.restart(1, 2, 0);
        tally.finish();
        assert_eq!((tally.counts.passed_over, tally.counts.lost), (3, 1));
    }

    #[test]
    fn nothing_decided_is_lost() {
        assert_eq!(faults(tally()), [("lost", 5)]);
    }

    #[test]
    fn decided_and_written_twice() {
        let mut tally = tally();
        complete(&mut tally);
        tally.decision(1, 1, 1, Verdict::Allow);
        tally.output(Place::Committed, 1, 1, 1);
        assert_eq!(faults(tally), [("duplicate", 1), ("torn", 1)]);
    }

    #[test]
    fn output_in_the_wrong_topic_missing_or_alone() {
        let mut tally = tally();
        tally.decision(0, 0, 10, Verdict::Allow);
        tally.output(Place::Quarantine, 0, 0, 10);
        tally.decision(0, 0, 11, Verdict::DeadLetter);
        tally.output(Place::Committed, 0, 0, 12);
        tally.decision(1, 1, 0, Verdict::Allow);
        tally.output(Place::Committed, 1, 1, 0);
        tally.output(Place::Quarantine, 1, 1, 0);
        assert_eq!(faults(tally), [("lost", 2), ("torn", 4)]);
    }

    #[test]
    fn aborted_inputs_may_not_be_decided() {
        let mut tally = tally();
        complete(&mut tally);
        tally.partition(2, 0, 2);
        tally.aborted_input(2, 0);
        tally.aborted_input(2, 1);
        tally.decision(2, 2, 1, Verdict::Allow);
        tally.output(Place::Committed, 2, 2, 1);
        assert_eq!(faults(tally), [("aborted_read", 1)]);
    }

    #[test]
    fn a_held_write_has_one_finding() {
        let mut tally = tally();
        complete(&mut tally);
        tally.output(Place::Findings, 0, 0, 12);
        assert_eq!(faults(tally), [("torn", 1)]);
    }

    #[test]
    fn order_and_partition() {
        let mut tally = tally();
        for offset in [12, 10, 11] {
            tally.decision(0, 0, offset, Verdict::Allow);
            tally.output(Place::Committed, 0, 0, offset);
        }
        for offset in [0, 1] {
            tally.decision(0, 1, offset, Verdict::Allow);
            tally.output(Place::Committed, 1, 1, offset);
        }
        assert_eq!(faults(tally), [("out_of_order", 2), ("misplaced", 2)]);
    }

    /// Behind a repartition an input's outputs stand elsewhere; order and count are checked all the same.
    #[test]
    fn repartitioned() {
        let mut tally = Tally { repartitioned: true, ..tally() };
        for (partition, offset) in [(0, 12), (3, 10), (0, 11)] {
            tally.decision(partition, 0, offset, Verdict::Allow);
            tally.output(Place::Committed, partition, 0, offset);
        }
        for offset in [0, 1, 1] {
            tally.decision(4, 1, offset, Verdict::Block);
            tally.output(Place::Quarantine, 4, 1, offset);
            tally.output(Place::Findings, 4, 1, offset);
        }
        assert_eq!(faults(tally), [("duplicate", 1), ("torn", 1), ("out_of_order", 2)]);
    }

    #[test]
    fn inputs_that_are_gone_or_never_were() {
        let mut tally = tally();
        tally.decision(0, 0, 9, Verdict::Allow);
        tally.output(Place::Committed, 0, 0, 9);
        complete(&mut tally);
        tally.decision(1, 1, 2, Verdict::Allow);
        tally.decision(7, 7, 0, Verdict::Allow);
        tally.output(Place::Committed, 1, 1, 2);
        assert_eq!(tally.counts.expired, 1);
        assert_eq!(faults(tally), [("torn", 1), ("unknown_input", 2)]);
    }
}
