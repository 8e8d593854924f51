//! What a topology says, as plain values.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::breaker::{Breaker, OnDeadLetter};
use super::detectors::{Memsad, Posture, Screen, Sprt};
use super::topic::{KeyKind, Repartition, Topic};
use super::units::{bytes, duration, optional_duration};

/// A topic's role; the physical name is data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Input: facts about to be stored.
    MemoryWrites,
    /// Input: what was read.
    RetrievalLogs,
    /// Output: safe to store.
    CommittedMemory,
    /// Output: held.
    Quarantine,
    /// Output: why.
    Decisions,
    /// Output: findings.
    Attacks,
    /// Output: not decodable.
    DeadLetters,
    /// State.
    Changelog,
    /// Broadcast: thresholds.
    Calibrations,
    /// Broadcast: registry.
    Honeypots,
    /// What the members agree on.
    Meta,
}

impl Role {
    /// All roles in flow order.
    pub const ALL: [Role; 11] = [
        Role::MemoryWrites,
        Role::RetrievalLogs,
        Role::CommittedMemory,
        Role::Quarantine,
        Role::Decisions,
        Role::Attacks,
        Role::DeadLetters,
        Role::Changelog,
        Role::Calibrations,
        Role::Honeypots,
        Role::Meta,
    ];

    /// Kebab-case name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Role::MemoryWrites => "memory-writes",
            Role::RetrievalLogs => "retrieval-logs",
            Role::CommittedMemory => "committed-memory",
            Role::Quarantine => "quarantine",
            Role::Decisions => "decisions",
            Role::Attacks => "attacks",
            Role::DeadLetters => "dead-letters",
            Role::Changelog => "changelog",
            Role::Calibrations => "calibrations",
            Role::Honeypots => "honeypots",
            Role::Meta => "meta",
        }
    }

    /// Topics that the stream consumes as a group.
    pub const INPUTS: [Role; 2] = [Role::RetrievalLogs, Role::MemoryWrites];

    /// Order in which a unit takes inputs of equal time: lower first.
    #[must_use]
    pub fn rank(self) -> u8 {
        match self {
            Role::RetrievalLogs => 1,
            _ => 2,
        }
    }

    /// Whether every instance reads it whole.
    #[must_use]
    pub fn is_broadcast(self) -> bool {
        matches!(self, Role::Calibrations | Role::Honeypots)
    }
}

/// The whole file set.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// `memsluice.yaml`.
    pub main: Main,
    /// Every role's topic; that of an input with `repartition: auto` is the internal one.
    pub topics: BTreeMap<Role, Topic>,
    /// Inputs with `repartition: auto` as producers see them.
    pub sources: BTreeMap<Role, Topic>,
    /// SHA-256 over the normal form of both, hex, first 16 digits.
    pub hash: String,
}

/// `memsluice.yaml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Main {
    /// Names group, transactional ids, UUID namespace.
    pub application: String,
    /// The two flows.
    pub flows: Flows,
    /// Topics read whole by every instance.
    pub broadcast: Vec<Role>,
    /// Topics of a partition unit.
    pub copartition: Vec<Role>,
    /// Stores.
    pub stores: BTreeMap<String, Store>,
    /// Group settings.
    pub consumer: Consumer,
    /// Transaction settings.
    pub commit: Commit,
    /// Byte budgets.
    pub limits: Limits,
    /// The rolling-window test.
    pub memsad: Memsad,
    /// The write screen.
    #[serde(default)]
    pub screen: Screen,
    /// The session test.
    pub sprt: Sprt,
    /// What happens when a part fails.
    pub posture: Posture,
    /// When a source that fails is cut off.
    #[serde(default)]
    pub breaker: Breaker,
}

/// The two flows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flows {
    /// Write path.
    pub writes: Flow,
    /// Retrieval path.
    pub retrievals: Flow,
}

/// One flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// Input.
    pub from: Role,
    /// Stages in order.
    pub stages: Vec<String>,
    /// Outputs.
    pub to: Vec<Role>,
    /// What a dead letter means for later records of its key.
    #[serde(default)]
    pub on_dead_letter: OnDeadLetter,
}

/// One store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// Its changelog.
    pub changelog: Role,
    /// Every member keeps a warm copy of the units of others.
    #[serde(default)]
    pub standby: bool,
}

/// Group assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Assignor {
    /// Classic protocol.
    Range,
    /// KIP-848 with `group.remote.assignor=range`.
    ConsumerRange,
    /// Refused by validation.
    CooperativeSticky,
    /// Refused by validation.
    Uniform,
}

/// What is done when an input's log starts behind the committed offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnOutOfRange {
    /// The process ends.
    #[default]
    Stop,
    /// Goes on at the log's start; what was lost is logged and counted. There is no way to skip to the end.
    Earliest,
}

impl OnOutOfRange {
    fn is_default(&self) -> bool {
        *self == Self::Stop
    }
}

/// Group settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Consumer {
    /// Assignor.
    pub assignor: Assignor,
    /// Session timeout.
    #[serde(with = "duration")]
    pub session_timeout: Duration,
    /// How long a revoked unit may take to commit what is open; default: half of the session timeout.
    #[serde(default, with = "optional_duration")]
    pub revoke_deadline: Option<Duration>,
    /// How long an empty input of a unit is waited for.
    #[serde(with = "duration")]
    pub max_task_idle: Duration,
    /// When inputs were deleted unread. The default stays out of the topology's hash.
    #[serde(default, skip_serializing_if = "OnOutOfRange::is_default")]
    pub on_out_of_range: OnOutOfRange,
}

/// Transaction settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// Longest time between commits.
    #[serde(with = "duration")]
    pub interval: Duration,
    /// The broker aborts an open transaction after this.
    #[serde(with = "duration")]
    pub transaction_timeout: Duration,
    /// Inputs in one transaction.
    pub max_records: usize,
    /// Output bytes in one transaction.
    #[serde(deserialize_with = "bytes")]
    pub max_bytes: usize,
}

/// Byte budgets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Largest input value.
    #[serde(deserialize_with = "bytes")]
    pub max_record_bytes: usize,
    /// Largest output record, headers included.
    #[serde(deserialize_with = "bytes")]
    pub max_output_bytes: usize,
    /// Inputs fetched but not yet decided.
    #[serde(deserialize_with = "bytes")]
    pub in_flight_bytes: usize,
    /// Histories and embeddings held in memory.
    #[serde(deserialize_with = "bytes")]
    pub cache_bytes: usize,
    /// RocksDB's blocks, indexes, filters and write buffers.
    #[serde(deserialize_with = "bytes")]
    pub state_bytes: usize,
}

impl Consumer {
    /// How long a revoke may take.
    #[must_use]
    pub fn revoke_deadline(&self) -> Duration {
        self.revoke_deadline.unwrap_or(self.session_timeout / 2)
    }
}

impl Topology {
    /// The topic of a role. Validation has made sure that each is there.
    #[must_use]
    pub fn topic(&self, role: Role) -> &Topic {
        &self.topics[&role]
    }

    /// Physical name of a role.
    #[must_use]
    pub fn name(&self, role: Role) -> &str {
        &self.topic(role).name
    }

    /// The topic that producers of a role write to.
    #[must_use]
    pub fn source(&self, role: Role) -> &Topic {
        self.sources.get(&role).unwrap_or_else(|| self.topic(role))
    }

    /// Whether a role's records come through an internal topic.
    #[must_use]
    pub fn is_repartitioned(&self, role: Role) -> bool {
        self.sources.contains_key(&role)
    }

    /// Whether members keep warm copies; stores of one changelog share it.
    #[must_use]
    pub fn standby(&self) -> bool {
        self.main.stores.values().any(|s| s.standby)
    }

    /// Number of partition units.
    #[must_use]
    pub fn units(&self) -> i32 {
        self.topic(Role::Changelog).partitions
    }

    /// Puts the internal topic in the place of each input with `repartition: auto`.
    pub(super) fn repartition(&mut self) {
        let units = self.units();
        for (role, topic) in &mut self.topics {
            if topic.repartition == Repartition::Never {
                continue;
            }
            let internal = Topic {
                name: internal_name(&self.main.application, *role),
                partitions: units,
                key: KeyKind::Boundary,
                timestamps: None,
                ..topic.clone()
            };
            self.sources.insert(*role, std::mem::replace(topic, internal));
        }
    }

    /// Takes the sources back: without a broker nothing goes through an internal topic.
    pub fn without_repartition(&mut self) {
        self.topics.extend(std::mem::take(&mut self.sources));
    }

    /// Puts `prefix` in front of every physical name.
    pub fn prefix(&mut self, prefix: &str) {
        for topic in self.topics.values_mut().chain(self.sources.values_mut()) {
            topic.name = format!("{prefix}{}", topic.name);
        }
    }
}

/// Name of the internal topic behind an input.
pub(super) fn internal_name(application: &str, role: Role) -> String {
    format!("{application}-{}-repartition", role.as_str())
}
