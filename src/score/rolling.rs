//! The rolling calibration of a boundary (`memsad.md` 1.5, 9.4): accepted writes wait until they have aged, and then
//! become rows that scores are ranked against. Counts and stream time alone move it. Pure; [`super::Rolled`] says
//! what a step does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::conformal::{Row, fewest, level_units, most};
use super::keys::{Keys, Tag};
use super::window::Window;
use crate::clock::Millis;
use crate::topology::{Memsad, Statistic};

/// A source's share of the rows, at most one in this many, where there are enough sources.
pub(super) const SHARE: usize = 20;
/// Newly aged writes of a step at least: in fewer the test sees no jump, however they score.
const LEAST: usize = 8;
/// One false alarm, in units of a level.
const ALARM: i64 = 1_000_000;
/// So many false alarms fewer than the level says, and the rows at the threshold may leave.
pub(super) const FEW: i64 = -10 * ALARM;
/// Bounds of the balance of false alarms.
const BALANCE: (i64, i64) = (FEW - ALARM, 20 * ALARM);

/// Rules of a rolling calibration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// Rows at most, and writes that wait at most.
    pub capacity: usize,
    /// Rows that the level needs.
    pub needed: usize,
    /// How long a write waits, ms of stream time.
    pub ageing: Millis,
    /// Aged writes that make a step due.
    pub every: usize,
    /// Time since the last step that makes one due with eight aged writes, ms.
    pub at_least: Millis,
    /// Tested score.
    pub statistic: Statistic,
    /// Level in millionths.
    pub level: u32,
    /// Deviations in the constant of the window length.
    pub kappa: f64,
}

impl Rules {
    /// Those of a topology, for vectors of a dimension.
    #[must_use]
    pub fn of(m: &Memsad, dimension: usize) -> Self {
        let millis = |d: std::time::Duration| Millis::try_from(d.as_millis()).unwrap_or(Millis::MAX);
        let level = level_units(m.level);
        Self {
            capacity: m.rolling.capacity.min(most(dimension)),
            needed: fewest(level).max(m.min_calibration) as usize,
            ageing: millis(m.rolling.ageing),
            every: m.rolling.every,
            at_least: millis(m.rolling.at_least),
            statistic: m.statistic,
            level,
            kappa: m.kappa,
        }
    }
}

/// An accepted write, waiting or a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Number in the boundary.
    pub seq: u64,
    /// Stream time when it was accepted.
    pub at: Millis,
    /// Whose it is.
    pub source: Tag,
    /// Tag of its record id.
    pub record: Tag,
    /// What is scored.
    pub row: Row,
}

/// An accepted write in the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedValue {
    /// Stream time when it was accepted, ms.
    pub at: Millis,
    /// Whose it is.
    pub source: Tag,
    /// First 16 bytes of SHA-256 over the record id.
    pub record: Tag,
    /// Who wrote it.
    pub keys: Keys,
    /// Little-endian i16.
    #[serde(with = "serde_bytes")]
    pub vector: Vec<u8>,
}

impl Accepted {
    /// As the state holds it.
    #[must_use]
    pub fn value(&self) -> AcceptedValue {
        let Row { keys, vector } = &self.row;
        AcceptedValue { at: self.at, source: self.source, record: self.record, keys: *keys, vector: vector.to_bytes() }
    }
}

/// Where a rolling calibration stands, in the state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RollingMark {
    /// Number of the next accepted write.
    pub next: u64,
    /// Writes below this number are rows or gone; the others wait.
    pub settled: u64,
    /// Writes below this number were looked at by a step.
    pub judged: u64,
    /// Of the numbers one in this many is kept; a power of two, 0 stands for 1.
    pub stride: u64,
    /// Stream time of the newest accepted write, ms.
    pub time: Millis,
    /// Stream time of the last step, ms.
    pub stepped: Millis,
    /// Number of the newest rolling calibration; 0 before the first.
    pub version: u64,
    /// The rows are our own, not those of the base.
    pub rolled: bool,
    /// `scope@version` of the published calibration that the rows began as; empty for none.
    pub base: String,
    /// Tag of the encoder.
    pub encoder: Tag,
    /// Bits of the smoothed drift a step; 0 before the first.
    pub drift: u64,
    /// Held by this test alone, less the expected number, in millionths of a write.
    pub balance: i64,
    /// Steps in a row that passed while frozen.
    pub calm: u8,
    /// A jump was seen: the rows stay as they are.
    pub frozen: bool,
}

/// The rows and what waits to become one.
#[derive(Debug, Clone)]
pub struct Rolling {
    pub(super) rules: Rules,
    pub(super) mark: RollingMark,
    /// Oldest first.
    pub(super) rows: Vec<Accepted>,
    /// Oldest first.
    pub(super) waiting: Vec<Accepted>,
    /// Waiting writes of each source.
    sources: BTreeMap<Tag, usize>,
}

impl Rolling {
    /// From what the state holds.
    #[must_use]
    pub fn restore(rules: Rules, mark: RollingMark, mut accepted: Vec<Accepted>) -> Self {
        accepted.sort_unstable_by_key(|a| a.seq);
        let waiting = accepted.split_off(accepted.partition_point(|a| a.seq < mark.settled));
        let mut rolling = Self { rules, mark, rows: accepted, waiting, sources: BTreeMap::new() };
        rolling.recount();
        rolling
    }

    /// Begins anew where another calibration is published, or the encoder is another one; returns the numbers of
    /// what leaves. `base` is empty where none is published.
    pub fn sync(&mut self, base: &str, encoder: Tag, published: &[Row], now: Millis) -> Vec<u64> {
        let same = self.mark.base == base && self.mark.encoder == encoder;
        if same && (self.mark.rolled || self.rows.len() == published.len()) {
            return Vec::new();
        }
        let mut left = Vec::new();
        if !same {
            let own = self.rows.drain(..).filter(|_| self.mark.rolled).map(|a| a.seq);
            left.extend(own);
            left.extend(self.waiting.drain(..).map(|a| a.seq));
            let next = self.mark.next + published.len() as u64;
            self.mark = RollingMark {
                next,
                settled: next,
                judged: next,
                stride: 1,
                time: self.mark.time,
                stepped: now.max(self.mark.time),
                version: self.mark.version,
                base: base.to_owned(),
                encoder,
                ..RollingMark::default()
            };
            self.recount();
        }
        let first = self.mark.settled.saturating_sub(published.len() as u64);
        self.rows = (first..).zip(published).map(|(seq, row)| of_base(seq, row)).collect();
        left
    }

    /// Takes an accepted write, unless its source has its share of those that wait, or one in a stride alone is kept.
    /// Returns its number, and the numbers of what leaves; its own is among them where it isn't kept.
    pub fn accept(&mut self, at: Millis, source: Tag, record: Tag, row: Row) -> (Option<Accepted>, Vec<u64>) {
        let at = self.mark.time.max(at);
        self.mark.time = at;
        if self.rows.len() >= self.rules.needed {
            self.balance(-i64::from(self.rules.level));
        }
        if self.sources.get(&source).copied().unwrap_or_default() >= self.share(source) {
            return (None, Vec::new());
        }
        let seq = self.mark.next;
        self.mark.next += 1;
        if !seq.is_multiple_of(self.mark.stride.max(1)) {
            return (None, Vec::new());
        }
        let accepted = Accepted { seq, at, source, record, row };
        self.waiting.push(accepted.clone());
        *self.sources.entry(source).or_default() += 1;
        let left = if self.waiting.len() > self.rules.capacity { self.thin() } else { Vec::new() };
        (Some(accepted).filter(|a| !left.contains(&a.seq)), left)
    }

    /// A write that this test alone held. Rows are accepted writes: without the false alarms among the held ones
    /// their largest scores would fall from step to step, and the threshold with them. The rows at the threshold
    /// stay until clearly fewer were held than the level says.
    pub fn held_alone(&mut self) {
        self.balance(ALARM);
    }

    fn balance(&mut self, by: i64) {
        self.mark.balance = (self.mark.balance + by).clamp(BALANCE.0, BALANCE.1);
    }

    /// A record was deleted, replaced or taken back: its write no longer waits. Returns the numbers of what leaves.
    pub fn withdraw(&mut self, record: &Tag) -> Vec<u64> {
        self.leave(|a| a.record == *record)
    }

    /// Twice the stride: half of what waits stays, spread evenly over the time.
    fn thin(&mut self) -> Vec<u64> {
        self.mark.stride = self.mark.stride.max(1) * 2;
        let stride = self.mark.stride;
        self.leave(|a| !a.seq.is_multiple_of(stride))
    }

    /// Takes out of what waits.
    pub(super) fn leave(&mut self, gone: impl Fn(&Accepted) -> bool) -> Vec<u64> {
        let left: Vec<u64> = self.waiting.iter().filter(|a| gone(a)).map(|a| a.seq).collect();
        if !left.is_empty() {
            self.waiting.retain(|a| !gone(a));
            self.recount();
        }
        left
    }

    pub(super) fn recount(&mut self) {
        self.sources.clear();
        for a in &self.waiting {
            *self.sources.entry(a.source).or_default() += 1;
        }
    }

    /// A twentieth of the capacity, or an even share among fewer sources.
    fn share(&self, source: Tag) -> usize {
        let sources = self.sources.len() + usize::from(!self.sources.contains_key(&source));
        self.rules.capacity.div_ceil(SHARE).max(self.rules.capacity.div_ceil(sources))
    }

    /// How many have aged, where a step is due.
    pub(super) fn due(&self, now: Millis, window: &Window) -> Option<usize> {
        let ripe = now.max(self.mark.time).saturating_sub(self.rules.ageing);
        let aged = self.waiting.partition_point(|a| a.at <= ripe);
        let fresh = self.waiting[..aged].iter().filter(|a| a.seq >= self.mark.judged).count();
        let late = now.saturating_sub(self.mark.stepped) >= self.rules.at_least;
        let enough = self.rows.len() + aged >= self.rules.needed && !window.rows().is_empty();
        (enough && (fresh >= self.rules.every || (late && fresh >= LEAST))).then_some(aged)
    }

    /// Where it stands.
    #[must_use]
    pub fn mark(&self) -> &RollingMark {
        &self.mark
    }

    /// Rows in force, oldest first.
    #[must_use]
    pub fn rows(&self) -> &[Accepted] {
        &self.rows
    }

    /// What waits, oldest first.
    #[must_use]
    pub fn waiting(&self) -> &[Accepted] {
        &self.waiting
    }

    /// Name of its calibration in a boundary; `None` while there is none of its own.
    #[must_use]
    pub fn name(&self, boundary: &str) -> Option<String> {
        self.mark.rolled.then(|| name(&self.mark, boundary))
    }

    /// Memory, bytes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let one = self.waiting.first().or(self.rows.first()).map_or(0, |a| 2 * a.row.vector.as_slice().len() + 176);
        one * (self.rows.len() + self.waiting.len()) + 64 * self.sources.len()
    }
}

/// Name of a rolling calibration: that of its base with the number behind it, or its own.
#[must_use]
pub fn name(mark: &RollingMark, boundary: &str) -> String {
    if mark.base.is_empty() {
        return format!("rolling/{boundary}@{}", mark.version);
    }
    format!("{}+rolling.{}", mark.base, mark.version)
}

/// A row of a published calibration; one that names nobody is a source of its own, as its fit has shared them out.
fn of_base(seq: u64, row: &Row) -> Accepted {
    let mut own = Tag::default();
    own[..8].copy_from_slice(&seq.to_be_bytes());
    let source = row.keys.principal.or(row.keys.session).unwrap_or(own);
    Accepted { seq, at: Millis::MIN, source, record: Tag::default(), row: row.clone() }
}
