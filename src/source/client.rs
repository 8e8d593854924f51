//! librdkafka settings shared by all clients, and its log.

use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::config::Config;
use crate::error::{Code, Error, Result};

/// Settings of every client: the user's own, then ours.
///
/// # Errors
/// `config_invalid` when no broker is set.
pub fn client(config: &Config) -> Result<ClientConfig> {
    let mut client = ClientConfig::new();
    for (key, value) in &config.kafka.properties {
        client.set(key, value);
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

/// Makes a reader under an isolation level; `group` names whose committed offsets it may ask for.
///
/// # Errors
/// `config_invalid`.
pub fn reader(client: &ClientConfig, isolation: &str, group: &str) -> Result<Reader> {
    let mut c = client.clone();
    c.set("group.id", group)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "error")
        .set("fetch.wait.max.ms", "50")
        .set("fetch.error.backoff.ms", "50")
        .set("isolation.level", isolation)
        // It never joins; the default would refuse a max.poll.interval.ms below 45 s meant for the group.
        .set("session.timeout.ms", "6000");
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
