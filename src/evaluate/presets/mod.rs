//! Published tables, measured again.

mod hardened;
mod paper;

pub use hardened::hardened;
pub use paper::memsad_paper;
