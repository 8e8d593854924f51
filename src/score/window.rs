//! The query window of hardened MEMSAD (`memsad.md` 8.4): queries of authenticated users, without near copies, with
//! a share for each principal, and an age limit by stream time.
//!
//! New queries wait until there are enough of them, and then move the window in one step: scores and calibration
//! always use the same version of it. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::kernel::Rows;
use super::keys::{Keys, Tag};
use crate::clock::Millis;
use crate::schema::{ONE, Vector, dot};
use crate::topology::Memsad;

/// Queries at least this close say the same: cosine .98.
const SAME: i64 = ONE / 100 * 98;
/// Principals whose copies of one query stay: with two of them nobody can take somebody else's query out by asking
/// it too.
const COPIES: usize = 2;
/// Copies are looked for among so many of the newest queries. Each query is one of these when it enters.
const COMPARED: usize = 256;

/// A query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Number in the boundary.
    pub seq: u64,
    /// Stream time when it came.
    pub at: Millis,
    /// Who asked.
    pub keys: Keys,
    /// Vector.
    pub vector: Vector,
}

/// A query in the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryValue {
    /// Stream time when it came, ms.
    pub at: Millis,
    /// Who asked.
    pub keys: Keys,
    /// Little-endian i16.
    #[serde(with = "serde_bytes")]
    pub vector: Vec<u8>,
}

/// Where a window stands, in the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WindowMark {
    /// Number of the next query.
    pub next: u64,
    /// Queries below this number are in the window or gone; the others wait.
    pub settled: u64,
}

/// Limits of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Queries in the window.
    pub capacity: usize,
    /// Of one principal.
    pub per_principal: usize,
    /// New queries that move the window; fewer while it is small.
    pub settle: usize,
    /// Queries older than this leave, ms.
    pub age: Millis,
}

impl Limits {
    /// Those of a topology.
    #[must_use]
    pub fn of(m: &Memsad) -> Self {
        Self {
            capacity: m.history,
            per_principal: m.per_principal,
            settle: m.settle,
            age: Millis::try_from(m.query_age.as_millis()).unwrap_or(Millis::MAX),
        }
    }
}

/// A window with the queries that wait.
#[derive(Debug, Clone)]
pub struct Window {
    limits: Limits,
    mark: WindowMark,
    rows: Vec<Query>,
    /// Their vectors as kernels read them.
    packed: Rows,
    waiting: Vec<Query>,
    digest: String,
    /// Component sums of the rows.
    sum: Vec<i64>,
    /// Squared norm of each row.
    norms2: Vec<u64>,
}

/// What a push changes in the state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Moved {
    /// Numbers of the queries that left.
    pub left: Vec<u64>,
    /// The window has a new version.
    pub settled: bool,
}

impl Window {
    /// An empty window.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self::restore(limits, WindowMark::default(), Vec::new())
    }

    /// A window from what the state holds.
    #[must_use]
    pub fn restore(limits: Limits, mark: WindowMark, mut queries: Vec<Query>) -> Self {
        queries.sort_unstable_by_key(|q| q.seq);
        let waiting = queries.split_off(queries.partition_point(|q| q.seq < mark.settled));
        let mut window = Self {
            limits,
            mark,
            rows: queries,
            packed: Rows::new(0),
            waiting,
            digest: String::new(),
            sum: Vec::new(),
            norms2: Vec::new(),
        };
        window.measure();
        window
    }

    /// Takes a query; returns its number and what changed.
    pub fn push(&mut self, at: Millis, keys: Keys, vector: Vector) -> (u64, Moved) {
        let seq = self.mark.next;
        self.mark.next += 1;
        self.waiting.push(Query { seq, at, keys, vector });
        if self.waiting.len() < self.due() {
            return (seq, Moved::default());
        }
        (seq, self.settle())
    }

    /// Moves the window now.
    pub fn finish(&mut self) -> Moved {
        if self.waiting.is_empty() { Moved::default() } else { self.settle() }
    }

    /// New queries that move the window: a fifth of it, at most `settle`.
    fn due(&self) -> usize {
        (self.rows.len() / 5).clamp(1, self.limits.settle.max(1))
    }

    fn settle(&mut self) -> Moved {
        let all: Vec<Query> = self.rows.drain(..).chain(self.waiting.drain(..)).collect();
        let newest = all.iter().map(|q| q.at).max().unwrap_or(Millis::MIN);
        let mut kept: Vec<Query> = Vec::with_capacity(self.limits.capacity);
        let mut of: BTreeMap<Option<Tag>, usize> = BTreeMap::new();
        let mut left = Vec::new();
        // The newest first: what is kept never depends on what is older.
        for q in all.into_iter().rev() {
            let own = of.entry(q.keys.principal).or_default();
            let old = q.at < newest.saturating_sub(self.limits.age);
            if old || kept.len() >= self.limits.capacity || *own >= self.limits.per_principal || is_copy(&kept, &q) {
                left.push(q.seq);
                continue;
            }
            *own += 1;
            kept.push(q);
        }
        kept.reverse();
        left.reverse();
        self.rows = kept;
        self.measure();
        self.mark.settled = self.mark.next;
        Moved { left, settled: true }
    }

    fn measure(&mut self) {
        let dimension = self.rows.first().map_or(0, |q| q.vector.as_slice().len());
        debug_assert!(self.rows.iter().all(|q| q.vector.as_slice().len() == dimension));
        self.packed = Rows::of(dimension, self.rows.iter().map(|q| q.vector.as_slice()));
        self.digest = digest(&self.rows);
        self.sum = sum(self.rows.iter().map(|q| &q.vector));
        self.norms2 = self.rows.iter().map(|q| norm2(q.vector.as_slice())).collect();
    }

    /// Component sums of the queries.
    #[must_use]
    pub fn sum(&self) -> &[i64] {
        &self.sum
    }

    /// Squared norm of each query, in units of a component.
    #[must_use]
    pub fn norms2(&self) -> &[u64] {
        &self.norms2
    }

    /// Where it stands.
    #[must_use]
    pub fn mark(&self) -> WindowMark {
        self.mark
    }

    /// Version: grows with each step, and names its content together with the digest.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.mark.settled
    }

    /// The queries in it, oldest first.
    #[must_use]
    pub fn rows(&self) -> &[Query] {
        &self.rows
    }

    /// Their vectors, for a kernel.
    #[must_use]
    pub fn packed(&self) -> &Rows {
        &self.packed
    }

    /// The queries that wait.
    #[must_use]
    pub fn waiting(&self) -> &[Query] {
        &self.waiting
    }

    /// First 16 hex digits of SHA-256 over numbers, keys and vectors.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// SHA-256 over the vectors, oldest first, hex; and the norm of their mean, 0 to 1.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // sums stay below 2^53
    pub fn summary(&self) -> (String, f64) {
        let mut hasher = Sha256::new();
        self.rows.iter().for_each(|q| hasher.update(q.vector.to_bytes()));
        let norm = self.sum.iter().map(|s| (*s as f64).powi(2)).sum::<f64>().sqrt();
        (hex::encode(hasher.finalize()), norm / 32767.0 / self.rows.len().max(1) as f64)
    }

    /// Memory, bytes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let one = self.rows.first().or(self.waiting.first()).map_or(0, |q| 2 * q.vector.as_slice().len() + 96);
        one * (self.rows.len() + self.waiting.len()) + self.packed.bytes()
    }
}

/// Whether newer queries, the newest first, say the same: one of the same principal, or those of enough others.
fn is_copy(newer: &[Query], q: &Query) -> bool {
    let alike = newer.iter().take(COMPARED).filter(|n| dot(&n.vector, &q.vector) >= SAME);
    let mut others = 0;
    for n in alike {
        if n.keys.principal == q.keys.principal {
            return true;
        }
        others += 1;
    }
    others >= COPIES
}

fn norm2(v: &[i16]) -> u64 {
    v.iter().map(|x| u64::from(x.unsigned_abs()).pow(2)).sum()
}

/// Component sums.
fn sum<'a>(vectors: impl Iterator<Item = &'a Vector>) -> Vec<i64> {
    let mut out: Vec<i64> = Vec::new();
    for v in vectors {
        out.resize(v.as_slice().len(), 0);
        out.iter_mut().zip(v.as_slice()).for_each(|(s, x)| *s += i64::from(*x));
    }
    out
}

fn digest(rows: &[Query]) -> String {
    let mut hasher = Sha256::new();
    for q in rows {
        hasher.update(q.seq.to_le_bytes());
        hasher.update(q.keys.to_bytes());
        hasher.update(q.vector.to_bytes());
    }
    hex::encode(&hasher.finalize()[..8])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { capacity: 12, per_principal: 4, settle: 3, age: 1000 };

    fn vector(i: usize) -> Vector {
        let x = i as f64;
        Vector::from_f64(&[x.sin(), (1.7 * x).cos(), (0.3 * x).sin() + 0.2, 0.4]).unwrap()
    }

    fn keys(p: usize) -> Keys {
        Keys::of(Some(&format!("p{p}")), Some(&format!("s{p}")), None)
    }

    fn pushed(limits: Limits, queries: impl IntoIterator<Item = (usize, usize)>) -> Window {
        let mut window = Window::new(limits);
        for (at, (p, v)) in queries.into_iter().enumerate() {
            window.push(at as i64, keys(p), vector(v));
        }
        window
    }

    fn seqs(w: &Window) -> Vec<u64> {
        w.rows().iter().map(|q| q.seq).collect()
    }

    proptest! {
        /// Whatever comes: limits hold, the newest is in, no principal has two near copies, a window from the state
        /// is the running one, and the state holds exactly what the window does.
        #[test]
        fn any_stream_keeps_the_limits(
            stream in prop::collection::vec((0_usize..5, 0_usize..9, 0_i64..400), 0..60),
            restarts in prop::collection::vec(any::<bool>(), 60),
        ) {
            let mut window = Window::new(LIMITS);
            let mut state: BTreeMap<u64, Query> = BTreeMap::new();
            let mut now = 0;
            for ((p, v, step), restart) in stream.into_iter().zip(restarts) {
                now += step;
                let (before, version) = (seqs(&window), window.version());
                let (seq, moved) = window.push(now, keys(p), vector(v));
                state.insert(seq, Query { seq, at: now, keys: keys(p), vector: vector(v) });
                moved.left.iter().for_each(|s| drop(state.remove(s)));
                prop_assert_eq!(moved.settled, window.version() != version);
                if moved.settled {
                    prop_assert_eq!(window.rows().last().map(|q| q.seq), Some(seq));
                    prop_assert!(window.waiting().is_empty());
                } else {
                    prop_assert_eq!(seqs(&window), before, "scores don't move between versions");
                }
                prop_assert!(window.rows().len() <= 12 && window.waiting().len() <= 3);
                for q in window.rows() {
                    let own = |n: &&Query| n.keys.principal == q.keys.principal;
                    prop_assert!(window.rows().iter().filter(own).count() <= 4);
                    let newer = |n: &&Query| n.seq > q.seq && dot(&n.vector, &q.vector) >= SAME;
                    prop_assert!(window.rows().iter().filter(newer).count() < COPIES);
                    prop_assert_eq!(window.rows().iter().filter(own).filter(newer).count(), 0);
                }
                let again = Window::restore(LIMITS, window.mark(), state.values().cloned().collect());
                prop_assert_eq!(again.rows(), window.rows());
                prop_assert_eq!(again.waiting(), window.waiting());
                prop_assert_eq!(again.digest(), window.digest());
                if restart {
                    window = again;
                }
            }
        }
    }

    #[test]
    fn a_flood_of_one_principal_leaves_the_others() {
        let calm = (0..6).map(|i| (i, i));
        let flood = (0..200).map(|i| (9, 10 + i));
        let window = pushed(Limits { settle: 1, ..LIMITS }, calm.chain(flood));
        let own = window.rows().iter().filter(|q| q.keys == keys(9)).count();
        assert_eq!((own, window.rows().len()), (4, 10), "six others and a share of four");
    }

    /// Two of his own principals ask the victim's question: only those of the one that writes are left out.
    #[test]
    fn nobody_takes_the_query_of_another_out() {
        let window = pushed(Limits { settle: 1, ..LIMITS }, [(0, 5), (1, 5), (2, 5), (3, 5)]);
        assert_eq!(seqs(&window), [2, 3], "copies of the newest two principals");
        let left = window.rows().iter().filter(|q| !keys(3).excludes(&q.keys)).count();
        assert_eq!(left, 1);
        let one = pushed(Limits { settle: 1, ..LIMITS }, [(0, 5), (3, 5), (3, 5), (3, 5)]);
        assert_eq!(seqs(&one), [0, 3]);
    }

    #[test]
    fn old_queries_leave_by_stream_time() {
        let mut window = Window::new(Limits { settle: 1, ..LIMITS });
        for (at, v) in [(0, 1), (500, 2), (1000, 3)] {
            window.push(at, keys(v), vector(v));
        }
        assert_eq!(seqs(&window), [0, 1, 2]);
        assert_eq!(window.push(1501, keys(4), vector(4)).1.left, [0, 1]);
        // A late record doesn't turn time back.
        window.push(3, keys(5), vector(5));
        assert_eq!(seqs(&window), [2, 3]);
    }
}
