//! The topology against the live cluster: create what lacks, refuse what disagrees.
#![allow(clippy::disallowed_methods)] // start-up calls with their own deadlines

use std::collections::HashMap;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer;
use rdkafka::error::RDKafkaErrorCode;

use super::client::{Reader, reader};
use super::internal;
use crate::error::{Code, Error, Result};
use crate::topology::{Cleanup, Retention, Role, Timestamps, Topic, Topology};

const CALL: Duration = Duration::from_secs(15);
/// Tombstones stay this long; a state older than half of it is rebuilt.
const DELETE_RETENTION_MS: &str = "86400000";
/// Timestamps may be at most this far ahead.
const AHEAD_MS: i64 = 300_000;
/// Room for batch framing above the largest output.
pub const FRAMING: usize = 64 * 1024;

/// Checks that every topic is there with its partition count and, where the broker answers admin
/// requests, that its settings keep what the stream relies on.
///
/// # Errors
/// `broker_unreachable`, `topic_missing`, `partition_count_mismatch`, `broker_refused`.
pub fn preflight(client: &ClientConfig, topology: &Topology, with_settings: bool) -> Result<()> {
    let consumer: Reader = reader(client, "read_committed", "memsluice-preflight")?;
    for topic in topology.sources.values().chain(Role::ALL.iter().map(|r| topology.topic(*r))) {
        let metadata = consumer
            .fetch_metadata(Some(&topic.name), CALL)
            .map_err(|e| Error::with(Code::BrokerUnreachable, "the broker does not answer", e))?;
        let found = metadata.topics().iter().find(|t| t.name() == topic.name);
        let count = found.filter(|t| t.error().is_none()).map_or(0, |t| t.partitions().len());
        if count == 0 {
            return Err(Error::new(Code::TopicMissing, format!("topic {} does not exist", topic.name)));
        }
        if i32::try_from(count).unwrap_or(i32::MAX) != topic.partitions {
            return Err(Error::new(
                Code::PartitionCountMismatch,
                format!("topic {} has {count} partitions, the topology says {}", topic.name, topic.partitions),
            ));
        }
    }
    if with_settings { settings(client, topology) } else { Ok(()) }
}

fn admin(client: &ClientConfig) -> Result<(AdminClient<DefaultClientContext>, tokio::runtime::Runtime)> {
    let admin = client.create().map_err(|e| Error::with(Code::ConfigInvalid, "the admin client can't be made", e))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|e| Error::with(Code::Internal, "no runtime", e))?;
    Ok((admin, runtime))
}

fn settings(client: &ClientConfig, topology: &Topology) -> Result<()> {
    let (admin, runtime) = admin(client)?;
    let topics: Vec<(Role, &Topic)> = topology
        .sources
        .iter()
        .map(|(role, topic)| (*role, topic))
        .chain(Role::ALL.iter().map(|role| (*role, topology.topic(*role))))
        .collect();
    let names: Vec<&str> = topics.iter().map(|(_, t)| t.name.as_str()).collect();
    let found = described(&admin, &runtime, &names)?;
    for (role, topic) in topics {
        let name = &topic.name;
        let of = |topic: &str, key: &str| found.get(topic).and_then(|s| s.get(key)).cloned().unwrap_or_default();
        let value = |key: &str| of(name, key);
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
        if topology.is_repartitioned(role) && name == topology.name(role) {
            let source = |key: &str| of(&topology.source(role).name, key);
            if let Some(what) = internal::disagrees(topology, role, FRAMING, source, value) {
                return refuse(what);
            }
        }
        let output = !matches!(role, Role::MemoryWrites | Role::RetrievalLogs);
        let largest = value("max.message.bytes").parse::<usize>().unwrap_or(usize::MAX);
        if output && largest < topology.main.limits.max_output_bytes + FRAMING {
            return refuse(format!("max.message.bytes {largest} is below limits.max_output_bytes plus framing"));
        }
    }
    Ok(())
}

/// Settings of topics by name and key.
fn described(
    admin: &AdminClient<DefaultClientContext>,
    runtime: &tokio::runtime::Runtime,
    names: &[&str],
) -> Result<HashMap<String, HashMap<String, String>>> {
    let resources: Vec<ResourceSpecifier<'_>> = names.iter().map(|n| ResourceSpecifier::Topic(n)).collect();
    let options = AdminOptions::new().request_timeout(Some(CALL));
    let answers = runtime
        .block_on(admin.describe_configs(&resources, &options))
        .map_err(|e| Error::with(Code::BrokerRefused, "topic settings can't be read", e))?;
    let mut found = HashMap::new();
    for (name, answer) in names.iter().zip(answers) {
        let resource = answer.map_err(|e| {
            Error::with(Code::BrokerRefused, format!("settings of {name} can't be read"), e.to_string())
        })?;
        let values = resource.entries.into_iter().filter_map(|e| Some((e.name, e.value?)));
        found.insert((*name).to_owned(), values.collect());
    }
    Ok(found)
}

/// Creates the topics that lack; returns their names. Internal topics come last: they are sized by their
/// sources.
///
/// # Errors
/// `broker_unreachable`, `broker_refused`.
pub fn apply(client: &ClientConfig, topology: &Topology, replication: i32) -> Result<Vec<String>> {
    let (admin, runtime) = admin(client)?;
    let declared = Role::ALL.iter().map(|r| topology.source(*r));
    let mut created = create(&admin, &runtime, declared.map(|t| (t, settings_of(topology, t))), replication)?;
    let names: Vec<&str> = topology.sources.values().map(|t| t.name.as_str()).collect();
    if names.is_empty() {
        return Ok(created);
    }
    let found = described(&admin, &runtime, &names)?;
    let behind = topology.sources.iter().map(|(role, source)| {
        let largest = found.get(&source.name).and_then(|s| s.get("max.message.bytes")?.parse().ok());
        let settings = internal::settings(topology, *role, largest.unwrap_or(i32::MAX as usize), FRAMING);
        (topology.topic(*role), settings)
    });
    created.extend(create(&admin, &runtime, behind, replication)?);
    Ok(created)
}

fn settings_of(topology: &Topology, t: &Topic) -> Vec<(String, String)> {
    let retention = match t.retention {
        Retention::Forever => "-1".to_owned(),
        Retention::For(d) => d.as_millis().to_string(),
    };
    let cleanup = if t.cleanup == Cleanup::Compact { "compact" } else { "delete" };
    let mut settings = vec![("cleanup.policy", cleanup.to_owned()), ("retention.ms", retention)];
    if t.cleanup == Cleanup::Compact {
        settings.push(("delete.retention.ms", DELETE_RETENTION_MS.to_owned()));
    }
    if t.timestamps.is_some() {
        settings.push(("message.timestamp.after.max.ms", AHEAD_MS.to_string()));
    } else {
        settings.push(("max.message.bytes", (topology.main.limits.max_output_bytes + FRAMING).to_string()));
    }
    settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn create<'a>(
    admin: &AdminClient<DefaultClientContext>,
    runtime: &tokio::runtime::Runtime,
    topics: impl Iterator<Item = (&'a Topic, Vec<(String, String)>)>,
    replication: i32,
) -> Result<Vec<String>> {
    let topics: Vec<_> = topics.collect();
    let new = topics.iter().map(|(t, settings)| {
        let new = NewTopic::new(&t.name, t.partitions, TopicReplication::Fixed(replication));
        settings.iter().fold(new, |new, (key, value)| new.set(key, value))
    });
    let new: Vec<NewTopic<'_>> = new.collect();
    let options = AdminOptions::new().request_timeout(Some(CALL)).operation_timeout(Some(CALL));
    let answers = runtime
        .block_on(admin.create_topics(&new, &options))
        .map_err(|e| Error::with(Code::BrokerUnreachable, "topics can't be created", e))?;
    let mut created = Vec::new();
    for answer in answers {
        match answer {
            Ok(name) => created.push(name),
            Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((name, e)) => {
                return Err(Error::with(Code::BrokerRefused, format!("topic {name} can't be created"), e));
            }
        }
    }
    Ok(created)
}
