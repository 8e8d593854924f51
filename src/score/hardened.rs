//! MEMSAD, hardened (`memsad.md` 8.4, 9): conformal thresholds for each score at the version of the query window
//! that the write is scored with; queries that caused the write are left out.

use super::certificate::certificate;
use super::conformal::{Conformal, fewest, level_units};
use super::kernel;
use super::keys::Keys;
use super::memory::Memory;
use super::memsad::{Scores, Settings};
use super::window::Window;
use crate::schema::{MemsadFacts, MemsadStatus, Vector, WindowFacts};
use crate::topology::{Memsad, MemsadMode};

/// A write against a window.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scored {
    /// The three scores; 0 where no query is left.
    pub scores: Scores,
    /// Row of the window and dot product of each query that counts, oldest first.
    pub dots: Vec<(usize, i64)>,
    /// Queries left out.
    pub excluded: usize,
}

/// Scores a write against the queries that it doesn't come from.
#[must_use]
pub fn score(candidate: &Vector, keys: &Keys, window: &Window) -> Scored {
    let each = kernel::current().each(window.packed(), candidate.as_slice());
    let counted = window.rows().iter().zip(each).enumerate().filter(|(_, (q, _))| !keys.excludes(&q.keys));
    let dots: Vec<(usize, i64)> = counted.map(|(i, (_, dot))| (i, i64::from(dot))).collect();
    let excluded = window.rows().len() - dots.len();
    let Some(max) = dots.iter().map(|(_, d)| *d).max() else {
        return Scored { excluded, ..Scored::default() };
    };
    let m = i64::try_from(dots.len()).unwrap_or(i64::MAX);
    let sum: i64 = dots.iter().map(|(_, d)| *d).sum();
    let scores = Scores { max, mean: sum.div_euclid(m), comb: (max * m + sum).div_euclid(2 * m) };
    Scored { scores, dots, excluded }
}

/// A calibration in force with the scores of its rows against a window.
#[derive(Debug, Clone, Copy)]
pub struct Against<'a> {
    /// Its name in decisions.
    pub name: &'a str,
    /// Rows.
    pub n: u32,
    /// Its rows, scored.
    pub conformal: &'a Conformal,
    /// A jump was seen: the rows stay as they are.
    pub frozen: bool,
}

/// Scores a write and says how the result counts, with flags that explain why it doesn't. `memory` is synced with
/// the window.
#[must_use]
pub fn assess_hardened(
    settings: &Settings,
    candidate: &Vector,
    keys: &Keys,
    window: &Window,
    memory: &Memory,
    against: Option<Against<'_>>,
) -> (MemsadFacts, Vec<&'static str>) {
    let m = &settings.memsad;
    let scored = score(candidate, keys, window);
    let level = level_units(m.level);
    let mut flags = Vec::new();
    let status = match against {
        None => {
            flags.push("uncalibrated");
            MemsadStatus::Uncalibrated
        }
        Some(a) => standing(m, a.n, level, scored.dots.len(), &mut flags),
    };
    if against.is_some_and(|a| a.frozen) {
        flags.push("calibration_frozen");
    }
    let threshold = against.and_then(|a| a.conformal.threshold(m.statistic, level));
    let conformal = against.map(|a| a.conformal.facts(&scored.scores, level));
    let tested = scored.scores.tested(m.statistic);
    let facts = MemsadFacts {
        calibration: against.map(|a| a.name.to_owned()),
        certificate: Some(certificate(m, &scored, window, memory, threshold, against.map(|a| a.conformal))),
        conformal,
        flagged: threshold.is_some_and(|t| tested > t) && !scored.dots.is_empty(),
        m: u32::try_from(scored.dots.len()).unwrap_or(u32::MAX),
        s_comb: scored.scores.comb,
        s_max: scored.scores.max,
        s_mean: scored.scores.mean,
        statistic: m.statistic.as_str().to_owned(),
        status,
        threshold,
        window: Some(WindowFacts {
            digest: window.digest().to_owned(),
            excluded: u32::try_from(scored.excluded).unwrap_or(u32::MAX),
            version: window.version(),
        }),
    };
    (facts, flags)
}

fn standing(m: &Memsad, n: u32, level: u32, queries: usize, flags: &mut Vec<&'static str>) -> MemsadStatus {
    if m.mode == MemsadMode::Shadow {
        return MemsadStatus::Shadow;
    }
    if n < m.min_calibration.max(fewest(level)) {
        flags.push("calibration_small");
        return MemsadStatus::Shadow;
    }
    if queries < m.min_history {
        flags.push("history_small");
        return MemsadStatus::Shadow;
    }
    MemsadStatus::Enforced
}

/// Component sums of the queries that count.
pub(super) fn counted_sum(scored: &Scored, window: &Window) -> Vec<i64> {
    let mut sum = window.sum().to_vec();
    let mut counted = scored.dots.iter().map(|(i, _)| *i).peekable();
    for (i, q) in window.rows().iter().enumerate() {
        if counted.next_if_eq(&i).is_none() {
            sum.iter_mut().zip(q.vector.as_slice()).for_each(|(s, x)| *s -= i64::from(*x));
        }
    }
    sum
}
