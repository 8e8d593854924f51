//! The topology: load, then validate, then run. Running code asks this value and re-checks nothing.

mod acls;
mod breaker;
mod change;
mod describe;
mod detectors;
mod dot;
mod format;
mod load;
mod model;
mod topic;
mod units;
mod validate;

pub use acls::{Acl, Actor, META_ID, Names, Operation, Resource, acls, kafka_acls};
pub use breaker::{Breaker, OnDeadLetter};
pub use change::{Change, Effect, Settings, agreed, changes, fingerprint};
pub use describe::describe;
pub use detectors::{
    Form, Memsad, MemsadMode, Posture, PostureKind, Retract, RollingRows, Screen, Sprt, Statistic, Switch,
};
pub use dot::dot;
pub use format::{Format, Mapping, OnPartial, Part};
pub use model::{Assignor, Commit, Consumer, Flow, Flows, Limits, OnOutOfRange, Role, Store, Topology};
pub use topic::{Cleanup, KeyKind, Repartition, Retention, Timestamps, Topic};
pub use validate::TRANSACTION_MARGIN;
