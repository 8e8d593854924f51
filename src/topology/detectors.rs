//! Settings of the tests, and what a failed part leads to.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units::duration;

/// How a detector counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemsadMode {
    /// Holds writes.
    Enforce,
    /// Records only.
    Shadow,
    /// Not computed.
    Off,
}

/// Which MEMSAD score is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// Largest cosine.
    Max,
    /// Mean cosine.
    Mean,
    /// Half and half.
    Combined,
}

impl Statistic {
    /// The wire word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Statistic::Max => "max",
            Statistic::Mean => "mean",
            Statistic::Combined => "combined",
        }
    }
}

/// The rolling-window test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memsad {
    /// Mode.
    pub mode: MemsadMode,
    /// Tested score.
    pub statistic: Statistic,
    /// Deviations above the mean.
    pub kappa: f64,
    /// Queries kept for each boundary.
    pub history: usize,
    /// Fewer benign writes in the calibration: shadow.
    pub min_calibration: u32,
    /// Fewer queries in the history: shadow.
    pub min_history: usize,
}

/// The session test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sprt {
    /// Hit rate of an attack.
    pub p1: f64,
    /// Hit rate of benign use.
    pub p0: f64,
    /// False-alarm rate.
    pub alpha: f64,
    /// Miss rate.
    pub beta: f64,
    /// Then inconclusive.
    pub max_observations: u32,
    /// A gap this long closes the session.
    #[serde(with = "duration")]
    pub idle: Duration,
    /// Published defaults, not calibrated here.
    pub assumed: bool,
}

/// What a failed part leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PostureKind {
    /// Hold the write.
    Quarantine,
    /// Allow with a flag.
    PassMarked,
    /// Retry until the deadline, then quarantine.
    Hold,
}

/// Postures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Posture {
    /// The encoder failed.
    pub on_error: PostureKind,
    /// The text was cut.
    pub on_truncation: PostureKind,
    /// Longest retry under `hold`.
    #[serde(with = "duration")]
    pub hold_deadline: Duration,
}
