//! Hashed character trigrams: a stand-in for tests. Equal texts get equal vectors; nothing else is meant.

use sha2::{Digest, Sha256};

use super::{Backend, Prepared};
use crate::error::Result;

/// The stand-in.
#[derive(Debug)]
pub struct Hash {
    dimension: usize,
    max_pieces: usize,
    identity: String,
}

impl Hash {
    /// With vectors of `dimension`.
    #[must_use]
    pub fn new(dimension: usize, max_pieces: usize) -> Self {
        Self { dimension, max_pieces, identity: format!("hash/trigram-v1/{dimension}") }
    }
}

impl Backend for Hash {
    fn identity(&self) -> &str {
        &self.identity
    }

    fn dimension(&self) -> usize {
        self.dimension
    }

    fn prepare(&self, text: &str) -> Result<Prepared> {
        let chars: Vec<char> = format!("  {}  ", text.to_lowercase()).chars().collect();
        let mut ids: Vec<u32> = chars
            .windows(3)
            .map(|w| {
                let digest = Sha256::digest(w.iter().collect::<String>());
                u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
            })
            .collect();
        let limit = self.max_pieces * 4;
        let truncated = ids.len() > limit;
        ids.truncate(limit);
        Ok(Prepared { ids, truncated, covered: true })
    }

    fn encode(&mut self, batch: &[Prepared]) -> Result<Vec<Vec<f32>>> {
        let row = |p: &Prepared| {
            let mut row = vec![0.0_f32; self.dimension];
            for id in &p.ids {
                let sign = if id & 1 == 1 { 1.0 } else { -1.0 };
                row[(*id >> 1) as usize % self.dimension] += sign;
            }
            row[0] += 0.5;
            row
        };
        Ok(batch.iter().map(row).collect())
    }
}
