//! What follows a dead letter.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units::duration;

/// What a dead letter means for later records of its key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDeadLetter {
    /// Nothing.
    #[default]
    Continue,
    /// They wait in `dead-letters` too, until it is redriven or skipped.
    HoldKey,
}

/// When a source that fails is cut off, counted in each unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Breaker {
    /// Failures in a row, 1 to 64; 0: a row alone isolates nobody.
    pub consecutive: u32,
    /// Newest records of a source that the share is taken of, 1 to 64.
    pub window: u32,
    /// Share of failures in a full window, above 0 to 1; 0: a share isolates nobody.
    pub ratio: f64,
    /// Record time for which a source is cut off before one record is tried.
    #[serde(with = "duration")]
    pub cool_down: Duration,
    /// This many sources opened within `stop_within`: stop. 0: never.
    pub stop_sources: u32,
    /// Record time over which they are counted.
    #[serde(with = "duration")]
    pub stop_within: Duration,
    /// Failing sources kept in a unit, 1 to 65536; beyond, the one that was quiet longest is forgotten.
    pub max_sources: usize,
    /// Records of held keys in a unit, 1 to 1000000; beyond: stop.
    pub max_held: usize,
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            consecutive: 20,
            window: 64,
            ratio: 0.5,
            cool_down: Duration::from_secs(60),
            stop_sources: 8,
            stop_within: Duration::from_secs(600),
            max_sources: 1024,
            max_held: 10_000,
        }
    }
}
