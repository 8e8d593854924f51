//! The project's own write path: the screen, the rank test of MEMSAD, and provenance in front of both
//! (`hardened.md` 6, DESIGN 4).

use std::collections::{HashMap, VecDeque};

use super::memsad::Memsad;
use super::provenance::ProvenanceGate;
use super::{Defense, Judged};
use crate::error::Result;
use crate::evaluate::{Boundary, Encode, Write};
use crate::schema::{Origin, Vector, Verdict};
use crate::screen::{
    Conformal, Earlier, Features, Fitted, Floors, Form, Keyed, LEAST, Row, Scored, Sentences, Trace, drift, hidden,
    judge, junk, norm,
};

/// Earlier writes of a source that are looked at.
const RING: usize = 50;
/// Level of the rank test beside the screen.
const MEMSAD_LEVEL: f64 = 0.005;

/// A write's signals and verdict.
#[derive(Debug, Clone)]
pub struct Screened {
    /// P, C, B, D, J.
    pub scored: Scored,
    /// Share of the pooled rows that are as unusual.
    pub p: Option<f64>,
    /// Mean of 1 / p over the signals: the score that ranks.
    pub harmonic: f64,
    /// Allow, quarantine or block.
    pub verdict: Verdict,
    /// Floors reached.
    pub floors: Vec<&'static str>,
}

/// The fitted screen.
#[derive(Debug)]
pub struct Screen {
    fitted: Fitted,
    conformal: Conformal,
    floors_by_origin: bool,
}

impl Screen {
    /// Trigrams and entities from the fit part, ranks from the calibration part. With `floors_by_origin` the floor
    /// of P is lower for writes from outside; the study's tables use one floor for all.
    ///
    /// # Errors
    /// `encoder_failed`.
    pub fn fit(boundary: &Boundary, floors_by_origin: bool, encode: &dyn Encode) -> Result<Self> {
        let rows: Vec<Features> = boundary.fit.iter().map(features).collect();
        let mut fitted = Fitted::of(&rows);
        if !boundary.facts.is_empty() {
            let facts: Vec<Features> = boundary.facts.iter().map(|f| Features::of(f)).collect();
            let known = Fitted::of(&facts).entities;
            let all = fitted.entities.as_slice().iter().chain(known.as_slice()).copied().collect();
            fitted.entities = crate::screen::Hashes::new(all);
        }
        let empty = Self { fitted, conformal: Conformal::default(), floors_by_origin };
        let rows: Vec<Row> = empty.screen(&boundary.calibrate, encode)?.into_iter().map(|s| s.scored.row()).collect();
        Ok(Self { conformal: Conformal::new(rows), ..empty })
    }

    /// What the fit part contains.
    #[must_use]
    pub fn fitted(&self) -> &Fitted {
        &self.fitted
    }

    /// Signals and verdicts of a stream; a source's earlier writes are those of the stream.
    ///
    /// # Errors
    /// `encoder_failed`.
    pub fn screen(&self, stream: &[Write], encode: &dyn Encode) -> Result<Vec<Screened>> {
        let vectors = encode.encode(&stream.iter().map(|w| w.text.as_str()).collect::<Vec<_>>())?;
        let mut rings: HashMap<&str, VecDeque<(Trace, Vector)>> = HashMap::new();
        let mut out = Vec::new();
        for (write, vector) in stream.iter().zip(vectors) {
            let features = features(write);
            let ring = rings.entry(&write.source).or_default();
            let earlier = ring.iter().map(|(trace, vector)| Earlier { trace, vector: Some(vector) });
            let (scored, _) = features.score(Some(&vector), &self.fitted, |_| false, Floors::STUDY.c, earlier);
            out.push(self.judged(scored, write.origin));
            if ring.len() == RING {
                ring.pop_front();
            }
            ring.push_back((features.trace, vector));
        }
        Ok(out)
    }

    fn judged(&self, scored: Scored, origin: Origin) -> Screened {
        let outside = !matches!(origin, Origin::UserInput | Origin::System | Origin::AgentGenerated);
        let floors = if self.floors_by_origin && outside { Floors::EXTERNAL } else { Floors::STUDY };
        let rank = (self.conformal.len() >= LEAST).then(|| self.conformal.rank(&scored.row()));
        let finding = judge(&scored, &floors, rank, true);
        Screened {
            p: rank.map(|r| f64::from(r.count) / f64::from(r.of)),
            harmonic: self.conformal.harmonic(&scored.row()),
            verdict: finding.verdict,
            floors: finding.floors,
            scored,
        }
    }
}

impl Defense for Screen {
    fn judge(&self, stream: &[Write], encode: &dyn Encode) -> Result<Vec<Judged>> {
        let verdict = |s: Screened| Judged {
            score: s.harmonic,
            flagged: s.verdict != Verdict::Allow,
            blocked: s.verdict == Verdict::Block,
        };
        Ok(self.screen(stream, encode)?.into_iter().map(verdict).collect())
    }

    fn threshold(&self) -> Option<f64> {
        None
    }
}

/// Features of a write whose key may stand in a field of its own.
fn features(write: &Write) -> Features {
    let mut features = Features::of(&write.text);
    if features.form == Form::Text
        && let Some(key) = &write.key
    {
        let keyed = Keyed { text: &write.text, key: Some(key), value: &write.value, form: Form::Question };
        features = Features {
            form: keyed.form,
            sentences: Sentences::of(&write.text),
            trace: Trace::of(&keyed, &norm(&write.text)),
            drift: drift(&keyed),
            junk: junk(&write.text),
            hidden: hidden(&write.text),
            cut: features.cut,
            grams: features.grams,
        };
    }
    features
}

/// Both filters, each on: either alone holds a write.
#[derive(Debug)]
pub struct Hardened {
    screen: Screen,
    memsad: Memsad,
    /// Holds every write that isn't from an authenticated user or operator.
    provenance: bool,
}

impl Hardened {
    /// Fits both filters.
    ///
    /// # Errors
    /// `encoder_failed`.
    pub fn fit(boundary: &Boundary, provenance: bool, encode: &dyn Encode) -> Result<Self> {
        Ok(Self {
            screen: Screen::fit(boundary, true, encode)?,
            memsad: Memsad::conformal(boundary, MEMSAD_LEVEL, encode)?,
            provenance,
        })
    }
}

impl Defense for Hardened {
    /// The score is the screen's; a write without trust stands above all others.
    fn judge(&self, stream: &[Write], encode: &dyn Encode) -> Result<Vec<Judged>> {
        let mut judged = self.screen.judge(stream, encode)?;
        for (one, memsad) in judged.iter_mut().zip(self.memsad.judge(stream, encode)?) {
            one.flagged |= memsad.flagged;
        }
        if self.provenance {
            for (one, gate) in judged.iter_mut().zip(ProvenanceGate.judge(stream, encode)?) {
                one.flagged |= gate.flagged;
                one.score += if gate.flagged { 1e6 } else { 0.0 };
            }
        }
        Ok(judged)
    }

    fn threshold(&self) -> Option<f64> {
        None
    }
}
