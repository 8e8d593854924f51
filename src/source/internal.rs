//! Internal topics on the broker: made and checked so that no record of a source is refused, dropped or
//! given another time on its way through.
#![allow(clippy::disallowed_methods)] // start-up calls with their own deadlines

use std::collections::HashMap;

use rdkafka::admin::{AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::config::ClientConfig;
use rdkafka::error::RDKafkaErrorCode;

use super::live::{CALL, FRAMING, admin};
use crate::error::{Code, Error, Result};
use crate::topology::{Retention, Role, Topology};

/// Timestamps were bounded when the source took them; this leaves room for clocks that differ.
const AHEAD_MS: &str = "600000";

/// Settings of a topic by key.
type Settings = HashMap<String, String>;

/// Checks the settings of internal topics against their sources.
///
/// # Errors
/// `broker_refused`.
pub(super) fn check(client: &ClientConfig, topology: &Topology) -> Result<()> {
    for (role, source) in &topology.sources {
        let name = topology.name(*role);
        let found = described(client, &[&source.name, name])?;
        if let [source_has, has] = found.as_slice()
            && let Some(what) = disagrees(&source.name, source_has, has)
        {
            return Err(Error::new(Code::BrokerRefused, format!("topic {name}: {what}")));
        }
    }
    Ok(())
}

/// Creates the internal topics that lack, sized by their sources; returns their names.
///
/// # Errors
/// `broker_unreachable`, `broker_refused`.
pub(super) fn create(client: &ClientConfig, topology: &Topology, replication: i32) -> Result<Vec<String>> {
    let mut created = Vec::new();
    for (role, source) in &topology.sources {
        let found = described(client, &[&source.name])?;
        let largest = found.first().map_or(usize::MAX, |s| number(s, "max.message.bytes"));
        let topic = topology.topic(*role);
        let settings = settings(topology, *role, largest);
        let new = NewTopic::new(&topic.name, topic.partitions, TopicReplication::Fixed(replication));
        let new = settings.iter().fold(new, |new, (key, value)| new.set(key, value));
        let (admin, runtime) = admin(client)?;
        let options = AdminOptions::new().request_timeout(Some(CALL)).operation_timeout(Some(CALL));
        let answers = runtime
            .block_on(admin.create_topics(&[new], &options))
            .map_err(|e| Error::with(Code::BrokerUnreachable, "topics can't be created", e))?;
        match answers.into_iter().next() {
            Some(Ok(name)) => created.push(name),
            Some(Err((name, e))) if e != RDKafkaErrorCode::TopicAlreadyExists => {
                return Err(Error::with(Code::BrokerRefused, format!("topic {name} can't be created"), e));
            }
            _ => {}
        }
    }
    Ok(created)
}

fn described(client: &ClientConfig, names: &[&str]) -> Result<Vec<Settings>> {
    let (admin, runtime) = admin(client)?;
    let resources: Vec<ResourceSpecifier<'_>> = names.iter().map(|n| ResourceSpecifier::Topic(n)).collect();
    let answers = runtime
        .block_on(admin.describe_configs(&resources, &AdminOptions::new().request_timeout(Some(CALL))))
        .map_err(|e| Error::with(Code::BrokerRefused, "topic settings can't be read", e))?;
    let settings = |(name, answer): (&&str, rdkafka::admin::ConfigResourceResult)| {
        let unread = |e: RDKafkaErrorCode| {
            Error::with(Code::BrokerRefused, format!("settings of {name} can't be read"), e.to_string())
        };
        let entries = answer.map_err(unread)?.entries;
        Ok(entries.into_iter().filter_map(|e| Some((e.name, e.value?))).collect())
    };
    names.iter().zip(answers).map(settings).collect()
}

/// A setting that disagrees, in words.
fn disagrees(source: &str, source_has: &Settings, has: &Settings) -> Option<String> {
    if has.get("message.timestamp.type").is_some_and(|t| t == "LogAppendTime") {
        return Some("message.timestamp.type is not CreateTime: record times would be lost".to_owned());
    }
    if has.get("cleanup.policy").is_some_and(|p| p != "delete") {
        return Some("cleanup.policy is not delete: records would be lost".to_owned());
    }
    let needed = with_room(number(source_has, "max.message.bytes"));
    let found = number(has, "max.message.bytes");
    (found < needed).then(|| format!("max.message.bytes {found} is below that of {source} plus room, {needed}"))
}

/// What the topic behind an input is created with.
fn settings(topology: &Topology, role: Role, source_max: usize) -> [(&'static str, String); 6] {
    let retention = match topology.topic(role).retention {
        Retention::Forever => "-1".to_owned(),
        Retention::For(d) => d.as_millis().to_string(),
    };
    let bounded = topology.source(role).timestamps.is_some();
    let ahead = if bounded { AHEAD_MS.to_owned() } else { i64::MAX.to_string() };
    [
        ("cleanup.policy", "delete".to_owned()),
        ("retention.ms", retention),
        ("message.timestamp.type", "CreateTime".to_owned()),
        ("message.timestamp.after.max.ms", ahead),
        ("message.timestamp.before.max.ms", i64::MAX.to_string()),
        ("max.message.bytes", with_room(source_max).to_string()),
    ]
}

fn number(settings: &Settings, key: &str) -> usize {
    settings.get(key).and_then(|v| v.parse().ok()).unwrap_or(usize::MAX)
}

/// Room for the stamp; Kafka keeps the limit as a signed 32-bit number.
fn with_room(source_max: usize) -> usize {
    source_max.saturating_add(FRAMING).min(i32::MAX as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(pairs: &[(&str, &str)]) -> Settings {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn what_would_lose_records_or_times_is_refused() {
        let source = has(&[("max.message.bytes", "1000000")]);
        let good = [("message.timestamp.type", "CreateTime"), ("cleanup.policy", "delete")];
        let found = |key: &str, value: &str| {
            let mut all = has(&good);
            all.insert("max.message.bytes".to_owned(), "2000000".to_owned());
            all.insert(key.to_owned(), value.to_owned());
            disagrees("source", &source, &all)
        };
        assert_eq!(found("cleanup.policy", "delete"), None);
        assert!(found("message.timestamp.type", "LogAppendTime").unwrap().contains("record times"));
        assert!(found("cleanup.policy", "compact,delete").unwrap().contains("would be lost"));
        assert!(found("max.message.bytes", "1000000").unwrap().contains("below that of source"));
    }
}
