//! The last steps of a run: commit what is decided, flush the state, leave the group. The first step that
//! fails names the error, and with it the exit status.

use super::super::commit::Step;
use super::super::machine::Command;
use super::Task;
use crate::error::{Code, Error, Result};

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
        tracing::error!(step = ?self, cause = cause.message(), "the stop failed");
        Error::new(code, format!("{what}: {} [{}]", cause.message(), cause.code().name()))
    }
}

impl Task {
    /// Commits what is decided. Between two assignments there is nothing to commit with: what is open is
    /// rolled back and decided again by whoever gets the units.
    pub(super) fn last_commit(&mut self) -> Result<()> {
        let between = self.p.poll.snapshot.of(self.generation).is_none();
        let step = if between { self.committer.lose(&mut self.p.state) } else { self.try_commit() };
        let at = self.committer.failed_at().map_or(StopStep::Commit, StopStep::of);
        match step {
            Step::Nothing => Ok(()),
            Step::Committed => {
                self.committed_now();
                Ok(())
            }
            Step::Rollback(_) if between => {
                tracing::info!("stopping between two assignments: what was open is rolled back");
                Ok(())
            }
            Step::Rollback(cause) | Step::Rebuild(cause) | Step::Stop(cause) => Err(at.failed(cause)),
        }
    }

    /// Syncs the state, then leaves the group: the first step that fails.
    pub(super) fn leave(&mut self) -> Result<()> {
        let flushed = self.p.state.store().flush().map_err(|e| StopStep::Flush.failed(e));
        let left = self.p.poll.stop().map_err(|e| StopStep::Leave.failed(e));
        flushed.and(left)
    }
}
