//! The records of every topic: names, wire types, headers, ids, canonical form.
//!
//! The JSON Schema of each record is derived from its type and kept under `schemas/`; a test holds
//! both equal.

mod activation;
mod attack;
mod boundary;
mod broadcast;
mod dead_letter;
mod decision;
mod document;
mod headers;
mod ids;
mod meta;
mod retrieval_log;
mod review;
mod screening;
mod source_stamp;
mod vector;
mod write;

pub use activation::{Activation, Copied, RollingFacts};
pub use attack::{
    Analytic, AnomalyAnalysis, AtlasAttack, AtlasRef, Attack, Evidence, FindingInfo, Metadata, NamedValue, Observation,
    ObservedAnomaly, Product, Unmapped,
};
pub use boundary::{Boundary, MAX_ID_BYTES, valid_id, valid_part};
pub use broadcast::{
    ActivePointer, Calibration, CalibrationHistory, CalibrationKind, ConformalRows, Control, Honeypot, HoneypotSet,
    HoneypotState, Scope,
};
pub use dead_letter::{Coordinates, DeadLetterHeaders, DeadLetterStub, Isolation};
pub use decision::{
    Certificate, ChainLink, CharacterFacts, ConformalFacts, ContentFacts, Decision, DecisionBody, DecisionKind,
    InputRef, MemsadFacts, MemsadStatus, PolicyFacts, ResetFacts, RetractionFacts, ScreenFacts, ScreenStatus,
    ShareFacts, SourceFacts, Tail, Tally, Verdict, Versions, WindowFacts, canonical,
};
pub use document::{document, names};
pub use headers::{Headers, names as header};
pub use ids::{Ids, Kind as IdKind};
pub use meta::{Agreement, ApplicationMeta, MemberMeta, Meta, ReadFormats, StateFormats};
pub use retrieval_log::{RawRetrieval, ResultItem};
pub use review::{Review, ReviewAction};
pub use screening::{CharacterCalibration, LeftOut, ScreenCalibration, ScreenGroup, ScreenKind};
pub use source_stamp::{OriginalKey, SourceStamp};
pub use vector::{ONE, Vector, dot, to_cosine};
pub use write::{Embedding, Op, Origin, RawWrite};
