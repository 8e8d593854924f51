//! The files of `topology/invalid`.

use std::collections::BTreeSet;
use std::fs;

use memsluice::error::{Code, Error};

use crate::support::{file_names, load, root};

/// Words of the message of each `fail(` in `validate.rs`; a file must raise each.
const TOPOLOGY_RULES: [&str; 35] = [
    "it has no shape to declare",
    "name their own boundary, one fact each",
    "hold_key needs the format native",
    "is not a topic name of Kafka",
    "shares the name",
    "is not a topic of a unit",
    "is not a broadcast topic",
    "don't make a test",
    "is not declared in topics.yaml",
    "names the unknown schema",
    "topic decisions has 10001 partitions",
    "must be in the co-partition group",
    "it can't be repartitioned",
    "the changelog has 6",
    "meta has exactly 1 partition",
    "must be listed under broadcast",
    "differs from what the binary runs",
    "needs cleanup",
    "needs key",
    "must be declared with changelog",
    "have standby all or none",
    "the binary has no store",
    "does not co-assign",
    "don't fit each other",
    "application must match",
    "limits: output >=",
    "commit.max_records must be positive",
    "memsad.history must be",
    "memsad.level must be",
    "memsad.rolling: capacity must be",
    "screen.source_idle must be",
    "breaker: consecutive must be",
    "breaker.cool_down and",
    "breaker.max_sources must be",
    "breaker.max_held must be",
];
/// The same for loading and policy, and for both flows.
const OTHER_RULES: [&str; 33] = [
    "which is no input topic",
    "flow writes differs",
    "flow retrievals differs",
    "memsluice.yaml [topology_unreadable]: No such file",
    "topics.yaml [topology_unreadable]: No such file",
    "memsluice.yaml can't be parsed",
    "topics.yaml can't be parsed",
    "policy.yaml can't be parsed",
    "rule name 'web' is taken",
    "rule name 'cross_boundary' is taken",
    "expires is not RFC 3339",
    "ttl.default:",
    "ttl.cap:",
    "ttl.untrusted_cap:",
    "is no script of Unicode",
    "there is no class",
    "there is no floor",
    "trust_at_most is 0 to 3",
    "screen_p_at_most is 0 to 1",
    "growth is 0 or more",
    "web: age_over:",
    "web: ttl:",
    "set_ttl needs ttl",
    "domains must be at least 2",
    "which is no rule",
    "may declare no origin",
    "rule name 'provenance_missing' is taken",
    "tenant_modes: expires is not RFC 3339",
    "an empty list asks nothing",
    "fits no tenant and no store",
    "domains is for require_corroboration",
    "fits no boundary tenant/store",
    "is no tenant, and not '*'",
];

/// What every file under `topology/invalid/` raises.
pub(crate) fn invalid_files() -> Vec<(String, serde_yaml_ng::Mapping, Error)> {
    let mut out = Vec::new();
    for name in file_names("topology/invalid") {
        let text = fs::read_to_string(root("topology/invalid").join(&name)).unwrap();
        let file: serde_yaml_ng::Mapping = serde_yaml_ng::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let error = load(&file).err().unwrap_or_else(|| panic!("{name} is valid"));
        out.push((name, file, error));
    }
    out
}

/// Each file fails with the code it names, each rule has a file, and the sample alone is valid.
#[test]
fn invalid_topologies_are_refused() {
    const KEYS: [&str; 8] = ["code", "why", "main", "topics", "policy", "raw_main", "raw_topics", "raw_policy"];
    load(&serde_yaml_ng::Mapping::new()).unwrap();
    let files = invalid_files();
    let mut seen = BTreeSet::new();
    for (name, file, error) in &files {
        let wanted = file["code"].as_str().unwrap();
        assert_eq!(error.code().name(), wanted, "{name}: {error}");
        let stem = name.strip_suffix(".yaml").unwrap();
        assert!(stem == wanted || stem.starts_with(&format!("{wanted}-")), "{name} is not named by its code");
        assert!(!file["why"].as_str().unwrap().is_empty(), "{name}: why");
        let keys: Vec<_> = file.keys().map(|k| k.as_str().unwrap()).collect();
        assert!((3..=4).contains(&keys.len()) && keys.iter().all(|k| KEYS.contains(k)), "{name}: {keys:?}");
        seen.insert(error.code());
    }
    let from = |prefix: &str| Code::ALL.iter().filter(|c| c.name().starts_with(prefix)).copied().collect::<Vec<_>>();
    for code in ["topology_", "policy_", "sprt_"].into_iter().flat_map(from) {
        // Those are about the cluster and about two topologies, not about one's files.
        assert!(
            [Code::TopologyDiffers, Code::TopologyIncompatible].contains(&code) || seen.contains(&code),
            "no file raises {}",
            code.name()
        );
    }
    for rule in TOPOLOGY_RULES.iter().chain(&OTHER_RULES) {
        assert!(files.iter().any(|(_, _, e)| e.to_string().contains(rule)), "no file raises the rule '{rule}'");
    }
    let calls = fs::read_to_string(root("src/topology/validate.rs")).unwrap().matches(" fail(").count();
    assert_eq!(calls, 1 + TOPOLOGY_RULES.len(), "a rule was added or removed: name it above, and give it a file");
}
