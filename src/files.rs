//! JSONL files as inputs: the same records as on the topics, with the coordinates they would have there.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::clock::{Millis, parse_rfc3339};
use crate::error::{Code, Error, Result};
use crate::pipeline::Registry;
use crate::schema::{Boundary, Honeypot, HoneypotSet};
use crate::source::{At, Fetched, partition_of};
use crate::topology::Role;

/// Longest line, bytes; longer ones are cut there and become dead letters.
const MAX_LINE: u64 = 64 << 20;

#[derive(Deserialize)]
struct Peek {
    tenant: String,
    store: String,
    created_at: Option<serde_json::Value>,
    at: Option<serde_json::Value>,
}

/// Reads one input from files, one record a line.
#[derive(Debug)]
pub struct Lines {
    role: Role,
    units: i32,
    files: Vec<PathBuf>,
    current: Option<BufReader<File>>,
    next_offsets: HashMap<i32, i64>,
    last_time: Millis,
    read_bytes: u64,
}

impl Lines {
    /// Over files in order.
    #[must_use]
    pub fn new(role: Role, units: i32, files: &[PathBuf]) -> Self {
        let files = files.iter().rev().cloned().collect();
        Self { role, units, files, current: None, next_offsets: HashMap::new(), last_time: 0, read_bytes: 0 }
    }

    /// Bytes read so far.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// The next record; `None` at the end. Blank lines are skipped.
    ///
    /// # Errors
    /// `file_unreadable`.
    pub fn next_record(&mut self) -> Result<Option<Fetched>> {
        loop {
            if self.current.is_none() {
                let Some(path) = self.files.pop() else {
                    return Ok(None);
                };
                self.current = Some(open(&path)?);
            }
            let Some(reader) = &mut self.current else {
                return Ok(None);
            };
            let mut line = Vec::new();
            let read = std::io::Read::take(&mut *reader, MAX_LINE).read_until(b'\n', &mut line);
            let n = read.map_err(|e| Error::with(Code::FileUnreadable, "a file can't be read on", e))?;
            if n == 0 {
                self.current = None;
                continue;
            }
            self.read_bytes += n as u64;
            while line.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
                line.pop();
            }
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            return Ok(Some(self.record(line)));
        }
    }

    fn record(&mut self, line: Vec<u8>) -> Fetched {
        let peek = serde_json::from_slice::<Peek>(&line).ok();
        let key = peek.as_ref().map(|p| format!("{}/{}", p.tenant, p.store).into_bytes());
        let partition = key.as_deref().map_or(0, |k| partition_of(k, self.units));
        let time = peek.and_then(|p| p.created_at.or(p.at));
        if let Some(time) = time.as_ref().and_then(serde_json::Value::as_str).and_then(parse_rfc3339) {
            self.last_time = time;
        }
        let offset = self.next_offsets.entry(partition).or_default();
        let at = At { generation: 0, role: self.role, partition, offset: *offset, timestamp: self.last_time };
        *offset += 1;
        Fetched { at, key, value: Some(line), headers: Vec::new() }
    }
}

fn open(path: &Path) -> Result<BufReader<File>> {
    File::open(path)
        .map(BufReader::new)
        .map_err(|e| Error::with(Code::FileUnreadable, format!("can't open {}", path.display()), e))
}

/// Bytes of all files together.
///
/// # Errors
/// `file_unreadable`.
pub fn total_bytes(files: &[PathBuf]) -> Result<u64> {
    let size = |p: &PathBuf| {
        std::fs::metadata(p)
            .map(|m| m.len())
            .map_err(|e| Error::with(Code::FileUnreadable, format!("can't read {}", p.display()), e))
    };
    files.iter().map(size).sum()
}

/// A JSONL file of honeypots as sets by boundary, version 1.
///
/// # Errors
/// `file_unreadable`, `honeypot_invalid`.
pub fn read_honeypots(file: &Path) -> Result<Vec<HoneypotSet>> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| Error::with(Code::FileUnreadable, format!("can't read {}", file.display()), e))?;
    let mut sets: BTreeMap<Boundary, Vec<Honeypot>> = BTreeMap::new();
    for (number, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        let at =
            |why: String| Error::new(Code::HoneypotInvalid, format!("{} line {}: {why}", file.display(), number + 1));
        let honeypot: Honeypot = serde_json::from_str(line).map_err(|e| at(format!("column {}", e.column())))?;
        let boundary = Boundary::new(&honeypot.tenant, &honeypot.store).map_err(|e| at(e.message().to_owned()))?;
        sets.entry(boundary).or_default().push(honeypot);
    }
    let sets: Vec<HoneypotSet> =
        sets.into_iter().map(|(b, honeypots)| HoneypotSet { scope: b.to_string(), version: 1, honeypots }).collect();
    let mut probe = Registry::default();
    sets.iter().cloned().try_for_each(|s| probe.add_honeypots(s))?;
    Ok(sets)
}
