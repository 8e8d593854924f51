//! Bytes to typed inputs: our own JSON, and the shapes that producers write; what fails becomes a dead letter.
//!
//! In: [`Fetched`](crate::source::Fetched). Out: [`Write`]s or [`Retrieval`]s. Pure.

mod adapters;
mod envelope;
mod facts;
mod native;
mod shape;
mod sniff;
mod tree;

pub use facts::{Facts, boundary_of, retrievals, writes};
pub use native::{Retrieval, Returned, Rules, Write, boundary, render, retrieval, write};
pub use shape::MAX_FACTS;
