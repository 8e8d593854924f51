//! Finds a partition that silently stands still (`anchors_streaming` 2.2 #16): it grows, and nothing of it
//! is committed. Pure: time comes in with each observation.

use std::time::Duration;

/// How a partition stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// Time since any fixed moment.
    pub at: Duration,
    /// Next offset to commit.
    pub position: i64,
    /// Last stable offset.
    pub end: i64,
}

/// Watches one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StuckDetector {
    after: Duration,
    /// The observation with the last progress.
    last: Option<Observation>,
}

impl StuckDetector {
    /// Stuck means: no progress for `after` while the lag grew.
    #[must_use]
    pub fn new(after: Duration) -> Self {
        Self { after, last: None }
    }

    /// Takes an observation; whether the partition is stuck.
    pub fn observe(&mut self, now: Observation) -> bool {
        match self.last {
            // A rewind moves the position too: the partition is being worked on.
            Some(last) if last.position == now.position && now.end > now.position => {
                now.end > last.end && now.at.saturating_sub(last.at) >= self.after
            }
            _ => {
                self.last = Some(now);
                false
            }
        }
    }
}

/// Watches whether one partition is still fetched: there is more, all that came is committed, and nothing comes.
/// Time counts only while the broker says where the partition ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchWatch {
    after: Duration,
    /// Since when the next offset to fetch is the same.
    since: Option<(Duration, i64)>,
}

impl FetchWatch {
    /// Starved means: there was more for `after`, and nothing of it came.
    #[must_use]
    pub fn new(after: Duration) -> Self {
        Self { after, since: None }
    }

    /// Takes an observation, whose position is the next offset to fetch; whether the partition is starved. `held`:
    /// records of it that came are not committed yet, so that it may be paused.
    pub fn observe(&mut self, now: Observation, held: bool) -> bool {
        if held || now.end <= now.position {
            self.since = None;
            return false;
        }
        match self.since {
            Some((since, position)) if position == now.position => now.at.saturating_sub(since) >= self.after,
            _ => {
                self.since = Some((now.at, now.position));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn feed(after: u64, rows: &[(u64, i64, i64)]) -> Vec<bool> {
        let mut detector = StuckDetector::new(Duration::from_secs(after));
        let each = |&(at, position, end)| detector.observe(Observation { at: Duration::from_secs(at), position, end });
        rows.iter().map(each).collect()
    }

    #[test]
    fn no_progress_while_the_lag_grows() {
        assert_eq!(feed(10, &[(0, 5, 8), (5, 5, 9), (10, 5, 9), (11, 5, 12)]), [false, false, true, true]);
    }

    #[test]
    fn progress_rewinds_and_full_reads_clear_it() {
        assert_eq!(feed(10, &[(0, 5, 8), (10, 5, 9), (11, 6, 9), (15, 6, 10)]), [false, true, false, false]);
        assert_eq!(feed(10, &[(0, 5, 8), (9, 3, 9), (12, 3, 10), (19, 3, 10)]), [false, false, false, true]);
        assert_eq!(feed(10, &[(0, 5, 5), (60, 5, 5), (120, 5, 5)]), [false; 3]);
    }

    /// A read-up partition that gets one record and never takes it is stuck, without further growth.
    #[test]
    fn the_first_record_behind_the_end_counts_as_growth() {
        assert_eq!(feed(10, &[(0, 5, 5), (1, 5, 6), (9, 5, 6), (10, 5, 6)]), [false, false, false, true]);
    }

    /// A backlog that neither grows nor moves is a paused or a held partition, not a lost one.
    #[test]
    fn a_standing_backlog_is_not_called_stuck() {
        assert_eq!(feed(10, &[(0, 5, 8), (60, 5, 8), (600, 5, 8)]), [false; 3]);
    }

    proptest! {
        /// Never stuck before its time, and never on progress.
        #[test]
        fn never_early(steps in prop::collection::vec((0_u64..5, 0_i64..2, 0_i64..3), 1..60)) {
            let mut detector = StuckDetector::new(Duration::from_secs(10));
            let (mut at, mut position, mut end, mut moved) = (0, 0, 0, 0);
            for (i, (wait, progress, growth)) in steps.into_iter().enumerate() {
                at += wait;
                end += growth;
                let before = position;
                position = (position + progress).min(end);
                if position != before || position == end || i == 0 {
                    moved = at;
                }
                let stuck = detector.observe(Observation { at: Duration::from_secs(at), position, end });
                prop_assert!(!stuck || at - moved >= 10);
            }
        }
    }

    fn watch(rows: &[(u64, i64, i64, bool)]) -> Vec<bool> {
        let mut watch = FetchWatch::new(Duration::from_secs(10));
        let each = |&(at, position, end, held): &(u64, i64, i64, bool)| {
            watch.observe(Observation { at: Duration::from_secs(at), position, end }, held)
        };
        rows.iter().map(each).collect()
    }

    #[test]
    fn a_standing_backlog_of_which_nothing_comes_is_starved() {
        assert_eq!(watch(&[(0, 5, 8, false), (9, 5, 8, false), (10, 5, 8, false)]), [false, false, true]);
    }

    #[test]
    fn what_is_held_read_up_or_fetched_is_not_starved() {
        assert_eq!(watch(&[(0, 5, 8, false), (9, 5, 8, true), (18, 5, 8, false), (27, 5, 8, false)]), [false; 4]);
        assert_eq!(watch(&[(0, 8, 8, false), (20, 8, 8, false), (40, 8, 9, false), (49, 8, 9, false)]), [false; 4]);
        assert_eq!(watch(&[(0, 5, 8, false), (9, 6, 8, false), (18, 7, 8, false)]), [false; 3]);
    }
}
