//! Accepted writes of one boundary, and for each query of the window the nearest of them. Kept up step by step; a
//! brute-force search gives the same. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::kernel::{self, Rows};
use super::keys::Tag;
use super::window::Window;
use crate::clock::Millis;
use crate::schema::Vector;

/// Places that a reader takes.
pub const K: usize = 5;
/// Places that are kept for a query: so many of its nearest may leave before it is searched for again.
const KEPT: usize = 4 * K;

/// An accepted write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Number in the boundary.
    pub seq: u64,
    /// Its slot in the state.
    pub slot: u64,
    /// Tag of its record id.
    pub record: Tag,
    /// End of the memory.
    pub expires: Millis,
    /// Vector.
    pub vector: Vector,
}

/// An accepted write in its slot of the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredValue {
    /// Number in the boundary.
    pub seq: u64,
    /// First 16 bytes of SHA-256 over the record id.
    pub record: Tag,
    /// End of the memory, ms.
    pub expires: Millis,
    /// Little-endian i16.
    #[serde(with = "serde_bytes")]
    pub vector: Vec<u8>,
}

/// Where an accepted write went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// Its number.
    pub seq: u64,
    /// Its slot; what was there has left.
    pub slot: u64,
    /// Other slots that are empty now.
    pub left: Vec<u64>,
}

/// What is held of an accepted write beside its vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    seq: u64,
    slot: u64,
    record: Tag,
    expires: Millis,
}

/// The newest accepted writes.
#[derive(Debug, Clone)]
pub struct Memory {
    capacity: usize,
    next: u64,
    /// Vectors, and what belongs to each.
    rows: Rows,
    entries: Vec<Entry>,
    /// Rows by number.
    by_seq: BTreeMap<u64, usize>,
    /// Numbers by record.
    by_record: HashMap<Tag, u64>,
    /// Empty slots below `slots`.
    free: BTreeSet<u64>,
    slots: u64,
    /// No entry ends before this.
    ends: Millis,
    /// Version of the window that the lists are for.
    version: Option<u64>,
    /// For each query of the window the nearest entries.
    lists: Vec<List>,
}

/// The nearest entries of a query.
#[derive(Debug, Clone, Default)]
struct List {
    /// Number of the query.
    query: u64,
    /// Cosine and number, the nearest first; at most [`KEPT`], and no fewer than [`K`] where so many are stored. No other
    /// entry is nearer than the last.
    nearest: Vec<(i64, u64)>,
}

impl Memory {
    /// From what the state holds; `next` is the number of the next entry.
    #[must_use]
    pub fn restore(dimension: usize, capacity: usize, next: u64, stored: Vec<Stored>) -> Self {
        let slots = stored.iter().map(|s| s.slot + 1).max().unwrap_or_default();
        let used: BTreeSet<u64> = stored.iter().map(|s| s.slot).collect();
        let mut memory = Self {
            capacity,
            next,
            rows: Rows::new(dimension),
            entries: Vec::new(),
            by_seq: BTreeMap::new(),
            by_record: HashMap::new(),
            free: (0..slots).filter(|s| !used.contains(s)).collect(),
            slots,
            ends: Millis::MAX,
            version: None,
            lists: Vec::new(),
        };
        stored.into_iter().for_each(|s| memory.insert(s));
        memory
    }

    fn insert(&mut self, Stored { seq, slot, record, expires, vector }: Stored) {
        self.ends = self.ends.min(expires);
        self.by_record.insert(record, seq);
        self.by_seq.insert(seq, self.entries.len());
        self.entries.push(Entry { seq, slot, record, expires });
        self.rows.push(vector.as_slice());
    }

    /// Takes an accepted write; its record has one entry, and the oldest leave where there is no room.
    pub fn push(&mut self, window: &Window, record: Tag, expires: Millis, vector: Vector) -> Pushed {
        let mut left = self.forget(window, &record);
        while self.entries.len() >= self.capacity.max(1) {
            let Some(oldest) = self.by_seq.keys().next().copied() else { break };
            left.extend(self.remove(window, oldest));
        }
        let seq = self.next;
        self.next += 1;
        self.sync(window);
        let all = self.entries.len();
        let cosines = kernel::current().each(window.packed(), vector.as_slice());
        for (list, cosine) in self.lists.iter_mut().zip(cosines) {
            list.enter(i64::from(cosine), seq, all);
        }
        let slot = self.free.pop_first().unwrap_or(self.slots);
        self.slots = self.slots.max(slot + 1);
        self.insert(Stored { seq, slot, record, expires, vector });
        left.retain(|s| *s != slot);
        Pushed { seq, slot, left }
    }

    /// Forgets a record; returns its slot.
    pub fn forget(&mut self, window: &Window, record: &Tag) -> Vec<u64> {
        let seq = self.by_record.get(record).copied();
        seq.and_then(|s| self.remove(window, s)).into_iter().collect()
    }

    /// Forgets what has ended at `now`; returns the slots.
    pub fn expire(&mut self, window: &Window, now: Millis) -> Vec<u64> {
        if now < self.ends {
            return Vec::new();
        }
        let mut ended: Vec<u64> = self.entries.iter().filter(|e| e.expires <= now).map(|e| e.seq).collect();
        ended.sort_unstable();
        let left = ended.into_iter().filter_map(|s| self.take_out(window, s)).collect();
        self.refill(window);
        self.ends = self.entries.iter().map(|e| e.expires).min().unwrap_or(Millis::MAX);
        left
    }

    fn remove(&mut self, window: &Window, seq: u64) -> Option<u64> {
        let slot = self.take_out(window, seq);
        self.refill(window);
        slot
    }

    /// Takes an entry out, also out of the lists, which may be short then.
    fn take_out(&mut self, window: &Window, seq: u64) -> Option<u64> {
        if self.version.is_some() {
            self.sync(window);
        }
        let row = self.by_seq.remove(&seq)?;
        let gone = self.entries.swap_remove(row);
        self.rows.remove(row);
        if let Some(moved) = self.entries.get(row) {
            self.by_seq.insert(moved.seq, row);
        }
        if self.by_record.get(&gone.record) == Some(&seq) {
            self.by_record.remove(&gone.record);
        }
        self.free.insert(gone.slot);
        for list in &mut self.lists {
            list.nearest.retain(|(_, s)| *s != seq);
        }
        Some(gone.slot)
    }

    /// Searches again for queries whose lists are short.
    fn refill(&mut self, window: &Window) {
        let least = K.min(self.entries.len());
        let Self { rows, entries, lists, .. } = self;
        let short = lists.iter_mut().zip(window.rows()).filter(|(list, _)| list.nearest.len() < least);
        short.for_each(|(list, query)| list.nearest = search(rows, entries, &query.vector));
    }

    /// Brings the lists to a window; those of queries that stay are kept.
    pub fn sync(&mut self, window: &Window) {
        if self.version == Some(window.version()) {
            return;
        }
        let mut old: HashMap<u64, List> = self.lists.drain(..).map(|l| (l.query, l)).collect();
        for q in window.rows() {
            let fresh = || List { query: q.seq, nearest: search(&self.rows, &self.entries, &q.vector) };
            self.lists.push(old.remove(&q.seq).unwrap_or_else(fresh));
        }
        self.version = Some(window.version());
    }

    /// Cosines of the nearest entries with a row of the window that was last synced; at most [`K`], falling.
    #[must_use]
    pub fn nearest(&self, row: usize) -> Vec<i64> {
        let list = self.lists.get(row).map_or(&[][..], |l| &l.nearest);
        list.iter().take(K).map(|(cosine, _)| *cosine).collect()
    }

    /// Cosine of the [`K`]-th nearest entry with such a row; `None` where fewer are stored.
    #[must_use]
    pub fn kth(&self, row: usize) -> Option<i64> {
        self.lists.get(row)?.nearest.get(K - 1).map(|(cosine, _)| *cosine)
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
        self.rows.bytes() + 160 * self.entries.len() + self.lists.len() * (KEPT * 16 + 64)
    }
}

impl List {
    /// Takes an entry that comes to `all` others.
    fn enter(&mut self, cosine: i64, seq: u64, all: usize) {
        let near = self.nearest.last().is_none_or(|(last, _)| cosine >= *last);
        if !near && self.nearest.len() < all {
            return;
        }
        let at = self.nearest.partition_point(|(c, _)| *c >= cosine);
        self.nearest.insert(at, (cosine, seq));
        self.nearest.truncate(KEPT);
    }
}

/// The nearest entries.
fn search(rows: &Rows, entries: &[Entry], query: &Vector) -> Vec<(i64, u64)> {
    let found = kernel::current().nearest(rows, query.as_slice(), KEPT);
    found.into_iter().map(|d| (i64::from(d.max), entries[d.at].seq)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::keys::{Keys, tag};
    use super::super::window::Limits;
    use super::*;
    use crate::schema::dot;

    /// More than a list keeps.
    const CAPACITY: usize = 26;

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
            9 => (0_u32..40, 0_u32..90, 0_i64..60).prop_map(|(r, v, e)| Step::Accept(r, v, e)),
            1 => (0_u32..40).prop_map(Step::Forget),
            1 => (0_i64..30).prop_map(Step::Expire),
        ];
        prop::collection::vec(step, 0..160)
    }

    proptest! {
        /// After any steps, the lists are what a search over what is stored finds, and a restart changes nothing.
        #[test]
        fn lists_equal_a_search(steps in steps(), restart in 0_usize..160) {
            let limits = Limits { capacity: 6, per_principal: 6, settle: 2, age: 1_000_000 };
            let mut window = Window::new(limits);
            let mut memory = Memory::restore(3, CAPACITY, 0, Vec::new());
            let mut state: BTreeMap<u64, Stored> = BTreeMap::new();
            for (i, step) in steps.into_iter().enumerate() {
                let left = match step {
                    Step::Query(v) => {
                        window.push(0, Keys::of(Some(&v.to_string()), None, None), vector(v));
                        Vec::new()
                    }
                    Step::Accept(r, v, expires) => {
                        let record = tag(&r.to_string());
                        let Pushed { seq, slot, left } = memory.push(&window, record, expires, vector(v));
                        state.insert(slot, Stored { seq, slot, record, expires, vector: vector(v) });
                        left
                    }
                    Step::Forget(r) => memory.forget(&window, &tag(&r.to_string())),
                    Step::Expire(now) => memory.expire(&window, now),
                };
                left.iter().for_each(|s| drop(state.remove(s)));
                if i == restart {
                    memory = Memory::restore(3, CAPACITY, memory.next, state.values().cloned().collect());
                }
                memory.sync(&window);
                let held = memory.entries.iter().enumerate().map(|(row, e)| (e.slot, (*e, memory.rows.row(row).collect())));
                let held: BTreeMap<u64, (Entry, Vec<i16>)> = held.collect();
                let put = |s: &Stored| Entry { seq: s.seq, slot: s.slot, record: s.record, expires: s.expires };
                let put = state.iter().map(|(slot, s)| (*slot, (put(s), s.vector.as_slice().to_vec())));
                prop_assert_eq!(held, put.collect());
                prop_assert!(memory.len() <= CAPACITY && memory.by_record.len() == memory.len());
                prop_assert!(state.keys().all(|slot| *slot < CAPACITY as u64));
                for (row, q) in window.rows().iter().enumerate() {
                    let mut all: Vec<i64> = state.values().map(|e| dot(&q.vector, &e.vector)).collect();
                    all.sort_unstable_by(|a, b| b.cmp(a));
                    all.truncate(K);
                    prop_assert_eq!(memory.kth(row), all.get(K - 1).copied());
                    prop_assert_eq!(memory.nearest(row), all);
                }
            }
        }
    }
}
