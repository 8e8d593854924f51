//! Whether a stored unit can be trusted, and from where it is replayed. Pure.

use super::Positions;
use crate::error::{Code, Error, Result};
use crate::source::Bounds;

/// Half of `delete.retention.ms` as `topology apply` sets it: older state may miss tombstones.
const MAX_AWAY_MS: i64 = 43_200_000;

/// What is known of a unit before replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitPlan {
    /// First changelog offset to replay.
    pub from: i64,
    /// Everything of the unit is deleted first, and why.
    pub wipe: Option<&'static str>,
}

impl UnitPlan {
    /// Pure: from what is stored, the log's bounds and the time away.
    ///
    /// # Errors
    /// `topic_recreated` when the log ends before what was stored.
    pub fn new(stored: Option<&Positions>, log: Bounds, now: i64) -> Result<Self> {
        let Some(stored) = stored else {
            return Ok(Self { from: log.low, wipe: Some("nothing stored") });
        };
        if stored.changelog > log.high {
            return Err(Error::new(
                Code::TopicRecreated,
                format!("the changelog ends at {}, the state was at {}", log.high, stored.changelog),
            ));
        }
        if stored.changelog < log.low {
            return Ok(Self { from: log.low, wipe: Some("below the log's start") });
        }
        if now.saturating_sub(stored.saved_at) > MAX_AWAY_MS {
            return Ok(Self { from: log.low, wipe: Some("away longer than half of delete.retention.ms") });
        }
        Ok(Self { from: stored.changelog, wipe: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn stored(changelog: i64, saved_at: i64) -> Positions {
        Positions { changelog, inputs: BTreeMap::new(), saved_at }
    }

    #[test]
    fn plans() {
        let log = Bounds { low: 10, high: 100 };
        let plan = |s: Option<Positions>, now| UnitPlan::new(s.as_ref(), log, now);
        assert_eq!(plan(None, 0).unwrap().from, 10);
        assert_eq!(plan(Some(stored(50, 0)), 1).unwrap(), UnitPlan { from: 50, wipe: None });
        assert_eq!(plan(Some(stored(100, 0)), 1).unwrap(), UnitPlan { from: 100, wipe: None });
        assert!(plan(Some(stored(9, 0)), 1).unwrap().wipe.is_some());
        assert!(plan(Some(stored(50, 0)), MAX_AWAY_MS + 1).unwrap().wipe.is_some());
        assert_eq!(plan(Some(stored(101, 0)), 1).unwrap_err().code(), Code::TopicRecreated);
    }
}
