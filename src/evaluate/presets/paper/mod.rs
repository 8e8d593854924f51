//! `memsad-paper`: the numbers of arXiv 2605.03482 that can be reproduced without its code (`memsad.md` 6.7). Corpus
//! and queries are the published ones; poison is re-worded after the description of each generator.

mod attacks;
mod baselines;
mod detector;
mod lab;
mod others;

use super::super::data::Data;
use super::super::{Encode, Row};
use crate::error::Result;
use lab::Lab;

/// Why a number differs that depends on a random draw.
const DRAW: &str = "other draw: the reference shuffles with a generator of its own; range over 5 seeds";
/// Why a number differs that depends on the exact words.
const WORDS: &str = "poison re-worded after the description: same structure, other words";

/// All rows.
///
/// # Errors
/// `file_unreadable`, `encoder_failed`.
pub fn memsad_paper(data: &Data, seed: u64, encode: &dyn Encode, mut step: impl FnMut(&str)) -> Result<Vec<Row>> {
    let lab = Lab::new(data, seed, encode)?;
    let mut rows = Vec::new();
    step("attacks");
    rows.extend(attacks::retrieval(&lab)?);
    step("detector");
    rows.extend(detector::repo_row(&lab)?);
    rows.extend(detector::calibration_queries(&lab)?);
    rows.extend(detector::threshold_shift(&lab)?);
    rows.extend(detector::operating_point(&lab)?);
    rows.extend(detector::known_targets(&lab)?);
    step("baselines");
    rows.extend(baselines::rows(&lab)?);
    step("other defenses");
    rows.extend(others::plus(&lab)?);
    rows.extend(others::validation_and_proactive(&lab)?);
    rows.extend(others::watermark(&lab)?);
    step("adaptive attacker");
    rows.extend(others::adaptive(&lab)?);
    Ok(rows)
}
