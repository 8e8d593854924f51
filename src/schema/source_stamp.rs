//! Where a record of an internal topic came from: one header, always the last.

use super::{Headers, header};
use crate::clock::Millis;

/// The key that the record had in its source topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OriginalKey {
    /// The one it has now.
    Same,
    /// None.
    Absent,
    /// Other bytes.
    Other(Vec<u8>),
}

/// SourceStamp in the source topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceStamp {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Offset.
    pub offset: i64,
    /// Record time.
    pub timestamp: Millis,
    /// Key.
    pub key: OriginalKey,
}

impl SourceStamp {
    /// Puts them behind the record's own headers. Position is what counts: a producer may send a header
    /// of the same name, but never behind this one.
    pub fn attach(&self, headers: &mut Headers) {
        let mut value = format!("{}/{}/{}/{}", self.topic, self.partition, self.offset, self.timestamp).into_bytes();
        match &self.key {
            OriginalKey::Same => {}
            OriginalKey::Absent => value.extend_from_slice(b"/-"),
            OriginalKey::Other(key) => {
                value.extend_from_slice(b"/=");
                value.extend_from_slice(key);
            }
        }
        headers.push((header::SOURCE_STAMP.to_owned(), Some(value)));
    }

    /// Reads the last header; `None` when it is not ours.
    #[must_use]
    pub fn of(headers: &Headers) -> Option<Self> {
        let (name, value) = headers.last()?;
        if name != header::SOURCE_STAMP {
            return None;
        }
        let mut parts = value.as_deref()?.splitn(5, |b| *b == b'/');
        let mut text = || std::str::from_utf8(parts.next()?).ok();
        let (topic, partition, offset, timestamp) = (text()?, text()?, text()?, text()?);
        let key = match parts.next() {
            None => OriginalKey::Same,
            Some(b"-") => OriginalKey::Absent,
            Some([b'=', key @ ..]) => OriginalKey::Other(key.to_vec()),
            Some(_) => return None,
        };
        Some(Self {
            topic: topic.to_owned(),
            partition: partition.parse().ok()?,
            offset: offset.parse().ok()?,
            timestamp: timestamp.parse().ok()?,
            key,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = OriginalKey> {
        prop_oneof![
            Just(OriginalKey::Same),
            Just(OriginalKey::Absent),
            proptest::collection::vec(any::<u8>(), 0..40).prop_map(OriginalKey::Other),
        ]
    }

    fn headers() -> impl Strategy<Value = Headers> {
        let name = prop_oneof![Just(header::SOURCE_STAMP.to_owned()), "[a-z]{1,8}"];
        let value = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..30));
        proptest::collection::vec((name, value), 0..6)
    }

    proptest! {
        /// Whatever a producer sends, the last header alone speaks.
        #[test]
        fn come_back_and_cannot_be_forged(
            mut own in headers(), topic in "[A-Za-z0-9._-]{1,60}", partition: i32, offset: i64, timestamp: i64, key in key(),
        ) {
            let put = SourceStamp { topic, partition, offset, timestamp, key };
            let before = own.clone();
            put.attach(&mut own);
            prop_assert_eq!(SourceStamp::of(&own), Some(put));
            own.pop();
            prop_assert_eq!(own, before);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(value in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = SourceStamp::of(&vec![(header::SOURCE_STAMP.to_owned(), Some(value))]);
        }
    }
}
