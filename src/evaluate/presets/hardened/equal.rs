//! Detections at equal measured false positive rates, unique texts, with and without provenance.

use std::collections::BTreeSet;

use super::{Domain, is_poison, other};
use crate::error::Result;
use crate::evaluate::defenses::Kind;
use crate::evaluate::stats::{Rate, tpr_at_fpr};
use crate::evaluate::{Encode, Row};
use crate::schema::Origin;

/// Compared with the screen.
const OTHERS: [Kind; 6] =
    [Kind::MemsadMax, Kind::MemsadCombined, Kind::MemsadPlus, Kind::MemsadPlusWeighted, Kind::Perplexity, Kind::Screen];

pub(super) fn rows(domains: &[Domain], encode: &dyn Encode) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for domain in domains {
        for kind in OTHERS {
            let defense = other(kind, &domain.boundary, encode)?;
            // Where nothing could be cut, the benign scores are those that were fitted on.
            let benign: Vec<f64> = defense.judge(&domain.boundary.test, encode)?.iter().map(|j| j.score).collect();
            for set in domain.sets.iter().filter(|s| is_poison(s)) {
                let judged = defense.judge(&set.writes, encode)?;
                let counts = |i: usize| set.counted.is_empty() || set.counted[i];
                let mut seen = BTreeSet::new();
                let mut scores = Vec::new();
                let mut outside = 0;
                for (i, (write, judged)) in set.writes.iter().zip(&judged).enumerate() {
                    if counts(i) && seen.insert(write.text.as_str()) {
                        scores.push(judged.score);
                        let trusted =
                            matches!(write.origin, Origin::UserInput | Origin::System | Origin::AgentGenerated);
                        outside += usize::from(!trusted);
                    }
                }
                let at = tpr_at_fpr(&benign, &scores, 0.01);
                let real = Rate::new(at.false_alarms, benign.len());
                let with = if outside == scores.len() { scores.len() } else { at.flagged };
                rows.push(
                    Row::rate(
                        "TPR at a benign FPR of at most 1 %, unique texts, content alone",
                        format!("{} {} / {}", domain.boundary.name, set.name, kind.as_str()),
                        Rate::new(at.flagged, scores.len()),
                    )
                    .note(format!(
                        "benign above it {}/{}; with provenance in front {with}/{}",
                        real.x,
                        real.n,
                        scores.len()
                    )),
                );
            }
        }
    }
    Ok(rows)
}
