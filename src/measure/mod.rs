//! Measurements that a user can repeat: scoring kernels side by side, encoders side by side.

mod contend;
pub mod encoders;
pub mod hardened;
pub mod kernels;

pub use contend::{Spread, median};
