//! The rolling calibration on the write path: a step before a write is scored, and what becomes of the write after.

use super::memories::{numbered, published_name, scan, vector};
use super::screen_path::{Occasion, Screened};
use super::{Engine, Unit, outputs};
use crate::alert;
use crate::decide::Embedding;
use crate::error::{Code, Error, Result};
use crate::policy::Ruling;
use crate::schema::{
    Activation, Boundary, Copied, DecisionBody, DecisionKind, IdKind, Origin, RollingFacts, Vector, Verdict,
};
use crate::score::{
    Accepted, AcceptedValue, Change, Keys, Measured, Rolling, RollingMark, Row, Rules, rolling_name, tag,
};
use crate::screen::source_id;
use crate::sink::Output;
use crate::state::{self, Kind, State, Store, key};
use crate::topology::Role;

/// Numbers of writes up to here.
const MAX_SEQ: u64 = 1 << 53;
/// The reason of a write that this test alone held.
const ALONE: &str = "memsad:above_threshold";

/// How a write stands to the rolling calibration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// Of a user or the system, embedded whole, and nothing that the screen would hold.
    trusted: bool,
    /// MEMSAD alone held it.
    alone: bool,
}

impl Entry {
    /// Of a write that is decided and not yet forwarded.
    pub(super) fn of(origin: Origin, embedding: Embedding, screened: Option<&Screened>, body: &DecisionBody) -> Self {
        let clean = screened.is_none_or(|s| !s.cut && s.facts.verdict == Verdict::Allow);
        let known = matches!(origin, Origin::UserInput | Origin::System);
        let trusted = known && embedding == Embedding::Whole && clean;
        Self { trusted, alone: trusted && body.reasons.iter().all(|r| r == ALONE) && !body.reasons.is_empty() }
    }
}

impl Engine {
    /// Brings the boundary's rolling calibration up to date before a write is scored.
    pub(super) fn roll<S: Store>(&self, unit: &mut Unit, state: &mut State<S>, o: Occasion<'_>) -> Result<Vec<Output>> {
        if !self.rolls() {
            return Ok(Vec::new());
        }
        let (partition, b, now) = (unit.partition, &o.write.boundary, o.at.timestamp);
        let published = self.published(unit, b, &mut Vec::new());
        let base = published.as_deref().map(published_name).unwrap_or_default();
        let rows = published.as_deref().map_or(&[][..], |c| c.rows.as_slice());
        let ready = unit.memories.ready(partition, b, self, state)?;
        let before = ready.rolling.mark().clone();
        for seq in ready.rolling.sync(&base, tag(&self.memsad.encoder), rows, now) {
            state.delete(numbered(Kind::RollingRow, partition, b, seq));
        }
        let step = ready.rolling.step(now, &ready.window);
        if let Some(step) = &step {
            step.put.iter().for_each(|a| put(state, partition, b, a));
            step.left.iter().for_each(|seq| state.delete(numbered(Kind::RollingRow, partition, b, *seq)));
        }
        let mark = ready.rolling.mark().clone();
        if mark != before {
            state.put(mark_key(partition, b), state::encode(&mark));
        }
        unit.sessions.frozen += u64::from(mark.frozen);
        match step.map(|s| s.change) {
            None | Some(Change::Kept) => Ok(Vec::new()),
            Some(Change::Frozen(m)) => {
                let uid = self.id_of(unit, o.input, IdKind::Calibration);
                let attack = alert::frozen_calibration(uid, b, &facts(&mark, b, &m), now);
                Ok(vec![outputs::finding(self, partition, &attack)?])
            }
            Some(Change::Rolled(m)) => {
                let (copy, mut outputs) = self.copied(unit, state, o, &mark)?;
                outputs.push(self.rolled(unit, o, &mark, RollingFacts { copy, ..facts(&mark, b, &m) }));
                Ok(outputs)
            }
        }
    }

    /// Says that the stream's own rows came into force.
    fn rolled(&self, unit: &mut Unit, o: Occasion<'_>, mark: &RollingMark, facts: RollingFacts) -> Output {
        (unit.sessions.rolls, unit.sessions.rows) = (unit.sessions.rolls + 1, Some(facts.n));
        let what = format!("rolling/{}", o.write.boundary);
        let mut body = self.body(unit, o.at, None);
        let place = i64::try_from(unit.meta.chain.next_seq).unwrap_or(i64::MAX);
        body.id = self.ids.of_activation(unit.partition, &what, mark.version, place);
        body.kind = DecisionKind::Activation;
        let key = format!("activation/{what}").into_bytes();
        body.activation = Some(Activation { rolling: Some(facts), version: mark.version, what });
        self.decision(unit, key, &body)
    }

    /// Takes note of what became of a write: it waits for its age, or replaces one that did.
    pub(super) fn noted<S: Store>(
        &self,
        unit: &mut Unit,
        state: &mut State<S>,
        o: Occasion<'_>,
        ruling: &Ruling,
        (entry, vector): (Entry, Option<&Vector>),
        outputs: &[Output],
    ) -> Result<()> {
        if !self.rolls() {
            return Ok(());
        }
        let (partition, w) = (unit.partition, o.write);
        let b = &w.boundary;
        for out in outputs.iter().filter(|out| out.role == Role::CommittedMemory) {
            let record = out.key.get(b.as_str().len() + 1..).unwrap_or_default();
            let record = String::from_utf8_lossy(record).into_owned();
            self.withdraw(unit, state, b, &record)?;
            let (Some(_), Some(vector), true) = (&out.value, vector, entry.trusted) else { continue };
            let keys = Keys::of_write(&w.principal, &w.session_id, &w.output_id, ruling.basis);
            let named = keys.principal.or(keys.session);
            let source = named.unwrap_or_else(|| tag(&source_id(w, Role::MemoryWrites.as_str())));
            let row = Row { keys, vector: vector.clone() };
            let ready = unit.memories.ready(partition, b, self, state)?;
            let (kept, left) = ready.rolling.accept(o.at.timestamp, source, tag(&record), row);
            let mark = state::encode(ready.rolling.mark());
            kept.iter().for_each(|a| put(state, partition, b, a));
            left.iter().for_each(|seq| state.delete(numbered(Kind::RollingRow, partition, b, *seq)));
            state.put(mark_key(partition, b), mark);
        }
        if entry.alone && outputs.iter().any(|out| out.role == Role::Quarantine) {
            let ready = unit.memories.ready(partition, b, self, state)?;
            ready.rolling.held_alone();
            state.put(mark_key(partition, b), state::encode(ready.rolling.mark()));
        }
        Ok(())
    }

    /// A record was deleted, replaced or taken back before its write had aged.
    pub(super) fn withdraw<S: Store>(
        &self,
        unit: &mut Unit,
        state: &mut State<S>,
        b: &Boundary,
        record: &str,
    ) -> Result<()> {
        if !self.rolls() {
            return Ok(());
        }
        let partition = unit.partition;
        for seq in unit.memories.ready(partition, b, self, state)?.rolling.withdraw(&tag(record)) {
            state.delete(numbered(Kind::RollingRow, partition, b, seq));
        }
        Ok(())
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // rounded, and none is negative
fn facts(mark: &RollingMark, b: &Boundary, m: &Measured) -> RollingFacts {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    RollingFacts {
        before: m.before,
        calibration: if mark.rolled { rolling_name(mark, b.as_str()) } else { mark.base.clone() },
        copy: Copied::default(),
        drift: (m.drift * 1e9).round() as u64,
        ks: m.halves.millionths(),
        ks_new: m.fresh.millionths(),
        length: m.length as u32,
        n: count(m.n),
        outvoted: count(m.outvoted),
        sigma: m.sigma.round() as u64,
        threshold: m.threshold,
    }
}

/// Reads a boundary's rolling calibration.
pub(super) fn load<S: Store>(partition: i32, b: &Boundary, engine: &Engine, state: &State<S>) -> Result<Rolling> {
    let rules = Rules::of(&engine.memsad.memsad, engine.dimension());
    if !engine.rolls() {
        return Ok(Rolling::restore(rules, RollingMark::default(), Vec::new()));
    }
    let broken = || Error::new(Code::StateFormat, "a row of a rolling calibration is broken");
    let mark: RollingMark = match state.get(&mark_key(partition, b))? {
        Some(value) => state::decode(&value)?,
        None => RollingMark::default(),
    };
    if !is_possible(&mark) {
        return Err(broken());
    }
    let mut accepted = Vec::new();
    for (seq, value) in scan(Kind::RollingRow, partition, b, state)? {
        let AcceptedValue { at, source, record, keys, vector: bytes } = state::decode(&value)?;
        let vector = vector(&bytes).filter(|_| seq < mark.next).ok_or_else(broken)?;
        accepted.push(Accepted { seq, at, source, record, row: Row { keys, vector } });
    }
    // Another encoder's are not read, as those of a reset are not.
    accepted.retain(|a| a.row.vector.as_slice().len() == engine.dimension());
    Ok(Rolling::restore(rules, mark, accepted))
}

fn is_possible(mark: &RollingMark) -> bool {
    let numbers = [mark.next, mark.version, mark.stride].iter().all(|n| *n <= MAX_SEQ);
    let order = mark.settled <= mark.next && mark.judged <= mark.next;
    let drift = f64::from_bits(mark.drift);
    numbers && order && mark.calm < 8 && mark.balance.abs_diff(0) <= MAX_SEQ && (0.0..=2.0).contains(&drift)
}

fn put<S: Store>(state: &mut State<S>, partition: i32, b: &Boundary, a: &Accepted) {
    state.put(numbered(Kind::RollingRow, partition, b, a.seq), state::encode(&a.value()));
}

fn mark_key(partition: i32, b: &Boundary) -> Vec<u8> {
    key(Kind::Rolling, partition, &[b.as_str()], None, &[])
}
