//! Held keys: what was dead-lettered and waits for an operator, in order. Pure.
//!
//! A record is outstanding from its dead letter until it is redriven or skipped. A later record of the same
//! key must not overtake it: while any is outstanding, records of the key are dead letters too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::topology::Role;

/// Outstanding records of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// Offsets of each key, in order.
    queues: BTreeMap<Arc<str>, BTreeSet<i64>>,
    /// Key of each outstanding record.
    records: BTreeMap<(Role, i64), Arc<str>>,
}

impl Held {
    /// Number of outstanding records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Nothing is outstanding.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Whether the record at `offset` of the input is outstanding.
    #[must_use]
    pub fn waits(&self, input: Role, offset: i64) -> bool {
        self.records.contains_key(&(input, offset))
    }

    /// The first outstanding offset below `rank` among the keys: what a record of that rank must not overtake.
    #[must_use]
    pub fn blocker(&self, keys: &[String], rank: i64) -> Option<i64> {
        let heads = keys.iter().filter_map(|k| self.queues.get(k.as_str())?.first().copied());
        heads.filter(|head| *head < rank).min()
    }

    /// Notes a dead-lettered record of a key.
    pub fn hold(&mut self, key: &str, input: Role, offset: i64) {
        let key: Arc<str> = match self.queues.get_key_value(key) {
            Some((known, _)) => known.clone(),
            None => key.into(),
        };
        self.queues.entry(key.clone()).or_default().insert(offset);
        self.records.insert((input, offset), key);
    }

    /// Takes a record out; its key, or `None` when it was not outstanding.
    pub fn release(&mut self, input: Role, offset: i64) -> Option<Arc<str>> {
        let key = self.records.remove(&(input, offset))?;
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.remove(&offset);
            if queue.is_empty() {
                self.queues.remove(&key);
            }
        }
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INPUT: Role = Role::MemoryWrites;

    proptest! {
            /// Whatever is held and released, a blocker is the first outstanding offset of the keys below the rank.
            #[test]
            fn blockers_equal_a_scan(steps in prop::collection::vec((0..3_usize, 0..12_i64, any::<bool>()), 0..40), rank in 0..12_i64) {
                let mut held = Held::default();
                let mut model: Vec<(usize, i64)> = Vec::new();
                for (key, offset, hold) in steps {
                    if hold && !model.iter().any(|(_, o)| *o == offset) {
                        held.hold(&key.to_string(), INPUT, offset);
                        model.push((key, offset));
                    } else if !hold {
                        let known = model.iter().position(|(_, o)| *o == offset)
    .map(|i| model.remove(i).0.to_string());
                        let released = held.release(INPUT, offset).map(|k| k.to_string());
                        prop_assert_eq!(released, known);
                    }
                    prop_assert_eq!(held.len(), model.len());
                    prop_assert_eq!(held.is_empty(), held == Held::default(), "nothing is left behind");
                }
                for keys in [vec![0], vec![1, 2], vec![0, 1, 2], vec![]] {
                    let wanted = model.iter().filter(|(k, o)| keys.contains(k) && *o < rank).map(|(_, o)| *o).min();
                    let keys: Vec<String> = keys.iter().map(usize::to_string).collect();
                    prop_assert_eq!(held.blocker(&keys, rank), wanted);
                }
            }
        }

    /// The same offset of two inputs is two records.
    #[test]
    fn inputs_are_apart() {
        let mut held = Held::default();
        held.hold("w", INPUT, 1);
        held.hold("r", Role::RetrievalLogs, 1);
        assert_eq!(held.release(INPUT, 1).as_deref(), Some("w"));
        assert!(!held.waits(INPUT, 1) && held.waits(Role::RetrievalLogs, 1));
    }
}
