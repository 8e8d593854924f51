//! Labels of records on the write path: those of a write's parents, and the one that it leaves.

use super::Engine;
use crate::decode::Write;
use crate::error::{Code, Error, Result};
use crate::policy::{Label, LabelNote, Parent};
use crate::schema::{Boundary, Op, valid_id};
use crate::sink::Output;
use crate::state::{self, Kind, State, Store, key};
use crate::topology::Role;

/// Records of a boundary whose labels are kept: those that were first written last.
const KEPT: u64 = 1 << 16;
/// Parents of one write that are looked up; what is named behind them counts as unknown.
const PARENTS: usize = 256;

/// Labels of the records that a write names and that are known; another tenant's are known by that alone.
///
/// # Errors
/// `state_failed`, `state_format`.
pub(super) fn parents<S: Store>(partition: i32, state: &State<S>, write: &Write) -> Result<Vec<Label>> {
    let b = &write.boundary;
    let mut found = Vec::new();
    for (i, named) in write.derived_from.iter().enumerate() {
        match Parent::of(b, named) {
            Parent::Foreign(tenant) => found.push(Label::unknown(tenant)),
            Parent::Here(id) if i < PARENTS && valid_id(id) => {
                found.extend(noted(partition, state, b, id)?.map(|n| n.label(b.tenant())));
            }
            Parent::Here(_) | Parent::Elsewhere => {}
        }
    }
    Ok(found)
}

impl Engine {
    /// Notes the label under the id of a write that was decided, held ones too: a reviewer may let them go. A producer
    /// that may not write for the tenant leaves nothing.
    pub(super) fn labelled<S: Store>(
        &self,
        partition: i32,
        state: &mut State<S>,
        write: &Write,
        label: &Label,
        outputs: &[Output],
    ) -> Result<()> {
        let dead = outputs.iter().any(|o| o.role == Role::DeadLetters);
        if dead || !self.policy.vouches(Role::MemoryWrites.as_str(), write.boundary.tenant()) {
            return Ok(());
        }
        note(partition, state, write, label, KEPT)
    }
}

/// Puts the least label of a record's versions into the state. Where labels were forgotten, an unknown record that is
/// updated or deleted may have had any: it counts 0.
fn note<S: Store>(partition: i32, state: &mut State<S>, write: &Write, label: &Label, kept: u64) -> Result<()> {
    let (b, id) = (&write.boundary, write.record_id.as_str());
    let new = LabelNote::new(label, b.tenant());
    if let Some(old) = noted(partition, state, b, id)? {
        let least = old.clone().least(new);
        if least != old {
            state.put(label_key(partition, b, id), state::encode(&least));
        }
        return Ok(());
    }
    let mark_key = key(Kind::LabelMark, partition, &[b.as_str()], None, &[]);
    let count: u64 = state.get(&mark_key)?.map(|v| state::decode(&v)).transpose()?.unwrap_or(0);
    let next = count.checked_add(1).ok_or_else(|| broken("the count of a boundary's labels"))?;
    let slot = key(Kind::LabelSlot, partition, &[b.as_str()], Some(count % kept), &[]);
    if let Some(oldest) = state.get(&slot)?.map(|v| state::decode::<String>(&v)).transpose()? {
        state.delete(label_key(partition, b, &oldest));
    }
    let unseen = count >= kept && write.op != Op::Create;
    let new = if unseen { new.least(LabelNote::new(&Label::unknown(b.tenant()), b.tenant())) } else { new };
    state.put(label_key(partition, b, id), state::encode(&new));
    state.put(slot, state::encode(&id.to_owned()));
    state.put(mark_key, state::encode(&next));
    Ok(())
}

fn noted<S: Store>(partition: i32, state: &State<S>, b: &Boundary, id: &str) -> Result<Option<LabelNote>> {
    let note: Option<LabelNote> = state.get(&label_key(partition, b, id))?.map(|v| state::decode(&v)).transpose()?;
    match note {
        Some(n) if !n.is_possible() => Err(broken("the label of a record")),
        note => Ok(note),
    }
}

fn label_key(partition: i32, b: &Boundary, id: &str) -> Vec<u8> {
    key(Kind::Label, partition, &[b.as_str(), id], None, &[])
}

fn broken(what: &str) -> Error {
    Error::new(Code::StateFormat, format!("{what} is broken"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::super::{Embeds, EngineSettings, Registry, Unit};
    use super::*;
    use crate::config::Secret;
    use crate::embed::Encoded;
    use crate::policy::Policy;
    use crate::schema::{Decision, DecisionBody, DecisionKind, Vector, Verdict};
    use crate::source::{At, Fetched};
    use crate::state::MemoryStore;
    use crate::topology::Topology;

    const LOW: &str = "{ name: low, action: quarantine, when: { trust_at_most: 1 } }";

    /// A unit that takes one write after another.
    struct Line {
        engine: Engine,
        state: State<MemoryStore>,
        unit: Unit,
        offset: i64,
    }

    impl Line {
        fn new(rules: &str) -> Self {
            let sample = include_str!("../../topology/policy.yaml");
            let head = sample.split("rules:").next().unwrap();
            let tools = if head.contains("\ntools:") { "" } else { "tools: [crm.lookup]\n" };
            let engine = Engine::new(EngineSettings {
                topology: Arc::new(Topology::sample().unwrap()),
                policy: Policy::parse(&format!("{head}{tools}rules: [{rules}]")).unwrap(),
                secret: Secret::new(&[7; 32]).unwrap(),
                encoder: "test".to_owned(),
                dimension: 4,
                partitioned: false,
            })
            .unwrap();
            let state = State::new(MemoryStore::default());
            let unit = Unit::load(0, BTreeMap::new(), BTreeMap::new(), &state).unwrap();
            Self { engine, state, unit, offset: 0 }
        }

        /// What becomes of a write that is made from `parents`.
        fn write(&mut self, id: &str, origin: &str, parents: &[&str], more: Value) -> DecisionBody {
            self.offset += 1;
            let mut value = json!({"tenant": "acme", "store": "support", "record_id": id, "op": "create",
                "content": format!("Note {id} is about a quiet day."), "origin": origin, "derived_from": parents,
                "principal": format!("p-{}", self.offset)});
            for (name, field) in more.as_object().unwrap() {
                value[name] = field.clone();
            }
            let key = format!("{}/{}", value["tenant"].as_str().unwrap(), value["store"].as_str().unwrap());
            let (partition, timestamp) = (0, 1_796_000_000_000 + self.offset);
            let at = At { generation: 0, role: Role::MemoryWrites, partition, offset: self.offset, timestamp };
            let value = Some(serde_json::to_vec(&value).unwrap());
            let fetched = Fetched { at, key: Some(key.into_bytes()), value, headers: Vec::new() };
            let (pending, embeds) = self.engine.admit(fetched);
            let vector = Vector::from_f64(&[1.0, 0.0, 0.0, 0.0]).unwrap();
            let embedded = matches!(embeds, Embeds::Text(_)).then(|| Ok(Encoded::given(vector)));
            let (unit, state) = (&mut self.unit, &mut self.state);
            let outputs = self.engine.finish(pending, embedded, unit, state, &Registry::default()).unwrap();
            let decisions = outputs.iter().filter(|o| o.role == Role::Decisions);
            let mut bodies =
                decisions.map(|o| serde_json::from_slice::<Decision>(o.value.as_ref().unwrap()).unwrap().body);
            bodies.find(|b| b.kind == DecisionKind::Decision).unwrap()
        }

        fn trust(&mut self, id: &str, origin: &str, parents: &[&str], more: Value) -> u8 {
            self.write(id, origin, parents, more).source.unwrap().trust.unwrap()
        }

        fn commit(&mut self) {
            self.unit.flush(&mut self.state);
            self.state.commit(Vec::new()).unwrap();
        }
    }

    /// A user's word, a listed tool that read it, a web page, and what an agent makes of each; the labels in order.
    fn story(line: &mut Line, commits: bool) -> Vec<u8> {
        let tool = json!({"source_ref": "tool:crm.lookup"});
        let mut labels = Vec::new();
        for (id, origin, parents, more) in [
            ("user", "user_input", &[][..], json!({})),
            ("tool", "tool_output", &["user"], tool.clone()),
            ("of-tool", "agent_generated", &["tool"], json!({})),
            ("web", "retrieved", &[], json!({})),
            ("echo", "tool_output", &["web"], tool),
            ("laundered", "agent_generated", &["echo"], json!({})),
            ("twice", "agent_generated", &["laundered", "user"], json!({})),
            ("full-name", "agent_generated", &["memory:acme/support/user"], json!({})),
            ("elsewhere", "agent_generated", &["memory:acme/sales/user"], json!({})),
            ("unknown", "user_input", &["nobody"], json!({})),
        ] {
            labels.push(line.trust(id, origin, parents, more));
            if commits {
                line.commit();
            }
        }
        labels
    }

    /// R6: a child of stored records, in one transaction and over many, and again.
    #[test]
    fn a_child_has_the_least_label_of_its_stored_parents() {
        let wanted = [3, 2, 2, 0, 0, 0, 0, 3, 0, 0];
        for commits in [false, true, true] {
            let mut line = Line::new("");
            assert_eq!(story(&mut line, commits), wanted, "commits: {commits}");
        }
        let states = [false, true].map(|commits| {
            let mut line = Line::new("");
            story(&mut line, commits);
            line.commit();
            line.state.scan(&state::prefix(Kind::Label, 0), usize::MAX).unwrap()
        });
        assert_eq!(states[0].len(), 10);
        assert_eq!(states[0], states[1], "a replay leaves the same labels, however it is cut into transactions");
    }

    /// An aborted transaction leaves no label.
    #[test]
    fn labels_of_an_aborted_transaction_are_gone() {
        let mut line = Line::new("");
        line.write("user", "user_input", &[], json!({}));
        assert_eq!(line.trust("a", "agent_generated", &["user"], json!({})), 3);
        line.state.abort();
        assert_eq!(line.trust("b", "agent_generated", &["user"], json!({})), 0);
    }

    #[test]
    fn a_rule_on_trust_sees_the_stored_parents() {
        let mut line = Line::new(LOW);
        line.write("user", "user_input", &[], json!({}));
        assert_eq!(line.write("a", "agent_generated", &["user"], json!({})).verdict, Some(Verdict::Allow));
        let held = line.write("web", "retrieved", &[], json!({}));
        assert_eq!(held.reasons, ["policy:low"]);
        assert_eq!(line.write("b", "agent_generated", &["user", "web"], json!({})).reasons, ["policy:low"]);
    }

    /// Under one id no label rises: not by a new version, not by a delete and a new record.
    #[test]
    fn the_least_version_counts() {
        let mut line = Line::new("");
        line.write("x", "retrieved", &[], json!({}));
        assert_eq!(line.trust("x", "user_input", &[], json!({"op": "update"})), 3, "the write itself");
        assert_eq!(line.trust("a", "agent_generated", &["x"], json!({})), 0);
        line.write("x", "user_input", &[], json!({"op": "delete"}));
        line.write("x", "user_input", &[], json!({}));
        assert_eq!(line.trust("b", "agent_generated", &["x"], json!({})), 0);
    }

    /// R4, by the parent's name and through a derivation, though no rule asks for labels.
    #[test]
    fn parents_of_two_tenants_are_refused() {
        let mut line = Line::new("");
        line.write("user", "user_input", &[], json!({}));
        let both = ["user", "memory:globex/support/m-1"];
        let mixed = line.write("mixed", "agent_generated", &both, json!({}));
        assert_eq!((mixed.verdict, mixed.reasons), (Some(Verdict::Block), vec!["policy:cross_boundary".to_owned()]));
        let child = line.write("child", "agent_generated", &["mixed"], json!({}));
        assert_eq!(child.reasons, ["policy:cross_boundary"]);
        assert_eq!(line.write("own", "agent_generated", &["user"], json!({})).verdict, Some(Verdict::Allow));
    }

    /// The ring keeps the newest; what it forgot is unknown, and an update of it counts 0.
    #[test]
    fn forgotten_labels_count_nothing() {
        let line = Line::new("");
        let mut state = State::new(MemoryStore::default());
        let write = |id: &str, op: &str| {
            let value = json!({"tenant": "acme", "store": "support", "record_id": id, "op": op, "content": "Tea."});
            let at = At { generation: 0, role: Role::MemoryWrites, partition: 0, offset: 0, timestamp: 0 };
            let value = Some(serde_json::to_vec(&value).unwrap());
            let fetched = Fetched { at, key: Some(b"acme/support".to_vec()), value, headers: Vec::new() };
            match line.engine.admit(fetched).0.stage {
                super::super::Stage::Write(admitted, _) => admitted.write.clone(),
                other => panic!("{other:?}"),
            }
        };
        let own = |trust| Label { trust, ..Label::unknown("acme") };
        for id in ["a", "b", "c"] {
            note(0, &mut state, &write(id, "create"), &own(3), 2).unwrap();
        }
        let kept = |state: &State<MemoryStore>, id: &str| {
            let b = Boundary::new("acme", "support").unwrap();
            noted(0, state, &b, id).unwrap().map(|n| n.label("acme").trust)
        };
        assert_eq!(["a", "b", "c"].map(|id| kept(&state, id)), [None, Some(3), Some(3)]);
        note(0, &mut state, &write("a", "update"), &own(3), 2).unwrap();
        assert_eq!(["a", "b", "c"].map(|id| kept(&state, id)), [Some(0), None, Some(3)]);
        assert_eq!(state.scan(&state::prefix(Kind::LabelSlot, 0), usize::MAX).unwrap().len(), 2);
        state.put(label_key(0, &Boundary::new("acme", "support").unwrap(), "c"), vec![1, 9, 0]);
        let error = noted(0, &state, &Boundary::new("acme", "support").unwrap(), "c").unwrap_err();
        assert_eq!(error.code(), Code::StateFormat);
    }
}
