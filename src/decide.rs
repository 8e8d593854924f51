//! Signals to verdict. Policy first; either filter alone can hold a write; MEMSAD never blocks. Pure.

use crate::policy::Ruling;
use crate::schema::{MemsadFacts, MemsadStatus, Verdict};
use crate::topology::{Posture, PostureKind};

/// What embedding came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Embedding {
    /// Nothing to embed (a delete).
    None,
    /// A vector of the whole text.
    Whole,
    /// A vector of the text's beginning.
    Truncated,
    /// A vector of a text whose script the encoder doesn't know.
    Uncovered,
    /// The encoder failed.
    Failed,
}

/// The verdict with its reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Verdict.
    pub verdict: Verdict,
    /// Codes of all that held it, policy first.
    pub reasons: Vec<String>,
    /// What a reader should know besides.
    pub flags: Vec<String>,
}

/// Decides.
#[must_use]
pub fn decide(ruling: &Ruling, memsad: Option<&MemsadFacts>, embedding: Embedding, posture: &Posture) -> Outcome {
    let mut outcome = Outcome { verdict: ruling.verdict, reasons: Vec::new(), flags: Vec::new() };
    if ruling.verdict != Verdict::Allow {
        outcome.reasons.push(format!("policy:{}", ruling.rule.as_deref().unwrap_or("default")));
    }
    if memsad.is_some_and(|m| m.flagged && m.status == MemsadStatus::Enforced) {
        outcome.reasons.push("memsad:above_threshold".to_owned());
        outcome.verdict = outcome.verdict.max(Verdict::Quarantine);
    }
    match embedding {
        Embedding::Truncated => apply(posture.on_truncation, "truncated", &mut outcome),
        Embedding::Uncovered => apply(posture.on_truncation, "unknown_script", &mut outcome),
        Embedding::Failed => apply(posture.on_error, "fallback_encoder_failed", &mut outcome),
        Embedding::None | Embedding::Whole => {}
    }
    outcome
}

fn apply(posture: PostureKind, flag: &str, outcome: &mut Outcome) {
    outcome.flags.push(flag.to_owned());
    if posture != PostureKind::PassMarked {
        outcome.reasons.push(format!("posture:{flag}"));
        outcome.verdict = outcome.verdict.max(Verdict::Quarantine);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Origin;

    fn ruling(verdict: Verdict) -> Ruling {
        Ruling {
            verdict,
            rule: Some("r".into()),
            shadow: vec![],
            origin: Origin::UserInput,
            basis: "topic",
            may_embed: true,
            expires_at: None,
        }
    }

    fn memsad(flagged: bool, status: MemsadStatus) -> MemsadFacts {
        MemsadFacts {
            calibration: None,
            flagged,
            m: 1,
            s_comb: 0,
            s_max: 0,
            s_mean: 0,
            statistic: "max".into(),
            status,
            threshold: None,
        }
    }

    fn posture(kind: PostureKind) -> Posture {
        Posture { on_error: kind, on_truncation: kind, hold_deadline: std::time::Duration::ZERO }
    }

    /// Every combination: a verdict is the strictest of its parts, and only enforced parts count.
    #[test]
    fn verdict_table() {
        for policy in [Verdict::Allow, Verdict::Quarantine, Verdict::Block] {
            for flagged in [false, true] {
                for status in [MemsadStatus::Enforced, MemsadStatus::Shadow, MemsadStatus::Uncalibrated] {
                    for embedding in [Embedding::None, Embedding::Whole, Embedding::Truncated, Embedding::Failed] {
                        for kind in [PostureKind::Quarantine, PostureKind::PassMarked, PostureKind::Hold] {
                            let o = decide(&ruling(policy), Some(&memsad(flagged, status)), embedding, &posture(kind));
                            let by_memsad = flagged && status == MemsadStatus::Enforced;
                            let by_posture = matches!(embedding, Embedding::Truncated | Embedding::Failed)
                                && kind != PostureKind::PassMarked;
                            let wanted = if by_memsad || by_posture { policy.max(Verdict::Quarantine) } else { policy };
                            assert_eq!(o.verdict, wanted);
                            assert_eq!(
                                o.reasons.len(),
                                usize::from(policy != Verdict::Allow)
                                    + usize::from(by_memsad)
                                    + usize::from(by_posture)
                            );
                            assert_eq!(o.verdict == Verdict::Allow, o.reasons.is_empty());
                        }
                    }
                }
            }
        }
    }
}
