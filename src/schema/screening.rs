//! The calibration of the screen: what trusted writes contain and how they score. Hashes and scores, no text.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Control;

/// The detector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScreenKind {
    /// The write screen.
    Screen,
}

/// Trusted writes of one writer in one form of key and value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScreenGroup {
    /// `written_by` of the writes; null where they had none.
    pub writer: Option<String>,
    /// `text`, `question` or `instruction`.
    pub form: String,
    /// Writes that were fitted.
    pub fitted: u32,
    /// P, C, B and D of the writes that calibrate, in millionths.
    pub rows: Vec<[u64; 4]>,
}

/// Character trigrams of trusted texts, in hashed buckets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CharacterCalibration {
    /// Cost of each of 16,384 buckets, sixteenths of a bit, a byte each, base64.
    pub costs: String,
    /// Characters and cost of trusted texts, each costed without itself, by length; thousandths of a bit a character.
    pub rows: Vec<[u32; 2]>,
}

/// Writes that didn't enter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// They reached a floor and nobody reviewed them.
    pub reached_floor: u32,
    /// Their source has a larger share than it may have.
    pub source_share: u32,
    /// They are too young.
    pub young: u32,
}

/// What trusted writes contain and how they score (`hardened.md` 6.7, 6.9).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "screen-calibration")]
pub struct ScreenCalibration {
    /// Detector.
    pub kind: ScreenKind,
    /// `tenant/store`, `tenant` or `*`.
    pub scope: String,
    /// Grows by one with each publication.
    pub version: u64,
    /// Version of the lexicon.
    pub lexicon: String,
    /// Encoder identity.
    pub encoder: String,
    /// Writes that were fitted: the older half.
    pub fitted: u32,
    /// Writes that calibrate: the newer half.
    pub n: u32,
    /// Sources of both.
    pub sources: u32,
    /// What didn't enter.
    pub left_out: LeftOut,
    /// Hashes of the word trigrams of the fitted values: ascending, 8 bytes each, little-endian, base64.
    pub shingles: String,
    /// Hashes of the entities of the fitted writes, in the same form.
    pub entities: String,
    /// What their characters are like; absent in a record of an earlier program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub characters: Option<CharacterCalibration>,
    /// Writers and forms.
    pub groups: Vec<ScreenGroup>,
    /// Newer trusted writes that the floors alone would hold: false alarms, not fitted.
    pub held: Control,
    /// The same writes behind a random five-word prefix.
    pub control: Control,
    /// Known poison that the floors hold; null when none was given.
    pub poison: Option<Control>,
    /// Record time of the newest write, RFC 3339.
    pub as_of: String,
}
