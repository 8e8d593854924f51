//! Section 5: shuffled labels, re-cut streams, a new record format, what provenance does by itself.

use super::{Domain, counted, is_poison};
use crate::error::Result;
use crate::evaluate::attacks::permuted;
use crate::evaluate::data::{cut, interleave};
use crate::evaluate::defenses::{Defense, ProvenanceGate, Screen};
use crate::evaluate::stats::{Rate, auroc};
use crate::evaluate::{Boundary, Encode, Rng, Row, Write};
use crate::schema::Verdict;

pub(super) fn rows(domains: &[Domain], seed: u64, encode: &dyn Encode) -> Result<Vec<Row>> {
    let mut rows = shuffled(domains, seed, encode)?;
    rows.extend(recut(domains, seed, encode)?);
    rows.extend(formats(domains, encode)?);
    rows.extend(provenance(domains, encode)?);
    Ok(rows)
}

fn shuffled(domains: &[Domain], seed: u64, encode: &dyn Encode) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for domain in domains {
        let score = |s: &crate::evaluate::defenses::Screened| s.harmonic;
        let benign: Vec<f64> = domain.screen.screen(&domain.boundary.test, encode)?.iter().map(score).collect();
        let mut poison = Vec::new();
        for set in domain.sets.iter().filter(|s| is_poison(s)) {
            poison.extend(counted(set, &domain.screen, encode)?.iter().map(score));
        }
        if let Some([mean, deviation]) = permuted(&benign, &poison, seed) {
            rows.push(
                Row::value("hardened.md 5: shuffled labels, area of 200 permutations", &domain.boundary.name, mean)
                    .published("0.498-0.501")
                    .against(0.5, 0.05)
                    .note(format!(
                        "deviation {deviation:.3}; labels as they are {:.3}",
                        auroc(&benign, &poison).unwrap_or_default()
                    )),
            );
        }
    }
    Ok(rows)
}

/// Sources in another order, five times: fit, calibration and test part are other rows each time.
fn recut(domains: &[Domain], seed: u64, encode: &dyn Encode) -> Result<Vec<Row>> {
    let section = "hardened.md 5: five source-wise re-cuts of the benign stream";
    let mut rows = Vec::new();
    let mut total = [0_usize; 5];
    for domain in domains.iter().filter(|d| d.boundary.name != "ds") {
        let mut found = [0_usize; 5];
        for repetition in 0..5 {
            let boundary = reshuffled(&domain.boundary, seed + repetition);
            let screen = Screen::fit(&boundary, false, encode)?;
            for s in screen.screen(&boundary.test, encode)? {
                let rare = |level: f64| usize::from(s.p.is_some_and(|p| p <= level));
                let now = [
                    1,
                    rare(0.01),
                    rare(0.05),
                    usize::from(s.verdict != Verdict::Allow),
                    usize::from(s.verdict == Verdict::Block),
                ];
                found.iter_mut().zip(now).for_each(|(f, n)| *f += n);
            }
        }
        total.iter_mut().zip(found).for_each(|(t, f)| *t += f);
        rows.extend(recut_rows(section, &domain.boundary.name, found));
    }
    rows.extend(recut_rows(section, "all", total));
    Ok(rows)
}

fn recut_rows(section: &str, name: &str, found: [usize; 5]) -> Vec<Row> {
    let study = |what: &str| match (name, what) {
        ("chat", "quarantined") => Some((6, 2180)),
        ("ehr", "quarantined") => Some((1, 1710)),
        ("qa", "quarantined") => Some((0, 900)),
        ("shop", "quarantined") => Some((0, 750)),
        ("all", "quarantined") => Some((7, 5540)),
        ("all", "p <= .01") => Some((35, 5540)),
        ("all", "p <= .05") => Some((172, 5540)),
        _ => None,
    };
    ["p <= .01", "p <= .05", "quarantined", "blocked"]
        .iter()
        .zip(&found[1..])
        .map(|(what, x)| {
            let row = Row::rate(section, format!("{name}: {what}"), Rate::new(*x, found[0]));
            match study(what) {
                None => row,
                Some((x, n)) => {
                    let value = f64::from(x) / f64::from(n);
                    row.published(format!("{x}/{n} {:.2} %", value * 100.0)).against(value, 0.005)
                }
            }
            .note("rows overlap between re-cuts: the interval is too narrow")
        })
        .collect()
}

fn reshuffled(boundary: &Boundary, seed: u64) -> Boundary {
    let mut sources: Vec<Vec<Write>> = Vec::new();
    let mut all: Vec<Write> = boundary.benign().cloned().collect();
    all.sort_by(|a, b| a.source.cmp(&b.source));
    for write in all {
        match sources.last_mut() {
            Some(group) if group[0].source == write.source => group.push(write),
            _ => sources.push(vec![write]),
        }
    }
    Rng::new(seed, "re-cut").shuffle(&mut sources);
    // The rarer of two record formats at an even pace, as in the stream itself: else a part may lack it.
    let rare = |g: &Vec<Write>| ["agent-run", "office-run"].iter().any(|n| g[0].source.starts_with(n));
    let (rare, common) = sources.into_iter().partition(rare);
    let [fit, calibrate, test] = cut(interleave(common, rare));
    Boundary { fit, calibrate, test, ..boundary.clone() }
}

/// Calibrated on one honest format, judged on another.
fn formats(domains: &[Domain], encode: &dyn Encode) -> Result<Vec<Row>> {
    let of = |name: &str| domains.iter().find(|d| d.boundary.name == name).map(|d| &d.boundary);
    let mut rows = Vec::new();
    let (persona, office, sql, agent) = ("mb-", "ms-", "ehw-", "eha-");
    for (domain, name, from, to, study) in [
        ("chat", "persona chat -> office notes", persona, office, "C 0 of 180"),
        ("chat", "office notes -> persona chat", office, persona, "C 2 of 422"),
        ("ehr", "EHR SQL -> EHR agent code", sql, agent, "C 52 of 127"),
        ("ehr", "EHR agent code -> EHR SQL", agent, sql, "C 36 of 54"),
    ] {
        let Some(boundary) = of(domain) else { continue };
        let known: Vec<Write> = boundary.benign().filter(|w| w.id.starts_with(from)).cloned().collect();
        let half = known.len() / 2;
        let calibrated =
            Boundary { fit: known[..half].to_vec(), calibrate: known[half..].to_vec(), ..boundary.clone() };
        let screen = Screen::fit(&calibrated, false, encode)?;
        let new: Vec<Write> = boundary.benign().filter(|w| w.id.starts_with(to)).cloned().collect();
        let judged = screen.screen(&new, encode)?;
        for floor in ["payload", "campaign", "near_duplicate", "drift"] {
            let hits = judged.iter().filter(|s| s.floors.contains(&floor)).count();
            let row = Row::rate(
                "hardened.md 5: a new benign format, rows that reach a floor",
                format!("{name}: {floor}"),
                Rate::new(hits, judged.len()),
            );
            rows.push(if floor == "campaign" { row.published(study) } else { row.published("0") });
        }
    }
    Ok(rows)
}

/// R0 by itself, the content by itself.
fn provenance(domains: &[Domain], encode: &dyn Encode) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for domain in domains {
        for set in &domain.sets {
            let gate = ProvenanceGate.judge(&set.writes, encode)?;
            let counts = |i: &usize| set.counted.is_empty() || set.counted[*i];
            let held: Vec<bool> = (0..gate.len()).filter(counts).map(|i| gate[i].flagged).collect();
            let content = counted(set, &domain.screen, encode)?.iter().filter(|s| s.verdict != Verdict::Allow).count();
            let what = if is_poison(set) { "poison" } else { "benign" };
            rows.push(
                Row::rate(
                    "hardened.md 5: provenance alone holds",
                    format!("{} {} ({what})", domain.boundary.name, set.name),
                    Rate::of(&held),
                )
                .note(format!("content alone {content}/{}", held.len())),
            );
        }
        let test = ProvenanceGate.judge(&domain.boundary.test, encode)?;
        let held: Vec<bool> = test.iter().map(|j| j.flagged).collect();
        rows.push(Row::rate(
            "hardened.md 5: provenance alone holds",
            format!("{} BENIGN", domain.boundary.name),
            Rate::of(&held),
        ));
    }
    Ok(rows)
}
