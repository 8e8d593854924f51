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

/// Rights, versions and limits that no repetition mends: a person must.
fn never_heals(code: E) -> bool {
    matches!(
        code,
        E::TransactionalIdAuthorizationFailed
            | E::TopicAuthorizationFailed
            | E::GroupAuthorizationFailed
            | E::ClusterAuthorizationFailed
            | E::SaslAuthenticationFailed
            | E::Authentication
            | E::UnsupportedSASLMechanism
            | E::IllegalSASLState
            | E::SecurityDisabled
            | E::SSL
            | E::UnsupportedFeature
            | E::UnsupportedVersion
            | E::UnsupportedForMessageFormat
            | E::UnsupportedCompressionType
            | E::InvalidTransactionTimeout
            | E::InvalidConfig
            | E::InvalidTopic
            | E::InvalidRecord
            | E::InvalidRequiredAcks
            | E::InvalidTimestamp
            | E::MessageSizeTooLarge
            | E::PolicyViolation
            | E::FencedInstanceId
    )
}

/// What to do: total over calls, codes and the client's three predicates. An unknown outcome of a commit is
/// always a rebuild; rights, versions and limits never heal by themselves.
#[must_use]
pub fn triage(f: Failure) -> Action {
    if never_heals(f.code) {
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
    use std::fmt::Write as _;

    use rdkafka::types::RDKafkaRespErr;

    use super::*;

    const CALLS: [Call; 7] =
        [Call::Init, Call::Begin, Call::Send, Call::Deliver, Call::Offsets, Call::Commit, Call::Abort];

    /// Every code that librdkafka knows.
    fn codes() -> Vec<E> {
        (-200..=200).filter_map(|n| RDKafkaRespErr::try_from(n).ok()).map(E::from).collect()
    }

    fn failures() -> impl Iterator<Item = Failure> {
        codes().into_iter().flat_map(|code| {
            CALLS.into_iter().flat_map(move |call| {
                (0..8).map(move |bits| Failure {
                    call,
                    code,
                    fatal: bits & 1 != 0,
                    retriable: bits & 2 != 0,
                    abortable: bits & 4 != 0,
                })
            })
        })
    }

    /// The rules that nothing may bend, over every call, code and combination of predicates.
    #[test]
    fn total_and_safe() {
        assert!(codes().len() > 165);
        for f in failures() {
            let action = triage(f);
            if never_heals(f.code) {
                assert_eq!(action, Action::Stop, "{f:?}");
                continue;
            }
            if f.fatal && f.call != Call::Init {
                assert_eq!(action, Action::Rebuild, "a fatal client is replaced: {f:?}");
            }
            if f.call == Call::Commit && !f.abortable {
                assert_eq!(action, Action::Rebuild, "an unknown outcome is a rebuild: {f:?}");
            }
            if f.call == Call::Deliver {
                assert_ne!(action, Action::RetrySame, "a failed delivery is never produced again: {f:?}");
            }
            assert_ne!(action, Action::DeadLetter, "{f:?}");
        }
    }

    /// One row a code: actions by call, without a predicate and when it is retriable, abortable, fatal. The
    /// table is read by people: a change in it is a change of what a fault does.
    #[test]
    fn the_table_is_as_reviewed() {
        let short = |a: Action| match a {
            Action::RetrySame => 'r',
            Action::Abort => 'a',
            Action::Rebuild => 'B',
            Action::DeadLetter => 'd',
            Action::Stop => 'S',
        };
        let mut table = String::from(
            "# code: init begin send deliver offsets commit abort, each plain/retriable/abortable/fatal\n\
             # r retry the same call, a abort, B rebuild, S stop\n",
        );
        for code in codes() {
            write!(table, "{code:?}:").unwrap();
            for call in CALLS {
                let cell = [0, 2, 4, 1].map(|bits| {
                    short(triage(Failure {
                        call,
                        code,
                        fatal: bits & 1 != 0,
                        retriable: bits & 2 != 0,
                        abortable: bits & 4 != 0,
                    }))
                });
                write!(table, " {}", cell.iter().collect::<String>()).unwrap();
            }
            table.push('\n');
        }
        let reviewed = include_str!("../../tests/golden/triage.txt");
        assert!(reviewed == table, "tests/golden/triage.txt differs; the table is now:\n{table}");
    }
}
