//! The write path after embedding: score, decide, effects.

use std::borrow::Cow;

use super::ahead::Admitted;
use super::engine::Taken;
use super::label_path::parents;
use super::outputs::{self, Forward};
use super::rolling_path::Entry;
use super::screen_path::{Occasion, Screened};
use super::{Engine, Unit, screen_path};
use crate::clock::{monotonic, rfc3339};
use crate::decide::{self, Embedding};
use crate::decode::Write;
use crate::embed::Encoded;
use crate::error::{Code, Error, Result};
use crate::policy::{Label, Ruling};
use crate::schema::{
    ContentFacts, DecisionBody, DecisionKind, IdKind, InputRef, MemsadFacts, Op, PolicyFacts, SourceFacts, Vector,
    Verdict, header,
};
use crate::score::{applicable, assess};
use crate::sink::{Output, size};
use crate::source::At;
use crate::state::{State, Store};
use crate::telemetry::metrics;
use crate::topology::{Form, MemsadMode, Role};

/// A write between its verdict and its effects.
#[derive(Debug)]
pub(super) struct Judged<'a> {
    /// Outputs that the stream's own changes had before.
    before: Vec<Output>,
    /// Of its decision.
    pub(super) body: DecisionBody,
    embedding: Embedding,
    label: Label,
    ruling: Cow<'a, Ruling>,
    screened: Option<Screened>,
    vector: Option<Vector>,
}

impl Engine {
    /// Decides one write.
    pub(super) fn write<S: Store>(
        &self,
        unit: &mut Unit,
        state: &mut State<S>,
        taken: Taken,
        admitted: &Admitted,
        ruling: &Ruling,
        embedded: Option<Result<Encoded>>,
    ) -> Result<Vec<Output>> {
        let judged = self.judge(unit, state, &taken, admitted, ruling, embedded)?;
        self.act(unit, state, taken, &admitted.write, judged)
    }

    /// What is to become of a write; nothing of it has gone out.
    pub(super) fn judge<'a, S: Store>(
        &self,
        unit: &mut Unit,
        state: &mut State<S>,
        taken: &Taken,
        admitted: &Admitted,
        ruling: &'a Ruling,
        embedded: Option<Result<Encoded>>,
    ) -> Result<Judged<'a>> {
        let write = &admitted.write;
        let mut flags = Vec::new();
        if write.embedding.is_some() && !ruling.may_embed {
            flags.push("embedding_ignored".to_owned());
        }
        let (at, input) = (taken.fetched.at, &taken.input);
        let vector = embedded.as_ref().and_then(|e| e.as_ref().ok()).map(|e| e.vector.clone());
        let occasion = Occasion { at, input, write, origin: ruling.origin };
        let rolled = self.roll(unit, state, occasion)?;
        let mut screened = self.screen(unit, state, occasion, admitted, vector.as_ref())?;
        let moved = self.share(unit, state, occasion, screened.as_mut())?;
        let (memsad, embedding) = self.score(unit, state, occasion, ruling, embedded, &mut flags)?;
        let posture = &self.topology.main.posture;
        let facts = screened.as_ref().map(|s| &s.facts);
        let parents = parents(unit.partition, state, write)?;
        let label = self.policy.label(Role::MemoryWrites.as_str(), write, &parents);
        let last = self.ruled(at, write, ruling, facts, memsad.as_ref(), &parents);
        let ruling = last.as_ref();
        let mut outcome = decide::decide(ruling, memsad.as_ref(), facts, embedding, posture);
        if let Some(screened) = &screened {
            screen_path::note(screened, posture, &mut outcome);
        }
        flags.extend(outcome.flags);
        let mut body = self.body(unit, at, Some(input));
        body.content = (write.op != Op::Delete).then(|| self.content_facts(write));
        body.expires_at = ruling.expires_at.map(rfc3339);
        body.flags = flags;
        body.memsad = memsad;
        body.op = Some(write.op.as_str().to_owned());
        body.policy = Some(PolicyFacts { rule: ruling.rule.clone(), shadow: ruling.shadow.clone() });
        body.reasons = outcome.reasons;
        body.record_id = Some(write.record_id.clone());
        body.screen = facts.cloned();
        body.source = Some(SourceFacts {
            basis: ruling.basis.to_owned(),
            origin: ruling.origin.as_str().to_owned(),
            principal: write.principal.clone(),
            session_id: write.session_id.clone(),
            trust: Some(label.trust),
        });
        body.tenant = Some(write.boundary.tenant().to_owned());
        body.store = Some(write.boundary.store().to_owned());
        body.verdict = Some(outcome.verdict);
        body.versions = self.versions_of(unit, &write.boundary);
        let mut before = rolled;
        before.extend(moved);
        Ok(Judged { before, body, embedding, label, ruling: last, screened, vector })
    }

    /// Makes what was judged happen.
    pub(super) fn act<S: Store>(
        &self,
        unit: &mut Unit,
        state: &mut State<S>,
        taken: Taken,
        write: &Write,
        judged: Judged<'_>,
    ) -> Result<Vec<Output>> {
        let Judged { before, body, embedding, label, ruling, screened, vector } = judged;
        let (at, input, ruling) = (taken.fetched.at, taken.input.clone(), ruling.as_ref());
        let occasion = Occasion { at, input: &input, write, origin: ruling.origin };
        let hidden = screened.as_ref().map_or("", |s| s.hidden.as_str());
        let entry = Entry::of(ruling.origin, embedding, screened.as_ref(), &body);
        let mut outputs = before;
        outputs.extend(self.effects(unit, taken, write, body, hidden)?);
        if let Some(screened) = screened {
            let more = self.screened(unit, state, occasion, screened, &outputs)?;
            outputs.extend(more);
        }
        self.labelled(unit.partition, state, write, &label, &outputs)?;
        self.accepted(unit, state, occasion, ruling, vector.as_ref(), &outputs)?;
        self.noted(unit, state, occasion, ruling, (entry, vector.as_ref()), &outputs)?;
        Ok(outputs)
    }

    fn score<S: Store>(
        &self,
        unit: &mut Unit,
        state: &mut State<S>,
        o: Occasion<'_>,
        ruling: &Ruling,
        embedded: Option<Result<Encoded>>,
        flags: &mut Vec<String>,
    ) -> Result<(Option<MemsadFacts>, Embedding)> {
        let encoded = match embedded {
            None => return Ok((None, Embedding::None)),
            Some(Err(_)) => return Ok((None, Embedding::Failed)),
            Some(Ok(e)) => e,
        };
        let embedding = match (encoded.truncated, encoded.covered) {
            (true, _) => Embedding::Truncated,
            (false, false) => Embedding::Uncovered,
            (false, true) => Embedding::Whole,
        };
        if self.memsad.memsad.mode == MemsadMode::Off {
            return Ok((None, embedding));
        }
        let (facts, more) = match self.memsad.memsad.form {
            Form::Hardened => self.score_hardened(unit, state, o, ruling, &encoded.vector)?,
            Form::Reference => {
                let calibration = applicable(&unit.calibrations, &o.write.boundary).cloned();
                let history = unit.history(&o.write.boundary, self, state)?;
                let since = monotonic();
                let scored = assess(&self.memsad, &encoded.vector, history, calibration.as_deref().map(|c| &c.record));
                metrics().score_seconds.observe_duration(since.elapsed());
                scored
            }
        };
        flags.extend(more.into_iter().map(str::to_owned));
        Ok((Some(facts), embedding))
    }

    fn content_facts(&self, write: &Write) -> ContentFacts {
        ContentFacts {
            bytes: write.content.len() as u64,
            chars: write.content.chars().count() as u64,
            hmac: self.secret.hmac(write.boundary.as_str(), write.content.as_bytes()),
            key_id: self.secret.key_id().to_owned(),
        }
    }

    /// Outputs of a decided write; an output that would not fit turns it into a dead letter.
    fn effects(
        &self,
        unit: &mut Unit,
        taken: Taken,
        write: &Write,
        body: DecisionBody,
        hidden: &str,
    ) -> Result<Vec<Output>> {
        let fetched = &taken.fetched;
        let at_time = fetched.at.timestamp;
        let key = format!("{}/{}", write.boundary, write.record_id).into_bytes();
        let allowed = body.verdict == Some(Verdict::Allow);
        let forward = Forward { body: &body, application: &self.topology.main.application, boundary: &write.boundary };
        let mut headers = forward.headers(&fetched.headers, allowed);
        if !allowed && !hidden.is_empty() {
            headers.push((header::HIDDEN.to_owned(), Some(hidden.as_bytes().to_vec())));
        }
        let delete = allowed && write.op == Op::Delete;
        let value = if delete { None } else { fetched.value.as_deref() };
        if size(key.len(), value, &headers) > self.topology.main.limits.max_output_bytes {
            let error =
                Error::new(Code::OutputTooLarge, "the record with its headers is above limits.max_output_bytes");
            return self.dead_letter(unit, taken, &error);
        }
        let role = if allowed { Role::CommittedMemory } else { Role::Quarantine };
        let value = if delete { None } else { taken.fetched.value };
        let mut outputs = vec![Output { role, partition: unit.partition, key: key.clone(), value, headers }];
        if !allowed {
            let uid = self.id_of(unit, &taken.input, IdKind::Finding);
            let attack = crate::alert::held_write(uid, &write.boundary, &body, at_time);
            outputs.push(outputs::finding(self, unit.partition, &attack)?);
        }
        outputs.push(self.decision(unit, key, &body));
        Ok(outputs)
    }

    /// Id of what an input, or the fact of it that is being decided, leads to.
    pub(super) fn id_of(&self, unit: &Unit, input: &InputRef, kind: IdKind) -> String {
        self.ids.of_input(&input.topic, input.partition, input.offset, unit.child, kind)
    }

    /// A body with the facts that every decision on an input has.
    pub(super) fn body(&self, unit: &Unit, at: At, input: Option<&InputRef>) -> DecisionBody {
        DecisionBody {
            activation: None,
            child: (unit.child > 0).then_some(unit.child),
            content: None,
            error: None,
            expires_at: None,
            facts: None,
            flags: Vec::new(),
            id: input.map(|i| self.id_of(unit, i, IdKind::Decision)).unwrap_or_default(),
            input: input.cloned(),
            input_vector: unit.positions.clone(),
            kind: DecisionKind::Decision,
            memsad: None,
            op: None,
            policy: None,
            reasons: Vec::new(),
            record_id: None,
            reset: None,
            retraction: None,
            screen: None,
            source: None,
            store: None,
            tenant: None,
            time: rfc3339(at.timestamp),
            verdict: None,
            versions: self.versions.clone(),
        }
    }
}
