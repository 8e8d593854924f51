//! Producers' own JSON through a real Apache Kafka: bytes as they came where an input is one fact, each fact under
//! its own key elsewhere, and the count of it all.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::{Bench, Outcome, Run};

/// Good cases of every shape with a fixed tenant; each becomes what its golden file says.
#[test]
fn each_shape_goes_through() {
    let edits = [
        ("memory-writes:    { partitions: 6, key: boundary", "memory-writes:    { partitions: 6, key: original"),
        (
            "schema: memory-write, timestamps: bounded",
            "schema: memory-write, timestamps: bounded, repartition: auto, input: { format: auto, tenant: \"fixed:acme\" }",
        ),
    ];
    let Some(bench) = Bench::with_topics("adapters", &edits) else { return };
    let bench = bench.without_screen();
    // Whose words they are is not what this is about.
    bench.replace_policy(
        "when: { origin: [retrieved, external] }\n    action: quarantine",
        "when: { agent: [nobody] }\n    action: quarantine",
    );
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/adapters");
    let folders = ["anthropic", "flink", "letta", "mcp", "mem0", "openai", "otel", "langgraph", "zep"];
    let mut lines = Vec::new();
    let (mut whole, mut keys, mut inputs) = (BTreeMap::new(), 0_u64, 0_u64);
    for folder in folders {
        for file in std::fs::read_dir(root.join(folder)).unwrap().map(|e| e.unwrap().path()) {
            let case: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
            let fixed = case["input"] == serde_json::json!({"tenant": "fixed:acme"});
            let plain = case.get("headers").is_none() && case.get("auto").is_none();
            if case["topic"] != "memory-writes" || case.get("facts").is_none() || !fixed || !plain {
                continue;
            }
            let line = serde_json::to_string(&case["value"]).unwrap();
            let facts = case["facts"].as_array().unwrap();
            inputs += 1;
            keys += facts.len() as u64;
            if facts.len() == 1 && facts[0]["op"] != "delete" {
                whole.insert(line.clone(), ());
            }
            lines.push(line);
        }
    }
    let record = |line: &String| memsluice::sink::Publication {
        topic: bench.topic("memory-writes"),
        partition: Some(0),
        key: b"any".to_vec(),
        value: line.clone().into_bytes(),
        timestamp: None,
    };
    memsluice::sink::publish(&bench.client(), &lines.iter().map(record).collect::<Vec<_>>()).unwrap();
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    let verified = bench.verify_with(&["--repartitioned"]);
    assert!(verified.clean(), "{verified:?}");
    assert_eq!(verified.inputs, inputs);
    let mut committed = 0;
    bench.each("committed-memory", |m| {
        use rdkafka::Message as _;
        committed += 1;
        if let Some(value) = m.payload() {
            whole.remove(std::str::from_utf8(value).unwrap());
        }
    });
    assert_eq!(committed, keys);
    assert!(whole.is_empty(), "not byte for byte: {:?}", whole.keys());
}
