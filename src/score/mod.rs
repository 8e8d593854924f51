//! MEMSAD scores in exact integers: unit vectors as i16 (scale 32767), so that no SIMD width, thread
//! count or restore changes a bit.

mod calibration;
mod certificate;
mod conformal;
mod copies;
mod drift;
mod hardened;
mod history;
mod interval;
pub mod kernel;
mod keys;
mod memory;
mod memsad;
mod outlier;
mod plus;
mod refit;
mod rolled;
mod rolling;
mod window;

pub use calibration::{FitInput, applicable, fit};
pub use certificate::{Lipschitz, paper_condition, slack};
pub use conformal::{Conformal, Fitted, MOST_ROWS, Row, fewest, level_units, most, pack};
pub use copies::{COPIES, Copies, CopyInput, copy_of};
pub use drift::Distance;
pub use hardened::{Against, Scored, assess_hardened, score};
pub use history::History;
pub use interval::{clopper_pearson, clopper_pearson_at};
pub use keys::{Keys, Tag, tag};
pub use memory::{K, Memory, Pushed, Stored, StoredValue};
pub use memsad::{OTHER_ENCODER, OTHER_FORM, Scores, Settings, assess};
pub use outlier::{NEIGHBOURS, energy, knn};
pub use plus::{
    Deviation, Lexical, Plus, PlusScores, Threshold, Trigrams, Validation, domain_share, lexical, parts, validation,
    vocabulary,
};
pub use refit::{HardenedInput, Sampled, fit_hardened};
pub use rolled::{Change, Measured, Rolled};
pub use rolling::{Accepted, AcceptedValue, Rolling, RollingMark, Rules, name as rolling_name};
pub use window::{Limits, Query, QueryValue, Window, WindowMark};
