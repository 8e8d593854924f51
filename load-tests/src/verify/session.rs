//! What becomes of a session, derived from its retrievals: Wald's test over honeypot hits. Pure.

use sha2::{Digest as _, Sha256};

use crate::verify::postcard::Value;

/// Remembered event ids and evidence.
const REMEMBERED: usize = 16;
/// Comparison slack at the bounds.
const SLACK: f64 = 1e-12;

/// Parameters of the test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Test {
    pub(crate) p1: f64,
    pub(crate) p0: f64,
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    pub(crate) max_observations: u64,
    pub(crate) idle_ms: i64,
}

impl Test {
    /// Of the sample topology.
    pub(crate) const SAMPLE: Self =
        Self { p1: 0.6, p0: 0.02, alpha: 0.01, beta: 0.05, max_observations: 20, idle_ms: 1_800_000 };

    /// Whether the test is over after `hits` of `n`: attack, or cleared.
    #[allow(clippy::cast_precision_loss)] // below 2^53
    fn over(&self, n: u64, hits: u64) -> Option<bool> {
        let hit = (self.p1 / self.p0).ln();
        let miss = ((1.0 - self.p1) / (1.0 - self.p0)).ln();
        let sum = hits as f64 * hit + (n - hits) as f64 * miss;
        if sum >= ((1.0 - self.beta) / self.alpha).ln() - SLACK {
            return Some(true);
        }
        let cleared = sum <= (self.beta / (1.0 - self.alpha)).ln() + SLACK || n >= self.max_observations;
        cleared.then_some(false)
    }
}

/// One retrieval that counts.
#[derive(Debug)]
pub(crate) struct Event<'a> {
    pub(crate) offset: i64,
    pub(crate) at: i64,
    /// Largest record time of the boundary so far.
    pub(crate) stream_time: i64,
    pub(crate) id: &'a str,
    /// Opaque ids of the honeypots that were hit.
    pub(crate) hits: Vec<&'a str>,
    pub(crate) set_version: u64,
}

/// A session as the state should hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session {
    epoch: i64,
    n: u64,
    hits: u64,
    bits: u64,
    flagged: bool,
    started: i64,
    pub(crate) last: i64,
    restarts: u64,
    suppressed: u64,
    evidence: Vec<(String, String)>,
    set_version: u64,
    events: Vec<u64>,
}

impl Session {
    fn new(e: &Event<'_>) -> Self {
        Self {
            epoch: e.offset,
            n: 0,
            hits: 0,
            bits: 0,
            flagged: false,
            started: e.at,
            last: e.stream_time,
            restarts: 0,
            suppressed: 0,
            evidence: Vec::new(),
            set_version: e.set_version,
            events: Vec::new(),
        }
    }

    /// The session after an event, and whether it crossed the upper bound with it.
    pub(crate) fn after(previous: Option<Self>, test: &Test, e: &Event<'_>) -> (Self, bool) {
        let open = previous.filter(|s| e.stream_time <= s.last.saturating_add(test.idle_ms));
        let mut s = open.unwrap_or_else(|| Self::new(e));
        s.last = s.last.max(e.stream_time);
        let id = fingerprint(e.id);
        if s.events.contains(&id) {
            s.suppressed += 1;
            return (s, false);
        }
        s.events.push(id);
        if s.events.len() > REMEMBERED {
            s.events.remove(0);
        }
        let hit = u64::from(!e.hits.is_empty());
        s.bits |= if s.n < 64 { hit << s.n } else { 0 };
        s.n += 1;
        s.hits += hit;
        let room = REMEMBERED - s.evidence.len();
        s.evidence.extend(e.hits.iter().take(room).map(|h| (e.id.to_owned(), (*h).to_owned())));
        if s.flagged {
            return (s, false);
        }
        match test.over(s.n, s.hits) {
            None => (s, false),
            Some(true) => {
                s.flagged = true;
                (s, true)
            }
            Some(false) => {
                let restarts = s.restarts + 1;
                let next = Event { offset: e.offset + 1, hits: Vec::new(), ..*e };
                let fresh = Self::new(&next);
                let (last, suppressed, events) = (s.last, s.suppressed, s.events);
                (Self { last, restarts, suppressed, events, ..fresh }, false)
            }
        }
    }

    /// Reads a value of the state; `None` when it has another form, or remembers answers: those are not derived.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut v = Value::new(bytes)?;
        let session = Self {
            epoch: v.signed()?,
            n: v.unsigned()?,
            hits: v.unsigned()?,
            bits: v.unsigned()?,
            flagged: v.unsigned()? == 1,
            started: v.signed()?,
            last: v.signed()?,
            restarts: v.unsigned()?,
            suppressed: v.unsigned()?,
            evidence: v.list(|v| Some((v.text()?.to_owned(), v.text()?.to_owned())))?,
            set_version: v.unsigned()?,
            events: v.list(Value::unsigned)?,
        };
        let answers = v.unsigned()?;
        (answers == 0 && v.is_empty()).then_some(session)
    }
}

/// First 8 bytes of SHA-256, big-endian.
fn fingerprint(text: &str) -> u64 {
    let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    digest.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(hits: &[bool]) -> (Session, usize) {
        let (mut session, mut crossings) = (None, 0);
        for (i, hit) in (0_i64..).zip(hits) {
            let id = format!("e{i}");
            let hits = if *hit { vec!["hp"] } else { vec![] };
            let e = Event { offset: i, at: i, stream_time: i, id: &id, hits, set_version: 1 };
            let (next, crossed) = Session::after(session.take(), &Test::SAMPLE, &e);
            session = Some(next);
            crossings += usize::from(crossed);
        }
        (session.unwrap(), crossings)
    }

    #[test]
    fn two_hits_cross_once_and_four_misses_clear() {
        let (session, crossings) = play(&[true, true, true, false]);
        assert_eq!((session.n, session.hits, session.flagged, crossings), (4, 3, true, 1));
        let (session, crossings) = play(&[false, false, false, false]);
        assert_eq!((session.n, session.restarts, session.epoch, crossings), (0, 1, 4, 0));
        assert_eq!(session.events.len(), 4);
    }

    #[test]
    fn a_value_of_the_state() {
        let value = [1, 14, 1, 1, 1, 0, 20, 22, 2, 3, 1, 1, b'e', 2, b'h', b'p', 1, 1, 0xac, 0x02, 0];
        let session = Session::read(&value).unwrap();
        assert_eq!((session.epoch, session.n, session.started, session.last), (7, 1, 10, 11));
        assert_eq!((session.restarts, session.suppressed, session.events), (2, 3, vec![300]));
        assert!(Session::read(&value[..20]).is_none());
    }
}
