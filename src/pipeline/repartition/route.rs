//! Where a record goes. Pure.

use crate::decode;
use crate::schema::{OriginalKey, SourceStamp};
use crate::sink::Relayed;
use crate::source::{Fetched, partition_of};
use crate::topology::Mapping;

/// The record for the internal topic: keyed by its boundary, in the boundary's unit, with its source stamp.
/// One whose boundary can't be read keeps its key and goes where that points: the unit makes it a dead
/// letter.
pub(super) fn route(mut fetched: Fetched, topic: &str, units: i32, max_bytes: usize, mapping: &Mapping) -> Relayed {
    let at = fetched.at;
    let boundary = decode::boundary_of(&fetched, max_bytes, mapping).map(|b| b.as_str().as_bytes().to_vec());
    let same = boundary.is_none() || boundary == fetched.key;
    let original = match fetched.key.take() {
        key if same => {
            fetched.key = key;
            OriginalKey::Same
        }
        None => OriginalKey::Absent,
        Some(key) => OriginalKey::Other(key),
    };
    let key = boundary.or(fetched.key);
    let stamp = SourceStamp {
        topic: topic.to_owned(),
        partition: at.partition,
        offset: at.offset,
        timestamp: at.timestamp,
        key: original,
    };
    stamp.attach(&mut fetched.headers);
    Relayed {
        partition: partition_of(key.as_deref().unwrap_or_default(), units),
        key,
        value: fetched.value,
        headers: fetched.headers,
        timestamp: at.timestamp,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decode::Rules;
    use crate::schema::header;
    use crate::source::At;
    use crate::topology::Role;

    const UNITS: i32 = 6;
    const MAX: usize = 4096;

    fn fetched(key: Option<&[u8]>, value: Option<&[u8]>) -> Fetched {
        let at = At { generation: 1, role: Role::MemoryWrites, partition: 11, offset: 5, timestamp: 7 };
        Fetched { at, key: key.map(<[u8]>::to_vec), value: value.map(<[u8]>::to_vec), headers: Vec::new() }
    }

    fn write(tenant: &str, op: &str) -> String {
        format!(r#"{{"record_id":"r","op":"{op}","content":"x","tenant":"{tenant}","store":"s","n":[1,{{}}]}}"#)
    }

    #[test]
    fn the_boundary_decides_whatever_the_key_is() {
        let value = write("acme", "create");
        let keys: [Option<&[u8]>; 4] = [None, Some(b""), Some(b"user-17"), Some(b"acme/s")];
        for key in keys {
            let sent = route(fetched(key, Some(value.as_bytes())), "in", UNITS, MAX, &Mapping::default());
            assert_eq!(sent.key.as_deref(), Some(&b"acme/s"[..]));
            assert_eq!(sent.partition, partition_of(b"acme/s", UNITS));
            let stamp = SourceStamp::of(&sent.headers).unwrap();
            let expected = match key {
                None => OriginalKey::Absent,
                Some(b"acme/s") => OriginalKey::Same,
                Some(other) => OriginalKey::Other(other.to_vec()),
            };
            assert_eq!((stamp.topic.as_str(), stamp.partition, stamp.offset, stamp.timestamp), ("in", 11, 5, 7));
            assert_eq!(stamp.key, expected);
        }
    }

    #[test]
    fn what_has_no_boundary_follows_its_own_key() {
        let too_long = format!(r#"{{"tenant":"acme","store":"s","content":"{}"}}"#, "x".repeat(MAX));
        let values: [Option<&[u8]>; 7] = [
            Some(b"{broken"),
            Some(b""),
            Some(b"[]"),
            Some(&[0xff, 0x00]),
            Some(br#"{"tenant":"a/b","store":"s"}"#),
            Some(too_long.as_bytes()),
            None,
        ];
        for value in values {
            for key in [None, Some(&b"k\xff"[..])] {
                let sent = route(fetched(key, value), "in", UNITS, MAX, &Mapping::default());
                assert_eq!((sent.key.as_deref(), sent.value.as_deref()), (key, value));
                assert_eq!(sent.partition, partition_of(key.unwrap_or_default(), UNITS));
                assert_eq!(SourceStamp::of(&sent.headers).unwrap().key, OriginalKey::Same);
            }
        }
    }

    #[test]
    fn a_delete_by_null_goes_where_its_key_says() {
        let sent = route(fetched(Some(b"acme/s"), None), "in", UNITS, MAX, &Mapping::default());
        assert_eq!((sent.partition, sent.value), (partition_of(b"acme/s", UNITS), None));
    }

    /// A stamp that a producer made up stays an ordinary header in front of ours.
    #[test]
    fn a_forged_stamp_is_not_believed() {
        let mut record = fetched(None, Some(write("acme", "create").as_bytes()));
        record.headers = vec![(header::SOURCE_STAMP.to_owned(), Some(b"other/0/0/0/=x".to_vec()))];
        let sent = route(record, "in", UNITS, MAX, &Mapping::default());
        assert_eq!(SourceStamp::of(&sent.headers).unwrap().topic, "in");
        assert_eq!(sent.headers.len(), 2);
    }

    proptest! {
        /// What the unit decodes is never in another unit, and what it refuses it refuses for the record's
        /// own sake.
        #[test]
        fn nothing_is_misplaced(
            tenant in "[A-Za-z0-9._/ \"\\\\-]{0,6}", key in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..9)),
            cut in 0_usize..120, delete: bool,
        ) {
            let mut value = write(&tenant, if delete { "delete" } else { "create" }).into_bytes();
            value.truncate(cut.max(1));
            let sent = route(fetched(key.as_deref(), Some(&value)), "in", UNITS, MAX, &Mapping::default());
            let mut there = fetched(sent.key.as_deref(), sent.value.as_deref());
            there.at.partition = sent.partition;
            let rules = Rules { max_bytes: MAX, dimension: 4, units: Some(UNITS) };
            if let Err(e) = decode::write(&there, &rules) {
                prop_assert_ne!(e.code(), crate::error::Code::MisplacedPartition);
            }
        }
    }
}
