//! The fold of the committed changelog, beside what the inputs say and what members hold on disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rocksdb::{DB, IteratorMode, Options};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::verify::model::Unit;
use crate::verify::postcard::Value;
use crate::verify::session::{Session, Test};
use crate::verify::window::Asked;

/// Kinds of state keys (docs/records.md).
const OFFSETS: u8 = 2;
const CHAIN: u8 = 3;
const TIME: u8 = 4;
const SESSION: u8 = 6;
const ACTIVE: u8 = 8;
const QUERY: u8 = 15;
const WINDOW: u8 = 16;

/// Keys and values of one partition unit.
pub(crate) type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a member holds of one unit, as of a changelog offset.
#[derive(Debug)]
pub(crate) struct Local {
    folder: PathBuf,
    next: i64,
    pairs: Pairs,
}

/// Units of a member's local state, by partition.
pub(crate) fn locals(folder: &Path) -> Result<BTreeMap<i32, Local>> {
    let path = folder.join("rocksdb");
    if !path.exists() {
        // The member was killed before it had anything.
        return Ok(BTreeMap::new());
    }
    let failed = |e: rocksdb::Error| Error::Input(format!("can't read the state in {}: {e}", path.display()));
    let db = DB::open_for_read_only(&Options::default(), &path, false).map_err(failed)?;
    let mut units: BTreeMap<i32, Local> = BTreeMap::new();
    for item in db.iterator(IteratorMode::Start) {
        let (key, value) = item.map_err(failed)?;
        let Some((kind, partition)) = head(&key).filter(|(kind, _)| *kind >= OFFSETS) else { continue };
        let unit = units.entry(partition).or_insert_with(|| Local {
            folder: folder.to_owned(),
            next: -1,
            pairs: Pairs::new(),
        });
        if kind == OFFSETS {
            unit.next = Value::new(&value).and_then(|mut v| v.signed()).unwrap_or(-1);
        } else {
            unit.pairs.insert(key.into_vec(), value.into_vec());
        }
    }
    Ok(units)
}

fn head(key: &[u8]) -> Option<(u8, i32)> {
    let (kind, rest) = key.split_first()?;
    Some((*kind, i32::from_be_bytes(*rest.first_chunk()?)))
}

/// The fold of one changelog partition, compared with members on its way.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    pub(crate) pairs: Pairs,
    /// By falling offset.
    waiting: Vec<Local>,
    /// What disagrees.
    pub(crate) findings: Vec<String>,
    /// Members' units that were compared.
    pub(crate) compared: u64,
}

impl Fold {
    /// With the states to compare.
    pub(crate) fn new(mut waiting: Vec<Local>) -> Self {
        waiting.sort_by_key(|l| std::cmp::Reverse(l.next));
        Self { waiting, ..Self::default() }
    }

    /// Takes a committed record.
    pub(crate) fn take(&mut self, partition: i32, offset: i64, key: &[u8], value: Option<&[u8]>) {
        self.compare_up_to(offset);
        if head(key).is_none_or(|(_, p)| p != partition) {
            self.findings.push(format!("changelog {partition}-{offset} has a key of another unit"));
        }
        match value {
            Some(value) => self.pairs.insert(key.to_vec(), value.to_vec()),
            None => self.pairs.remove(key),
        };
    }

    /// After the last record; `end` is the next offset of the log.
    pub(crate) fn finish(&mut self, end: i64) {
        for local in self.waiting.iter().filter(|l| l.next > end) {
            self.findings.push(format!("{} is at {}, the changelog ends at {end}", local.folder.display(), local.next));
        }
        self.compare_up_to(end);
    }

    fn compare_up_to(&mut self, offset: i64) {
        while let Some(local) = self.waiting.pop_if(|l| l.next <= offset) {
            self.compared += 1;
            let lacks = self.pairs.iter().filter(|(k, v)| local.pairs.get(*k) != Some(*v));
            let extra = local.pairs.keys().filter(|k| !self.pairs.contains_key(*k));
            let found: Vec<&Vec<u8>> = lacks.map(|(k, _)| k).chain(extra).collect();
            if let Some(first) = found.first() {
                let (folder, at, count) = (local.folder.display(), local.next, found.len());
                self.findings.push(format!("{folder} at {at}: {count} keys are not the fold, as {}", shown(first)));
            }
        }
    }
}

/// What is known of a unit besides its inputs.
#[derive(Debug)]
pub(crate) struct Known<'a> {
    pub(crate) partition: i32,
    pub(crate) unit: &'a Unit,
    /// Number of the next decision and hash of the last.
    pub(crate) chain: (u64, [u8; 32]),
    /// Honeypot versions that must be in force.
    pub(crate) active: BTreeMap<String, u64>,
}

impl Known<'_> {
    /// What of a fold is not what the inputs say.
    pub(crate) fn differs(&self, pairs: &Pairs) -> Vec<String> {
        let mut rest: BTreeMap<&Vec<u8>, &Vec<u8>> =
            pairs.iter().filter(|(k, _)| matches!(k[0], CHAIN | TIME | QUERY | WINDOW | SESSION | ACTIVE)).collect();
        let mut findings = Vec::new();
        let mut hold = |key: Vec<u8>, what: &dyn Fn(&[u8]) -> bool, needed: bool| {
            let ok = match rest.remove(&key) {
                Some(value) => what(value),
                None => !needed,
            };
            if !ok {
                findings.push(format!("{} is not what the inputs say", shown(&key)));
            }
        };
        let (next, hash) = self.chain;
        hold(self.key(CHAIN, &[], None), &|v| chain(v) == Some((next, hash)), next > 0);
        for (boundary, time) in &self.unit.times {
            hold(self.key(TIME, &[boundary], None), &|v| signed(v) == Some(*time), true);
        }
        for (boundary, windows) in &self.unit.windows {
            for q in windows.held() {
                hold(self.key(QUERY, &[boundary], Some(q.number)), &|v| query(v, q) == Some(true), true);
            }
            hold(self.key(WINDOW, &[boundary], None), &|v| mark(v) == Some(windows.mark), true);
        }
        for ((boundary, session), expected) in &self.unit.sessions {
            let key = self.key(SESSION, &[boundary, session], None);
            // A session that is over may have been deleted.
            let now = self.unit.times.get(boundary).copied().unwrap_or(i64::MIN);
            let needed = now <= expected.last.saturating_add(Test::SAMPLE.idle_ms);
            hold(key, &|v| Session::read(v).as_ref() == Some(expected), needed);
        }
        for (what, version) in &self.active {
            hold(self.key(ACTIVE, &[what], None), &|v| unsigned(v) == Some(*version), true);
        }
        findings.extend(rest.keys().map(|key| format!("{} should not be there", shown(key))));
        findings
    }

    fn key(&self, kind: u8, parts: &[&str], number: Option<u64>) -> Vec<u8> {
        let mut key = vec![kind];
        key.extend(self.partition.to_be_bytes());
        for part in parts {
            key.extend(part.as_bytes());
            key.push(0);
        }
        key.extend(number.into_iter().flat_map(u64::to_be_bytes));
        key
    }
}

fn unsigned(value: &[u8]) -> Option<u64> {
    Value::new(value)?.unsigned()
}

fn signed(value: &[u8]) -> Option<i64> {
    Value::new(value)?.signed()
}

fn chain(value: &[u8]) -> Option<(u64, [u8; 32])> {
    let mut v = Value::new(value)?;
    Some((v.unsigned()?, v.raw(32)?.try_into().ok()?))
}

/// Whether a value is that query: stream time, tags of who asked, vector.
fn query(value: &[u8], q: &Asked) -> Option<bool> {
    let mut v = Value::new(value)?;
    let mut same = v.signed()? == q.at;
    for name in [&q.who.principal, &q.who.session, &q.who.output] {
        same &= match (v.unsigned()?, name) {
            (0, None) => true,
            (1, Some(name)) => v.raw(16)? == &Sha256::digest(name.as_bytes())[..16],
            _ => return Some(false),
        };
    }
    let bytes = v.bytes()?;
    let stored: Vec<i16> = bytes.chunks_exact(2).map(|c| i16::from_le_bytes([c[0], c[1]])).collect();
    Some(same && stored[..] == q.vector[..] && v.is_empty())
}

/// Number of the next query, and of the first that waits. The number of the next accepted write isn't derived.
fn mark(value: &[u8]) -> Option<(u64, u64)> {
    let mut v = Value::new(value)?;
    Some((v.unsigned()?, v.unsigned()?))
}

/// A key for people.
fn shown(key: &[u8]) -> String {
    let kind = match key.first() {
        Some(&CHAIN) => "chain",
        Some(&TIME) => "stream time",
        Some(&QUERY) => "query",
        Some(&WINDOW) => "query window",
        Some(&SESSION) => "session",
        Some(&ACTIVE) => "version in force",
        _ => "key",
    };
    let partition = head(key).map_or(-1, |(_, p)| p);
    let rest = key.get(5..).unwrap_or_default().escape_ascii();
    format!("{kind} of unit {partition} '{rest}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(value: u8) -> Pairs {
        Pairs::from([(vec![TIME, 0, 0, 0, 0, b'b', 0], vec![1, value])])
    }

    fn local(next: i64, value: u8) -> Local {
        Local { folder: "m".into(), next, pairs: pairs(value) }
    }

    #[test]
    fn members_are_compared_as_of_their_own_offset() {
        let mut fold = Fold::new(vec![local(10, 4), local(5, 2), local(7, 2)]);
        let (key, _) = pairs(0).pop_first().unwrap();
        fold.take(0, 4, &key, Some(&[1, 2]));
        fold.take(0, 8, &key, Some(&[1, 4]));
        fold.finish(12);
        assert_eq!((fold.compared, fold.findings.len()), (3, 0), "{:?}", fold.findings);
    }

    #[test]
    fn a_member_that_holds_something_else_or_is_ahead() {
        let mut fold = Fold::new(vec![local(5, 9), local(99, 4)]);
        let (key, _) = pairs(0).pop_first().unwrap();
        fold.take(0, 4, &key, Some(&[1, 2]));
        fold.take(1, 8, &key, Some(&[1, 4]));
        fold.finish(12);
        assert_eq!((fold.compared, fold.findings.len()), (1, 3), "{:?}", fold.findings);
    }

    #[test]
    fn a_fold_beside_the_inputs() {
        let mut unit = Unit::default();
        unit.times.insert("b".into(), 1);
        let known = |chain| Known { partition: 0, unit: &unit, chain, active: BTreeMap::new() };
        assert_eq!(known((0, [0; 32])).differs(&pairs(2)).len(), 0);
        assert_eq!(known((0, [0; 32])).differs(&pairs(4)).len(), 1);
        assert_eq!(known((1, [0; 32])).differs(&pairs(2)).len(), 1);
        let mut more = pairs(2);
        more.insert(vec![ACTIVE, 0, 0, 0, 0, b'x', 0], vec![1, 1]);
        assert_eq!(known((0, [0; 32])).differs(&more).len(), 1);
    }
}
