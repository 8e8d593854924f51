//! Lines for people.

use super::Report;
use crate::evaluate::stats::{Estimate, Rate, bonferroni};
use crate::evaluate::{Cell, Row, Truth};

/// All lines of a report.
#[must_use]
pub fn lines(report: &Report) -> Vec<String> {
    let mut out = vec![format!(
        "{}  seed {}  k {}  {} resamples  {}",
        report.preset, report.seed, report.k, report.resamples, report.encoder
    )];
    out.extend(report.corpora.iter().map(|c| {
        let [fit, calibrate, test] = c.parts;
        format!("  {:<6} {fit} fit, {calibrate} calibrate, {test} test, {} queries in H", c.boundary, c.history)
    }));
    out.extend(report.skipped.iter().map(|s| format!("  skipped: {s}")));
    let mut last = String::new();
    for cell in &report.cells {
        let head = format!("{} / {} ({})", cell.boundary, cell.attack, cell.provenance.as_str());
        if head != last {
            out.extend([String::new(), title(cell, &head), HEAD.to_owned()]);
            last = head;
        }
        out.push(line(cell));
        out.extend(cell.controls.iter().map(|c| {
            let word = if c.truth == Truth::Benign { "alarms" } else { "found" };
            let asr = match (c.asr_before, c.asr_after) {
                (Some(b), Some(a)) => format!("  ASR-R {} -> {}", share(b), share(a)),
                _ => String::new(),
            };
            format!("    control {:<22} {word} {}  AUROC {}{asr}", c.name, rate(c.flagged), number(c.auroc))
        }));
    }
    let mut section = String::new();
    for row in &report.rows {
        if row.section != section {
            section.clone_from(&row.section);
            out.extend([String::new(), section.clone()]);
        }
        out.push(row_line(row));
    }
    out
}

const HEAD: &str = "  defense                 TPR x/n [95 %]           templates      FPR x/n [95 %]           AUROC [templates]      \
                    TPR@1%FPR   margin   ASR-R      utility    p Fisher / McNemar (corrected)  shuffled";

fn title(c: &Cell, head: &str) -> String {
    format!("{head}: {} records, {} unique texts, {} templates", c.records, c.tpr.n, c.templates)
}

fn line(c: &Cell) -> String {
    let p = |p: f64| format!("{:.1e}", bonferroni(p, c.tests));
    format!(
        "  {:<23} {:<24} {:<14} {:<24} {:<22} {:<11} {:<8} {:<10} {:<10} {:<31} {}",
        c.defense,
        rate(c.tpr),
        interval(c.tpr_templates),
        rate(c.fpr),
        estimate(c.auroc),
        format!("{:.0} % ({})", c.tpr_at_one.value() * 100.0, c.fpr_at_one.x),
        number(c.margin),
        format!("{}->{}", share(c.asr_before), share(c.asr_after)),
        format!("{}->{}", share(c.utility_before), share(c.utility_after)),
        format!("{} / {}", p(c.p_fisher), c.p_mcnemar.map_or("-".to_owned(), p)),
        c.shuffled_auroc.map_or("-".to_owned(), |[m, sd]| format!("{m:.3} sd {sd:.3}")),
    )
}

/// One row of a preset.
fn row_line(r: &Row) -> String {
    let value = match (r.rate, r.range) {
        (Some(x), _) => rate(x),
        (None, Some([low, high])) => format!("{:.3} ({low:.3} to {high:.3})", r.value),
        (None, None) => format!("{:.4}", r.value),
    };
    let reference = match (&r.published, &r.remeasured) {
        (None, None) => String::new(),
        (p, m) => format!("  published {}, re-measured {}", p.as_deref().unwrap_or("-"), m.as_deref().unwrap_or("-")),
    };
    let agrees = match r.agrees {
        None => "",
        Some(true) => "  agrees",
        Some(false) => "  DIFFERS",
    };
    let note = if r.note.is_empty() { String::new() } else { format!("  {}", r.note) };
    format!("  {:<58} {value:<26}{reference}{agrees}{note}", r.name)
}

/// `x/n share [low, high]` in percent.
pub(super) fn rate(r: Rate) -> String {
    let [low, high] = r.interval.map(|v| v * 100.0);
    format!("{}/{} {:.1} [{low:.1}-{high:.1}]", r.x, r.n, r.value() * 100.0)
}

fn share(r: Rate) -> String {
    if r.n == 0 { "-".to_owned() } else { format!("{:.2}", r.value()) }
}

pub(super) fn estimate(e: Option<Estimate>) -> String {
    e.map_or("-".to_owned(), |e| format!("{:.3} [{:.3}-{:.3}]", e.value, e.interval[0], e.interval[1]))
}

fn interval(e: Option<Estimate>) -> String {
    e.map_or("-".to_owned(), |e| format!("[{:.0}-{:.0}]", e.interval[0] * 100.0, e.interval[1] * 100.0))
}

pub(super) fn number(v: Option<f64>) -> String {
    v.map_or("-".to_owned(), |v| format!("{v:.3}"))
}
