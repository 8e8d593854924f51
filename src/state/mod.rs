//! Keyed state: committed data in a store, this transaction's changes in an overlay. The store never
//! runs ahead of Kafka: it is written once, after the commit (I2).

mod audit;
mod committed;
mod db;
mod format;
mod inputs;
mod keys;
mod overlay;
mod plan;
mod restore;
mod standby;
mod unit;
mod view;

use std::collections::BTreeMap;

use crate::error::Result;

pub use audit::{Fold, Mismatch, UnitAudit, What, audit};
pub use db::Db;
pub use format::{Layout, READS, check as check_formats, decode, encode, write_format};
pub use keys::{Kind, Parsed, key, of_unit, parse, prefix};
pub use overlay::{Overlay, State};
pub use plan::UnitPlan;
pub(crate) use restore::topic_key;
pub use restore::{Progress, Restored, Restorer, Watch};
pub use standby::Standby;
pub use unit::{Chain, Positions, UnitMeta};
pub use view::View;

/// A key and its new value; `None` deletes.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// Committed state.
pub trait Store: std::fmt::Debug {
    /// Value of a key.
    ///
    /// # Errors
    /// `state_failed`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// All pairs under a prefix, in key order, at most `limit`.
    ///
    /// # Errors
    /// `state_failed`.
    fn scan(&self, prefix: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;

    /// Writes all at once; `None` deletes.
    ///
    /// # Errors
    /// `state_failed`.
    fn apply(&mut self, changes: Vec<Change>) -> Result<()>;
}

/// A store in memory: for `scan` and tests.
#[derive(Debug, Default)]
pub struct MemoryStore {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl MemoryStore {
    /// Every pair, in key order.
    #[must_use]
    pub fn dump(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.map.clone().into_iter().collect()
    }
}

impl Store for MemoryStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.map.get(key).cloned())
    }

    fn scan(&self, prefix: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let from = self.map.range(prefix.to_vec()..);
        Ok(from.take_while(|(k, _)| k.starts_with(prefix)).take(limit).map(|(k, v)| (k.clone(), v.clone())).collect())
    }

    fn apply(&mut self, changes: Vec<Change>) -> Result<()> {
        for (key, value) in changes {
            match value {
                Some(v) => self.map.insert(key, v),
                None => self.map.remove(&key),
            };
        }
        Ok(())
    }
}
