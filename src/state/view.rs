//! The local database from outside: a RocksDB secondary instance, which takes no lock and writes nothing to
//! the database, so that it works beside a running stream.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rocksdb::{DB, Direction, IteratorMode, Options};

use super::Positions;
use super::keys::{Kind, key};
use crate::error::{Code, Error, Result};

/// A scratch folder beside the database, removed at the end.
#[derive(Debug)]
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    /// Makes one; its name is of this process.
    ///
    /// # Errors
    /// `state_failed`.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        sweep(folder);
        let name = format!("scratch-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = folder.join(name);
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder
            .create(&path)
            .map_err(|e| Error::with(Code::StateFailed, format!("can't make {}", path.display()), e))?;
        Ok(Self(path))
    }
}

/// Removes what processes that were killed have left.
fn sweep(folder: &Path) {
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.file_name());
    for name in names.filter_map(|n| n.into_string().ok()) {
        let pid = name.strip_prefix("scratch-").and_then(|rest| rest.split_once('-')).map(|(pid, _)| pid);
        let gone = |pid: &str| pid.parse::<u32>().is_ok_and(|p| !Path::new("/proc").join(p.to_string()).exists());
        if pid.is_some_and(gone) {
            drop(std::fs::remove_dir_all(folder.join(name)));
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, folder = %self.0.display(), "a scratch folder stays");
        }
    }
}

/// A consistent view of a state folder as of its opening.
pub struct View {
    db: DB,
    _scratch: Scratch,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

fn failed(e: rocksdb::Error) -> Error {
    Error::with(Code::StateFailed, "the state can't be read", e)
}

impl View {
    /// Opens the database of a state folder.
    ///
    /// # Errors
    /// `state_failed` when there is none, or it can't be read.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join("rocksdb");
        if !path.join("CURRENT").is_file() {
            return Err(Error::new(Code::StateFailed, format!("there is no state in {}", folder.display())));
        }
        let scratch = Scratch::new(folder)?;
        let mut options = Options::default();
        // A secondary must keep every file open: the primary may delete them.
        options.set_max_open_files(-1);
        let db = DB::open_as_secondary(&options, &path, &scratch.0)
            .map_err(|e| Error::with(Code::StateFailed, format!("can't open the state in {}", folder.display()), e))?;
        Ok(Self { db, _scratch: scratch })
    }

    /// What the folder belongs to.
    ///
    /// # Errors
    /// `state_failed`.
    pub fn identity(&self) -> Result<Option<String>> {
        let found = self.db.get(key(Kind::Meta, 0, &["identity"], None, &[])).map_err(failed)?;
        Ok(found.map(|v| String::from_utf8_lossy(&v).into_owned()))
    }

    /// Offsets of a unit; `None` when nothing of it is here.
    ///
    /// # Errors
    /// `state_failed`, `state_format`.
    pub fn positions(&self, partition: i32) -> Result<Option<Positions>> {
        let found = self.db.get(key(Kind::Offsets, partition, &[], None, &[])).map_err(failed)?;
        found.map(|v| super::decode(&v)).transpose()
    }

    /// Every pair under a prefix in key order, until `each` breaks; one pair is held at a time.
    ///
    /// # Errors
    /// `state_failed`, and what `each` returns.
    pub fn each(&self, prefix: &[u8], mut each: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>>) -> Result<()> {
        for pair in self.pairs(prefix) {
            let (key, value) = pair?;
            if each(&key, &value)?.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    pub(super) fn pairs(&self, prefix: &[u8]) -> impl Iterator<Item = Result<Pair>> + use<'_> {
        pairs(&self.db, prefix.to_vec())
    }
}

pub(super) type Pair = (Box<[u8]>, Box<[u8]>);

/// Pairs under a prefix.
pub(super) fn pairs(db: &DB, prefix: Vec<u8>) -> impl Iterator<Item = Result<Pair>> + use<'_> {
    db.iterator(IteratorMode::From(&prefix, Direction::Forward))
        .map(|pair| pair.map_err(failed))
        .take_while(move |pair| pair.as_ref().map_or(true, |(k, _)| k.starts_with(&prefix)))
}
