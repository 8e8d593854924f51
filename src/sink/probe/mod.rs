//! What the broker in use really provides: ten checks against throw-away topics. Brokers, proxies and
//! stand-ins that speak the protocol may still show open or aborted records, or let a zombie commit.

mod bench;
mod groups;
mod isolation;
mod offsets;
mod producers;
mod topics;

use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::error::KafkaError;

use crate::clock::monotonic;
use crate::error::{Code, Error, Result};
use crate::topology::Assignor;
use bench::Bench;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The broker does it.
    Pass,
    /// The broker does something else.
    Fail,
    /// The check could not be carried out; counts as not provided.
    Unknown,
}

impl Outcome {
    /// The wire word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Pass => "pass",
            Outcome::Fail => "fail",
            Outcome::Unknown => "unknown",
        }
    }
}

/// Result of one check.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Finding {
    /// Name, stable.
    pub check: &'static str,
    /// Outcome.
    pub outcome: Outcome,
    /// The stream can't keep its promises without it.
    pub required: bool,
    /// Time it took, seconds.
    pub seconds: f64,
    /// What is lost where it is not provided.
    pub meaning: &'static str,
    /// What was seen; empty for a pass.
    pub found: String,
}

/// Results of all checks, in their order.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Report {
    /// One a check.
    pub findings: Vec<Finding>,
    /// Time for all, seconds.
    pub seconds: f64,
    /// Prefix of topics that could not be deleted; `None` when nothing was left behind.
    pub left: Option<String>,
}

impl Report {
    /// Required checks that did not pass.
    #[must_use]
    pub fn lacking(&self) -> Vec<&Finding> {
        self.findings.iter().filter(|f| f.required && f.outcome != Outcome::Pass).collect()
    }
}

/// Why a check did not pass.
#[derive(Debug)]
enum Trouble {
    /// The broker did something else.
    Broken(String),
    /// A step before the question failed.
    Unknown(String),
}

impl From<KafkaError> for Trouble {
    fn from(e: KafkaError) -> Self {
        Trouble::Unknown(e.to_string())
    }
}

impl From<Error> for Trouble {
    fn from(e: Error) -> Self {
        Trouble::Unknown(e.message().to_owned())
    }
}

type Verdict = std::result::Result<(), Trouble>;

fn broken(what: impl Into<String>) -> Verdict {
    Err(Trouble::Broken(what.into()))
}

fn unknown(what: impl Into<String>) -> Trouble {
    Trouble::Unknown(what.into())
}

/// A check: its name, what is lost without it, and how it is done.
struct Check {
    name: &'static str,
    meaning: &'static str,
    run: fn(&Bench) -> Verdict,
}

const CHECKS: [Check; 11] = [
    Check {
        name: "commit_visible",
        meaning: "without it committed decisions never reach their readers",
        run: isolation::commit_visible,
    },
    Check {
        name: "open_hidden",
        meaning: "without it readers see writes whose decision may still be rolled back",
        run: isolation::open_hidden,
    },
    Check {
        name: "aborted_hidden",
        meaning: "without it every rollback leaves records that were never decided",
        run: isolation::aborted_hidden,
    },
    Check {
        name: "zombie_fenced",
        meaning: "without it a paused instance commits beside its replacement: double decisions",
        run: producers::zombie_fenced,
    },
    Check {
        name: "offsets_committed",
        meaning: "without it a restart decides inputs twice",
        run: offsets::committed_with_commit,
    },
    Check { name: "offsets_dropped", meaning: "without it a rollback loses inputs", run: offsets::dropped_with_abort },
    Check {
        name: "stale_generation_refused",
        meaning: "without it a member commits inputs that were given to another: double decisions",
        run: offsets::stale_generation_refused,
    },
    Check {
        name: "transaction_timeout",
        meaning: "without it one dead producer stops every reader of a partition for ever",
        run: producers::timeout_frees_readers,
    },
    Check {
        name: "topic_features",
        meaning: "without headers, record times, compaction and the bound on record times neither state nor order hold",
        run: topics::features,
    },
    Check {
        name: "range_co_assigns",
        meaning: "without it assignor 'range' splits the topics of a unit between members",
        run: groups::range,
    },
    Check {
        name: "consumer_range_co_assigns",
        meaning: "without it assignor 'consumer-range' (KIP-848) splits the topics of a unit between members",
        run: groups::consumer_range,
    },
];

/// All checks run at once; what has not ended by then is unknown.
const LIMIT: Duration = Duration::from_secs(50);

fn required(name: &str, assignor: Assignor) -> bool {
    match name {
        "range_co_assigns" => assignor == Assignor::Range,
        "consumer_range_co_assigns" => assignor == Assignor::ConsumerRange,
        _ => true,
    }
}

/// Asks the broker, each check on a thread and on topics of its own; the topics are deleted
/// afterwards. `prefix` stands in front of their names.
///
/// # Errors
/// `broker_unreachable`, `broker_refused` when throw-away topics can't be made, `config_invalid`.
pub fn probe(client: &ClientConfig, prefix: &str, assignor: Assignor) -> Result<Report> {
    let start = monotonic();
    let bench = Bench::start(client, prefix)?;
    let (outbox, inbox) = crossbeam_channel::unbounded();
    for (i, check) in CHECKS.iter().enumerate() {
        let (bench, outbox) = (bench.clone(), outbox.clone());
        let body = move || {
            let begun = monotonic();
            let verdict = (check.run)(&bench);
            drop(outbox.send((i, verdict, begun.elapsed())));
        };
        std::thread::Builder::new()
            .name(format!("memsluice-probe-{i}"))
            .spawn(body)
            .map_err(|e| Error::with(Code::Internal, "can't start a thread", e))?;
    }
    let mut answers: Vec<Option<(Verdict, Duration)>> = CHECKS.iter().map(|_| None).collect();
    while answers.iter().any(Option::is_none) {
        let Ok((i, verdict, took)) = inbox.recv_deadline(start + LIMIT) else { break };
        answers[i] = Some((verdict, took));
    }
    let findings = CHECKS.iter().zip(answers).map(|(check, answer)| finding(check, assignor, answer)).collect();
    let left = bench.clean_up();
    Ok(Report { findings, seconds: start.elapsed().as_secs_f64(), left })
}

fn finding(check: &Check, assignor: Assignor, answer: Option<(Verdict, Duration)>) -> Finding {
    let (verdict, took) =
        answer.unwrap_or_else(|| (Err(unknown(format!("no answer in {} s", LIMIT.as_secs()))), LIMIT));
    let (outcome, found) = match verdict {
        Ok(()) => (Outcome::Pass, String::new()),
        Err(Trouble::Broken(what)) => (Outcome::Fail, what),
        Err(Trouble::Unknown(what)) => (Outcome::Unknown, what),
    };
    let required = required(check.name, assignor);
    Finding { check: check.name, outcome, required, seconds: took.as_secs_f64(), meaning: check.meaning, found }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A check without an answer never counts as provided, and the assignor that is used is required.
    #[test]
    fn silence_is_no_pass() {
        for check in &CHECKS {
            let f = finding(check, Assignor::Range, None);
            assert_eq!(f.outcome, Outcome::Unknown);
            let report = Report { findings: vec![f], seconds: 0.0, left: None };
            assert_eq!(report.lacking().is_empty(), check.name == "consumer_range_co_assigns");
        }
    }
}
