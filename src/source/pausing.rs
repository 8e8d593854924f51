//! Back pressure of a consumer: pauses that hold, resumes that can't get lost, and each offset once.
#![allow(clippy::disallowed_methods)] // called on the consumer's own thread

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};

use crate::clock::monotonic;

/// Resumes are made again this often.
const AGAIN: Duration = Duration::from_secs(1);

/// A partition and what of it waits to be taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queued<'a, K> {
    pub(super) key: K,
    pub(super) topic: &'a str,
    pub(super) partition: i32,
    pub(super) bytes: usize,
}

/// What a consumer was told.
#[derive(Debug)]
pub(super) struct Pausing<K> {
    paused: BTreeSet<K>,
    next: BTreeMap<K, i64>,
    again: Instant,
}

impl<K: Ord + Copy> Default for Pausing<K> {
    fn default() -> Self {
        Self { paused: BTreeSet::new(), next: BTreeMap::new(), again: monotonic() }
    }
}

impl<K: Ord + Copy> Pausing<K> {
    /// Begins anew: partitions are fetched from these offsets.
    pub(super) fn start(&mut self, offsets: impl Iterator<Item = (K, i64)>) {
        self.paused.clear();
        self.next = offsets.collect();
        self.again = monotonic() + AGAIN;
    }

    /// Whether an offset comes for the first time. A fetch may begin again at an older position where a pause and a
    /// resume met.
    pub(super) fn is_next(&mut self, key: K, offset: i64) -> bool {
        let next = self.next.entry(key).or_insert(i64::MIN);
        let first = offset >= *next;
        *next = (*next).max(offset.saturating_add(1));
        first
    }

    /// Pauses partitions with more than `share` bytes waiting, resumes them below half of it. Returns what changed,
    /// and whether it is paused now.
    ///
    /// librdkafka 2.12 drops a resume while its main thread has not served the pause yet: the partition would stand
    /// still for good. Therefore all that is to run is resumed again now and then; where it runs this does nothing.
    pub(super) fn step<'a, C: ConsumerContext>(
        &mut self,
        consumer: &BaseConsumer<C>,
        queued: impl Iterator<Item = Queued<'a, K>>,
        share: usize,
    ) -> Vec<(K, bool)> {
        let (mut pause, mut resume) = (TopicPartitionList::new(), TopicPartitionList::new());
        let mut changed = Vec::new();
        let now = monotonic();
        let again = now >= self.again;
        if again {
            self.again = now + AGAIN;
        }
        for q in queued {
            if q.bytes > share && self.paused.insert(q.key) {
                pause.add_partition(q.topic, q.partition);
                changed.push((q.key, true));
            } else if q.bytes <= share / 2 && self.paused.remove(&q.key) {
                resume.add_partition(q.topic, q.partition);
                changed.push((q.key, false));
            } else if again && !self.paused.contains(&q.key) {
                resume.add_partition(q.topic, q.partition);
            }
        }
        if pause.count() > 0 {
            drop(consumer.pause(&pause));
        }
        if resume.count() > 0 {
            drop(consumer.resume(&resume));
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_offset_comes_once() {
        let mut p = Pausing::default();
        p.start([(1, 5), (2, -2)].into_iter());
        let came: Vec<bool> = [5, 6, 6, 4, 9, 7].into_iter().map(|o| p.is_next(1, o)).collect();
        assert_eq!(came, [true, true, false, false, true, false]);
        assert!(p.is_next(2, 0) && !p.is_next(2, 0) && p.is_next(3, 0));
        // A rewind begins anew.
        p.start([(1, 5)].into_iter());
        assert!(p.is_next(1, 5));
    }
}
