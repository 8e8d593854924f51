//! One session's test: OPEN until a bound, FLAGGED once for each epoch, restarted after a clear
//! (`mempot.md` 6.4: "benign" is never final).

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{SprtTable, Step};
use crate::clock::Millis;

/// Remembered event ids, answers and evidence.
const REMEMBERED: usize = 16;

/// Phase of the current epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Between the bounds.
    Open,
    /// Crossed the upper bound; the finding is out.
    Flagged,
}

/// An answer that was already observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Answer {
    hash: u64,
    epoch: i64,
    index: u32,
    hit: bool,
}

/// A hit, by opaque ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    /// Event id.
    pub event_id: String,
    /// Opaque honeypot id.
    pub honeypot_id: String,
}

/// State of a session. Sums are never stored: they follow from the counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionState {
    /// Offset of the first event of the epoch: unique and growing.
    pub epoch: i64,
    /// Observations.
    pub n: u32,
    /// Hits.
    pub hits: u32,
    /// Observation i was a hit, for the first 64.
    pub bits: u64,
    /// Phase.
    pub phase: Phase,
    /// Record time of the epoch's first event.
    pub started: Millis,
    /// Stream time of the boundary at the newest event: a late log does not close its own session.
    pub last: Millis,
    /// Epochs that ended at the lower bound or at the last observation.
    pub restarts: u32,
    /// Repeated events and answers that were not scored.
    pub suppressed: u32,
    /// Hits of the epoch, the first 16.
    pub evidence: Vec<Hit>,
    /// Version of the honeypot set.
    pub set_version: u64,
    events: Vec<u64>,
    answers: Vec<Answer>,
}

/// One retrieval as the test sees it.
#[derive(Debug)]
pub struct Observed<'a> {
    /// Offset of the event.
    pub offset: i64,
    /// Record time.
    pub at: Millis,
    /// Stream time of the boundary, this event included.
    pub stream_time: Millis,
    /// Event id.
    pub event_id: &'a str,
    /// The agent's answer.
    pub output_id: Option<&'a str>,
    /// Opaque ids of the honeypots among the first k, best first.
    pub honeypots: Vec<&'a str>,
    /// Version of the honeypot set.
    pub set_version: u64,
}

/// The upper bound was crossed: what the finding says.
#[derive(Debug, Clone, PartialEq)]
pub struct Crossing {
    /// Epoch.
    pub epoch: i64,
    /// Start of the epoch.
    pub started: Millis,
    /// Crossing event.
    pub at: Millis,
    /// Log-likelihood ratio after each observation.
    pub trajectory: Vec<f64>,
    /// Hits.
    pub evidence: Vec<Hit>,
    /// Earlier epochs that were cleared.
    pub restarts: u32,
}

impl SessionState {
    fn new(o: &Observed<'_>) -> Self {
        Self {
            epoch: o.offset,
            n: 0,
            hits: 0,
            bits: 0,
            phase: Phase::Open,
            started: o.at,
            last: o.stream_time,
            restarts: 0,
            suppressed: 0,
            evidence: Vec::new(),
            set_version: o.set_version,
            events: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Whether it can have come about: no more hits than observations, and lists as long as they are kept.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.hits <= self.n
            && [self.evidence.len(), self.events.len(), self.answers.len()].iter().all(|n| *n <= REMEMBERED)
    }

    /// When the session closes for want of events.
    #[must_use]
    pub fn closes_at(&self, table: &SprtTable) -> Millis {
        self.last.saturating_add(table.idle_ms)
    }

    /// A new epoch begins with the next event; what was seen stays remembered.
    fn restart(&mut self, o: &Observed<'_>) {
        self.epoch = o.offset.saturating_add(1);
        self.n = 0;
        self.hits = 0;
        self.bits = 0;
        self.evidence.clear();
        self.started = o.at;
        self.set_version = o.set_version;
    }

    fn trajectory(&self, table: &SprtTable) -> Vec<f64> {
        let mut hits = 0;
        (0..self.n.min(64))
            .map(|i| {
                hits += u32::from(self.bits >> i & 1 == 1);
                table.llr(i + 1, hits)
            })
            .collect()
    }

    fn seen(&mut self, event: u64) -> bool {
        if self.events.contains(&event) {
            return true;
        }
        remember(&mut self.events, event);
        false
    }

    /// Counts the observation; `false` when it is a repeat that adds nothing.
    fn count(&mut self, o: &Observed<'_>) -> bool {
        let hit = !o.honeypots.is_empty();
        let answer = o.output_id.map(fingerprint);
        let epoch = self.epoch;
        if let Some(known) = answer.and_then(|a| self.answers.iter_mut().find(|k| k.hash == a)) {
            if known.hit || !hit {
                return false;
            }
            known.hit = true;
            if known.epoch == epoch {
                let bit = known.index;
                self.hits = self.hits.saturating_add(1).min(self.n);
                self.bits |= 1_u64.checked_shl(bit).unwrap_or(0);
                return true;
            }
        }
        let index = self.n;
        self.n = self.n.saturating_add(1);
        self.hits = self.hits.saturating_add(u32::from(hit));
        if hit {
            self.bits |= 1_u64.checked_shl(index).unwrap_or(0);
        }
        if let Some(hash) = answer {
            self.answers.retain(|a| a.hash != hash);
            remember(&mut self.answers, Answer { hash, epoch, index, hit });
        }
        true
    }
}

/// Takes one scored event into the session; the crossing comes once for each epoch.
#[must_use]
pub fn observe(
    previous: Option<SessionState>,
    table: &SprtTable,
    o: &Observed<'_>,
) -> (SessionState, Option<Crossing>) {
    let open = previous.filter(|s| o.stream_time <= s.closes_at(table));
    let mut state = open.unwrap_or_else(|| SessionState::new(o));
    state.last = state.last.max(o.stream_time);
    if state.phase == Phase::Open && state.set_version != o.set_version {
        // Increments of two honeypot sets never meet in one test.
        state.restart(o);
        state.epoch = o.offset;
    }
    if state.seen(fingerprint(o.event_id)) || !state.count(o) {
        state.suppressed = state.suppressed.saturating_add(1);
        return (state, None);
    }
    for honeypot_id in &o.honeypots {
        if state.evidence.len() < REMEMBERED {
            state.evidence.push(Hit { event_id: o.event_id.to_owned(), honeypot_id: (*honeypot_id).to_owned() });
        }
    }
    if state.phase == Phase::Flagged {
        return (state, None);
    }
    match table.step(state.n, state.hits) {
        Step::Open => (state, None),
        Step::Benign | Step::Inconclusive => {
            state.restarts = state.restarts.saturating_add(1);
            state.restart(o);
            (state, None)
        }
        Step::Attack => {
            state.phase = Phase::Flagged;
            let crossing = Crossing {
                epoch: state.epoch,
                started: state.started,
                at: o.at,
                trajectory: state.trajectory(table),
                evidence: state.evidence.clone(),
                restarts: state.restarts,
            };
            (state, Some(crossing))
        }
    }
}

fn remember<T>(list: &mut Vec<T>, item: T) {
    while list.len() >= REMEMBERED {
        list.remove(0);
    }
    list.push(item);
}

fn fingerprint(text: &str) -> u64 {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(8).fold(0, |acc, b| acc << 8 | u64::from(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    /// A state value from outside: impossible counts are seen, and the largest ones are counted on from.
    #[test]
    fn extreme_counts_are_taken_on() {
        let table = SprtTable::new(&Topology::sample().unwrap().main.sprt).unwrap();
        let event = |output_id| Observed {
            offset: i64::MAX - 1,
            at: 0,
            stream_time: 0,
            event_id: "e",
            output_id,
            honeypots: vec!["h"],
            set_version: 1,
        };
        let mut state = SessionState::new(&event(None));
        (state.n, state.hits) = (0, 1);
        assert!(!state.is_sound());
        (state.n, state.hits, state.restarts, state.suppressed) = (u32::MAX, u32::MAX, u32::MAX, u32::MAX);
        assert!(state.is_sound());
        let (next, _) = observe(Some(state.clone()), &table, &event(Some("o")));
        assert_eq!((next.hits, next.n), (u32::MAX, u32::MAX));
        // An answer that was no hit, in an epoch of hits alone.
        (state.n, state.hits) = (1, 1);
        state.answers = vec![Answer { hash: fingerprint("o"), epoch: state.epoch, index: 0, hit: false }];
        let (next, _) = observe(Some(state), &table, &event(Some("o")));
        assert!(next.is_sound());
    }

    struct Bench {
        table: SprtTable,
        state: Option<SessionState>,
        offset: i64,
        at: Millis,
    }

    impl Bench {
        fn new() -> Self {
            let table = SprtTable::new(&Topology::sample().unwrap().main.sprt).unwrap();
            Self { table, state: None, offset: 0, at: 0 }
        }

        fn event(&mut self, hit: bool, output: Option<&str>) -> Option<Crossing> {
            let id = format!("e{}", self.offset);
            self.event_named(&id, hit, output)
        }

        fn event_named(&mut self, id: &str, hit: bool, output: Option<&str>) -> Option<Crossing> {
            let o = Observed {
                offset: self.offset,
                at: self.at,
                stream_time: self.at,
                event_id: id,
                output_id: output,
                honeypots: if hit { vec!["hp-1"] } else { vec![] },
                set_version: 1,
            };
            let (state, crossing) = observe(self.state.take(), &self.table, &o);
            self.state = Some(state);
            self.offset += 1;
            self.at += 1000;
            crossing
        }

        fn state(&self) -> &SessionState {
            self.state.as_ref().unwrap()
        }
    }

    #[test]
    fn one_finding_an_epoch_and_flagged_stays_flagged() {
        let mut b = Bench::new();
        assert!(b.event(true, None).is_none());
        let crossing = b.event(true, None).unwrap();
        assert_eq!((crossing.epoch, crossing.trajectory.len(), crossing.evidence.len()), (0, 2, 2));
        assert!((0..30).all(|_| b.event(true, None).is_none()));
        b.at += 31 * 60 * 1000;
        b.event(true, None);
        let again = b.event(true, None).unwrap();
        assert_ne!(again.epoch, crossing.epoch);
    }

    #[test]
    fn a_cleared_session_can_be_flagged_later() {
        let mut b = Bench::new();
        assert!((0..4).all(|_| b.event(false, None).is_none()));
        assert_eq!((b.state().restarts, b.state().n), (1, 0));
        b.event(true, None);
        assert!(b.event(true, None).is_some());
    }

    #[test]
    fn events_of_one_answer_are_one_observation_and_a_hit_wins() {
        let mut b = Bench::new();
        b.event(false, Some("o"));
        b.event(false, Some("o"));
        assert_eq!((b.state().n, b.state().hits), (1, 0));
        b.event(true, Some("o"));
        b.event(true, Some("o"));
        assert_eq!((b.state().n, b.state().hits, b.state().bits, b.state().suppressed), (1, 1, 1, 2));
    }

    #[test]
    fn a_repeated_event_moves_nothing() {
        let mut b = Bench::new();
        b.event_named("same", true, None);
        assert!(b.event_named("same", true, None).is_none());
        assert_eq!((b.state().n, b.state().suppressed), (1, 1));
    }

    #[test]
    fn truncation_is_inconclusive_and_restarts() {
        let mut b = Bench::new();
        // Two misses and a hit in turn keep this design between its bounds for a while.
        let mut flagged = false;
        for i in 0..40 {
            flagged |= b.event(i % 5 == 3, None).is_some();
        }
        assert!(b.state().n <= b.table.max_observations && b.state().restarts > 0 && !flagged);
    }
}
