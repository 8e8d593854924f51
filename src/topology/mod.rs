//! The topology: load, then validate, then run. Running code asks this value and re-checks nothing.

mod breaker;
mod describe;
mod load;
mod model;
mod validate;

pub use breaker::{Breaker, OnDeadLetter};
pub use describe::describe;
pub use model::{
    Assignor, Cleanup, Commit, Consumer, Flow, Flows, KeyKind, Limits, Memsad, MemsadMode, Posture, PostureKind,
    Repartition, Retention, Role, Sprt, Statistic, Store, Timestamps, Topic, Topology,
};
