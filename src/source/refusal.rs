//! A broker's refusal as an error that names what lacks.

use rdkafka::error::{KafkaError, RDKafkaErrorCode as E};

use crate::error::{Code, Error};

/// Whether a principal that is known lacks a right.
pub(crate) fn is_denied(code: E) -> bool {
    matches!(
        code,
        E::TopicAuthorizationFailed
            | E::GroupAuthorizationFailed
            | E::TransactionalIdAuthorizationFailed
            | E::ClusterAuthorizationFailed
            | E::DelegationTokenAuthorizationFailed
    )
}

/// The error of a failed request: `access_denied` with the right that lacks, `authentication_failed`, or else
/// what the caller says.
pub(crate) fn refused(error: &KafkaError, otherwise: Code, what: &str, right: &str) -> Error {
    let cause = error.to_string();
    match error.rdkafka_error_code() {
        Some(code) if is_denied(code) => {
            Error::with(Code::AccessDenied, format!("{what}: this principal lacks {right}"), cause)
        }
        Some(E::Authentication | E::SaslAuthenticationFailed) => {
            Error::with(Code::AuthenticationFailed, what.to_owned(), cause)
        }
        Some(E::SSL) => Error::with(Code::TlsFailed, what.to_owned(), cause),
        _ => Error::with(otherwise, what.to_owned(), cause),
    }
}
