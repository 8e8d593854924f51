//! Sessions of readers: honeypot hits, the sequential test, stream-time expiry. Pure.

mod sprt;
mod track;

pub use sprt::{Exact, SprtTable, Step};
pub use track::{Crossing, Observed, Phase, SessionState, observe};
