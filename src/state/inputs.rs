//! Where an input goes on: the group's committed offset against the log and what was decided. Pure.

use crate::error::{Code, Error, Result};
use crate::source::Bounds;
use crate::topology::OnOutOfRange;

/// What is known of an input partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Input<'a> {
    /// Topic.
    pub(super) topic: &'a str,
    /// Partition.
    pub(super) partition: i32,
    /// The group's next offset; -1 where none was committed.
    pub(super) committed: i64,
    /// Next offset that the last decision or the local state knows; -1 for none.
    pub(super) decided: i64,
    /// The log.
    pub(super) log: Bounds,
}

/// Where it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    /// Next offset; -1 is the beginning.
    pub(super) offset: i64,
    /// Offsets that were deleted unread.
    pub(super) lost: u64,
}

impl Input<'_> {
    /// The start under a setting.
    ///
    /// # Errors
    /// `topic_recreated` when offsets went back, `offset_out_of_range` when inputs were deleted unread.
    pub(super) fn start(self, on_out_of_range: OnOutOfRange) -> Result<Start> {
        let Self { topic, partition, committed, decided, log } = self;
        let recreated = |what: String| Err(Error::new(Code::TopicRecreated, format!("{topic}-{partition} {what}")));
        if committed > log.high {
            return recreated(format!("ends at {}, {committed} was committed", log.high));
        }
        // Both move in one transaction: only a deleted topic or group takes an offset back.
        let gone_back = if committed < 0 { decided > log.low } else { decided > committed };
        if gone_back {
            let group = if committed < 0 { "has no offset".to_owned() } else { format!("is at {committed}") };
            return recreated(format!("was decided up to {decided}, the group {group}"));
        }
        // An emptied partition starts one past the end marker of its last transaction.
        if committed >= 0 && log.low == log.high && committed + 1 == log.low {
            return Ok(Start { offset: log.low, lost: 0 });
        }
        if !(0..log.low).contains(&committed) {
            return Ok(Start { offset: committed, lost: 0 });
        }
        let lost = log.low - committed;
        if on_out_of_range == OnOutOfRange::Stop {
            let what = format!("{topic}-{partition} starts at {}: {lost} offsets were deleted unread", log.low);
            return Err(Error::new(Code::OffsetOutOfRange, what));
        }
        tracing::error!(topic, partition, from = committed, to = log.low, lost, "inputs were deleted unread: going on");
        Ok(Start { offset: log.low, lost: lost.unsigned_abs() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(committed: i64, decided: i64, low: i64, high: i64, on: OnOutOfRange) -> std::result::Result<Start, Code> {
        let input = Input { topic: "t", partition: 0, committed, decided, log: Bounds { low, high } };
        input.start(on).map_err(|e| e.code())
    }

    #[test]
    fn inside_the_log() {
        for on in [OnOutOfRange::Stop, OnOutOfRange::Earliest] {
            assert_eq!(start(-1, -1, 0, 100, on), Ok(Start { offset: -1, lost: 0 }));
            assert_eq!(start(-1, -1, 50, 100, on), Ok(Start { offset: -1, lost: 0 }), "nothing of it was ours");
            assert_eq!(start(50, 50, 50, 100, on), Ok(Start { offset: 50, lost: 0 }));
            assert_eq!(start(100, 90, 50, 100, on), Ok(Start { offset: 100, lost: 0 }));
            assert_eq!(start(-1, -1, 0, 0, on), Ok(Start { offset: -1, lost: 0 }), "an empty topic");
            assert_eq!(start(-1, 50, 50, 100, on), Ok(Start { offset: -1, lost: 0 }), "what was decided is deleted");
            assert_eq!(start(99, 99, 100, 100, on), Ok(Start { offset: 100, lost: 0 }), "an end marker");
        }
    }

    #[test]
    fn deleted_unread() {
        assert_eq!(start(40, 40, 50, 100, OnOutOfRange::Stop), Err(Code::OffsetOutOfRange));
        assert_eq!(start(0, -1, 50, 50, OnOutOfRange::Stop), Err(Code::OffsetOutOfRange));
        assert_eq!(start(40, 40, 50, 100, OnOutOfRange::Earliest), Ok(Start { offset: 50, lost: 10 }));
    }

    /// Never to the end, and never again over what was decided, whatever the setting says.
    #[test]
    fn gone_back() {
        for on in [OnOutOfRange::Stop, OnOutOfRange::Earliest] {
            assert_eq!(start(101, 90, 0, 100, on), Err(Code::TopicRecreated));
            assert_eq!(start(-1, 40, 0, 100, on), Err(Code::TopicRecreated), "the group's offset is gone");
            assert_eq!(start(39, 40, 0, 100, on), Err(Code::TopicRecreated));
            assert_eq!(start(40, 40, 0, 30, on), Err(Code::TopicRecreated));
        }
    }
}
