//! What a topology says, as plain values.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use super::breaker::{Breaker, OnDeadLetter};

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

/// How a detector counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemsadMode {
    /// Holds writes.
    Enforce,
    /// Records only.
    Shadow,
    /// Not computed.
    Off,
}

/// Which MEMSAD score is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// Largest cosine.
    Max,
    /// Mean cosine.
    Mean,
    /// Half and half.
    Combined,
}

impl Statistic {
    /// The wire word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Statistic::Max => "max",
            Statistic::Mean => "mean",
            Statistic::Combined => "combined",
        }
    }
}

/// The rolling-window test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memsad {
    /// Mode.
    pub mode: MemsadMode,
    /// Tested score.
    pub statistic: Statistic,
    /// Deviations above the mean.
    pub kappa: f64,
    /// Queries kept for each boundary.
    pub history: usize,
    /// Fewer benign writes in the calibration: shadow.
    pub min_calibration: u32,
    /// Fewer queries in the history: shadow.
    pub min_history: usize,
}

/// The session test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sprt {
    /// Hit rate of an attack.
    pub p1: f64,
    /// Hit rate of benign use.
    pub p0: f64,
    /// False-alarm rate.
    pub alpha: f64,
    /// Miss rate.
    pub beta: f64,
    /// Then inconclusive.
    pub max_observations: u32,
    /// A gap this long closes the session.
    #[serde(with = "duration")]
    pub idle: Duration,
    /// Published defaults, not calibrated here.
    pub assumed: bool,
}

/// What a failed part leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PostureKind {
    /// Hold the write.
    Quarantine,
    /// Allow with a flag.
    PassMarked,
    /// Retry until the deadline, then quarantine.
    Hold,
}

/// Postures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Posture {
    /// The encoder failed.
    pub on_error: PostureKind,
    /// The text was cut.
    pub on_truncation: PostureKind,
    /// Longest retry under `hold`.
    #[serde(with = "duration")]
    pub hold_deadline: Duration,
}

/// Cleanup policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cleanup {
    /// By time.
    Delete,
    /// By key.
    Compact,
}

/// What a topic's key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyKind {
    /// `tenant/store`.
    Boundary,
    /// `tenant/store/record_id`.
    Record,
    /// Finding uid.
    Finding,
    /// The input's key.
    Original,
    /// State key.
    State,
    /// `kind/scope@version`.
    Version,
    /// `application`, or `member/<instance>`.
    Meta,
}

/// How long records stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Retention {
    /// No limit.
    Forever,
    /// By record time.
    For(Duration),
}

impl<'de> Deserialize<'de> for Retention {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        if text == "forever" {
            return Ok(Retention::Forever);
        }
        humantime::parse_duration(&text).map(Retention::For).map_err(serde::de::Error::custom)
    }
}

/// One topic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topic {
    /// Physical name; default: the role.
    #[serde(default)]
    pub name: String,
    /// Partitions, fixed at creation.
    pub partitions: i32,
    /// Key.
    pub key: KeyKind,
    /// Cleanup.
    pub cleanup: Cleanup,
    /// Retention.
    pub retention: Retention,
    /// Schema of the value.
    #[serde(default)]
    pub schema: Option<String>,
    /// `bounded`: timestamps at most 5 minutes ahead (checked).
    #[serde(default)]
    pub timestamps: Option<Timestamps>,
    /// Inputs only: whether records go through an internal topic keyed by the boundary.
    #[serde(default, skip_serializing_if = "Repartition::is_never")]
    pub repartition: Repartition,
}

/// What is done with an input whose key or partitioner isn't the stream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repartition {
    /// A misplaced record is a dead letter.
    #[default]
    Never,
    /// Every record goes through an internal topic.
    Auto,
}

impl Repartition {
    fn is_never(&self) -> bool {
        *self == Repartition::Never
    }
}

/// Rule for record timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timestamps {
    /// LogAppendTime, or CreateTime at most 5 minutes ahead.
    Bounded,
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

impl Topic {
    /// The topic of what the members agree on, where none is declared.
    pub(super) fn meta(application: &str) -> Self {
        Self {
            name: format!("{application}-{}", Role::Meta.as_str()),
            partitions: 1,
            key: KeyKind::Meta,
            cleanup: Cleanup::Compact,
            retention: Retention::Forever,
            schema: Some("meta".to_owned()),
            timestamps: None,
            repartition: Repartition::Never,
        }
    }
}

/// Name of the internal topic behind an input.
pub(super) fn internal_name(application: &str, role: Role) -> String {
    format!("{application}-{}-repartition", role.as_str())
}

mod optional_duration {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::time::Duration;

    #[derive(Serialize, Deserialize)]
    struct Wrapped(#[serde(with = "super::duration")] Duration);

    #[allow(clippy::ref_option)] // serde's shape
    pub(super) fn serialize<S: Serializer>(value: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
        value.map(Wrapped).serialize(s)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Wrapped>::deserialize(d)?.map(|w| w.0))
    }
}

pub(super) mod duration {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub(in crate::topology) fn serialize<S: Serializer>(value: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&humantime::format_duration(*value).to_string())
    }

    pub(in crate::topology) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(d)?;
        humantime::parse_duration(&text).map_err(serde::de::Error::custom)
    }
}

fn bytes<'de, D: Deserializer<'de>>(d: D) -> Result<usize, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Number(usize),
        Text(String),
    }
    let text = match Form::deserialize(d)? {
        Form::Number(n) => return Ok(n),
        Form::Text(t) => t,
    };
    let parsed = [("KiB", 1_usize << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)]
        .iter()
        .find_map(|(unit, scale)| text.strip_suffix(unit)?.trim().parse::<usize>().ok()?.checked_mul(*scale));
    parsed.ok_or_else(|| serde::de::Error::custom(format!("'{text}' is not a size such as 32MiB")))
}
