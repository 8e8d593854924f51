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

/// How MEMSAD is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Conformal thresholds, and a window without copies, floods and the queries that caused the write.
    #[default]
    Hardened,
    /// As published: every query, mean plus kappa deviations.
    Reference,
}

impl Form {
    /// The word in files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Form::Hardened => "hardened",
            Form::Reference => "reference",
        }
    }
}

/// The rolling-window test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memsad {
    /// Mode.
    pub mode: MemsadMode,
    /// Form.
    #[serde(default)]
    pub form: Form,
    /// Tested score.
    pub statistic: Statistic,
    /// Hardened: the share of benign writes that may be above the threshold.
    #[serde(default = "level")]
    pub level: f64,
    /// Reference: deviations above the mean. Hardened: of the published condition alone.
    pub kappa: f64,
    /// Queries kept for each boundary.
    pub history: usize,
    /// Fewer benign writes in the calibration: shadow.
    pub min_calibration: u32,
    /// Fewer queries in the history: shadow.
    pub min_history: usize,
    /// Hardened: queries of one principal in the history.
    #[serde(default = "per_principal")]
    pub per_principal: usize,
    /// Hardened: new queries that move the window; fewer while it is small.
    #[serde(default = "settle")]
    pub settle: usize,
    /// Hardened: older queries leave, by stream time.
    #[serde(default = "query_age", with = "duration")]
    pub query_age: Duration,
    /// Hardened: accepted writes of each boundary that a write is compared with.
    #[serde(default = "memory")]
    pub memory: usize,
    /// Hardened: how accepted writes become rows of the calibration.
    #[serde(default)]
    pub rolling: RollingRows,
}

impl Memsad {
    /// Whether rows follow the stream.
    #[must_use]
    pub fn rolls(&self) -> bool {
        self.form == Form::Hardened && self.mode != MemsadMode::Off && self.rolling.mode == Switch::On
    }
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// How accepted writes become rows of the calibration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RollingRows {
    /// Off: the rows are those of the published record.
    pub mode: Switch,
    /// How old an accepted write must be, by stream time.
    #[serde(with = "duration")]
    pub ageing: Duration,
    /// Newly aged writes after which rows are chosen again.
    pub every: usize,
    /// Or this long after the last time, with eight newly aged writes, by stream time.
    #[serde(with = "duration")]
    pub at_least: Duration,
    /// Rows at most.
    pub capacity: usize,
}

impl Default for RollingRows {
    fn default() -> Self {
        Self {
            mode: Switch::On,
            ageing: Duration::from_secs(86_400),
            every: 50,
            at_least: Duration::from_secs(7 * 86_400),
            capacity: 512,
        }
    }
}

fn level() -> f64 {
    0.005
}

fn per_principal() -> usize {
    25
}

fn settle() -> usize {
    20
}

fn query_age() -> Duration {
    Duration::from_secs(30 * 86_400)
}

fn memory() -> usize {
    500
}

/// What a campaign's earlier writes lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retract {
    /// A record in `decisions` and a finding.
    Flag,
    /// A tombstone in `committed-memory` too.
    Tombstone,
}

/// The write screen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Screen {
    /// Mode.
    pub mode: MemsadMode,
    /// How the campaign signal counts for forms of record that the calibration hardly knows.
    pub new_format: MemsadMode,
    /// What a campaign's earlier writes lead to.
    pub retract: Retract,
    /// A source without a write for this long is forgotten.
    #[serde(with = "duration")]
    pub source_idle: Duration,
}

impl Default for Screen {
    fn default() -> Self {
        Self {
            mode: MemsadMode::Enforce,
            new_format: MemsadMode::Shadow,
            retract: Retract::Flag,
            source_idle: Duration::from_secs(7 * 86_400),
        }
    }
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
