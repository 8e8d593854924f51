//! Accepted writes of one boundary, and for each query of the window the nearest of them. Kept up step by step; a
//! brute-force search gives the same. Pure.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::keys::Tag;
use super::window::Window;
use crate::clock::Millis;
use crate::schema::{Vector, dot};

/// Places that a reader takes.
pub const K: usize = 5;

/// An accepted write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Number in the boundary.
    pub seq: u64,
    /// Tag of its record id.
    pub record: Tag,
    /// End of the memory.
    pub expires: Millis,
    /// Vector.
    pub vector: Vector,
}

/// An accepted write in the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredValue {
    /// First 16 bytes of SHA-256 over the record id.
    pub record: Tag,
    /// End of the memory, ms.
    pub expires: Millis,
    /// Little-endian i16.
    pub vector: Vec<u8>,
}

/// The newest accepted writes.
#[derive(Debug, Clone)]
pub struct Memory {
    capacity: usize,
    next: u64,
    entries: BTreeMap<u64, Stored>,
    by_record: HashMap<Tag, u64>,
    /// No entry ends before this.
    ends: Millis,
    /// Version of the window that the lists are for.
    version: Option<u64>,
    /// By number of the query: cosine and number of the nearest entries, the nearest first, of equal ones the oldest.
    nearest: HashMap<u64, Vec<(i64, u64)>>,
}

impl Memory {
    /// From what the state holds; `next` is the number of the next entry.
    #[must_use]
    pub fn restore(capacity: usize, next: u64, entries: Vec<Stored>) -> Self {
        let mut memory = Self {
            capacity,
            next,
            entries: BTreeMap::new(),
            by_record: HashMap::new(),
            ends: Millis::MAX,
            version: None,
            nearest: HashMap::new(),
        };
        entries.into_iter().for_each(|e| memory.insert(e));
        memory
    }

    fn insert(&mut self, e: Stored) {
        self.ends = self.ends.min(e.expires);
        self.by_record.insert(e.record, e.seq);
        self.entries.insert(e.seq, e);
    }

    /// Takes an accepted write; its record has one entry. Returns its number and those of the entries that left.
    pub fn push(&mut self, window: &Window, record: Tag, expires: Millis, vector: Vector) -> (u64, Vec<u64>) {
        let mut left = self.forget(window, &record);
        let seq = self.next;
        self.next += 1;
        self.sync(window);
        for q in window.rows() {
            let list = self.nearest.entry(q.seq).or_default();
            enter(list, (dot(&q.vector, &vector), seq));
        }
        self.insert(Stored { seq, record, expires, vector });
        while self.entries.len() > self.capacity {
            let Some(oldest) = self.entries.keys().next().copied() else { break };
            left.extend(self.remove(window, oldest));
        }
        (seq, left)
    }

    /// Forgets a record; returns the number of its entry.
    pub fn forget(&mut self, window: &Window, record: &Tag) -> Vec<u64> {
        let seq = self.by_record.get(record).copied();
        seq.and_then(|s| self.remove(window, s)).into_iter().collect()
    }

    /// Forgets what has ended at `now`; returns the numbers.
    pub fn expire(&mut self, window: &Window, now: Millis) -> Vec<u64> {
        if now < self.ends {
            return Vec::new();
        }
        let ended: Vec<u64> = self.entries.values().filter(|e| e.expires <= now).map(|e| e.seq).collect();
        let left = ended.into_iter().filter_map(|s| self.remove(window, s)).collect();
        self.ends = self.entries.values().map(|e| e.expires).min().unwrap_or(Millis::MAX);
        left
    }

    fn remove(&mut self, window: &Window, seq: u64) -> Option<u64> {
        let gone = self.entries.remove(&seq)?;
        if self.by_record.get(&gone.record) == Some(&seq) {
            self.by_record.remove(&gone.record);
        }
        let hit = |list: &[(i64, u64)]| list.iter().any(|(_, s)| *s == seq);
        let stale: Vec<u64> = self.nearest.iter().filter(|(_, list)| hit(list)).map(|(q, _)| *q).collect();
        for query in stale {
            match window.rows().binary_search_by_key(&query, |q| q.seq) {
                Ok(row) => drop(self.nearest.insert(query, search(&self.entries, &window.rows()[row].vector))),
                Err(_) => drop(self.nearest.remove(&query)),
            }
        }
        Some(seq)
    }

    /// Brings the lists to a window; those of queries that stay are kept.
    pub fn sync(&mut self, window: &Window) {
        if self.version == Some(window.version()) {
            return;
        }
        let mut old = std::mem::take(&mut self.nearest);
        for q in window.rows() {
            let list = old.remove(&q.seq).unwrap_or_else(|| search(&self.entries, &q.vector));
            self.nearest.insert(q.seq, list);
        }
        self.version = Some(window.version());
    }

    /// Cosines of the nearest entries with a query of the window that was last synced; at most [`K`], falling.
    #[must_use]
    pub fn nearest(&self, query: u64) -> Vec<i64> {
        self.nearest.get(&query).map(|l| l.iter().map(|(c, _)| *c).collect()).unwrap_or_default()
    }

    /// Cosine of the [`K`]-th nearest entry with such a query; `None` where fewer are stored.
    #[must_use]
    pub fn kth(&self, query: u64) -> Option<i64> {
        self.nearest.get(&query)?.get(K - 1).map(|(cosine, _)| *cosine)
    }

    /// Number of the next entry.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Entries held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Memory, bytes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let one = self.entries.values().next().map_or(0, |e| 2 * e.vector.as_slice().len() + 160);
        one * self.entries.len() + self.nearest.len() * (K * 16 + 64)
    }
}

fn search(entries: &BTreeMap<u64, Stored>, query: &Vector) -> Vec<(i64, u64)> {
    let mut list = Vec::with_capacity(K + 1);
    for e in entries.values() {
        enter(&mut list, (dot(query, &e.vector), e.seq));
    }
    list
}

/// Puts an entry into a list of the nearest.
fn enter(list: &mut Vec<(i64, u64)>, new: (i64, u64)) {
    let at = list.partition_point(|(c, s)| *c > new.0 || (*c == new.0 && *s < new.1));
    if at < K {
        list.insert(at, new);
        list.truncate(K);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::keys::{Keys, tag};
    use super::super::window::Limits;
    use super::*;

    fn vector(i: u32) -> Vector {
        let x = f64::from(i);
        Vector::from_f64(&[x.sin(), (1.7 * x).cos(), (0.3 * x).sin() + 0.2]).unwrap()
    }

    #[derive(Debug, Clone)]
    enum Step {
        Query(u32),
        Accept(u32, u32, i64),
        Forget(u32),
        Expire(i64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            2 => (0_u32..50).prop_map(Step::Query),
            5 => (0_u32..12, 0_u32..90, 0_i64..60).prop_map(|(r, v, e)| Step::Accept(r, v, e)),
            1 => (0_u32..12).prop_map(Step::Forget),
            1 => (0_i64..60).prop_map(Step::Expire),
        ];
        prop::collection::vec(step, 0..80)
    }

    proptest! {
        /// After any steps, the lists are what a search over what is stored finds, and a restart changes nothing.
        #[test]
        fn lists_equal_a_search(steps in steps(), restart in 0_usize..80) {
            let limits = Limits { capacity: 6, per_principal: 6, settle: 2, age: 1_000_000 };
            let mut window = Window::new(limits);
            let mut memory = Memory::restore(8, 0, Vec::new());
            let mut state: BTreeMap<u64, Stored> = BTreeMap::new();
            for (i, step) in steps.into_iter().enumerate() {
                let left = match step {
                    Step::Query(v) => {
                        window.push(0, Keys::of(Some(&v.to_string()), None, None), vector(v));
                        Vec::new()
                    }
                    Step::Accept(r, v, expires) => {
                        let record = tag(&r.to_string());
                        let (seq, left) = memory.push(&window, record, expires, vector(v));
                        state.insert(seq, Stored { seq, record, expires, vector: vector(v) });
                        left
                    }
                    Step::Forget(r) => memory.forget(&window, &tag(&r.to_string())),
                    Step::Expire(now) => memory.expire(&window, now),
                };
                left.iter().for_each(|s| drop(state.remove(s)));
                if i == restart {
                    memory = Memory::restore(8, memory.next, state.values().cloned().collect());
                }
                memory.sync(&window);
                prop_assert_eq!(&memory.entries, &state);
                prop_assert!(memory.len() <= 8 && memory.by_record.len() == memory.len());
                for q in window.rows() {
                    let mut all: Vec<i64> = state.values().map(|e| dot(&q.vector, &e.vector)).collect();
                    all.sort_unstable_by(|a, b| b.cmp(a));
                    all.truncate(K);
                    prop_assert_eq!(memory.kth(q.seq), all.get(K - 1).copied());
                    prop_assert_eq!(memory.nearest(q.seq), all);
                }
            }
        }
    }
}
