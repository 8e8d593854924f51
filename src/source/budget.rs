//! Bytes in flight for each input partition (I7). Each has its own share, so that a full input can't
//! starve the one its unit waits for; a single record above the share is admitted alone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::topology::Role;

type Counters = HashMap<(Role, i32), Arc<AtomicUsize>>;

/// Shared byte counters.
#[derive(Debug, Clone, Default)]
pub struct Budget {
    counters: Arc<RwLock<Counters>>,
}

impl Budget {
    /// The counter of a partition.
    #[must_use]
    pub fn counter(&self, role: Role, partition: i32) -> Arc<AtomicUsize> {
        let key = (role, partition);
        if let Some(c) = self.counters.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return c.clone();
        }
        self.counters.write().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone()
    }

    /// Takes `bytes` for a record on its way in.
    pub fn take(&self, role: Role, partition: i32, bytes: usize) {
        self.counter(role, partition).fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives them back.
    pub fn give(&self, role: Role, partition: i32, bytes: usize) {
        self.counter(role, partition).fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Nothing is in flight: the consumer is replaced, and what it had handed over is dropped.
    pub fn clear(&self) {
        let counters = self.counters.read().unwrap_or_else(PoisonError::into_inner);
        counters.values().for_each(|c| c.store(0, Ordering::Relaxed));
    }

    /// Bytes in flight of a partition.
    #[must_use]
    pub fn used(&self, role: Role, partition: i32) -> usize {
        self.counter(role, partition).load(Ordering::Relaxed)
    }
}
