//! Offsets of the group, state in the changelog and the local folder of one application, put back together.
//!
//! One transaction holds all that is in Kafka: the group's new offsets, a tombstone for every key of the
//! changelog, and in each unit a record of kind `reset` in `decisions` that goes on with the hash chain. No topic
//! is deleted: another instance's folder replays the tombstones like any other tail, and nobody can confuse a
//! reset with a topic that was made again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::app::Setup;
use crate::clock::{rfc3339, wall_millis};
use crate::error::{Code, Error, Result};
use crate::schema::{
    ChainLink, Decision, DecisionBody, DecisionKind, Ids, ResetFacts, Versions, canonical, header as h,
};
use crate::sink::{CommitError, InputOffset, Output, TransactionalProducer, Transactions};
use crate::source::{self, FRAMING, Group, Point, Spans, last_record};
use crate::state::{self, Chain, Db, Fold, Kind, UnitMeta, key};
use crate::topology::Role;

/// The broker aborts an abandoned reset after this; the next one aborts it at once.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Outputs whose ends a reset notes.
const OUTPUTS: [Role; 4] = [Role::CommittedMemory, Role::Quarantine, Role::Attacks, Role::DeadLetters];

/// One input partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InputPlan {
    /// Physical topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Committed next offset.
    pub before: Option<i64>,
    /// Next offset after the reset.
    pub after: i64,
}

/// One unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnitReset {
    /// Unit.
    pub unit: i32,
    /// Changelog offsets that are read.
    pub changelog: i64,
    /// Decisions in its chain; the chain goes on.
    pub chain: u64,
}

/// What a reset would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Application id.
    pub application: String,
    /// Consumer group.
    pub group: String,
    /// Its members, which must be none.
    pub members: Vec<String>,
    /// Inputs.
    pub inputs: Vec<InputPlan>,
    /// Units.
    pub units: Vec<UnitReset>,
    /// Local database that is deleted; null where there is none.
    pub local: Option<String>,
}

/// What a reset did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Done {
    /// State keys deleted.
    pub keys: u64,
    /// Units.
    pub units: u64,
    /// The local database was deleted.
    pub local: bool,
}

/// Refuses a group that has members. Pure.
///
/// # Errors
/// `group_active`.
pub fn check_members(group: &str, members: &[String]) -> Result<()> {
    if members.is_empty() {
        return Ok(());
    }
    let what = format!("group {group} has {} live members: {}", members.len(), members.join(", "));
    Err(Error::new(Code::GroupActive, what))
}

/// The last record of a unit's chain, if it is whole. Pure.
///
/// # Errors
/// `chain_mismatch` when it can't be read, or its hash is not that of its body.
pub fn chain_of(unit: i32, last: Option<&[u8]>) -> Result<Chain> {
    let Some(bytes) = last else { return Ok(Chain::default()) };
    let broken = |what: &str| Error::new(Code::ChainMismatch, format!("unit {unit}: the last decision {what}"));
    let decision: Decision = serde_json::from_slice(bytes).map_err(|_| broken("can't be read"))?;
    let hash = |text: &str| {
        let mut out = [0_u8; 32];
        hex::decode_to_slice(text, &mut out).map(|()| out).map_err(|_| broken("has no hash"))
    };
    let (prev, head) = (hash(&decision.chain.prev_hash)?, hash(&decision.chain.entry_hash)?);
    let computed: [u8; 32] = Sha256::new().chain_update(prev).chain_update(canonical(&decision.body)).finalize().into();
    if computed != head {
        return Err(broken("does not hash to its entry_hash"));
    }
    let next_seq =
        Some(decision.chain.seq).filter(|seq| *seq < 1 << 53).ok_or_else(|| broken("has no next number"))? + 1;
    Ok(Chain { next_seq, head })
}

/// What is there, and what a reset would make of it. Writes nothing.
///
/// # Errors
/// `broker_unreachable`, `topic_missing`, `restore_stalled`, `chain_mismatch`.
pub fn plan(setup: &Setup, to: Point) -> Result<Plan> {
    let client = source::client(&setup.config)?;
    source::preflight(&client, &setup.topology, false)?;
    let (spans, group) = (Spans::new(&client)?, Group::new(&client, setup.group())?);
    let committed: BTreeMap<(String, i32), i64> =
        group.offsets(&setup.topology)?.into_iter().map(|(t, p, o)| ((t, p), o)).collect();
    let mut inputs = Vec::new();
    for role in Role::INPUTS {
        let topic = setup.topology.name(role);
        for partition in 0..setup.topology.topic(role).partitions {
            let bounds = spans.bounds(topic, partition)?;
            let after = spans.resolve(topic, partition, to, bounds)?;
            let before = committed.get(&(topic.to_owned(), partition)).copied();
            inputs.push(InputPlan { topic: topic.to_owned(), partition, before, after });
        }
    }
    let mut units = Vec::new();
    for unit in 0..setup.topology.units() {
        let log = spans.bounds(setup.topology.name(Role::Changelog), unit)?;
        let chain = decided(setup, &spans, unit)?;
        units.push(UnitReset { unit, changelog: log.high - log.low, chain: chain.next_seq });
    }
    let local = setup.config.state_dir().join("rocksdb");
    Ok(Plan {
        application: setup.topology.main.application.clone(),
        group: group.name().to_owned(),
        members: group.members()?,
        inputs,
        units,
        local: local.is_dir().then(|| local.display().to_string()),
    })
}

fn decided(setup: &Setup, spans: &Spans, unit: i32) -> Result<Chain> {
    let topic = setup.topology.name(Role::Decisions);
    spans.bounds(topic, unit)?;
    let last = last_record(spans.committed(), topic, unit)?;
    chain_of(unit, last.as_ref().and_then(source::payload))
}

/// Does it. `force` goes on with live members, and over a chain head in the state that is not the last
/// decision's. `progress` gets the unit and its changelog records read.
///
/// # Errors
/// `group_active`, `chain_mismatch`, `state_mismatch`, `state_failed`, `state_format`, those of a transaction.
pub fn execute(setup: &Setup, plan: &Plan, force: bool, mut progress: impl FnMut(i32, u64)) -> Result<Done> {
    let client = source::client(&setup.config)?;
    let group = Group::new(&client, &plan.group)?;
    if !force {
        check_members(&plan.group, &group.members()?)?;
        if !group.probe(&group.offsets(&setup.topology)?)? {
            check_members(&plan.group, &["seen by the broker when offsets are committed".to_owned()])?;
        }
    }
    let folder = setup.config.state_dir();
    // Held to the end: no stream starts on it.
    let local = plan
        .local
        .is_some()
        .then(|| Db::open(&folder, &setup.identity(), setup.topology.main.limits.state_bytes))
        .transpose()?;
    std::fs::create_dir_all(&folder)
        .map_err(|e| Error::with(Code::StateFailed, format!("can't make {}", folder.display()), e))?;
    let id = format!("{}{}-reset", setup.config.kafka.topic_prefix, plan.application);
    let largest = setup.topology.main.limits.max_output_bytes + FRAMING;
    let mut producer = TransactionalProducer::start(&client, Some(&id), TIMEOUT, largest)?;
    let mut work = Work { setup, plan, force, spans: Spans::new(&client)?, producer: &mut producer, keys: 0 };
    let written = work.write(&folder, &group, &mut progress);
    let keys = work.keys;
    if let Err(e) = written {
        if let Err(abort) = producer.abort() {
            tracing::warn!(error = %abort.error, "the transaction ends by its timeout, or with the next reset");
        }
        return Err(e);
    }
    let had = local.is_some();
    drop(local);
    if had {
        let path = folder.join("rocksdb");
        std::fs::remove_dir_all(&path)
            .map_err(|e| Error::with(Code::StateFailed, format!("can't delete {}", path.display()), e))?;
    }
    let own = setup.own("");
    setup.meta(&client).adopt(&own.agreement)?;
    Ok(Done { keys, units: plan.units.len() as u64, local: had })
}

/// The transaction of a reset.
struct Work<'a> {
    setup: &'a Setup,
    plan: &'a Plan,
    force: bool,
    spans: Spans,
    producer: &'a mut TransactionalProducer,
    keys: u64,
}

impl Work<'_> {
    fn write(&mut self, folder: &Path, group: &Group, progress: &mut impl FnMut(i32, u64)) -> Result<()> {
        self.producer.begin().map_err(error)?;
        for u in &self.plan.units {
            self.unit(folder, u.unit, |n| progress(u.unit, n))?;
        }
        let offsets: Vec<InputOffset> = self
            .plan
            .inputs
            .iter()
            .map(|i| InputOffset { topic: i.topic.clone(), partition: i.partition, next: i.after })
            .collect();
        let own = group.metadata().ok_or_else(|| Error::new(Code::Internal, "a consumer without group metadata"))?;
        let own = Arc::new(own);
        self.producer.drain().map_err(error)?;
        self.producer.send_offsets(&offsets, &own).map_err(error)?;
        self.producer.commit().map_err(error)
    }

    /// Tombstones, and the next link of the chain.
    fn unit(&mut self, folder: &Path, unit: i32, progress: impl FnMut(u64)) -> Result<()> {
        let topic = self.setup.topology.name(Role::Changelog);
        let log = self.spans.bounds(topic, unit)?;
        let fold = Fold::new(folder)?;
        fold.read(&self.spans, topic, unit, log, log.high, progress)?;
        let own = key(Kind::Unit, unit, &[], None, &[]);
        let mut meta: UnitMeta = fold.get(&own)?.map(|v| state::decode(&v)).transpose()?.unwrap_or_default();
        let chain = decided(self.setup, &self.spans, unit)?;
        // Retention may have emptied the topic: then the state alone knows the head.
        let emptied = chain == Chain::default();
        if meta.chain != chain && !emptied {
            if !self.force {
                let what = format!(
                    "unit {unit}: the last decision has seq {}, the state expects {}; --force goes on from the decision",
                    chain.next_seq - 1,
                    meta.chain.next_seq
                );
                return Err(Error::new(Code::ChainMismatch, what));
            }
            meta.chain = chain;
        }
        let (body, head) = self.link(unit, &meta.chain)?;
        self.producer.send(self.setup.topology.name(Role::Decisions), &body).map_err(error)?;
        meta.chain = Chain { next_seq: meta.chain.next_seq + 1, head };
        let (producer, keys) = (&mut *self.producer, &mut self.keys);
        fold.keys(|k| {
            if k == own {
                return Ok(());
            }
            *keys += 1;
            producer.log_change(topic, unit, k, None).map_err(error)
        })?;
        producer.log_change(topic, unit, &own, Some(&state::encode(&meta))).map_err(error)
    }

    fn link(&self, unit: i32, chain: &Chain) -> Result<(Output, [u8; 32])> {
        let main = &self.setup.topology.main;
        let of_unit = |i: &&InputPlan| i.partition == unit;
        let inputs = || self.plan.inputs.iter().filter(of_unit);
        let mut outputs = BTreeMap::new();
        for role in OUTPUTS {
            let topic = self.setup.topology.name(role);
            outputs.insert(topic.to_owned(), self.spans.bounds(topic, unit)?.high);
        }
        let time = rfc3339(wall_millis());
        let body = DecisionBody {
            activation: None,
            child: None,
            content: None,
            error: None,
            expires_at: None,
            facts: None,
            flags: Vec::new(),
            id: Ids::new(&main.application).of_reset(unit, chain.next_seq),
            input: None,
            input_vector: inputs().map(|i| (i.topic.clone(), i.after)).collect(),
            kind: DecisionKind::Reset,
            memsad: None,
            op: None,
            policy: None,
            reasons: Vec::new(),
            record_id: None,
            reset: Some(ResetFacts {
                before: inputs().filter_map(|i| Some((i.topic.clone(), i.before?))).collect(),
                outputs,
            }),
            retraction: None,
            screen: None,
            source: None,
            store: None,
            tenant: None,
            time: time.clone(),
            verdict: None,
            versions: std::sync::Arc::new(Versions {
                config_set: String::new(),
                encoder: String::new(),
                policy: self.setup.policy.hash().to_owned(),
                program: env!("CARGO_PKG_VERSION").to_owned(),
                topology: self.setup.topology.hash.clone(),
            }),
        };
        let (chain, head) = ChainLink::next(chain.next_seq, &chain.head, &canonical(&body));
        let text = |name: &str, value: &str| (name.to_owned(), Some(value.as_bytes().to_vec()));
        let headers = vec![
            text(h::CONTENT_TYPE, "application/json"),
            text(h::CE_SPECVERSION, "1.0"),
            text(h::CE_ID, &body.id),
            text(h::CE_SOURCE, &format!("/memsluice/{}", main.application)),
            text(h::CE_TYPE, "io.memsluice.reset"),
            text(h::CE_TIME, &time),
        ];
        let value = serde_json::to_vec(&Decision { body, chain })
            .map_err(|e| Error::with(Code::Internal, "a reset can't be written", e))?;
        let (role, key) = (Role::Decisions, b"reset".to_vec());
        Ok((Output { role, partition: unit, key, value: Some(value), headers }, head))
    }
}

fn error(e: CommitError) -> Error {
    e.error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_with_members_is_refused() {
        assert!(check_members("g", &[]).is_ok());
        let error = check_members("g", &["memsluice-0 (/127.0.0.1)".to_owned()]).unwrap_err();
        assert_eq!(error.code(), Code::GroupActive);
    }

    /// A chain goes on only from a record that is what its hash says.
    #[test]
    fn a_chain_goes_on_from_a_whole_record_alone() {
        assert_eq!(chain_of(0, None).unwrap(), Chain::default());
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/examples/valid/decision");
        let mut seen = 0;
        for entry in std::fs::read_dir(file).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let decision: Decision = serde_json::from_str(&text).unwrap();
            let chain = chain_of(0, Some(text.as_bytes())).unwrap();
            assert_eq!(chain.next_seq, decision.chain.seq + 1);
            assert_eq!(hex::encode(chain.head), decision.chain.entry_hash);
            let edited = text.replace(&decision.body.id, "another");
            assert_eq!(chain_of(0, Some(edited.as_bytes())).unwrap_err().code(), Code::ChainMismatch);
            seen += 1;
        }
        assert!(seen > 1);
        assert_eq!(chain_of(0, Some(b"{}")).unwrap_err().code(), Code::ChainMismatch);
    }
}
