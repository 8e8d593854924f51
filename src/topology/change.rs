//! What a change of the topology means for a running application: pure, from the settings alone.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::model::{Role, Topology};

/// Settings by path, such as `memsad.history`.
pub type Settings = BTreeMap<String, String>;

/// What a change asks for, the mildest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Each member may have its own value.
    Free,
    /// Compatible; old and new members run side by side while it is made (`upgrade begin`, `finalize`).
    Rolling,
    /// Compatible with the state, but no two members may differ: all stop first.
    Together,
    /// What the store holds was made under the old value: it is emptied first.
    Reset,
    /// Not possible under this application id.
    Refused,
}

/// One setting that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Path of the setting.
    pub setting: String,
    /// Old value; empty where there was none.
    pub old: String,
    /// New value; empty where there is none.
    pub new: String,
    /// What it asks for.
    pub effect: Effect,
    /// The store to reset.
    pub store: Option<&'static str>,
    /// What happens, or why not.
    pub why: &'static str,
}

impl Effect {
    /// The word in tables and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Effect::Free => "free",
            Effect::Rolling => "rolling",
            Effect::Together => "together",
            Effect::Reset => "reset",
            Effect::Refused => "refused",
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.store.map(|s| format!(" {s}")).unwrap_or_default();
        write!(f, "{} '{}' -> '{}' ({}{of}: {})", self.setting, self.old, self.new, self.effect.as_str(), self.why)
    }
}

/// Inputs, and topics that hold state or the chain: their identity is part of the state.
const STATEFUL: [Role; 5] = [Role::MemoryWrites, Role::RetrievalLogs, Role::Decisions, Role::Changelog, Role::Meta];

impl Topology {
    /// Every setting as declared; lists whose order means nothing are sorted.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let mut out = Settings::new();
        flatten("", &serde_json::to_value(&self.main).unwrap_or_default(), &mut out);
        for role in Role::ALL {
            let value = serde_json::to_value(self.source(role)).unwrap_or_default();
            flatten(&format!("topics.{}", role.as_str()), &value, &mut out);
        }
        out
    }
}

fn flatten(path: &str, value: &Value, out: &mut Settings) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, value, out);
            }
        }
        Value::Array(items) => {
            let mut items: Vec<String> = items.iter().map(text).collect();
            if !path.ends_with(".stages") {
                items.sort();
            }
            out.insert(path.to_owned(), items.join(", "));
        }
        other => {
            out.insert(path.to_owned(), text(other));
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The settings that members must agree on.
#[must_use]
pub fn agreed(settings: &Settings) -> Settings {
    let must = |path: &str| effect(path, "", " ").0 != Effect::Free;
    settings.iter().filter(|(path, _)| must(path)).map(|(p, v)| (p.clone(), v.clone())).collect()
}

/// SHA-256 over settings, hex, first 16 digits.
#[must_use]
pub fn fingerprint(settings: &Settings) -> String {
    let mut hasher = Sha256::new();
    for part in settings.iter().flat_map(|(path, value)| [path, value]) {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    hex::encode(&hasher.finalize()[..8])
}

/// Every setting that differs, with what that asks for; the gravest first.
#[must_use]
pub fn changes(old: &Settings, new: &Settings) -> Vec<Change> {
    let mut paths: Vec<&String> = old.keys().chain(new.keys()).collect();
    paths.sort();
    paths.dedup();
    let differing = paths.into_iter().filter(|p| old.get(*p) != new.get(*p));
    let mut all: Vec<Change> = differing
        .map(|path| {
            let value = |of: &Settings| of.get(path).cloned().unwrap_or_default();
            let (before, after) = (value(old), value(new));
            let (effect, why) = effect(path, &before, &after);
            let store = (effect == Effect::Reset).then(|| store_of(path));
            Change { setting: path.clone(), old: before, new: after, effect, store, why }
        })
        .collect();
    all.sort_by(|a, b| b.effect.cmp(&a.effect).then_with(|| a.setting.cmp(&b.setting)));
    all
}

fn store_of(path: &str) -> &'static str {
    match path.split('.').nth(1) {
        Some("sessions") => "sessions",
        Some("chain") => "chain",
        _ => "history",
    }
}

/// What another value of a setting asks for. Unknown settings are the gravest case: a newer program knows them.
fn effect(path: &str, old: &str, new: &str) -> (Effect, &'static str) {
    use Effect::{Free, Refused, Rolling, Together};
    let parts: Vec<&str> = path.split('.').collect();
    match parts.as_slice() {
        ["application"] => {
            (Refused, "it names group, topics, transactional ids and record ids: another id is another application")
        }
        ["flows", _, "on_dead_letter"] => {
            (Rolling, "keys that are held stay noted; under continue nothing waits for them")
        }
        ["flows", _, "to"] | ["broadcast" | "copartition"] => (Free, "the order means nothing"),
        ["flows", ..] => (Refused, "another program: the binary runs these stages alone"),
        ["stores", _, "standby"] => (Free, "each member decides which units it keeps warm"),
        ["stores", ..] => stores(old, new),
        ["consumer", "assignor"] => {
            (Together, "members of one group must assign alike, or units are torn between them")
        }
        ["consumer" | "commit", ..] => (Free, "each member's own; no decision depends on it"),
        ["limits", "max_record_bytes" | "max_output_bytes"] => {
            (Rolling, "decides which records become dead letters; the state holds nothing of it")
        }
        ["limits", ..] => (Free, "each member's own memory"),
        ["memsad", "history"] => history(old, new),
        ["encoder", "dimension"] => {
            (Effect::Reset, "vectors of the other dimension would be left out, and come back when it is undone")
        }
        ["memsad", "form"] => (
            Rolling,
            "decides from the next write on; each form has a history of its own, which grows while it is used",
        ),
        ["memsad", "rolling", ..] => (
            Rolling,
            "decides from the next write on; rows and waiting writes stay, and leave by the new rules as they come up",
        ),
        ["memsad", ..] => (Rolling, "decides from the next write on; the history stays as it is"),
        ["screen", "source_idle"] => (
            Rolling,
            "a source's ring is dropped by its newest write and the new time; notes of the old time are moved",
        ),
        ["screen", ..] => (Rolling, "decides from the next write on; rings and known entities stay as they are"),
        ["sprt", "idle"] => {
            (Rolling, "an open session closes by its last event and the new gap; notes of the old gap are moved")
        }
        ["sprt", ..] => (
            Rolling,
            "an open session keeps its counts and is judged by the new test from its next event on; a flagged one stays flagged",
        ),
        ["posture", ..] => (Rolling, "decides from the next failure on"),
        ["breaker", "max_held"] => {
            (Rolling, "fewer than are held now: the next held record stops the stream (held_keys_full)")
        }
        ["breaker", ..] => (Rolling, "circuits keep their last 64 outcomes; the new rules judge them"),
        ["topics", role, field, ..] => topic(role, field, old, new),
        ["policy"] => (Rolling, "decisions name the policy they were made under"),
        ["secret"] => (
            Rolling,
            "keyed hashes before and after can't be compared; records name their key id; the state holds none",
        ),
        _ => (Refused, "this program doesn't know the setting"),
    }
}

fn stores(old: &str, new: &str) -> (Effect, &'static str) {
    match (old.is_empty(), new.is_empty()) {
        (true, _) => (Effect::Together, "a new store begins empty; each member needs a new state_dir"),
        (_, true) => (Effect::Reset, "its keys would stay in the changelog and come back with it"),
        _ => (Effect::Refused, "its state is in the old changelog: migrate to a new application id"),
    }
}

/// Slot = sequence number modulo the capacity. A new push hits only slots of queries that have left the window if
/// the new capacity divides the old one; else a restart finds another window than the running process has.
fn history(old: &str, new: &str) -> (Effect, &'static str) {
    match (old.parse::<u64>(), new.parse::<u64>()) {
        (Ok(old), Ok(new)) if new > 0 && old > new && old % new == 0 => (
            Effect::Together,
            "the newest queries stay; the others are no longer read, and stay in the changelog until a reset",
        ),
        _ => (
            Effect::Reset,
            "slots of the old ring would be overwritten out of order: a restart would find another window",
        ),
    }
}

fn topic(role: &str, field: &str, old: &str, new: &str) -> (Effect, &'static str) {
    use Effect::{Free, Refused, Together};
    let stateful = STATEFUL.iter().any(|r| r.as_str() == role);
    match field {
        "partitions" => {
            (Refused, "partition counts are fixed at creation: migrate to a new application id and new topics")
        }
        "name" if stateful => {
            (Refused, "offsets, state and chain belong to the old topic: migrate to a new application id")
        }
        "name" => (Together, "readers must follow; nothing is copied into the new topic"),
        "repartition" if new == "auto" => (Together, "the input goes on from its source through the internal topic"),
        "repartition" if old == "auto" => (Refused, "what was relayed is not in the source's offsets"),
        "key" => (Together, "producers must follow"),
        "retention" | "cleanup" | "schema" | "timestamps" => {
            (Free, "a setting of the broker's topic: change it there too (`topology plan`)")
        }
        _ => (Refused, "this program doesn't know the setting"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: &str = include_str!("../../topology/memsluice.yaml");
    const TOPICS: &str = include_str!("../../topology/topics.yaml");

    fn settings(edits: &[(&str, &str)]) -> Settings {
        let (mut main, mut topics) = (MAIN.to_owned(), TOPICS.to_owned());
        for (from, to) in edits {
            assert!(main.contains(from) || topics.contains(from), "{from}");
            (main, topics) = (main.replace(from, to), topics.replace(from, to));
        }
        Topology::parse(&main, &topics).unwrap().settings()
    }

    #[test]
    fn each_kind_of_change_has_its_effect() {
        use Effect::{Free, Refused, Reset, Rolling, Together};
        let cases: &[(&str, &str, Effect)] = &[
            ("interval: 100ms", "interval: 50ms", Free),
            ("in_flight_bytes: 64MiB", "in_flight_bytes: 32MiB", Free),
            ("max_task_idle: 50ms", "max_task_idle: 60ms", Free),
            ("retention: 90d", "retention: 91d", Free),
            ("kappa: 2.0", "kappa: 2.5", Rolling),
            ("form: hardened", "form: reference", Rolling),
            ("level: 0.005", "level: 0.01", Rolling),
            ("memory: 500", "memory: 50", Rolling),
            ("mode: on ", "mode: off ", Rolling),
            ("ageing: 1d", "ageing: 2d", Rolling),
            ("capacity: 512", "capacity: 300", Rolling),
            ("mode: enforce ", "mode: shadow ", Rolling),
            ("max_record_bytes: 1MiB", "max_record_bytes: 2MiB", Rolling),
            ("idle: 30m", "idle: 20m", Rolling),
            ("source_idle: 7d", "source_idle: 8d", Rolling),
            ("retract: flag", "retract: tombstone", Rolling),
            ("p1: 0.6", "p1: 0.5", Rolling),
            ("on_error: quarantine", "on_error: hold", Rolling),
            ("max_held: 10000", "max_held: 10", Rolling),
            ("on_dead_letter: continue #", "on_dead_letter: hold_key #", Rolling),
            ("assignor: range", "assignor: consumer-range", Together),
            ("history: 100 ", "history: 50 ", Together),
            ("history: 100 ", "history: 30 ", Reset),
            ("history: 100 ", "history: 200 ", Reset),
            ("application: memsluice", "application: other", Refused),
            ("partitions: 6", "partitions: 12", Refused),
            ("name: memsluice-changelog", "name: other-changelog", Refused),
        ];
        let old = settings(&[]);
        let reordered = settings(&[("to: [attacks, dead-letters]", "to: [dead-letters, attacks]")]);
        assert!(changes(&old, &old).is_empty() && changes(&old, &reordered).is_empty());
        for (from, to, wanted) in cases {
            let new = settings(&[(from, to)]);
            let found = changes(&old, &new);
            assert_eq!(found.first().map(|c| c.effect), Some(*wanted), "{from} -> {to}: {found:?}");
            assert_eq!(*wanted == Reset, found[0].store == Some("history"));
            // Members agree exactly where a change is not free.
            let same = fingerprint(&agreed(&old)) == fingerprint(&agreed(&new));
            assert_eq!(same, *wanted == Free, "{from} -> {to}");
        }
    }

    /// A setting that somebody adds to the topology must be given its effect here.
    #[test]
    fn every_setting_has_an_effect() {
        for path in settings(&[]).keys() {
            let (_, why) = effect(path, "1", "2");
            assert!(!why.contains("doesn't know"), "{path} has no effect");
        }
        assert_eq!(effect("brand.new", "", "1").0, Effect::Refused);
    }

    #[test]
    fn an_input_can_be_repartitioned_and_not_back() {
        let (before, after) = (
            settings(&[]),
            settings(&[(
                "memory-writes:    { partitions: 6, key: boundary,",
                "memory-writes:    { partitions: 6, key: boundary, repartition: auto,",
            )]),
        );
        assert_eq!(changes(&before, &after).iter().map(|c| c.effect).max(), Some(Effect::Together));
        assert_eq!(changes(&after, &before).iter().map(|c| c.effect).max(), Some(Effect::Refused));
    }
}
