//! What the topology wants of each topic: created where it lacks, compared where it is there.
#![allow(clippy::disallowed_methods)] // commands' calls with their own deadlines

use std::collections::BTreeMap;

use rdkafka::admin::{AdminOptions, NewTopic, TopicReplication};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use serde::Serialize;

use super::client::{Reader, reader};
use super::connect::connect;
use super::internal;
use super::live::{AHEAD_MS, CALL, FRAMING, admin, describe};
use super::refusal::refused;
use crate::error::{Code, Error, Result};
use crate::topology::{Cleanup, Retention, Role, Topology};

/// `delete.retention.ms` as `topology apply` sets it: a state older than half of it is rebuilt.
pub const DELETE_RETENTION_MS: i64 = 86_400_000;

/// How a live value must stand to the wanted one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The same.
    Equal,
    /// The wanted value or more.
    AtLeast,
    /// The wanted value or less.
    AtMost,
}

/// A setting as `apply` makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Kafka's name.
    pub key: &'static str,
    /// Value at creation.
    pub value: String,
    /// What else is no difference.
    pub bound: Bound,
}

/// A topic as the topology wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Role.
    pub role: Role,
    /// Physical name.
    pub name: String,
    /// Partitions.
    pub partitions: i32,
    /// Settings.
    pub settings: Vec<Setting>,
}

/// A topic as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Live {
    /// Partitions.
    pub partitions: i32,
    /// Settings in force, defaults included.
    pub settings: BTreeMap<String, String>,
}

/// What `apply` would do, and whether that is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanAction {
    /// The topic lacks: `apply` creates it.
    Create,
    /// It is as wanted.
    Keep,
    /// It differs: `apply` changes nothing, an operator must.
    Differs,
}

/// One disagreement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// `partitions`, or the setting.
    pub setting: String,
    /// What the topology wants, with `>=` or `<=` where more or less is good too.
    pub wanted: String,
    /// What the broker has; empty where the topic lacks.
    pub found: String,
}

/// One topic of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopicPlan {
    /// Role.
    pub role: Role,
    /// Physical name.
    pub topic: String,
    /// What would be done.
    pub action: PlanAction,
    /// All that is wanted of a topic to create; all that differs of one that is there.
    pub differences: Vec<Difference>,
}

/// What the topology wants of each topic. Pure.
#[must_use]
pub fn wanted(topology: &Topology) -> Vec<Wanted> {
    let output_max = i64::try_from(topology.main.limits.max_output_bytes + FRAMING).unwrap_or(i64::MAX);
    let one = |role: Role| {
        let t = topology.source(role);
        let retention = match t.retention {
            Retention::Forever => "-1".to_owned(),
            Retention::For(d) => d.as_millis().to_string(),
        };
        let compact = t.cleanup == Cleanup::Compact;
        let policy = if compact { "compact" } else { "delete" }.to_owned();
        let mut settings = vec![
            Setting { key: "cleanup.policy", value: policy, bound: Bound::Equal },
            Setting { key: "retention.ms", value: retention, bound: Bound::Equal },
        ];
        let mut bounded = |key, value: i64, bound| settings.push(Setting { key, value: value.to_string(), bound });
        if compact {
            bounded("delete.retention.ms", DELETE_RETENTION_MS, Bound::AtLeast);
        }
        if t.timestamps.is_some() {
            bounded("message.timestamp.after.max.ms", AHEAD_MS, Bound::AtMost);
        } else {
            bounded("max.message.bytes", output_max, Bound::AtLeast);
        }
        Wanted { role, name: t.name.clone(), partitions: t.partitions, settings }
    };
    let declared = Role::ALL.into_iter().map(one);
    declared.chain(topology.sources.keys().map(|role| behind(topology, *role))).collect()
}

/// The internal topic of a repartitioned input; its sizes follow its source (`internal`).
fn behind(topology: &Topology, role: Role) -> Wanted {
    let t = topology.topic(role);
    let settings = vec![Setting { key: "cleanup.policy", value: "delete".to_owned(), bound: Bound::Equal }];
    Wanted { role, name: t.name.clone(), partitions: t.partitions, settings }
}

impl Setting {
    fn holds(&self, found: &str) -> bool {
        let numbers = || Some((found.parse::<i64>().ok()?, self.value.parse::<i64>().ok()?));
        match self.bound {
            Bound::Equal => found == self.value,
            Bound::AtLeast => numbers().is_some_and(|(f, w)| f >= w),
            Bound::AtMost => numbers().is_some_and(|(f, w)| f <= w),
        }
    }

    fn shown(&self) -> String {
        let sign = match self.bound {
            Bound::Equal => "",
            Bound::AtLeast => ">= ",
            Bound::AtMost => "<= ",
        };
        format!("{sign}{}", self.value)
    }
}

/// One topic against the cluster. Pure.
#[must_use]
pub fn compare(wanted: &Wanted, live: Option<&Live>) -> TopicPlan {
    let found = |key: &str| live.and_then(|l| l.settings.get(key).cloned()).unwrap_or_default();
    // Under LogAppendTime the broker stamps: no producer can be ahead.
    let stamped = live.is_some() && found("message.timestamp.type") == "LogAppendTime";
    let mut differences = Vec::new();
    if live.is_none_or(|l| l.partitions != wanted.partitions) {
        let found = live.map_or(String::new(), |l| l.partitions.to_string());
        differences.push(Difference { setting: "partitions".into(), wanted: wanted.partitions.to_string(), found });
    }
    for setting in &wanted.settings {
        let good = setting.holds(&found(setting.key)) || (stamped && setting.key == "message.timestamp.after.max.ms");
        if live.is_none() || !good {
            let (setting, wanted, found) = (setting.key.to_owned(), setting.shown(), found(setting.key));
            differences.push(Difference { setting, wanted, found });
        }
    }
    let action = match (live, differences.is_empty()) {
        (None, _) => PlanAction::Create,
        (Some(_), true) => PlanAction::Keep,
        (Some(_), false) => PlanAction::Differs,
    };
    TopicPlan { role: wanted.role, topic: wanted.name.clone(), action, differences }
}

/// What `apply` would create, and where topics that are there differ. Writes nothing.
///
/// # Errors
/// `broker_unreachable`, `broker_refused`.
pub fn plan(client: &ClientConfig, topology: &Topology) -> Result<Vec<TopicPlan>> {
    let consumer: Reader = reader(client, "read_committed", "memsluice-plan")?;
    let wanted = wanted(topology);
    let mut live: BTreeMap<&str, Live> = BTreeMap::new();
    for w in &wanted {
        let metadata = consumer
            .fetch_metadata(Some(&w.name), CALL)
            .map_err(|e| Error::with(Code::BrokerUnreachable, "the broker does not answer", e))?;
        let topic = metadata.topics().iter().find(|t| t.name() == w.name && t.error().is_none());
        if let Some(count) = topic.map(|t| t.partitions().len()).filter(|n| *n > 0) {
            let partitions = i32::try_from(count).unwrap_or(i32::MAX);
            live.insert(&w.name, Live { partitions, settings: BTreeMap::new() });
        }
    }
    let names: Vec<&str> = live.keys().copied().collect();
    if !names.is_empty() {
        for (name, resource) in names.iter().zip(describe(client, &names)?) {
            let settings = resource.entries.into_iter().map(|e| (e.name, e.value.unwrap_or_default())).collect();
            if let Some(l) = live.get_mut(name) {
                l.settings = settings;
            }
        }
    }
    Ok(wanted.iter().map(|w| compare(w, live.get(w.name.as_str()))).collect())
}

/// Creates the topics that lack; returns their names.
///
/// # Errors
/// `broker_unreachable`, `broker_refused`.
pub fn apply(client: &ClientConfig, topology: &Topology, replication: i32) -> Result<Vec<String>> {
    connect(client)?;
    let (admin, runtime) = admin(client)?;
    let wanted = wanted(topology);
    let is_internal = |w: &&Wanted| topology.source(w.role).name != w.name;
    let new: Vec<NewTopic<'_>> = wanted
        .iter()
        .filter(|w| !is_internal(w))
        .map(|w| {
            let new = NewTopic::new(&w.name, w.partitions, TopicReplication::Fixed(replication));
            w.settings.iter().fold(new, |new, s| new.set(s.key, &s.value))
        })
        .collect();
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
                let what = format!("topic {name} can't be created");
                let right = format!("CREATE on topic {name}");
                return Err(refused(&KafkaError::Global(e), Code::BrokerRefused, &what, &right));
            }
        }
    }
    created.extend(internal::create(client, topology, replication)?);
    Ok(created)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(w: &Wanted) -> Live {
        let settings = w.settings.iter().map(|s| (s.key.to_owned(), s.value.clone())).collect();
        Live { partitions: w.partitions, settings }
    }

    #[test]
    fn what_apply_makes_is_what_plan_wants() {
        for w in wanted(&Topology::sample().unwrap()) {
            assert_eq!(compare(&w, Some(&live(&w))).action, PlanAction::Keep);
            let missing = compare(&w, None);
            assert_eq!((missing.action, missing.differences.len()), (PlanAction::Create, 1 + w.settings.len()));
        }
    }

    /// Each setting, moved to either side: a difference unless it is the harmless side of a bound.
    #[test]
    fn every_drift_is_seen() {
        for w in wanted(&Topology::sample().unwrap()) {
            let mut more = live(&w);
            more.partitions += 1;
            assert_eq!(compare(&w, Some(&more)).differences[0].setting, "partitions");
            for s in &w.settings {
                let Ok(n) = s.value.parse::<i64>() else {
                    let mut l = live(&w);
                    l.settings.insert(s.key.to_owned(), "compact,delete".to_owned());
                    assert_eq!(compare(&w, Some(&l)).differences[0].setting, s.key);
                    continue;
                };
                for (moved, harmless) in [(n + 1, Bound::AtLeast), (n - 1, Bound::AtMost)] {
                    let mut l = live(&w);
                    l.settings.insert(s.key.to_owned(), moved.to_string());
                    let found = compare(&w, Some(&l)).differences;
                    assert_eq!(found.is_empty(), s.bound == harmless, "{} {moved}", s.key);
                }
            }
        }
    }

    #[test]
    fn a_topic_stamped_by_the_broker_needs_no_bound() {
        let all = wanted(&Topology::sample().unwrap());
        let w = all.iter().find(|w| w.role == Role::MemoryWrites).unwrap();
        let mut l = live(w);
        l.settings.insert("message.timestamp.after.max.ms".to_owned(), i64::MAX.to_string());
        assert_eq!(compare(w, Some(&l)).action, PlanAction::Differs);
        l.settings.insert("message.timestamp.type".to_owned(), "LogAppendTime".to_owned());
        assert_eq!(compare(w, Some(&l)).action, PlanAction::Keep);
    }
}
