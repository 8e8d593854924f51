//! The stages of one record: admit (decode, policy, what to embed) and finish (score, decide, effects).
//! Pure but for the state it is given: no broker, no randomness; a clock only measures.

use std::sync::Arc;

use super::ahead::Admitted;
use super::facts_path::Fact;
use super::{Registry, Unit, gate};
use crate::clock::Millis;
use crate::config::Secret;
use crate::decode::{self, Retrieval, Rules, Write};
use crate::embed::{Encoded, Prefixes, Purpose};
use crate::error::{Error, Result};
use crate::policy::{Policy, Ruling};
use crate::schema::{Coordinates, Ids, InputRef, Isolation, Op, OriginalKey, SourceStamp, Vector, Versions};
use crate::score::Settings as MemsadSettings;
use crate::session::SprtTable;
use crate::sink::Output;
use crate::source::Fetched;
use crate::state::{State, Store};
use crate::topology::{Format, Role, Topology};

/// What an engine is made of.
#[derive(Debug)]
pub struct EngineSettings {
    /// Topology.
    pub topology: Arc<Topology>,
    /// Policy.
    pub policy: Policy,
    /// Secret.
    pub secret: Secret,
    /// Encoder identity.
    pub encoder: String,
    /// Dimension.
    pub dimension: usize,
    /// Partition numbers mean units (Kafka), or nothing (files).
    pub partitioned: bool,
}

/// The stages with all they need.
#[derive(Debug)]
pub struct Engine {
    pub(super) topology: Arc<Topology>,
    pub(super) policy: Policy,
    pub(super) secret: Secret,
    pub(super) ids: Ids,
    pub(super) sprt: SprtTable,
    pub(super) memsad: MemsadSettings,
    pub(super) versions: Arc<Versions>,
    pub(super) rules: Rules,
    prefixes: Prefixes,
}

/// Where a record stands after admission.
#[derive(Debug)]
pub enum Stage {
    /// A write with its ruling.
    Write(Arc<Admitted>, Ruling),
    /// A retrieval.
    Retrieval(Box<Retrieval>),
    /// An input that isn't one fact.
    Batch(Vec<Fact>),
    /// The vector of a fact of the batch behind it.
    Part,
    /// An operator's skip of a dead letter.
    Skip(Coordinates),
    /// Not decodable, or held back by the breaker or a held key.
    Dead(Error),
}

/// An admitted record.
#[derive(Debug)]
pub struct Pending {
    /// As it came.
    pub fetched: Fetched,
    /// What it is.
    pub stage: Stage,
    /// Where it came from, when it came through an internal topic.
    pub stamp: Option<SourceStamp>,
}

/// What the embed stage has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Embeds {
    /// Nothing.
    Nothing,
    /// Take the producer's vector.
    Given(Vector),
    /// Encode this text.
    Text(String),
}

impl Engine {
    /// Puts the parts together.
    ///
    /// # Errors
    /// `sprt_invalid`.
    pub fn new(s: EngineSettings) -> Result<Self> {
        let main = &s.topology.main;
        let versions = Versions {
            config_set: String::new(),
            encoder: s.encoder.clone(),
            policy: s.policy.hash().to_owned(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            topology: s.topology.hash.clone(),
        };
        Ok(Self {
            ids: Ids::new(&main.application),
            sprt: SprtTable::new(&main.sprt)?,
            memsad: MemsadSettings { memsad: main.memsad.clone(), encoder: s.encoder },
            rules: Rules {
                max_bytes: main.limits.max_record_bytes,
                dimension: s.dimension,
                units: s.partitioned.then(|| s.topology.units()),
            },
            versions: Arc::new(versions),
            policy: s.policy,
            secret: s.secret,
            topology: s.topology,
            prefixes: Prefixes::default(),
        })
    }

    /// With what the encoder wants in front of texts.
    #[must_use]
    pub fn with_prefixes(self, prefixes: Prefixes) -> Self {
        Self { prefixes, ..self }
    }

    /// Session test.
    #[must_use]
    pub fn sprt(&self) -> &SprtTable {
        &self.sprt
    }

    /// Dimension of vectors.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.rules.dimension
    }

    /// Queries kept for each boundary.
    #[must_use]
    pub fn history_capacity(&self) -> usize {
        self.topology.main.memsad.history
    }

    /// Number of units; `None` where partitions mean nothing.
    #[must_use]
    pub fn units(&self) -> Option<i32> {
        self.rules.units
    }

    /// Topology.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Decode and policy; says what to embed.
    #[must_use]
    pub fn admit(&self, mut fetched: Fetched) -> (Pending, Embeds) {
        let internal = self.topology.is_repartitioned(fetched.at.role);
        let stamp = internal.then(|| SourceStamp::of(&fetched.headers)).flatten();
        if let Some(c) = &stamp {
            fetched.at.timestamp = c.timestamp;
        }
        let (stage, embeds) = match (gate::skip(&fetched, self.topology.name(fetched.at.role)), fetched.at.role) {
            (Some(skip), _) => skip.map(|c| (Stage::Skip(c), Embeds::Nothing)),
            (None, Role::RetrievalLogs) => self.admit_retrieval(&fetched),
            (None, _) => self.admit_write(&fetched),
        }
        .unwrap_or_else(|e| (Stage::Dead(e), Embeds::Nothing));
        (Pending { fetched, stage, stamp }, embeds)
    }

    fn admit_write(&self, fetched: &Fetched) -> Result<(Stage, Embeds)> {
        let mapping = &self.topology.topic(fetched.at.role).input;
        if mapping.format != Format::Native {
            return self.admit_facts(fetched, mapping);
        }
        Ok(self.admit_fact(decode::write(fetched, &self.rules)?, fetched.at.timestamp))
    }

    pub(super) fn admit_fact(&self, write: Write, at: Millis) -> (Stage, Embeds) {
        let ruling = self.policy.rule(Role::MemoryWrites.as_str(), &write, at);
        let embeds = self.write_embeds(&write, &ruling);
        (Stage::Write(Arc::new(Admitted::new(write)), ruling), embeds)
    }

    pub(super) fn write_embeds(&self, write: &Write, ruling: &Ruling) -> Embeds {
        match &write.embedding {
            _ if write.op == Op::Delete => Embeds::Nothing,
            Some(v) if ruling.may_embed => Embeds::Given(v.clone()),
            _ => Embeds::Text(self.prefixes.text(Purpose::Passage, &write.content)),
        }
    }

    fn admit_retrieval(&self, fetched: &Fetched) -> Result<(Stage, Embeds)> {
        let mapping = &self.topology.topic(fetched.at.role).input;
        if mapping.format != Format::Native {
            return self.admit_searches(fetched, mapping);
        }
        Ok(self.admit_search(decode::retrieval(fetched, &self.rules)?))
    }

    pub(super) fn admit_search(&self, retrieval: Retrieval) -> (Stage, Embeds) {
        let embeds = self.retrieval_embeds(&retrieval);
        (Stage::Retrieval(Box::new(retrieval)), embeds)
    }

    pub(super) fn retrieval_embeds(&self, retrieval: &Retrieval) -> Embeds {
        let may_embed = self.policy.trust(Role::RetrievalLogs.as_str()).is_some_and(|t| t.may_embed);
        // A job's reads say nothing about what users ask.
        match (&retrieval.embedding, &retrieval.query) {
            _ if retrieval.background => Embeds::Nothing,
            (Some(v), _) if may_embed => Embeds::Given(v.clone()),
            (_, Some(q)) => Embeds::Text(self.prefixes.text(Purpose::Query, q)),
            _ => Embeds::Nothing,
        }
    }

    /// Score, decide, session, alert: the record's outputs; its state changes go to the overlay.
    ///
    /// # Errors
    /// `state_failed`, `state_format`, `internal`: never because of the record itself. `poison_flood`: nothing
    /// was changed, and what was finished before can be committed. `held_keys_full`: it can't.
    pub fn finish<S: Store>(
        &self,
        pending: Pending,
        embedded: Option<Result<Encoded>>,
        unit: &mut Unit,
        state: &mut State<S>,
        registry: &Registry,
    ) -> Result<Vec<Output>> {
        if matches!(pending.stage, Stage::Part) {
            unit.parts.push(embedded);
            return Ok(Vec::new());
        }
        let parts = std::mem::take(&mut unit.parts);
        let (taken, ticket, stage) = self.gate(pending, unit, state)?;
        let at = taken.fetched.at;
        let mut outputs = unit.adopt(self, registry, at, state);
        let topic = self.topology.name(at.role).to_owned();
        unit.positions.insert(topic, at.offset + 1);
        match stage {
            Stage::Dead(error) => outputs.extend(self.dead_letter(unit, taken, &error)?),
            Stage::Skip(skipped) => outputs.extend(self.control(unit, state, &taken, &skipped)),
            Stage::Write(write, ruling) => outputs.extend(self.write(unit, state, taken, &write, &ruling, embedded)?),
            Stage::Retrieval(r) => outputs.extend(self.retrieval(unit, state, &taken, &r, embedded)?),
            Stage::Batch(facts) => outputs.extend(self.batch(unit, state, taken, &facts, parts)?),
            Stage::Part => {}
        }
        self.settle(unit, state, ticket, &outputs)?;
        Ok(outputs)
    }
}

/// A record under the coordinates that users see.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    /// As its producer sent it.
    pub(super) fetched: Fetched,
    /// Where it came from.
    pub(super) input: InputRef,
    /// What a redrive or skip of its dead letter names, in the topic that the unit reads: its own offset, or
    /// that of the outstanding record which it is a redrive of.
    pub(super) origin: i64,
    /// Set while its source is isolated.
    pub(super) isolation: Option<Isolation>,
}

impl Taken {
    /// Behind an internal topic our header comes off and the record's own key comes back.
    pub(super) fn new(mut fetched: Fetched, stamp: Option<SourceStamp>, topic: &str) -> Self {
        let origin = fetched.at.offset;
        let Some(c) = stamp else {
            let input = InputRef { offset: origin, partition: fetched.at.partition, topic: topic.to_owned() };
            return Self { fetched, input, origin, isolation: None };
        };
        fetched.headers.pop();
        match c.key {
            OriginalKey::Same => {}
            OriginalKey::Absent => fetched.key = None,
            OriginalKey::Other(key) => fetched.key = Some(key),
        }
        let input = InputRef { offset: c.offset, partition: c.partition, topic: c.topic };
        Self { fetched, input, origin, isolation: None }
    }
}
