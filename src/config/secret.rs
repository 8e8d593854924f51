//! The deployment secret and the keys derived from it: HKDF-SHA256 (RFC 5869), one key a boundary.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, RwLock};

use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::error::{Code, Error, Result};

/// The deployment secret.
#[derive(Clone)]
pub struct Secret {
    root: Hkdf<Sha256>,
    key_id: Arc<str>,
    keys: Arc<RwLock<HashMap<String, Hmac<Sha256>>>>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// Keys kept ready; above this the cache starts again.
const MAX_KEYS: usize = 10_000;

impl Secret {
    /// From at least 32 bytes.
    ///
    /// # Errors
    /// `secret_missing` when shorter.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        if bytes.len() < 32 {
            return Err(Error::new(Code::SecretMissing, "the secret is shorter than 32 bytes"));
        }
        let root = Hkdf::<Sha256>::new(Some(b"memsluice/v1"), bytes);
        let key_id = hex::encode(&Sha256::digest(expand(&root, "key-id"))[..4]);
        Ok(Self { root, key_id: key_id.into(), keys: Arc::default() })
    }

    /// From a file.
    ///
    /// # Errors
    /// `secret_missing`.
    pub fn from_file(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path)
            .map_err(|e| Error::with(Code::SecretMissing, format!("can't read {}", path.display()), e))?;
        Self::new(&bytes)
    }

    /// From a file that is made when it lacks: for `scan` and `demo` only.
    ///
    /// # Errors
    /// `secret_missing`.
    pub fn from_file_or_new(path: &Path) -> Result<Self> {
        if path.exists() {
            return Self::from_file(path);
        }
        let failed = |e: std::io::Error| Error::with(Code::SecretMissing, format!("can't make {}", path.display()), e);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        let mut bytes = [0_u8; 32];
        let mut random = std::fs::File::open("/dev/urandom").map_err(failed)?;
        std::io::Read::read_exact(&mut random, &mut bytes).map_err(failed)?;
        let mut options = std::fs::OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::mode(options.write(true).create_new(true), 0o600);
        let mut file = options.open(path).map_err(failed)?;
        std::io::Write::write_all(&mut file, &bytes).map_err(failed)?;
        Self::new(&bytes)
    }

    /// Names the secret without revealing it.
    #[must_use]
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// HMAC-SHA256 of `data` under the key of `scope` (a boundary, or `deployment`), hex.
    #[must_use]
    pub fn hmac(&self, scope: &str, data: &[u8]) -> String {
        let mut mac = self.key(scope);
        mac.update(data);
        hex::encode(mac.finalize().into_bytes())
    }

    fn key(&self, scope: &str) -> Hmac<Sha256> {
        if let Some(mac) = self.keys.read().unwrap_or_else(std::sync::PoisonError::into_inner).get(scope) {
            return mac.clone();
        }
        let key = expand(&self.root, scope);
        let mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&key)
            .unwrap_or_else(|_| unreachable!("HMAC takes any key length"));
        let mut keys = self.keys.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if keys.len() >= MAX_KEYS {
            keys.clear();
        }
        keys.insert(scope.to_owned(), mac.clone());
        mac
    }
}

fn expand(root: &Hkdf<Sha256>, info: &str) -> [u8; 32] {
    let mut out = [0_u8; 32];
    root.expand(info.as_bytes(), &mut out).unwrap_or_else(|_| unreachable!("32 bytes are within HKDF's limit"));
    out
}
