//! The encoder behind a trait so small that the test encoder fits in a screen.

use crate::config::{Backend as Kind, Encoder as Settings};
use crate::error::{Code, Error, Result};
use crate::schema::Vector;

/// A tokenised text.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// Piece ids, special pieces included.
    pub ids: Vec<u32>,
    /// The text was longer than the encoder takes.
    pub truncated: bool,
    /// Enough of its letters are in pieces that the encoder has learnt (`encoder.coverage`).
    pub covered: bool,
}

/// A text's vector.
#[derive(Debug, Clone, PartialEq)]
pub struct Encoded {
    /// Unit vector.
    pub vector: Vector,
    /// The text was cut.
    pub truncated: bool,
    /// The encoder knows its script.
    pub covered: bool,
}

impl Encoded {
    /// A vector that the record brought.
    #[must_use]
    pub fn given(vector: Vector) -> Self {
        Self { vector, truncated: false, covered: true }
    }
}

/// What a text is to the encoder: some want to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A question.
    Query,
    /// What may answer one: a memory.
    Passage,
}

/// What the encoder wants in front of texts, such as E5's `query: ` and `passage: `.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prefixes {
    /// Before a query.
    pub query: String,
    /// Before a memory.
    pub passage: String,
}

impl Prefixes {
    /// The text as the encoder takes it.
    #[must_use]
    pub fn text(&self, purpose: Purpose, text: &str) -> String {
        let prefix = match purpose {
            Purpose::Query => &self.query,
            Purpose::Passage => &self.passage,
        };
        format!("{prefix}{text}")
    }
}

/// An encoder. One thread owns it.
pub trait Backend: Send {
    /// Identity: model and tokenizer hashes, runtime, provider, CPU class. Part of every decision.
    fn identity(&self) -> &str;

    /// Dimension of the vectors.
    fn dimension(&self) -> usize;

    /// Tokenises.
    ///
    /// # Errors
    /// `encoder_failed`.
    fn prepare(&self, text: &str) -> Result<Prepared>;

    /// Encodes a batch; f32 values before quantisation, one row a text.
    ///
    /// # Errors
    /// `encoder_failed`.
    fn encode(&mut self, batch: &[Prepared]) -> Result<Vec<Vec<f32>>>;
}

/// Opens the configured encoder; `None` for `precomputed`.
///
/// # Errors
/// `model_missing`, `model_corrupt`, `runtime_missing`, `tokenizer_invalid`.
pub fn open(settings: &Settings) -> Result<Option<Box<dyn Backend>>> {
    match settings.backend {
        Kind::Precomputed => Ok(None),
        Kind::Hash => Ok(Some(Box::new(super::Hash::new(settings.dimension, settings.max_pieces)))),
        Kind::Onnx => Ok(Some(Box::new(super::Onnx::open(settings)?))),
    }
}

/// Quantises a row.
pub(super) fn vector(row: &[f32]) -> Result<Vector> {
    Vector::from_f32(row)
        .ok_or_else(|| Error::new(Code::EncoderFailed, "the encoder gave a vector without a finite norm"))
}
