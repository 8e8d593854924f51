//! MEMSAD scores in exact integers: unit vectors as i16 (scale 32767), so that no SIMD width, thread
//! count or restore changes a bit.

mod calibration;
mod history;
mod interval;
pub mod kernel;
mod memsad;
mod outlier;
mod plus;

pub use calibration::{FitInput, applicable, fit};
pub use history::History;
pub use interval::clopper_pearson;
pub use memsad::{Scores, Settings, assess};
pub use outlier::{NEIGHBOURS, energy, knn};
pub use plus::{
    Deviation, Lexical, Plus, PlusScores, Threshold, Trigrams, Validation, domain_share, lexical, parts, validation,
    vocabulary,
};
