//! A step of a rolling calibration: whether the aged writes become rows, which rows stay, and whether a jump freezes
//! the threshold instead.

use std::collections::{BTreeMap, BTreeSet};

use super::conformal::threshold;
use super::drift::{self, Distance};
use super::hardened::score;
use super::keys::Tag;
use super::rolling::{Accepted, FEW, Rolling, SHARE};
use super::window::Window;
use crate::clock::Millis;
use crate::schema::ONE;

/// Standard deviations that a jump moves the threshold by, and that no single source may.
const FAR: f64 = 1.0;
/// Steps in a row that must pass before a frozen threshold moves again.
const CALM: u8 = 2;
/// Rows are fewer by this factor, 3 / 2, while they drift.
const REWINDOW: (usize, usize) = (2, 3);

/// What a step was based on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Rows that are in force, or would have been.
    pub n: usize,
    /// Their threshold, score units.
    pub threshold: Option<i64>,
    /// Threshold before, at the same window.
    pub before: Option<i64>,
    /// Robust standard deviation of the scores, score units.
    pub sigma: f64,
    /// Smoothed drift of the scores, cosine units a step.
    pub drift: f64,
    /// Rows that spread and drift ask for.
    pub length: f64,
    /// Distance between the newer and the older half.
    pub halves: Distance,
    /// Distance between what is new and the rows in force.
    pub fresh: Distance,
    /// New rows that were left out because one source alone would have moved the threshold.
    pub outvoted: usize,
}

/// What became of the rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// They stay.
    Kept,
    /// They stay, and do so until the alarm is over.
    Frozen(Measured),
    /// New ones are in force.
    Rolled(Measured),
}

/// A step, and what it changes in the state.
#[derive(Debug, Clone, PartialEq)]
pub struct Rolled {
    /// What became of the rows.
    pub change: Change,
    /// Rows that the state doesn't hold yet.
    pub put: Vec<Accepted>,
    /// Numbers of what left.
    pub left: Vec<u64>,
}

/// A write with its score, and whether it is one of the rows in force.
#[derive(Debug, Clone)]
struct Scored {
    accepted: Accepted,
    score: i64,
    row: bool,
    stays: bool,
}

impl Rolling {
    /// A step, where one is due at stream time `now`.
    pub fn step(&mut self, now: Millis, window: &Window) -> Option<Rolled> {
        let aged = self.due(now, window)?;
        let judged = self.waiting[aged - 1].seq + 1;
        let mut pool = self.scored(aged, window);
        let sharp = self.rows.len() >= self.rules.needed;
        let before = threshold(&scores(pool.iter().filter(|s| s.row)), self.rules.level).filter(|_| sharp);
        if let (Some(before), true) = (before, self.mark.balance > FEW) {
            pool.iter_mut().filter(|s| s.row && s.score >= before).for_each(|s| s.stays = true);
        }
        let spread = drift::spread(&scores(pool.iter()));
        let fresh = scores(pool.iter().filter(|s| s.accepted.seq >= self.mark.judged && !s.row));
        let fresh = Distance::of(&fresh, &scores(pool.iter().filter(|s| s.row)));
        let slope = drift::smoothed(
            Some(f64::from_bits(self.mark.drift)).filter(|_| self.mark.drift != 0),
            drift::slope(&pool.iter().map(|s| s.score).collect::<Vec<_>>()),
        );
        #[allow(clippy::cast_precision_loss)] // below 2^53
        let length = drift::length(drift::constant(self.rules.kappa), spread / ONE as f64, slope);
        let halves = halves(&pool);
        let limit = self.limit(length, halves.significant(drift::DRIFT), pool.len());
        let all = pool.len();
        let chosen = without_decisive(&mut pool, limit, self.rules.level, spread);
        let measured = Measured {
            n: chosen.len(),
            threshold: threshold(&scores(chosen.iter().map(|i| &pool[*i])), self.rules.level),
            before,
            sigma: spread,
            drift: slope,
            length,
            halves,
            fresh,
            outvoted: all - pool.len(),
        };
        self.mark.stepped = now.max(self.mark.time);
        let chosen = chosen.into_iter().map(|i| pool[i].clone()).collect();
        Some(self.decide(measured, chosen, judged))
    }

    fn scored(&self, aged: usize, window: &Window) -> Vec<Scored> {
        let of = |a: &Accepted, row| {
            let tested = score(&a.row.vector, &a.row.keys, window).scores.tested(self.rules.statistic);
            Scored { accepted: a.clone(), score: tested, row, stays: false }
        };
        let rows = self.rows.iter().map(|a| of(a, true));
        rows.chain(self.waiting[..aged].iter().map(|a| of(a, false))).collect()
    }

    /// Rows to have: what spread and drift ask for, within what the level needs and the capacity; two thirds of what
    /// is there while it drifts.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)] // clamped
    fn limit(&self, length: f64, drifts: bool, pool: usize) -> usize {
        let most = self.rules.capacity;
        let least = self.rules.needed.min(most);
        let wanted = length.floor().clamp(least as f64, most as f64) as usize;
        let shorter = if drifts { pool * REWINDOW.0 / REWINDOW.1 } else { most };
        wanted.min(shorter).max(least)
    }

    fn decide(&mut self, m: Measured, chosen: Vec<Scored>, judged: u64) -> Rolled {
        let jumped = m.jumped();
        if jumped {
            let first = !std::mem::replace(&mut self.mark.frozen, true);
            self.mark.calm = 0;
            let from = std::mem::replace(&mut self.mark.judged, judged);
            // What jumped doesn't wait for another try.
            let left = self.leave(|a| (from..judged).contains(&a.seq));
            let change = if first { Change::Frozen(m) } else { Change::Kept };
            return Rolled { change, put: Vec::new(), left };
        }
        self.mark.judged = judged;
        if self.mark.frozen {
            self.mark.calm += 1;
        }
        if m.n < self.rules.needed || (self.mark.frozen && self.mark.calm < CALM) {
            return Rolled { change: Change::Kept, put: Vec::new(), left: Vec::new() };
        }
        self.take(m, chosen, judged)
    }

    /// Puts new rows in force.
    fn take(&mut self, m: Measured, chosen: Vec<Scored>, judged: u64) -> Rolled {
        let stay: BTreeSet<u64> = chosen.iter().map(|s| s.accepted.seq).collect();
        let put = chosen.iter().filter(|s| s.row && !self.mark.rolled).map(|s| s.accepted.clone()).collect();
        let own = self.rows.iter().filter(|_| self.mark.rolled).map(|a| a.seq);
        let aged = self.waiting.iter().map(|a| a.seq).filter(|s| *s < judged);
        let left = own.chain(aged).filter(|s| !stay.contains(s)).collect();
        self.rows = chosen.into_iter().map(|s| s.accepted).collect();
        self.waiting.retain(|a| a.seq >= judged);
        self.recount();
        if self.waiting.len() < self.rules.capacity / 4 {
            self.mark.stride = (self.mark.stride / 2).max(1);
        }
        self.mark.settled = judged;
        self.mark.version += 1;
        self.mark.rolled = true;
        self.mark.drift = m.drift.to_bits();
        // Another threshold is judged by its own false alarms.
        if m.before.is_none() || m.threshold < m.before {
            self.mark.balance = self.mark.balance.max(0);
        }
        (self.mark.frozen, self.mark.calm) = (false, 0);
        Rolled { change: Change::Rolled(m), put, left }
    }
}

impl Measured {
    /// What is new is of another kind, and would move the threshold far.
    fn jumped(&self) -> bool {
        let (Some(before), Some(after)) = (self.before, self.threshold) else { return false };
        self.fresh.significant(drift::JUMP) && is_far(before.abs_diff(after), self.sigma)
    }
}

#[allow(clippy::cast_precision_loss)] // below 2^53
fn is_far(moved: u64, sigma: f64) -> bool {
    moved as f64 > FAR * sigma
}

/// Scores, ascending.
fn scores<'a>(of: impl Iterator<Item = &'a Scored>) -> Vec<i64> {
    let mut all: Vec<i64> = of.map(|s| s.score).collect();
    all.sort_unstable();
    all
}

/// The newer half against the older one.
fn halves(pool: &[Scored]) -> Distance {
    let (older, newer) = pool.split_at(pool.len() / 2);
    Distance::of(&scores(newer.iter()), &scores(older.iter()))
}

/// The newest writes and those that stay, at most `limit`, of each source its share: a twentieth, or an even one
/// among fewer sources. Indices, ascending.
fn choose(pool: &[Scored], limit: usize) -> Vec<usize> {
    let sources: BTreeSet<&Tag> = pool.iter().map(|s| &s.accepted.source).collect();
    let n = pool.len().min(limit);
    let share = n.div_ceil(SHARE).max(n.div_ceil(sources.len().max(1)));
    let mut taken: BTreeMap<&Tag, usize> = BTreeMap::new();
    let mut kept = Vec::with_capacity(n);
    let newest = |stays: bool| (0..pool.len()).rev().filter(move |i| pool[*i].stays == stays);
    for i in newest(true).chain(newest(false)) {
        let of = taken.entry(&pool[i].accepted.source).or_default();
        if kept.len() < n && *of < share {
            *of += 1;
            kept.push(i);
        }
    }
    kept.sort_unstable();
    kept
}

/// Chooses; where a single source's new writes move the threshold up far, it is chosen again without them.
fn without_decisive(pool: &mut Vec<Scored>, limit: usize, level: u32, sigma: f64) -> Vec<usize> {
    loop {
        let chosen = choose(pool, limit);
        match decisive(pool, &chosen, level, sigma) {
            Some(source) => pool.retain(|s| s.row || s.accepted.source != source),
            None => return chosen,
        }
    }
}

/// A source whose new writes stand at the threshold, and without which it is far lower.
fn decisive(pool: &[Scored], chosen: &[usize], level: u32, sigma: f64) -> Option<Tag> {
    let with = threshold(&scores(chosen.iter().map(|i| &pool[*i])), level)?;
    let at_top = chosen.iter().map(|i| &pool[*i]).filter(|s| !s.row && s.score >= with);
    let sources: BTreeSet<Tag> = at_top.map(|s| s.accepted.source).collect();
    sources.into_iter().find(|source| {
        let others = chosen.iter().map(|i| &pool[*i]).filter(|s| s.row || s.accepted.source != *source);
        let others = scores(others);
        // Too few for the level: the largest of them is the least that the threshold would be.
        let without = threshold(&others, level).or(others.last().copied());
        without.is_some_and(|without| with > without && is_far(with.abs_diff(without), sigma))
    })
}
