//! Changes of the open transaction, over the committed store.

use std::collections::BTreeMap;

use super::Store;
use crate::error::Result;

/// Uncommitted changes; the last one of a key counts.
#[derive(Debug, Default)]
pub struct Overlay {
    changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    bytes: usize,
}

impl Overlay {
    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The changes in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.changes.iter().map(|(k, v)| (k.as_slice(), v.as_deref()))
    }

    fn put(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.bytes += key.len() + value.as_ref().map_or(0, Vec::len);
        self.changes.insert(key, value);
    }
}

/// A store with an overlay: reads see this transaction's writes.
#[derive(Debug)]
pub struct State<S> {
    store: S,
    overlay: Overlay,
}

impl<S: Store> State<S> {
    /// Over a store.
    #[must_use]
    pub fn new(store: S) -> Self {
        Self { store, overlay: Overlay::default() }
    }

    /// The committed store.
    #[must_use]
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The committed store, for restore.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// The open changes.
    #[must_use]
    pub fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    /// Value of a key.
    ///
    /// # Errors
    /// `state_failed`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.overlay.changes.get(key) {
            Some(change) => Ok(change.clone()),
            None => self.store.get(key),
        }
    }

    /// Pairs under a prefix in key order, at most `limit`.
    ///
    /// # Errors
    /// `state_failed`.
    pub fn scan(&self, prefix: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let deleted = self.overlay.changes.range(prefix.to_vec()..).take_while(|(k, _)| k.starts_with(prefix)).count();
        let mut found: BTreeMap<Vec<u8>, Vec<u8>> =
            self.store.scan(prefix, limit.saturating_add(deleted))?.into_iter().collect();
        for (k, v) in self.overlay.changes.range(prefix.to_vec()..).take_while(|(k, _)| k.starts_with(prefix)) {
            match v {
                Some(v) => found.insert(k.clone(), v.clone()),
                None => found.remove(k),
            };
        }
        Ok(found.into_iter().take(limit).collect())
    }

    /// Sets a key.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.overlay.put(key, Some(value));
    }

    /// Deletes a key.
    pub fn delete(&mut self, key: Vec<u8>) {
        self.overlay.put(key, None);
    }

    /// After the commit: writes the changes and `extra` in one batch.
    ///
    /// # Errors
    /// `state_failed`.
    pub fn commit(&mut self, extra: Vec<(Vec<u8>, Option<Vec<u8>>)>) -> Result<()> {
        let mut changes: Vec<_> = std::mem::take(&mut self.overlay).changes.into_iter().collect();
        changes.extend(extra);
        self.store.apply(changes)
    }

    /// After an abort: drops the changes.
    pub fn abort(&mut self) {
        self.overlay = Overlay::default();
    }
}

#[cfg(test)]
mod tests {
    use super::super::MemoryStore;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Reads through the overlay equal reads after the commit; an abort leaves the store untouched.
        #[test]
        fn overlay_equals_commit(base in prop::collection::btree_map(0_u8..20, any::<u8>(), 0..20),
                                 changes in prop::collection::vec((0_u8..20, prop::option::of(any::<u8>())), 0..40)) {
            let fill = || {
                let mut store = MemoryStore::default();
                store.apply(base.iter().map(|(k, v)| (vec![*k / 5, *k], Some(vec![*v]))).collect()).unwrap();
                State::new(store)
            };
            let (mut a, mut b) = (fill(), fill());
            for (k, v) in &changes {
                for s in [&mut a, &mut b] {
                    match v { Some(v) => s.put(vec![*k / 5, *k], vec![*v]), None => s.delete(vec![*k / 5, *k]) }
                }
            }
            b.commit(vec![]).unwrap();
            for p in 0..4_u8 {
                for limit in [1, 3, 100] {
                    prop_assert_eq!(a.scan(&[p], limit).unwrap(), b.scan(&[p], limit).unwrap());
                }
            }
            for k in 0..20_u8 {
                prop_assert_eq!(a.get(&[k / 5, k]).unwrap(), b.get(&[k / 5, k]).unwrap());
            }
            a.abort();
            prop_assert_eq!(a.store().dump(), fill().store().dump());
        }
    }
}
