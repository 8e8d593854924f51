//! The order of inputs within a unit: (record timestamp, rank, offset). Pure.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Fetched;
use crate::topology::Role;

/// How an empty input is treated.
#[derive(Debug, Clone, Copy)]
pub enum Wait {
    /// Waited for up to this long.
    UpTo(Duration),
    /// Never waited for once it is at its end.
    UntilEnd,
}

#[derive(Debug)]
struct Lane {
    role: Role,
    queue: VecDeque<Fetched>,
    at_end: bool,
}

/// Merges the inputs of one unit.
#[derive(Debug)]
pub struct Merge {
    lanes: Vec<Lane>,
    wait: Wait,
    waiting_since: Option<Instant>,
}

impl Merge {
    /// Inputs in rank order.
    #[must_use]
    pub fn new(inputs: &[Role], wait: Wait) -> Self {
        let mut roles = inputs.to_vec();
        roles.sort_by_key(|r| r.rank());
        let lanes = roles.into_iter().map(|role| Lane { role, queue: VecDeque::new(), at_end: false }).collect();
        Self { lanes, wait, waiting_since: None }
    }

    /// Adds a record; records of one input come in offset order.
    pub fn push(&mut self, record: Fetched) {
        if self.lanes.iter().all(|l| l.queue.is_empty()) {
            self.waiting_since = None;
        }
        if let Some(lane) = self.lanes.iter_mut().find(|l| l.role == record.at.role) {
            lane.queue.push_back(record);
        }
    }

    /// Says that an input has reached the end that was taken at start.
    pub fn end(&mut self, role: Role) {
        if let Some(lane) = self.lanes.iter_mut().find(|l| l.role == role) {
            lane.at_end = true;
        }
    }

    /// The next record, if its turn has come at `now`.
    pub fn next(&mut self, now: Instant) -> Option<Fetched> {
        let first = (0..self.lanes.len())
            .filter_map(|i| self.lanes[i].queue.front().map(|r| ((r.at.timestamp, r.at.role.rank(), r.at.offset), i)))
            .min()?;
        let blocked =
            self.lanes.iter().any(|l| l.queue.is_empty() && !(l.at_end && matches!(self.wait, Wait::UntilEnd)));
        if blocked && !self.waited(now) {
            return None;
        }
        if !blocked {
            self.waiting_since = None;
        }
        self.lanes[first.1].queue.pop_front()
    }

    /// Whether the wait for an empty input is over. It starts again once all inputs were empty or none was.
    fn waited(&mut self, now: Instant) -> bool {
        let Wait::UpTo(limit) = self.wait else {
            return false;
        };
        let since = *self.waiting_since.get_or_insert(now);
        now.saturating_duration_since(since) >= limit
    }

    /// When `next` should be asked again although nothing came.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let Wait::UpTo(limit) = self.wait else {
            return None;
        };
        if self.lanes.iter().all(|l| l.queue.is_empty()) {
            return None;
        }
        self.waiting_since.map(|s| s + limit)
    }

    /// Whether every input is at its end and empty.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.lanes.iter().all(|l| l.at_end && l.queue.is_empty())
    }

    /// Takes out what is queued.
    pub fn clear(&mut self) -> Vec<Fetched> {
        self.waiting_since = None;
        self.lanes.iter_mut().flat_map(|l| l.queue.drain(..)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::At;
    use super::*;

    fn record(role: Role, timestamp: i64, offset: i64) -> Fetched {
        Fetched {
            at: At { generation: 1, role, partition: 0, offset, timestamp },
            key: None,
            value: None,
            headers: vec![],
        }
    }

    const INPUTS: [Role; 2] = [Role::MemoryWrites, Role::RetrievalLogs];

    #[test]
    fn takes_by_timestamp_then_rank_then_offset() {
        let mut m = Merge::new(&INPUTS, Wait::UntilEnd);
        for (role, t, o) in [
            (Role::MemoryWrites, 5, 0),
            (Role::MemoryWrites, 5, 1),
            (Role::RetrievalLogs, 5, 7),
            (Role::RetrievalLogs, 4, 8),
        ] {
            m.push(record(role, t, o));
        }
        m.end(Role::MemoryWrites);
        m.end(Role::RetrievalLogs);
        let now = Instant::now();
        // A late timestamp never overtakes an earlier offset of its own input.
        let order: Vec<_> = std::iter::from_fn(|| m.next(now)).map(|r| (r.at.role, r.at.offset)).collect();
        assert_eq!(
            order,
            [(Role::RetrievalLogs, 7), (Role::RetrievalLogs, 8), (Role::MemoryWrites, 0), (Role::MemoryWrites, 1)]
        );
        assert!(m.finished());
    }

    #[test]
    fn an_empty_input_is_waited_for_only_so_long() {
        let idle = Duration::from_millis(50);
        let mut m = Merge::new(&INPUTS, Wait::UpTo(idle));
        m.push(record(Role::MemoryWrites, 1, 0));
        let start = Instant::now();
        assert!(m.next(start).is_none());
        assert_eq!(m.deadline(), Some(start + idle));
        assert!(m.next(start + idle).is_some());
    }

    #[test]
    fn until_end_waits_for_ever_for_an_input_not_at_its_end() {
        let mut m = Merge::new(&INPUTS, Wait::UntilEnd);
        m.push(record(Role::MemoryWrites, 1, 0));
        assert!(m.next(Instant::now() + Duration::from_secs(3600)).is_none());
        m.end(Role::RetrievalLogs);
        assert!(m.next(Instant::now()).is_some());
    }
}
