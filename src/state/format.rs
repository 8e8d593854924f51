//! Formats of state values: one byte in front of each. A program reads a range of formats and writes one of them,
//! the one that all members can read: two steps, so that two versions can share a state.

use std::sync::atomic::{AtomicU8, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Code, Error, Result};
use crate::schema::{ReadFormats, StateFormats};

/// Formats that this program reads.
pub const READS: ReadFormats = ReadFormats { min: 1, max: 1 };

/// The format that this process writes; until the meta record is read, the oldest.
static WRITES: AtomicU8 = AtomicU8::new(READS.min);

/// Takes the format that the members write, before any value is made.
///
/// # Errors
/// `format_unsupported`.
pub fn write_format(state: StateFormats) -> Result<()> {
    check(READS, state)?;
    WRITES.store(state.write, Ordering::Relaxed);
    Ok(())
}

/// Whether a program can share a state.
///
/// # Errors
/// `format_unsupported`.
pub fn check(reads: ReadFormats, state: StateFormats) -> Result<()> {
    if reads.min <= state.min && state.min <= state.write && state.write <= reads.max {
        return Ok(());
    }
    let what = format!(
        "the state holds the formats {} to {}, this program reads {} to {}",
        state.min, state.write, reads.min, reads.max
    );
    Err(Error::new(Code::FormatUnsupported, what))
}

/// A value with its layout in each format. Most types have had one layout only, the derived one. A type that
/// changes implements this itself and no longer `Serialize`: old formats are read, and written until the upgrade
/// is finalized.
pub trait Layout: Sized {
    /// The bytes in a format.
    ///
    /// # Errors
    /// Of the serialiser.
    fn write(&self, format: u8, out: Vec<u8>) -> postcard::Result<Vec<u8>>;
    /// The value of bytes in a format.
    ///
    /// # Errors
    /// For bytes that are no such value.
    fn read(format: u8, bytes: &[u8]) -> postcard::Result<Self>;
}

impl<T: Serialize + DeserializeOwned> Layout for T {
    fn write(&self, _: u8, out: Vec<u8>) -> postcard::Result<Vec<u8>> {
        postcard::to_extend(self, out)
    }

    fn read(_: u8, bytes: &[u8]) -> postcard::Result<Self> {
        whole(bytes)
    }
}

/// A value without bytes behind it.
fn whole<T: DeserializeOwned>(bytes: &[u8]) -> postcard::Result<T> {
    match postcard::take_from_bytes(bytes)? {
        (value, []) => Ok(value),
        _ => Err(postcard::Error::DeserializeBadEncoding),
    }
}

/// A value with its format byte, as this process writes.
#[must_use]
pub fn encode<T: Layout>(value: &T) -> Vec<u8> {
    encode_as(WRITES.load(Ordering::Relaxed), value)
}

/// The types here always serialise.
fn encode_as<T: Layout>(format: u8, value: &T) -> Vec<u8> {
    value.write(format, vec![format]).unwrap_or_default()
}

/// Reads a value.
///
/// # Errors
/// `state_format` for another format byte or broken bytes.
pub fn decode<T: Layout>(bytes: &[u8]) -> Result<T> {
    decode_by(READS, bytes)
}

fn decode_by<T: Layout>(reads: ReadFormats, bytes: &[u8]) -> Result<T> {
    let unknown = || Error::new(Code::StateFormat, "a state value has an unknown format");
    let (format, rest) = bytes.split_first().ok_or_else(unknown)?;
    if !(reads.min..=reads.max).contains(format) {
        return Err(unknown());
    }
    T::read(*format, rest).map_err(|e| Error::with(Code::StateFormat, "a state value is broken", e))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::breaker::Circuit;
    use crate::clock::Millis;
    use crate::session::SessionState;
    use crate::state::{Kind, MemoryStore, Positions, Store, UnitMeta};

    const FIXTURES: &[(&str, &str)] = &[("0.1.0", include_str!("../../tests/fixtures/state/0.1.0.jsonl"))];

    /// The value as JSON, and its bytes written again.
    fn typed<T: Serialize + DeserializeOwned>(bytes: &[u8], format: u8) -> (serde_json::Value, Vec<u8>) {
        let value: T = decode(bytes).unwrap();
        (serde_json::to_value(&value).unwrap(), encode_as(format, &value))
    }

    fn read(kind: Kind, bytes: &[u8], format: u8) -> (serde_json::Value, Vec<u8>) {
        match kind {
            Kind::Meta => (String::from_utf8(bytes.to_vec()).unwrap().into(), bytes.to_vec()),
            Kind::Offsets => typed::<Positions>(bytes, format),
            Kind::Unit => typed::<UnitMeta>(bytes, format),
            Kind::Boundary => typed::<Millis>(bytes, format),
            Kind::HistorySlot => typed::<(u64, Vec<u8>)>(bytes, format),
            Kind::Session => typed::<SessionState>(bytes, format),
            Kind::SessionExpiry | Kind::SourceExpiry | Kind::Entity => (serde_json::Value::Null, Vec::new()),
            Kind::SourceSlot => typed::<crate::screen::Slot>(bytes, format),
            Kind::Query => typed::<crate::score::QueryValue>(bytes, format),
            Kind::Window => typed::<(crate::score::WindowMark, u64)>(bytes, format),
            Kind::Stored => typed::<crate::score::StoredValue>(bytes, format),
            Kind::Rolling => typed::<crate::score::RollingMark>(bytes, format),
            Kind::RollingRow => typed::<crate::score::AcceptedValue>(bytes, format),
            Kind::RollingCopies => typed::<crate::score::Copies>(bytes, format),
            Kind::FloorShare => typed::<crate::screen::ShareMark>(bytes, format),
            Kind::Label => typed::<crate::policy::LabelNote>(bytes, format),
            Kind::Active | Kind::LabelMark => typed::<u64>(bytes, format),
            Kind::Topic | Kind::LabelSlot => typed::<String>(bytes, format),
            Kind::Circuit => typed::<Circuit>(bytes, format),
            Kind::Held => typed::<()>(bytes, format),
        }
    }

    /// What a released version left must be read for as long as its format is, and its kinds must all be here.
    /// A kind without a line in the newest fixture fails.
    #[test]
    fn states_of_every_released_version_are_read() {
        let kinds: BTreeSet<&str> =
            Kind::LOGGED.iter().chain(&[Kind::Offsets, Kind::Meta]).map(|k| k.as_str()).collect();
        for (version, lines) in FIXTURES {
            let mut seen = BTreeSet::new();
            for line in lines.lines() {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                let bytes = |name: &str| hex::decode(line[name].as_str().unwrap()).unwrap();
                let (key, value) = (bytes("key"), bytes("value"));
                let kind =
                    Kind::LOGGED.into_iter().chain([Kind::Offsets, Kind::Meta]).find(|k| *k as u8 == key[0]).unwrap();
                assert_eq!(line["kind"], kind.as_str(), "{version}");
                if Kind::is_logged(key[0]) {
                    assert!(crate::state::parse(&key).is_some(), "{version} {}: its key", kind.as_str());
                }
                let format = value.first().copied().unwrap_or_default();
                let (found, again) = read(kind, &value, format);
                assert_eq!(found, line["expect"], "{version} {}", kind.as_str());
                assert_eq!(again, value, "{version} {}: written again", kind.as_str());
                seen.insert(kind.as_str());
            }
            assert!(seen.is_subset(&kinds));
            if *version == FIXTURES[FIXTURES.len() - 1].0 {
                assert_eq!(seen, kinds, "a kind has no line in the fixture of {version}");
            }
        }
    }

    #[test]
    fn formats_outside_of_the_range_are_refused() {
        let (one, two) = (ReadFormats { min: 1, max: 1 }, ReadFormats { min: 1, max: 2 });
        let state = |min, write| StateFormats { min, write };
        for (reads, at, good) in [
            (one, state(1, 1), true),
            (two, state(1, 1), true),
            (two, state(1, 2), true),
            (one, state(1, 2), false),
            (ReadFormats { min: 2, max: 3 }, state(1, 2), false),
            (two, state(2, 1), false),
        ] {
            let code = check(reads, at).err().map(|e| e.code());
            assert_eq!(code, (!good).then_some(Code::FormatUnsupported), "{reads:?} {at:?}");
        }
        assert_eq!(decode::<u64>(&[]).unwrap_err().code(), Code::StateFormat);
        assert_eq!(decode::<u64>(&[READS.max + 1, 0]).unwrap_err().code(), Code::StateFormat);
    }

    /// A chain head as version 0.1.0 keeps it, and as a later version might: with the time of its last decision.
    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Head {
        next_seq: u64,
        at: Option<i64>,
    }

    impl Layout for Head {
        fn write(&self, format: u8, out: Vec<u8>) -> postcard::Result<Vec<u8>> {
            match format {
                1 => postcard::to_extend(&self.next_seq, out),
                _ => postcard::to_extend(&(self.next_seq, self.at), out),
            }
        }

        fn read(format: u8, bytes: &[u8]) -> postcard::Result<Self> {
            let (next_seq, at) = match format {
                1 => (whole(bytes)?, None),
                _ => whole(bytes)?,
            };
            Ok(Self { next_seq, at })
        }
    }

    const KEY: &[u8] = b"unit";
    const OLD: ReadFormats = ReadFormats { min: 1, max: 1 };
    const NEW: ReadFormats = ReadFormats { min: 1, max: 2 };

    /// One decision by a program on the shared state.
    fn decide(store: &mut MemoryStore, reads: ReadFormats, writes: u8, at: i64) -> Result<u64> {
        let head = match store.get(KEY)? {
            Some(bytes) => decode_by::<Head>(reads, &bytes)?,
            None => Head { next_seq: 0, at: None },
        };
        let next = Head { next_seq: head.next_seq + 1, at: (reads.max > 1).then_some(at) };
        store.apply(vec![(KEY.to_vec(), Some(encode_as(writes, &next)))])?;
        Ok(next.next_seq)
    }

    /// Two versions hand a unit to and fro while the new one writes the old format; after the format is raised,
    /// only the new one can go on, and reads what both left.
    #[test]
    fn two_versions_share_a_state_until_the_format_is_raised() {
        let mut store = MemoryStore::default();
        for turn in 0..4 {
            let reads = if turn % 2 == 0 { OLD } else { NEW };
            assert_eq!(decide(&mut store, reads, 1, turn).unwrap(), turn.cast_unsigned() + 1);
        }
        assert_eq!(decide(&mut store, NEW, 2, 4).unwrap(), 5);
        assert_eq!(decide(&mut store, OLD, 1, 5).unwrap_err().code(), Code::StateFormat);
        let bytes = store.get(KEY).unwrap().unwrap();
        assert_eq!(decode_by::<Head>(NEW, &bytes).unwrap(), Head { next_seq: 5, at: Some(4) });
        // A new program that wrote its own format at once would lock the old one out: the guard above is real.
        let mut early = MemoryStore::default();
        decide(&mut early, NEW, 2, 0).unwrap();
        assert_eq!(decide(&mut early, OLD, 1, 1).unwrap_err().code(), Code::StateFormat);
    }
}
