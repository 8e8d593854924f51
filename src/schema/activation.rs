//! Activations in `decisions`: a version came into force.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What became of the copy of a rolling calibration on `calibrations`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Copied {
    /// It is there.
    Published,
    /// None was made: the newest one is less than a day of stream time old.
    #[default]
    Recent,
    /// None was made: it is above `limits.max_output_bytes`.
    TooLarge,
    /// None was made: it has fewer than two rows.
    TooSmall,
}

/// What the stream based a rolling calibration on (`memsad.md` 1.5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RollingFacts {
    /// Threshold before, at the same query window; null where there was none.
    pub before: Option<i64>,
    /// Its name in decisions.
    pub calibration: String,
    /// Whether the topic has a copy.
    #[serde(default)]
    pub copy: Copied,
    /// Smoothed drift of the scores from one write to the next, 1e-9 of a cosine.
    pub drift: u64,
    /// Kolmogorov-Smirnov distance of the newer half of the rows from the older one, in millionths.
    pub ks: u32,
    /// The same of what is new from the rows in force.
    pub ks_new: u32,
    /// Rows that spread and drift ask for, `(C sigma / drift)^(2/3)`, not yet clamped.
    pub length: u32,
    /// Rows.
    pub n: u32,
    /// New rows left out because their source alone would have moved the threshold.
    pub outvoted: u32,
    /// Robust standard deviation of the scores, score units.
    pub sigma: u64,
    /// Threshold at the query window of the moment.
    pub threshold: Option<i64>,
}

/// A version that came into force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Activation {
    /// Present where the stream made the version itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rolling: Option<RollingFacts>,
    /// Version.
    pub version: u64,
    /// `memsad/<scope>`, `screen/<scope>`, `rolling/<boundary>`, or `registry/<keyed hash>` for a honeypot set.
    pub what: String,
}
