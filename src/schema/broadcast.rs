//! Broadcast records: versioned calibrations and honeypot sets, each under `kind/scope@version`, and
//! the pointer `active/kind/scope`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Boundary;

/// What a version applies to; the fallback goes boundary, tenant, deployment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// One boundary.
    Boundary(Boundary),
    /// One tenant.
    Tenant(String),
    /// Everything.
    Deployment,
}

impl Scope {
    /// `tenant/store`, `tenant` or `*`.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Scope::Boundary(b) => b.as_str().to_owned(),
            Scope::Tenant(t) => t.clone(),
            Scope::Deployment => "*".to_owned(),
        }
    }

    /// Reads the three forms.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Scope::Deployment);
        }
        if text.contains('/') {
            return Boundary::parse(text).ok().map(Scope::Boundary);
        }
        super::valid_part(text).then(|| Scope::Tenant(text.to_owned()))
    }
}

/// Which detector a calibration belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CalibrationKind {
    /// The rolling-window test on writes.
    Memsad,
}

impl CalibrationKind {
    /// The wire word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            CalibrationKind::Memsad => "memsad",
        }
    }
}

/// The query history that a calibration was fitted on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CalibrationHistory {
    /// Number of queries.
    pub m: u32,
    /// Norm of the mean query vector, 0 to 1.
    pub mean_norm: f64,
    /// SHA-256 over the ordered i16 vectors, hex.
    pub digest: String,
}

/// The random-trigger control: the share of the same benign texts that a random five-word prefix
/// carries above the threshold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Control {
    /// Texts flagged.
    pub flagged: u32,
    /// Texts tried.
    pub n: u32,
    /// Clopper-Pearson 95 % interval of the share.
    pub interval: [f64; 2],
}

/// What hardened calibrations hold besides: the writes themselves, so that they can be scored again whenever the
/// query window moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConformalRows {
    /// Level in millionths: the share of benign writes that may be above the threshold.
    pub level: u32,
    /// Writes that their source's share left out.
    pub left_out: u32,
    /// n rows: tags of principal, session and answer (16 bytes each, zeros for none), then the vector as
    /// little-endian i16; base64.
    pub rows: String,
}

/// A fitted threshold. Reference (`memsad.md` 1.2): mean + kappa * population standard deviation. Hardened
/// (`memsad.md` 9.3): conformal, from `conformal.rows` and the query window in force; `threshold` is that of the fit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "calibration")]
pub struct Calibration {
    /// Detector.
    pub kind: CalibrationKind,
    /// `tenant/store`, `tenant` or `*`.
    pub scope: String,
    /// Grows by one with each publication.
    pub version: u64,
    /// `reference` or `hardened`.
    pub mode: String,
    /// `max`, `mean` or `combined`.
    pub statistic: String,
    /// Number of benign writes.
    pub n: u32,
    /// Mean score, cosine units.
    pub mean: f64,
    /// Population standard deviation plus 1e-8, cosine units.
    pub std: f64,
    /// Multiplier of the deviation.
    pub kappa: f64,
    /// The threshold, cosine units: mean + kappa * std, or of the hardened form the conformal one (with too few
    /// writes the largest score).
    pub threshold: f64,
    /// The threshold in score units (1 / 32767^2); a write above it is flagged.
    pub threshold_units: i64,
    /// Benign writes of the fit above the threshold (not held out).
    pub flagged: u32,
    /// Clopper-Pearson 95 % interval of that share.
    pub interval: [f64; 2],
    /// Smallest poison score minus largest benign score, cosine units; null when no poison was given.
    pub margin: Option<f64>,
    /// Random-trigger control.
    pub control: Control,
    /// Encoder identity.
    pub encoder: String,
    /// Dimension.
    pub dimension: u32,
    /// The history it used.
    pub history: CalibrationHistory,
    /// Record time of the newest benign write, RFC 3339.
    pub as_of: String,
    /// Hardened form.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub conformal: Option<ConformalRows>,
    /// Of a copy of what the stream made, and of what was published from one: its name in decisions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rolling: Option<String>,
}

/// State of a honeypot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HoneypotState {
    /// Counted.
    #[default]
    Active,
    /// No longer counted.
    Retired,
}

/// One honeypot of the registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "honeypot")]
pub struct Honeypot {
    /// Tenant.
    pub tenant: String,
    /// Store.
    pub store: String,
    /// Opaque id: the only one that leaves the registry.
    pub honeypot_id: String,
    /// The record it stands as.
    pub record_id: String,
    /// Whether it counts.
    #[serde(default)]
    pub state: HoneypotState,
}

/// A version of a boundary's honeypots, the value under `honeypots/tenant/store@version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HoneypotSet {
    /// `tenant/store`.
    pub scope: String,
    /// Version.
    pub version: u64,
    /// Members.
    pub honeypots: Vec<Honeypot>,
}

/// The value under `active/kind/scope`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ActivePointer {
    /// The version in force.
    pub version: u64,
}
