//! The one place that writes to stdout (results) and stderr (progress, notes).

use std::io::Write as _;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::error::{Error, Result};

/// Time between two progress lines.
const EVERY: Duration = Duration::from_secs(2);

/// Writes results as text or JSON.
#[derive(Debug)]
pub(crate) struct Out {
    json: bool,
}

impl Out {
    /// JSON or text.
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// One result: the value as JSON, or the text.
    pub(crate) fn result<T: Serialize>(&self, value: &T, text: impl FnOnce() -> String) -> Result<()> {
        let line = if self.json {
            serde_json::to_string(value).map_err(|e| Error::json("the result can't be written", e))?
        } else {
            text()
        };
        writeln!(std::io::stdout().lock(), "{}", line.trim_end())
            .map_err(|source| Error::Io { what: "can't write to stdout".to_owned(), source })
    }

    /// A line on stderr; a closed stderr is no reason to stop.
    pub(crate) fn note(&self, text: &str) {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    /// Counts something that takes long.
    pub(crate) fn progress(&self, what: &str, of: Option<u64>) -> Progress {
        Progress { what: what.to_owned(), of, count: 0, started: Instant::now(), last: Instant::now() }
    }
}

/// A count that shows itself on stderr now and then.
#[derive(Debug)]
pub(crate) struct Progress {
    what: String,
    of: Option<u64>,
    count: u64,
    started: Instant,
    last: Instant,
}

impl Progress {
    /// One more.
    pub(crate) fn step(&mut self) {
        self.count += 1;
        // The clock is read for some steps only: it would cost more than the step.
        if self.count.is_multiple_of(256) && self.last.elapsed() >= EVERY {
            self.last = Instant::now();
            let of = self.of.map(|n| format!(" of {n}")).unwrap_or_default();
            let rate = rate(self.count, self.started.elapsed());
            let _ = writeln!(std::io::stderr().lock(), "{}: {}{of}, {rate:.0}/s", self.what, self.count);
        }
    }
}

/// Events per second; 0 when no time has passed.
#[allow(clippy::cast_precision_loss)] // counts stay far below 2^53
pub(crate) fn rate(count: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// The middle value (mean of the two middle ones); `None` without values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let high = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 { Some(high) } else { Some((sorted[middle - 1] + high) / 2.0) }
}

/// Rows under a header, columns padded to their widest cell.
pub(crate) fn columns(header: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = header.iter().map(|h| (*h).to_owned()).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&head).chain(rows).collect();
    let widths: Vec<usize> = (0..header.len())
        .map(|i| all.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count()).max().unwrap_or(0))
        .collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    all.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn columns_line_up() {
        let text = columns(&["a", "long"], &[vec!["xyz".into(), "1".into()]]);
        assert_eq!(text, "a    long\nxyz  1");
    }
}
