//! The newest writes of one source, as the state keeps them: hashes, a vector, and what became of each.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::campaign::{Earlier, KeyTokens, Trace};
use super::fit::RING;
use super::normal::Hashes;
use crate::clock::Millis;
use crate::schema::{InputRef, Vector};

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// It was held.
    Held,
    /// It was allowed.
    Allowed,
    /// It was allowed, and taken back as one of a campaign.
    Retracted,
}

/// A write in its slot of the ring, as bytes. Hashes are ascending, 8 bytes each, little-endian.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// Number of the write; its slot is that modulo [`RING`].
    pub seq: u64,
    /// Record time.
    pub at: Millis,
    /// Record id.
    pub record: String,
    /// Id of its decision.
    pub decision: String,
    /// The write.
    pub input: InputRef,
    /// What became of it.
    pub standing: Standing,
    #[serde(with = "serde_bytes")]
    value: Vec<u8>,
    /// Absent where the value is the text.
    #[serde(with = "serde_bytes")]
    text: Option<Vec<u8>>,
    /// Tokens of the key: exact, folded.
    key: Option<(Vec<u8>, Vec<u8>)>,
    /// Little-endian i16.
    #[serde(with = "serde_bytes")]
    vector: Option<Vec<u8>>,
}

/// Whose and which write a slot is.
#[derive(Debug, Clone)]
pub struct Written {
    /// Record time.
    pub at: Millis,
    /// Record id.
    pub record: String,
    /// Id of its decision.
    pub decision: String,
    /// The write.
    pub input: InputRef,
    /// What became of it.
    pub standing: Standing,
}

/// A write of the ring.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Number of the write.
    pub seq: u64,
    /// Which it is.
    pub written: Written,
    trace: Trace,
    vector: Option<Vector>,
}

impl Entry {
    /// As the state keeps it.
    #[must_use]
    pub fn slot(&self) -> Slot {
        let (w, trace) = (self.written.clone(), &self.trace);
        Slot {
            seq: self.seq,
            at: w.at,
            record: w.record,
            decision: w.decision,
            input: w.input,
            standing: w.standing,
            value: trace.value.to_bytes(),
            text: trace.text.as_ref().map(Hashes::to_bytes),
            key: trace.key.as_ref().map(|k| (k.exact.to_bytes(), k.folded.to_bytes())),
            vector: self.vector.as_ref().map(Vector::to_bytes),
        }
    }

    /// Reads a slot; `None` for bytes that can't be hashes or a unit vector.
    #[must_use]
    pub fn read(slot: Slot) -> Option<Self> {
        let value = Hashes::from_bytes(&slot.value)?;
        let text = match &slot.text {
            Some(bytes) => Some(Hashes::from_bytes(bytes)?),
            None => None,
        };
        let key = match &slot.key {
            Some((exact, folded)) => {
                Some(KeyTokens { exact: Hashes::from_bytes(exact)?, folded: Hashes::from_bytes(folded)? })
            }
            None => None,
        };
        let vector = match &slot.vector {
            Some(bytes) => {
                let (pairs, rest) = bytes.as_chunks::<2>();
                let values = pairs.iter().map(|p| i16::from_le_bytes(*p)).collect();
                Some(Vector::from_unit(values).filter(|_| rest.is_empty())?)
            }
            None => None,
        };
        let Slot { seq, at, record, decision, input, standing, .. } = slot;
        let written = Written { at, record, decision, input, standing };
        Some(Self { seq, written, trace: Trace { value, text, key }, vector })
    }

    /// What a later write is compared with.
    #[must_use]
    pub fn earlier(&self) -> Earlier<'_> {
        Earlier { trace: &self.trace, vector: self.vector.as_ref() }
    }

    fn bytes(&self) -> usize {
        let (t, w) = (&self.trace, &self.written);
        let key = t.key.as_ref().map_or(0, |k| k.exact.len() + k.folded.len());
        let hashes = t.value.len() + t.text.as_ref().map_or(0, Hashes::len) + key;
        let vector = self.vector.as_ref().map_or(0, |v| 2 * v.as_slice().len());
        8 * hashes + vector + w.record.len() + w.decision.len() + w.input.topic.len() + 384
    }
}

/// The newest writes of a source, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Ring {
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl Ring {
    /// From entries in any order; the newest stay.
    #[must_use]
    pub fn restore(mut entries: Vec<Entry>) -> Self {
        entries.sort_unstable_by_key(|e| e.seq);
        let skip = entries.len().saturating_sub(RING);
        entries.drain(..skip);
        Self { bytes: entries.iter().map(Entry::bytes).sum(), entries: entries.into() }
    }

    /// Entries, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Record time of the newest write.
    #[must_use]
    pub fn newest(&self) -> Option<Millis> {
        self.entries.iter().map(|e| e.written.at).max()
    }

    /// Adds a write; the oldest leaves when full.
    pub fn push(&mut self, written: Written, trace: Trace, vector: Option<Vector>) -> &Entry {
        let seq = self.entries.back().map_or(0, |e| e.seq + 1);
        if self.entries.len() >= RING {
            self.bytes -= self.entries.pop_front().map_or(0, |e| e.bytes());
        }
        let entry = Entry { seq, written, trace, vector };
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
        &self.entries[self.entries.len() - 1]
    }

    /// Takes an allowed write back; `None` when it isn't there or was not allowed.
    pub fn retract(&mut self, seq: u64) -> Option<&Entry> {
        let entry = self.entries.iter_mut().find(|e| e.seq == seq)?;
        if entry.written.standing != Standing::Allowed {
            return None;
        }
        entry.written.standing = Standing::Retracted;
        Some(entry)
    }

    /// Memory, bytes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::Features;

    fn written(i: i64) -> Written {
        let input = InputRef { offset: i, partition: 0, topic: "memory-writes".into() };
        Written { at: i, record: format!("m-{i}"), decision: "d".into(), input, standing: Standing::Allowed }
    }

    #[test]
    fn a_ring_comes_back_from_its_slots() {
        let mut ring = Ring::default();
        let vector = Vector::from_f64(&[1.0, 2.0]).unwrap();
        let mut slots = std::collections::BTreeMap::new();
        for i in 0..120 {
            let text = format!("Question: what is number {i}?\nIt is the number {i} of all.");
            let trace = Features::of(&text).trace;
            let entry = ring.push(written(i), trace, (i % 2 == 0).then(|| vector.clone()));
            slots.insert(entry.seq % RING as u64, entry.slot());
        }
        assert!(ring.retract(119).is_some() && ring.retract(119).is_none() && ring.retract(0).is_none());
        let entries = slots.into_values().map(|s| Entry::read(s).unwrap()).collect();
        let back = Ring::restore(entries);
        assert_eq!((back.iter().count(), back.newest()), (RING, Some(119)));
        for (a, b) in ring.iter().zip(back.iter()) {
            assert_eq!((&a.trace, &a.vector, a.seq), (&b.trace, &b.vector, b.seq));
        }
        assert_eq!(back.bytes(), ring.bytes());
    }

    #[test]
    fn broken_slots_are_refused() {
        let mut ring = Ring::default();
        let slot = ring.push(written(0), Features::of("some text of a memory").trace, None).slot();
        assert!(Entry::read(slot.clone()).is_some());
        assert!(Entry::read(Slot { value: vec![1, 2, 3], ..slot.clone() }).is_none());
        assert!(Entry::read(Slot { vector: Some(vec![0; 4]), ..slot }).is_none());
    }
}
