//! Reads the Prometheus endpoint of a member.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, Result};

const PATIENCE: Duration = Duration::from_secs(10);

/// What a histogram says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) count: u64,
    pub(crate) mean: f64,
    /// Interpolated within its bucket.
    pub(crate) median: f64,
}

/// The page at `http://ADDRESS/metrics`.
pub(crate) fn page(address: &str) -> Result<String> {
    let failed = |source| Error::Io { what: format!("can't read http://{address}/metrics"), source };
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// A histogram without labels of its own; `None` when it is not on the page or empty.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // counts
pub(crate) fn histogram(page: &str, name: &str) -> Option<Spread> {
    let value = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
    let of = |suffix: &str| page.lines().find(|l| l.starts_with(&format!("{name}_{suffix}"))).and_then(value);
    let (count, sum) = (of("count")?, of("sum")?);
    let mut below = (0.0, 0.0);
    let mut median = None;
    for line in page.lines().filter(|l| l.starts_with(&format!("{name}_bucket"))) {
        let bound = line.split("le=\"").nth(1)?.split('"').next()?;
        let upper = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
        let reached = value(line)?;
        if reached >= count / 2.0 && median.is_none() {
            let share = (count / 2.0 - below.1) / (reached - below.1).max(1.0);
            median = Some(if upper.is_finite() { below.0 + (upper - below.0) * share } else { below.0 });
        }
        below = (upper, reached);
    }
    (count > 0.0).then_some(Spread { count: count as u64, mean: sum / count, median: median? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram() {
        let page = "# TYPE x histogram\nx_bucket{le=\"0.01\"} 2\nx_bucket{le=\"0.02\"} 6\nx_bucket{le=\"+Inf\"} 8\nx_sum 0.16\nx_count 8\n";
        let found = histogram(page, "x").unwrap();
        assert_eq!((found.count, found.mean), (8, 0.02));
        assert!((found.median - 0.015).abs() < 1e-9);
        assert_eq!(histogram(page, "y"), None);
    }
}
