//! Units come, go, rewind and are rebuilt.

use std::time::Duration;

use super::super::Unit;
use super::work::Then;
use super::{Summary, Task};
use crate::clock::monotonic;
use crate::error::{Code, Error, Result};
use crate::source::{Command, Merge, Wait};
use crate::topology::Role;

/// This many rebuilds in this time mean that the instance id is in use elsewhere.
const REBUILDS: (usize, Duration) = (3, Duration::from_secs(300));
/// Replacements in a row before the process ends.
const REJOINS: u32 = 3;

impl Task {
    /// Restores the units of an assignment and starts fetching.
    pub(super) fn restore(&mut self, partitions: &[(Role, i32)]) -> Result<()> {
        self.clear();
        let inputs = [Role::RetrievalLogs, Role::MemoryWrites];
        let mut units: Vec<i32> = partitions.iter().map(|(_, p)| *p).collect();
        units.sort_unstable();
        units.dedup();
        for unit in units {
            if !inputs.iter().all(|r| partitions.contains(&(*r, unit))) {
                tracing::error!(unit, "the unit's topics are split between members: it does not run");
                continue;
            }
            let heartbeat = self.p.heartbeat.clone();
            let restored = self.p.restorer.unit(self.p.state.store_mut(), unit, &|| heartbeat.beat())?;
            tracing::info!(unit, replayed = restored.replayed, "restored");
            self.summary.replayed += restored.replayed;
            self.committer.restored(unit, restored.changelog);
            self.committed.insert(unit, restored.inputs);
        }
        self.start()
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
            self.units.insert(*unit, Unit::load(*unit, positions, &self.p.state)?);
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
        Ok(())
    }

    /// Drops all that belongs to the old generation.
    pub(super) fn clear(&mut self) {
        self.drop_queued();
        self.units.clear();
        self.committed.clear();
    }

    pub(super) fn drop_queued(&mut self) {
        let queued = self.merges.values_mut().flat_map(Merge::clear).collect::<Vec<_>>();
        let pending = self.pending.clear().into_iter().map(|p| p.fetched);
        for record in queued.into_iter().chain(pending) {
            self.p.budget.give(record.at.role, record.at.partition, record.bytes());
        }
        self.merges.clear();
        self.open = Summary::default();
        self.outputs.clear();
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
    pub(super) fn rejoin(&mut self) -> Result<()> {
        self.rejoins += 1;
        if self.rejoins > REJOINS {
            return Err(Error::new(Code::BrokerUnreachable, "the group gave no assignment to three consumers in turn"));
        }
        tracing::warn!(attempt = self.rejoins, "no assignment: joining the group with a new consumer");
        self.clear();
        self.p.poll.stop();
        self.p.poll = (self.rejoin)()?;
        self.generation = 0;
        self.unassigned_since = Some(monotonic());
        Ok(())
    }

    pub(super) fn rebuild(&mut self, then: Then) -> Result<()> {
        let now = monotonic();
        self.rebuilds.retain(|t| now.duration_since(*t) < REBUILDS.1);
        self.rebuilds.push(now);
        if self.rebuilds.len() >= REBUILDS.0 {
            return Err(Error::new(Code::InstanceFenced, "the producer had to be rebuilt three times in five minutes"));
        }
        let producer = (self.remake)()?;
        self.committer.replace(producer);
        if then == Then::Wait {
            return Ok(());
        }
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
