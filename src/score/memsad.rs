//! MEMSAD, reference form (arXiv 2605.03482; `memsad.md` 1): how close a write lies to recent queries.

use super::History;
use super::kernel::{Candidates, Dots};
use crate::schema::{Calibration, MemsadFacts, MemsadStatus, Vector};
use crate::topology::{Memsad, MemsadMode, Statistic};

/// The three scores, in units of 1 / ONE; 0 for an empty history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scores {
    /// Largest dot product.
    pub max: i64,
    /// floor of the mean dot product.
    pub mean: i64,
    /// floor of half the sum of largest and mean, from the exact fraction.
    pub comb: i64,
}

impl Scores {
    /// Scores a candidate against a history.
    #[must_use]
    pub fn of(candidate: &Vector, history: &History) -> Self {
        Self::of_all(std::slice::from_ref(candidate), history).pop().unwrap_or_default()
    }

    /// Scores several candidates against one history, in one pass over it.
    #[must_use]
    pub fn of_all(candidates: &[Vector], history: &History) -> Vec<Self> {
        let rows = Candidates::of(history.dimension(), candidates.iter().map(Vector::as_slice));
        let dots = history.dots(&rows);
        let m = i64::try_from(history.len()).unwrap_or(i64::MAX);
        (0..candidates.len()).map(|i| dots.get(i).map_or_else(Self::default, |d| Self::from_dots(*d, m))).collect()
    }

    fn from_dots(dots: Dots, m: i64) -> Self {
        let (max, sum) = (i64::from(dots.max), dots.sum);
        Self { max, mean: sum.div_euclid(m), comb: (max * m + sum).div_euclid(2 * m) }
    }

    /// The one that is tested.
    #[must_use]
    pub fn tested(&self, statistic: Statistic) -> i64 {
        match statistic {
            Statistic::Max => self.max,
            Statistic::Mean => self.mean,
            Statistic::Combined => self.comb,
        }
    }
}

/// How the test runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// From the topology.
    pub memsad: Memsad,
    /// Identity of the encoder in use.
    pub encoder: String,
}

/// Flag: no calibration applies.
const UNCALIBRATED: &str = "uncalibrated";
/// Flag: the calibration in force was made with another encoder or statistic.
pub const OTHER_ENCODER: &str = "calibration_of_other_encoder";
/// Flag: the calibration in force is of the other form of MEMSAD.
pub const OTHER_FORM: &str = "calibration_of_other_form";

/// Scores a write and says how the result counts, with flags that explain why it doesn't.
#[must_use]
pub fn assess(
    settings: &Settings,
    candidate: &Vector,
    history: &History,
    calibration: Option<&Calibration>,
) -> (MemsadFacts, Vec<&'static str>) {
    let m = &settings.memsad;
    let scores = Scores::of(candidate, history);
    let mut flags = Vec::new();
    let calibration = calibration.filter(|c| {
        let fits = c.encoder == settings.encoder && c.statistic == m.statistic.as_str();
        let form = c.conformal.is_none();
        if !form {
            flags.push(OTHER_FORM);
        } else if !fits {
            flags.push(OTHER_ENCODER);
        }
        form && fits
    });
    let threshold = calibration.map(|c| c.threshold_units);
    let status = match calibration {
        None => {
            flags.push(UNCALIBRATED);
            MemsadStatus::Uncalibrated
        }
        Some(c) => standing(m, c, history, &mut flags),
    };
    let facts = MemsadFacts {
        calibration: calibration.map(|c| format!("{}@{}", c.scope, c.version)),
        certificate: None,
        conformal: None,
        flagged: threshold.is_some_and(|t| scores.tested(m.statistic) > t) && !history.is_empty(),
        m: u32::try_from(history.len()).unwrap_or(u32::MAX),
        s_comb: scores.comb,
        s_max: scores.max,
        s_mean: scores.mean,
        statistic: m.statistic.as_str().to_owned(),
        status,
        threshold,
        window: None,
    };
    (facts, flags)
}

fn standing(m: &Memsad, c: &Calibration, history: &History, flags: &mut Vec<&'static str>) -> MemsadStatus {
    if m.mode == MemsadMode::Shadow {
        return MemsadStatus::Shadow;
    }
    if c.n < m.min_calibration {
        flags.push("calibration_small");
        return MemsadStatus::Shadow;
    }
    if history.len() < m.min_history {
        flags.push("history_small");
        return MemsadStatus::Shadow;
    }
    MemsadStatus::Enforced
}
