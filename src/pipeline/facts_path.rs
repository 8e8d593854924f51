//! An input that isn't one fact: each fact is decided by itself and goes out under its own key, in our own form;
//! one more decision says what became of the input.

use std::sync::Arc;

use super::ahead::Admitted;
use super::engine::{Embeds, Pending, Stage, Taken};
use super::write_path::Judged;
use super::{Engine, Unit};
use crate::decode::{self, Retrieval};
use crate::embed::Encoded;
use crate::error::{Code, Error, Result};
use crate::policy::Ruling;
use crate::schema::{DecisionKind, Headers, Verdict, header};
use crate::sink::{Output, size};
use crate::source::Fetched;
use crate::state::{State, Store};
use crate::topology::{Mapping, OnPartial, Role};

/// Room for the headers of an output.
const HEADERS: usize = 4096;
/// Why a fact waits that was allowed by itself.
const WITH_OTHERS: &str = "held_with_others";

/// One fact of an input.
#[derive(Debug)]
pub enum Fact {
    /// A write with its ruling.
    Write(Arc<Admitted>, Ruling),
    /// A retrieval.
    Retrieval(Box<Retrieval>),
}

impl Pending {
    /// Whether this is no record of its own.
    #[must_use]
    pub fn is_part(&self) -> bool {
        matches!(self.stage, Stage::Part)
    }
}

impl Engine {
    pub(super) fn admit_facts(&self, fetched: &Fetched, mapping: &Mapping) -> Result<(Stage, Embeds)> {
        let at = fetched.at.timestamp;
        let mut found = decode::writes(fetched, &self.rules, mapping)?;
        if let (true, Some(write)) = (found.whole, found.writes.pop_if(|_| found.whole)) {
            return Ok(self.admit_fact(write, at));
        }
        let facts = found.writes.into_iter().map(|write| {
            let ruling = self.policy.rule(Role::MemoryWrites.as_str(), &write, at);
            Fact::Write(Arc::new(Admitted::new(write)), ruling)
        });
        Ok((Stage::Batch(facts.collect()), Embeds::Nothing))
    }

    pub(super) fn admit_searches(&self, fetched: &Fetched, mapping: &Mapping) -> Result<(Stage, Embeds)> {
        let mut found = decode::retrievals(fetched, &self.rules, mapping)?;
        if found.len() == 1
            && let Some(one) = found.pop()
        {
            return Ok(self.admit_search(one));
        }
        let facts = found.into_iter().map(|r| Fact::Retrieval(Box::new(r))).collect();
        Ok((Stage::Batch(facts), Embeds::Nothing))
    }

    /// What stands before a batch in its unit's order: a place for the vector of each of its facts.
    #[must_use]
    pub fn parts(&self, pending: &Pending) -> Vec<(Pending, Embeds)> {
        let Stage::Batch(facts) = &pending.stage else { return Vec::new() };
        let part = |fact: &Fact| {
            let embeds = match fact {
                Fact::Write(admitted, ruling) => self.write_embeds(&admitted.write, ruling),
                Fact::Retrieval(r) => self.retrieval_embeds(r),
            };
            let fetched = Fetched { at: pending.fetched.at, key: None, value: None, headers: Headers::new() };
            (Pending { fetched, stage: Stage::Part, stamp: None }, embeds)
        };
        facts.iter().map(part).collect()
    }

    /// Decides the facts of an input, and then the input.
    pub(super) fn batch<S: Store>(
        &self,
        unit: &mut Unit,
        state: &mut State<S>,
        taken: Taken,
        facts: &[Fact],
        parts: Vec<Option<Result<Encoded>>>,
    ) -> Result<Vec<Output>> {
        if parts.len() != facts.len() {
            return Err(Error::new(Code::Internal, "a batch has not the vectors of its facts"));
        }
        if let Some(error) = self.oversized(&taken, facts) {
            return self.dead_letter(unit, taken, &error);
        }
        let outputs = self.each(unit, state, &taken, facts, parts);
        unit.child = 0;
        let mut outputs = outputs?;
        if taken.fetched.at.role == Role::MemoryWrites {
            outputs.push(self.parent(unit, &taken, facts, &outputs));
        }
        Ok(outputs)
    }

    fn each<S: Store>(
        &self,
        unit: &mut Unit,
        state: &mut State<S>,
        taken: &Taken,
        facts: &[Fact],
        parts: Vec<Option<Result<Encoded>>>,
    ) -> Result<Vec<Output>> {
        let together = self.topology.topic(taken.fetched.at.role).input.on_partial == OnPartial::HoldAll;
        let mut outputs = Vec::new();
        let mut judged = Vec::new();
        for ((fact, embedded), child) in facts.iter().zip(parts).zip(1_u32..) {
            unit.child = child;
            match fact {
                Fact::Retrieval(r) => outputs.extend(self.retrieval(unit, state, taken, r, embedded)?),
                Fact::Write(admitted, ruling) => {
                    let own = own(taken, admitted);
                    let j = self.judge(unit, state, &own, admitted, ruling, embedded)?;
                    if together {
                        judged.push((child, own, admitted, j));
                    } else {
                        outputs.extend(self.act(unit, state, own, &admitted.write, j)?);
                    }
                }
            }
        }
        hold_all(judged.iter_mut().map(|(_, _, _, j)| j));
        for (child, own, admitted, j) in judged {
            unit.child = child;
            outputs.extend(self.act(unit, state, own, &admitted.write, j)?);
        }
        Ok(outputs)
    }

    /// What an input of several facts, or of none, came to.
    fn parent(&self, unit: &mut Unit, taken: &Taken, facts: &[Fact], outputs: &[Output]) -> Output {
        let mut body = self.body(unit, taken.fetched.at, Some(&taken.input));
        body.kind = DecisionKind::Input;
        body.facts = u32::try_from(facts.len()).ok();
        let words = [Verdict::Allow, Verdict::Redact, Verdict::Quarantine, Verdict::Block, Verdict::DeadLetter];
        let of = |o: &Output, v: Verdict| match o.role {
            Role::CommittedMemory | Role::Quarantine => o.header(header::VERDICT) == Some(v.as_str()),
            Role::DeadLetters => v == Verdict::DeadLetter,
            _ => false,
        };
        let counted = words.into_iter().map(|v| (v, outputs.iter().filter(|o| of(o, v)).count()));
        let counted: Vec<(Verdict, usize)> = counted.filter(|(_, n)| *n > 0).collect();
        body.reasons = counted.iter().map(|(v, n)| format!("facts:{}:{n}", v.as_str())).collect();
        body.verdict = Some(counted.last().map_or(Verdict::Allow, |(v, _)| *v));
        if let Some(Fact::Write(first, _)) = facts.first() {
            let boundary = &first.write.boundary;
            body.tenant = Some(boundary.tenant().to_owned());
            body.store = Some(boundary.store().to_owned());
            body.versions = self.versions_of(unit, boundary);
        }
        let i = &taken.input;
        let key = format!("input/{}/{}/{}", i.topic, i.partition, i.offset).into_bytes();
        self.decision(unit, key, &body)
    }

    /// A fact that would not fit makes a dead letter of the whole input.
    fn oversized(&self, taken: &Taken, facts: &[Fact]) -> Option<Error> {
        let most = self.topology.main.limits.max_output_bytes;
        let large = |fact: &Fact| {
            let Fact::Write(admitted, _) = fact else { return false };
            let key = admitted.write.boundary.as_str().len() + 1 + admitted.write.record_id.len();
            size(key, Some(&decode::render(&admitted.write)), &taken.fetched.headers) + HEADERS > most
        };
        let why = "a fact with its headers is above limits.max_output_bytes";
        facts.iter().any(large).then(|| Error::new(Code::OutputTooLarge, why))
    }
}

/// The input as it would be had it held this fact alone.
fn own(taken: &Taken, admitted: &Admitted) -> Taken {
    let mut own = taken.clone();
    own.fetched.value = Some(decode::render(&admitted.write));
    // The value is plain JSON now, whatever the producer's was.
    own.fetched.headers.retain(|(name, _)| name != header::CONTENT_TYPE);
    own
}

/// One that is held holds all.
fn hold_all<'a, 'b: 'a>(judged: impl Iterator<Item = &'a mut Judged<'b>>) {
    let mut all: Vec<&mut Judged<'b>> = judged.collect();
    if !all.iter().any(|j| j.body.verdict > Some(Verdict::Redact)) {
        return;
    }
    for j in all.iter_mut().filter(|j| j.body.verdict <= Some(Verdict::Redact)) {
        j.body.verdict = Some(Verdict::Quarantine);
        j.body.reasons.push(WITH_OTHERS.to_owned());
    }
}
