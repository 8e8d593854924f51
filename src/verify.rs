//! Recomputing what a decision says about hardened MEMSAD: from the decision alone, with its calibration, with the
//! query window in a local state, with the write itself, or by running the files again. What can't be recomputed
//! from what is given is said, never passed over.

use std::ops::ControlFlow;

use serde::Serialize;

use crate::error::{Code, Error, Result};
use crate::schema::{
    Boundary, Certificate, ChainLink, ConformalFacts, Decision, MemsadFacts, MemsadStatus, Vector, canonical,
};
use crate::score::{
    AcceptedValue, Conformal, Fitted, Keys, Limits, Lipschitz, Query, QueryValue, RollingMark, Row, Scored, Window,
    WindowMark, fewest, rolling_name, score, slack,
};
use crate::source::partition_of;
use crate::state::{Kind, View, decode, key};
use crate::topology::Statistic;

/// What a check came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Recomputed, and the same.
    Ok,
    /// Recomputed, and not what the decision says.
    Failed,
    /// Not recomputed.
    NotChecked,
}

/// One statement of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// Result.
    pub outcome: Outcome,
    /// What was found, or what lacks.
    pub detail: String,
}

/// A rolling calibration in a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollingRows {
    /// Its name in decisions.
    pub name: String,
    /// Rows.
    pub rows: Vec<Row>,
}

/// What a decision is compared with.
#[derive(Debug, Clone, Copy, Default)]
pub struct Evidence<'a> {
    /// The calibration that it names.
    pub calibration: Option<&'a Fitted>,
    /// The rolling calibration of its boundary.
    pub rolling: Option<&'a RollingRows>,
    /// The query window of its boundary.
    pub window: Option<&'a Window>,
    /// Vector and keys of the write.
    pub write: Option<(&'a Vector, Keys)>,
    /// The decision that the files lead to.
    pub again: Option<&'a Decision>,
}

/// Checks all that can be.
#[must_use]
pub fn verify(d: &Decision, e: &Evidence<'_>) -> Vec<Check> {
    let mut out = vec![hash(d)];
    out.extend(e.again.map(|again| replayed(d, again)));
    let Some(m) = &d.body.memsad else {
        out.push(not("memsad", "nothing was scored"));
        return out;
    };
    out.push(result(d, m));
    match (&m.conformal, &m.certificate) {
        (conformal, Some(certificate)) => {
            out.extend(conformal.as_ref().map(|c| levels(m, c)));
            out.push(bounds(m, certificate));
            out.extend(with_calibration(m, conformal.as_ref(), e));
            out.extend(with_window(m, certificate, e));
        }
        _ => out.push(not("certificate", "made by the reference form: there is none")),
    }
    out
}

fn check(name: &'static str, good: bool, detail: impl Into<String>) -> Check {
    Check { name, outcome: if good { Outcome::Ok } else { Outcome::Failed }, detail: detail.into() }
}

fn not(name: &'static str, detail: impl Into<String>) -> Check {
    Check { name, outcome: Outcome::NotChecked, detail: detail.into() }
}

/// The body is the one that its link of the chain was made for.
fn hash(d: &Decision) -> Check {
    let prev = hex::decode(&d.chain.prev_hash).ok().and_then(|b| <[u8; 32]>::try_from(b).ok());
    let good = prev.is_some_and(|prev| ChainLink::next(d.chain.seq, &prev, &canonical(&d.body)).0 == d.chain);
    check("hash", good, "entry_hash is SHA-256 of prev_hash and the canonical body")
}

fn replayed(d: &Decision, again: &Decision) -> Check {
    let (a, b) = (&d.body, &again.body);
    let parts = [
        ("memsad", a.memsad == b.memsad),
        ("screen", a.screen == b.screen),
        ("verdict", a.verdict == b.verdict),
        ("reasons", a.reasons == b.reasons),
        ("flags", a.flags == b.flags),
        ("policy", a.policy == b.policy),
    ];
    let differ: Vec<&str> = parts.iter().filter(|(_, same)| !same).map(|(name, _)| *name).collect();
    if differ.is_empty() {
        return check("replay", true, "the files lead to the same memsad, screen, verdict, reasons, flags and policy");
    }
    check("replay", false, format!("the files lead to another {}", differ.join(", ")))
}

fn statistic(m: &MemsadFacts) -> Statistic {
    match m.statistic.as_str() {
        "max" => Statistic::Max,
        "mean" => Statistic::Mean,
        _ => Statistic::Combined,
    }
}

fn tested(m: &MemsadFacts) -> i64 {
    match statistic(m) {
        Statistic::Max => m.s_max,
        Statistic::Mean => m.s_mean,
        Statistic::Combined => m.s_comb,
    }
}

/// The flag follows from score and threshold, and the reason from flag and status.
fn result(d: &Decision, m: &MemsadFacts) -> Check {
    let flagged = m.m > 0 && m.threshold.is_some_and(|t| tested(m) > t);
    let reason = d.body.reasons.iter().any(|r| r == "memsad:above_threshold");
    let good = flagged == m.flagged && reason == (flagged && m.status == MemsadStatus::Enforced);
    check("result", good, format!("score {}, threshold {}", tested(m), shown(m.threshold)))
}

/// Thresholds exist where the level can be tested, and say the same as the p-values.
fn levels(m: &MemsadFacts, c: &ConformalFacts) -> Check {
    let enough = c.of.saturating_sub(1) >= fewest(c.level);
    let tails = [
        (m.s_max, &c.max, Statistic::Max),
        (m.s_mean, &c.mean, Statistic::Mean),
        (m.s_comb, &c.comb, Statistic::Combined),
    ];
    let good = tails.iter().all(|(s, tail, which)| {
        let low = u64::from(tail.rank) * 1_000_000 <= u64::from(c.level) * u64::from(c.of);
        let own = *which != statistic(m) || tail.threshold == m.threshold;
        let above = tail.threshold.is_some_and(|t| *s > t);
        (1..=c.of).contains(&tail.rank) && tail.threshold.is_some() == enough && own && above == low
    });
    let of = |s: &crate::schema::Tail| format!("{}/{}", s.rank, c.of);
    let detail =
        format!("p max {} mean {} comb {} at level {} millionths", of(&c.max), of(&c.mean), of(&c.comb), c.level);
    check("p_values", good, detail)
}

/// The radius follows from margin and constant; counts are within their ranges.
fn bounds(m: &MemsadFacts, c: &Certificate) -> Check {
    let within = c.contrast <= m.m && c.coverage.is_none_or(|n| n <= m.m);
    let radius = match (m.threshold, c.radius) {
        (Some(t), Some(radius)) => {
            // The constant was rounded up to millionths: the exact radius is between these.
            let most = |constant: u32| Lipschitz { numerator: u128::from(constant) * 32_767, denominator: 1_000_000 };
            let slack = slack(tested(m), t);
            let low = most(c.lipschitz).radius(slack);
            (low..=most(c.lipschitz.saturating_sub(1)).radius(slack)).contains(&radius)
        }
        (None, None) => true,
        _ => false,
    };
    check("radius", within && radius, format!("radius {} millionths, constant {}", shown(c.radius), c.lipschitz))
}

fn with_calibration(m: &MemsadFacts, facts: Option<&ConformalFacts>, e: &Evidence<'_>) -> Vec<Check> {
    let (Some(name), Some(facts)) = (&m.calibration, facts) else {
        return vec![not("calibration", "the decision was made without one")];
    };
    let (found, rows) = match (is_rolling(name), e.rolling, e.calibration) {
        (true, Some(rolling), _) if rolling.name == *name => (rolling.name.clone(), rolling.rows.as_slice()),
        (true, Some(rolling), _) => return vec![not("calibration", format!("the state has {}", rolling.name))],
        (true, None, _) => return vec![not("calibration", format!("{name} is in the state of its unit: --state"))],
        (false, _, Some(c)) => (format!("{}@{}", c.record.scope, c.record.version), c.rows.as_slice()),
        (false, _, None) => return vec![not("calibration", format!("give {name} with --calibration"))],
    };
    let same = found == *name && rows.len() + 1 == facts.of as usize;
    let mut out = vec![check("calibration", same, format!("{found}, {} rows", rows.len()))];
    if !same {
        return out;
    }
    match e.window.filter(|w| is_of(m, w)) {
        None => out.push(not("thresholds", "they need the query window of the decision")),
        Some(w) => {
            let scores = crate::score::Scores { max: m.s_max, mean: m.s_mean, comb: m.s_comb };
            let again = Conformal::of(rows, w).facts(&scores, facts.level);
            out.push(check("thresholds", again == *facts, "thresholds and ranks from the rows at that window"));
        }
    }
    out
}

/// The stream made its rows.
fn is_rolling(name: &str) -> bool {
    name.starts_with("rolling/") || name.contains("+rolling.")
}

fn with_window(m: &MemsadFacts, c: &Certificate, e: &Evidence<'_>) -> Vec<Check> {
    let stored =
        not("coverage", "coverage, contrast and nearest need the accepted writes of that moment: run the files again");
    let stored = if e.again.is_some() { None } else { Some(stored) };
    let (Some(facts), Some(w)) = (&m.window, e.window) else {
        return [Some(not("window", "give the state of its unit with --state")), stored]
            .into_iter()
            .flatten()
            .collect();
    };
    if !is_of(m, w) {
        let what = format!(
            "the state has version {} ({}), the decision {} ({})",
            w.version(),
            w.digest(),
            facts.version,
            facts.digest
        );
        // The same version with other queries is no matter of time.
        let moved = if w.version() == facts.version { check("window", false, what) } else { not("window", what) };
        return std::iter::once(moved).chain(stored).collect();
    }
    let counts = (m.m + facts.excluded) as usize == w.rows().len();
    let mut out = vec![check("window", counts, format!("version {}, {} queries", facts.version, w.rows().len()))];
    match e.write {
        None => out.push(not("scores", "give the write with --record")),
        Some((vector, keys)) => out.extend(rescored(m, c, w, &score(vector, &keys, w))),
    }
    out.extend(stored);
    out
}

fn rescored(m: &MemsadFacts, c: &Certificate, w: &Window, again: &Scored) -> [Check; 2] {
    let excluded = m.window.as_ref().map_or(0, |f| f.excluded) as usize;
    let s = again.scores;
    let same = (s.max, s.mean, s.comb) == (m.s_max, m.s_mean, m.s_comb);
    let counts = again.dots.len() == m.m as usize && again.excluded == excluded;
    let rows = || again.dots.iter().map(|(i, _)| w.rows()[*i].vector.as_slice());
    let norms2 = rows().map(|v| v.iter().map(|x| u128::from(x.unsigned_abs()).pow(2)).sum());
    let mut sum = vec![0_i64; rows().next().map_or(0, <[i16]>::len)];
    rows().for_each(|v| sum.iter_mut().zip(v).for_each(|(s, x)| *s += i64::from(*x)));
    let lipschitz = Lipschitz::of(statistic(m), norms2, &sum, again.dots.len());
    let radius = m.threshold.map(|t| lipschitz.radius(slack(tested(m), t)));
    let exact = lipschitz.millionths() == c.lipschitz && radius == c.radius;
    [
        check(
            "scores",
            same && counts,
            format!("max {} mean {} comb {}, {} left out", s.max, s.mean, s.comb, again.excluded),
        ),
        check("lipschitz", exact, format!("{} millionths, radius {}", lipschitz.millionths(), shown(radius))),
    ]
}

fn is_of(m: &MemsadFacts, w: &Window) -> bool {
    m.window.as_ref().is_some_and(|f| f.version == w.version() && f.digest == w.digest())
}

fn shown(n: Option<impl std::fmt::Display>) -> String {
    n.map_or_else(|| "-".to_owned(), |n| n.to_string())
}

/// The rolling calibration of a boundary in a local state; `None` where it has none of its own.
///
/// # Errors
/// `state_failed`, `state_format`.
pub fn rolling(view: &View, units: i32, b: &Boundary) -> Result<Option<RollingRows>> {
    let partition = partition_of(b.as_str().as_bytes(), units);
    let mut mark: Option<RollingMark> = None;
    view.each(&key(Kind::Rolling, partition, &[b.as_str()], None, &[]), |_, value| {
        mark = Some(decode(value)?);
        Ok(ControlFlow::Break(()))
    })?;
    let Some(mark) = mark.filter(|m| m.rolled) else { return Ok(None) };
    let mut rows = Vec::new();
    each_numbered(view, Kind::RollingRow, partition, b, |seq, value| {
        let a: AcceptedValue = decode(value)?;
        if seq < mark.settled {
            rows.push(Row { keys: a.keys, vector: vector(&a.vector)? });
        }
        Ok(())
    })?;
    Ok(Some(RollingRows { name: rolling_name(&mark, b.as_str()), rows }))
}

fn each_numbered(
    view: &View,
    kind: Kind,
    partition: i32,
    b: &Boundary,
    mut each: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let prefix = key(kind, partition, &[b.as_str()], None, &[]);
    view.each(&prefix, |key, value| {
        let seq = key.get(prefix.len()..).and_then(|n| n.first_chunk::<8>()).map(|n| u64::from_be_bytes(*n));
        each(seq.ok_or_else(|| Error::new(Code::StateFormat, "a key is broken"))?, value)?;
        Ok(ControlFlow::Continue(()))
    })
}

fn vector(bytes: &[u8]) -> Result<Vector> {
    let values = bytes.chunks_exact(2).map(|c| i16::from_le_bytes([c[0], c[1]])).collect();
    Vector::from_unit(values).ok_or_else(|| Error::new(Code::StateFormat, "a vector is broken"))
}

/// The query window of a boundary in a local state; `None` where it has none.
///
/// # Errors
/// `state_failed`, `state_format`.
pub fn window(view: &View, units: i32, b: &Boundary, limits: Limits) -> Result<Option<Window>> {
    let partition = partition_of(b.as_str().as_bytes(), units);
    let mut mark: Option<WindowMark> = None;
    view.each(&key(Kind::Window, partition, &[b.as_str()], None, &[]), |_, value| {
        let (found, _): (WindowMark, u64) = decode(value)?;
        mark = Some(found);
        Ok(ControlFlow::Break(()))
    })?;
    let Some(mark) = mark else { return Ok(None) };
    let mut queries = Vec::new();
    each_numbered(view, Kind::Query, partition, b, |seq, value| {
        let q: QueryValue = decode(value)?;
        queries.push(Query { seq, at: q.at, keys: q.keys, vector: vector(&q.vector)? });
        Ok(())
    })?;
    Ok(Some(Window::restore(limits, mark, queries)))
}
