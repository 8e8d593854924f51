//! Copies of rolling calibrations for the topic: which ones are made, and what they hold. A copy is a whole record, and
//! each member reads the topic: so a boundary has one a day, and the newest seven. Pure.

use serde::{Deserialize, Serialize};

use super::conformal::Row;
use super::refit::{HardenedInput, Sampled, fit_hardened};
use super::window::Window;
use crate::clock::Millis;
use crate::error::Result;
use crate::schema::{Boundary, Calibration, Scope};
use crate::topology::Memsad;

/// Stream time between two copies of a boundary, ms.
const EVERY: Millis = 86_400_000;
/// Copies of a boundary on the topic.
pub const COPIES: usize = 7;
/// Numbers of versions up to here.
const MAX_VERSION: u64 = 1 << 53;

/// Copies of a boundary, in the state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Copies {
    /// Stream time of the newest one, ms.
    pub at: Millis,
    /// Versions on the topic, ascending.
    pub versions: Vec<u64>,
}

impl Copies {
    /// Whether they can be.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        let ascending = self.versions.is_sorted_by(|a, b| a < b);
        ascending && self.versions.len() <= COPIES && self.versions.last().is_none_or(|v| *v <= MAX_VERSION)
    }

    /// Whether the next version is copied at stream time `now`.
    #[must_use]
    pub fn is_due(&self, now: Millis) -> bool {
        self.versions.is_empty() || now.saturating_sub(self.at) >= EVERY
    }

    /// Takes note of a copy; returns the versions that leave the topic.
    pub fn add(&mut self, version: u64, now: Millis) -> Vec<u64> {
        self.at = now;
        // A number that comes again overwrites; those behind it are of another count.
        let mut gone = self.versions.split_off(self.versions.partition_point(|v| *v < version));
        gone.retain(|v| *v != version);
        self.versions.push(version);
        let more = self.versions.len().saturating_sub(COPIES);
        gone.extend(self.versions.drain(..more));
        gone
    }
}

/// What a copy is made of.
#[derive(Debug)]
pub struct CopyInput<'a> {
    /// Whose it is.
    pub boundary: &'a Boundary,
    /// Number of the rolling calibration.
    pub version: u64,
    /// Its name in decisions.
    pub name: String,
    /// Rows in force, oldest first.
    pub rows: Vec<Row>,
    /// Query window of the moment.
    pub window: &'a Window,
    /// Settings.
    pub memsad: &'a Memsad,
    /// Encoder identity.
    pub encoder: &'a str,
    /// Stream time, RFC 3339.
    pub as_of: String,
}

/// The record of a rolling calibration: as a fit on its rows makes it, without controls.
///
/// # Errors
/// `calibration_too_small` below two rows, `calibration_no_queries` for an empty window.
pub fn copy_of(input: CopyInput<'_>) -> Result<Calibration> {
    // Sources have had their share: here each row is one.
    let one = |(i, row): (usize, Row)| Sampled { row, source: i.to_string(), prefixed: None };
    let record = fit_hardened(HardenedInput {
        scope: &Scope::Boundary(input.boundary.clone()),
        version: input.version,
        memsad: input.memsad,
        window: input.window,
        benign: input.rows.into_iter().enumerate().map(one).collect(),
        poison: &[],
        encoder: input.encoder,
        as_of: input.as_of,
    })?;
    Ok(Calibration { rolling: Some(input.name), ..record })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_day_and_the_newest_seven() {
        let (mut copies, mut gone) = (Copies::default(), Vec::new());
        let mut made = Vec::new();
        for hour in 0..24 * 10 {
            let (now, version) = (hour * 3_600_000, u64::try_from(hour + 1).unwrap());
            if copies.is_due(now) {
                made.push(version);
                gone.extend(copies.add(version, now));
            }
            assert!(copies.is_possible());
        }
        assert_eq!(made, [1, 25, 49, 73, 97, 121, 145, 169, 193, 217]);
        assert_eq!((gone, copies.versions.len()), (vec![1, 25, 49], COPIES));
        // Time that goes back makes none.
        assert!(!copies.is_due(0) && !copies.is_due(Millis::MIN));
        assert_eq!((copies.add(169, 0), copies.versions.len()), (vec![193, 217], 5));
        for versions in [vec![2, 2], vec![3, 2], vec![MAX_VERSION + 1], (0..9).collect()] {
            assert!(!Copies { at: 0, versions }.is_possible());
        }
    }
}
