//! Attacks against defenses, measured with denominators, intervals and controls (DESIGN 6, `defenses.md` 8).
//!
//! ```text
//! corpus, data -> attacks -> defenses -> cells -> report
//!                    vectors ----^        |
//!                                work folder: a killed run goes on
//! ```
//!
//! `stats`, `text`, `model`, `corpus` and `report` are pure. `vectors`, `data` and `work` read and write files.

mod cell;
mod failing;
mod margins;
mod model;
mod retrieval;
mod rng;
mod row;
mod text;
mod vectors;
mod work;

pub mod attacks;
pub mod corpus;
pub mod data;
pub mod defenses;
pub mod matrix;
pub mod presets;
pub mod report;
pub mod stats;

pub use cell::{Cell, ControlCell, Histogram};
pub use defenses::{Defense, Judged};
pub use failing::failing;
pub use margins::margins;
pub use model::{Attack, Boundary, Control, Provenance, Truth, Write, digest, key_and_value};
pub use retrieval::{Retrieval, Store};
pub use rng::Rng;
pub use row::Row;
pub use text::{LENGTHS, length_bucket, script};
pub use vectors::{Encode, Vectors};
pub use work::Work;
