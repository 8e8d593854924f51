//! One attack against one defense on one boundary.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::attacks::permuted;
use super::retrieval::Store;
use super::stats::{Bootstrap, Estimate, Group, Rate, auroc, fisher_greater, margin, roc, tpr_at_fpr};
use super::{Attack, Boundary, Control, Defense, Encode, Judged, Provenance, Truth, Write};
use crate::error::Result;

/// Bins of a histogram.
const BINS: usize = 24;
/// Corners kept of a curve.
const CORNERS: usize = 80;
/// The false positive rate at which defenses are compared.
pub(super) const LEVEL: f64 = 0.01;

/// Scores of both kinds in equal bins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Lower end of the first bin.
    pub low: f64,
    /// Upper end of the last bin.
    pub high: f64,
    /// Benign writes a bin.
    pub benign: Vec<u32>,
    /// Poison a bin.
    pub poison: Vec<u32>,
}

/// A control's result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ControlCell {
    /// Name.
    pub name: String,
    /// What a flag is.
    pub truth: Truth,
    /// Unique texts flagged.
    pub flagged: Rate,
    /// Area against the same benign writes.
    pub auroc: Option<f64>,
    /// Victim queries that retrieve it, without the defense.
    pub asr_before: Option<Rate>,
    /// With it.
    pub asr_after: Option<Rate>,
}

/// A cell of the matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Boundary.
    pub boundary: String,
    /// Attack.
    pub attack: String,
    /// Where its texts come from.
    pub provenance: Provenance,
    /// Defense.
    pub defense: String,
    /// Poison records, copies included.
    pub records: usize,
    /// Templates of the poison.
    pub templates: usize,
    /// Templates of the benign writes.
    pub benign_templates: usize,
    /// Unique poison texts flagged.
    pub tpr: Rate,
    /// The same over resampled templates.
    pub tpr_templates: Option<Estimate>,
    /// Unique poison texts blocked.
    pub blocked: Rate,
    /// Benign test writes flagged.
    pub fpr: Rate,
    /// The same over resampled templates.
    pub fpr_templates: Option<Estimate>,
    /// Area under the curve.
    pub auroc: Option<Estimate>,
    /// Unique poison texts above the threshold at which at most 1 % of the benign test writes are flagged.
    pub tpr_at_one: Rate,
    /// The share of benign writes that it really flags.
    pub fpr_at_one: Rate,
    /// Lowest poison score minus highest benign score; above 0 some threshold separates.
    pub margin: Option<f64>,
    /// Victim queries with poison among the first k, without the defense.
    pub asr_before: Rate,
    /// With it.
    pub asr_after: Rate,
    /// Benign queries that still find their memory, without the defense.
    pub utility_before: Rate,
    /// With it.
    pub utility_after: Rate,
    /// Fisher's exact test, poison flagged more often than benign; not corrected.
    pub p_fisher: f64,
    /// McNemar's exact test against reference MEMSAD (combined) on the same texts; not corrected.
    pub p_mcnemar: Option<f64>,
    /// Tests of the run that the two are to be multiplied by.
    pub tests: usize,
    /// Mean and deviation of the area over 200 permutations of the labels.
    pub shuffled_auroc: Option<[f64; 2]>,
    /// Controls.
    pub controls: Vec<ControlCell>,
    /// Threshold, where one number decides.
    pub threshold: Option<f64>,
    /// Curve.
    pub roc: Vec<[f64; 2]>,
    /// Distributions.
    pub histogram: Histogram,
    /// Flag of each unique text, in order.
    pub flags: Vec<bool>,
}

/// What the cells of one boundary share.
#[derive(Debug)]
pub(super) struct Ground<'a> {
    /// The boundary.
    pub(super) boundary: &'a Boundary,
    /// Its store.
    pub(super) store: &'a Store,
    /// Encoder.
    pub(super) encode: &'a dyn Encode,
    /// Resampling.
    pub(super) bootstrap: Bootstrap,
}

/// A set's unique texts with their results: the first occurrence counts.
struct Unique<'a> {
    writes: Vec<&'a Write>,
    judged: Vec<Judged>,
}

impl<'a> Unique<'a> {
    fn of(writes: &'a [Write], judged: &[Judged]) -> Self {
        let mut seen = BTreeSet::new();
        let first = |(w, _): &(&'a Write, &Judged)| seen.insert(w.text.as_str());
        let (writes, judged) = writes.iter().zip(judged).filter(first).unzip();
        Self { writes, judged }
    }

    fn scores(&self) -> Vec<f64> {
        self.judged.iter().map(|j| j.score).collect()
    }

    fn flags(&self) -> Vec<bool> {
        self.judged.iter().map(|j| j.flagged).collect()
    }

    fn group(&self, scores: &[f64]) -> Group {
        Group::new(scores, self.writes.iter().map(|w| w.template.as_str()))
    }
}

/// Judges an attack and its controls.
///
/// # Errors
/// `encoder_failed`.
pub(super) fn cell(
    ground: &Ground<'_>,
    attack: &Attack,
    name: &str,
    defense: &dyn Defense,
    benign: &[Judged],
) -> Result<Cell> {
    let judged = defense.judge(&attack.poison, ground.encode)?;
    let poison = Unique::of(&attack.poison, &judged);
    let normal = Unique::of(&ground.boundary.test, benign);
    let (bad, good) = (poison.scores(), normal.scores());
    let (bad_group, good_group) = (poison.group(&bad), normal.group(&good));
    let flags = poison.flags();
    let as_score = |flags: &[bool]| flags.iter().map(|f| f64::from(u8::from(*f))).collect::<Vec<_>>();
    let share = |u: &Unique<'_>| ground.bootstrap.share_above(&u.group(&as_score(&u.flags())), 0.5);
    let (tpr, fpr) = (Rate::of(&flags), Rate::of(&normal.flags()));
    let at_one = tpr_at_fpr(&good, &bad, LEVEL);
    let all: Vec<&Write> = attack.poison.iter().collect();
    let passed: Vec<&Write> = attack.poison.iter().zip(&judged).filter(|(_, j)| !j.flagged).map(|(w, _)| w).collect();
    let before = ground.store.retrieve(&all, &attack.victims, None, ground.encode)?;
    let after = ground.store.retrieve(&passed, &attack.victims, Some(benign), ground.encode)?;
    let controls = attack.controls.iter().map(|c| control(ground, c, defense, &good, benign));
    Ok(Cell {
        boundary: ground.boundary.name.clone(),
        attack: attack.name.clone(),
        provenance: attack.provenance,
        defense: name.to_owned(),
        records: attack.poison.len(),
        templates: bad_group.templates(),
        benign_templates: good_group.templates(),
        tpr,
        tpr_templates: share(&poison),
        blocked: Rate::of(&poison.judged.iter().map(|j| j.blocked).collect::<Vec<_>>()),
        fpr,
        fpr_templates: share(&normal),
        auroc: ground.bootstrap.auroc(&good_group, &bad_group),
        tpr_at_one: Rate::new(at_one.flagged, bad.len()),
        fpr_at_one: Rate::new(at_one.false_alarms, good.len()),
        // Scores that only say "above all others" have no distance.
        margin: margin(&good, &bad).filter(|m| m.abs() < 1e5),
        asr_before: before.asr,
        asr_after: after.asr,
        utility_before: before.utility,
        utility_after: after.utility,
        p_fisher: fisher_greater(tpr.x, tpr.n, fpr.x, fpr.n),
        p_mcnemar: None,
        tests: 1,
        shuffled_auroc: permuted(&good, &bad, ground.bootstrap.seed),
        controls: controls.collect::<Result<_>>()?,
        threshold: defense.threshold().filter(|t| t.is_finite()),
        roc: thinned(roc(&good, &bad)),
        histogram: histogram(&good, &bad, defense.threshold()),
        flags,
    })
}

fn control(
    ground: &Ground<'_>,
    control: &Control,
    defense: &dyn Defense,
    good: &[f64],
    benign: &[Judged],
) -> Result<ControlCell> {
    let judged = defense.judge(&control.writes, ground.encode)?;
    let unique = Unique::of(&control.writes, &judged);
    let attacked = control.truth == Truth::Poison && !control.victims.is_empty();
    let asr = |kept: Vec<&Write>, benign: Option<&[Judged]>| -> Result<Option<Rate>> {
        Ok(match attacked {
            true => Some(ground.store.retrieve(&kept, &control.victims, benign, ground.encode)?.asr),
            false => None,
        })
    };
    let passed = control.writes.iter().zip(&judged).filter(|(_, j)| !j.flagged).map(|(w, _)| w).collect();
    Ok(ControlCell {
        name: control.name.clone(),
        truth: control.truth,
        flagged: Rate::of(&unique.flags()),
        auroc: auroc(good, &unique.scores()),
        asr_before: asr(control.writes.iter().collect(), None)?,
        asr_after: asr(passed, Some(benign))?,
    })
}

/// At most [`CORNERS`] corners, both ends kept.
fn thinned(curve: Vec<[f64; 2]>) -> Vec<[f64; 2]> {
    if curve.len() <= CORNERS {
        return curve;
    }
    (0..CORNERS).map(|i| curve[i * (curve.len() - 1) / (CORNERS - 1)]).collect()
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // bins
fn histogram(benign: &[f64], poison: &[f64], threshold: Option<f64>) -> Histogram {
    // Scores that only say "above all others" would squeeze the rest into one bin.
    let finite = || benign.iter().chain(poison).copied().filter(|s| s.abs() < 1e5);
    let near = threshold.filter(|t| t.is_finite());
    let low = finite().chain(near).fold(f64::INFINITY, f64::min);
    let high = finite().chain(near).fold(f64::NEG_INFINITY, f64::max);
    let (low, high) = if low < high { (low, high) } else { (low.min(0.0), low.max(0.0) + 1.0) };
    let (low, high) = if low.is_finite() && high.is_finite() { (low, high) } else { (0.0, 1.0) };
    let count = |scores: &[f64]| {
        let mut bins = vec![0_u32; BINS];
        for s in scores {
            let at = ((s - low) / (high - low) * BINS as f64).floor().clamp(0.0, (BINS - 1) as f64);
            bins[at as usize] += 1;
        }
        bins
    };
    Histogram { low, high, benign: count(benign), poison: count(poison) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_hold_every_score() {
        let h = histogram(&[0.0, 0.5, 1.0], &[2.0, 1e6], Some(1.5));
        assert_eq!((h.low, h.high), (0.0, 2.0));
        assert_eq!((h.benign.iter().sum::<u32>(), h.poison.iter().sum::<u32>()), (3, 2));
        assert_eq!(histogram(&[], &[], None).benign.len(), BINS);
        assert_eq!(thinned((0..500).map(|i| [f64::from(i); 2]).collect()).len(), CORNERS);
    }
}
