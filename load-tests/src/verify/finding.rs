//! What is read of a record of `attacks`. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use crate::verify::record::Input;

#[derive(Debug, Deserialize)]
struct Info {
    types: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    correlation_uid: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Evidence {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Unmapped {
    boundary: String,
}

#[derive(Debug, Deserialize)]
struct Record {
    finding_info: Info,
    metadata: Metadata,
    #[serde(default)]
    evidences: Vec<Evidence>,
    unmapped: Unmapped,
}

/// A finding.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// A write was held: the input.
    Held(Input<'static>),
    /// A session crossed the bound: boundary and session.
    Session(String, String),
    /// Something else.
    Other,
}

/// Reads a record; `None` when it is none.
pub(crate) fn read(value: &[u8]) -> Option<Finding> {
    let record: Record = serde_json::from_slice(value).ok()?;
    match record.finding_info.types.first()?.as_str() {
        "memory-poisoning" => {
            let input = record.evidences.first()?.data.get("input")?;
            let (topic_and_partition, offset) = input.rsplit_once('@')?;
            let (topic, partition) = topic_and_partition.rsplit_once('-')?;
            let (partition, offset) = (partition.parse().ok()?, offset.parse().ok()?);
            Some(Finding::Held(Input { topic: Cow::Owned(topic.to_owned()), partition, offset }))
        }
        "memory-extraction" => Some(Finding::Session(record.unmapped.boundary, record.metadata.correlation_uid?)),
        _ => Some(Finding::Other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_findings() {
        let made = |kind: &str, data: &str| {
            let text = format!(
                r#"{{"finding_info":{{"types":["{kind}"]}},"metadata":{{"correlation_uid":"s"}},"evidences":[{{"data":{{{data}}}}}],"unmapped":{{"boundary":"t/b"}}}}"#
            );
            read(text.as_bytes())
        };
        let held = made("memory-poisoning", r#""input":"p.memory-writes-3@17""#);
        let input = Input { topic: "p.memory-writes".into(), partition: 3, offset: 17 };
        assert_eq!(held, Some(Finding::Held(input)));
        assert_eq!(made("memory-extraction", ""), Some(Finding::Session("t/b".to_owned(), "s".to_owned())));
        assert_eq!(made("cross-tenant-retrieval", ""), Some(Finding::Other));
        assert_eq!(made("memory-poisoning", ""), None);
    }
}
