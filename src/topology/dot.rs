//! The topology as a Graphviz graph, golden-tested.

use std::fmt::Write;

use super::model::{Flow, Role, Topology};

/// Stage that writes a store, and stage that reads it.
const STORE_USERS: [(&str, &str, &str); 3] = [
    ("history", "retrievals.embed", "writes.score"),
    ("sessions", "retrievals.session", "retrievals.sprt"),
    ("chain", "writes.decide", "writes.decide"),
];
/// Stage that a broadcast topic steers.
const BROADCAST_USERS: [(Role, &str); 2] =
    [(Role::Calibrations, "writes.score"), (Role::Honeypots, "retrievals.session")];

/// What runs, in the language of Graphviz: `memsluice topology dot | dot -Tsvg > topology.svg`.
#[must_use]
pub fn dot(t: &Topology) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "digraph \"{}\" {{", t.main.application);
    let _ = writeln!(out, "  label=\"{} (topology {})\";", t.main.application, t.hash);
    out.push_str("  rankdir=LR;\n  node [fontname=\"sans-serif\"];\n  edge [fontname=\"sans-serif\"];\n");
    for (name, flow) in [("writes", &t.main.flows.writes), ("retrievals", &t.main.flows.retrievals)] {
        cluster(&mut out, name, flow);
    }
    for role in Role::ALL {
        let topic = t.topic(role);
        let _ = writeln!(
            out,
            "  \"topic.{}\" [shape=cds, label=\"{}\\n{} partitions\"];",
            role.as_str(),
            topic.name,
            topic.partitions
        );
    }
    for name in t.main.stores.keys() {
        let _ = writeln!(out, "  \"store.{name}\" [shape=cylinder, label=\"{name}\"];");
    }
    for (name, flow) in [("writes", &t.main.flows.writes), ("retrievals", &t.main.flows.retrievals)] {
        edges(&mut out, name, flow);
    }
    stores(&mut out, t);
    for role in &t.main.broadcast {
        for (_, stage) in BROADCAST_USERS.iter().filter(|(r, _)| r == role) {
            let _ = writeln!(out, "  \"topic.{}\" -> \"{stage}\" [style=dotted, label=\"read whole\"];", role.as_str());
        }
    }
    out.push_str("}\n");
    out
}

fn cluster(out: &mut String, name: &str, flow: &Flow) {
    let _ = writeln!(out, "  subgraph \"cluster_{name}\" {{\n    label=\"flow {name}\";");
    for stage in &flow.stages {
        let _ = writeln!(out, "    \"{name}.{stage}\" [shape=box, label=\"{stage}\"];");
    }
    out.push_str("  }\n");
}

fn edges(out: &mut String, name: &str, flow: &Flow) {
    if let Some(first) = flow.stages.first() {
        let _ = writeln!(out, "  \"topic.{}\" -> \"{name}.{first}\";", flow.from.as_str());
    }
    for pair in flow.stages.windows(2) {
        let _ = writeln!(out, "  \"{name}.{}\" -> \"{name}.{}\";", pair[0], pair[1]);
    }
    let Some(last) = flow.stages.last() else { return };
    for role in &flow.to {
        // What can't be decoded leaves the flow at its first stage.
        let stage = if *role == Role::DeadLetters { flow.stages.first().unwrap_or(last) } else { last };
        let _ = writeln!(out, "  \"{name}.{stage}\" -> \"topic.{}\";", role.as_str());
    }
}

fn stores(out: &mut String, t: &Topology) {
    for (name, store) in &t.main.stores {
        for (_, writer, reader) in STORE_USERS.iter().filter(|(n, _, _)| n == name) {
            let _ = writeln!(out, "  \"{writer}\" -> \"store.{name}\";\n  \"store.{name}\" -> \"{reader}\";");
        }
        let changelog = store.changelog.as_str();
        let _ = writeln!(out, "  \"store.{name}\" -> \"topic.{changelog}\" [dir=both, style=dashed];");
    }
}
