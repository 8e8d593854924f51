//! Ends of inputs that an open transaction hides. The client's statistics have both the last stable offset
//! and the high watermark of every fetched partition, so this asks the broker nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::statistics::Statistics;

use crate::clock::monotonic;

/// Producers of inputs may use transactions: only an end that stands still for this long is told.
const TOLD_AFTER: Duration = Duration::from_secs(30);
/// Then again this often.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// An input partition whose last stable offset stands still below its high watermark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hidden {
    /// Last stable offset: what follows is not read.
    pub stable: i64,
    /// High watermark.
    pub high: i64,
    /// First seen to stand still.
    pub since: Instant,
    told: Option<Instant>,
}

/// All of them, by topic and partition; shared with whoever shows them.
#[derive(Debug, Clone, Default)]
pub struct HiddenEnds {
    inner: Arc<Mutex<BTreeMap<(String, i32), Hidden>>>,
}

impl HiddenEnds {
    /// The one that has stood longest, with its age.
    #[must_use]
    pub fn oldest(&self, now: Instant) -> Option<((String, i32), Duration)> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = inner.iter().min_by_key(|(_, h)| h.since);
        oldest.map(|(at, h)| (at.clone(), now.duration_since(h.since)))
    }

    /// Takes what the client saw.
    pub(super) fn see(&self, statistics: &Statistics) {
        let now = monotonic();
        for (topic, t) in &statistics.topics {
            for (partition, p) in t.partitions.iter().filter(|(n, _)| **n >= 0) {
                if let Some(age) = self.moved(topic, *partition, p.ls_offset, p.hi_offset, now) {
                    tracing::warn!(
                        topic,
                        partition,
                        stable = p.ls_offset,
                        high = p.hi_offset,
                        age_s = age.as_secs(),
                        "an open transaction of a producer hides the end of this input (docs/operations.md)"
                    );
                }
            }
        }
    }

    /// One partition at a time; its age when it is to be told.
    fn moved(&self, topic: &str, partition: i32, stable: i64, high: i64, now: Instant) -> Option<Duration> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (topic.to_owned(), partition);
        if stable < 0 || stable >= high {
            inner.remove(&key);
            return None;
        }
        let fresh = Hidden { stable, high, since: now, told: None };
        let hidden = inner.entry(key).or_insert_with(|| fresh.clone());
        if hidden.stable != stable {
            *hidden = fresh;
        }
        hidden.high = high;
        let age = now.duration_since(hidden.since);
        let due = match hidden.told {
            None => age >= TOLD_AFTER,
            Some(told) => now.duration_since(told) >= TOLD_EVERY,
        };
        due.then(|| {
            hidden.told = Some(now);
            age
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_once_a_minute_while_it_stands() {
        let (ends, start) = (HiddenEnds::default(), monotonic());
        let at = |s: u64| start + Duration::from_secs(s);
        let see = |stable, high, s| ends.moved("t", 0, stable, high, at(s)).map(|a| a.as_secs());
        assert_eq!(see(5, 5, 0), None);
        assert_eq!(see(5, 9, 10), None);
        assert_eq!(see(5, 12, 39), None);
        assert_eq!(see(5, 12, 40), Some(30));
        assert_eq!(see(5, 12, 60), None);
        assert_eq!(see(5, 12, 100), Some(90));
        assert_eq!(ends.oldest(at(100)), Some((("t".to_owned(), 0), Duration::from_secs(90))));
        assert_eq!(see(7, 12, 110), None, "it moved");
        assert_eq!(see(7, 12, 141), Some(31));
        assert_eq!(see(12, 12, 150), None);
        assert_eq!(ends.oldest(at(150)), None);
        assert_eq!(see(-1001, 12, 160), None, "not fetched yet");
    }
}
