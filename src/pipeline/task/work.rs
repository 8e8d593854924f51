//! Records in order through the stages, and the commits between them.

use std::time::{Duration, Instant};

use super::super::commit::Step;
use super::super::engine::{Embeds, Pending, Stage};
use super::{Task, Unit};
use crate::clock::{monotonic, wall_millis};
use crate::embed::{Encoded, Job};
use crate::error::{Code, Error, Result};
use crate::source::Fetched;
use crate::state::{Positions, Store as _};
use crate::topology::PostureKind;

/// How often broadcast topics are looked at.
const BROADCAST: Duration = Duration::from_millis(200);
/// Rollbacks without a commit between them until the process ends.
const ROLLBACKS: u32 = 60;
/// How often the store is told that its units are up to date.
const NOTE: Duration = Duration::from_secs(600);
/// Boundaries of a unit held ready; above it they are read again.
const MAX_BOUNDARIES: usize = 50_000;
/// Records decided between two looks at the clock.
const CHECK: usize = 64;
/// Records processed between two looks at events.
const SLICE: usize = 2000;

/// After a rollback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Read again from the committed offsets.
    Rewind,
    /// A rebalance goes on: its own start is to come.
    Wait,
}

impl Task {
    pub(super) fn follow_broadcast(&mut self) {
        if self.last_broadcast.elapsed() < BROADCAST {
            return;
        }
        self.last_broadcast = monotonic();
        for r in self.p.broadcast.poll() {
            if let Err(error) = self.p.registry.apply(r.role, &r.key, r.value.as_deref()) {
                tracing::warn!(%error, "a broadcast record is ignored");
            }
        }
    }

    /// Says in the store that its units are up to date although nothing happened: a unit without a commit
    /// for long would be rebuilt (tombstones may be gone).
    pub(super) fn note_positions(&mut self) -> Result<()> {
        if self.last_note.elapsed() < NOTE || self.committer.opened().is_some() {
            return Ok(());
        }
        self.last_note = monotonic();
        // Without a published assignment another member may have written the unit.
        if self.p.poll.snapshot.of(self.generation).is_none() {
            return Ok(());
        }
        let saved_at = wall_millis();
        let mut changes = Vec::new();
        for unit in self.units.keys() {
            if let Some(p) = Positions::of(self.p.state.store(), *unit)? {
                changes.push(Positions { saved_at, ..p }.change(*unit));
            }
        }
        self.p.state.store_mut().apply(changes)
    }

    /// Admits what may be taken and finishes what is ready.
    pub(super) fn pump(&mut self) -> Result<()> {
        let now = monotonic();
        let hold = self.p.engine.topology().main.posture.on_error == PostureKind::Hold;
        let retry_until = hold.then(|| now + self.p.engine.topology().main.posture.hold_deadline);
        let mut partitions: Vec<i32> = self.merges.keys().copied().collect();
        if !partitions.is_empty() {
            // A backlog on one unit must not starve the others.
            let turn = self.first_unit % partitions.len();
            partitions.rotate_left(turn);
            self.first_unit = turn + 1;
        }
        self.more = false;
        for unit in &partitions {
            let mut taken = 0;
            while taken < SLICE {
                let Some(record) = self.merges.get_mut(unit).and_then(|m| m.next(now)) else {
                    break;
                };
                taken += 1;
                self.admit(*unit, record, retry_until);
            }
            self.more |= taken == SLICE;
        }
        let mut decided = 0_usize;
        for unit in partitions {
            while let Some((pending, embedded)) = self.pending.pop(unit) {
                self.finish(unit, pending, embedded)?;
                decided += 1;
                if self.full() || (decided.is_multiple_of(CHECK) && self.commit_is_due()) {
                    self.more = true;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    pub(super) fn admit(&mut self, unit: i32, record: Fetched, retry_until: Option<Instant>) {
        let (pending, embeds) = self.p.engine.admit(record);
        if let Stage::Write(admitted, _) = &pending.stage
            && self.p.engine.screens(admitted.write.op)
        {
            self.p.ahead.read(admitted);
        }
        for (part, embeds) in self.p.engine.parts(&pending) {
            self.place(unit, part, embeds, retry_until);
        }
        self.place(unit, pending, embeds, retry_until);
    }

    fn place(&mut self, unit: i32, pending: Pending, embeds: Embeds, retry_until: Option<Instant>) {
        match embeds {
            Embeds::Nothing => {
                self.pending.admit(unit, pending, Some(None));
            }
            Embeds::Given(vector) => {
                self.pending.admit(unit, pending, Some(Some(Ok(Encoded::given(vector)))));
            }
            Embeds::Text(text) => match self.p.embedder.cached(&text) {
                Some(known) => {
                    self.pending.admit(unit, pending, Some(Some(Ok(known))));
                }
                None => {
                    let ticket = self.pending.admit(unit, pending, None);
                    self.p.embedder.submit(Job { unit, ticket, text, retry_until });
                }
            },
        }
    }

    pub(super) fn finish(&mut self, unit: i32, pending: Pending, embedded: Option<Result<Encoded>>) -> Result<()> {
        let at = pending.fetched.at;
        let bytes = pending.fetched.bytes();
        let Some(state_of) = self.units.get_mut(&unit) else {
            return Err(Error::new(Code::Internal, format!("unit {unit} has records but no state")));
        };
        // Its vector waits for the batch behind it: nothing is staged, no position moves.
        if pending.is_part() {
            return self.p.engine.finish(pending, embedded, state_of, &mut self.p.state, &self.p.registry).map(drop);
        }
        self.meter.admitted(&pending);
        let outputs = match self.p.engine.finish(pending, embedded, state_of, &mut self.p.state, &self.p.registry) {
            // What came before stays visible, and the next start stands at this record.
            Err(e) if e.code() == Code::PoisonFlood => return self.commit().and(Err(e)),
            outputs => outputs?,
        };
        self.p.budget.give(at.role, at.partition, bytes);
        self.open.inputs += 1;
        self.meter.decided(at, &outputs);
        for o in &outputs {
            self.open.count(o);
        }
        if self.options.on_output.is_some() {
            self.outputs.extend(outputs.iter().cloned());
        }
        self.committer.stage(unit, at.role, at.offset + 1, outputs);
        Ok(())
    }

    pub(super) fn full(&self) -> bool {
        let commit = &self.p.engine.topology().main.commit;
        self.committer.has_failed()
            || self.committer.records() >= commit.max_records
            || self.committer.bytes() >= commit.max_bytes
    }

    pub(super) fn commit_is_due(&self) -> bool {
        let interval = self.p.engine.topology().main.commit.interval;
        let due = self.full() || self.committer.opened().is_some_and(|t| t.elapsed() >= interval);
        // Until the poll thread has published this generation there is nothing to commit with.
        due && self.p.poll.snapshot.of(self.generation).is_some()
    }

    pub(super) fn commit(&mut self) -> Result<()> {
        let step = self.try_commit();
        self.settle(step, Then::Rewind)
    }

    pub(super) fn try_commit(&mut self) -> Step {
        for unit in self.units.values_mut() {
            unit.flush(&mut self.p.state);
        }
        let group = self.p.poll.snapshot.of(self.generation);
        self.committer.commit(&mut self.p.state, group)
    }

    pub(super) fn settle(&mut self, step: Step, then: Then) -> Result<()> {
        match step {
            Step::Nothing => Ok(()),
            Step::Committed => {
                self.committed_now();
                Ok(())
            }
            Step::Rollback(error) => {
                tracing::warn!(%error, "rolled back");
                self.summary.rollbacks += 1;
                self.drop_queued();
                if then == Then::Wait {
                    return Ok(());
                }
                self.rollbacks += 1;
                if self.rollbacks > ROLLBACKS {
                    return Err(error);
                }
                std::thread::sleep(Duration::from_millis(10 << self.rollbacks.min(7)));
                self.rewind()
            }
            Step::Rebuild(error) => {
                tracing::warn!(%error, "rebuilding");
                self.summary.rollbacks += 1;
                self.drop_queued();
                // A client without an answer says nothing of another process under the same id.
                self.rebuild(then, error.code() != Code::BrokerUnreachable)
            }
            Step::Stop(error) => Err(error),
        }
    }

    pub(super) fn committed_now(&mut self) {
        let topology = self.p.engine.topology();
        for (partition, unit) in &self.units {
            let inputs = self.committed.entry(*partition).or_default();
            for (role, next) in inputs.iter_mut() {
                if let Some(position) = unit.positions().get(topology.name(*role)) {
                    *next = *position;
                }
            }
            self.p.poll.lags.committed(*partition, inputs.iter());
        }
        self.meter.committed(wall_millis(), self.units.values_mut().map(Unit::take_sessions));
        let cached: usize = self.units.values().map(Unit::cached_bytes).sum();
        let boundaries = self.units.values().map(Unit::cached_boundaries).max().unwrap_or_default();
        if cached > topology.main.limits.cache_bytes || boundaries > MAX_BOUNDARIES {
            self.units.values_mut().for_each(Unit::drop_histories);
        }
        self.rollbacks = 0;
        self.summary.transactions += 1;
        let since = self.first_record.map_or(Duration::ZERO, |t| t.elapsed());
        self.summary.elapsed_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let open = std::mem::take(&mut self.open);
        self.summary.add(&open);
        if let Some(on_output) = &mut self.options.on_output {
            self.outputs.drain(..).for_each(|o| on_output(&o));
        }
        if let Some(on_progress) = &mut self.options.on_progress {
            on_progress(&self.summary);
        }
    }
}
