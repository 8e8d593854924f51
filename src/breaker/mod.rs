//! What follows a dead letter: a source that fails too often is cut off for a while, and a key whose record
//! was dead-lettered can be held until an operator has dealt with it. Pure: record time only, no clock.
//!
//! In: [`crate::source::Fetched`] and what decoding said. Out: a verdict and the entries that changed; the
//! pipeline keeps them in the unit's state, so that a restart and a replay decide the same.

mod circuit;
mod hold;
mod peek;

pub use circuit::{Breaker, Circuit, Step, Verdict};
pub use hold::Held;
pub use peek::{Peek, record_key};
