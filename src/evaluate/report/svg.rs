//! Plots as inline SVG. Numbers are rounded to two places, so that a page repeats.

use std::fmt::Write as _;

use crate::evaluate::Histogram;

/// Colours of series, in order; readable on white, also for red-green blindness.
pub(super) const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999"];

const SIZE: f64 = 190.0;

/// Text for XML.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Curves of several defenses.
pub(super) fn roc(title: &str, series: &[(&str, &[[f64; 2]])]) -> String {
    let mut out = open(SIZE + 30.0, SIZE + 46.0 + 13.0 * series.len() as f64, title);
    let (x, y) = (|v: f64| 24.0 + v * SIZE, |v: f64| 20.0 + (1.0 - v) * SIZE);
    let _ = write!(
        out,
        "<rect x='24' y='20' width='{SIZE}' height='{SIZE}' class='frame'/><line x1='{}' y1='{}' x2='{}' y2='{}' \
         class='chance'/>",
        x(0.0),
        y(0.0),
        x(1.0),
        y(1.0)
    );
    for (i, (name, curve)) in series.iter().enumerate() {
        let points: Vec<String> = curve.iter().map(|[f, t]| format!("{:.2},{:.2}", x(*f), y(*t))).collect();
        let colour = COLOURS[i % COLOURS.len()];
        let legend = SIZE + 40.0 + 13.0 * i as f64;
        let _ = write!(
            out,
            "<polyline points='{}' stroke='{colour}' class='curve'/><text x='36' y='{legend}'>{}</text><rect x='24' \
             y='{}' width='8' height='8' fill='{colour}'/>",
            points.join(" "),
            escaped(name),
            legend - 8.0
        );
    }
    out.push_str("</svg>");
    out
}

/// Benign scores upwards, poison downwards, threshold as a line.
pub(super) fn distribution(title: &str, h: &Histogram, threshold: Option<f64>) -> String {
    let (width, half) = (230.0, 52.0);
    let mut out = open(width + 20.0, 2.0 * half + 48.0, title);
    let middle = 20.0 + half;
    let bin = width / h.benign.len().max(1) as f64;
    for (bins, class, up) in [(&h.benign, "benign", true), (&h.poison, "poison", false)] {
        let most = f64::from(bins.iter().copied().max().unwrap_or(0).max(1));
        for (i, n) in bins.iter().enumerate().filter(|(_, n)| **n > 0) {
            let height = f64::from(*n) / most * half;
            let top = if up { middle - height } else { middle };
            let _ = write!(
                out,
                "<rect x='{:.2}' y='{top:.2}' width='{:.2}' height='{height:.2}' class='{class}'/>",
                10.0 + i as f64 * bin,
                bin - 1.0
            );
        }
    }
    if let Some(t) = threshold.filter(|t| h.high > h.low && (h.low..=h.high).contains(t)) {
        let at = 10.0 + (t - h.low) / (h.high - h.low) * width;
        let _ = write!(out, "<line x1='{at:.2}' y1='18' x2='{at:.2}' y2='{:.2}' class='threshold'/>", middle + half);
    }
    let _ = write!(
        out,
        "<text x='10' y='{0:.0}'>{1:.2}</text><text x='{2:.0}' y='{0:.0}' text-anchor='end'>{3:.2}</text></svg>",
        middle + half + 14.0,
        h.low,
        width + 10.0,
        h.high
    );
    out
}

/// Margins to the left and right of 0; each series has a scale of its own, since scores have.
pub(super) fn margins(title: &str, bars: &[(String, f64)]) -> String {
    let (label, half) = (190.0, 120.0);
    let mut out = open(label + 2.0 * half + 60.0, 26.0 + 15.0 * bars.len() as f64, title);
    let most = bars.iter().map(|(_, v)| v.abs()).fold(1e-9, f64::max);
    let zero = label + half;
    for (i, (name, value)) in bars.iter().enumerate() {
        let y = 22.0 + 15.0 * i as f64;
        let length = value.abs() / most * half;
        let (x, class) = if *value > 0.0 { (zero, "benign") } else { (zero - length, "poison") };
        let _ = write!(
            out,
            "<text x='{:.0}' y='{:.0}' text-anchor='end'>{}</text><rect x='{x:.2}' y='{y:.0}' width='{length:.2}' \
             height='11' class='{class}'/><text x='{:.0}' y='{:.0}'>{value:.3}</text>",
            label - 4.0,
            y + 9.0,
            escaped(name),
            zero + half + 6.0,
            y + 9.0
        );
    }
    let _ = write!(
        out,
        "<line x1='{zero}' y1='18' x2='{zero}' y2='{:.0}' class='threshold'/></svg>",
        24.0 + 15.0 * bars.len() as f64
    );
    out
}

fn open(width: f64, height: f64, title: &str) -> String {
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{width:.0}' height='{height:.0}' role='img'><title>{0}</title><text \
         x='10' y='13' class='title'>{0}</text>",
        escaped(title)
    )
}
