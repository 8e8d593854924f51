//! Group metadata with the assignment generation it is good for (KIP-447): offsets are sent with nothing else.

use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::consumer::ConsumerGroupMetadata;

use crate::config::Sabotage;

/// Identity of the member at the broker, as offsets in a transaction need it.
pub type GroupMetadata = ConsumerGroupMetadata;

/// Group metadata with the generation it is good for.
#[derive(Clone, Default)]
pub struct Snapshot {
    inner: Arc<Mutex<Option<Published>>>,
    /// Sabotage only: any generation will do.
    blind: bool,
}

type Published = (u64, Arc<GroupMetadata>);

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

impl Snapshot {
    /// Of no generation yet.
    #[must_use]
    pub fn new(sabotage: Option<Sabotage>) -> Self {
        Self { blind: sabotage == Some(Sabotage::FreshGroupMetadata), ..Self::default() }
    }

    /// The metadata, if it is of this generation.
    #[must_use]
    pub fn of(&self, generation: u64) -> Option<Arc<ConsumerGroupMetadata>> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.as_ref().filter(|(g, _)| *g == generation || self.blind).map(|(_, m)| m.clone())
    }

    pub(super) fn set(&self, value: Option<(u64, Arc<ConsumerGroupMetadata>)>) {
        *self.inner.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }
}
