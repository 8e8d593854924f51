//! MEMSAD+ (`memsad.md` 2) on a boundary.

use super::memsad::Memsad;
use super::{Defense, Judged};
use crate::error::Result;
use crate::evaluate::{Boundary, Encode, Write};
use crate::score::{Deviation, Plus as Fitted, Threshold, Trigrams, domain_share};
use crate::topology::Statistic;

/// How the parts are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Semantic or character above its own threshold.
    Paper,
    /// .5 semantic + .3 character + .2 words, in deviations, above 2.
    Weighted,
}

/// A fitted detector.
#[derive(Debug)]
pub struct Plus {
    semantic: Memsad,
    reference: Trigrams,
    fitted: Fitted,
    rule: Rule,
}

/// Deviations above the mean.
const KAPPA: f64 = 2.0;

impl Plus {
    /// Fits all parts on the calibration part.
    ///
    /// # Errors
    /// `encoder_failed`.
    pub fn fit(boundary: &Boundary, rule: Rule, encode: &dyn Encode) -> Result<Self> {
        let texts: Vec<&str> = boundary.calibrate.iter().map(|w| w.text.as_str()).collect();
        let semantic = Memsad::reference(boundary, Statistic::Combined, encode)?;
        let reference = Trigrams::of(texts.iter().copied());
        let threshold = |scores: &[f64]| Threshold::fit(scores, KAPPA, Deviation::Population);
        let of = |score: &dyn Fn(&str) -> f64| texts.iter().map(|t| score(t)).collect::<Vec<_>>();
        let fitted = Fitted {
            semantic: threshold(&semantic.scores(&boundary.calibrate, encode)?),
            character: threshold(&of(&|t| reference.divergence(t))),
            domain: threshold(&of(&domain_share)),
        };
        Ok(Self { semantic, reference, fitted, rule })
    }
}

impl Defense for Plus {
    /// The score is in deviations: the larger of the two that the paper's rule looks at, or the weighted sum.
    fn judge(&self, stream: &[Write], encode: &dyn Encode) -> Result<Vec<Judged>> {
        let judge = |(w, semantic): (&Write, f64)| {
            let character = self.reference.divergence(&w.text);
            let scores = self.fitted.judge(semantic, character, domain_share(&w.text));
            match self.rule {
                Rule::Paper => {
                    let score = self.fitted.semantic.z(semantic).max(self.fitted.character.z(character));
                    Judged { score, flagged: scores.paper, blocked: false }
                }
                Rule::Weighted => Judged { score: scores.weighted_score, flagged: scores.weighted, blocked: false },
            }
        };
        Ok(stream.iter().zip(self.semantic.scores(stream, encode)?).map(judge).collect())
    }

    fn threshold(&self) -> Option<f64> {
        Some(KAPPA)
    }
}
