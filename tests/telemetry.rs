//! The metrics table of the docs is the metrics table of the code, both ways, and decisions know nothing
//! of either.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use memsluice::error::Code;
use memsluice::pipeline::StopStep;
use memsluice::telemetry::{DEFINITIONS, metrics};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// One row a metric: `| name | kind | labels | help |`, in the order of the code.
#[test]
fn the_documented_metrics_are_the_defined_ones() {
    let docs = read("docs/operations.md");
    let of_table = |l: &&str| l.starts_with("| `memsluice_") && l.split(" | ").count() == 4;
    let documented: Vec<&str> = docs.lines().filter(of_table).collect();
    let row = |d: &memsluice::telemetry::Definition| {
        let labels: Vec<String> = d.labels.iter().map(|l| format!("`{l}`")).collect();
        format!("| `{}` | {} | {} | {} |", d.name, d.kind, labels.join(", "), d.help)
    };
    let defined: Vec<String> = DEFINITIONS.iter().map(row).collect();
    assert_eq!(documented, defined, "docs/operations.md should read:\n{}", defined.join("\n"));
}

/// Every defined metric has its TYPE line in the exposition, and nothing else does.
#[test]
fn the_exposition_has_the_defined_metrics() {
    let text = metrics().scrape();
    let mut types: Vec<String> =
        text.lines()
            .filter_map(|l| l.strip_prefix("# TYPE "))
            .map(|l| {
                if let Some(name) = l.strip_suffix(" counter") { format!("{name}_total counter") } else { l.to_owned() }
            })
            .collect();
    types.sort();
    // A family without a sample is left out; the broker test holds a real run to all of them.
    let unlabelled = DEFINITIONS.iter().filter(|d| d.labels.is_empty());
    for d in unlabelled {
        assert!(types.contains(&format!("{} {}", d.name, d.kind)), "{} is not exposed", d.name);
    }
    for line in &types {
        let known = DEFINITIONS.iter().any(|d| *line == format!("{} {}", d.name, d.kind));
        assert!(known, "{line} is not defined");
    }
}

/// What decides about records imports no telemetry: a metric can't change a verdict.
#[test]
fn decisions_know_no_telemetry() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files: Vec<_> = ["decode", "policy", "score", "session"]
        .iter()
        .filter_map(|m| fs::read_dir(root.join(m)).ok())
        .flat_map(|folder| folder.map(|e| e.unwrap().path()))
        .collect();
    files.extend(["decode.rs", "decide.rs", "alert.rs"].iter().map(|f| root.join(f)).filter(|f| f.is_file()));
    assert!(files.len() > 8, "{files:?}");
    for file in files.iter().filter(|f| f.is_file()) {
        let text = fs::read_to_string(file).unwrap();
        assert!(!text.contains("telemetry"), "{} names telemetry", file.display());
    }
}

/// The four steps of a stop have exit statuses of their own.
#[test]
fn a_stop_names_its_step() {
    let steps = [(StopStep::Drain, 10), (StopStep::Commit, 11), (StopStep::Flush, 12), (StopStep::Leave, 13)];
    for (step, status) in steps {
        let cause = memsluice::error::Error::new(Code::BrokerUnreachable, "the cause");
        let error = step.failed(cause);
        assert_eq!(error.exit_status(), status);
        assert!(error.message().contains("the cause [broker_unreachable]"), "{error}");
    }
}
