//! JSON Schema (2020-12) of each record, derived from its type.

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::Value;

use super::{
    Attack, Calibration, DeadLetterStub, Decision, Honeypot, Meta, RawRetrieval, RawWrite, Review, ScreenCalibration,
};

/// Names that `memsluice schema print` knows.
#[must_use]
pub fn names() -> &'static [&'static str] {
    &[
        "memory-write",
        "retrieval-log",
        "review",
        "committed-memory",
        "quarantine",
        "decision",
        "attack",
        "dead-letter",
        "honeypot",
        "calibration",
        "screen-calibration",
        "meta",
    ]
}

/// The schema of a record; `None` for an unknown name. `committed-memory` and `quarantine` carry the
/// producer's bytes unchanged, so theirs is the write's.
#[must_use]
pub fn document(name: &str) -> Option<Value> {
    let mut value = match name {
        "memory-write" | "committed-memory" | "quarantine" => of::<RawWrite<'_>>(),
        "retrieval-log" => of::<RawRetrieval<'_>>(),
        "review" => of::<Review>(),
        "decision" => of::<Decision>(),
        "attack" => of::<Attack>(),
        "dead-letter" => of::<DeadLetterStub>(),
        "honeypot" => of::<Honeypot>(),
        "calibration" => of::<Calibration>(),
        "screen-calibration" => of::<ScreenCalibration>(),
        "meta" => of::<Meta>(),
        _ => return None,
    };
    value["$id"] = Value::String(format!("urn:memsluice:{name}:v1"));
    value["title"] = Value::String(name.to_owned());
    Some(value)
}

fn of<T: JsonSchema>() -> Value {
    SchemaGenerator::new(SchemaSettings::draft2020_12()).into_root_schema_for::<T>().to_value()
}
