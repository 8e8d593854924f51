//! Watermark or MEMSAD (combined) or proactive: the later paper text's composite.

use super::geometry::Proactive;
use super::memsad::Memsad;
use super::watermark::Watermark;
use super::{Defense, Judged};
use crate::error::Result;
use crate::evaluate::{Boundary, Encode, Write};
use crate::topology::Statistic;

/// The three members.
#[derive(Debug)]
pub(super) struct Composite {
    members: Vec<Box<dyn Defense>>,
}

impl Composite {
    pub(super) fn fit(boundary: &Boundary, encode: &dyn Encode) -> Result<Self> {
        Ok(Self {
            members: vec![
                Box::new(Watermark::new("memsluice-evaluate")),
                Box::new(Memsad::reference(boundary, Statistic::Combined, encode)?),
                Box::new(Proactive::new(encode)?),
            ],
        })
    }
}

impl Defense for Composite {
    /// The score is the largest excess of a member over its threshold.
    fn judge(&self, stream: &[Write], encode: &dyn Encode) -> Result<Vec<Judged>> {
        let mut joined = vec![Judged { score: f64::NEG_INFINITY, flagged: false, blocked: false }; stream.len()];
        for member in &self.members {
            let threshold = member.threshold().unwrap_or_default();
            for (all, one) in joined.iter_mut().zip(member.judge(stream, encode)?) {
                all.score = all.score.max(one.score - threshold);
                all.flagged |= one.flagged;
            }
        }
        Ok(joined)
    }

    fn threshold(&self) -> Option<f64> {
        Some(0.0)
    }
}
