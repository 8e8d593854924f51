//! Small state of a partition unit.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::format::{decode, encode};
use super::{Kind, Store, key};
use crate::error::Result;

/// Head of the decision chain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Chain {
    /// Number of the next decision; at most 2^53, up to which JSON numbers are exact (RFC 8785).
    #[serde(deserialize_with = "counter")]
    pub next_seq: u64,
    /// Hash of the last one; zeros before the first.
    pub head: [u8; 32],
}

/// Chain head, one value a unit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UnitMeta {
    /// Chain head.
    pub chain: Chain,
}

/// What counts decisions; a larger number was never counted.
const MAX_COUNT: u64 = 1 << 53;

fn counter<'de, D: serde::Deserializer<'de>>(from: D) -> std::result::Result<u64, D::Error> {
    let n = u64::deserialize(from)?;
    if n <= MAX_COUNT { Ok(n) } else { Err(serde::de::Error::custom("a counter above 2^53")) }
}

/// Offsets of a unit, written with the data they belong to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Positions {
    /// Next changelog offset to replay.
    pub changelog: i64,
    /// Next offset of each input, by role name.
    pub inputs: BTreeMap<String, i64>,
    /// Wall time of the write, ms: how long the state was away.
    pub saved_at: i64,
}

impl Positions {
    /// Of a unit; `None` when nothing of it is here.
    ///
    /// # Errors
    /// `state_failed`, `state_format`.
    pub fn of<S: Store>(store: &S, unit: i32) -> Result<Option<Self>> {
        store.get(&offsets_key(unit))?.map(|v| decode(&v)).transpose()
    }

    /// The change that records them.
    #[must_use]
    pub fn change(&self, unit: i32) -> (Vec<u8>, Option<Vec<u8>>) {
        (offsets_key(unit), Some(encode(self)))
    }
}

fn offsets_key(unit: i32) -> Vec<u8> {
    key(Kind::Offsets, unit, &[], None, &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn only_what_was_written_is_read() {
        let meta = UnitMeta { chain: Chain { next_seq: MAX_COUNT, head: [7; 32] } };
        assert_eq!(decode::<UnitMeta>(&encode(&meta)).unwrap(), meta);
        let longer = [encode(&meta), vec![0]].concat();
        let beyond = encode(&UnitMeta { chain: Chain { next_seq: MAX_COUNT + 1, head: [7; 32] } });
        for broken in [&longer[..], &beyond[..], &longer[..9], &[], &[2, 0]] {
            assert_eq!(decode::<UnitMeta>(broken).unwrap_err().code(), Code::StateFormat, "{broken:?}");
        }
    }
}
