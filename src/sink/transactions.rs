//! The transactional log as the commit coordinator needs it: one producer, one open transaction.

use std::collections::HashMap;
use std::sync::Arc;

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::Output;
use super::triage::{Call, Failure, triage};
use crate::error::{Action, Code, Error};
use crate::source::{is_denied, refused};

/// A failed step of a transaction with what to do about it.
#[derive(Debug)]
pub struct CommitError {
    /// What to do.
    pub action: Action,
    /// Why.
    pub error: Error,
}

impl CommitError {
    /// A client's error, triaged.
    #[must_use]
    pub fn of(call: Call, e: &KafkaError) -> Self {
        Self::naming(call, e, "")
    }

    /// The same; a refusal names the topic that it is about.
    pub(super) fn naming(call: Call, e: &KafkaError, topic: &str) -> Self {
        let failure = Failure::of(call, e);
        let mut this = Self::triaged(failure, &e.to_string());
        if is_denied(failure.code) {
            let right = match failure.code {
                RDKafkaErrorCode::TransactionalIdAuthorizationFailed => "WRITE on the transactional id".to_owned(),
                RDKafkaErrorCode::GroupAuthorizationFailed => "READ on the group".to_owned(),
                _ if call == Call::Offsets => "READ on an input topic".to_owned(),
                _ => format!("WRITE on topic {topic}"),
            };
            this.error = refused(e, this.error.code(), &format!("{call:?}"), &right);
        }
        this
    }

    /// A call that gave no answer in time: its outcome is unknown.
    #[must_use]
    pub fn timed_out(call: Call) -> Self {
        let failure = Failure {
            call,
            code: RDKafkaErrorCode::OperationTimedOut,
            fatal: false,
            retriable: true,
            abortable: false,
        };
        Self::triaged(failure, "no answer in time").escalated()
    }

    /// A call that does not come back: the client can't be asked for anything else.
    #[must_use]
    pub fn abandoned(call: Call) -> Self {
        let error = Error::new(Code::BrokerUnreachable, format!("{call:?}: the client does not answer"));
        Self { action: Action::Rebuild, error }
    }

    /// A call that failed; `abortable` as the client says it: nothing was done.
    #[must_use]
    pub fn refused(call: Call, abortable: bool) -> Self {
        let code = RDKafkaErrorCode::InvalidTransactionalState;
        Self::triaged(Failure { call, code, fatal: false, retriable: false, abortable }, "refused")
    }

    fn triaged(failure: Failure, what: &str) -> Self {
        let action = triage(failure);
        let code = match action {
            _ if failure.code == RDKafkaErrorCode::FencedInstanceId => Code::InstanceFenced,
            Action::Rebuild => Code::TransactionUnknown,
            Action::Stop => Code::BrokerRefused,
            _ => Code::TransactionAborted,
        };
        Self { action, error: Error::new(code, format!("{:?}: {what}", failure.call)) }
    }

    /// A call that may be repeated, but was for too long.
    #[must_use]
    pub fn escalated(mut self) -> Self {
        if self.action == Action::RetrySame {
            self.action = Action::Abort;
        }
        self
    }
}

/// Changelog offsets of delivered records, by unit: the last one.
pub type Delivered = HashMap<i32, i64>;

/// An input that a transaction consumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputOffset {
    /// Physical topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Offset after the last one taken.
    pub next: i64,
}

/// What the commit coordinator asks of its producer. Every failure comes with its triage.
pub trait Transactions: std::fmt::Debug {
    /// Identity of the member whose assignment the inputs belong to.
    type Group;

    /// Begins a transaction unless one is open.
    ///
    /// # Errors
    /// By triage.
    fn begin(&mut self) -> Result<(), CommitError>;

    /// Hands an output over.
    ///
    /// # Errors
    /// By triage.
    fn send(&mut self, topic: &str, output: &Output) -> Result<(), CommitError>;

    /// Hands a state change over; its offset comes back from [`Transactions::drain`].
    ///
    /// # Errors
    /// By triage.
    fn log_change(&mut self, topic: &str, unit: i32, key: &[u8], value: Option<&[u8]>) -> Result<(), CommitError>;

    /// Waits until all is delivered; returns the changelog's last offsets.
    ///
    /// # Errors
    /// A failed delivery, or the deadline.
    fn drain(&mut self) -> Result<Delivered, CommitError>;

    /// Adds the inputs' offsets to the transaction, fenced by the member's generation (KIP-447).
    ///
    /// # Errors
    /// By triage.
    fn send_offsets(&mut self, offsets: &[InputOffset], group: &Arc<Self::Group>) -> Result<(), CommitError>;

    /// Commits what was drained.
    ///
    /// # Errors
    /// By triage; an unknown outcome is `Rebuild`.
    fn commit(&mut self) -> Result<(), CommitError>;

    /// Aborts; queued records are dropped.
    ///
    /// # Errors
    /// By triage.
    fn abort(&mut self) -> Result<(), CommitError>;

    /// Serves delivery reports.
    fn poll(&mut self) {}
}
