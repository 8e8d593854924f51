//! Start-up probe (DESIGN 1.6): are a text's bits the same alone and in a mixed padded batch?

use super::Backend;
use super::backend::vector;
use crate::error::Result;

/// How texts may be batched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchRule {
    /// Any batch gives the same i16 vectors.
    Any,
    /// One unpadded text a call.
    One,
}

impl BatchRule {
    /// Part of the encoder's identity.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            BatchRule::Any => "any",
            BatchRule::One => "one",
        }
    }
}

/// Number of probe texts.
const TEXTS: usize = 64;

/// Embeds 64 texts of mixed lengths alone and in batches of 7; compares the i16 vectors.
///
/// # Errors
/// `encoder_failed`.
pub fn probe(backend: &mut dyn Backend) -> Result<BatchRule> {
    let words = ["the", "nightly", "report", "goes", "to", "room", "four", "after", "Ada", "has", "checked", "it"];
    let text = |i: usize| (0..1 + i % 40).map(|j| words[(i * 7 + j * 5) % words.len()]).collect::<Vec<_>>().join(" ");
    let prepared = (0..TEXTS).map(|i| backend.prepare(&text(i))).collect::<Result<Vec<_>>>()?;
    let mut alone = Vec::new();
    for p in &prepared {
        alone.extend(backend.encode(std::slice::from_ref(p))?);
    }
    let mut batched = Vec::new();
    for chunk in prepared.chunks(7) {
        batched.extend(backend.encode(chunk)?);
    }
    for (a, b) in alone.iter().zip(&batched) {
        if vector(a)? != vector(b)? {
            return Ok(BatchRule::One);
        }
    }
    Ok(BatchRule::Any)
}
