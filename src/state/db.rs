//! One RocksDB a process: one shared cache, write buffers charged to it, WAL on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DB, DBCompressionType, Direction, ErrorKind, IteratorMode, Options,
    WriteBatch, WriteBufferManager, WriteOptions,
};

use super::keys::{Kind, key};
use super::{Change, Store};
use crate::clock::monotonic;
use crate::error::{Code, Error, Result};
use crate::telemetry::metrics;

const FOLDER: &str = "rocksdb";
/// Where a corrupt database is put aside.
const QUARANTINE: &str = "rocksdb-corrupt";
/// Says that the database gave corrupt data while it ran.
const MARKER: &str = "corrupt";

/// The process's database. A clone is another handle on it.
#[derive(Clone)]
pub struct Db {
    db: Arc<DB>,
    folder: PathBuf,
    /// Writes go without the write-ahead log.
    bulk: bool,
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Db {
    /// Opens or creates the database of `identity` (application, units, stores), which holds `memory` bytes of
    /// blocks, indexes, filters and write buffers. A corrupt one is put aside, once, and an empty one takes its
    /// place: restore fills it again.
    ///
    /// # Errors
    /// `state_failed` (also when another process holds it), `state_corrupt` when it was put aside before,
    /// `state_mismatch` when it belongs to another identity.
    pub fn open(folder: &Path, identity: &str, memory: usize) -> Result<Self> {
        std::fs::create_dir_all(folder)
            .map_err(|e| Error::with(Code::StateFailed, format!("can't make {}", folder.display()), e))?;
        let path = folder.join(FOLDER);
        if folder.join(MARKER).exists() {
            put_aside(folder, "it gave corrupt data")?;
        }
        let db = match DB::open(&options(memory), &path) {
            Err(e) if e.kind() == ErrorKind::Corruption => {
                put_aside(folder, e.as_ref())?;
                DB::open(&options(memory), &path)
            }
            other => other,
        }
        .map_err(|e| {
            let why = if disk_full(&e) { ": its disk is full" } else { "" };
            Error::with(Code::StateFailed, format!("can't open the state in {}{why}", folder.display()), e)
        })?;
        let this = Self { db: Arc::new(db), folder: folder.to_owned(), bulk: false };
        this.check_identity(identity)?;
        Ok(this)
    }

    fn check_identity(&self, identity: &str) -> Result<()> {
        let name = key(Kind::Meta, 0, &["identity"], None, &[]);
        match self.get(&name)? {
            None => self.db.put(&name, identity).map_err(|e| self.failed(e)),
            Some(found) if found == identity.as_bytes() => Ok(()),
            Some(found) => {
                let found = String::from_utf8_lossy(&found).into_owned();
                Err(Error::new(Code::StateMismatch, format!("the state belongs to '{found}', not '{identity}'")))
            }
        }
    }

    /// Deletes everything of a unit.
    ///
    /// # Errors
    /// `state_failed`.
    pub fn wipe(&mut self, partition: i32) -> Result<()> {
        let mut batch = WriteBatch::default();
        for kind in Kind::LOGGED.into_iter().chain([Kind::Offsets]) {
            let from = super::prefix(kind, partition);
            let to = super::prefix(kind, partition + 1);
            batch.delete_range(from, to);
        }
        self.write(batch)
    }

    /// Long replays: writes without write-ahead log, no compaction. Switched off, everything is flushed
    /// first: a later write must never reach the disk before an earlier one.
    ///
    /// # Errors
    /// `state_failed`.
    pub fn bulk(&mut self, on: bool) -> Result<()> {
        if self.bulk == on {
            return Ok(());
        }
        if !on {
            self.db.flush().map_err(|e| self.failed(e))?;
        }
        let value = if on { "true" } else { "false" };
        let (slow, stop) = if on { ("1000", "2000") } else { ("20", "36") };
        let options = [
            ("disable_auto_compactions", value),
            ("level0_slowdown_writes_trigger", slow),
            ("level0_stop_writes_trigger", stop),
        ];
        self.db.set_options(&options).map_err(|e| self.failed(e))?;
        self.bulk = on;
        Ok(())
    }

    /// Everything written is on the disk.
    ///
    /// # Errors
    /// `state_failed`.
    pub fn flush(&self) -> Result<()> {
        self.db.flush().map_err(|e| self.failed(e))
    }

    fn write(&self, batch: WriteBatch) -> Result<()> {
        let mut how = WriteOptions::default();
        how.disable_wal(self.bulk);
        self.db.write_opt(batch, &how).map_err(|e| self.failed(e))
    }

    fn failed(&self, e: rocksdb::Error) -> Error {
        if e.kind() != ErrorKind::Corruption {
            let what = if disk_full(&e) { "the disk under state_dir is full" } else { "RocksDB refused an operation" };
            return Error::with(Code::StateFailed, what, e);
        }
        // The next start puts the database aside.
        if let Err(error) = std::fs::write(self.folder.join(MARKER), e.to_string()) {
            tracing::error!(%error, "the corruption can't be marked");
        }
        Error::with(Code::StateCorrupt, "RocksDB found corrupt data; the next start rebuilds it", e)
    }
}

/// RocksDB gives the system's words alone (ENOSPC, EDQUOT, EFBIG).
fn disk_full(e: &rocksdb::Error) -> bool {
    let text = e.to_string();
    ["No space left", "quota exceeded", "File too large"].iter().any(|words| text.contains(words))
}

fn put_aside(folder: &Path, why: &str) -> Result<()> {
    let (from, to) = (folder.join(FOLDER), folder.join(QUARANTINE));
    if to.exists() {
        return Err(Error::new(
            Code::StateCorrupt,
            format!("{} is corrupt again ({why}); {} still holds the first one", from.display(), to.display()),
        ));
    }
    tracing::error!(why, aside = %to.display(), "the state is corrupt: it is put aside and rebuilt from the changelog");
    let moved = std::fs::rename(&from, &to).and_then(|()| match std::fs::remove_file(folder.join(MARKER)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    });
    moved.map_err(|e| Error::with(Code::StateFailed, format!("{} can't be put aside", from.display()), e))
}

fn options(memory: usize) -> Options {
    let cache = Cache::new_lru_cache(memory);
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&cache);
    table.set_bloom_filter(10.0, false);
    // Indexes and filters in pieces: a whole filter (1 byte and more a key) falls out of a shard of the cache and
    // would be read and checked again by each look-up.
    table.set_cache_index_and_filter_blocks(true);
    table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    table.set_partition_filters(true);
    table.set_pin_top_level_index_and_filter(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_manager(&WriteBufferManager::new_write_buffer_manager_with_cache(
        memory / 2,
        false,
        cache,
    ));
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_max_background_jobs(2);
    options.set_keep_log_file_num(2);
    options
}

impl Store for Db {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let since = monotonic();
        let found = self.db.get(key).map_err(|e| self.failed(e));
        metrics().state_read.observe_duration(since.elapsed());
        found
    }

    fn scan(&self, prefix: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let since = monotonic();
        let mut out = Vec::new();
        for item in self.db.iterator(IteratorMode::From(prefix, Direction::Forward)).take(limit) {
            let (k, v) = item.map_err(|e| self.failed(e))?;
            if !k.starts_with(prefix) {
                break;
            }
            out.push((k.into_vec(), v.into_vec()));
        }
        metrics().state_read.observe_duration(since.elapsed());
        Ok(out)
    }

    fn apply(&mut self, changes: Vec<Change>) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in changes {
            match value {
                Some(v) => batch.put(key, v),
                None => batch.delete(key),
            }
        }
        self.write(batch)
    }
}
