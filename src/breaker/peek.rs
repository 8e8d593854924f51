//! Who a record is from and which record it is about, also where it can't be decoded: a lenient look at its
//! bytes. What is read here decides where a record is counted, never whether it is good.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use sha2::{Digest, Sha256};

use crate::schema::{Boundary, valid_id};
use crate::source::Fetched;
use crate::topology::Role;

/// Bytes of a refused value that are looked at.
const LOOK: usize = 64 << 10;
/// Longer names are hashed, so that an entry stays small.
const NAME: usize = 128;

/// Fields by which a source is named, in order: the first that is present counts.
const WHO: [&str; 4] = ["principal", "session_id", "written_by", "source_ref"];

/// Text fields of the outermost object, as far as the value could be read.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Peek {
    tenant: Option<String>,
    store: Option<String>,
    record_id: Option<String>,
    who: [Option<String>; 4],
    /// Read to its end.
    whole: bool,
}

impl Peek {
    /// Looks at a record: all of one that was decoded, the first bytes of one that was refused.
    #[must_use]
    pub fn of(fetched: &Fetched, refused: bool) -> Self {
        let mut peek = Self::default();
        let Some(value) = &fetched.value else {
            peek.record_id =
                fetched.header(crate::schema::header::RECORD_ID).and_then(|id| String::from_utf8(id.to_vec()).ok());
            peek.whole = true;
            return peek;
        };
        let bytes = if refused { &value[..value.len().min(LOOK)] } else { value.as_slice() };
        let mut json = serde_json::Deserializer::from_slice(bytes);
        // A fault ends the look; what stood before it is kept.
        let read = json.deserialize_map(Fields(&mut peek)).and_then(|()| json.end());
        peek.whole = read.is_ok() && bytes.len() == value.len();
        peek
    }

    /// The boundary it names, else that of its Kafka key.
    fn boundary(&self, fetched: &Fetched) -> Option<Boundary> {
        let named = self.tenant.as_deref().zip(self.store.as_deref()).and_then(|(t, s)| Boundary::new(t, s).ok());
        named.or_else(|| Boundary::parse(std::str::from_utf8(fetched.key.as_deref()?).ok()?).ok())
    }

    /// `boundary/id` of the record (an event's session) that it is about.
    #[must_use]
    pub fn subject(&self, fetched: &Fetched) -> Option<String> {
        let id = match fetched.at.role {
            Role::RetrievalLogs => self.who[1].as_deref(),
            _ => self.record_id.as_deref(),
        };
        Some(format!("{}/{}", self.boundary(fetched)?, id.filter(|id| valid_id(id))?))
    }

    /// What is known of a record that was decoded, with a principal.
    #[must_use]
    pub fn decoded(boundary: &Boundary, record_id: Option<&str>, principal: &str, session: Option<&str>) -> Self {
        Self {
            tenant: Some(boundary.tenant().to_owned()),
            store: Some(boundary.store().to_owned()),
            record_id: record_id.map(str::to_owned),
            who: [Some(principal.to_owned()), session.map(str::to_owned), None, None],
            whole: true,
        }
    }

    /// The source of the records of its boundary that don't say whose they are; good ones of the boundary
    /// count for it, so that a few of them among many are no row.
    #[must_use]
    pub fn unreadable(&self, fetched: &Fetched) -> Option<String> {
        Some(source(fetched.at.role, self.boundary(fetched)?.as_str(), None, false))
    }

    /// The name of its source.
    #[must_use]
    pub fn source(&self, fetched: &Fetched) -> String {
        let Some(boundary) = self.boundary(fetched) else {
            return source(fetched.at.role, &record_key(fetched).unwrap_or_else(|| "no key".to_owned()), None, false);
        };
        let named =
            WHO.iter().zip(&self.who).find_map(|(field, v)| Some((*field, v.as_deref().filter(|v| valid_id(v))?)));
        source(fetched.at.role, boundary.as_str(), named, self.whole)
    }
}

/// Who of the records that break off before they say it.
const UNREADABLE: &str = "?";

/// Input, boundary and who. Records that name nobody share `-`; where the value broke off first, it is `?`,
/// which no record that can be decoded belongs to.
fn source(input: Role, scope: &str, who: Option<(&str, &str)>, whole: bool) -> String {
    let who = match who {
        Some((field, name)) => format!("{field}:{}", short(name)),
        None if whole => "-".to_owned(),
        None => UNREADABLE.to_owned(),
    };
    format!("{}/{scope}/{who}", input.as_str())
}

/// The Kafka key where it is a boundary, else its hash; `None` for a null key.
#[must_use]
pub fn record_key(fetched: &Fetched) -> Option<String> {
    let key = fetched.key.as_deref()?;
    match std::str::from_utf8(key).ok().and_then(|text| Boundary::parse(text).ok()) {
        Some(boundary) => Some(format!("key:{boundary}")),
        None => Some(format!("key#{}", hash(key))),
    }
}

fn short(name: &str) -> Cow<'_, str> {
    if name.len() <= NAME { Cow::Borrowed(name) } else { Cow::Owned(format!("#{}", hash(name.as_bytes()))) }
}

fn hash(bytes: &[u8]) -> String {
    hex::encode(&Sha256::digest(bytes)[..16])
}

struct Fields<'a>(&'a mut Peek);

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            let slot = match name.as_ref() {
                "tenant" => &mut self.0.tenant,
                "store" => &mut self.0.store,
                "record_id" => &mut self.0.record_id,
                other => match WHO.iter().position(|w| *w == other) {
                    Some(i) => &mut self.0.who[i],
                    None => {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                },
            };
            let text = map.next_value_seed(Text)?;
            // Of a field that stands twice the first counts.
            if slot.is_none() {
                *slot = text;
            }
        }
        Ok(())
    }
}

/// A string, or `None` for any other value.
struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E>(self, v: &str) -> Result<Self::Value, E> {
        Ok(Some(v.to_owned()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::source::At;

    const KEY: &[u8] = b"acme/support";

    fn record(value: &[u8], key: Option<&[u8]>) -> Fetched {
        let at = At { generation: 0, role: Role::MemoryWrites, partition: 0, offset: 0, timestamp: 0 };
        Fetched { at, key: key.map(<[u8]>::to_vec), value: Some(value.to_vec()), headers: Vec::new() }
    }

    fn source_of(value: &str) -> String {
        let fetched = record(value.as_bytes(), Some(KEY));
        Peek::of(&fetched, true).source(&fetched)
    }

    #[test]
    fn the_first_name_counts() {
        let named = |value| source_of(&format!(r#"{{"tenant":"t","store":"s",{value}}}"#));
        for (value, who) in [
            (r#""principal":"p","session_id":"x","written_by":"w","source_ref":"r""#, "principal:p"),
            (r#""principal":null,"session_id":"x","written_by":"w""#, "session_id:x"),
            (r#""principal":7,"session_id":[1],"written_by":{"a":1},"source_ref":"r""#, "source_ref:r"),
            (r#""principal":"","source_ref":"a\u0000b""#, "-"),
            (r#""principal":"first","principal":"second""#, "principal:first"),
            (r#""content":"x""#, "-"),
        ] {
            assert_eq!(named(value), format!("memory-writes/t/s/{who}"), "{value}");
        }
    }

    /// What stood before the fault counts; nothing that decodes belongs to `?`.
    #[test]
    fn broken_values_are_read_up_to_the_fault() {
        assert_eq!(
            source_of(r#"{"tenant":"t","store":"s","principal":"p","content":"x"#),
            "memory-writes/t/s/principal:p"
        );
        assert_eq!(source_of(r#"{"tenant":"t","store":"s","content":NaN,"principal":"p"}"#), "memory-writes/t/s/?");
        assert_eq!(source_of("{not json"), "memory-writes/acme/support/?");
        assert_eq!(source_of("[]"), "memory-writes/acme/support/?");
        assert_eq!(source_of(r#"{"tenant":"a b","store":"s"}"#), "memory-writes/acme/support/-");
        let long = format!(r#"{{"content":"{}","principal":"p"}}"#, "x".repeat(LOOK));
        assert_eq!(source_of(&long), "memory-writes/acme/support/?");
        let fetched = record(long.as_bytes(), Some(KEY));
        assert_eq!(Peek::of(&fetched, false).source(&fetched), "memory-writes/acme/support/principal:p");
    }

    #[test]
    fn without_a_boundary_the_key_counts() {
        let of = |key: Option<&[u8]>| {
            let fetched = record(b"{}", key);
            (Peek::of(&fetched, true).source(&fetched), record_key(&fetched))
        };
        assert_eq!(of(None), ("memory-writes/no key/?".to_owned(), None));
        for key in [&b"k"[..], b"\xff\0", b""] {
            let (source, key) = of(Some(key));
            assert_eq!(source, format!("memory-writes/{}/?", key.clone().unwrap()));
            assert!(key.unwrap().starts_with("key#"));
        }
        assert_eq!(of(Some(KEY)), ("memory-writes/acme/support/-".to_owned(), Some("key:acme/support".to_owned())));
    }

    proptest! {
        /// No bytes make it fail, and what it returns is short, without control characters: it is part of a key.
        #[test]
        fn any_bytes_give_a_clean_name(value in prop::collection::vec(any::<u8>(), 0..200), text in ".{0,600}",
                                       key in prop::option::of(prop::collection::vec(any::<u8>(), 0..700)), refused in any::<bool>()) {
            let json = serde_json::json!({"tenant": "t", "store": "s", "principal": text, "record_id": text}).to_string();
            for value in [&value[..], json.as_bytes(), &json.as_bytes()[..json.len() / 2]] {
                let fetched = record(value, key.as_deref());
                let peek = Peek::of(&fetched, refused);
                let names = [Some(peek.source(&fetched)), peek.subject(&fetched), record_key(&fetched)];
                for name in names.into_iter().flatten() {
                    prop_assert!(name.len() <= 800 && !name.chars().any(char::is_control), "{name:?}");
                }
            }
        }
    }
}
