//! Findings: OCSF class 2004 with ATLAS ids. They carry ids, scores and keyed hashes, never content.

use std::collections::BTreeMap;

use crate::clock::Millis;
use crate::schema::{
    Analytic, AnomalyAnalysis, AtlasAttack, AtlasRef, Attack, Boundary, DecisionBody, Evidence, FindingInfo, Metadata,
    NamedValue, Observation, ObservedAnomaly, Product, RollingFacts, ShareFacts, Tally, Unmapped, Verdict, to_cosine,
};
use crate::session::{Crossing, SprtTable};

const OCSF_VERSION: &str = "1.8.0";
const ATLAS_VERSION: &str = "5.6.0";

/// What differs between findings.
struct Draft<'a> {
    uid: String,
    boundary: &'a Boundary,
    session: Option<String>,
    severity: u32,
    action: u32,
    disposition: u32,
    at: Millis,
    start: Millis,
    title: &'a str,
    kind: &'a str,
    message: String,
    analytic: (&'a str, &'a str, u32),
    attack: AtlasAttack,
    label: &'a str,
    analyses: Vec<AnomalyAnalysis>,
    evidences: Vec<Evidence>,
    decision: Option<String>,
    reasons: Vec<String>,
    parameters: Option<String>,
}

impl<'a> Draft<'a> {
    /// Of one thing about a boundary's memory that a person should look at.
    fn of_memory(uid: String, boundary: &'a Boundary, at: Millis, evidence: Evidence) -> Self {
        Self {
            uid,
            boundary,
            session: None,
            severity: 3,
            action: 3,
            disposition: 19,
            at,
            start: at,
            title: "",
            kind: "",
            message: String::new(),
            analytic: ("", "", 0),
            attack: poisoning(),
            label: "owasp:ASI06",
            analyses: Vec::new(),
            evidences: vec![evidence],
            decision: None,
            reasons: Vec::new(),
            parameters: None,
        }
    }

    fn finish(self) -> Attack {
        let count = u32::try_from(self.evidences.len()).unwrap_or(u32::MAX);
        Attack {
            class_uid: 2004,
            category_uid: 2,
            activity_id: 1,
            type_uid: 200_401,
            severity_id: self.severity,
            status_id: 1,
            is_alert: true,
            time: self.at,
            start_time: self.start,
            end_time: self.at,
            message: self.message,
            action_id: self.action,
            disposition_id: self.disposition,
            metadata: Metadata {
                version: OCSF_VERSION.to_owned(),
                product: Product {
                    name: "memsluice".into(),
                    vendor_name: "memsluice".into(),
                    version: env!("CARGO_PKG_VERSION").into(),
                },
                uid: self.uid.clone(),
                correlation_uid: self.session,
                tenant_uid: self.boundary.tenant().to_owned(),
                profiles: vec!["security_control".to_owned()],
                labels: vec![self.label.to_owned()],
            },
            finding_info: FindingInfo {
                uid: self.uid,
                title: self.title.to_owned(),
                types: vec![self.kind.to_owned()],
                analytic: Analytic {
                    uid: self.analytic.0.to_owned(),
                    name: self.analytic.1.to_owned(),
                    type_id: self.analytic.2,
                    version: "1".to_owned(),
                },
                attacks: vec![self.attack],
                first_seen_time: self.start,
                last_seen_time: self.at,
                related_events_count: count,
            },
            anomaly_analyses: self.analyses,
            evidences: self.evidences,
            unmapped: Unmapped {
                boundary: self.boundary.to_string(),
                decision: self.decision,
                reasons: self.reasons,
                parameters: self.parameters,
            },
        }
    }
}

fn atlas(tactic: (&str, &str), technique: (&str, &str), sub: Option<(&str, &str)>) -> AtlasAttack {
    let make = |(uid, name): (&str, &str)| AtlasRef { uid: uid.to_owned(), name: name.to_owned() };
    AtlasAttack {
        version: ATLAS_VERSION.to_owned(),
        tactic: make(tactic),
        technique: make(technique),
        sub_technique: sub.map(make),
    }
}

fn poisoning() -> AtlasAttack {
    atlas(("AML.TA0006", "Persistence"), ("AML.T0080", "AI Agent Context Poisoning"), Some(("AML.T0080.000", "Memory")))
}

fn extraction() -> AtlasAttack {
    atlas(
        ("AML.TA0009", "Collection"),
        ("AML.T0085", "Data from AI Services"),
        Some(("AML.T0085.000", "RAG Databases")),
    )
}

/// A write was held.
#[must_use]
pub fn held_write(uid: String, boundary: &Boundary, body: &DecisionBody, at: Millis) -> Attack {
    let blocked = body.verdict == Some(Verdict::Block);
    let by = |filter: &str| body.reasons.iter().any(|r| r.starts_with(filter));
    let (by_score, by_screen) = (by("memsad:"), by("screen:"));
    let mut data = BTreeMap::new();
    if let Some(input) = &body.input {
        data.insert("input".to_owned(), format!("{}-{}@{}", input.topic, input.partition, input.offset));
    }
    if let Some(content) = &body.content {
        data.insert("content_hmac".to_owned(), content.hmac.clone());
        data.insert("length".to_owned(), content.bytes.to_string());
    }
    if let Some(source) = &body.source {
        data.insert("origin".to_owned(), source.origin.clone());
    }
    Draft {
        uid,
        boundary,
        session: body.source.as_ref().and_then(|s| s.session_id.clone()),
        severity: if blocked { 4 } else { 3 },
        action: 2,
        disposition: if blocked { 2 } else { 3 },
        at,
        start: at,
        title: "Suspected memory poisoning",
        kind: "memory-poisoning",
        message: format!("memory write held: {}", body.reasons.join(", ")),
        analytic: if by_screen {
            ("screen.floors", "Write screen", 1)
        } else if by_score {
            match body.memsad.as_ref().and_then(|m| m.window.as_ref()) {
                Some(_) => ("memsad.hardened", "MEMSAD score", 3),
                None => ("memsad.reference", "MEMSAD score", 3),
            }
        } else {
            ("policy.provenance", "Provenance policy", 1)
        },
        attack: poisoning(),
        label: "owasp:ASI06",
        analyses: body.memsad.as_ref().filter(|_| by_score).map(score_analysis).into_iter().collect(),
        evidences: vec![Evidence { uid: body.id.clone(), data }],
        decision: Some(body.id.clone()),
        reasons: body.reasons.clone(),
        parameters: None,
    }
    .finish()
}

/// An allowed write is one of a campaign.
#[must_use]
pub fn retracted_write(uid: String, boundary: &Boundary, body: &DecisionBody, at: Millis) -> Attack {
    let facts = body.retraction.as_ref();
    let mut data = BTreeMap::new();
    if let Some(r) = facts {
        data.insert("input".to_owned(), format!("{}-{}@{}", r.input.topic, r.input.partition, r.input.offset));
        data.insert("action".to_owned(), r.action.clone());
    }
    if let Some(input) = &body.input {
        data.insert("shown_by".to_owned(), format!("{}-{}@{}", input.topic, input.partition, input.offset));
    }
    let evidence = Evidence { uid: facts.map_or_else(|| body.id.clone(), |r| r.decision.clone()), data };
    Draft {
        title: "Stored memory belongs to a campaign",
        kind: "memory-retraction",
        message: format!("an allowed memory write is one of a campaign: {}", body.reasons.join(", ")),
        analytic: ("screen.floors", "Write screen", 1),
        reasons: body.reasons.clone(),
        ..Draft::of_memory(uid, boundary, at, evidence)
    }
    .finish()
}

/// A jump in the scores of accepted writes froze a boundary's calibration.
#[must_use]
pub fn frozen_calibration(uid: String, boundary: &Boundary, facts: &RollingFacts, at: Millis) -> Attack {
    let shown = |t: Option<i64>| t.map_or("-".to_owned(), |t| format!("{:.6}", to_cosine(t)));
    let data = BTreeMap::from([
        ("calibration".to_owned(), facts.calibration.clone()),
        ("threshold".to_owned(), shown(facts.before)),
        ("threshold_with_new_rows".to_owned(), shown(facts.threshold)),
        ("ks_distance".to_owned(), format!("{:.6}", f64::from(facts.ks_new) / 1e6)),
    ]);
    Draft {
        title: "Calibration frozen",
        kind: "calibration-frozen",
        message: "accepted writes score unlike those in force: the threshold stays as it is".to_owned(),
        analytic: ("memsad.rolling", "Two-sample test of accepted writes", 1),
        reasons: vec!["memsad:calibration_frozen".to_owned()],
        ..Draft::of_memory(uid.clone(), boundary, at, Evidence { uid, data })
    }
    .finish()
}

/// The share of writes that reach a floor moved by a factor of 3.
#[must_use]
pub fn moved_share(uid: String, boundary: &Boundary, facts: &ShareFacts, at: Millis) -> Attack {
    let shown = |t: &Tally| format!("{} of {}", t.hits, t.n);
    let to = facts.alarm.as_deref().unwrap_or_default();
    let data = BTreeMap::from([
        ("base".to_owned(), facts.of.clone()),
        ("base_share".to_owned(), facts.base.as_ref().map_or("-".to_owned(), shown)),
        ("share".to_owned(), shown(&facts.block)),
    ]);
    Draft {
        title: "Share of floor hits moved",
        kind: "floor-share-moved",
        message: format!("the share of writes that reach a floor of the screen went {to} by a factor of 3 or more"),
        analytic: ("screen.share", "Share of writes that reach a floor", 1),
        reasons: vec![format!("screen:floor_share_{to}")],
        ..Draft::of_memory(uid.clone(), boundary, at, Evidence { uid, data })
    }
    .finish()
}

fn score_analysis(m: &crate::schema::MemsadFacts) -> AnomalyAnalysis {
    let parameter = format!("s_{}", m.statistic);
    let observed = |text: String| {
        vec![ObservedAnomaly {
            observation_parameter: parameter.clone(),
            observations: vec![Observation { value: text }],
        }]
    };
    let score = match m.statistic.as_str() {
        "max" => m.s_max,
        "mean" => m.s_mean,
        _ => m.s_comb,
    };
    AnomalyAnalysis {
        analysis_targets: vec![NamedValue { name: "write score".into(), kind: "MEMSAD".into() }],
        anomalies: observed(format!("{:.6}", to_cosine(score))),
        baselines: observed(format!(
            "threshold={:.6} m={} calibration={}",
            to_cosine(m.threshold.unwrap_or_default()),
            m.m,
            m.calibration.as_deref().unwrap_or("-")
        )),
    }
}

/// A session crossed the upper bound.
#[must_use]
pub fn extraction_session(
    uid: String,
    boundary: &Boundary,
    session: &str,
    principal: &str,
    table: &SprtTable,
    crossing: &Crossing,
) -> Attack {
    let p = &table.parameters;
    let trajectory = crossing
        .trajectory
        .iter()
        .enumerate()
        .map(|(i, s)| Observation { value: format!("{}:{s:.4}", i + 1) })
        .collect();
    let baseline = format!(
        "p1={} p0={} alpha={} beta={} upper={:.4} lower={:.4}",
        p.p1, p.p0, p.alpha, p.beta, table.upper, table.lower
    );
    let evidences = crossing.evidence.iter().map(|hit| Evidence {
        uid: hit.event_id.clone(),
        data: BTreeMap::from([("honeypot".to_owned(), hit.honeypot_id.clone())]),
    });
    Draft {
        uid,
        boundary,
        session: Some(session.to_owned()),
        severity: 4,
        action: 3,
        disposition: 19,
        at: crossing.at,
        start: crossing.started,
        title: "Memory extraction session",
        kind: "memory-extraction",
        message: format!(
            "session crossed the upper bound after {} observations (principal {principal})",
            crossing.trajectory.len()
        ),
        analytic: ("sprt.honeypot", "Sequential test over honeypot hits", 2),
        attack: extraction(),
        label: "owasp:LLM02:2025",
        analyses: vec![AnomalyAnalysis {
            analysis_targets: vec![NamedValue { name: "session".into(), kind: "SPRT".into() }],
            anomalies: vec![ObservedAnomaly { observation_parameter: "llr".into(), observations: trajectory }],
            baselines: vec![ObservedAnomaly {
                observation_parameter: "llr".into(),
                observations: vec![Observation { value: baseline }],
            }],
        }],
        evidences: evidences.collect(),
        decision: None,
        reasons: vec!["sprt:upper_bound".to_owned()],
        parameters: p.assumed.then(|| "assumed".to_owned()),
    }
    .finish()
}

/// A retrieval returned records of another tenant.
#[must_use]
pub fn cross_tenant(uid: String, boundary: &Boundary, session: &str, event: &str, count: usize, at: Millis) -> Attack {
    let data = BTreeMap::from([("foreign_records".to_owned(), count.to_string())]);
    Draft {
        uid,
        boundary,
        session: Some(session.to_owned()),
        severity: 5,
        action: 3,
        disposition: 19,
        at,
        start: at,
        title: "Cross-tenant retrieval",
        kind: "cross-tenant-retrieval",
        message: format!("a retrieval returned {count} records of another tenant"),
        analytic: ("retrieval.cross_tenant", "Tenant of returned records", 1),
        attack: extraction(),
        label: "owasp:LLM02:2025",
        analyses: Vec::new(),
        evidences: vec![Evidence { uid: event.to_owned(), data }],
        decision: None,
        reasons: vec!["retrieval:cross_tenant".to_owned()],
        parameters: None,
    }
    .finish()
}
