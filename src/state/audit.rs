//! I3 checked from outside: the local store of a unit equals the fold of the committed changelog up to the
//! offset that the store records. The fold goes to a throw-away RocksDB, so memory stays bounded.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::ops::ControlFlow;
use std::path::Path;

use rdkafka::Message as _;
use rocksdb::{DB, Options, WriteBatch};
use serde::Serialize;

use super::keys::{Kind, prefix};
use super::restore::change;
use super::view::{Pair, Scratch, View, pairs};
use crate::error::{Code, Error, Result};
use crate::source::{Bounds, Spans, read};

/// Changelog records in one write of the fold.
const CHUNK: usize = 2000;
/// In front of what is folded.
const FOLDED: u8 = 0;
/// In front of keys that change behind the end of the fold.
const LATER: u8 = 1;

/// How a key differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// The changelog has it, the store hasn't.
    MissingInStore,
    /// The store has it, the changelog hasn't.
    MissingInChangelog,
    /// Both have it, with different values.
    ValueDiffers,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// State key.
    pub key: Vec<u8>,
    /// How it differs.
    pub what: What,
}

/// What was found of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnitAudit {
    /// Unit.
    pub unit: i32,
    /// Changelog offset that the store records.
    pub changelog: i64,
    /// The committed log: start and end.
    pub log: (i64, i64),
    /// Changelog records read.
    pub records: u64,
    /// Keys compared.
    pub keys: u64,
    /// Keys that differ.
    pub differences: u64,
    /// Keys that change behind the store's offset, whose older value the log may have compacted away.
    pub undecided: u64,
    /// The store is below the log's start: it can't be compared, and a start rebuilds it.
    pub below_log: bool,
}

/// A changelog partition folded into a database of its own.
pub struct Fold {
    db: DB,
    _scratch: Scratch,
}

impl std::fmt::Debug for Fold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fold").finish_non_exhaustive()
    }
}

fn failed(e: rocksdb::Error) -> Error {
    Error::with(Code::StateFailed, "the fold can't be written", e)
}

impl Fold {
    /// An empty one, in a scratch folder below `folder`.
    ///
    /// # Errors
    /// `state_failed`.
    pub fn new(folder: &Path) -> Result<Self> {
        let scratch = Scratch::new(folder)?;
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_write_buffer_size(32 << 20);
        let db = DB::open(&options, scratch.0.join("fold")).map_err(failed)?;
        Ok(Self { db, _scratch: scratch })
    }

    /// Folds a partition of the changelog: what stands below `upto` counts; of what follows, only the keys are
    /// noted. Returns the records read.
    ///
    /// # Errors
    /// `broker_unreachable`, `restore_stalled`, `state_failed`, `state_format` for a key of no unit.
    pub fn read(
        &self,
        spans: &Spans,
        topic: &str,
        unit: i32,
        log: Bounds,
        upto: i64,
        mut progress: impl FnMut(u64),
    ) -> Result<u64> {
        if log.low >= log.high {
            return Ok(0);
        }
        let (mut batch, mut count) = (WriteBatch::default(), 0_u64);
        read(spans.committed(), topic, unit, log.low, |m| {
            let Some(m) = m else { return Ok(ControlFlow::Continue(())) };
            match (change(m, unit)?, m.offset() >= upto) {
                ((key, _), true) => batch.put(tagged(LATER, &key), []),
                ((key, Some(value)), false) => batch.put(tagged(FOLDED, &key), value),
                ((key, None), false) => batch.delete(tagged(FOLDED, &key)),
            }
            count += 1;
            if batch.len() >= CHUNK {
                progress(count);
                self.db.write(std::mem::take(&mut batch)).map_err(failed)?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        self.db.write(batch).map_err(failed)?;
        progress(count);
        Ok(count)
    }

    /// Value of a key.
    ///
    /// # Errors
    /// `state_failed`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.db.get(tagged(FOLDED, key)).map_err(failed)
    }

    /// Every key that has a value, in order.
    ///
    /// # Errors
    /// `state_failed`, and what `each` returns.
    pub fn keys(&self, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        pairs(&self.db, vec![FOLDED]).try_for_each(|pair| pair.and_then(|(key, _)| each(&key[1..])))
    }

    fn folded(&self, prefix: &[u8]) -> impl Iterator<Item = Result<Pair>> + use<'_> {
        pairs(&self.db, tagged(FOLDED, prefix)).map(|pair| pair.map(|(k, v)| (k[1..].into(), v)))
    }

    fn changes_later(&self, key: &[u8]) -> Result<bool> {
        Ok(self.db.get(tagged(LATER, key)).map_err(failed)?.is_some())
    }
}

fn tagged(tag: u8, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + 1);
    out.push(tag);
    out.extend_from_slice(key);
    out
}

/// Compares a unit's store with the fold of its changelog; `None` when the store has nothing of the unit.
///
/// # Errors
/// `broker_unreachable`, `restore_stalled`, `state_failed`, `state_format`; `topic_recreated` when the store is ahead
/// of the log.
pub fn audit(
    view: &View,
    spans: &Spans,
    topic: &str,
    unit: i32,
    folder: &Path,
    progress: impl FnMut(u64),
    mut each: impl FnMut(Mismatch) -> Result<()>,
) -> Result<Option<UnitAudit>> {
    let Some(stored) = view.positions(unit)? else { return Ok(None) };
    let log = spans.bounds(topic, unit)?;
    let mut found = UnitAudit {
        unit,
        changelog: stored.changelog,
        log: (log.low, log.high),
        records: 0,
        keys: 0,
        differences: 0,
        undecided: 0,
        below_log: stored.changelog < log.low,
    };
    if stored.changelog > log.high {
        let what =
            format!("{topic}-{unit} ends at {}, the state is at {}: it is ahead (I2)", log.high, stored.changelog);
        return Err(Error::new(Code::TopicRecreated, what));
    }
    if found.below_log {
        return Ok(Some(found));
    }
    let fold = Fold::new(folder)?;
    found.records = fold.read(spans, topic, unit, log, stored.changelog, progress)?;
    for kind in Kind::LOGGED {
        let prefix = prefix(kind, unit);
        let (mut store, mut log) = (view.pairs(&prefix).peekable(), fold.folded(&prefix).peekable());
        while let Some((key, what)) = next(&mut store, &mut log)? {
            found.keys += 1;
            match what {
                None => {}
                Some(What::MissingInChangelog) if fold.changes_later(&key)? => found.undecided += 1,
                Some(what) => {
                    found.differences += 1;
                    each(Mismatch { key: key.into_vec(), what })?;
                }
            }
        }
    }
    Ok(Some(found))
}

type Pairs<I> = Peekable<I>;
/// A key, and how its two sides differ.
type Compared = (Box<[u8]>, Option<What>);

/// The next key of either side, and how it differs.
fn next(
    store: &mut Pairs<impl Iterator<Item = Result<Pair>>>,
    log: &mut Pairs<impl Iterator<Item = Result<Pair>>>,
) -> Result<Option<Compared>> {
    let side = match (store.peek(), log.peek()) {
        (None, None) => return Ok(None),
        (Some(Ok((a, _))), Some(Ok((b, _)))) => a.cmp(b),
        (Some(Err(_)), _) | (Some(_), None) => Ordering::Less,
        (_, Some(Err(_))) | (None, Some(_)) => Ordering::Greater,
    };
    let stored = if side == Ordering::Greater { None } else { store.next().transpose()? };
    let logged = if side == Ordering::Less { None } else { log.next().transpose()? };
    Ok(match (stored, logged) {
        (Some((key, a)), Some((_, b))) => Some((key, (a != b).then_some(What::ValueDiffers))),
        (Some((key, _)), None) => Some((key, Some(What::MissingInChangelog))),
        (None, Some((key, _))) => Some((key, Some(What::MissingInStore))),
        (None, None) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Map = BTreeMap<u8, u8>;

    fn sides(map: &Map) -> Pairs<impl Iterator<Item = Result<Pair>>> {
        map.iter().map(|(k, v)| Ok(([*k].into(), [*v].into()))).collect::<Vec<_>>().into_iter().peekable()
    }

    proptest! {
        /// The merge names exactly the keys on which two maps disagree, each once.
        #[test]
        fn merge_finds_each_difference(a in prop::collection::btree_map(0_u8..12, 0_u8..3, 0..12),
                                       b in prop::collection::btree_map(0_u8..12, 0_u8..3, 0..12)) {
            let (mut store, mut log) = (sides(&a), sides(&b));
            let mut found = BTreeMap::new();
            while let Some((key, what)) = next(&mut store, &mut log).unwrap() {
                prop_assert!(found.insert(key[0], what).is_none());
            }
            for key in 0..12 {
                let expected = match (a.get(&key), b.get(&key)) {
                    (None, None) => { prop_assert!(!found.contains_key(&key)); continue }
                    (Some(x), Some(y)) => (x != y).then_some(What::ValueDiffers),
                    (Some(_), None) => Some(What::MissingInChangelog),
                    (None, Some(_)) => Some(What::MissingInStore),
                };
                prop_assert_eq!(found[&key], expected);
            }
        }
    }
}
