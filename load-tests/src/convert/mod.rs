//! `convert`: public test data to the two input records.

mod table;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::convert::table::{Converted, Place, Row, convert, store_of};
use crate::error::{Error, Result};
use crate::kafka::pair;
use crate::out::{Out, columns};

/// Turn the public test data into memory-writes and retrieval-logs
///
/// Reads benign/, poison/ and extraction/ of the data folder. Tenant is "data", the store is the file's
/// name, times are the row's `ts` or 1 s x line from 2026-01-01. Origins: src/convert/table.rs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  load-tests convert --data ../shared/data --out /tmp/converted\n  \
    load-tests convert --out /tmp/one-store --store '*=all'")]
pub(crate) struct Args {
    /// Folder with benign/, poison/, extraction/
    #[arg(long, default_value = "../shared/data")]
    data: PathBuf,
    /// Folder for writes-<file>.jsonl and queries-<file>.jsonl
    #[arg(long)]
    out: PathBuf,
    /// Another store for a file (`*` for all), so that queries and writes meet; may be repeated
    #[arg(long = "store", value_name = "FILE=STORE", value_parser = pair)]
    stores: Vec<(String, String)>,
}

/// What became of one file.
#[derive(Debug, Default, Serialize)]
struct Report {
    file: String,
    rows: u64,
    converted: u64,
    skipped: BTreeMap<String, u64>,
}

/// Files of output, made on their first line.
struct Sinks<'a> {
    folder: &'a Path,
    stem: &'a str,
    writes: Option<BufWriter<File>>,
    queries: Option<BufWriter<File>>,
}

/// Runs it.
pub(crate) fn run(args: &Args, out: &Out) -> Result<bool> {
    fs::create_dir_all(&args.out).map_err(|e| Error::io("make", &args.out, e))?;
    let mut reports = Vec::new();
    for folder in ["benign", "poison", "extraction"] {
        for file in files(&args.data.join(folder))? {
            out.note(&format!("converting {}", file.display()));
            reports.push(one(&file, folder, args)?);
        }
    }
    out.result(&reports, || text(&reports))?;
    Ok(true)
}

/// The JSON Lines files of a folder by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| Error::io("read", folder, e))? {
        let path = entry.map_err(|e| Error::io("read", folder, e))?.path();
        if path.extension().is_some_and(|e| e == "jsonl") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn one(path: &Path, folder: &str, args: &Args) -> Result<Report> {
    let stem = path
        .file_stem()
        .and_then(|s| s.to_str())
        .ok_or_else(|| Error::Input(format!("{} has no name", path.display())))?;
    let mapped = args.stores.iter().find(|(file, _)| file == stem || file == "*").map(|(_, store)| store.as_str());
    let store = store_of(mapped.unwrap_or(stem));
    let mut report = Report { file: format!("{folder}/{stem}"), ..Report::default() };
    let mut sinks = Sinks { folder: &args.out, stem, writes: None, queries: None };
    let input = BufReader::new(File::open(path).map_err(|e| Error::io("open", path, e))?);
    for line in input.lines() {
        let line = line.map_err(|e| Error::io("read", path, e))?;
        report.rows += 1;
        let place = Place { stem, store: &store, line: report.rows };
        let converted = match serde_json::from_str::<Row>(&line) {
            Ok(row) => convert(place, row),
            Err(_) => Converted::Skipped("not a row"),
        };
        sinks.put(converted, &mut report)?;
    }
    sinks.finish()?;
    Ok(report)
}

impl Sinks<'_> {
    fn put(&mut self, converted: Converted, report: &mut Report) -> Result<()> {
        match converted {
            Converted::Skipped(why) => {
                *report.skipped.entry(why.to_owned()).or_default() += 1;
                return Ok(());
            }
            Converted::Write(write) => {
                append(&mut self.writes, &self.folder.join(format!("writes-{}.jsonl", self.stem)), &write)?
            }
            Converted::Query(query) => {
                append(&mut self.queries, &self.folder.join(format!("queries-{}.jsonl", self.stem)), &query)?
            }
        }
        report.converted += 1;
        Ok(())
    }

    fn finish(self) -> Result<()> {
        for mut sink in [self.writes, self.queries].into_iter().flatten() {
            sink.flush().map_err(|e| Error::io("write to", self.folder, e))?;
        }
        Ok(())
    }
}

/// Appends one JSON line, making the file if it isn't open.
fn append<T: Serialize>(sink: &mut Option<BufWriter<File>>, path: &Path, value: &T) -> Result<()> {
    let writer = match sink {
        Some(writer) => writer,
        None => sink.insert(BufWriter::new(File::create(path).map_err(|e| Error::io("make", path, e))?)),
    };
    serde_json::to_writer(&mut *writer, value)
        .map_err(|e| Error::json(format!("can't write to {}", path.display()), e))?;
    writer.write_all(b"\n").map_err(|e| Error::io("write to", path, e))
}

fn text(reports: &[Report]) -> String {
    let row = |r: &Report| {
        let skipped: Vec<String> = r.skipped.iter().map(|(why, n)| format!("{n} ({why})")).collect();
        let skipped = if skipped.is_empty() { "0".to_owned() } else { skipped.join(", ") };
        vec![r.file.clone(), r.rows.to_string(), r.converted.to_string(), skipped]
    };
    let mut rows: Vec<Vec<String>> = reports.iter().map(row).collect();
    let sum = |f: fn(&Report) -> u64| reports.iter().map(f).sum::<u64>().to_string();
    rows.push(vec!["total".into(), sum(|r| r.rows), sum(|r| r.converted), sum(|r| r.skipped.values().sum())]);
    columns(&["file", "rows", "converted", "skipped"], &rows)
}
