//! Signals to verdict. Policy first; either filter alone can hold a write; the screen alone blocks, MEMSAD never
//! does. Pure.

use crate::policy::{self, Ruling};
use crate::schema::{MemsadFacts, MemsadStatus, ScreenFacts, ScreenStatus, Verdict};
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
pub fn decide(
    ruling: &Ruling,
    memsad: Option<&MemsadFacts>,
    screen: Option<&ScreenFacts>,
    embedding: Embedding,
    posture: &Posture,
) -> Outcome {
    let mut outcome = Outcome { verdict: ruling.verdict, reasons: Vec::new(), flags: Vec::new() };
    if ruling.verdict != Verdict::Allow {
        outcome.reasons.push(policy::reason(ruling).into_owned());
        outcome.reasons.extend(ruling.missing.iter().map(|field| format!("provenance:{field}")));
    }
    // Nothing removes parts of a record, so a reader would see what the rule takes away.
    if ruling.verdict == Verdict::Redact {
        outcome.flags.push("redact_held".to_owned());
        outcome.verdict = Verdict::Quarantine;
    }
    if memsad.is_some_and(|m| m.flagged && m.status == MemsadStatus::Enforced) {
        outcome.reasons.push("memsad:above_threshold".to_owned());
        outcome.verdict = outcome.verdict.max(Verdict::Quarantine);
    }
    if let Some(s) = screen.filter(|s| s.status != ScreenStatus::Shadow && s.verdict != Verdict::Allow) {
        outcome.reasons.extend(s.floors.iter().map(|floor| format!("screen:{floor}")));
        outcome.verdict = outcome.verdict.max(s.verdict);
    }
    match embedding {
        Embedding::Truncated => apply(posture.on_truncation, "truncated", &mut outcome),
        Embedding::Uncovered => apply(posture.on_truncation, "unknown_script", &mut outcome),
        Embedding::Failed => apply(posture.on_error, "fallback_encoder_failed", &mut outcome),
        Embedding::None | Embedding::Whole => {}
    }
    outcome
}

/// The end of a text was not screened.
pub fn cut(posture: &Posture, outcome: &mut Outcome) {
    apply(posture.on_truncation, "screen_cut", outcome);
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
            missing: vec![],
        }
    }

    fn memsad(flagged: bool, status: MemsadStatus) -> MemsadFacts {
        MemsadFacts {
            calibration: None,
            certificate: None,
            conformal: None,
            flagged,
            m: 1,
            s_comb: 0,
            s_max: 0,
            s_mean: 0,
            statistic: "max".into(),
            status,
            threshold: None,
            window: None,
        }
    }

    fn screen(verdict: Verdict, status: ScreenStatus) -> ScreenFacts {
        let floors = if verdict == Verdict::Allow { vec![] } else { vec!["payload".to_owned()] };
        ScreenFacts {
            b: 0,
            c: 0,
            c_counts: true,
            calibration: None,
            characters: None,
            classes: vec![],
            d: 0,
            floors,
            form: "text".into(),
            hidden: 0,
            j: 0,
            lexicon: "1".into(),
            of: None,
            p: 0,
            rank: None,
            share: None,
            status,
            unseen_calls: 0,
            unseen_sinks: 0,
            verdict,
        }
    }

    fn posture(kind: PostureKind) -> Posture {
        Posture { on_error: kind, on_truncation: kind, hold_deadline: std::time::Duration::ZERO }
    }

    /// Every field that lacks is a reason of its own.
    #[test]
    fn missing_provenance_is_named_field_by_field() {
        let lacking = Ruling { missing: vec!["origin", "written_by"], ..ruling(Verdict::Block) };
        let o = decide(&lacking, None, None, Embedding::Whole, &posture(PostureKind::PassMarked));
        assert_eq!(o.reasons, ["policy:r", "provenance:origin", "provenance:written_by"]);
    }

    #[test]
    fn what_should_be_redacted_is_held() {
        let o = decide(&ruling(Verdict::Redact), None, None, Embedding::Whole, &posture(PostureKind::PassMarked));
        assert_eq!(o.verdict, Verdict::Quarantine);
        assert_eq!((o.reasons, o.flags), (vec!["policy:r".to_owned()], vec!["redact_held".to_owned()]));
    }

    /// Every combination: a verdict is the strictest of its parts, only enforced parts count, and each part that
    /// holds has its reason.
    #[test]
    fn verdict_table() {
        let verdicts = [Verdict::Allow, Verdict::Quarantine, Verdict::Block];
        let embeddings = [Embedding::None, Embedding::Whole, Embedding::Truncated, Embedding::Failed];
        let statuses = [MemsadStatus::Enforced, MemsadStatus::Shadow, MemsadStatus::Uncalibrated];
        let screens = [ScreenStatus::Enforced, ScreenStatus::Shadow, ScreenStatus::Uncalibrated];
        let mut parts = Vec::new();
        for policy in verdicts {
            for (flagged, status) in [false, true].into_iter().flat_map(|f| statuses.map(|s| (f, s))) {
                for (screened, counts) in verdicts.into_iter().flat_map(|v| screens.map(|s| (v, s))) {
                    for embedding in embeddings {
                        parts.push((policy, memsad(flagged, status), screen(screened, counts), embedding));
                    }
                }
            }
        }
        for (policy, m, s, embedding) in parts {
            for kind in [PostureKind::Quarantine, PostureKind::PassMarked, PostureKind::Hold] {
                let o = decide(&ruling(policy), Some(&m), Some(&s), embedding, &posture(kind));
                let by_memsad = m.flagged && m.status == MemsadStatus::Enforced;
                let by_posture =
                    matches!(embedding, Embedding::Truncated | Embedding::Failed) && kind != PostureKind::PassMarked;
                let by_screen = if s.status == ScreenStatus::Shadow { Verdict::Allow } else { s.verdict };
                let held = if by_memsad || by_posture { Verdict::Quarantine } else { Verdict::Allow };
                assert_eq!(o.verdict, policy.max(by_screen).max(held));
                let reasons = [policy != Verdict::Allow, by_memsad, by_screen != Verdict::Allow, by_posture];
                assert_eq!(o.reasons.len(), reasons.iter().filter(|r| **r).count());
                assert_eq!(o.verdict == Verdict::Allow, o.reasons.is_empty());
            }
        }
    }
}
