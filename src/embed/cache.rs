//! Vectors by content, so that a repeated text isn't encoded twice. Bit-identical to encoding it again.

use quick_cache::sync::Cache as Inner;
use sha2::{Digest, Sha256};

use super::Encoded;

/// The cache; shared between the task and the encoder threads.
#[derive(Debug)]
pub struct Cache {
    inner: Inner<[u8; 32], Encoded>,
}

impl Cache {
    /// Holds about `entries` vectors.
    #[must_use]
    pub fn new(entries: usize) -> Self {
        Self { inner: Inner::new(entries.max(1)) }
    }

    /// The vector of a text.
    #[must_use]
    pub fn get(&self, text: &str) -> Option<Encoded> {
        self.inner.get(&key(text))
    }

    /// Keeps one.
    pub fn put(&self, text: &str, encoded: Encoded) {
        self.inner.insert(key(text), encoded);
    }
}

fn key(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}
