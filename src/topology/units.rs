//! Times and sizes as a topology writes them: `30s`, `32MiB`.

use serde::{Deserialize, Deserializer};

pub(super) mod optional_duration {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::time::Duration;

    #[derive(Serialize, Deserialize)]
    struct Wrapped(#[serde(with = "super::duration")] Duration);

    #[allow(clippy::ref_option)] // serde's shape
    pub(in crate::topology) fn serialize<S: Serializer>(value: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
        value.map(Wrapped).serialize(s)
    }

    pub(in crate::topology) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Wrapped>::deserialize(d)?.map(|w| w.0))
    }
}

pub(super) mod duration {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub(in crate::topology) fn serialize<S: Serializer>(value: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&humantime::format_duration(*value).to_string())
    }

    pub(in crate::topology) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(d)?;
        humantime::parse_duration(&text).map_err(serde::de::Error::custom)
    }
}

pub(super) fn bytes<'de, D: Deserializer<'de>>(d: D) -> Result<usize, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Number(usize),
        Text(String),
    }
    let text = match Form::deserialize(d)? {
        Form::Number(n) => return Ok(n),
        Form::Text(t) => t,
    };
    let parsed = [("KiB", 1_usize << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)]
        .iter()
        .find_map(|(unit, scale)| text.strip_suffix(unit)?.trim().parse::<usize>().ok()?.checked_mul(*scale));
    parsed.ok_or_else(|| serde::de::Error::custom(format!("'{text}' is not a size such as 32MiB")))
}
