//! What is read of a record of `decisions`, and of the headers of the outputs. Pure.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::verify::chain::Link;
use crate::verify::tally::Verdict;

/// A record of `decisions`: the body as the bytes that stand there.
#[derive(Debug, Deserialize)]
pub(crate) struct Record<'a> {
    #[serde(borrow)]
    pub(crate) body: &'a RawValue,
    pub(crate) chain: Link,
}

/// Kinds of records of `decisions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Decision,
    Activation,
    /// An operator's record was consumed: no verdict, no output.
    Control,
    /// The inputs are decided anew.
    Reset,
    /// On an input of several facts or none, after the decisions on them.
    Input,
    #[serde(other)]
    Other,
}

/// Coordinates of an input.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Input<'a> {
    #[serde(borrow)]
    pub(crate) topic: Cow<'a, str>,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
}

/// Scores in units of 1 / 32767^2, over `m` queries.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(crate) struct Memsad {
    pub(crate) m: Option<i64>,
    pub(crate) s_max: Option<i64>,
    pub(crate) s_mean: Option<i64>,
    pub(crate) s_comb: Option<i64>,
}

/// The body of a decision.
#[derive(Debug, Deserialize)]
pub(crate) struct Body<'a> {
    pub(crate) kind: Kind,
    #[serde(borrow)]
    pub(crate) input: Option<Input<'a>>,
    /// Which fact of its input.
    pub(crate) child: Option<u32>,
    /// How many facts the input holds.
    pub(crate) facts: Option<u32>,
    pub(crate) verdict: Option<Verdict>,
    #[serde(default)]
    reasons: Vec<String>,
    #[serde(default)]
    flags: Vec<String>,
    record_id: Option<String>,
    tenant: Option<String>,
    store: Option<String>,
    pub(crate) memsad: Option<Memsad>,
    /// Next offset of each input of the unit, by topic.
    #[serde(default)]
    pub(crate) input_vector: BTreeMap<String, i64>,
}

impl Body<'_> {
    /// Whether the screen is among what held the write.
    pub(crate) fn is_screened(&self) -> bool {
        self.reasons.iter().any(|r| r.starts_with("screen:"))
    }
}

/// One line of a dump.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    tenant: Option<String>,
    store: Option<String>,
    record_id: Option<String>,
    verdict: Option<Verdict>,
    reasons: Vec<String>,
    flags: Vec<String>,
    s_max: Option<i64>,
    s_mean: Option<i64>,
    s_comb: Option<i64>,
    #[serde(skip)]
    at: (i32, i64),
}

impl Line {
    /// The line of a decision.
    pub(crate) fn new(body: Body<'_>) -> Self {
        let memsad = body.memsad.unwrap_or_default();
        Self {
            at: body.input.as_ref().map_or((-1, -1), |i| (i.partition, i.offset)),
            tenant: body.tenant,
            store: body.store,
            record_id: body.record_id,
            verdict: body.verdict,
            reasons: body.reasons,
            flags: body.flags,
            s_max: memsad.s_max,
            s_mean: memsad.s_mean,
            s_comb: memsad.s_comb,
        }
    }

    /// Whether it is about an input of a partition from an offset on.
    pub(crate) fn is_of(&self, partition: i32, from: i64) -> bool {
        self.at.0 == partition && self.at.1 >= from
    }

    /// By boundary, record, then input.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        (&self.tenant, &self.store, &self.record_id, self.at).cmp(&(
            &other.tenant,
            &other.store,
            &other.record_id,
            other.at,
        ))
    }
}

/// `<topic>-<partition>-<offset>`; a topic may hold hyphens.
pub(crate) fn sequence(text: &str) -> Option<Input<'_>> {
    let mut parts = text.rsplitn(3, '-');
    let offset = parts.next()?.parse().ok()?;
    let partition = parts.next()?.parse().ok()?;
    let topic = parts.next().filter(|t| !t.is_empty())?.into();
    Some(Input { topic, partition, offset })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = r#"{"flags":["uncalibrated"],"id":"x","input":{"offset":5,"partition":2,"topic":"memory-writes"},"kind":"decision","memsad":{"flagged":false,"s_comb":3,"s_max":4,"s_mean":2,"threshold":null},"reasons":[],"record_id":"m-1","store":"s","tenant":"t","verdict":"dead_letter"}"#;

    #[test]
    fn a_record_keeps_the_bytes_of_its_body() {
        let spaced = BODY.replace(":5", " : 5");
        let text = format!(r#"{{"body":{spaced},"chain":{{"seq":0,"prev_hash":"00","entry_hash":"11"}}}}"#);
        let record: Record<'_> = serde_json::from_slice(text.as_bytes()).unwrap();
        assert_eq!(record.body.get(), spaced);
        let body: Body<'_> = serde_json::from_str(record.body.get()).unwrap();
        assert_eq!(body.verdict, Some(Verdict::DeadLetter));
        assert_eq!(body.input, Some(Input { topic: "memory-writes".into(), partition: 2, offset: 5 }));
    }

    #[test]
    fn a_line_of_the_dump() {
        let body: Body<'_> = serde_json::from_str(BODY).unwrap();
        assert_eq!(
            serde_json::to_string(&Line::new(body)).unwrap(),
            r#"{"tenant":"t","store":"s","record_id":"m-1","verdict":"dead_letter","reasons":[],"flags":["uncalibrated"],"s_max":4,"s_mean":2,"s_comb":3}"#
        );
    }

    #[test]
    fn kinds_of_the_future_are_read() {
        let body: Body<'_> = serde_json::from_str(r#"{"kind":"retraction"}"#).unwrap();
        assert_eq!(body.kind, Kind::Other);
    }

    #[test]
    fn sequences() {
        assert_eq!(sequence("a-b-3-17"), Some(Input { topic: "a-b".into(), partition: 3, offset: 17 }));
        assert!(sequence("3-17").is_none() && sequence("-3-17").is_none() && sequence("t-x-1").is_none());
    }
}
