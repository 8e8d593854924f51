//! One page that needs nothing else: tables and plots.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Report;
use super::svg::{distribution, escaped, margins, roc};
use super::table::{estimate, number, rate};
use crate::evaluate::stats::bonferroni;
use crate::evaluate::{Cell, Row, Truth};

const STYLE: &str = "body{font:14px sans-serif;margin:2em;max-width:1500px}table{border-collapse:collapse;margin:.5em 0}\
td,th{border:1px solid #ccc;padding:2px 6px;text-align:left;vertical-align:top}th{background:#f2f2f2}\
tr.control td{color:#555;font-size:12px}svg{margin:4px;background:#fff}svg text{font:10px sans-serif}svg text.title{font:bold 11px sans-serif}\
.frame{fill:none;stroke:#888}.chance{stroke:#bbb;stroke-dasharray:3}.curve{fill:none;stroke-width:1.6}\
.benign{fill:#0072b2}.poison{fill:#d55e00}.threshold{stroke:#000;stroke-dasharray:2}.no{color:#b00}";

/// Defenses whose curves and distributions are drawn.
const DRAWN: [&str; 7] =
    ["memsad-combined", "memsad-max", "memsad-plus", "perplexity", "outlier", "screen", "hardened-provenance"];

/// The page.
#[must_use]
pub fn page(report: &Report) -> String {
    let mut out = format!(
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>memsluice evaluate: {0}</title><style>{STYLE}</style>\
         </head><body><h1>memsluice evaluate: {0}</h1><p>seed {1}, k {2}, {3} resamples, encoder <code>{4}</code></p>",
        escaped(&report.preset),
        report.seed,
        report.k,
        report.resamples,
        escaped(&report.encoder)
    );
    for s in &report.skipped {
        let _ = write!(out, "<p class='no'>skipped: {}</p>", escaped(s));
    }
    if !report.corpora.is_empty() {
        out.push_str(
            "<table><tr><th>boundary</th><th>fit</th><th>calibrate</th><th>test</th><th>queries in H</th></tr>",
        );
        for c in &report.corpora {
            let [fit, calibrate, test] = c.parts;
            let _ = write!(
                out,
                "<tr><td>{}</td><td>{fit}</td><td>{calibrate}</td><td>{test}</td><td>{}</td></tr>",
                escaped(&c.boundary),
                c.history
            );
        }
        out.push_str("</table>");
    }
    rows(&report.rows, &mut out);
    cells(&report.cells, &mut out);
    out.push_str("</body></html>\n");
    out
}

fn rows(all: &[Row], out: &mut String) {
    let mut section = "";
    for row in all {
        if row.section != section {
            if !section.is_empty() {
                out.push_str("</table>");
            }
            section = &row.section;
            let _ = write!(
                out,
                "<h2>{}</h2><table><tr><th>what</th><th>measured</th><th>published</th><th>re-measured</th><th>agrees</th>\
                 <th>note</th></tr>",
                escaped(section)
            );
        }
        let value = match (row.rate, row.range) {
            (Some(r), _) => rate(r),
            (None, Some([low, high])) => format!("{:.3} ({low:.3} to {high:.3})", row.value),
            (None, None) => format!("{:.4}", row.value),
        };
        let agrees = match row.agrees {
            None => "",
            Some(true) => "yes",
            Some(false) => "<span class='no'>no</span>",
        };
        let text = |t: &Option<String>| escaped(t.as_deref().unwrap_or("-"));
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{value}</td><td>{}</td><td>{}</td><td>{agrees}</td><td>{}</td></tr>",
            escaped(&row.name),
            text(&row.published),
            text(&row.remeasured),
            escaped(&row.note)
        );
    }
    if !section.is_empty() {
        out.push_str("</table>");
    }
}

fn cells(all: &[Cell], out: &mut String) {
    let mut groups: BTreeMap<(&str, &str), Vec<&Cell>> = BTreeMap::new();
    let mut order = Vec::new();
    for c in all {
        let key = (c.boundary.as_str(), c.attack.as_str());
        if !groups.contains_key(&key) {
            order.push(key);
        }
        groups.entry(key).or_default().push(c);
    }
    for key in order {
        let Some(group) = groups.get(&key) else { continue };
        attack(key, group, out);
    }
}

fn attack((boundary, name): (&str, &str), group: &[&Cell], out: &mut String) {
    let first = group[0];
    let _ = write!(
        out,
        "<h2>{} / {}</h2><p>{}, {} records, {} unique texts, {} templates; {} benign test texts, {} templates</p>",
        escaped(boundary),
        escaped(name),
        first.provenance.as_str(),
        first.records,
        first.tpr.n,
        first.templates,
        first.fpr.n,
        first.benign_templates
    );
    let drawn: Vec<&&Cell> = group.iter().filter(|c| DRAWN.contains(&c.defense.as_str())).collect();
    let series: Vec<(&str, &[[f64; 2]])> = drawn.iter().map(|c| (c.defense.as_str(), c.roc.as_slice())).collect();
    out.push_str(&roc("detections over false alarms", &series));
    for c in &drawn {
        out.push_str(&distribution(&format!("{}: benign up, poison down", c.defense), &c.histogram, c.threshold));
    }
    // Margins are in the units of a score, so only cosines share a plot.
    let cosine = |c: &&&Cell| c.defense.starts_with("memsad-m") || c.defense.starts_with("memsad-co");
    let bars: Vec<(String, f64)> =
        group.iter().filter(cosine).filter_map(|c| Some((c.defense.clone(), c.margin?))).collect();
    if !bars.is_empty() {
        out.push_str(&margins("separability margin, cosine: poison minimum - benign maximum", &bars));
    }
    out.push_str(
        "<table><tr><th>defense</th><th>TPR % [Clopper-Pearson]</th><th>TPR over templates</th><th>FPR %</th><th>FPR over \
         templates</th><th>AUROC [templates]</th><th>TPR at 1 % FPR</th><th>margin</th><th>ASR-R before</th><th>after</th>\
         <th>utility before</th><th>after</th><th>p Fisher</th><th>p McNemar</th><th>shuffled AUROC</th></tr>",
    );
    group.iter().for_each(|c| table_row(c, out));
    out.push_str("</table>");
}

fn table_row(c: &Cell, out: &mut String) {
    let p = |p: f64| format!("{:.1e}", bonferroni(p, c.tests));
    let columns = [
        escaped(&c.defense),
        rate(c.tpr),
        estimate(c.tpr_templates),
        rate(c.fpr),
        estimate(c.fpr_templates),
        estimate(c.auroc),
        format!("{} (benign {})", rate(c.tpr_at_one), rate(c.fpr_at_one)),
        number(c.margin),
        rate(c.asr_before),
        rate(c.asr_after),
        rate(c.utility_before),
        rate(c.utility_after),
        p(c.p_fisher),
        c.p_mcnemar.map_or("-".to_owned(), p),
        c.shuffled_auroc.map_or("-".to_owned(), |[m, sd]| format!("{m:.3} sd {sd:.3}")),
    ];
    let _ = write!(out, "<tr><td>{}</td></tr>", columns.join("</td><td>"));
    for control in &c.controls {
        let word = if control.truth == Truth::Benign { "false alarms" } else { "found" };
        let asr = |r: Option<crate::evaluate::stats::Rate>| r.map_or("-".to_owned(), rate);
        let _ = write!(
            out,
            "<tr class='control'><td>control: {}</td><td colspan='4'>{word} {}</td><td>{}</td><td></td><td></td><td>{}</td>\
             <td>{}</td><td colspan='5'></td></tr>",
            escaped(&control.name),
            rate(control.flagged),
            number(control.auroc),
            asr(control.asr_before),
            asr(control.asr_after)
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::evaluate::report::{page, tests::small};
    use crate::evaluate::work::Work;

    #[test]
    fn the_page_needs_nothing_else_and_escapes() {
        let page = page(&small(&Work::open(None).unwrap()));
        assert!(page.contains("<svg") && page.contains("polyline") && page.contains("control: random_trigger"));
        assert!(page.contains("name &lt;&amp;&gt;") && !page.contains("name <&>"));
        let outside = page.replace("http://www.w3.org/2000/svg", "");
        for word in ["http", "<script", "<link", "@import", "url("] {
            assert!(!outside.contains(word), "{word}");
        }
        assert_eq!(page.matches("<table").count(), page.matches("</table>").count());
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    }
}
