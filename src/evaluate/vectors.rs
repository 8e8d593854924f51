//! Vectors of texts, encoded once and kept on disk in the work folder.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::config::Encoder as Settings;
use crate::embed::Embedder;
use crate::error::{Code, Error, Result};
use crate::schema::Vector;

/// Text to unit vectors.
pub trait Encode {
    /// Identity of the encoder.
    fn identity(&self) -> &str;

    /// One vector a text.
    ///
    /// # Errors
    /// `encoder_failed`.
    fn encode(&self, texts: &[&str]) -> Result<Vec<Vector>>;

    /// The vector of one text.
    ///
    /// # Errors
    /// `encoder_failed`.
    fn one(&self, text: &str) -> Result<Vector> {
        self.encode(&[text])?
            .into_iter()
            .next()
            .ok_or_else(|| Error::new(Code::EncoderFailed, "the encoder gave no vector"))
    }
}

type Key = [u8; 32];

/// An encoder with everything it has encoded: in memory, and in a file that a later run goes on with.
#[derive(Debug)]
pub struct Vectors {
    embedder: Embedder,
    dimension: usize,
    known: RefCell<HashMap<Key, Vector>>,
    file: RefCell<Option<BufWriter<File>>>,
    encoded: Cell<u64>,
}

impl Vectors {
    /// Starts the encoder; with a folder, reads what was encoded before and keeps what will be.
    ///
    /// # Errors
    /// Those of the encoder, `file_unreadable`, `output_failed`.
    pub fn open(settings: &Settings, folder: Option<&Path>) -> Result<Self> {
        let embedder = Embedder::start(settings)?;
        let dimension = settings.dimension;
        let (mut known, mut file) = (HashMap::new(), None);
        if let Some(folder) = folder {
            let path = folder.join(format!("vectors-{}.bin", short(embedder.identity())));
            let whole = read(&path, dimension, &mut known)?;
            file = Some(append(&path, whole)?);
        }
        let known = RefCell::new(known);
        Ok(Self { embedder, dimension, known, file: RefCell::new(file), encoded: Cell::new(0) })
    }

    /// Texts that were not known.
    #[must_use]
    pub fn encoded(&self) -> u64 {
        self.encoded.get()
    }

    fn keep(&self, key: Key, vector: Vector) -> Result<()> {
        if let Some(file) = self.file.borrow_mut().as_mut() {
            file.write_all(&key)
                .and_then(|()| file.write_all(&vector.to_bytes()))
                .map_err(|e| Error::with(Code::OutputFailed, "vectors can't be kept in the work folder", e))?;
        }
        self.known.borrow_mut().insert(key, vector);
        Ok(())
    }
}

impl Encode for Vectors {
    fn identity(&self) -> &str {
        self.embedder.identity()
    }

    fn encode(&self, texts: &[&str]) -> Result<Vec<Vector>> {
        let keys: Vec<Key> = texts.iter().map(|t| Sha256::digest(t.as_bytes()).into()).collect();
        let mut missing: HashMap<Key, String> = HashMap::new();
        for (key, text) in keys.iter().zip(texts) {
            if !self.known.borrow().contains_key(key) {
                missing.insert(*key, (*text).to_owned());
            }
        }
        let mut missing: Vec<(Key, String)> = missing.into_iter().collect();
        missing.sort();
        // In pieces, so that a killed run has kept most of its work.
        for piece in missing.chunks(256) {
            let batch: Vec<String> = piece.iter().map(|(_, t)| t.clone()).collect();
            for ((key, _), done) in piece.iter().zip(self.embedder.encode_all(&batch, || ())?) {
                self.keep(*key, done.vector)?;
                self.encoded.set(self.encoded.get() + 1);
            }
            if let Some(file) = self.file.borrow_mut().as_mut() {
                file.flush().map_err(|e| Error::with(Code::OutputFailed, "the work folder can't be written", e))?;
            }
        }
        let known = self.known.borrow();
        keys.iter().map(|k| known.get(k).cloned()).collect::<Option<_>>().ok_or_else(|| {
            Error::new(Code::EncoderFailed, format!("a vector of dimension {} is missing", self.dimension))
        })
    }
}

/// First half of the identity's SHA-256, hex.
fn short(identity: &str) -> String {
    hex::encode(&Sha256::digest(identity.as_bytes())[..16])
}

/// Reads whole entries and says how many bytes they take; a killed run may leave half of one.
fn read(path: &PathBuf, dimension: usize, known: &mut HashMap<Key, Vector>) -> Result<u64> {
    let unreadable = |e| Error::with(Code::FileUnreadable, format!("can't read {}", path.display()), e);
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(e) => return Err(unreadable(e)),
    };
    let size = 32 + 2 * dimension;
    let mut whole = 0;
    for entry in bytes.chunks_exact(size) {
        let mut key = [0; 32];
        key.copy_from_slice(&entry[..32]);
        let components = entry[32..].chunks_exact(2).map(|b| i16::from_le_bytes([b[0], b[1]])).collect();
        let Some(vector) = Vector::from_unit(components) else { break };
        known.insert(key, vector);
        whole += size as u64;
    }
    Ok(whole)
}

fn append(path: &PathBuf, whole: u64) -> Result<BufWriter<File>> {
    let failed = |e| Error::with(Code::OutputFailed, format!("can't write {}", path.display()), e);
    let file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
    file.set_len(whole).map_err(failed)?;
    Ok(BufWriter::new(file))
}

#[cfg(test)]
pub(in crate::evaluate) fn for_tests(folder: Option<&Path>) -> Vectors {
    let settings = Settings { backend: crate::config::Backend::Hash, ..Settings::default() };
    Vectors::open(&settings, folder).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_kept_and_half_an_entry_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let texts = ["one", "two", "one"];
        let first = for_tests(Some(folder.path()));
        let vectors = first.encode(&texts).unwrap();
        assert_eq!((vectors.len(), first.encoded()), (3, 2));
        assert_eq!(vectors[0], vectors[2]);
        drop(first);
        let file = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let mut bytes = std::fs::read(&file).unwrap();
        assert_eq!(bytes.len(), 2 * (32 + 768));
        bytes.truncate(bytes.len() - 5);
        std::fs::write(&file, bytes).unwrap();
        let second = for_tests(Some(folder.path()));
        assert_eq!(second.encode(&texts).unwrap(), vectors);
        assert_eq!(second.encoded(), 1);
        drop(second);
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 2 * (32 + 768));
    }
}
