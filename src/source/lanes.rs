//! The order of one input across its partitions: (record timestamp, partition, offset). Pure.
//!
//! A create and a delete of one record may stand in two partitions, so a partition that has nothing
//! queued is waited for: without limit before it was read to its end, then until the record in front is
//! `idle` old.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::Fetched;
use crate::clock::Millis;

#[derive(Debug)]
struct Lane {
    queue: VecDeque<(Instant, Fetched)>,
    bytes: usize,
    /// Read to its end; a record after that takes it back.
    at_end: bool,
    /// Behind the end that was taken at start: never waited for.
    done: bool,
}

/// Merges the partitions of one topic.
#[derive(Debug)]
pub struct Lanes {
    lanes: BTreeMap<i32, Lane>,
    heads: BTreeSet<(Millis, i32)>,
    /// `None`: an empty partition is waited for until it is done.
    idle: Option<Duration>,
}

impl Lanes {
    /// Empty lanes of these partitions.
    #[must_use]
    pub fn new(partitions: impl IntoIterator<Item = i32>, idle: Option<Duration>) -> Self {
        let lane = |p| (p, Lane { queue: VecDeque::new(), bytes: 0, at_end: false, done: false });
        Self { lanes: partitions.into_iter().map(lane).collect(), heads: BTreeSet::new(), idle }
    }

    /// Adds a record that came at `now`; records of one partition come in offset order. One of an unknown
    /// partition is dropped.
    pub fn push(&mut self, record: Fetched, now: Instant) {
        let Some(lane) = self.lanes.get_mut(&record.at.partition) else {
            return;
        };
        if lane.queue.is_empty() {
            self.heads.insert((record.at.timestamp, record.at.partition));
        }
        lane.at_end = false;
        lane.bytes += record.bytes();
        lane.queue.push_back((now, record));
    }

    /// Says that a partition was read to its end as of now.
    pub fn end(&mut self, partition: i32) {
        if let Some(lane) = self.lanes.get_mut(&partition) {
            lane.at_end = true;
        }
    }

    /// Says that nothing of a partition is to come that counts.
    pub fn done(&mut self, partition: i32) {
        if let Some(lane) = self.lanes.get_mut(&partition) {
            lane.done = true;
        }
    }

    /// The next record, if its turn has come at `now`.
    pub fn next(&mut self, now: Instant) -> Option<Fetched> {
        if self.turn()? > now {
            return None;
        }
        let (_, partition) = self.heads.pop_first()?;
        let lane = self.lanes.get_mut(&partition)?;
        let (_, record) = lane.queue.pop_front()?;
        lane.bytes -= record.bytes();
        if let Some((_, head)) = lane.queue.front() {
            self.heads.insert((head.at.timestamp, partition));
        }
        Some(record)
    }

    /// When `next` has something although nothing comes; `None` while a partition must be waited for.
    #[must_use]
    pub fn turn(&self) -> Option<Instant> {
        let (_, partition) = self.heads.first()?;
        let (came, _) = self.lanes.get(partition)?.queue.front()?;
        if self.heads.len() == self.lanes.len() {
            return Some(*came);
        }
        let mut empty = self.lanes.values().filter(|l| l.queue.is_empty() && !l.done).peekable();
        if empty.peek().is_none() {
            return Some(*came);
        }
        let idle = self.idle?;
        empty.all(|l| l.at_end).then_some(*came + idle)
    }

    /// Nothing is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Bytes queued of each partition.
    pub fn bytes(&self) -> impl Iterator<Item = (i32, usize)> + '_ {
        self.lanes.iter().map(|(p, l)| (*p, l.bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::At;
    use super::*;
    use crate::topology::Role;

    const IDLE: Duration = Duration::from_millis(50);

    fn record(partition: i32, offset: i64, timestamp: Millis) -> Fetched {
        let at = At { generation: 1, role: Role::MemoryWrites, partition, offset, timestamp };
        Fetched { at, key: None, value: None, headers: Vec::new() }
    }

    fn drain(lanes: &mut Lanes, now: Instant) -> Vec<(Millis, i32, i64)> {
        std::iter::from_fn(|| lanes.next(now)).map(|r| (r.at.timestamp, r.at.partition, r.at.offset)).collect()
    }

    /// A delete that is fetched before its create is not taken before it.
    #[test]
    fn a_partition_before_its_end_is_waited_for_without_limit() {
        let mut lanes = Lanes::new(0..2, Some(IDLE));
        let start = Instant::now();
        lanes.push(record(1, 0, 20), start);
        assert!(lanes.next(start + Duration::from_secs(3600)).is_none());
        assert_eq!(lanes.turn(), None);
        lanes.push(record(0, 0, 10), start);
        assert_eq!(lanes.next(start).map(|r| r.at.timestamp), Some(10));
        lanes.end(0);
        assert!(lanes.next(start).is_none());
        assert_eq!(lanes.turn(), Some(start + IDLE));
        assert_eq!(lanes.next(start + IDLE).map(|r| r.at.timestamp), Some(20));
        assert!(lanes.is_empty());
    }

    /// Traffic on one partition doesn't use up the wait for another.
    #[test]
    fn each_record_waits_for_itself() {
        let mut lanes = Lanes::new(0..2, Some(IDLE));
        let start = Instant::now();
        lanes.end(0);
        for n in 0..10 {
            let now = start + IDLE * n;
            lanes.push(record(1, i64::from(n), i64::from(n)), now);
            assert_eq!(drain(&mut lanes, now).len(), usize::from(n > 0));
        }
    }

    #[test]
    fn a_record_after_the_end_takes_it_back() {
        let mut lanes = Lanes::new(0..2, Some(IDLE));
        let start = Instant::now();
        lanes.end(0);
        lanes.push(record(0, 0, 1), start);
        assert_eq!(lanes.turn(), None, "partition 1 is not known to be at its end");
        lanes.end(1);
        assert_eq!(drain(&mut lanes, start + IDLE).len(), 1);
        lanes.push(record(1, 0, 2), start);
        assert_eq!(lanes.turn(), None, "partition 0 may hold more");
    }

    #[test]
    fn until_end_waits_for_what_is_not_done() {
        let mut lanes = Lanes::new(0..2, None);
        let start = Instant::now();
        lanes.push(record(0, 0, 1), start);
        lanes.end(1);
        assert!(lanes.next(start + Duration::from_secs(3600)).is_none());
        lanes.done(1);
        assert!(lanes.next(start).is_some());
    }

    proptest! {
        /// However partitions and their records come in: each record comes out once, offsets of a
        /// partition in order, and no record before one of another partition that was due earlier.
        #[test]
        fn any_interleaving_gives_the_same_order(
            times in proptest::collection::vec(proptest::collection::vec(0_i64..50, 0..12), 1..5),
            picks in proptest::collection::vec(any::<prop::sample::Index>(), 60),
        ) {
            let now = Instant::now();
            let partitions = 0..i32::try_from(times.len()).unwrap();
            let all = |p: i32| {
                let of = &times[usize::try_from(p).unwrap()];
                (0..).zip(of.clone()).map(move |(o, t)| record(p, o, t)).collect::<VecDeque<_>>()
            };
            let order = |mut arrive: Vec<VecDeque<Fetched>>, picks: &[prop::sample::Index]| {
                let mut lanes = Lanes::new(partitions.clone(), None);
                let mut out = Vec::new();
                let mut picks = picks.iter();
                while arrive.iter().any(|q| !q.is_empty()) {
                    let open: Vec<usize> = (0..arrive.len()).filter(|i| !arrive[*i].is_empty()).collect();
                    let i = picks.next().map_or(open[0], |p| *p.get(&open));
                    lanes.push(arrive[i].pop_front().unwrap(), now);
                    for (p, q) in (0..).zip(&arrive) {
                        if q.is_empty() {
                            lanes.done(p);
                        }
                    }
                    out.extend(drain(&mut lanes, now));
                }
                partitions.clone().for_each(|p| lanes.done(p));
                out.extend(drain(&mut lanes, now));
                out
            };
            let queues: Vec<_> = partitions.clone().map(all).collect();
            let out = order(queues.clone(), &picks);
            prop_assert_eq!(&out, &order(queues.clone(), &[]));
            prop_assert_eq!(out.len(), times.iter().map(Vec::len).sum::<usize>());
            for p in partitions.clone() {
                let offsets: Vec<i64> = out.iter().filter(|r| r.1 == p).map(|r| r.2).collect();
                prop_assert!(offsets.is_sorted());
            }
            let mut reference = queues;
            for taken in out {
                let fronts = reference.iter().filter_map(|q| q.front().map(|r| (r.at.timestamp, r.at.partition, r.at.offset)));
                prop_assert_eq!(Some(taken), fronts.min());
                reference[usize::try_from(taken.1).unwrap()].pop_front();
            }
        }
    }
}
