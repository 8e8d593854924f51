//! `compare`: whether two dumps of decisions say the same.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::out::Out;

/// Differences that are shown.
const SHOWN: usize = 10;

/// Compare two dumps of `verify --dump`, record by record
///
/// Prints the number of differing lines and the first 10; exit 1 if there is any.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  load-tests compare run1.jsonl run2.jsonl")]
pub(crate) struct Args {
    /// First dump
    a: PathBuf,
    /// Second dump
    b: PathBuf,
}

/// What names a line. Lines of one name are compared in their order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Name {
    tenant: Option<String>,
    store: Option<String>,
    record_id: Option<String>,
}

/// Two lines that should be the same; one is missing where a dump has no such line.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Difference {
    pub(crate) a: Option<String>,
    pub(crate) b: Option<String>,
}

/// Result.
#[derive(Debug, Serialize)]
struct Report {
    a_lines: usize,
    b_lines: usize,
    differing: usize,
    first: Vec<Difference>,
}

/// Runs it.
pub(crate) fn run(args: &Args, out: &Out) -> Result<bool> {
    let (a, b) = (lines(&args.a)?, lines(&args.b)?);
    let mut first = differences(&a, &b)?;
    let differing = first.len();
    first.truncate(SHOWN);
    let report = Report { a_lines: a.len(), b_lines: b.len(), differing, first };
    out.result(&report, || text(&report))?;
    Ok(report.differing == 0)
}

/// The lines of a dump.
pub(crate) fn lines(path: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Every pair of lines that differs, by name.
pub(crate) fn differences(a: &[String], b: &[String]) -> Result<Vec<Difference>> {
    let (a, mut b) = (by_name(a)?, by_name(b)?);
    let mut found = BTreeMap::new();
    for (name, left) in a {
        let right = b.remove(&name).unwrap_or_default();
        found.insert(name, pairs(&left, &right));
    }
    for (name, right) in b {
        found.insert(name, pairs(&[], &right));
    }
    Ok(found.into_values().flatten().collect())
}

fn by_name(lines: &[String]) -> Result<BTreeMap<Name, Vec<&String>>> {
    let mut map: BTreeMap<Name, Vec<&String>> = BTreeMap::new();
    for (i, line) in lines.iter().enumerate() {
        let name = serde_json::from_str(line).map_err(|e| Error::json(format!("line {} is no decision", i + 1), e))?;
        map.entry(name).or_default().push(line);
    }
    Ok(map)
}

fn pairs(a: &[&String], b: &[&String]) -> Vec<Difference> {
    let at = |lines: &[&String], i: usize| lines.get(i).map(|l| (*l).clone());
    let all = (0..a.len().max(b.len())).map(|i| Difference { a: at(a, i), b: at(b, i) });
    all.filter(|d| d.a != d.b).collect()
}

fn text(report: &Report) -> String {
    let mut text = format!("{} lines differ ({} and {} lines)\n", report.differing, report.a_lines, report.b_lines);
    for Difference { a, b } in &report.first {
        let show = |line: &Option<String>| line.clone().unwrap_or_else(|| "(no such line)".to_owned());
        text.push_str(&format!("- {}\n+ {}\n", show(a), show(b)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(record: &str, verdict: &str) -> String {
        format!(r#"{{"tenant":"t","store":"s","record_id":"{record}","verdict":"{verdict}"}}"#)
    }

    #[test]
    fn equal_dumps_in_any_order_of_names() {
        let (a, b) = ([line("1", "allow"), line("2", "block")], [line("2", "block"), line("1", "allow")]);
        assert_eq!(differences(&a, &b).unwrap(), []);
    }

    #[test]
    fn a_missing_line_is_one_difference_not_all_that_follow() {
        let all: Vec<String> = (0..9).map(|i| line(&i.to_string(), "allow")).collect();
        let found = differences(&all, &all[1..]).unwrap();
        assert_eq!(found, [Difference { a: Some(all[0].clone()), b: None }]);
    }

    #[test]
    fn versions_of_one_record_are_compared_in_order() {
        let (a, b) =
            ([line("1", "allow"), line("1", "block")], [line("1", "block"), line("1", "allow"), line("1", "allow")]);
        assert_eq!(differences(&a, &b).unwrap().len(), 3);
    }

    #[test]
    fn a_line_that_is_no_json_is_an_error() {
        assert!(differences(&["x".to_owned()], &[]).is_err());
    }
}
