//! Signs in once before anything else starts, so that a wrong password, certificate or right is an error with
//! a name; and tries what the stream will have to read.
#![allow(clippy::disallowed_methods)] // start-up calls with their own deadlines

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as E};
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use super::client::{client_log, reader_config};
use super::refusal::refused;
use super::tail::passing;
use crate::clock::monotonic;
use crate::error::{Code, Error, Result};
use crate::topology::{Role, Topology};

/// Longest wait for a first answer, and for one partition.
const ANSWER: Duration = Duration::from_secs(15);
/// What one try takes at most; errors are looked at in between.
const TRY: Duration = Duration::from_millis(300);
/// How long events are served after a try.
const SERVE: Duration = Duration::from_millis(100);
/// Topics that the stream reads, at a start or later.
const READ: [Role; 7] = [
    Role::MemoryWrites,
    Role::RetrievalLogs,
    Role::Decisions,
    Role::Changelog,
    Role::Calibrations,
    Role::Honeypots,
    Role::Meta,
];

/// Keeps the first errors that say why no connection comes up.
#[derive(Debug, Default)]
struct Probe {
    why: Mutex<Option<(Code, String)>>,
    /// What may pass too: it counts when the time is over.
    hint: Mutex<Option<String>>,
}

impl ClientContext for Probe {
    /// The reason ends in the error of this command; each retry would repeat it.
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        let level = if facility == "FAIL" { RDKafkaLogLevel::Debug } else { level };
        client_log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "connecting");
        if closed_early(reason) {
            self.hint.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| reason.to_owned());
        }
        if let Some(code) = cause(error.rdkafka_error_code(), reason) {
            let mut why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
            why.get_or_insert_with(|| (code, reason.to_owned()));
        }
    }
}

impl ConsumerContext for Probe {}

impl Probe {
    fn hint(&self) -> Option<String> {
        self.hint.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn why(&self) -> Option<(Code, String)> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What a client error says about the connection; `None` for what may pass.
fn cause(code: Option<E>, reason: &str) -> Option<Code> {
    match code? {
        E::Authentication | E::SaslAuthenticationFailed | E::UnsupportedSASLMechanism | E::IllegalSASLState => {
            Some(Code::AuthenticationFailed)
        }
        E::SSL => Some(Code::TlsFailed),
        // A broker that refuses our certificate answers with an alert and closes.
        E::BrokerTransportFailure if reason.contains("SSL routines") => Some(Code::TlsFailed),
        _ => None,
    }
}

/// A side that expects TLS, or does not, closes at the other's first bytes; a broker that goes down does so too.
fn closed_early(reason: &str) -> bool {
    let first = ["SSL_HANDSHAKE", "APIVERSION_QUERY"].iter().any(|state| reason.contains(state));
    first && reason.contains("closed by peer")
}

/// The settings to look at, for the mechanism in use.
fn settings(client: &ClientConfig, code: Code) -> &'static str {
    let mechanism = client.get("sasl.mechanisms").or_else(|| client.get("sasl.mechanism")).unwrap_or_default();
    match code {
        Code::TlsFailed => {
            "security.protocol, ssl.ca.location, the host names in kafka.bootstrap, and ssl.certificate.location with ssl.key.location where the broker asks for a certificate"
        }
        _ if mechanism.eq_ignore_ascii_case("OAUTHBEARER") => {
            "sasl.oauthbearer.token.endpoint.url, sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret, and the token's lifetime, issuer and audience"
        }
        _ => "sasl.mechanisms, sasl.username and sasl.password",
    }
}

fn probe(client: &ClientConfig) -> Result<BaseConsumer<Probe>> {
    reader_config(client, "read_committed", "memsluice-connect")
        .create_with_context(Probe::default())
        .map_err(|e| Error::with(Code::ConfigInvalid, "a client can't be made", e))
}

/// Connects and signs in.
///
/// # Errors
/// `tls_failed`, `authentication_failed`, `broker_unreachable`, `config_invalid`.
pub fn connect(client: &ClientConfig) -> Result<()> {
    let consumer = probe(client)?;
    let until = monotonic() + ANSWER;
    loop {
        // A question about topics opens a connection at once. Its answer may be an error: no topic has this name.
        drop(consumer.fetch_metadata(Some("memsluice"), TRY));
        let answer = consumer.client().fetch_cluster_id(TRY);
        if answer.is_some() {
            return Ok(());
        }
        // Many events come before the first error; each poll serves them for this long.
        drop(consumer.poll(SERVE));
        if let Some((code, reason)) = consumer.context().why() {
            let what = format!("the broker and this client don't agree; look at {}", settings(client, code));
            return Err(Error::with(code, what, reason));
        }
        if monotonic() > until {
            return Err(silent(consumer.context().hint(), client));
        }
    }
}

fn silent(hint: Option<String>, client: &ClientConfig) -> Error {
    match hint {
        Some(reason) => {
            let what = format!("every connection is closed at once; look at {}", settings(client, Code::TlsFailed));
            Error::with(Code::TlsFailed, what, reason)
        }
        None => Error::new(Code::BrokerUnreachable, format!("no broker answers within {ANSWER:?}")),
    }
}

/// Fetches once from each topic that the stream reads: an empty topic would hide a missing right until a
/// restart needs it.
///
/// # Errors
/// `access_denied`, `broker_refused`, `broker_unreachable`.
pub fn readable(client: &ClientConfig, topology: &Topology) -> Result<()> {
    let consumer = probe(client)?;
    for role in READ {
        let name = topology.name(role);
        let right = format!("READ on topic {name}");
        let mut list = TopicPartitionList::new();
        // Known leaders: the consumer asks for those of unknown topics once a second only.
        drop(consumer.fetch_metadata(Some(name), ANSWER));
        list.add_partition_offset(name, 0, Offset::End)
            .map_err(|e| Error::with(Code::Internal, "a partition list", e))?;
        let ask = || consumer.assign(&list).map_err(|e| Error::with(Code::Internal, "a partition list", e));
        ask()?;
        let until = monotonic() + ANSWER;
        loop {
            match consumer.poll(Duration::from_millis(100)) {
                Some(Ok(_) | Err(KafkaError::PartitionEOF(_))) => break,
                Some(Err(e)) if e.rdkafka_error_code() == Some(E::GroupAuthorizationFailed) => {
                    let group = client.get("group.id").unwrap_or_default();
                    return Err(refused(&e, Code::BrokerRefused, "reading failed", &format!("READ on group {group}")));
                }
                // The end was not known, as with a topic that has no leader yet: asked again.
                Some(Err(e)) if e.rdkafka_error_code() == Some(E::AutoOffsetReset) && monotonic() < until => {
                    std::thread::sleep(Duration::from_millis(100));
                    ask()?;
                }
                Some(Err(e)) if !e.rdkafka_error_code().is_some_and(passing) => {
                    return Err(refused(&e, Code::BrokerRefused, &format!("{name} can't be read"), &right));
                }
                _ if monotonic() > until => {
                    return Err(Error::new(Code::BrokerUnreachable, format!("no answer to a read of {name}")));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_pass_are_no_cause() {
        for code in [E::AllBrokersDown, E::Resolve, E::OperationTimedOut] {
            assert_eq!(cause(Some(code), "SSL routines"), None);
        }
        assert_eq!(cause(Some(E::BrokerTransportFailure), "Connection refused"), None);
        assert_eq!(cause(None, ""), None);
        let alert = "Receive failed: error:0A000412:SSL routines::ssl/tls alert bad certificate";
        assert_eq!(cause(Some(E::BrokerTransportFailure), alert), Some(Code::TlsFailed));
        assert_eq!(cause(Some(E::SSL), ""), Some(Code::TlsFailed));
        assert!(closed_early("Disconnected: SSL connection closed by peer (after 1ms in state SSL_HANDSHAKE)"));
        assert!(closed_early("closed by peer: receive 0 after POLLIN (after 2ms in state APIVERSION_QUERY)"));
        assert!(!closed_early("closed by peer (after 2ms in state UP)"));
        assert_eq!(cause(Some(E::Authentication), ""), Some(Code::AuthenticationFailed));
    }
}
