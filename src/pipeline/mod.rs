//! All stages in order, and the one place where order is decided.

mod ahead;
mod commit;
mod copy_path;
#[cfg(test)]
mod crash_matrix;
mod engine;
mod facts_path;
mod failpoint;
mod gate;
mod label_path;
mod machine;
mod memories;
mod meter;
mod outputs;
mod policy_path;
mod registry;
mod repartition;
mod retrieval_path;
mod rolling_path;
mod screen_path;
mod share_path;
mod sources;
mod summary;
mod task;
mod timed;
mod unit;
mod write_path;

pub use ahead::{Admitted, Ahead};
pub use commit::{Committer, Faults, Step as CommitStep};
pub use engine::{Embeds, Engine, EngineSettings, Pending, Stage};
pub use failpoint::{Failpoint, Fault, STEPS, Side};
pub use machine::{Command, Event as MachineEvent, Machine, State as MachineState};
pub use registry::Registry;
pub use repartition::{Repartition, RepartitionSettings};
pub use summary::Summary;
pub use task::{OnOutput, OnProgress, OnRestore, Rejoin, Remake, RunOptions, StopStep, Task, TaskParts};
pub use unit::Unit;
