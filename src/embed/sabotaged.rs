//! An encoder that is slow or fails on purpose, around any other, so that postures and budgets can be seen
//! at work.

use std::time::Duration;

use super::{Backend, Prepared};
use crate::config::Sabotage;
use crate::error::{Code, Error, Result};

/// Time a text takes under `encoder_slow`.
const SLOW: Duration = Duration::from_millis(2);

/// The wrapper.
pub(super) struct Sabotaged {
    inner: Box<dyn Backend>,
    how: Sabotage,
    calls: u64,
}

impl Sabotaged {
    /// Wraps where the sabotage is one of the encoder's.
    pub(super) fn wrap(inner: Box<dyn Backend>, how: Option<Sabotage>) -> Box<dyn Backend> {
        match how {
            Some(how @ (Sabotage::EncoderSlow | Sabotage::EncoderFails | Sabotage::EncoderFlaky)) => {
                Box::new(Self { inner, how, calls: 0 })
            }
            _ => inner,
        }
    }
}

impl Backend for Sabotaged {
    fn identity(&self) -> &str {
        self.inner.identity()
    }

    fn dimension(&self) -> usize {
        self.inner.dimension()
    }

    fn prepare(&self, text: &str) -> Result<Prepared> {
        self.inner.prepare(text)
    }

    fn encode(&mut self, batch: &[Prepared]) -> Result<Vec<Vec<f32>>> {
        self.calls += 1;
        let fails = match self.how {
            Sabotage::EncoderSlow => {
                std::thread::sleep(SLOW * u32::try_from(batch.len()).unwrap_or(u32::MAX));
                false
            }
            // By content: the same texts fail in every run.
            Sabotage::EncoderFails => {
                batch.iter().any(|p| p.ids.iter().fold(0_u32, |a, id| a.wrapping_add(*id)) % 3 == 0)
            }
            _ => self.calls.is_multiple_of(3),
        };
        if fails {
            return Err(Error::new(Code::EncoderFailed, "sabotage"));
        }
        self.inner.encode(batch)
    }
}
