//! Restore at assignment, in the order of DESIGN 3: the producer is fenced already; committed offsets
//! (require stable); high watermark by a read-uncommitted handle; read-committed replay up to it; the
//! chain head against the last committed decision.
#![allow(clippy::disallowed_methods)] // blocking calls with their own deadlines, on the task thread

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::message::{BorrowedMessage, Message};

use super::committed::CommittedOffsets;
use super::inputs::Input;
use super::{Change, Db, Kind, Positions, Store, UnitMeta, UnitPlan, key, of_unit};
use crate::clock::{monotonic, wall_millis};
use crate::error::{Code, Error, Result};
use crate::schema::Decision;
use crate::source::{DELETE_RETENTION_MS, Reader, TopicIds, last_record, read, reader, watermarks};
use crate::topology::{OnOutOfRange, Role, Topology};

/// An open transaction that hides the changelog's end is waited for at most this long.
const STALL: Duration = Duration::from_secs(90);
/// Changelog records in one write.
const CHUNK: usize = 2000;
/// Changelog records between two looks at the watch.
const LOOK: u64 = 128;
/// A longer tail is replayed without write-ahead log and compactions.
const BULK: i64 = 50_000;

/// A restored unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Next changelog offset.
    pub changelog: i64,
    /// Next offset of each input; -1 where none was committed.
    pub inputs: BTreeMap<Role, i64>,
    /// Topic ids of inputs and changelog, where the broker has them.
    pub topics: BTreeMap<Role, String>,
    /// Changelog records replayed.
    pub replayed: u64,
    /// Input offsets that were deleted unread.
    pub lost: u64,
}

/// How far a unit's restore is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Unit.
    pub unit: i32,
    /// Changelog records replayed.
    pub replayed: u64,
    /// Changelog offsets left, control records among them.
    pub remaining: u64,
}

/// Told how a restore gets on, at least each second; `false` cancels it.
pub type Watch<'a> = &'a dyn Fn(Progress) -> bool;

/// The clients that a restore reads by.
struct Readers {
    /// read_uncommitted: sees the high watermark.
    uncommitted: Reader,
    /// read_committed: sees the last stable offset and what is committed.
    committed: Reader,
    /// The group's.
    offsets: CommittedOffsets,
}

impl Readers {
    fn new(client: &ClientConfig, group: &str, inputs: &[(Role, String)]) -> Result<Self> {
        Ok(Self {
            uncommitted: reader(client, "read_uncommitted", "memsluice-watermarks")?,
            committed: reader(client, "read_committed", "memsluice-restore")?,
            offsets: CommittedOffsets::new(client, group, inputs)?,
        })
    }
}

/// Restores units.
pub struct Restorer {
    readers: Readers,
    make: Box<dyn Fn() -> Result<Readers> + Send>,
    /// Absent for the mock broker, which has none.
    ids: Option<TopicIds>,
    changelog: String,
    decisions: String,
    inputs: Vec<(Role, String)>,
    /// What stands behind inputs that are repartitioned.
    sources: BTreeMap<Role, String>,
    on_out_of_range: OnOutOfRange,
    /// `delete.retention.ms` of the changelog.
    delete_retention: i64,
    /// Sabotage only: take input offsets from the local state.
    pub local_offsets: bool,
}

impl std::fmt::Debug for Restorer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Restorer").field("changelog", &self.changelog).finish_non_exhaustive()
    }
}

impl Restorer {
    /// For a topology.
    ///
    /// # Errors
    /// `config_invalid`.
    pub fn new(client: &ClientConfig, group: &str, topology: &Topology) -> Result<Self> {
        let inputs: Vec<(Role, String)> =
            [Role::RetrievalLogs, Role::MemoryWrites].map(|r| (r, topology.name(r).to_owned())).into();
        let make = {
            let (client, group, inputs) = (client.clone(), group.to_owned(), inputs.clone());
            Box::new(move || Readers::new(&client, &group, &inputs))
        };
        Ok(Self {
            readers: make()?,
            make,
            ids: None,
            delete_retention: DELETE_RETENTION_MS,
            changelog: topology.name(Role::Changelog).to_owned(),
            decisions: topology.name(Role::Decisions).to_owned(),
            inputs,
            sources: topology.sources.iter().map(|(r, t)| (*r, t.name.clone())).collect(),
            on_out_of_range: topology.main.consumer.on_out_of_range,
            local_offsets: false,
        })
    }

    /// The same, comparing topic ids.
    #[must_use]
    pub fn with_ids(mut self, ids: TopicIds) -> Self {
        self.ids = Some(ids);
        self
    }

    /// The same for a changelog with another `delete.retention.ms`.
    #[must_use]
    pub fn with_delete_retention(mut self, ms: i64) -> Self {
        self.delete_retention = ms;
        self
    }

    /// Takes new clients: one that lost a broker may not find its partitions again (UnknownPartition for
    /// minutes, where a new one knows them at once).
    ///
    /// # Errors
    /// `config_invalid`.
    pub fn renew(&mut self) -> Result<()> {
        self.readers = (self.make)()?;
        Ok(())
    }

    /// Restores one unit into the store; `None` when cancelled, with what was replayed kept.
    ///
    /// # Errors
    /// `broker_unreachable`, `restore_stalled`, `topic_recreated`, `offset_out_of_range`, `chain_mismatch`,
    /// `state_failed`, `state_format`.
    pub fn unit(&self, db: &mut Db, partition: i32, watch: Watch<'_>) -> Result<Option<Restored>> {
        let go_on = || watch(Progress { unit: partition, replayed: 0, remaining: 0 });
        let Some(mut inputs) = self.readers.offsets.of(partition, &go_on)? else { return Ok(None) };
        let target = watermarks(&self.readers.uncommitted, &self.changelog, partition)?;
        if !go_on() {
            return Ok(None);
        }
        let stored = Positions::of(db, partition)?;
        let plan = UnitPlan::new(stored.as_ref(), target, wall_millis(), self.delete_retention)?;
        if let Some(why) = plan.wipe {
            tracing::info!(partition, why, "unit is rebuilt from the changelog");
            db.wipe(partition)?;
        }
        let Some((changelog, replayed)) = self.replay(db, partition, plan.from, target.high, watch)? else {
            return Ok(None);
        };
        let ids = self.ids_of_topics()?;
        let lost;
        if self.local_offsets {
            inputs = local(stored.as_ref());
            lost = 0;
        } else {
            let last = self.check_chain(db, partition)?;
            // A store that was behind the changelog knows old offsets: a reset may have come since.
            let current = stored.as_ref().filter(|_| replayed == 0);
            lost = self.check_inputs(
                &self.switched(db, partition, &ids)?,
                partition,
                &mut inputs,
                current,
                last.as_ref(),
            )?;
        }
        let topics = self.check_ids(db, partition, &ids)?;
        Ok(Some(Restored { changelog, inputs, topics, replayed, lost }))
    }

    /// Whether a unit that met this error can go on after another restore.
    #[must_use]
    pub fn goes_on_after(&self, error: &Error) -> bool {
        error.code() == Code::OffsetOutOfRange && self.on_out_of_range == OnOutOfRange::Earliest
    }

    /// Topics whose identity is part of the state.
    fn topics(&self) -> impl Iterator<Item = (Role, &String)> {
        self.inputs.iter().map(|(r, n)| (*r, n)).chain([(Role::Changelog, &self.changelog)])
    }

    /// Ids of these topics and of what stands behind repartitioned inputs, by name; none from the mock broker.
    fn ids_of_topics(&self) -> Result<BTreeMap<String, String>> {
        let Some(ids) = &self.ids else { return Ok(BTreeMap::new()) };
        let names = self.topics().map(|(_, name)| name.as_str()).chain(self.sources.values().map(String::as_str));
        ids.of(&names.collect::<Vec<_>>())
    }

    /// Inputs whose state was built from their source, before they were repartitioned: its offsets are not theirs.
    fn switched(&self, db: &Db, partition: i32, found: &BTreeMap<String, String>) -> Result<Vec<Role>> {
        let mut out = Vec::new();
        for (role, source) in &self.sources {
            let known = known_id(db, partition, *role)?;
            if known.is_some() && known.as_ref() == found.get(source) {
                out.push(*role);
            }
        }
        Ok(out)
    }

    /// Ids of the unit's topics, equal to those that the state was built from.
    fn check_ids(&self, db: &Db, partition: i32, found: &BTreeMap<String, String>) -> Result<BTreeMap<Role, String>> {
        let mut out = BTreeMap::new();
        for (role, name) in self.topics() {
            let Some(id) = found.get(name) else { continue };
            let known = known_id(db, partition, role)?;
            // An input that was switched to `repartition: auto` goes on from its source.
            let switched = self.sources.get(&role).and_then(|s| found.get(s));
            if known.is_some_and(|k| k != *id && Some(&k) != switched) {
                let what = format!("{name} has the topic id {id}, not the one that the state was built from");
                return Err(Error::new(Code::TopicRecreated, what));
            }
            out.insert(role, id.clone());
        }
        Ok(out)
    }

    /// Each input's committed offset against its log and what was decided; the number of lost offsets.
    fn check_inputs(
        &self,
        switched: &[Role],
        partition: i32,
        inputs: &mut BTreeMap<Role, i64>,
        stored: Option<&Positions>,
        last: Option<&Decision>,
    ) -> Result<u64> {
        let mut lost = 0;
        for (role, name) in &self.inputs {
            let own = stored.filter(|_| !switched.contains(role));
            let local = own.and_then(|s| s.inputs.get(role.as_str()).copied());
            let by_decision = last.and_then(|d| d.body.input_vector.get(name).copied());
            let decided = local.max(by_decision).unwrap_or(-1);
            let committed = inputs.get(role).copied().unwrap_or(-1);
            let log = watermarks(&self.readers.committed, name, partition)?;
            let start = Input { topic: name, partition, committed, decided, log }.start(self.on_out_of_range)?;
            inputs.insert(*role, start.offset);
            lost += start.lost;
        }
        Ok(lost)
    }

    /// Replays up to `target`; the next offset and the number of records, `None` when cancelled.
    fn replay(
        &self,
        db: &mut Db,
        partition: i32,
        from: i64,
        target: i64,
        watch: Watch<'_>,
    ) -> Result<Option<(i64, u64)>> {
        if !self.wait_stable(partition, target, watch)? {
            return Ok(None);
        }
        if from >= target {
            return Ok(Some((from, 0)));
        }
        let bulk = target - from > BULK;
        db.bulk(bulk)?;
        let done = self.read_changes(db, partition, from, target, watch);
        // Also after a failure: what was written without the log must reach the disk before anything else.
        if bulk {
            db.bulk(false)?;
        }
        done
    }

    fn read_changes(
        &self,
        db: &mut Db,
        partition: i32,
        from: i64,
        target: i64,
        watch: Watch<'_>,
    ) -> Result<Option<(i64, u64)>> {
        let (mut next, mut count, mut changes) = (from, 0_u64, Vec::new());
        let progress = |next: i64, replayed| Progress {
            unit: partition,
            replayed,
            remaining: u64::try_from(target - next).unwrap_or_default(),
        };
        if !watch(progress(from, 0)) {
            return Ok(None);
        }
        // The committed end is at or behind the target now, so reading to it passes the target.
        let through = read(&self.readers.committed, &self.changelog, partition, from, |m| {
            let Some(m) = m else {
                return Ok(go_on(watch(progress(next, count))));
            };
            changes.push(change(m, partition)?);
            next = m.offset() + 1;
            count += 1;
            if changes.len() >= CHUNK {
                flush(db, partition, std::mem::take(&mut changes), next)?;
            }
            Ok(go_on(!count.is_multiple_of(LOOK) || watch(progress(next, count))))
        })?;
        if through {
            next = next.max(target);
        }
        flush(db, partition, changes, next)?;
        Ok(through.then_some((next, count)))
    }

    /// Waits until nothing open hides the changelog below `target`; `false` when cancelled.
    fn wait_stable(&self, partition: i32, target: i64, watch: Watch<'_>) -> Result<bool> {
        let until = monotonic() + STALL;
        loop {
            let high = watermarks(&self.readers.committed, &self.changelog, partition)?.high;
            if high >= target {
                return Ok(true);
            }
            let remaining = u64::try_from(target - high).unwrap_or_default();
            if !watch(Progress { unit: partition, replayed: 0, remaining }) {
                return Ok(false);
            }
            if monotonic() > until {
                return Err(Error::new(
                    Code::RestoreStalled,
                    format!("an open transaction hides {}-{partition} below {target}", self.changelog),
                ));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The chain head against the last committed decision, which is returned.
    fn check_chain(&self, db: &Db, partition: i32) -> Result<Option<Decision>> {
        let meta: UnitMeta = match db.get(&key(Kind::Unit, partition, &[], None, &[]))? {
            Some(bytes) => super::decode(&bytes)?,
            None => UnitMeta::default(),
        };
        let Some(last) = last_record(&self.readers.committed, &self.decisions, partition)? else {
            // Retention may have emptied the topic.
            return Ok(None);
        };
        let mismatch = |what: String| Err(Error::new(Code::ChainMismatch, format!("unit {partition}: {what}")));
        let Ok(decision) = serde_json::from_slice::<Decision>(last.payload().unwrap_or_default()) else {
            return mismatch(format!("the last decision (offset {}) can't be read", last.offset()));
        };
        if decision.chain.seq.checked_add(1) != Some(meta.chain.next_seq)
            || decision.chain.entry_hash != hex::encode(meta.chain.head)
        {
            return mismatch(format!(
                "the last decision has seq {}, the state expects {}",
                decision.chain.seq, meta.chain.next_seq
            ));
        }
        Ok(Some(decision))
    }
}

fn go_on(yes: bool) -> ControlFlow<()> {
    if yes { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

/// Where a unit notes the id of one of its topics.
pub(crate) fn topic_key(partition: i32, role: Role) -> Vec<u8> {
    key(Kind::Topic, partition, &[role.as_str()], None, &[])
}

fn known_id(db: &Db, partition: i32, role: Role) -> Result<Option<String>> {
    db.get(&topic_key(partition, role))?.map(|v| super::decode::<String>(&v)).transpose()
}

/// A changelog record as a change of its unit.
pub(super) fn change(m: &BorrowedMessage<'_>, partition: i32) -> Result<Change> {
    let key = m.key().unwrap_or_default();
    if !of_unit(key, partition) {
        let what = format!("changelog record {} has no state key of unit {partition}", m.offset());
        return Err(Error::new(Code::StateFormat, what));
    }
    Ok((key.to_vec(), m.payload().map(<[u8]>::to_vec)))
}

/// Writes changes with the changelog offset behind them.
pub(super) fn flush(db: &mut Db, partition: i32, mut changes: Vec<Change>, next: i64) -> Result<()> {
    let positions = Positions { changelog: next, inputs: BTreeMap::new(), saved_at: wall_millis() };
    changes.push(positions.change(partition));
    db.apply(changes)
}

fn local(stored: Option<&Positions>) -> BTreeMap<Role, i64> {
    let at = |role: Role| stored.and_then(|s| s.inputs.get(role.as_str()).copied()).unwrap_or(-1);
    [Role::RetrievalLogs, Role::MemoryWrites].into_iter().map(|r| (r, at(r))).collect()
}
