//! Every rule that a topology must keep, each with its code.

use std::collections::BTreeSet;
use std::time::Duration;

use super::breaker::OnDeadLetter;
use super::detectors::{MemsadMode, Sprt};
use super::format::Format;
use super::model::{Assignor, Role, Topology, internal_name};
use super::topic::{Cleanup, KeyKind, Repartition};
use crate::error::{Code, Error, Result};

/// Stages as the binary runs them.
pub(super) const WRITE_STAGES: &[&str] = &["decode", "policy", "embed", "score", "decide"];
/// Stages as the binary runs them.
pub(super) const RETRIEVAL_STAGES: &[&str] = &["decode", "embed", "session", "sprt", "alert"];

const UNIT_TOPICS: [Role; 8] = [
    Role::MemoryWrites,
    Role::RetrievalLogs,
    Role::CommittedMemory,
    Role::Quarantine,
    Role::Decisions,
    Role::Attacks,
    Role::DeadLetters,
    Role::Changelog,
];

/// Checks all rules; the first broken one is the error.
pub(super) fn validate(t: &Topology) -> Result<()> {
    if !crate::schema::valid_part(&t.main.application) {
        return fail(Code::TopologyLimits, "application must match [A-Za-z0-9._-]{1,128}".into());
    }
    topics_declared(t)?;
    names(t)?;
    copartition(t)?;
    stages(t)?;
    cleanup_and_keys(t)?;
    stores(t)?;
    inputs(t)?;
    group(t)?;
    limits(t)?;
    breaker(t)?;
    t.main.sprt.check()
}

fn fail(code: Code, message: String) -> Result<()> {
    Err(Error::new(code, message))
}

impl Sprt {
    /// Whether the parameters make a test.
    ///
    /// # Errors
    /// `sprt_invalid`.
    pub fn check(&self) -> Result<()> {
        let rates = self.p0 > 0.0 && self.p1 < 1.0 && self.p1 > 2.0 * self.p0;
        let errors = [self.alpha, self.beta].iter().all(|e| *e > 0.0 && *e < 0.5);
        if rates && errors && (1..=64).contains(&self.max_observations) && !self.idle.is_zero() {
            return Ok(());
        }
        fail(
            Code::SprtInvalid,
            format!(
                "p1 {} p0 {} alpha {} beta {} max_observations {} don't make a test",
                self.p1, self.p0, self.alpha, self.beta, self.max_observations
            ),
        )
    }
}

fn topics_declared(t: &Topology) -> Result<()> {
    for role in Role::ALL {
        let Some(topic) = t.topics.get(&role) else {
            return fail(
                Code::TopologyTopicUndeclared,
                format!("topic {} is not declared in topics.yaml", role.as_str()),
            );
        };
        if let Some(schema) = topic.schema.as_deref().filter(|s| !crate::schema::names().contains(s)) {
            return fail(
                Code::TopologyTopicUndeclared,
                format!("topic {} names the unknown schema {schema}", role.as_str()),
            );
        }
        if !(1..=10_000).contains(&topic.partitions) {
            return fail(
                Code::TopologyCopartition,
                format!("topic {} has {} partitions", role.as_str(), topic.partitions),
            );
        }
    }
    Ok(())
}

fn inputs(t: &Topology) -> Result<()> {
    for (role, topic) in t.topics.iter().filter(|(_, topic)| !topic.input.is_native()) {
        if !Role::INPUTS.contains(role) {
            return fail(Code::TopologyInput, format!("{} is no input: it has no shape to declare", role.as_str()));
        }
        if topic.input.format == Format::Native {
            return fail(
                Code::TopologyInput,
                format!("{}: native records name their own boundary, one fact each", role.as_str()),
            );
        }
        let flow = if *role == Role::RetrievalLogs { &t.main.flows.retrievals } else { &t.main.flows.writes };
        // What can't be read in a producer's shape names no key that could be held.
        if flow.on_dead_letter == OnDeadLetter::HoldKey {
            return fail(
                Code::TopologyInput,
                format!("{}: on_dead_letter hold_key needs the format native", role.as_str()),
            );
        }
    }
    Ok(())
}

fn names(t: &Topology) -> Result<()> {
    let internal = t.topics.iter().filter(|(_, topic)| topic.repartition == Repartition::Auto);
    let mut seen: BTreeSet<String> = internal.map(|(role, _)| internal_name(&t.main.application, *role)).collect();
    for (role, topic) in &t.topics {
        let letters = topic.name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if !letters || topic.name.len() > 200 || [".", ".."].contains(&topic.name.as_str()) {
            return fail(
                Code::TopologyName,
                format!("{}: '{}' is not a topic name of Kafka", role.as_str(), topic.name),
            );
        }
        if !seen.insert(topic.name.clone()) {
            return fail(
                Code::TopologyName,
                format!("{} shares the name {} with another topic", role.as_str(), topic.name),
            );
        }
    }
    Ok(())
}

fn copartition(t: &Topology) -> Result<()> {
    if let Some(role) = t.main.copartition.iter().find(|r| !UNIT_TOPICS.contains(r)) {
        return fail(Code::TopologyCopartition, format!("{} is not a topic of a unit", role.as_str()));
    }
    if let Some(role) = t.main.broadcast.iter().find(|r| !r.is_broadcast()) {
        return fail(Code::TopologyBroadcastPartitions, format!("{} is not a broadcast topic", role.as_str()));
    }
    let units = t.units();
    for role in UNIT_TOPICS {
        if !t.main.copartition.contains(&role) {
            return fail(Code::TopologyCopartition, format!("{} must be in the co-partition group", role.as_str()));
        }
        let topic = t.topic(role);
        if topic.repartition == Repartition::Auto {
            if !matches!(role, Role::MemoryWrites | Role::RetrievalLogs) {
                return fail(
                    Code::TopologyCopartition,
                    format!("{} is no input: it can't be repartitioned", role.as_str()),
                );
            }
            continue;
        }
        if topic.partitions != units {
            return fail(
                Code::TopologyCopartition,
                format!("{} has {} partitions, the changelog has {units}", role.as_str(), topic.partitions),
            );
        }
    }
    if t.topic(Role::Meta).partitions != 1 || t.topic(Role::Meta).repartition == Repartition::Auto {
        return fail(Code::TopologyBroadcastPartitions, "meta has exactly 1 partition".to_owned());
    }
    for role in Role::ALL.into_iter().filter(|r| r.is_broadcast()) {
        let topic = t.topic(role);
        if !t.main.broadcast.contains(&role) || topic.partitions != 1 || topic.repartition == Repartition::Auto {
            return fail(
                Code::TopologyBroadcastPartitions,
                format!("{} must be listed under broadcast, with 1 partition", role.as_str()),
            );
        }
    }
    Ok(())
}

fn stages(t: &Topology) -> Result<()> {
    let flows = [
        ("writes", &t.main.flows.writes, Role::MemoryWrites, WRITE_STAGES, &UNIT_TOPICS[2..7]),
        ("retrievals", &t.main.flows.retrievals, Role::RetrievalLogs, RETRIEVAL_STAGES, &UNIT_TOPICS[5..7]),
    ];
    for (name, flow, from, stages, to) in flows {
        let same_outputs = flow.to.len() == to.len() && to.iter().all(|r| flow.to.contains(r));
        if flow.from != from || flow.stages != stages || !same_outputs {
            return fail(
                Code::TopologyStages,
                format!("flow {name} differs from what the binary runs: {}", stages.join(", ")),
            );
        }
    }
    Ok(())
}

fn cleanup_and_keys(t: &Topology) -> Result<()> {
    for role in Role::ALL {
        let (cleanup, key) = match role {
            Role::MemoryWrites | Role::RetrievalLogs => (Cleanup::Delete, KeyKind::Boundary),
            Role::CommittedMemory => (Cleanup::Compact, KeyKind::Record),
            Role::Quarantine | Role::Decisions => (Cleanup::Delete, KeyKind::Record),
            Role::Attacks => (Cleanup::Delete, KeyKind::Finding),
            Role::DeadLetters => (Cleanup::Delete, KeyKind::Original),
            Role::Changelog => (Cleanup::Compact, KeyKind::State),
            Role::Calibrations | Role::Honeypots => (Cleanup::Compact, KeyKind::Version),
            Role::Meta => (Cleanup::Compact, KeyKind::Meta),
        };
        let topic = t.topic(role);
        if topic.cleanup != cleanup {
            return fail(Code::TopologyCleanup, format!("{} needs cleanup {cleanup:?}", role.as_str()));
        }
        let any_key = topic.repartition == Repartition::Auto && topic.key == KeyKind::Original;
        if topic.key != key && !any_key {
            return fail(Code::TopologyKey, format!("{} needs key {key:?}", role.as_str()));
        }
    }
    Ok(())
}

fn stores(t: &Topology) -> Result<()> {
    for name in ["history", "sessions", "chain"] {
        match t.main.stores.get(name) {
            Some(store) if store.changelog == Role::Changelog => {}
            _ => {
                return fail(Code::TopologyStore, format!("store {name} must be declared with changelog: changelog"));
            }
        }
    }
    let mut standby = t.main.stores.values().map(|s| s.standby);
    let first = standby.next();
    if standby.any(|s| Some(s) != first) {
        return fail(Code::TopologyStore, "stores of one changelog have standby all or none".into());
    }
    match t.main.stores.keys().find(|n| !["history", "sessions", "chain"].contains(&n.as_str())) {
        Some(other) => fail(Code::TopologyStore, format!("the binary has no store {other}")),
        None => Ok(()),
    }
}

/// Rows of a rolling calibration at most: as many as a published one holds.
const MOST_ROWS: usize = 512;
/// A transaction must be over this long before its member's session is.
pub const TRANSACTION_MARGIN: Duration = Duration::from_secs(10);

fn group(t: &Topology) -> Result<()> {
    let (consumer, commit) = (&t.main.consumer, &t.main.commit);
    if matches!(consumer.assignor, Assignor::CooperativeSticky | Assignor::Uniform) {
        return fail(
            Code::TopologyAssignor,
            format!("{:?} does not co-assign the topics of a unit", consumer.assignor),
        );
    }
    if commit.interval.is_zero()
        || commit.interval >= commit.transaction_timeout
        || commit.transaction_timeout.saturating_add(TRANSACTION_MARGIN) > consumer.session_timeout
        || !(Duration::from_secs(1)..consumer.session_timeout).contains(&consumer.revoke_deadline())
    {
        return fail(
            Code::TopologyTimeouts,
            "commit interval, transaction timeout, revoke deadline and session timeout don't fit each other".into(),
        );
    }
    Ok(())
}

fn limits(t: &Topology) -> Result<()> {
    let (l, m) = (&t.main.limits, &t.main.memsad);
    if l.max_output_bytes < 4096
        || l.max_record_bytes < 1024
        || l.in_flight_bytes < 1 << 20
        || l.cache_bytes < 1 << 20
        || l.state_bytes < 8 << 20
    {
        return fail(
            Code::TopologyLimits,
            "limits: output >= 4096, record >= 1024, in_flight and cache >= 1 MiB, state >= 8 MiB".into(),
        );
    }
    if t.main.commit.max_records == 0 || t.main.commit.max_bytes < l.max_output_bytes {
        return fail(
            Code::TopologyLimits,
            "commit.max_records must be positive and commit.max_bytes at least limits.max_output_bytes".into(),
        );
    }
    if !(1..=32_768).contains(&m.history) || !m.kappa.is_finite() || m.kappa < 0.0 {
        return fail(
            Code::TopologyLimits,
            "memsad.history must be 1 to 32768 and memsad.kappa a number from 0 on".into(),
        );
    }
    let counts = [m.settle, m.per_principal].iter().all(|n| (1..=32_768).contains(n))
        && m.memory <= 100_000
        && m.history.saturating_mul(m.memory) <= 1 << 24;
    if !(m.level > 0.0 && m.level <= 0.5) || m.query_age.is_zero() || !counts {
        return fail(
            Code::TopologyLimits,
            "memsad.level must be above 0 and at most 0.5, settle and per_principal 1 to 32768, memory at most 100000 and at most 2^24 times the history \
             and query_age above 0"
                .into(),
        );
    }
    let r = &m.rolling;
    let counts = (30..=MOST_ROWS).contains(&r.capacity) && (8..=MOST_ROWS).contains(&r.every);
    if !counts || r.ageing < Duration::from_secs(60) || r.at_least < Duration::from_secs(60) {
        return fail(
            Code::TopologyLimits,
            "memsad.rolling: capacity must be 30 to 512, every 8 to 512, ageing and at_least at least 1m".into(),
        );
    }
    let screen = &t.main.screen;
    if screen.source_idle < Duration::from_secs(60) || screen.new_format == MemsadMode::Off {
        return fail(
            Code::TopologyLimits,
            "screen.source_idle must be at least 1m, and screen.new_format enforce or shadow".into(),
        );
    }
    Ok(())
}

fn breaker(t: &Topology) -> Result<()> {
    let b = &t.main.breaker;
    if b.consecutive > 64 || !(1..=64).contains(&b.window) || !(0.0..=1.0).contains(&b.ratio) {
        return fail(
            Code::TopologyLimits,
            "breaker: consecutive must be 0 to 64, window 1 to 64 and ratio 0 to 1".into(),
        );
    }
    if b.cool_down.is_zero() || (b.stop_sources > 0 && b.stop_within.is_zero()) {
        return fail(Code::TopologyLimits, "breaker.cool_down and breaker.stop_within must be above 0".into());
    }
    if !(1..=65_536).contains(&b.max_sources) || b.max_sources < b.stop_sources as usize {
        return fail(
            Code::TopologyLimits,
            "breaker.max_sources must be 1 to 65536 and at least breaker.stop_sources".into(),
        );
    }
    if !(1..=1_000_000).contains(&b.max_held) {
        return fail(Code::TopologyLimits, "breaker.max_held must be 1 to 1000000".into());
    }
    Ok(())
}
