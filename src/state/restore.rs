//! Restore at assignment, in the order of DESIGN 3: the producer is fenced already; committed offsets
//! (require stable); high watermark by a read-uncommitted handle; read-committed replay up to it; the
//! chain head against the last committed decision.
#![allow(clippy::disallowed_methods)] // blocking calls with their own deadlines, on the task thread

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer;
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};

use super::inputs::Input;
use super::{Db, Kind, Positions, Store, UnitMeta, key, unit};
use crate::clock::{monotonic, wall_millis};
use crate::error::{Code, Error, Result};
use crate::schema::Decision;
use crate::source::{Bounds, Reader, last_record, read, reader, watermarks};
use crate::topology::{OnOutOfRange, Role, Topology};

const CALL: Duration = Duration::from_secs(20);
/// An open transaction that hides the changelog's end is waited for at most this long.
const STALL: Duration = Duration::from_secs(90);
/// Half of `delete.retention.ms` as `topology apply` sets it: older state may miss tombstones.
const MAX_AWAY_MS: i64 = 43_200_000;
/// Changelog records in one write.
const CHUNK: usize = 2000;

/// What is known of a unit before replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitPlan {
    /// First changelog offset to replay.
    pub from: i64,
    /// Everything of the unit is deleted first, and why.
    pub wipe: Option<&'static str>,
}

impl UnitPlan {
    /// Pure: from what is stored, the log's bounds and the time away.
    ///
    /// # Errors
    /// `topic_recreated` when the log ends before what was stored.
    pub fn new(stored: Option<&Positions>, log: Bounds, now: i64) -> Result<Self> {
        let Some(stored) = stored else {
            return Ok(Self { from: log.low, wipe: Some("nothing stored") });
        };
        if stored.changelog > log.high {
            return Err(Error::new(
                Code::TopicRecreated,
                format!("the changelog ends at {}, the state was at {}", log.high, stored.changelog),
            ));
        }
        if stored.changelog < log.low {
            return Ok(Self { from: log.low, wipe: Some("below the log's start") });
        }
        if now.saturating_sub(stored.saved_at) > MAX_AWAY_MS {
            return Ok(Self { from: log.low, wipe: Some("away longer than half of delete.retention.ms") });
        }
        Ok(Self { from: stored.changelog, wipe: None })
    }
}

/// A restored unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Next changelog offset.
    pub changelog: i64,
    /// Next offset of each input; -1 where none was committed.
    pub inputs: BTreeMap<Role, i64>,
    /// Changelog records replayed.
    pub replayed: u64,
    /// Input offsets that were deleted unread.
    pub lost: u64,
}

/// Restores units.
pub struct Restorer {
    /// read_uncommitted: sees the high watermark.
    uncommitted: Reader,
    /// read_committed: sees the last stable offset and what is committed.
    committed: Reader,
    /// Of the group, never subscribed: its committed offsets (require stable).
    offsets: Reader,
    changelog: String,
    decisions: String,
    inputs: Vec<(Role, String)>,
    on_out_of_range: OnOutOfRange,
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
        let inputs = [Role::RetrievalLogs, Role::MemoryWrites];
        Ok(Self {
            uncommitted: reader(client, "read_uncommitted", "memsluice-watermarks")?,
            committed: reader(client, "read_committed", "memsluice-restore")?,
            offsets: reader(client, "read_committed", group)?,
            changelog: topology.name(Role::Changelog).to_owned(),
            decisions: topology.name(Role::Decisions).to_owned(),
            inputs: inputs.iter().map(|r| (*r, topology.name(*r).to_owned())).collect(),
            on_out_of_range: topology.main.consumer.on_out_of_range,
            local_offsets: false,
        })
    }

    /// Restores one unit into the store.
    ///
    /// # Errors
    /// `broker_unreachable`, `restore_stalled`, `topic_recreated`, `offset_out_of_range`, `chain_mismatch`,
    /// `state_failed`, `state_format`.
    pub fn unit(&self, db: &mut Db, partition: i32, beat: &dyn Fn()) -> Result<Restored> {
        let mut inputs = self.committed(partition)?;
        let target = watermarks(&self.uncommitted, &self.changelog, partition)?;
        beat();
        let stored = db.positions(partition)?;
        let plan = UnitPlan::new(stored.as_ref(), target, wall_millis())?;
        if let Some(why) = plan.wipe {
            tracing::info!(partition, why, "unit is rebuilt from the changelog");
            db.wipe(partition)?;
        }
        let (changelog, replayed) = self.replay(db, partition, plan.from, target.high, beat)?;
        if self.local_offsets {
            return Ok(Restored { changelog, inputs: local(stored.as_ref()), replayed, lost: 0 });
        }
        let last = self.check_chain(db, partition)?;
        let lost = self.check_inputs(partition, &mut inputs, stored.as_ref(), last.as_ref())?;
        Ok(Restored { changelog, inputs, replayed, lost })
    }

    /// Whether a unit that met this error can go on after another restore.
    #[must_use]
    pub fn goes_on_after(&self, error: &Error) -> bool {
        error.code() == Code::OffsetOutOfRange && self.on_out_of_range == OnOutOfRange::Earliest
    }

    fn committed(&self, partition: i32) -> Result<BTreeMap<Role, i64>> {
        let mut list = TopicPartitionList::new();
        for (_, name) in &self.inputs {
            list.add_partition(name, partition);
        }
        let found = self
            .offsets
            .committed_offsets(list, CALL)
            .map_err(|e| Error::with(Code::BrokerUnreachable, "committed offsets can't be read", e))?;
        let mut inputs = BTreeMap::new();
        for (role, name) in &self.inputs {
            let next = match found.find_partition(name, partition) {
                None => -1,
                Some(p) => {
                    p.error().map_err(|e| {
                        Error::with(Code::BrokerUnreachable, format!("no committed offset of {name}-{partition}"), e)
                    })?;
                    if let Offset::Offset(n) = p.offset() { n } else { -1 }
                }
            };
            inputs.insert(*role, next);
        }
        Ok(inputs)
    }

    /// Each input's committed offset against its log and what was decided; the number of lost offsets.
    fn check_inputs(
        &self,
        partition: i32,
        inputs: &mut BTreeMap<Role, i64>,
        stored: Option<&Positions>,
        last: Option<&Decision>,
    ) -> Result<u64> {
        let mut lost = 0;
        for (role, name) in &self.inputs {
            let local = stored.and_then(|s| s.inputs.get(role.as_str()).copied());
            let by_decision = last.and_then(|d| d.body.input_vector.get(name).copied());
            let decided = local.max(by_decision).unwrap_or(-1);
            let committed = inputs.get(role).copied().unwrap_or(-1);
            let log = watermarks(&self.committed, name, partition)?;
            let start = Input { topic: name, partition, committed, decided, log }.start(self.on_out_of_range)?;
            inputs.insert(*role, start.offset);
            lost += start.lost;
        }
        Ok(lost)
    }

    /// Replays up to `target`; the next offset and the number of records.
    fn replay(&self, db: &mut Db, partition: i32, from: i64, target: i64, beat: &dyn Fn()) -> Result<(i64, u64)> {
        self.wait_stable(partition, target, beat)?;
        if from >= target {
            return Ok((from, 0));
        }
        let (mut next, mut count, mut changes) = (from, 0_u64, Vec::new());
        // The committed end is at or behind the target now, so reading to it passes the target.
        read(&self.committed, &self.changelog, partition, from, |m| {
            let key = m.key().unwrap_or_default();
            let of_unit = key.get(1..5) == Some(partition.to_be_bytes().as_slice());
            if !of_unit || !key.first().copied().is_some_and(Kind::is_logged) {
                let what = format!("changelog record {} has no state key of unit {partition}", m.offset());
                return Err(Error::new(Code::StateFormat, what));
            }
            changes.push((key.to_vec(), m.payload().map(<[u8]>::to_vec)));
            next = m.offset() + 1;
            count += 1;
            if changes.len() >= CHUNK {
                beat();
                flush(db, partition, std::mem::take(&mut changes), next)?;
            }
            Ok(())
        })?;
        let next = next.max(target);
        flush(db, partition, changes, next)?;
        Ok((next, count))
    }

    fn wait_stable(&self, partition: i32, target: i64, beat: &dyn Fn()) -> Result<()> {
        let until = monotonic() + STALL;
        loop {
            beat();
            if watermarks(&self.committed, &self.changelog, partition)?.high >= target {
                return Ok(());
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
            Some(bytes) => unit::decode(&bytes)?,
            None => UnitMeta::default(),
        };
        let Some(last) = last_record(&self.committed, &self.decisions, partition)? else {
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

fn flush(db: &mut Db, partition: i32, mut changes: Vec<(Vec<u8>, Option<Vec<u8>>)>, next: i64) -> Result<()> {
    let positions = Positions { changelog: next, inputs: BTreeMap::new(), saved_at: wall_millis() };
    changes.push(Db::positions_change(partition, &positions));
    db.apply(changes)
}

fn local(stored: Option<&Positions>) -> BTreeMap<Role, i64> {
    let at = |role: Role| stored.and_then(|s| s.inputs.get(role.as_str()).copied()).unwrap_or(-1);
    [Role::RetrievalLogs, Role::MemoryWrites].into_iter().map(|r| (r, at(r))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(changelog: i64, saved_at: i64) -> Positions {
        Positions { changelog, inputs: BTreeMap::new(), saved_at }
    }

    #[test]
    fn plans() {
        let log = Bounds { low: 10, high: 100 };
        let plan = |s: Option<Positions>, now| UnitPlan::new(s.as_ref(), log, now);
        assert_eq!(plan(None, 0).unwrap().from, 10);
        assert_eq!(plan(Some(stored(50, 0)), 1).unwrap(), UnitPlan { from: 50, wipe: None });
        assert_eq!(plan(Some(stored(100, 0)), 1).unwrap(), UnitPlan { from: 100, wipe: None });
        assert!(plan(Some(stored(9, 0)), 1).unwrap().wipe.is_some());
        assert!(plan(Some(stored(50, 0)), MAX_AWAY_MS + 1).unwrap().wipe.is_some());
        assert_eq!(plan(Some(stored(101, 0)), 1).unwrap_err().code(), Code::TopicRecreated);
    }
}
