//! The trust boundary `tenant/store`, the key of every input.

use std::fmt;

use crate::error::{Code, Error, Result};

/// Ids (record, session, event, principal) are at most this long, in bytes.
pub const MAX_ID_BYTES: usize = 512;

/// A validated `tenant/store`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Boundary {
    text: Box<str>,
    tenant_len: usize,
}

/// Whether a part of a boundary is `[A-Za-z0-9._-]{1,128}`.
#[must_use]
pub fn valid_part(part: &str) -> bool {
    (1..=128).contains(&part.len())
        && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// Whether an id is 1 to 512 bytes without control characters.
#[must_use]
pub fn valid_id(id: &str) -> bool {
    (1..=MAX_ID_BYTES).contains(&id.len()) && !id.chars().any(char::is_control)
}

impl Boundary {
    /// Validates both parts.
    ///
    /// # Errors
    /// `invalid_boundary`.
    pub fn new(tenant: &str, store: &str) -> Result<Self> {
        if !valid_part(tenant) || !valid_part(store) {
            return Err(Error::new(Code::InvalidBoundary, "tenant or store is not a valid name"));
        }
        Ok(Self { text: format!("{tenant}/{store}").into(), tenant_len: tenant.len() })
    }

    /// Parses `tenant/store`.
    ///
    /// # Errors
    /// `invalid_boundary`.
    pub fn parse(text: &str) -> Result<Self> {
        let (tenant, store) = text
            .split_once('/')
            .ok_or_else(|| Error::new(Code::InvalidBoundary, "a boundary is written tenant/store"))?;
        Self::new(tenant, store)
    }

    /// The tenant.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.text[..self.tenant_len]
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &str {
        &self.text[self.tenant_len + 1..]
    }

    /// `tenant/store`, the Kafka key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Boundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
