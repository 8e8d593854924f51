//! Defenses behind one trait. A defense is fitted on the old part of a boundary and judges a stream in order;
//! judging keeps nothing, so the same stream gives the same result.

mod composite;
mod corroboration;
mod geometry;
mod hardened;
mod memsad;
mod perplexity;
mod plus;
mod provenance;
mod validation;
mod watermark;

pub use corroboration::{Corroboration, effective_support};
pub(in crate::evaluate) use geometry::cosine;
pub use geometry::{Coherence, Outlier, Proactive};
pub use hardened::{Hardened, Screen, Screened};
pub use memsad::{Memsad, conformal_threshold};
pub use perplexity::Perplexity;
pub use plus::{Plus, Rule};
pub use provenance::ProvenanceGate;
pub use validation::Validation;
pub use watermark::Watermark;

use serde::{Deserialize, Serialize};

use super::{Boundary, Encode, Write};
use crate::error::Result;
use crate::topology::Statistic;
use composite::Composite;

/// Level of the thresholds that are set by rank.
pub const LEVEL: f64 = 0.01;

/// What a defense says of a write.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// Grows with suspicion.
    pub score: f64,
    /// Held.
    pub flagged: bool,
    /// Held, and not to be released by one reviewer.
    pub blocked: bool,
}

impl Judged {
    /// Flagged when the score is above the threshold.
    #[must_use]
    pub fn by(score: f64, threshold: f64) -> Self {
        Self { score, flagged: score > threshold, blocked: false }
    }
}

/// A fitted defense.
pub trait Defense: std::fmt::Debug {
    /// Judges writes in order of arrival.
    ///
    /// # Errors
    /// `encoder_failed`.
    fn judge(&self, stream: &[Write], encode: &dyn Encode) -> Result<Vec<Judged>>;

    /// Flags what is above it, where one number decides.
    fn threshold(&self) -> Option<f64>;
}

/// Which defense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Reference MEMSAD, largest cosine.
    MemsadMax,
    /// Reference MEMSAD, mean cosine.
    MemsadMean,
    /// Reference MEMSAD, half of each: what the paper deploys.
    MemsadCombined,
    /// Largest cosine against a threshold by rank, without the query that caused the write.
    MemsadConformal,
    /// MEMSAD+, the paper's rule: semantic or character.
    MemsadPlus,
    /// MEMSAD+, the code's weighted rule.
    MemsadPlusWeighted,
    /// Character watermark.
    Watermark,
    /// Content validation.
    Validation,
    /// Mean cosine to fixed probes.
    Proactive,
    /// Character cross-entropy: the perplexity control.
    Perplexity,
    /// Topic break between sentences.
    Coherence,
    /// Distance to the trusted neighbours.
    Outlier,
    /// Hold what is not from an authenticated user or operator.
    ProvenanceGate,
    /// Two different source strings.
    CorroborationNaive,
    /// Two independent authenticated identities.
    CorroborationIdentity,
    /// Watermark or MEMSAD or proactive.
    Composite,
    /// The screen alone, one floor for all origins.
    Screen,
    /// Screen and rank test, the default of the stream.
    Hardened,
    /// The same behind the provenance gate.
    HardenedProvenance,
}

impl Kind {
    /// All, in the order of tables.
    pub const ALL: [Kind; 19] = [
        Kind::MemsadMax,
        Kind::MemsadMean,
        Kind::MemsadCombined,
        Kind::MemsadConformal,
        Kind::MemsadPlus,
        Kind::MemsadPlusWeighted,
        Kind::Watermark,
        Kind::Validation,
        Kind::Proactive,
        Kind::Perplexity,
        Kind::Coherence,
        Kind::Outlier,
        Kind::ProvenanceGate,
        Kind::CorroborationNaive,
        Kind::CorroborationIdentity,
        Kind::Composite,
        Kind::Screen,
        Kind::Hardened,
        Kind::HardenedProvenance,
    ];

    /// The name in tables and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::MemsadMax => "memsad-max",
            Kind::MemsadMean => "memsad-mean",
            Kind::MemsadCombined => "memsad-combined",
            Kind::MemsadConformal => "memsad-conformal",
            Kind::MemsadPlus => "memsad-plus",
            Kind::MemsadPlusWeighted => "memsad-plus-weighted",
            Kind::Watermark => "watermark",
            Kind::Validation => "validation",
            Kind::Proactive => "proactive",
            Kind::Perplexity => "perplexity",
            Kind::Coherence => "coherence",
            Kind::Outlier => "outlier",
            Kind::ProvenanceGate => "provenance-gate",
            Kind::CorroborationNaive => "corroboration-naive",
            Kind::CorroborationIdentity => "corroboration-identity",
            Kind::Composite => "composite",
            Kind::Screen => "screen",
            Kind::Hardened => "hardened",
            Kind::HardenedProvenance => "hardened-provenance",
        }
    }

    /// By name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.as_str() == name)
    }
}

/// Fits a defense on the old parts of a boundary.
///
/// # Errors
/// `encoder_failed`.
pub fn fit(kind: Kind, boundary: &Boundary, encode: &dyn Encode) -> Result<Box<dyn Defense>> {
    Ok(match kind {
        Kind::MemsadMax => Box::new(Memsad::reference(boundary, Statistic::Max, encode)?),
        Kind::MemsadMean => Box::new(Memsad::reference(boundary, Statistic::Mean, encode)?),
        Kind::MemsadCombined => Box::new(Memsad::reference(boundary, Statistic::Combined, encode)?),
        Kind::MemsadConformal => Box::new(Memsad::conformal(boundary, LEVEL, encode)?),
        Kind::MemsadPlus => Box::new(Plus::fit(boundary, Rule::Paper, encode)?),
        Kind::MemsadPlusWeighted => Box::new(Plus::fit(boundary, Rule::Weighted, encode)?),
        Kind::Watermark => Box::new(Watermark::new("memsluice-evaluate")),
        Kind::Validation => Box::new(Validation::fit(&boundary.calibrate)),
        Kind::Proactive => Box::new(Proactive::new(encode)?),
        Kind::Perplexity => Box::new(Perplexity::fit(boundary, LEVEL)),
        Kind::Coherence => Box::new(Coherence::fit(boundary, LEVEL, encode)?),
        Kind::Outlier => Box::new(Outlier::fit(boundary, LEVEL, encode)?),
        Kind::ProvenanceGate => Box::new(ProvenanceGate),
        Kind::CorroborationNaive => Box::new(Corroboration::Naive),
        Kind::CorroborationIdentity => Box::new(Corroboration::Identity),
        Kind::Composite => Box::new(Composite::fit(boundary, encode)?),
        Kind::Screen => Box::new(Screen::fit(boundary, false, encode)?),
        Kind::Hardened => Box::new(Hardened::fit(boundary, false, encode)?),
        Kind::HardenedProvenance => Box::new(Hardened::fit(boundary, true, encode)?),
    })
}
