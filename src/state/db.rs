//! One RocksDB a process: one shared cache, write buffers charged to it, WAL on.

use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Direction, IteratorMode, Options, WriteBatch, WriteBufferManager,
};

use super::keys::{Kind, key};
use super::{Positions, Store, unit};
use crate::error::{Code, Error, Result};

/// Memory of RocksDB: blocks, indexes, filters, write buffers.
const CACHE_BYTES: usize = 128 << 20;
const WRITE_BUFFER_BYTES: usize = 64 << 20;

/// The process's database.
pub struct Db {
    db: DB,
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db").finish_non_exhaustive()
    }
}

fn failed(e: rocksdb::Error) -> Error {
    let what = if disk_full(&e) { "the disk under state_dir is full" } else { "RocksDB refused an operation" };
    Error::with(Code::StateFailed, what, e)
}

/// RocksDB gives the system's words alone (ENOSPC, EDQUOT, EFBIG).
fn disk_full(e: &rocksdb::Error) -> bool {
    let text = e.to_string();
    ["No space left", "quota exceeded", "File too large"].iter().any(|words| text.contains(words))
}

impl Db {
    /// Opens or creates the database of `identity` (application, units, stores).
    ///
    /// # Errors
    /// `state_failed` (also when another process holds it), `state_mismatch` when it belongs to another identity.
    pub fn open(folder: &Path, identity: &str) -> Result<Self> {
        std::fs::create_dir_all(folder)
            .map_err(|e| Error::with(Code::StateFailed, format!("can't make {}", folder.display()), e))?;
        let db = DB::open(&options(), folder.join("rocksdb")).map_err(|e| {
            let why = if disk_full(&e) { ": its disk is full" } else { "" };
            Error::with(Code::StateFailed, format!("can't open the state in {}{why}", folder.display()), e)
        })?;
        let name = key(Kind::Meta, 0, &["identity"], None, &[]);
        match db.get(&name).map_err(failed)? {
            None => db.put(&name, identity).map_err(failed)?,
            Some(found) if found == identity.as_bytes() => {}
            Some(found) => {
                let found = String::from_utf8_lossy(&found).into_owned();
                return Err(Error::new(
                    Code::StateMismatch,
                    format!("the state belongs to '{found}', not '{identity}'"),
                ));
            }
        }
        Ok(Self { db })
    }

    /// Offsets of a unit; `None` when nothing of it is here.
    ///
    /// # Errors
    /// `state_failed`, `state_format`.
    pub fn positions(&self, partition: i32) -> Result<Option<Positions>> {
        self.get(&offsets_key(partition))?.map(|v| unit::decode(&v)).transpose()
    }

    /// The change that records offsets.
    #[must_use]
    pub fn positions_change(partition: i32, positions: &Positions) -> (Vec<u8>, Option<Vec<u8>>) {
        (offsets_key(partition), Some(unit::encode(positions)))
    }

    /// Deletes everything of a unit.
    ///
    /// # Errors
    /// `state_failed`.
    pub fn wipe(&mut self, partition: i32) -> Result<()> {
        let kinds = [
            Kind::Offsets,
            Kind::Unit,
            Kind::Boundary,
            Kind::HistorySlot,
            Kind::Session,
            Kind::SessionExpiry,
            Kind::Active,
        ];
        let mut batch = WriteBatch::default();
        for kind in kinds {
            let from = super::prefix(kind, partition);
            let to = super::prefix(kind, partition + 1);
            batch.delete_range(from, to);
        }
        self.db.write(batch).map_err(failed)
    }
}

fn offsets_key(partition: i32) -> Vec<u8> {
    key(Kind::Offsets, partition, &[], None, &[])
}

fn options() -> Options {
    let cache = Cache::new_lru_cache(CACHE_BYTES);
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&cache);
    table.set_cache_index_and_filter_blocks(true);
    table.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_manager(&WriteBufferManager::new_write_buffer_manager_with_cache(
        WRITE_BUFFER_BYTES,
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
        self.db.get(key).map_err(failed)
    }

    fn scan(&self, prefix: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut out = Vec::new();
        for item in self.db.iterator(IteratorMode::From(prefix, Direction::Forward)).take(limit) {
            let (k, v) = item.map_err(failed)?;
            if !k.starts_with(prefix) {
                break;
            }
            out.push((k.into_vec(), v.into_vec()));
        }
        Ok(out)
    }

    fn apply(&mut self, changes: Vec<(Vec<u8>, Option<Vec<u8>>)>) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in changes {
            match value {
                Some(v) => batch.put(key, v),
                None => batch.delete(key),
            }
        }
        self.db.write(batch).map_err(failed)
    }
}
