//! Outputs as lines for people.

use crate::error::Result;
use crate::pipeline::Summary;
use crate::schema::{Attack, Decision, DecisionKind, Verdict, to_cosine};
use crate::sink::Output;
use crate::topology::Role;

use super::out;

/// Prints a held write, a dead letter, an activation or a finding; allowed writes only with `all`.
pub(super) fn output(o: &Output, all: bool) -> Result<()> {
    let value = o.value.as_deref().unwrap_or_default();
    match o.role {
        Role::Decisions => match serde_json::from_slice::<Decision>(value) {
            Ok(d) => decision(&d, all),
            Err(_) => Ok(()),
        },
        Role::Attacks => match serde_json::from_slice::<Attack>(value) {
            Ok(a) if a.finding_info.types.iter().any(|t| t != "memory-poisoning") => finding(&a),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

fn decision(d: &Decision, all: bool) -> Result<()> {
    let b = &d.body;
    if let (DecisionKind::Activation, Some(a)) = (b.kind, &b.activation) {
        return out::line(&format!("in force    {}@{}", a.what, a.version));
    }
    let word = match b.verdict {
        _ if b.kind == DecisionKind::Retraction => "TAKEN BACK",
        Some(Verdict::Allow) if !all => return Ok(()),
        Some(Verdict::Allow) => "allowed",
        Some(Verdict::Redact) => "redacted",
        Some(Verdict::Quarantine) => "HELD",
        Some(Verdict::Block) => "BLOCKED",
        _ => "dead letter",
    };
    let name = match (&b.tenant, &b.store, &b.record_id, &b.input) {
        (Some(t), Some(s), Some(r), _) => format!("{t}/{s}/{r}"),
        (_, _, _, Some(i)) => format!("{}-{}@{}", i.topic, i.partition, i.offset),
        _ => "-".to_owned(),
    };
    let score = b.memsad.as_ref().map_or(String::new(), |m| {
        let threshold = m.threshold.map_or("-".to_owned(), |t| format!("{:.3}", to_cosine(t)));
        format!("  score {:.3} (threshold {threshold}, {} queries)", to_cosine(m.s_comb), m.m)
    });
    let origin = b.source.as_ref().map_or("-", |s| s.origin.as_str());
    out::line(&format!("{word:<11} {name:<28} {:<16} {}{score}", origin, b.reasons.join(", ")))
}

fn finding(a: &Attack) -> Result<()> {
    let session = a.metadata.correlation_uid.as_deref().unwrap_or("-");
    out::line(&format!(
        "FINDING     {} in {}, session {session}: {}",
        a.finding_info.title, a.unmapped.boundary, a.message
    ))?;
    for analysis in &a.anomaly_analyses {
        for anomaly in &analysis.anomalies {
            let path: Vec<&str> = anomaly.observations.iter().map(|o| o.value.as_str()).collect();
            out::line(&format!("            {} {}", anomaly.observation_parameter, path.join("  ")))?;
        }
    }
    Ok(())
}

/// Prints the totals.
pub(super) fn summary(s: &Summary) -> Result<()> {
    let verdicts: Vec<String> = s.verdicts.iter().map(|(v, n)| format!("{n} {v}")).collect();
    let writes: u64 = s.verdicts.values().sum();
    out::line(&format!(
        "{} inputs: {writes} writes decided ({}), {} dead letters, {} findings; {} of {} decisions uncalibrated",
        s.inputs,
        if verdicts.is_empty() { "none".to_owned() } else { verdicts.join(", ") },
        s.dead_letters,
        s.findings,
        s.uncalibrated,
        writes,
    ))
}
