//! The query history of one boundary: a FIFO ring of unit vectors with its component sum.

use sha2::{Digest, Sha256};

use super::kernel::{self, Candidates, Dots, Job, Rows, Window};

/// A FIFO of query vectors (`memsad.md` 1.3).
#[derive(Debug, Clone)]
pub struct History {
    dimension: usize,
    capacity: usize,
    pushed: u64,
    /// Row that the next push overwrites once the ring is full: the oldest.
    oldest: usize,
    rows: Rows,
    sum: Vec<i64>,
}

impl History {
    /// An empty history.
    #[must_use]
    pub fn new(dimension: usize, capacity: usize) -> Self {
        Self { dimension, capacity, pushed: 0, oldest: 0, rows: Rows::new(dimension), sum: vec![0; dimension] }
    }

    /// Rebuilds a history from entries `(sequence, components)`; the newest `capacity` stay.
    #[must_use]
    pub fn restore(dimension: usize, capacity: usize, mut entries: Vec<(u64, Vec<i16>)>) -> Self {
        entries.retain(|(_, v)| v.len() == dimension);
        entries.sort_unstable_by_key(|(seq, _)| *seq);
        let skip = entries.len().saturating_sub(capacity);
        let mut history = Self::new(dimension, capacity);
        for (seq, components) in entries.into_iter().skip(skip) {
            history.push(&components);
            history.pushed = seq + 1;
        }
        history
    }

    /// Adds a query; the oldest leaves when full. Returns its sequence number; its slot is that modulo
    /// the capacity.
    pub fn push(&mut self, components: &[i16]) -> u64 {
        debug_assert_eq!(components.len(), self.dimension);
        if self.len() < self.capacity {
            self.rows.push(components);
        } else {
            for (s, old) in self.sum.iter_mut().zip(self.rows.row(self.oldest)) {
                *s -= i64::from(old);
            }
            self.rows.set(self.oldest, components);
            self.oldest = (self.oldest + 1) % self.capacity;
        }
        for (s, new) in self.sum.iter_mut().zip(components) {
            *s += i64::from(*new);
        }
        self.pushed += 1;
        self.pushed - 1
    }

    /// Components of a vector.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// Number of queries held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Most queries held.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Memory of the vectors, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.rows.bytes() + self.sum.len() * 8
    }

    /// What a kernel scores against.
    #[must_use]
    pub fn window(&self) -> Window<'_> {
        Window { rows: &self.rows, sum: &self.sum }
    }

    /// Largest and summed dot products with each candidate; empty for an empty history.
    #[must_use]
    pub(super) fn dots(&self, candidates: &Candidates) -> Vec<Dots> {
        kernel::current().score(&[Job { window: self.window(), candidates }]).pop().unwrap_or_default()
    }

    /// Norm of the mean query vector, 0 to 1.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // sums stay below 2^53
    pub fn mean_norm(&self) -> f64 {
        if self.is_empty() {
            return 0.0;
        }
        let norm = self.sum.iter().map(|s| (*s as f64).powi(2)).sum::<f64>().sqrt();
        norm / 32767.0 / self.len() as f64
    }

    /// SHA-256 over the vectors, oldest first, hex.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hasher = Sha256::new();
        for at in (self.oldest..self.len()).chain(0..self.oldest) {
            hasher.update(self.rows.row(at).flat_map(i16::to_le_bytes).collect::<Vec<_>>());
        }
        hex::encode(hasher.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Vector;
    use proptest::prelude::*;

    proptest! {
        /// A ring of any length, restored or not, scores as the plain window of the newest queries.
        #[test]
        fn ring_equals_window(count in 0_usize..40, capacity in 1_usize..12, seed in any::<u64>()) {
            let make = |i: usize| Vector::from_f64(&[(i as f64 + seed as f64 % 97.0).sin(), (i as f64).cos() + 0.1, 0.3]).unwrap();
            let all: Vec<Vector> = (0..count).map(make).collect();
            let mut ring = History::new(3, capacity);
            let mut slots = std::collections::BTreeMap::new();
            for v in &all {
                let seq = ring.push(v.as_slice());
                slots.insert(seq % capacity as u64, (seq, v.as_slice().to_vec()));
            }
            let mut plain = History::new(3, 1000);
            for v in &all[count.saturating_sub(capacity)..] {
                plain.push(v.as_slice());
            }
            let restored = History::restore(3, capacity, slots.into_values().collect());
            let probe = Candidates::of(3, [make(1000).as_slice()]);
            let scored = |h: &History| h.dots(&probe).first().map(|d| (d.max, d.sum));
            prop_assert_eq!(scored(&ring), scored(&plain));
            prop_assert_eq!(scored(&restored), scored(&plain));
            prop_assert_eq!(ring.digest(), restored.digest());
            prop_assert_eq!(restored.pushed, ring.pushed);
        }
    }

    /// A ring that goes on with another capacity: the running one, and one restored from its slots.
    fn resized(before: usize, after: usize, pushed: usize, more: usize) -> (String, String) {
        let vector = |i: usize| Vector::from_f64(&[(i as f64).sin(), (i as f64).cos(), 0.3]).unwrap();
        let mut slots = std::collections::BTreeMap::new();
        let mut ring = History::new(3, before);
        for i in 0..pushed {
            let seq = ring.push(vector(i).as_slice());
            slots.insert(seq % before as u64, (seq, vector(i).as_slice().to_vec()));
        }
        let mut ring = History::restore(3, after, slots.values().cloned().collect());
        for i in pushed..pushed + more {
            let seq = ring.push(vector(i).as_slice());
            slots.insert(seq % after as u64, (seq, vector(i).as_slice().to_vec()));
        }
        let restored = History::restore(3, after, slots.into_values().collect());
        (ring.digest(), restored.digest())
    }

    /// Why `topology::change` lets `memsad.history` go to a divisor, and asks for a reset for anything else.
    #[test]
    fn a_ring_shrinks_to_a_divisor_and_to_nothing_else() {
        let all = |before, after| {
            (0..3 * before).all(|p| {
                (0..3 * before).all(|m| {
                    let (running, restored) = resized(before, after, p, m);
                    running == restored
                })
            })
        };
        assert!(all(12, 12) && all(12, 6) && all(12, 4) && all(12, 1));
        for (before, after) in [(12, 5), (12, 8), (12, 11), (6, 12), (6, 7)] {
            assert!(!all(before, after), "{before} -> {after}");
        }
    }
}
