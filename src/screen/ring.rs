//! The newest writes of one source, as the state keeps them: hashes, a vector, and what became of each.

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
    value: Vec<u8>,
    /// Absent where the value is the text.
    text: Option<Vec<u8>>,
    /// Tokens of the key: exact, folded.
    key: Option<(Vec<u8>, Vec<u8>)>,
    /// Little-endian i16.
    vector: Option<Vec<u8>>,
}

/// A write of the ring, read.
#[derive(Debug, Clone)]
pub struct Entry {
    /// As the state keeps it.
    pub slot: Slot,
    trace: Trace,
    vector: Option<Vector>,
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

impl Entry {
    fn new(seq: u64, written: Written, trace: &Trace, vector: Option<&Vector>) -> Self {
        let same = trace.text == trace.value;
        let slot = Slot {
            seq,
            at: written.at,
            record: written.record,
            decision: written.decision,
            input: written.input,
            standing: written.standing,
            value: trace.value.to_bytes(),
            text: (!same).then(|| trace.text.to_bytes()),
            key: trace.key.as_ref().map(|k| (k.exact.to_bytes(), k.folded.to_bytes())),
            vector: vector.map(Vector::to_bytes),
        };
        Self { slot, trace: trace.clone(), vector: vector.cloned() }
    }

    /// Reads a slot; `None` for bytes that can't be hashes or a unit vector.
    #[must_use]
    pub fn read(slot: Slot) -> Option<Self> {
        let value = Hashes::from_bytes(&slot.value)?;
        let text = match &slot.text {
            Some(bytes) => Hashes::from_bytes(bytes)?,
            None => value.clone(),
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
        Some(Self { trace: Trace { value, text, key }, vector, slot })
    }

    /// What a later write is compared with.
    #[must_use]
    pub fn earlier(&self) -> Earlier<'_> {
        Earlier { trace: &self.trace, vector: self.vector.as_ref() }
    }

    fn bytes(&self) -> usize {
        let s = &self.slot;
        let text = s.text.as_ref().map_or(0, Vec::len);
        let vector = s.vector.as_ref().map_or(0, Vec::len);
        2 * (s.value.len() + text + vector) + s.record.len() + s.decision.len() + s.input.topic.len() + 512
    }
}

/// The newest writes of a source, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Ring {
    entries: Vec<Entry>,
}

impl Ring {
    /// From slots in any order; the newest stay.
    #[must_use]
    pub fn restore(mut entries: Vec<Entry>) -> Self {
        entries.sort_unstable_by_key(|e| e.slot.seq);
        let skip = entries.len().saturating_sub(RING);
        entries.drain(..skip);
        Self { entries }
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
        self.entries.iter().map(|e| e.slot.at).max()
    }

    /// Adds a write; the oldest leaves when full.
    pub fn push(&mut self, written: Written, trace: &Trace, vector: Option<&Vector>) -> &Slot {
        let seq = self.entries.last().map_or(0, |e| e.slot.seq + 1);
        if self.entries.len() >= RING {
            self.entries.remove(0);
        }
        self.entries.push(Entry::new(seq, written, trace, vector));
        &self.entries[self.entries.len() - 1].slot
    }

    /// Takes an allowed write back; `None` when it isn't there or was not allowed.
    pub fn retract(&mut self, seq: u64) -> Option<&Slot> {
        let entry = self.entries.iter_mut().find(|e| e.slot.seq == seq)?;
        if entry.slot.standing != Standing::Allowed {
            return None;
        }
        entry.slot.standing = Standing::Retracted;
        Some(&entry.slot)
    }

    /// Memory, bytes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.iter().map(Entry::bytes).sum()
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
            let slot = ring.push(written(i), &trace, (i % 2 == 0).then_some(&vector));
            slots.insert(slot.seq % RING as u64, slot.clone());
        }
        assert!(ring.retract(119).is_some() && ring.retract(119).is_none() && ring.retract(0).is_none());
        let entries = slots.into_values().map(|s| Entry::read(s).unwrap()).collect();
        let back = Ring::restore(entries);
        assert_eq!((back.iter().count(), back.newest()), (RING, Some(119)));
        for (a, b) in ring.iter().zip(back.iter()) {
            assert_eq!((&a.trace, &a.vector, a.slot.seq), (&b.trace, &b.vector, b.slot.seq));
        }
        assert!(back.bytes() > 0);
    }

    #[test]
    fn broken_slots_are_refused() {
        let mut ring = Ring::default();
        let slot = ring.push(written(0), &Features::of("some text of a memory").trace, None).clone();
        assert!(Entry::read(slot.clone()).is_some());
        assert!(Entry::read(Slot { value: vec![1, 2, 3], ..slot.clone() }).is_none());
        assert!(Entry::read(Slot { vector: Some(vec![0; 4]), ..slot }).is_none());
    }
}
