//! Units come, go, rewind and are rebuilt.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::Unit;
use super::work::Then;
use super::{Summary, Task};
use crate::clock::monotonic;
use crate::error::{Code, Error, Result};
use crate::source::{Command, Merge, Wait};
use crate::state::{Progress, Restored};
use crate::telemetry::{health, metrics};
use crate::topology::Role;

/// This many rebuilds in this time mean that the instance id is in use elsewhere.
const REBUILDS: (usize, Duration) = (3, Duration::from_secs(300));
/// This many consumers that lost a fetch are replaced in this time; the next one ends the process.
const STARVATIONS: (usize, Duration) = (3, Duration::from_secs(900));
/// Replacements in a row before the process ends.
const REJOINS: u32 = 3;
/// A restore that finds no broker is tried again for this long.
const PATIENCE: Duration = Duration::from_secs(300);

impl Task {
    /// Restores the units of an assignment and starts fetching. A rebalance or a stop cancels it: its
    /// event is on the way.
    pub(super) fn restore(&mut self, partitions: &[(Role, i32)]) -> Result<()> {
        self.clear();
        let units = self.whole_units(partitions)?;
        if let Some(standby) = &self.p.standby {
            standby.yield_to(units.clone());
        }
        let assigned = units.len();
        for (done, unit) in units.into_iter().enumerate() {
            health().restoring(done, assigned);
            let Some(restored) = self.restore_unit(unit)? else {
                tracing::info!(unit, "restore cancelled");
                self.clear();
                health().unassigned();
                return Ok(());
            };
            tracing::info!(unit, replayed = restored.replayed, "restored");
            self.summary.replayed += restored.replayed;
            metrics().restored_records.inc_by(restored.replayed);
            self.summary.lost += restored.lost;
            self.committer.restored(unit, restored.changelog);
            self.committed.insert(unit, restored.inputs);
            self.topics.insert(unit, restored.topics);
        }
        self.start()
    }

    /// Units of which every input is assigned.
    fn whole_units(&self, partitions: &[(Role, i32)]) -> Result<BTreeSet<i32>> {
        let inputs = [Role::RetrievalLogs, Role::MemoryWrites];
        let count = self.p.engine.topology().units();
        if let Some((role, p)) = partitions.iter().find(|(_, p)| *p >= count) {
            let name = self.p.engine.topology().name(*role);
            let what = format!("{name} has a partition {p}, the topology says {count}: its keys have moved");
            return Err(Error::new(Code::PartitionCountMismatch, what));
        }
        let all: BTreeSet<i32> = partitions.iter().map(|(_, p)| *p).collect();
        let (whole, split) = all.into_iter().partition(|u| inputs.iter().all(|r| partitions.contains(&(*r, *u))));
        let split: BTreeSet<i32> = split;
        if !split.is_empty() {
            tracing::error!(units = ?split, "topics are split between members: these units do not run");
        }
        Ok(whole)
    }

    /// A broker that is away for a while is waited for.
    fn restore_unit(&mut self, unit: i32) -> Result<Option<Restored>> {
        let until = monotonic() + PATIENCE;
        let (heartbeat, stop) = (self.p.heartbeat.clone(), self.options.stop.clone());
        let (poll, generation, on_restore) = (&self.p.poll, self.generation, &self.options.on_restore);
        let watch = |p: Progress| {
            heartbeat.beat();
            health().remaining(p.remaining);
            if let Some(on_restore) = on_restore {
                on_restore(p);
            }
            poll.is_current(generation) && !stop.load(Ordering::Relaxed)
        };
        loop {
            match self.p.restorer.unit(self.p.state.store_mut(), unit, &watch) {
                Err(e) if e.code() == Code::BrokerUnreachable && monotonic() < until => {
                    tracing::warn!(unit, error = %e, "restore is tried again");
                    if !watch(Progress { unit, replayed: 0, remaining: 0 }) {
                        return Ok(None);
                    }
                    std::thread::sleep(Duration::from_millis(500));
                    self.p.restorer.renew()?;
                }
                result => return result,
            }
        }
    }

    /// Loads the units and asks for records from the committed offsets.
    pub(super) fn start(&mut self) -> Result<()> {
        let topology = self.p.engine.topology();
        let wait =
            if self.options.until_end { Wait::UntilEnd } else { Wait::UpTo(topology.main.consumer.max_task_idle) };
        let mut offsets = Vec::new();
        for (unit, inputs) in &self.committed {
            let positions =
                inputs.iter().filter(|(_, o)| **o >= 0).map(|(r, o)| (topology.name(*r).to_owned(), *o)).collect();
            let topics = self.topics.get(unit).cloned().unwrap_or_default();
            self.units.insert(*unit, Unit::load(*unit, positions, topics, &self.p.state)?);
            let mut merge = Merge::new(&[Role::RetrievalLogs, Role::MemoryWrites], wait);
            for (role, next) in inputs {
                offsets.push((*role, *unit, *next));
                if self.p.ends.get(&(*role, *unit)).is_some_and(|end| *next > *end || *end < 0) {
                    merge.end(*role);
                }
            }
            self.merges.insert(*unit, merge);
        }
        drop(self.p.poll.commands.send(Command::Start { generation: self.generation, offsets }));
        health().running(self.committed.len());
        Ok(())
    }

    /// Drops all that belongs to the old generation.
    pub(super) fn clear(&mut self) {
        self.drop_queued();
        self.units.clear();
        self.committed.clear();
        self.topics.clear();
    }

    pub(super) fn drop_queued(&mut self) {
        let queued = self.merges.values_mut().flat_map(Merge::clear).collect::<Vec<_>>();
        let pending = self.pending.clear().into_iter().map(|p| p.fetched);
        for record in queued.into_iter().chain(pending) {
            self.p.budget.give(record.at.role, record.at.partition, record.bytes());
        }
        self.merges.clear();
        self.p.embedder.forget();
        self.open = Summary::default();
        self.outputs.clear();
        self.meter.rolled_back();
    }

    /// Back to the committed offsets, under a new generation.
    pub(super) fn rewind(&mut self) -> Result<()> {
        self.drop_queued();
        self.units.clear();
        match self.p.poll.bump(self.generation) {
            Some(next) => self.generation = next,
            None => return Ok(()),
        }
        self.start()
    }

    /// librdkafka may lose a group for good when its only broker pauses: a new consumer finds it again.
    pub(super) fn without_assignment(&mut self) -> Result<()> {
        self.rejoins += 1;
        if self.rejoins > REJOINS {
            return Err(Error::new(Code::BrokerUnreachable, "the group gave no assignment to three consumers in turn"));
        }
        tracing::warn!(attempt = self.rejoins, "no assignment: joining the group with a new consumer");
        self.rejoin()
    }

    /// An input has more and nothing of it comes, as when librdkafka has lost its fetch: what is open is decided again.
    pub(super) fn starved(&mut self, (role, partition): (Role, i32)) -> Result<()> {
        let now = monotonic();
        let topic = self.p.engine.topology().name(role).to_owned();
        self.starvations.retain(|t| now.duration_since(*t) < STARVATIONS.1);
        if self.starvations.len() >= STARVATIONS.0 {
            let what = format!(
                "the fourth consumer in {} s gets nothing of {topic} [{partition}], which has more",
                STARVATIONS.1.as_secs()
            );
            return Err(Error::new(Code::BrokerUnreachable, what));
        }
        self.starvations.push(now);
        tracing::warn!(
            topic,
            partition,
            "nothing comes of an input that has more: joining the group with a new consumer"
        );
        let step = self.committer.lose(&mut self.p.state);
        self.settle(step, Then::Wait)?;
        self.rejoin()
    }

    fn rejoin(&mut self) -> Result<()> {
        self.clear();
        if let Err(error) = self.p.poll.stop() {
            tracing::error!(%error, "the consumer before");
        }
        // What it had handed over and nobody took is gone with it.
        self.p.budget.clear();
        health().unassigned();
        self.p.poll = (self.rejoin)()?;
        self.generation = 0;
        self.unassigned_since = Some(monotonic());
        Ok(())
    }

    /// A new producer; `fenced` where another process may have taken the old one's place.
    pub(super) fn rebuild(&mut self, then: Then, fenced: bool) -> Result<()> {
        let now = monotonic();
        self.rebuilds.retain(|t| now.duration_since(*t) < REBUILDS.1);
        if fenced {
            self.rebuilds.push(now);
        }
        if self.rebuilds.len() >= REBUILDS.0 {
            return Err(Error::new(Code::InstanceFenced, "the producer had to be rebuilt three times in five minutes"));
        }
        // Fencing may take a minute.
        self.p.heartbeat.beat();
        let producer = (self.remake)()?;
        self.committer.replace(producer);
        if then == Then::Wait { Ok(()) } else { self.restore_again() }
    }

    /// Restores what is held, under a new generation.
    pub(super) fn restore_again(&mut self) -> Result<()> {
        let partitions: Vec<(Role, i32)> = self
            .committed
            .iter()
            .flat_map(|(unit, inputs)| inputs.keys().map(|r| (*r, *unit)).collect::<Vec<_>>())
            .collect();
        match self.p.poll.bump(self.generation) {
            Some(next) => self.generation = next,
            None => return Ok(()),
        }
        if partitions.is_empty() { Ok(()) } else { self.restore(&partitions) }
    }
}
