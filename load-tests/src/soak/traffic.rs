//! What is written and retrieved: seeded, with everything that a stream must bear. Pure.

use serde_json::{Value, json};

use crate::generate::rng::Rng;
use crate::generate::store;
use crate::generate::text::{direction, sentences, vector};

const TENANT: &str = "soak";
/// Vectors of each boundary; writes and queries choose among them.
const VECTORS: usize = 64;
/// Retrievals of one session.
const SESSION: u64 = 12;
/// Honeypots of each boundary.
const TRAPS: usize = 3;
/// Length of a content, bytes.
const CONTENT: usize = 160;

/// A record for an input topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) key: String,
    pub(crate) value: Vec<u8>,
}

#[derive(Debug)]
struct Boundary {
    store: String,
    vectors: Vec<String>,
    writes: u64,
    retrievals: u64,
}

/// Makes records.
#[derive(Debug)]
pub(crate) struct Traffic {
    rng: Rng,
    boundaries: Vec<Boundary>,
}

impl Traffic {
    /// `count` boundaries spread over `partitions`.
    pub(crate) fn new(seed: u64, count: u32, partitions: u32) -> Self {
        let mut rng = Rng::new(seed, 20);
        let make = |i| {
            let centre = direction(&mut rng);
            let vectors = (0..VECTORS).map(|_| vector(&mut rng, &centre)).collect();
            Boundary { store: store(TENANT, i, partitions), vectors, writes: 0, retrievals: 0 }
        };
        let boundaries = (0..count).map(make).collect();
        Self { rng, boundaries }
    }

    /// The honeypots as lines for `memsluice honeypots load`.
    pub(crate) fn honeypots(&self) -> String {
        let line = |store: &str, i: usize| json!({"tenant": TENANT, "store": store, "honeypot_id": format!("hp-{store}-{i}"), "record_id": trap(i)});
        let all = self.boundaries.iter().flat_map(|b| (0..TRAPS).map(|i| line(&b.store, i)));
        all.map(|l| format!("{l}\n")).collect()
    }

    /// Number of boundaries.
    pub(crate) fn boundaries(&self) -> usize {
        self.boundaries.len()
    }

    /// A write of any boundary: allowed, held, deleted or broken.
    pub(crate) fn write(&mut self) -> Made {
        let index = self.rng.below(self.boundaries.len());
        let dice = self.rng.below(100);
        if dice < 3 {
            return Made { key: self.key(index), value: br#"{"tenant": "soak", "store"#.to_vec() };
        }
        let mut value = self.plain(index);
        match dice {
            3..=5 => value["origin"] = json!("rumour"),
            6..=7 => value["content"] = json!(" "),
            8..=17 => value["origin"] = json!("retrieved"),
            18..=19 => {
                value = json!({"origin": null, "tenant": TENANT, "store": value["store"], "record_id": value["record_id"],
                                      "op": "create", "content": "no origin", "embedding": value["embedding"]})
            }
            20..=23 => value["op"] = json!("delete"),
            24..=31 => {
                value["op"] = json!("update");
                let known = self.boundaries[index].writes;
                value["record_id"] = json!(format!("w-{}", self.rng.next() % known.max(1)));
            }
            _ => {}
        }
        Made { key: self.key(index), value: value.to_string().into_bytes() }
    }

    /// A write of boundary `index` that is allowed.
    pub(crate) fn allowed(&mut self, index: usize) -> Made {
        Made { key: self.key(index), value: self.plain(index).to_string().into_bytes() }
    }

    /// A retrieval of any boundary.
    pub(crate) fn retrieval(&mut self) -> Made {
        let index = self.rng.below(self.boundaries.len());
        self.retrieval_of(index)
    }

    /// A retrieval of boundary `index`.
    pub(crate) fn retrieval_of(&mut self, index: usize) -> Made {
        let key = self.key(index);
        let dice = self.rng.below(100);
        if dice < 2 {
            return Made { key, value: b"{".to_vec() };
        }
        let number = self.boundaries[index].retrievals;
        self.boundaries[index].retrievals += 1;
        let session = number / SESSION;
        // Every fourth session hunts for memories and meets honeypots.
        let hit = session.is_multiple_of(4) && self.rng.below(10) < 6;
        let mut results: Vec<Value> =
            (0..3).map(|_| json!({"id": format!("w-{}", self.rng.below(1000)), "tenant": TENANT})).collect();
        if hit {
            results[self.rng.below(3)] = json!({"id": trap(self.rng.below(TRAPS))});
        }
        let mut value = json!({
            "tenant": TENANT, "store": self.boundaries[index].store, "event_id": format!("r-{number}"),
            "session_id": format!("s-{session}"), "principal": format!("u-{}", session % 9), "results": results,
            "query": "what is known?", "query_embedding": {"i16": self.vector(index)}, "k": 3,
        });
        match dice {
            2..=4 => value["background"] = json!(true),
            5..=7 => value["results"] = json!([]),
            8..=10 => value["k"] = json!(1),
            // The agent's retry: the same event once more.
            11..=14 => value["event_id"] = json!(format!("r-{}", number.saturating_sub(1))),
            _ => {}
        }
        Made { key, value: value.to_string().into_bytes() }
    }

    fn plain(&mut self, index: usize) -> Value {
        let number = self.boundaries[index].writes;
        self.boundaries[index].writes += 1;
        let content = sentences(&mut self.rng, CONTENT);
        json!({
            "tenant": TENANT, "store": self.boundaries[index].store, "record_id": format!("w-{number}"), "op": "create",
            "content": content, "origin": "user_input", "principal": format!("u-{}", self.rng.below(20)),
            "session_id": format!("ws-{}", number / 20), "embedding": {"i16": self.vector(index)},
        })
    }

    fn vector(&mut self, index: usize) -> String {
        let known = &self.boundaries[index].vectors;
        known[self.rng.below(known.len())].clone()
    }

    fn key(&self, index: usize) -> String {
        format!("{TENANT}/{}", self.boundaries[index].store)
    }
}

fn trap(i: usize) -> String {
    format!("trap-{i}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_records() {
        let made = |seed| {
            let mut traffic = Traffic::new(seed, 3, 6);
            (0..50).flat_map(|_| [traffic.write(), traffic.retrieval()]).collect::<Vec<_>>()
        };
        assert_eq!(made(1), made(1));
        assert_ne!(made(1), made(2));
    }
}
