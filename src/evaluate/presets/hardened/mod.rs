//! `hardened`: the screen's study measured again (`hardened.md` 4 and 5), with the columns that make it honest. The
//! study's own streams and sources were drawn by a generator that isn't here, so each row is held against the study's
//! rate by its interval.

mod controls;
mod equal;
mod phrases;
mod rates;
mod study;

use super::super::data::{Data, Golden, Set, chat, chat_sets, ds, ehr, ehr_sets, qa, shop};
use super::super::defenses::{Kind, Screen, Screened, fit};
use super::super::{Boundary, Encode, Row, Truth, Write};
use crate::error::Result;

/// A boundary, its screen, and the sets judged on it.
pub(super) struct Domain {
    pub(super) boundary: Boundary,
    pub(super) screen: Screen,
    pub(super) sets: Vec<Set>,
}

impl Domain {
    fn new(boundary: Boundary, all: &[Set], encode: &dyn Encode) -> Result<Self> {
        let screen = Screen::fit(&boundary, false, encode)?;
        let sets = all.iter().filter(|s| s.domain == boundary.name).cloned().collect();
        Ok(Self { boundary, screen, sets })
    }
}

/// All rows.
///
/// # Errors
/// `file_unreadable`, `encoder_failed`.
pub fn hardened(
    data: &Data,
    golden: Option<&Golden>,
    seed: u64,
    encode: &dyn Encode,
    mut step: impl FnMut(&str),
) -> Result<Vec<Row>> {
    step("boundaries");
    let records = ehr(data, seed)?;
    let mut sets = chat_sets(data, golden, seed)?;
    sets.extend(ehr_sets(data, &records.template_sessions, seed)?);
    let mut boundaries = vec![chat(data, seed)?, records.boundary, ds(data, seed)?];
    if let Some(golden) = golden {
        boundaries.extend([qa(data, golden, seed)?, shop(data, seed)?]);
    }
    let mut domains = Vec::new();
    for boundary in boundaries {
        step(&format!("fit {}", boundary.name));
        domains.push(Domain::new(boundary, &sets, encode)?);
    }
    let mut rows = Vec::new();
    step("the study's table");
    rows.extend(study::table(&domains, encode)?);
    step("phrases of the tested family removed");
    rows.extend(phrases::rows(&domains, data)?);
    step("equal false positive rates");
    rows.extend(equal::rows(&domains, encode)?);
    step("controls");
    rows.extend(controls::rows(&domains, seed, encode)?);
    step("false positives by set, script and length");
    rows.extend(rates::rows(data, golden, seed, encode)?);
    Ok(rows)
}

/// Judged writes that count.
pub(super) fn counted(set: &Set, screen: &Screen, encode: &dyn Encode) -> Result<Vec<Screened>> {
    let judged = screen.screen(&set.writes, encode)?;
    let counts = |i: usize| set.counted.is_empty() || set.counted[i];
    Ok(judged.into_iter().enumerate().filter(|(i, _)| counts(*i)).map(|(_, s)| s).collect())
}

/// Writes of a set that count.
pub(super) fn texts(set: &Set) -> Vec<&Write> {
    let counts = |i: usize| set.counted.is_empty() || set.counted[i];
    set.writes.iter().enumerate().filter(|(i, _)| counts(*i)).map(|(_, w)| w).collect()
}

/// Whether a set is poison.
pub(super) fn is_poison(set: &Set) -> bool {
    set.truth == Truth::Poison
}

/// A defense of the matrix on a boundary.
pub(super) fn other(kind: Kind, boundary: &Boundary, encode: &dyn Encode) -> Result<Box<dyn super::super::Defense>> {
    fit(kind, boundary, encode)
}
