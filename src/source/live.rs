//! The topology against the live cluster: what `run` refuses at start.
#![allow(clippy::disallowed_methods)] // start-up calls with their own deadlines

use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::client::{Reader, reader, without_group};
use super::connect::connect;
use super::internal;
use super::refusal::{is_denied, refused};
use super::tail::passing;
use crate::clock::monotonic;
use crate::error::{Code, Error, Result};
use crate::topology::{Cleanup, Role, Timestamps, Topology};

pub(super) const CALL: Duration = Duration::from_secs(15);
/// How long a topic may be unknown after it was made: a broker learns of it a moment after the controller.
const KNOWN: Duration = Duration::from_secs(3);
/// Timestamps may be at most this far ahead.
pub(super) const AHEAD_MS: i64 = 300_000;
/// Room for batch framing above the largest output.
pub const FRAMING: usize = 64 * 1024;

/// Checks that every topic is there with its partition count and, where the broker answers admin
/// requests, that its settings keep what the stream relies on.
///
/// # Errors
/// `broker_unreachable`, `topic_missing`, `partition_count_mismatch`, `broker_refused`.
pub fn preflight(client: &ClientConfig, topology: &Topology, with_settings: bool) -> Result<()> {
    connect(client)?;
    let consumer: Reader = reader(client, "read_committed", "memsluice-preflight")?;
    for topic in topology.sources.values().chain(Role::ALL.iter().map(|r| topology.topic(*r))) {
        let count = count(&consumer, &topic.name)?;
        if i32::try_from(count).unwrap_or(i32::MAX) != topic.partitions {
            return Err(Error::new(
                Code::PartitionCountMismatch,
                format!("topic {} has {count} partitions, the topology says {}", topic.name, topic.partitions),
            ));
        }
    }
    if !with_settings {
        return Ok(());
    }
    settings(client, topology)?;
    internal::check(client, topology)?;
    super::coordinators::check(client, topology)
}

/// Partitions of a topic.
fn count(consumer: &Reader, name: &str) -> Result<usize> {
    let until = monotonic() + KNOWN;
    loop {
        let metadata = consumer
            .fetch_metadata(Some(name), CALL)
            .map_err(|e| Error::with(Code::BrokerUnreachable, "the broker does not answer", e))?;
        let found = metadata.topics().iter().find(|t| t.name() == name);
        if let Some(code) = found.and_then(|t| t.error()).map(RDKafkaErrorCode::from).filter(|c| is_denied(*c)) {
            let (what, right) = (format!("topic {name} is out of reach"), format!("DESCRIBE on topic {name}"));
            return Err(refused(&KafkaError::MetadataFetch(code), Code::BrokerRefused, &what, &right));
        }
        let count = found.filter(|t| t.error().is_none()).map_or(0, |t| t.partitions().len());
        if count > 0 {
            return Ok(count);
        }
        if monotonic() > until {
            return Err(Error::new(Code::TopicMissing, format!("topic {name} does not exist")));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

pub(super) fn admin(client: &ClientConfig) -> Result<(AdminClient<DefaultClientContext>, tokio::runtime::Runtime)> {
    let admin = without_group(client)
        .create()
        .map_err(|e| Error::with(Code::ConfigInvalid, "the admin client can't be made", e))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|e| Error::with(Code::Internal, "no runtime", e))?;
    Ok((admin, runtime))
}

fn settings(client: &ClientConfig, topology: &Topology) -> Result<()> {
    let names: Vec<&str> = Role::ALL.iter().map(|r| topology.source(*r).name.as_str()).collect();
    for (role, resource) in Role::ALL.iter().zip(describe(client, &names)?) {
        let topic = topology.source(*role);
        let name = &topic.name;
        // Reading settings is a right that the stream itself does not need. rust-rdkafka drops the broker's
        // refusal and gives an empty answer.
        if resource.entries.is_empty() {
            tracing::warn!(
                "the settings of topic {name} are not checked: this principal lacks DESCRIBE_CONFIGS on topic {name}"
            );
            continue;
        }
        let value = |key: &str| resource.get(key).and_then(|e| e.value.clone()).unwrap_or_default();
        let refuse = |what: String| {
            Err(Error::new(
                Code::BrokerRefused,
                format!("topic {name}: {what}; `memsluice topology apply` sets it at creation"),
            ))
        };
        if topic.timestamps == Some(Timestamps::Bounded) {
            let ahead = value("message.timestamp.after.max.ms").parse::<i64>().unwrap_or(i64::MAX);
            if value("message.timestamp.type") != "LogAppendTime" && ahead > AHEAD_MS {
                return refuse(format!("message.timestamp.after.max.ms is {ahead}, not at most {AHEAD_MS}"));
            }
        }
        if topic.cleanup == Cleanup::Compact && !value("cleanup.policy").contains("compact") {
            return refuse("cleanup.policy is not compact".to_owned());
        }
        let output = !matches!(role, Role::MemoryWrites | Role::RetrievalLogs);
        let largest = value("max.message.bytes").parse::<usize>().unwrap_or(usize::MAX);
        if output && largest < topology.main.limits.max_output_bytes + FRAMING {
            return refuse(format!("max.message.bytes {largest} is below limits.max_output_bytes plus framing"));
        }
    }
    Ok(())
}

/// `delete.retention.ms` of a topic; `None` where the broker doesn't say.
#[must_use]
pub fn delete_retention(client: &ClientConfig, topic: &str) -> Option<i64> {
    let (admin, runtime) = admin(client).ok()?;
    let options = AdminOptions::new().request_timeout(Some(CALL));
    let answer = runtime.block_on(admin.describe_configs(&[ResourceSpecifier::Topic(topic)], &options)).ok()?;
    answer.into_iter().next()?.ok()?.get("delete.retention.ms")?.value.clone()?.parse().ok()
}

/// Settings of topics that are there, in the order of `names`.
pub(super) fn describe(client: &ClientConfig, names: &[&str]) -> Result<Vec<ConfigResource>> {
    let (admin, runtime) = admin(client)?;
    let resources: Vec<ResourceSpecifier<'_>> = names.iter().map(|n| ResourceSpecifier::Topic(n)).collect();
    let options = AdminOptions::new().request_timeout(Some(CALL));
    let answers = runtime.block_on(admin.describe_configs(&resources, &options)).map_err(|e| {
        // A broker that is away refuses nothing.
        let away = e.rdkafka_error_code().is_some_and(passing);
        let code = if away { Code::BrokerUnreachable } else { Code::BrokerRefused };
        Error::with(code, "topic settings can't be read", e)
    })?;
    names
        .iter()
        .zip(answers)
        .map(|(name, answer)| {
            answer.map_err(|e| {
                Error::with(Code::BrokerRefused, format!("settings of {name} can't be read"), e.to_string())
            })
        })
        .collect()
}
