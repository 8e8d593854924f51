//! Whether a stored unit can be trusted, and from where it is replayed. Pure.

use super::Positions;
use crate::error::{Code, Error, Result};
use crate::source::Bounds;

/// What is known of a unit before replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitPlan {
    /// First changelog offset to replay.
    pub from: i64,
    /// Everything of the unit is deleted first, and why.
    pub wipe: Option<&'static str>,
}

impl UnitPlan {
    /// From what is stored, the log's bounds and the time away: after half of `delete_retention` (ms) the
    /// log may have lost tombstones that the state never saw.
    ///
    /// # Errors
    /// `topic_recreated` when the log ends before what was stored.
    pub fn new(stored: Option<&Positions>, log: Bounds, now: i64, delete_retention: i64) -> Result<Self> {
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
        if now.saturating_sub(stored.saved_at) > delete_retention / 2 {
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
        let plan = |s: Option<Positions>, now| UnitPlan::new(s.as_ref(), log, now, 1000);
        assert_eq!(plan(None, 0).unwrap().from, 10);
        assert_eq!(plan(Some(stored(50, 0)), 1).unwrap(), UnitPlan { from: 50, wipe: None });
        assert_eq!(plan(Some(stored(100, 0)), 1).unwrap(), UnitPlan { from: 100, wipe: None });
        assert!(plan(Some(stored(9, 0)), 1).unwrap().wipe.is_some());
        assert!(plan(Some(stored(50, 0)), 501).unwrap().wipe.is_some());
        assert_eq!(plan(Some(stored(101, 0)), 1).unwrap_err().code(), Code::TopicRecreated);
    }
}
