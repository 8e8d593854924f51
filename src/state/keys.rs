//! State keys: kind (1 byte), partition (4 bytes, big-endian), then the parts, each closed by a zero byte
//! (no part holds one: ids have no control characters). Retired kinds stay reserved.

/// What a key holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Process-wide facts; never in the changelog.
    Meta = 1,
    /// Offsets of a unit; never in the changelog.
    Offsets = 2,
    /// Chain head of a unit.
    Unit = 3,
    /// Stream time of a boundary.
    Boundary = 4,
    /// One slot of a boundary's query ring.
    HistorySlot = 5,
    /// A session.
    Session = 6,
    /// A session by the time it may close.
    SessionExpiry = 7,
    /// Version in force of one calibration or honeypot set.
    Active = 8,
    /// Id of a topic that the unit's state was built from.
    Topic = 9,
    /// The breaker's circuit of one source.
    Circuit = 10,
    /// A dead-lettered record that its key waits for.
    Held = 11,
}

impl Kind {
    /// Kinds whose keys carry a unit, the process-wide ones left out.
    pub const OF_UNIT: [Kind; 10] = [
        Kind::Offsets,
        Kind::Unit,
        Kind::Boundary,
        Kind::HistorySlot,
        Kind::Session,
        Kind::SessionExpiry,
        Kind::Active,
        Kind::Topic,
        Kind::Circuit,
        Kind::Held,
    ];

    /// Whether the changelog carries it.
    #[must_use]
    pub fn is_logged(byte: u8) -> bool {
        (Kind::Unit as u8..=Kind::Held as u8).contains(&byte)
    }
}

/// Prefix of all keys of a kind in a unit.
#[must_use]
pub fn prefix(kind: Kind, partition: i32) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.push(kind as u8);
    out.extend_from_slice(&partition.to_be_bytes());
    out
}

/// A key from text parts and an optional big-endian number between them.
#[must_use]
pub fn key(kind: Kind, partition: i32, parts: &[&str], number: Option<u64>, tail: &[&str]) -> Vec<u8> {
    let mut out = prefix(kind, partition);
    let add = |out: &mut Vec<u8>, parts: &[&str]| {
        for part in parts {
            out.extend_from_slice(part.as_bytes());
            out.push(0);
        }
    };
    add(&mut out, parts);
    if let Some(n) = number {
        out.extend_from_slice(&n.to_be_bytes());
    }
    add(&mut out, tail);
    out
}
