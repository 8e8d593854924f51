//! The screen on the write path: score a write, remember it, take back the earlier writes of a campaign.

use std::collections::BTreeSet;

use super::ahead::Admitted;
use super::sources::slot;
use super::{Engine, Unit, outputs};
use crate::clock::Millis;
use crate::decide::Outcome;
use crate::decode::Write;
use crate::error::Result;
use crate::schema::{
    Boundary, DecisionKind, IdKind, InputRef, Op, Origin, RetractionFacts, ScreenFacts, ScreenStatus, Vector, Verdict,
    header,
};
use crate::score::applicable;
use crate::screen::{
    Campaign, Features, Finding, Fitted, Floors, Form, LEXICON, Rank, Scored, Screening, Standing, Trace, Written,
    judge, source_id,
};
use crate::sink::Output;
use crate::source::At;
use crate::state::{State, Store};
use crate::topology::{MemsadMode, Posture, Retract, Role};

/// A write that was screened.
#[derive(Debug)]
pub(super) struct Screened {
    pub(super) facts: ScreenFacts,
    /// What a decision says besides.
    pub(super) flags: Vec<String>,
    /// What invisible characters spell.
    pub(super) hidden: String,
    /// The end of the text was not seen.
    pub(super) cut: bool,
    source: String,
    trace: Trace,
    vector: Option<Vector>,
    entities: Vec<u64>,
    /// Numbers of the earlier writes that make a campaign or near duplicates of this one.
    group: Vec<u64>,
}

/// The write that is screened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Occasion<'a> {
    pub(super) at: At,
    pub(super) input: &'a InputRef,
    pub(super) write: &'a Write,
    /// Effective origin.
    pub(super) origin: Origin,
}

impl Engine {
    /// Whether a write's text is read.
    pub(super) fn screens(&self, op: Op) -> bool {
        self.topology.main.screen.mode != MemsadMode::Off && op != Op::Delete
    }

    /// Screens a create or update; the unit isn't changed.
    pub(super) fn screen<S: Store>(
        &self,
        unit: &mut Unit,
        state: &mut State<S>,
        o: Occasion<'_>,
        admitted: &Admitted,
        vector: Option<&Vector>,
    ) -> Result<Option<Screened>> {
        let settings = &self.topology.main.screen;
        let (partition, write, b) = (unit.partition, o.write, &o.write.boundary);
        if !self.screens(write.op) {
            return Ok(None);
        }
        unit.sources.sweep(partition, b, o.at.timestamp, millis(settings.source_idle), state)?;
        let mut flags = Vec::new();
        let calibration = applicable(&unit.screenings, b).cloned().filter(|c| {
            let fits = c.fits(&self.memsad.encoder);
            if !fits {
                flags.push("screen_calibration_of_other_version".to_owned());
            }
            fits
        });
        let features = admitted.features();
        let source = source_id(write, Role::MemoryWrites.as_str());
        let entities = features.sentences.entities();
        let known = unit.sources.known(partition, b, state)?;
        let known: BTreeSet<u64> = entities.as_slice().iter().copied().filter(|h| known.contains(h)).collect();
        let floors = floors(o.origin);
        let none = Fitted::default();
        let fitted = calibration.as_ref().map_or(&none, |c| &c.fitted);
        // An earlier version of the same record is gone once this one stands.
        let ring = unit.sources.ring(partition, b, &source, state)?;
        let earlier: Vec<_> = ring.iter().filter(|e| e.written.record != write.record_id).collect();
        let views = earlier.iter().map(|e| e.earlier());
        let (scored, campaign) = features.score(vector, fitted, |h| known.contains(&h), floors.c, views);
        let (standing, finding) = self.judged(calibration.as_deref(), write, features.form, &scored, &floors);
        let group = grouped(&finding, &campaign);
        let group = group.into_iter().filter_map(|i| earlier.get(i).map(|e| e.seq)).collect();
        if finding.rare {
            flags.push("screen_rare".to_owned());
        }
        if features.hidden.count > 0 {
            flags.push("hidden_characters".to_owned());
        }
        Ok(Some(Screened {
            facts: facts(&scored, features, calibration.as_deref(), &finding, standing),
            flags,
            hidden: features.hidden.decoded.clone(),
            cut: features.cut,
            source,
            entities: entities.as_slice().to_vec(),
            trace: features.trace.clone(),
            vector: vector.cloned(),
            group,
        }))
    }

    /// Verdict of the screen, and how it counts.
    fn judged(
        &self,
        calibration: Option<&Screening>,
        write: &Write,
        form: Form,
        scored: &Scored,
        floors: &Floors,
    ) -> (How, Finding) {
        let settings = &self.topology.main.screen;
        let writer = write.written_by.as_deref();
        let c_counts = settings.new_format == MemsadMode::Enforce || calibration.is_some_and(|c| c.knows(writer, form));
        let rank = calibration.and_then(|c| c.rank(writer, form, &scored.row()));
        let status = match (settings.mode, rank) {
            (MemsadMode::Enforce, None) => ScreenStatus::Uncalibrated,
            (MemsadMode::Enforce, Some(_)) => ScreenStatus::Enforced,
            _ => ScreenStatus::Shadow,
        };
        let how = How { calibration: calibration.map(|c| c.name.clone()), c_counts, rank, status };
        (how, judge(scored, floors, rank, c_counts))
    }

    /// Remembers a screened write that became `outputs`, and takes back the earlier ones of its campaign.
    pub(super) fn screened<S: Store>(
        &self,
        unit: &mut Unit,
        state: &mut State<S>,
        o: Occasion<'_>,
        screened: Screened,
        outputs: &[Output],
    ) -> Result<Vec<Output>> {
        let (partition, b) = (unit.partition, &o.write.boundary);
        let became = |role: Role| outputs.iter().any(|out| out.role == role);
        let allowed = became(Role::CommittedMemory);
        if allowed && matches!(o.origin, Origin::UserInput | Origin::System) {
            unit.sources.learn(partition, b, &screened.entities, state)?;
        }
        let facts = &screened.facts;
        let counts =
            facts.status != ScreenStatus::Shadow && facts.verdict != Verdict::Allow && became(Role::Quarantine);
        let retracted = if counts { retract(unit, state, b, &screened)? } else { Vec::new() };
        let decision = self.id_of(unit, o.input, IdKind::Decision);
        let ring = unit.sources.ring(partition, b, &screened.source, state)?;
        let (before, first) = (ring.bytes(), ring.is_empty());
        let written = Written {
            at: o.at.timestamp,
            record: o.write.record_id.clone(),
            decision,
            input: o.input.clone(),
            standing: if allowed { Standing::Allowed } else { Standing::Held },
        };
        let (key, value) = slot(partition, b, &screened.source, ring.push(written, screened.trace, screened.vector));
        state.put(key, value);
        let after = ring.bytes();
        unit.sources.resized(before, after);
        if first {
            let forgotten = o.at.timestamp.saturating_add(millis(self.topology.main.screen.source_idle));
            unit.sources.schedule(partition, b, &screened.source, forgotten, state);
        }
        let mut out = Vec::new();
        for (earlier, child) in retracted.iter().zip(1_u32..) {
            self.withdraw(unit, state, b, &earlier.record)?;
            out.extend(self.retraction(unit, o, &screened.facts, earlier, child)?);
        }
        Ok(out)
    }

    /// The records of one retraction: a tombstone if that is wanted, a finding, a decision.
    fn retraction(
        &self,
        unit: &mut Unit,
        o: Occasion<'_>,
        facts: &ScreenFacts,
        earlier: &Written,
        child: u32,
    ) -> Result<Vec<Output>> {
        let (partition, input, b) = (unit.partition, o.input, &o.write.boundary);
        let tombstone = self.topology.main.screen.retract == Retract::Tombstone;
        // A fact's own retractions are numbered behind its place in the input.
        let child = unit.child.saturating_mul(1 << 16).saturating_add(child);
        let id = |kind| self.ids.of_input(&input.topic, input.partition, input.offset, child, kind);
        let mut body = self.body(unit, o.at, Some(input));
        body.id = id(IdKind::Retraction);
        body.kind = DecisionKind::Retraction;
        body.reasons = facts.floors.iter().filter(|f| is_group(f)).map(|f| format!("screen:{f}")).collect();
        body.record_id = Some(earlier.record.clone());
        body.retraction = Some(RetractionFacts {
            action: if tombstone { "tombstone" } else { "flag" }.to_owned(),
            decision: earlier.decision.clone(),
            input: earlier.input.clone(),
        });
        body.tenant = Some(b.tenant().to_owned());
        body.store = Some(b.store().to_owned());
        body.versions = self.versions_of(unit, b);
        let key = format!("{b}/{}", earlier.record).into_bytes();
        let attack = crate::alert::retracted_write(id(IdKind::Finding), b, &body, o.at.timestamp);
        let mut out = vec![outputs::finding(self, partition, &attack)?, self.decision(unit, key.clone(), &body)];
        if tombstone {
            let headers = vec![(header::DECISION.to_owned(), Some(body.id.into_bytes()))];
            out.push(Output { role: Role::CommittedMemory, partition, key, value: None, headers });
        }
        Ok(out)
    }
}

/// How a verdict of the screen counts.
#[derive(Debug)]
struct How {
    calibration: Option<String>,
    c_counts: bool,
    rank: Option<Rank>,
    status: ScreenStatus,
}

/// Indices of the earlier writes that a floor is about.
fn grouped(finding: &Finding, campaign: &Campaign) -> BTreeSet<usize> {
    let of = |floor: &str, which: &[usize]| {
        if finding.floors.contains(&floor) { which.to_vec() } else { Vec::new() }
    };
    let duplicates = of("near_duplicate", &campaign.duplicates);
    of("campaign", &campaign.campaign).into_iter().chain(duplicates).collect()
}

fn facts(
    scored: &Scored,
    features: &Features,
    calibration: Option<&Screening>,
    finding: &Finding,
    how: How,
) -> ScreenFacts {
    ScreenFacts {
        characters: calibration.and_then(|c| c.characters.rank(&features.grams)),
        b: scored.b,
        c: scored.c,
        c_counts: how.c_counts,
        calibration: how.calibration,
        classes: scored.payload.classes.names().into_iter().map(str::to_owned).collect(),
        d: scored.d,
        floors: finding.floors.iter().map(|f| (*f).to_owned()).collect(),
        form: features.form.as_str().to_owned(),
        hidden: features.hidden.count,
        j: scored.j,
        lexicon: LEXICON.to_owned(),
        of: how.rank.map(|r| r.of),
        p: scored.payload.micro(),
        rank: how.rank.map(|r| r.count),
        share: None,
        status: how.status,
        unseen_calls: scored.payload.unseen_calls,
        unseen_sinks: scored.payload.unseen_sinks,
        verdict: finding.verdict,
    }
}

/// Allowed writes of the group, now marked as taken back; a record that was written twice once.
fn retract<S: Store>(unit: &mut Unit, state: &mut State<S>, b: &Boundary, screened: &Screened) -> Result<Vec<Written>> {
    let partition = unit.partition;
    let mut earlier = Vec::new();
    for seq in &screened.group {
        let ring = unit.sources.ring(partition, b, &screened.source, state)?;
        let Some(entry) = ring.retract(*seq) else { continue };
        let (key, value) = slot(partition, b, &screened.source, entry);
        earlier.push(entry.written.clone());
        state.put(key, value);
    }
    let mut seen = BTreeSet::new();
    earlier.retain(|w: &Written| seen.insert(w.record.clone()));
    Ok(earlier)
}

fn is_group(floor: &str) -> bool {
    matches!(floor, "campaign" | "near_duplicate")
}

fn floors(origin: Origin) -> Floors {
    match origin {
        Origin::External | Origin::Retrieved => Floors::EXTERNAL,
        _ => Floors::STUDY,
    }
}

fn millis(duration: std::time::Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}

/// What a decision says of a screened write.
pub(super) fn note(screened: &Screened, posture: &Posture, outcome: &mut Outcome) {
    if screened.cut {
        crate::decide::cut(posture, outcome);
    }
    outcome.flags.extend(screened.flags.iter().cloned());
}
