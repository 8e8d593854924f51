//! What the fuzz targets call: each function takes any bytes and must neither panic, hang nor grow without
//! bound. `scripts/fuzz` builds and runs them (docs/fuzzing.md).

mod bytes;
mod records;
mod stream;
mod texts;

pub use records::{adapters, decision, headers, letter, retrieval, write};
pub use stream::{broadcast, changelog, pipeline, state};
pub use texts::{config, http, policy, topology};
