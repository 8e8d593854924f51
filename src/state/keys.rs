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
    /// One slot of a source's ring of writes.
    SourceSlot = 12,
    /// A source by the time it may be forgotten.
    SourceExpiry = 13,
    /// The hash of an entity that the boundary knows.
    Entity = 14,
    /// A query of a boundary's hardened window, or one that waits for it.
    Query = 15,
    /// Where a boundary's hardened window stands, and the number of its next accepted write.
    Window = 16,
    /// An accepted write of a boundary.
    Stored = 17,
    /// Where a boundary's rolling calibration stands.
    Rolling = 18,
    /// A row of a rolling calibration, or an accepted write that waits to become one.
    RollingRow = 19,
    /// How many of a boundary's screened writes reach a floor: the open block, and what it is compared with.
    FloorShare = 20,
    /// Which rolling calibrations of a boundary the topic has copies of.
    RollingCopies = 21,
    /// The label of a record that was written.
    Label = 27,
    /// One slot of a boundary's ring of records with labels.
    LabelSlot = 28,
    /// Records of a boundary that have had a label.
    LabelMark = 29,
}

impl Kind {
    /// All kinds that the changelog carries.
    pub const LOGGED: [Kind; 22] = [
        Kind::Unit,
        Kind::Boundary,
        Kind::HistorySlot,
        Kind::Session,
        Kind::SessionExpiry,
        Kind::Active,
        Kind::Topic,
        Kind::Circuit,
        Kind::Held,
        Kind::SourceSlot,
        Kind::SourceExpiry,
        Kind::Entity,
        Kind::Query,
        Kind::Window,
        Kind::Stored,
        Kind::Rolling,
        Kind::RollingRow,
        Kind::FloorShare,
        Kind::RollingCopies,
        Kind::Label,
        Kind::LabelSlot,
        Kind::LabelMark,
    ];

    /// Name in commands.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Meta => "meta",
            Kind::Offsets => "offsets",
            Kind::Unit => "unit",
            Kind::Boundary => "boundary",
            Kind::HistorySlot => "history-slot",
            Kind::Session => "session",
            Kind::SessionExpiry => "session-expiry",
            Kind::Active => "active",
            Kind::Topic => "topic",
            Kind::Circuit => "circuit",
            Kind::Held => "held",
            Kind::SourceSlot => "source-slot",
            Kind::SourceExpiry => "source-expiry",
            Kind::Entity => "entity",
            Kind::Query => "query",
            Kind::Window => "window",
            Kind::Stored => "stored",
            Kind::Rolling => "rolling",
            Kind::RollingRow => "rolling-row",
            Kind::FloorShare => "floor-share",
            Kind::RollingCopies => "rolling-copies",
            Kind::Label => "label",
            Kind::LabelSlot => "label-slot",
            Kind::LabelMark => "label-mark",
        }
    }

    /// Text parts in front of the number and behind it; the number, if there is one, has 8 bytes.
    fn layout(self) -> (usize, bool, usize) {
        match self {
            Kind::Meta
            | Kind::Boundary
            | Kind::Active
            | Kind::Topic
            | Kind::Circuit
            | Kind::Window
            | Kind::Rolling
            | Kind::FloorShare
            | Kind::RollingCopies
            | Kind::LabelMark => (1, false, 0),
            Kind::Offsets | Kind::Unit => (0, false, 0),
            Kind::HistorySlot
            | Kind::Held
            | Kind::Entity
            | Kind::Query
            | Kind::Stored
            | Kind::RollingRow
            | Kind::LabelSlot => (1, true, 0),
            Kind::Session | Kind::Label => (2, false, 0),
            Kind::SessionExpiry | Kind::SourceExpiry => (1, true, 1),
            Kind::SourceSlot => (2, true, 0),
        }
    }

    /// Whether the changelog carries it.
    #[must_use]
    pub fn is_logged(byte: u8) -> bool {
        (Kind::Unit as u8..=Kind::LabelMark as u8).contains(&byte)
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

/// A key of the changelog taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// What it holds.
    pub kind: Kind,
    /// Unit.
    pub partition: i32,
    /// Text parts: boundary, session, or what is in force.
    pub parts: Vec<String>,
    /// Ring slot, or time bits.
    pub number: Option<u64>,
}

/// Whether a key of the changelog is one of this unit.
#[must_use]
pub fn of_unit(key: &[u8], partition: i32) -> bool {
    key.get(1..5) == Some(partition.to_be_bytes().as_slice()) && key.first().copied().is_some_and(Kind::is_logged)
}

/// Takes a key of the changelog apart; `None` when it isn't one.
#[must_use]
pub fn parse(key: &[u8]) -> Option<Parsed> {
    let (kind, rest) = key.split_first()?;
    let kind = Kind::LOGGED.into_iter().find(|k| *k as u8 == *kind)?;
    let (partition, mut rest) = rest.split_first_chunk::<4>()?;
    let (before, numbered, after) = kind.layout();
    let mut parts = Vec::new();
    let part = |rest: &mut &[u8]| {
        let end = rest.iter().position(|b| *b == 0)?;
        let text = String::from_utf8(rest[..end].to_vec()).ok()?;
        *rest = &rest[end + 1..];
        Some(text)
    };
    for _ in 0..before {
        parts.push(part(&mut rest)?);
    }
    let mut number = None;
    if numbered {
        let (bytes, tail) = rest.split_first_chunk::<8>()?;
        number = Some(u64::from_be_bytes(*bytes));
        rest = tail;
    }
    for _ in 0..after {
        parts.push(part(&mut rest)?);
    }
    rest.is_empty().then_some(Parsed { kind, partition: i32::from_be_bytes(*partition), parts, number })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Case = (Kind, &'static [&'static str], Option<u64>, &'static [&'static str]);

    #[test]
    fn keys_come_apart_as_they_were_made() {
        let cases: [Case; 20] = [
            (Kind::Unit, &[], None, &[]),
            (Kind::Boundary, &["acme/support"], None, &[]),
            (Kind::HistorySlot, &["acme/support"], Some(0), &[]),
            (Kind::Session, &["acme/support", "s-1"], None, &[]),
            (Kind::SessionExpiry, &["acme/support"], Some(1 << 63), &["s-1"]),
            (Kind::Active, &["memsad/acme/support"], None, &[]),
            (Kind::Topic, &["changelog"], None, &[]),
            (Kind::SourceSlot, &["acme/support", "0f"], Some(49), &[]),
            (Kind::SourceExpiry, &["acme/support"], Some(1 << 63), &["0f"]),
            (Kind::Entity, &["acme/support"], Some(u64::MAX), &[]),
            (Kind::Query, &["acme/support"], Some(103), &[]),
            (Kind::Window, &["acme/support"], None, &[]),
            (Kind::Stored, &["acme/support"], Some(500), &[]),
            (Kind::Rolling, &["acme/support"], None, &[]),
            (Kind::RollingRow, &["acme/support"], Some(7), &[]),
            (Kind::FloorShare, &["acme/support"], None, &[]),
            (Kind::RollingCopies, &["acme/support"], None, &[]),
            (Kind::Label, &["acme/support", "m-1"], None, &[]),
            (Kind::LabelSlot, &["acme/support"], Some(65_535), &[]),
            (Kind::LabelMark, &["acme/support"], None, &[]),
        ];
        for (kind, head, number, tail) in cases {
            let made = key(kind, 7, head, number, tail);
            let parts = head.iter().chain(tail).map(|p| (*p).to_owned()).collect();
            assert_eq!(parse(&made), Some(Parsed { kind, partition: 7, parts, number }), "{kind:?}");
            assert_eq!(parse(&made[..made.len() - 1]), None, "{kind:?}");
            assert_eq!(parse(&[made.as_slice(), b"x"].concat()), None, "{kind:?}");
            assert!(Kind::is_logged(kind as u8));
        }
        assert!(parse(&[]).is_none() && parse(&key(Kind::Offsets, 7, &[], None, &[])).is_none());
    }
}
