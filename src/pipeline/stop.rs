//! The last steps of a run: commit what is decided, flush the state, leave the group. The first step that
//! fails names the error, and with it the exit status.

use super::machine::Command;
use crate::error::{Code, Error};

/// A step of a graceful stop, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopStep {
    /// Outputs and changelog are delivered.
    Drain,
    /// Offsets are added, the transaction is committed.
    Commit,
    /// The state is written and synced.
    Flush,
    /// The consumer leaves and its thread ends.
    Leave,
}

impl StopStep {
    /// The step that a failed command of the commit machine belongs to.
    #[must_use]
    pub fn of(command: Command) -> Self {
        match command {
            Command::Begin | Command::Drain => Self::Drain,
            Command::SendOffsets | Command::Commit => Self::Commit,
            Command::Apply => Self::Flush,
            // What is left after a first failure, which was named before.
            Command::Abort | Command::Rollback | Command::Rebuild | Command::Stop => Self::Commit,
        }
    }

    /// The error of a stop whose step failed.
    #[must_use]
    pub fn failed(self, cause: Error) -> Error {
        let (code, what) = match self {
            Self::Drain => (Code::StopDrainFailed, "stopping: records were not delivered"),
            Self::Commit => (Code::StopCommitFailed, "stopping: the last transaction was not committed"),
            Self::Flush => (Code::StopFlushFailed, "stopping: the local state was not written"),
            Self::Leave => (Code::StopLeaveFailed, "stopping: the group was not left"),
        };
        tracing::error!(step = ?self, %cause, "the stop failed");
        Error::new(code, format!("{what}: {} [{}]", cause.message(), cause.code().name()))
    }
}
