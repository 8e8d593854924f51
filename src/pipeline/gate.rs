//! Between admission and a record's own stages: the breaker, held keys, and the control record that ends a
//! hold. What they know of a unit is keyed state, so that a restart and a replay decide the same.

use std::collections::BTreeMap;

use super::engine::{Pending, Stage, Taken};
use super::facts_path::Fact;
use super::{Engine, Unit};
use crate::breaker::{Breaker, Circuit, Held, Peek, Step, Verdict, record_key};
use crate::clock::rfc3339;
use crate::error::{Code, Error, Result};
use crate::schema::{Coordinates, DecisionKind, Isolation, header};
use crate::sink::Output;
use crate::source::{At, Fetched};
use crate::state::{self, Kind, State, Store, key};
use crate::topology::{OnDeadLetter, Role};

/// How a record stands to the held keys.
#[derive(Debug)]
pub(super) struct Ticket {
    at: At,
    origin: i64,
    /// It is a redrive of an outstanding record.
    redriven: bool,
    /// The key that waits for it, should it become a dead letter.
    queue: Option<String>,
}

/// A null value with the skip header: an operator gives a dead letter up.
pub(super) fn skip(fetched: &Fetched, topic: &str) -> Option<Result<Coordinates>> {
    if !is_skip(fetched) {
        return None;
    }
    let refused = || Error::new(Code::InvalidRecord, "memsluice-dlq-skip names no record of this partition");
    Some(named(fetched, header::DLQ_SKIP, topic).ok_or_else(refused))
}

/// What was decoded, or what can be seen of the bytes.
fn look(stage: &Stage, fetched: &Fetched) -> Peek {
    match stage {
        Stage::Write(admitted, _) if admitted.write.principal.is_some() => {
            let w = &admitted.write;
            let principal = w.principal.as_deref().unwrap_or_default();
            Peek::decoded(&w.boundary, Some(&w.record_id), principal, w.session_id.as_deref())
        }
        Stage::Batch(facts) => match facts.first() {
            Some(Fact::Write(a, _)) => {
                let (w, who) = (&a.write, a.write.principal.as_ref().or(a.write.session_id.as_ref()));
                who.map_or_else(
                    || Peek::of(fetched, false),
                    |who| Peek::decoded(&w.boundary, Some(&w.record_id), who, w.session_id.as_deref()),
                )
            }
            Some(Fact::Retrieval(r)) => Peek::decoded(&r.boundary, None, &r.principal, Some(&r.session_id)),
            None => Peek::of(fetched, false),
        },
        Stage::Retrieval(r) => Peek::decoded(&r.boundary, None, &r.principal, Some(&r.session_id)),
        stage => Peek::of(fetched, matches!(stage, Stage::Dead(_))),
    }
}

fn is_skip(fetched: &Fetched) -> bool {
    fetched.value.is_none() && fetched.headers.iter().any(|(name, _)| name == header::DLQ_SKIP)
}

/// Coordinates in a header, if they are of the record's own partition.
fn named(fetched: &Fetched, name: &str, topic: &str) -> Option<Coordinates> {
    let text = std::str::from_utf8(fetched.header(name)?).ok()?;
    let at: Coordinates = text.parse().ok()?;
    (at.topic == topic && at.partition == fetched.at.partition).then_some(at)
}

impl Engine {
    /// Counts the record for its source, and holds it back where an earlier one of its key waits.
    ///
    /// # Errors
    /// `poison_flood`: then nothing was noted, and the record is as good as unread.
    pub(super) fn gate<S: Store>(
        &self,
        pending: Pending,
        unit: &mut Unit,
        state: &mut State<S>,
    ) -> Result<(Taken, Ticket, Stage)> {
        let Pending { fetched, mut stage, stamp } = pending;
        let at = fetched.at;
        let failed = match &stage {
            Stage::Dead(error) => Some(error.code()),
            _ => None,
        };
        let mut taken = Taken::new(fetched, stamp, self.topology.name(at.role));
        let mut ticket = Ticket { at, origin: at.offset, redriven: false, queue: None };
        let counts = failed.is_some() || !unit.breaker.is_empty();
        let holds = self.holds(at.role);
        if matches!(stage, Stage::Skip(_)) || !(counts || holds || !unit.held.is_empty()) {
            return Ok((taken, ticket, stage));
        }
        let peek = look(&stage, &taken.fetched);
        if counts {
            let source = peek.source(&taken.fetched);
            let step = self.count(unit, state, &source, at, failed)?;
            let beside = peek.unreadable(&taken.fetched).filter(|u| unit.breaker.circuit(u).is_some());
            if let (Some(unreadable), None) = (beside, failed) {
                self.count(unit, state, &unreadable, at, None)?;
            }
            if step.verdict == Verdict::Isolated {
                stage = Stage::Dead(isolated(&step));
            }
            taken.isolation = step.isolation.map(|(cause, since)| Isolation { source, cause, since: rfc3339(since) });
        }
        let redrive = named(&taken.fetched, header::REDRIVE, self.topology.name(at.role)).map(|c| c.offset);
        if let Some(origin) = redrive.filter(|o| unit.held.waits(at.role, *o)) {
            (taken.origin, ticket.origin, ticket.redriven) = (origin, origin, true);
        }
        if holds {
            let keys = keys(&peek, &taken.fetched);
            let blocker = unit.held.blocker(&keys, ticket.origin);
            if let (Some(offset), false) = (blocker, matches!(stage, Stage::Dead(_))) {
                let what = format!("offset {offset} of the same key waits in dead-letters");
                stage = Stage::Dead(Error::new(Code::KeyHeld, what));
            }
            // A misplaced record is about a key of another partition, a broken skip about none.
            let about = failed != Some(Code::MisplacedPartition) && !is_skip(&taken.fetched);
            ticket.queue = keys.into_iter().next().filter(|_| about);
        }
        Ok((taken, ticket, stage))
    }

    fn holds(&self, role: Role) -> bool {
        let flows = &self.topology.main.flows;
        let flow = if role == Role::RetrievalLogs { &flows.retrievals } else { &flows.writes };
        flow.on_dead_letter == OnDeadLetter::HoldKey
    }

    fn count<S: Store>(
        &self,
        unit: &mut Unit,
        state: &mut State<S>,
        source: &str,
        at: At,
        failed: Option<Code>,
    ) -> Result<Step> {
        let step = unit.breaker.step(&self.topology.main.breaker, source, at.timestamp, failed);
        if let Verdict::Flood { sources } = step.verdict {
            let place = format!("{}/{}/{}", self.topology.name(at.role), at.partition, at.offset);
            let what = format!("{place} would be the failure that isolates source {sources}, {source}");
            return Err(Error::new(Code::PoisonFlood, what));
        }
        for changed in &step.changed {
            let key = key(Kind::Circuit, unit.partition, &[changed], None, &[]);
            match unit.breaker.circuit(changed) {
                Some(circuit) => state.put(key, state::encode(circuit)),
                None => state.delete(key),
            }
        }
        if step.opened {
            let code = failed.map_or("", Code::name);
            tracing::warn!(source, code, partition = at.partition, offset = at.offset, "a source is isolated");
        }
        Ok(step)
    }

    /// After a record's outputs are made: holds or frees its key.
    ///
    /// # Errors
    /// `held_keys_full`: the open transaction must not be committed.
    pub(super) fn settle<S: Store>(
        &self,
        unit: &mut Unit,
        state: &mut State<S>,
        ticket: Ticket,
        outputs: &[Output],
    ) -> Result<()> {
        let Ticket { at, origin, redriven, queue } = ticket;
        let dead = outputs.iter().any(|o| o.role == Role::DeadLetters);
        match queue {
            _ if redriven && dead => {}
            _ if redriven => drop(unit.release(at.role, origin, state)),
            Some(queue) if dead => {
                if unit.held.len() >= self.topology.main.breaker.max_held {
                    let place = format!("{}/{}/{}", self.topology.name(at.role), at.partition, at.offset);
                    let what = format!("{place} would wait behind {} records of held keys", unit.held.len());
                    return Err(Error::new(Code::HeldKeysFull, what));
                }
                state.put(held_key(unit.partition, &queue, origin), state::encode(&()));
                unit.held.hold(&queue, at.role, origin);
            }
            _ => {}
        }
        Ok(())
    }

    /// Consumes a skip. A write's input has a decision for each record, so this one gets one too.
    pub(super) fn control<S: Store>(
        &self,
        unit: &mut Unit,
        state: &mut State<S>,
        taken: &Taken,
        skipped: &Coordinates,
    ) -> Vec<Output> {
        let at = taken.fetched.at;
        let released = unit.release(at.role, skipped.offset, state);
        tracing::info!(%skipped, released, "a dead letter is skipped");
        if at.role != Role::MemoryWrites {
            return Vec::new();
        }
        let mut body = self.body(unit, at, Some(&taken.input));
        body.kind = DecisionKind::Control;
        body.reasons = vec![format!("dlq_skip:{skipped}")];
        if !released {
            body.flags.push("nothing_held".to_owned());
        }
        let from = &taken.input;
        let key = format!("control/{}/{}/{}", from.topic, from.partition, from.offset).into_bytes();
        vec![self.decision(unit, key, &body)]
    }
}

impl Unit {
    /// Takes a record out of the held keys; `false` when it was not among them.
    fn release<S: Store>(&mut self, input: Role, offset: i64, state: &mut State<S>) -> bool {
        let Some(queue) = self.held.release(input, offset) else {
            return false;
        };
        state.delete(held_key(self.partition, &queue, offset));
        true
    }
}

fn isolated(step: &Step) -> Error {
    let (cause, since) = step.isolation.clone().unwrap_or_default();
    let what = format!("its source was isolated at {} by {cause}", rfc3339(since));
    Error::new(Code::SourceIsolated, what)
}

/// The keys whose order a record must keep: its own where it can be read, and its Kafka key, under which
/// wait the records of which no more is known.
fn keys(peek: &Peek, fetched: &Fetched) -> Vec<String> {
    let input = fetched.at.role.as_str();
    let own = peek.subject(fetched).map(|s| format!("{input}/own/{s}"));
    let kafka = record_key(fetched).map(|k| format!("{input}/kafka/{k}"));
    own.into_iter().chain(kafka).collect()
}

fn held_key(partition: i32, queue: &str, offset: i64) -> Vec<u8> {
    key(Kind::Held, partition, &[queue], Some(offset.cast_unsigned()), &[])
}

/// Reads the circuits of a unit.
pub(super) fn load_breaker<S: Store>(partition: i32, state: &State<S>) -> Result<Breaker> {
    let prefix = state::prefix(Kind::Circuit, partition);
    let mut circuits = BTreeMap::new();
    for (key, value) in state.scan(&prefix, usize::MAX)? {
        let source = key.get(prefix.len()..key.len().saturating_sub(1)).unwrap_or_default();
        circuits.insert(String::from_utf8_lossy(source).into_owned(), state::decode::<Circuit>(&value)?);
    }
    Ok(Breaker::restore(circuits))
}

/// Reads the held keys of a unit.
pub(super) fn load_held<S: Store>(partition: i32, state: &State<S>) -> Result<Held> {
    let broken = || Error::new(Code::StateFormat, "a key of a held record is broken");
    let prefix = state::prefix(Kind::Held, partition);
    let mut held = Held::default();
    for (key, value) in state.scan(&prefix, usize::MAX)? {
        state::decode::<()>(&value)?;
        let rest = &key[prefix.len()..];
        let (queue, offset) = rest.split_at_checked(rest.len().saturating_sub(8)).ok_or_else(broken)?;
        let queue = queue.strip_suffix(&[0]).and_then(|q| std::str::from_utf8(q).ok()).ok_or_else(broken)?;
        let offset = <[u8; 8]>::try_from(offset).map_err(|_| broken())?;
        let input = Role::ALL.into_iter().find(|r| queue.split('/').next() == Some(r.as_str())).ok_or_else(broken)?;
        held.hold(queue, input, i64::from_be_bytes(offset));
    }
    Ok(held)
}
