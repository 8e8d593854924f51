//! What the broker under test can prove: the other tests stand on it.

use memsluice::error::Code;
use memsluice::sink::{Outcome, probe};
use memsluice::source::MockBroker;
use memsluice::topology::Assignor;
use serde_json::Value;

use crate::support::Bench;

/// The broker of these tests provides all that the stream needs, and nothing stays behind.
#[test]
fn the_test_broker_passes() {
    let Some(bench) = Bench::new("probe") else { return };
    let (status, out, log) = bench.command(&["check", "--broker", "--output", "json"]);
    assert_eq!(status, Some(0), "{out} {log}");
    let report: Value = serde_json::from_str(out.trim()).unwrap();
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 11);
    assert!(findings.iter().all(|f| f["outcome"] == "pass"), "{out}");
    assert!(report["seconds"].as_f64().unwrap() < 60.0, "{out}");
    assert!(report["left"].is_null(), "{out}");
}

/// The guard goes red: librdkafka's mock isolates nothing, which is named, and the program refuses it.
#[test]
fn a_mock_broker_goes_red() {
    let broker = MockBroker::start().unwrap();
    let mut client = memsluice::source::Client::new();
    client.set("bootstrap.servers", broker.bootstrap());
    let report = probe(&client, "", Assignor::Range).unwrap();
    for f in &report.findings {
        eprintln!("{:<8} {:<26} {:>5.1} s {}", f.outcome.as_str(), f.check, f.seconds, f.found);
    }
    for name in ["open_hidden", "aborted_hidden", "transaction_timeout"] {
        let finding = report.findings.iter().find(|f| f.check == name).unwrap();
        assert_eq!(finding.outcome, Outcome::Fail, "{finding:?}");
    }
    assert!(report.seconds < 60.0);
    let bench = Bench::without_topics("mock", &broker.bootstrap());
    let (status, _, log) = bench.command(&["check", "--broker"]);
    assert_eq!(status, Some(3), "{log}");
    assert!(log.contains(&format!("[{}]", Code::BrokerUnsupported.name())) && log.contains("open_hidden"), "{log}");
}
