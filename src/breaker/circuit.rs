//! The poison breaker: one circuit for each source that failed lately.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::Millis;
use crate::error::Code;
use crate::topology::Breaker as Rules;

/// What is kept of one source. A source without a recent failure has none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Circuit {
    /// Its newest outcomes; bit 0 is the newest, a set bit is a failure.
    history: u64,
    /// Outcomes in `history`, at most 64.
    seen: u32,
    /// Its stream time: the latest record time, ms.
    last: Millis,
    /// Set while it is isolated.
    open: Option<Opened>,
}

/// Why and when a circuit opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Opened {
    cause: String,
    since: Millis,
    /// When a record was tried last, or `since`.
    tried: Millis,
}

/// What happens to the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It goes its way: a failed one to dead letters with its own code.
    Pass,
    /// Its source is isolated: to dead letters.
    Isolated,
    /// It would be the failure that isolates one source too many; nothing was noted.
    Flood {
        /// Sources that opened within the time, this one included.
        sources: usize,
    },
}

/// The answer to one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What happens to it.
    pub verdict: Verdict,
    /// Error code and record time of the opening, when its source is isolated or was just now.
    pub isolation: Option<(String, Millis)>,
    /// This record opened the circuit.
    pub opened: bool,
    /// Sources whose circuit changed or is gone.
    pub changed: Vec<String>,
}

impl Step {
    fn pass() -> Self {
        Self { verdict: Verdict::Pass, isolation: None, opened: false, changed: Vec::new() }
    }
}

/// The circuits of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Breaker {
    circuits: BTreeMap<String, Circuit>,
}

impl Breaker {
    /// From what was kept.
    #[must_use]
    pub fn restore(circuits: BTreeMap<String, Circuit>) -> Self {
        Self { circuits }
    }

    /// No source failed lately: a good record needs no look.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.circuits.is_empty()
    }

    /// Number of sources that are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.circuits.len()
    }

    /// What to keep of a source; `None` when nothing is.
    #[must_use]
    pub fn circuit(&self, source: &str) -> Option<&Circuit> {
        self.circuits.get(source)
    }

    /// Takes one record of `source` at record time `at`, with the code it failed by.
    pub fn step(&mut self, rules: &Rules, source: &str, at: Millis, failed: Option<Code>) -> Step {
        let Some(known) = self.circuits.get(source) else {
            return match failed {
                Some(code) => self.note(rules, source, Circuit::new(at), code),
                None => Step::pass(),
            };
        };
        let mut next = known.clone();
        next.last = next.last.max(at);
        match (&next.open, failed) {
            (Some(open), _) if next.last < open.tried.saturating_add(millis(rules.cool_down)) => {
                let isolation = Some((open.cause.clone(), open.since));
                let moved = next.last != known.last;
                let verdict = if failed.is_some() { Verdict::Pass } else { Verdict::Isolated };
                if moved {
                    self.circuits.insert(source.to_owned(), next);
                }
                let changed = if moved { vec![source.to_owned()] } else { Vec::new() };
                Step { verdict, isolation, opened: false, changed }
            }
            (Some(_), None) => self.forget(source),
            (Some(_), Some(code)) => self.tried(source, next, code),
            (None, Some(code)) if known.paused(rules, at) => self.note(rules, source, Circuit::new(at), code),
            (None, Some(code)) => self.note(rules, source, next, code),
            (None, None) => {
                next.push(false);
                // What is longer ago than a cool-down doesn't count any more.
                if next.history == 0 || known.paused(rules, at) {
                    return self.forget(source);
                }
                self.keep(source, next)
            }
        }
    }

    /// A failure of a source that is not isolated.
    fn note(&mut self, rules: &Rules, source: &str, mut next: Circuit, code: Code) -> Step {
        next.push(true);
        if !next.trips(rules) {
            return self.keep_within(rules, source, next);
        }
        let sources = 1 + self.opened_within(rules, source, next.last);
        if rules.stop_sources > 0 && sources >= rules.stop_sources as usize {
            return Step { verdict: Verdict::Flood { sources }, ..Step::pass() };
        }
        let cause = code.name().to_owned();
        next.open = Some(Opened { cause: cause.clone(), since: next.last, tried: next.last });
        Step { isolation: Some((cause, next.last)), opened: true, ..self.keep_within(rules, source, next) }
    }

    /// The record that was tried after the cool-down failed: cut off again, by no new opening.
    fn tried(&mut self, source: &str, mut next: Circuit, code: Code) -> Step {
        next.push(true);
        let since = next.open.take().map_or(next.last, |o| o.since);
        let cause = code.name().to_owned();
        next.open = Some(Opened { cause: cause.clone(), since, tried: next.last });
        Step { isolation: Some((cause, since)), ..self.keep(source, next) }
    }

    /// Other sources that opened within `stop_within` before `now`.
    fn opened_within(&self, rules: &Rules, source: &str, now: Millis) -> usize {
        let from = now.saturating_sub(millis(rules.stop_within));
        let others = self.circuits.iter().filter(|(name, _)| *name != source);
        others.filter(|(_, c)| c.open.as_ref().is_some_and(|o| o.since > from)).count()
    }

    fn keep(&mut self, source: &str, circuit: Circuit) -> Step {
        self.circuits.insert(source.to_owned(), circuit);
        Step { changed: vec![source.to_owned()], ..Step::pass() }
    }

    fn keep_within(&mut self, rules: &Rules, source: &str, circuit: Circuit) -> Step {
        let mut gone = Vec::new();
        while !self.circuits.contains_key(source) && self.circuits.len() >= rules.max_sources {
            let Some(oldest) = self.oldest() else { break };
            self.circuits.remove(&oldest);
            gone.push(oldest);
        }
        let mut step = self.keep(source, circuit);
        step.changed.extend(gone);
        step
    }

    /// Whose place is taken when there is no more room: closed before open, then by stream time.
    fn oldest(&self) -> Option<String> {
        let order = |c: &Circuit| (c.open.is_some(), c.last);
        self.circuits.iter().min_by(|a, b| order(a.1).cmp(&order(b.1))).map(|(name, _)| name.clone())
    }

    fn forget(&mut self, source: &str) -> Step {
        self.circuits.remove(source);
        Step { changed: vec![source.to_owned()], ..Step::pass() }
    }
}

impl Circuit {
    fn new(at: Millis) -> Self {
        Self { history: 0, seen: 0, last: at, open: None }
    }

    /// Whether the source was quiet for longer than a cool-down before `at`.
    fn paused(&self, rules: &Rules, at: Millis) -> bool {
        at > self.last.saturating_add(millis(rules.cool_down))
    }

    fn push(&mut self, failed: bool) {
        self.history = self.history << 1 | u64::from(failed);
        self.seen = self.seen.saturating_add(1).min(u64::BITS);
    }

    fn trips(&self, rules: &Rules) -> bool {
        let in_a_row = rules.consecutive > 0 && self.history.trailing_ones() >= rules.consecutive;
        let window = rules.window.clamp(1, u64::BITS);
        let failed = (self.history & (u64::MAX >> (u64::BITS - window))).count_ones();
        let share = rules.ratio > 0.0 && self.seen >= window && f64::from(failed) >= rules.ratio * f64::from(window);
        in_a_row || share
    }

    /// Whether its source is cut off.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }
}

fn millis(d: std::time::Duration) -> Millis {
    Millis::try_from(d.as_millis()).unwrap_or(Millis::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    type Event = (usize, u32, bool);

    const MINUTE: Millis = 60_000;

    fn rules() -> Rules {
        Rules { consecutive: 3, window: 8, ratio: 0.5, stop_sources: 0, max_sources: 100, ..Rules::default() }
    }

    fn name(source: usize) -> String {
        format!("s{source}")
    }

    fn code(failed: bool) -> Option<Code> {
        failed.then_some(Code::InvalidJson)
    }

    /// Events at rising times: source, gap in ms, failed.
    fn events(sources: usize) -> impl Strategy<Value = Vec<Event>> {
        prop::collection::vec(
            (0..sources, prop_oneof![4 => 0..2_000_u32, 1 => 30_000..90_000_u32], any::<bool>()),
            0..150,
        )
    }

    fn run(breaker: &mut Breaker, rules: &Rules, events: &[Event]) -> Vec<Step> {
        let mut at = 0;
        let mut step = |(source, gap, failed): &Event| {
            at += Millis::from(*gap);
            breaker.step(rules, &name(*source), at, code(*failed))
        };
        events.iter().map(&mut step).collect()
    }

    /// The same rules over whole lists of outcomes.
    #[derive(Default)]
    struct Model {
        outcomes: Vec<bool>,
        last: Option<Millis>,
        /// When it opened, and when a record was tried last.
        open: Option<Millis>,
    }

    impl Model {
        fn isolates(&mut self, rules: &Rules, at: Millis, failed: bool) -> bool {
            let before = self.last.replace(at);
            if self.open.is_some_and(|tried| at < tried + MINUTE) {
                return true;
            }
            let tried = self.open.is_some();
            if !failed && tried {
                *self = Self { last: self.last, ..Self::default() };
                return false;
            }
            if before.is_some_and(|b| at > b + MINUTE) && !tried {
                self.outcomes.clear();
            }
            self.outcomes.push(failed);
            let newest: Vec<bool> = self.outcomes.iter().rev().copied().collect();
            let (row, window) = (rules.consecutive as usize, rules.window as usize);
            let in_a_row = newest.len() >= row && newest[..row].iter().all(|f| *f);
            let count = newest.iter().take(window).filter(|f| **f).count();
            #[allow(clippy::cast_precision_loss)]
            let share = newest.len() >= window && count as f64 >= rules.ratio * window as f64;
            if tried {
                self.open = Some(at);
                return true;
            }
            if failed && (in_a_row || share) {
                self.open = Some(at);
            }
            // Before its first failure, and after a long good time, a source is not kept.
            if self.open.is_none() && !newest.iter().take(64).any(|f| *f) {
                self.outcomes.clear();
            }
            false
        }
    }

    proptest! {
        /// A source that never fails is never kept, held or isolated, whatever the others do.
        #[test]
        fn a_good_source_is_never_isolated(events in events(5), limit in 1..6_usize, stop in 0..4_u32) {
            let rules = Rules { max_sources: limit.max(stop as usize), stop_sources: stop, ..rules() };
            let mut breaker = Breaker::default();
            for (event, step) in events.iter().zip(run(&mut breaker, &rules, &events)) {
                if !event.2 && !events.iter().any(|e| e.0 == event.0 && e.2) {
                    prop_assert_eq!(step, Step::pass());
                }
            }
        }

        /// What happens to a source depends on its own records alone.
        #[test]
        fn others_make_no_difference(events in events(4)) {
            let rules = rules();
            let all = run(&mut Breaker::default(), &rules, &events);
            let mut at = 0;
            let mut alone: BTreeMap<usize, Breaker> = BTreeMap::new();
            for ((source, gap, failed), step) in events.iter().zip(all) {
                at += Millis::from(*gap);
                let own = alone.entry(*source).or_default();
                prop_assert_eq!(own.step(&rules, &name(*source), at, code(*failed)), step);
            }
        }

        /// Verdicts are those of a plain reading of the rules.
        #[test]
        fn verdicts_equal_the_model(events in events(3), consecutive in 0..6_u32, ratio in prop_oneof![Just(0.0), Just(0.5), Just(1.0)]) {
            let rules = Rules { consecutive: if consecutive == 0 { 64 } else { consecutive }, ratio, ..rules() };
            let by_model = Rules { ratio: if ratio == 0.0 { 2.0 } else { ratio }, ..rules.clone() };
            let mut models: BTreeMap<usize, Model> = BTreeMap::new();
            let mut at = 0;
            for ((source, gap, failed), step) in events.iter().zip(run(&mut Breaker::default(), &rules, &events)) {
                at += Millis::from(*gap);
                let isolated = models.entry(*source).or_default().isolates(&by_model, at, *failed);
                prop_assert_eq!(step.verdict == Verdict::Isolated, isolated && !failed);
                prop_assert_eq!(step.isolation.is_some() && !step.opened, isolated);
            }
        }

        /// The number of sources is bounded, and what is kept is all that is known: a restart changes nothing.
        #[test]
        fn bounded_and_kept(events in events(9), limit in 1..6_usize, stop in 0..3_u32) {
            let rules = Rules { max_sources: limit.max(stop as usize), stop_sources: stop, ..rules() };
            let (mut breaker, mut kept, mut at) = (Breaker::default(), BTreeMap::new(), 0);
            for (source, gap, failed) in events {
                at += Millis::from(gap);
                let before = breaker.clone();
                let step = breaker.step(&rules, &name(source), at, code(failed));
                for source in &step.changed {
                    match breaker.circuit(source) {
                        Some(c) => kept.insert(source.clone(), c.clone()),
                        None => kept.remove(source),
                    };
                }
                if matches!(step.verdict, Verdict::Flood { .. }) {
                    prop_assert_eq!(&breaker, &before, "a flood notes nothing");
                }
                prop_assert!(breaker.len() <= rules.max_sources);
                breaker = Breaker::restore(kept.clone());
            }
        }
    }

    fn fail(breaker: &mut Breaker, rules: &Rules, source: usize, times: usize, at: Millis) -> Step {
        (0..times).map(|_| breaker.step(rules, &name(source), at, code(true))).last().unwrap()
    }

    /// Open for the cool-down, then one record is tried: a good one closes, a bad one opens again.
    #[test]
    fn one_record_is_tried_after_the_cool_down() {
        let (rules, mut b) = (rules(), Breaker::default());
        assert!(!fail(&mut b, &rules, 0, 2, 0).opened);
        let opening = fail(&mut b, &rules, 0, 1, 1_000);
        assert!(opening.opened && opening.verdict == Verdict::Pass);
        assert_eq!(opening.isolation, Some(("invalid_json".to_owned(), 1_000)));
        let good = |b: &mut Breaker, at| b.step(&rules, "s0", at, None);
        assert_eq!(good(&mut b, 1_000 + MINUTE - 1).verdict, Verdict::Isolated);
        assert_eq!(good(&mut b, 0).verdict, Verdict::Isolated, "an old record does not turn time back");
        let again = b.step(&rules, "s0", 1_000 + MINUTE, code(true));
        assert!(!again.opened && again.isolation == opening.isolation, "the record that was tried failed");
        assert_eq!(good(&mut b, 2 * MINUTE).verdict, Verdict::Isolated);
        assert_eq!(good(&mut b, 2 * MINUTE + 1_000).verdict, Verdict::Pass);
        assert!(b.is_empty(), "closed and forgotten");
    }

    /// Several sources within the time stop the line; the same source again does not.
    #[test]
    fn several_sources_are_a_flood() {
        let rules = Rules { stop_sources: 3, stop_within: Duration::from_secs(100), ..rules() };
        let mut b = Breaker::default();
        for round in 0..5 {
            assert_eq!(fail(&mut b, &rules, 0, 3, round * MINUTE).verdict, Verdict::Pass);
        }
        assert!(fail(&mut b, &rules, 3, 3, 5 * MINUTE).opened && fail(&mut b, &rules, 1, 3, 5 * MINUTE).opened);
        b.step(&rules, "s1", 6 * MINUTE, None);
        let now = 5 * MINUTE;
        assert!(fail(&mut b, &rules, 1, 3, now + 1).opened);
        assert_eq!(fail(&mut b, &rules, 2, 2, now + 2).verdict, Verdict::Pass);
        assert_eq!(fail(&mut b, &rules, 2, 1, now + 3).verdict, Verdict::Flood { sources: 3 });
        assert_eq!(fail(&mut b, &rules, 2, 1, now + 3).verdict, Verdict::Flood { sources: 3 }, "and so it stays");
        let raised = Rules { stop_sources: 4, ..rules.clone() };
        assert!(fail(&mut b.clone(), &raised, 2, 1, now + 3).opened, "a higher limit lets it through");
        assert!(fail(&mut b, &rules, 2, 3, now + 100_001).opened, "the others are too long ago");
    }

    /// Failures that are far apart are no row.
    #[test]
    fn a_pause_starts_at_zero() {
        let (rules, mut b) = (rules(), Breaker::default());
        for n in 0..20 {
            assert!(!fail(&mut b, &rules, 0, 2, n * (MINUTE + 1)).opened);
        }
        assert!(fail(&mut b, &rules, 0, 1, 20 * MINUTE + 19).opened, "a minute is no pause");
    }

    /// A full table forgets the closed source that was quiet longest, and open ones last.
    #[test]
    fn the_quiet_are_forgotten_first() {
        let rules = Rules { max_sources: 2, ..rules() };
        let mut b = Breaker::default();
        fail(&mut b, &rules, 0, 3, 0);
        fail(&mut b, &rules, 1, 1, 5);
        let step = fail(&mut b, &rules, 2, 1, 6);
        assert_eq!(step.changed, ["s2", "s1"]);
        assert!(b.circuit("s0").is_some_and(Circuit::is_open) && b.len() == 2);
    }
}
