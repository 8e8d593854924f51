//! An operator's reset: from there on the inputs are decided anew, and what stands before it is superseded.
//! Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

/// `body` of a record of kind `reset`.
#[derive(Debug, Deserialize)]
pub(crate) struct ResetBody<'a> {
    #[serde(borrow)]
    input_vector: BTreeMap<Cow<'a, str>, i64>,
    #[serde(borrow)]
    reset: Facts<'a>,
}

#[derive(Debug, Deserialize)]
struct Facts<'a> {
    #[serde(borrow)]
    before: BTreeMap<Cow<'a, str>, i64>,
    #[serde(borrow)]
    outputs: BTreeMap<Cow<'a, str>, i64>,
}

/// A reset of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reset {
    /// First input that is decided anew.
    pub(crate) next: i64,
    /// First input that was not decided before it; inputs from here to `next` were passed over.
    pub(crate) before: i64,
    /// Ends of the outputs at the reset.
    outputs: BTreeMap<String, i64>,
}

impl Reset {
    /// Reads a body; `None` when it says nothing of the topic of the inputs.
    pub(crate) fn read(body: &str, writes: &str) -> Option<Self> {
        let body: ResetBody<'_> = serde_json::from_str(body).ok()?;
        let next = *body.input_vector.get(writes)?;
        let before = body.reset.before.get(writes).copied().unwrap_or(0);
        let outputs = body.reset.outputs.into_iter().map(|(t, o)| (t.into_owned(), o)).collect();
        Some(Self { next, before, outputs })
    }
}

/// All resets, by partition.
#[derive(Debug, Default)]
pub(crate) struct Resets(BTreeMap<i32, Vec<Reset>>);

impl Resets {
    pub(crate) fn add(&mut self, partition: i32, reset: Reset) {
        self.0.entry(partition).or_default().push(reset);
    }

    /// Whether an output at `at` of its topic, made from `input`, was made before a reset that had its input
    /// decided anew.
    pub(crate) fn supersede(&self, topic: &str, partition: i32, at: i64, input: i64) -> bool {
        let mut own = self.0.get(&partition).into_iter().flatten();
        own.any(|r| input >= r.next && r.outputs.get(topic).is_some_and(|end| at < *end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_and_applied() {
        let body =
            r#"{"id":"x","input_vector":{"r":3,"w":5},"kind":"reset","reset":{"before":{"w":9},"outputs":{"c":40}}}"#;
        let reset = Reset::read(body, "w").unwrap();
        assert_eq!((reset.next, reset.before), (5, 9));
        assert_eq!(Reset::read(body, "other"), None);
        let mut resets = Resets::default();
        resets.add(1, reset);
        assert!(resets.supersede("c", 1, 39, 5));
        for (topic, partition, at, input) in [("c", 1, 40, 5), ("c", 1, 39, 4), ("c", 2, 39, 5), ("q", 1, 39, 5)] {
            assert!(!resets.supersede(topic, partition, at, input), "{topic} {partition} {at} {input}");
        }
    }
}
