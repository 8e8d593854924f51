//! librdkafka settings shared by all clients, and its log.

use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::features;
use crate::config::{Config, Properties};
use crate::error::{Code, Error, Result};

/// Settings of every client: the user's own, then ours.
///
/// # Errors
/// `config_invalid` when no broker is set.
pub fn client(config: &Config) -> Result<ClientConfig> {
    let properties = &config.kafka.properties;
    tracing::debug!(?properties, "client settings");
    features::check(properties, &features::features()?)?;
    let mut client = ClientConfig::new();
    for (key, value) in properties.iter() {
        client.set(key, value);
    }
    client.create_native_config().map_err(|e| invalid(&e))?;
    if properties.protocol() == "SASL_PLAINTEXT" {
        tracing::warn!(
            "security.protocol is SASL_PLAINTEXT: content, and with PLAIN the password, cross the network in the clear"
        );
    }
    if let Some(group) = &config.kafka.group {
        client.set("group.id", group);
    }
    client
        .set("bootstrap.servers", config.bootstrap()?)
        .set("client.id", format!("memsluice-{}", config.instance_id()))
        .set("metadata.recovery.rebootstrap.trigger.ms", "10000")
        .set("socket.keepalive.enable", "true")
        .set("socket.nagle.disable", "true")
        .set("reconnect.backoff.max.ms", "2000");
    Ok(client)
}

/// Names the key; the library's own text repeats the value.
fn invalid(error: &KafkaError) -> Error {
    match error {
        KafkaError::ClientConfig(_, _, key, value) if Properties::default().masks(key, value) => {
            Error::new(Code::ConfigInvalid, format!("kafka.properties {key}: the value is not accepted"))
        }
        KafkaError::ClientConfig(_, why, key, _) => {
            Error::new(Code::ConfigInvalid, format!("kafka.properties {key}: {why}"))
        }
        other => Error::with(Code::ConfigInvalid, "kafka.properties can't be taken", other.to_string()),
    }
}

/// A consumer that reads named partitions and belongs to no group's members.
pub type Reader = BaseConsumer<Quiet>;

/// Logs at our levels; the end of a partition is no error.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        client_log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if !matches!(error, KafkaError::PartitionEOF(_))
            && error.rdkafka_error_code() != Some(RDKafkaErrorCode::PartitionEOF)
        {
            tracing::warn!(%error, reason, "reader");
        }
    }
}

impl ConsumerContext for Quiet {}

/// Settings of a producer or an admin client: without those of consumers.
pub(crate) fn without_group(client: &ClientConfig) -> ClientConfig {
    let mut c = client.clone();
    c.remove("group.id");
    c
}

/// Settings of a reader. Every consumer asks for its group's coordinator, so readers name the stream's own
/// group where it is known: another one would need rights of its own. They never join it.
pub(super) fn reader_config(client: &ClientConfig, isolation: &str, group: &str) -> ClientConfig {
    let mut c = client.clone();
    let group = client.get("group.id").unwrap_or(group);
    c.set("group.id", group)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "error")
        // The end of a partition is known when the broker has waited this long: twice for each partition read.
        .set("fetch.wait.max.ms", "5")
        .set("fetch.error.backoff.ms", "50")
        .set("isolation.level", isolation)
        // It never joins; the default would refuse a max.poll.interval.ms below 45 s meant for the group.
        .set("session.timeout.ms", "6000");
    c
}

/// Makes a reader that asks for the committed offsets of a group, whichever the stream's is.
///
/// # Errors
/// `config_invalid`.
pub fn group_reader(client: &ClientConfig, group: &str) -> Result<Reader> {
    let mut c = client.clone();
    c.set("group.id", group);
    reader(&c, "read_committed", group)
}

/// Makes a reader under an isolation level. It carries the stream's group where the client names one, so
/// that it needs no right of its own; else `group`.
///
/// # Errors
/// `config_invalid`.
pub fn reader(client: &ClientConfig, isolation: &str, group: &str) -> Result<Reader> {
    let c = reader_config(client, isolation, group);
    c.create_with_context(Quiet).map_err(|e| Error::with(Code::ConfigInvalid, "a consumer can't be made", e))
}

/// A read-committed reader that stays at the end and waits for more.
///
/// # Errors
/// `config_invalid`.
pub fn follower(client: &ClientConfig, group: &str) -> Result<Reader> {
    let mut c = reader_config(client, "read_committed", group);
    c.set("fetch.wait.max.ms", "100");
    c.create_with_context(Quiet).map_err(|e| Error::with(Code::ConfigInvalid, "a consumer can't be made", e))
}

/// librdkafka's log lines, at our levels.
pub(crate) fn client_log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical | RDKafkaLogLevel::Error => {
            tracing::error!(target: "librdkafka", facility, message);
        }
        RDKafkaLogLevel::Warning => tracing::warn!(target: "librdkafka", facility, message),
        _ => tracing::debug!(target: "librdkafka", facility, message),
    }
}
