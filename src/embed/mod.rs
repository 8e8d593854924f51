//! Text to unit vectors: cache by content, batches by token budget and deadline on the encoder's own
//! threads, results back in input order.

mod backend;
mod batch;
mod cache;
mod coverage;
mod hash;
mod onnx;
mod pooling;
mod probe;
mod resequence;
mod sabotaged;
mod stage;

pub use backend::{Backend, Encoded, Prefixes, Prepared, Purpose, open};
pub use batch::{Batcher, Sized};
pub use cache::Cache;
pub use hash::Hash;
pub use onnx::Onnx;
pub use probe::{BatchRule, probe};
pub use resequence::Resequencer;
pub use stage::{Done, Embedder, Job};
