//! Conformal thresholds and p-values of the three scores (`memsad.md` 9.3), from trusted writes scored against the
//! same version of the query window as the write. Exact integers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::hardened::score;
use super::keys::Keys;
use super::memsad::Scores;
use super::window::Window;
use crate::error::{Code, Error, Result};
use crate::schema::{Calibration, ConformalFacts, Tail, Vector};
use crate::topology::Statistic;

/// One million: levels are in millionths.
const MILLION: u64 = 1_000_000;
/// Rows of a calibration at most.
pub const MOST_ROWS: usize = 512;
/// Bytes of the rows at most: a record must fit a topic's limit, in base64.
const MOST_BYTES: usize = 600_000;

/// A level in millionths.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped
pub fn level_units(level: f64) -> u32 {
    (level * 1e6).round().clamp(1.0, 1e6) as u32
}

/// Fewest rows that a level can be tested with: ceil(1 / level) - 1.
#[must_use]
pub fn fewest(level: u32) -> u32 {
    u32::try_from(MILLION.div_ceil(u64::from(level.max(1))) - 1).unwrap_or(u32::MAX)
}

/// Rows that fit a record.
#[must_use]
pub fn most(dimension: usize) -> usize {
    MOST_ROWS.min(MOST_BYTES / (Keys::BYTES + 2 * dimension))
}

/// A trusted write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Who wrote it.
    pub keys: Keys,
    /// Vector.
    pub vector: Vector,
}

/// Packs rows as a calibration record holds them.
#[must_use]
pub fn pack(rows: &[Row]) -> String {
    let bytes: Vec<u8> = rows.iter().flat_map(|r| [r.keys.to_bytes().to_vec(), r.vector.to_bytes()].concat()).collect();
    STANDARD.encode(bytes)
}

/// A calibration ready for use: its record, and the rows of a hardened one.
#[derive(Debug, Clone)]
pub struct Fitted {
    /// The record.
    pub record: Calibration,
    /// Trusted writes; none in a record of the reference form.
    pub rows: Vec<Row>,
}

impl Fitted {
    /// Reads the rows.
    ///
    /// # Errors
    /// `calibration_invalid`.
    pub fn of(record: Calibration) -> Result<Self> {
        let broken = || Error::new(Code::CalibrationInvalid, "the rows of a calibration are broken");
        let Some(conformal) = &record.conformal else {
            return Ok(Self { record, rows: Vec::new() });
        };
        let bytes = STANDARD.decode(conformal.rows.as_bytes()).map_err(|_| broken())?;
        let size = Keys::BYTES + 2 * record.dimension as usize;
        if record.dimension == 0 || bytes.len() != size * record.n as usize {
            return Err(broken());
        }
        let row = |chunk: &[u8]| {
            let (keys, vector) = chunk.split_at(Keys::BYTES);
            let values = vector.chunks_exact(2).map(|c| i16::from_le_bytes([c[0], c[1]])).collect();
            Some(Row { keys: Keys::from_bytes(keys)?, vector: Vector::from_unit(values)? })
        };
        let rows = bytes.chunks_exact(size).map(row).collect::<Option<_>>().ok_or_else(broken)?;
        Ok(Self { record, rows })
    }
}

/// Scores of trusted writes against one version of a window, each sorted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conformal {
    max: Vec<i64>,
    mean: Vec<i64>,
    comb: Vec<i64>,
}

impl Conformal {
    /// Scores rows as writes are scored.
    #[must_use]
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Row>, window: &Window) -> Self {
        let scored: Vec<Scores> = rows.into_iter().map(|r| score(&r.vector, &r.keys, window).scores).collect();
        let sorted = |of: fn(&Scores) -> i64| {
            let mut all: Vec<i64> = scored.iter().map(of).collect();
            all.sort_unstable();
            all
        };
        Self { max: sorted(|s| s.max), mean: sorted(|s| s.mean), comb: sorted(|s| s.comb) }
    }

    /// Scores of one kind, ascending.
    #[must_use]
    pub fn scores(&self, statistic: Statistic) -> &[i64] {
        match statistic {
            Statistic::Max => &self.max,
            Statistic::Mean => &self.mean,
            Statistic::Combined => &self.comb,
        }
    }

    /// Threshold at a level: a score above it has p <= level. `None` with too few rows.
    #[must_use]
    pub fn threshold(&self, statistic: Statistic, level: u32) -> Option<i64> {
        threshold(self.scores(statistic), level)
    }

    /// Thresholds and p-values of a write.
    #[must_use]
    pub fn facts(&self, scores: &Scores, level: u32) -> ConformalFacts {
        let tail = |statistic| {
            let sorted = self.scores(statistic);
            Tail { rank: rank(sorted, scores.tested(statistic)), threshold: threshold(sorted, level) }
        };
        ConformalFacts {
            comb: tail(Statistic::Combined),
            level,
            max: tail(Statistic::Max),
            mean: tail(Statistic::Mean),
            of: count(self.max.len() + 1),
        }
    }
}

/// The ceil((n + 1)(1 - level))-th smallest.
pub(super) fn threshold(sorted: &[i64], level: u32) -> Option<i64> {
    let n = sorted.len() as u64;
    let k = ((n + 1) * (MILLION - u64::from(level))).div_ceil(MILLION);
    if k == 0 || k > n {
        return None;
    }
    sorted.get(usize::try_from(k - 1).ok()?).copied()
}

/// Rows at least as high, the write included.
fn rank(sorted: &[i64], score: i64) -> u32 {
    count(sorted.len() - sorted.partition_point(|s| *s < score) + 1)
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Above the threshold is p <= level, ties and too few rows included.
        #[test]
        fn threshold_and_rank_say_the_same(
            mut scores in prop::collection::vec(-9_i64..9, 0..60), score in -9_i64..9, level in 1_u32..1_000_000,
        ) {
            scores.sort_unstable();
            let (rank, of) = (u64::from(rank(&scores, score)), scores.len() as u64 + 1);
            let low = rank * MILLION <= u64::from(level) * of;
            prop_assert_eq!(threshold(&scores, level).is_some_and(|t| score > t), low);
            let enough = scores.len() as u64 >= u64::from(fewest(level));
            prop_assert_eq!(threshold(&scores, level).is_some(), enough);
        }

        /// On exchangeable scores at most a share `level` is above the threshold made from the others: exact, each
        /// score left out once.
        #[test]
        fn the_level_holds_on_exchangeable_scores(
            scores in prop::collection::vec(any::<i32>(), 2..120), level in 1_u32..1_000_000,
        ) {
            let above = |i: usize| {
                let mut others: Vec<i64> = scores.iter().map(|s| i64::from(*s)).collect();
                let own = others.remove(i);
                others.sort_unstable();
                threshold(&others, level).is_some_and(|t| own > t)
            };
            let flagged = (0..scores.len()).filter(|i| above(*i)).count() as u64;
            prop_assert!(flagged * MILLION <= u64::from(level) * scores.len() as u64);
        }
    }

    #[test]
    fn the_default_level_needs_199_rows() {
        let level = level_units(0.005);
        assert_eq!((level, fewest(level), fewest(10_000), fewest(1_000_000)), (5000, 199, 99, 0));
        let scores: Vec<i64> = (0..199).collect();
        assert_eq!((threshold(&scores, level), threshold(&scores[1..], level)), (Some(198), None));
        assert_eq!((most(384), most(1024), most(8)), (512, 286, 512));
    }
}
