//! JSON as a tree, strictly: no key twice, bounded depth and size. Two readers of such a text see the same.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::shape::dead;
use crate::error::{Code, Result};

/// Deepest nesting.
const DEPTH: usize = 32;
/// Most values in one text.
const VALUES: usize = 100_000;

/// Reads one JSON text.
///
/// # Errors
/// `invalid_json`; `invalid_record` for a key that stands twice, and above the bounds.
pub(super) fn parse(bytes: &[u8]) -> Result<Value> {
    let text = std::str::from_utf8(bytes)
        .map_err(|e| dead(Code::InvalidJson, format!("the value is not UTF-8 at byte {}", e.valid_up_to())))?;
    let mut left = VALUES;
    let mut json = serde_json::Deserializer::from_str(text);
    let read = Seed { depth: DEPTH, left: &mut left }.deserialize(&mut json).and_then(|v| json.end().map(|()| v));
    read.map_err(|e| {
        let (code, what) = match e.classify() {
            serde_json::error::Category::Data => {
                (Code::InvalidRecord, "a key stands twice, or the value is too deep or has too many parts")
            }
            _ => (Code::InvalidJson, "the value is not JSON"),
        };
        dead(code, format!("{what} (line {} column {})", e.line(), e.column()))
    })
}

struct Seed<'a> {
    depth: usize,
    left: &'a mut usize,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> std::result::Result<Value, D::Error> {
        *self.left = self.left.checked_sub(1).ok_or_else(|| D::Error::custom("too many values"))?;
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, v: bool) -> std::result::Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> std::result::Result<Value, E> {
        Ok(Value::from(v))
    }

    fn visit_u64<E>(self, v: u64) -> std::result::Result<Value, E> {
        Ok(Value::from(v))
    }

    fn visit_f64<E>(self, v: f64) -> std::result::Result<Value, E> {
        Ok(Value::from(v))
    }

    fn visit_str<E>(self, v: &str) -> std::result::Result<Value, E> {
        Ok(Value::from(v))
    }

    fn visit_string<E>(self, v: String) -> std::result::Result<Value, E> {
        Ok(Value::from(v))
    }

    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Value, A::Error> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| A::Error::custom("too deep"))?;
        let mut out = Vec::new();
        while let Some(item) = seq.next_element_seed(Seed { depth, left: self.left })? {
            out.push(item);
        }
        Ok(Value::Array(out))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Value, A::Error> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| A::Error::custom("too deep"))?;
        let mut out = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value_seed(Seed { depth, left: self.left })?;
            if out.insert(key, value).is_some() {
                return Err(A::Error::custom("a key stands twice"));
            }
        }
        Ok(Value::Object(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        let code = |text: &str| parse(text.as_bytes()).unwrap_err().code();
        assert_eq!(code(r#"{"a":1,"a":2}"#), Code::InvalidRecord);
        assert_eq!(code(r#"{"x":{"a":1,"\u0061":2}}"#), Code::InvalidRecord);
        assert_eq!(code(&("[".repeat(DEPTH + 2) + &"]".repeat(DEPTH + 2))), Code::InvalidRecord);
        assert_eq!(code(&format!("[{}1]", "1,".repeat(VALUES))), Code::InvalidRecord);
        assert_eq!(code("{} {}"), Code::InvalidJson);
        assert_eq!(code(""), Code::InvalidJson);
        assert_eq!(parse(br#"{"a":[1,-2,0.5,"x",null,true]}"#).unwrap()["a"][2], 0.5);
    }
}
