//! The topology: load, then validate, then run. Running code asks this value and re-checks nothing.

mod acls;
mod breaker;
mod change;
mod describe;
mod dot;
mod load;
mod model;
mod validate;

pub use acls::{Acl, Actor, META_ID, Names, Operation, Resource, acls, kafka_acls};
pub use breaker::{Breaker, OnDeadLetter};
pub use change::{Change, Effect, Settings, agreed, changes, fingerprint};
pub use describe::describe;
pub use dot::dot;
pub use model::{
    Assignor, Cleanup, Commit, Consumer, Flow, Flows, KeyKind, Limits, Memsad, MemsadMode, OnOutOfRange, Posture,
    PostureKind, Repartition, Retention, Role, Sprt, Statistic, Store, Timestamps, Topic, Topology,
};
pub use validate::TRANSACTION_MARGIN;
