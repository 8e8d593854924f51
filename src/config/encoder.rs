//! Settings of the encoder.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Sabotage;
use crate::error::{Code, Error, Result};

/// Which encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// ONNX Runtime.
    #[default]
    Onnx,
    /// The vector in the record; a record without one gets the posture.
    Precomputed,
    /// Hashed character trigrams: for tests, no meaning.
    Hash,
}

/// From the vectors of a text's pieces to one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// Their mean over the attention mask: MiniLM, E5.
    #[default]
    Mean,
    /// The first piece's: BGE.
    Cls,
    /// The model gives one vector a text.
    Model,
}

/// Where the encoder runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Device {
    /// The CPU.
    #[default]
    Cpu,
    /// The first NVIDIA device; without one the program stops.
    Cuda,
    /// The device where ONNX Runtime can use it, else the CPU, with a line in the log.
    Auto,
}

/// Encoder settings.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Encoder {
    /// Backend.
    pub backend: Backend,
    /// `model.onnx`.
    pub model: Option<PathBuf>,
    /// `tokenizer.json`.
    pub tokenizer: Option<PathBuf>,
    /// `libonnxruntime.so`.
    pub runtime: Option<PathBuf>,
    /// Where it runs.
    pub device: Device,
    /// How pieces become one vector.
    pub pooling: Pooling,
    /// Put in front of queries.
    pub query_prefix: String,
    /// Put in front of memories.
    pub passage_prefix: String,
    /// Share of a text's letters, 0 to 1, that must be in pieces of two letters or more; below, the text's script is
    /// unknown to the encoder. 0 turns it off.
    pub coverage: f64,
    /// Dimension of the vectors.
    pub dimension: usize,
    /// Longer texts are cut here, with the flag `truncated`.
    pub max_pieces: usize,
    /// Padded pieces in one batch.
    pub batch_tokens: usize,
    /// A batch waits at most this long for more texts, ms.
    pub batch_deadline_ms: u64,
    /// Encoder threads.
    pub threads: usize,
    /// Texts whose vectors are kept by content.
    pub cache_entries: usize,
    /// That of the process.
    #[serde(skip)]
    pub sabotage: Option<Sabotage>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self {
            backend: Backend::Onnx,
            model: None,
            tokenizer: None,
            runtime: None,
            device: Device::Cpu,
            pooling: Pooling::Mean,
            query_prefix: String::new(),
            passage_prefix: String::new(),
            coverage: 0.5,
            dimension: 384,
            max_pieces: 256,
            batch_tokens: 2048,
            batch_deadline_ms: 5,
            threads: 1,
            cache_entries: 20_000,
            sabotage: None,
        }
    }
}

/// Longest prefix, bytes: it takes pieces from every text.
const PREFIX: usize = 256;

impl Encoder {
    /// # Errors
    /// `config_invalid`.
    pub(super) fn check(&self) -> Result<()> {
        let ranges = [
            ("encoder.dimension", self.dimension, 1, 4096),
            ("encoder.max_pieces", self.max_pieces, 8, 8192),
            ("encoder.threads", self.threads, 1, 64),
            ("the length of encoder.query_prefix", self.query_prefix.len(), 0, PREFIX),
            ("the length of encoder.passage_prefix", self.passage_prefix.len(), 0, PREFIX),
        ];
        for (name, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                return Err(Error::new(Code::ConfigInvalid, format!("{name} is {value}; it must be {low} to {high}")));
            }
        }
        if self.batch_tokens < self.max_pieces {
            return Err(Error::new(Code::ConfigInvalid, "encoder.batch_tokens must be at least encoder.max_pieces"));
        }
        if !(0.0..=1.0).contains(&self.coverage) {
            return Err(Error::new(Code::ConfigInvalid, "encoder.coverage must be 0 to 1"));
        }
        Ok(())
    }
}
