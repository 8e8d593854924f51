//! Client error to action: one total, pure function.

use rdkafka::error::{KafkaError, RDKafkaErrorCode as E};

use crate::error::Action;

/// Which call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// `init_transactions`.
    Init,
    /// `begin_transaction`.
    Begin,
    /// `send`.
    Send,
    /// A delivery report, or the drain's deadline.
    Deliver,
    /// `send_offsets_to_transaction`.
    Offsets,
    /// `commit_transaction`.
    Commit,
    /// `abort_transaction`.
    Abort,
}

/// A failure as triage sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Call.
    pub call: Call,
    /// librdkafka's code.
    pub code: E,
    /// The client is of no more use.
    pub fatal: bool,
    /// The same call may succeed.
    pub retriable: bool,
    /// The transaction must be aborted.
    pub abortable: bool,
}

impl Failure {
    /// Reads a client error.
    #[must_use]
    pub fn of(call: Call, error: &KafkaError) -> Self {
        let code = error.rdkafka_error_code().unwrap_or(E::Fail);
        match error {
            KafkaError::Transaction(e) => Self {
                call,
                code: e.code(),
                fatal: e.is_fatal(),
                retriable: e.is_retriable(),
                abortable: e.txn_requires_abort(),
            },
            _ => Self { call, code, fatal: code == E::Fatal, retriable: code == E::QueueFull, abortable: false },
        }
    }
}

/// What to do. An unknown outcome of a commit is always a rebuild; authorisation never heals by itself.
#[must_use]
pub fn triage(f: Failure) -> Action {
    let denied = matches!(
        f.code,
        E::TransactionalIdAuthorizationFailed
            | E::TopicAuthorizationFailed
            | E::GroupAuthorizationFailed
            | E::ClusterAuthorizationFailed
            | E::SaslAuthenticationFailed
            | E::Authentication
            | E::UnsupportedFeature
            | E::InvalidTransactionTimeout
    );
    if denied {
        return Action::Stop;
    }
    match f.call {
        Call::Init if f.retriable => Action::RetrySame,
        Call::Init => Action::Stop,
        Call::Commit | Call::Abort if f.abortable && !f.fatal => Action::Abort,
        Call::Commit | Call::Abort => Action::Rebuild,
        _ if f.fatal => Action::Rebuild,
        // librdkafka's own state disagrees: never guess (55 in the lessons).
        _ if f.code == E::State => Action::Rebuild,
        Call::Begin | Call::Send | Call::Offsets if f.retriable && !f.abortable => Action::RetrySame,
        Call::Begin => Action::Rebuild,
        Call::Send | Call::Deliver | Call::Offsets => Action::Abort,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: [Call; 7] =
        [Call::Init, Call::Begin, Call::Send, Call::Deliver, Call::Offsets, Call::Commit, Call::Abort];
    const CODES: [E; 14] = [
        E::Fenced,
        E::ProducerFenced,
        E::InvalidProducerEpoch,
        E::InvalidProducerIdMapping,
        E::State,
        E::OperationTimedOut,
        E::MessageTimedOut,
        E::QueueFull,
        E::IllegalGeneration,
        E::UnknownMemberId,
        E::RebalanceInProgress,
        E::TransactionalIdAuthorizationFailed,
        E::MessageSizeTooLarge,
        E::Fail,
    ];

    /// The rules that nothing may bend, over every call, code and combination of predicates.
    #[test]
    fn total_and_safe() {
        for call in CALLS {
            for code in CODES {
                for bits in 0..8 {
                    let f = Failure {
                        call,
                        code,
                        fatal: bits & 1 != 0,
                        retriable: bits & 2 != 0,
                        abortable: bits & 4 != 0,
                    };
                    let action = triage(f);
                    if code == E::TransactionalIdAuthorizationFailed {
                        assert_eq!(action, Action::Stop, "{f:?}");
                        continue;
                    }
                    if f.fatal && call != Call::Init {
                        assert_eq!(action, Action::Rebuild, "a fatal client is replaced: {f:?}");
                    }
                    if call == Call::Commit && !f.abortable {
                        assert_eq!(action, Action::Rebuild, "an unknown outcome is a rebuild: {f:?}");
                    }
                    if call == Call::Deliver {
                        assert_ne!(action, Action::RetrySame, "a failed delivery is never produced again: {f:?}");
                    }
                    assert_ne!(action, Action::DeadLetter, "{f:?}");
                }
            }
        }
    }
}
