//! Settings of internal topics: what a repartition topic must have so that no record of its source is
//! refused, dropped or given another time.

use crate::topology::{Retention, Role, Topology};

/// Timestamps were bounded when the source took them; this leaves room for clocks that differ.
const AHEAD_MS: &str = "600000";

/// A setting that disagrees, in words; `source` and `internal` look up what the broker has.
pub(super) fn disagrees(
    topology: &Topology,
    role: Role,
    framing: usize,
    source: impl Fn(&str) -> String,
    internal: impl Fn(&str) -> String,
) -> Option<String> {
    if internal("message.timestamp.type") == "LogAppendTime" {
        return Some("message.timestamp.type is not CreateTime: record times would be lost".to_owned());
    }
    if internal("cleanup.policy") != "delete" {
        return Some("cleanup.policy is not delete".to_owned());
    }
    let size = |text: String| text.parse::<usize>().unwrap_or(usize::MAX);
    let (needed, found) = (needed(size(source("max.message.bytes")), framing), size(internal("max.message.bytes")));
    if found < needed {
        let name = &topology.source(role).name;
        return Some(format!("max.message.bytes {found} is below that of {name} plus coordinates, {needed}"));
    }
    None
}

/// What the topic behind an input is created with.
pub(super) fn settings(topology: &Topology, role: Role, source_max: usize, framing: usize) -> Vec<(String, String)> {
    let retention = match topology.topic(role).retention {
        Retention::Forever => "-1".to_owned(),
        Retention::For(d) => d.as_millis().to_string(),
    };
    let bounded = topology.source(role).timestamps.is_some();
    let ahead = if bounded { AHEAD_MS.to_owned() } else { i64::MAX.to_string() };
    [
        ("cleanup.policy", "delete".to_owned()),
        ("retention.ms", retention),
        ("message.timestamp.type", "CreateTime".to_owned()),
        ("message.timestamp.after.max.ms", ahead),
        ("message.timestamp.before.max.ms", i64::MAX.to_string()),
        ("max.message.bytes", needed(source_max, framing).to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// Kafka keeps this as a signed 32-bit number.
fn needed(source_max: usize, framing: usize) -> usize {
    source_max.saturating_add(framing).min(i32::MAX as usize)
}
