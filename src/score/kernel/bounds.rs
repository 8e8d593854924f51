//! Which rows can be among the nearest, from their sketches: Cauchy-Schwarz bounds what a sketch leaves out.

use super::cpu::LARGEST;
use super::{Dots, Sketch, Words};

/// Sums over a candidate's components.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    exact: i32,
    /// Of those that [`LARGEST`] cuts.
    held: i32,
    norm2: i32,
}

impl Totals {
    #[inline(always)]
    pub(super) fn of(candidate: &[Words]) -> Self {
        let mut totals = Self::default();
        for words in candidate {
            for c in words.0 {
                let (whole, cut) = (i32::from(c), i32::from(c.min(LARGEST)));
                totals.exact = totals.exact.wrapping_add(whole);
                totals.held = totals.held.wrapping_add(cut);
                totals.norm2 = totals.norm2.wrapping_add(whole.wrapping_mul(whole));
            }
        }
        totals
    }
}

/// How a dot product follows from that with a sketch: `c . row = scale (c . (q + 128) - 128 sum(c)) + c . rest`,
/// and `|c . rest| <= |c| |rest|`.
pub(super) struct Bound {
    scale: i64,
    /// 128 times the sum of the candidate's components.
    offset: i64,
    /// The most that the rest can add.
    slack: i64,
}

impl Bound {
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // the root is below 2^40, and rounded up
    pub(super) fn of(Totals { exact, held, norm2 }: Totals, sketch: &Sketch) -> Self {
        let rest = (f64::from(norm2) * sketch.rest() as f64).sqrt() as i64 + 2;
        // What the split left out counts with the largest component there is.
        let lost = i64::from(exact - held) * 32768;
        Self { scale: i64::from(sketch.scale()), offset: 128 * i64::from(held), slack: rest + lost }
    }

    /// What a sketched dot product must reach for the row to reach `floor`.
    pub(super) fn needed(&self, floor: i64) -> i32 {
        let needed = floor.saturating_sub(self.slack).div_euclid(self.scale).saturating_add(self.offset);
        // Sketched dot products fit i32; a bound beyond them is one that all or none reach.
        i32::try_from(needed).unwrap_or(if needed < 0 { i32::MIN } else { i32::MAX })
    }
}

/// The largest so far.
pub(super) struct Best {
    k: usize,
    /// What a row must reach to count: the k-th largest dot product, once there are k.
    pub(super) floor: i64,
    pub(super) found: Vec<Dots>,
}

impl Best {
    pub(super) fn new(k: usize) -> Self {
        Self { k, floor: i64::MIN, found: Vec::with_capacity(k + 1) }
    }

    pub(super) fn offer(&mut self, max: i32, at: usize) {
        if self.k == 1 && self.found.first().is_some_and(|f| max < f.max || (max == f.max && at > f.at)) {
            return;
        }
        let place = self.found.partition_point(|f| f.max > max || (f.max == max && f.at < at));
        self.found.insert(place, Dots { max, at, sum: 0 });
        self.found.truncate(self.k);
        if self.found.len() == self.k {
            self.floor = self.found.last().map_or(i64::MIN, |f| i64::from(f.max));
        }
    }
}
