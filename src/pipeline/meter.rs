//! Counts of the open transaction for `/metrics`: published when it commits, dropped when it rolls back,
//! so that they never count what nobody can read. A record costs a few comparisons and one addition.

use super::engine::{Pending, Stage};
use super::facts_path::Fact;
use crate::clock::Millis;
use crate::schema::{Verdict, header as h};
use crate::sink::Output;
use crate::source::At;
use crate::telemetry::{Counts, Labels, metrics};
use crate::topology::Role;

/// Open counts of one metric by two label values.
#[derive(Debug)]
struct Tally {
    family: &'static Counts,
    names: [&'static str; 2],
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    values: [String; 2],
    open: u64,
}

impl Tally {
    fn new(family: &'static Counts, names: [&'static str; 2]) -> Self {
        Self { family, names, rows: Vec::new() }
    }

    fn add(&mut self, a: &str, b: &str) {
        match self.rows.iter_mut().find(|r| r.values[0] == a && r.values[1] == b) {
            Some(row) => row.open += 1,
            None => self.rows.push(Row { values: [a.to_owned(), b.to_owned()], open: 1 }),
        }
    }

    fn publish(&mut self) {
        for row in self.rows.iter_mut().filter(|r| r.open > 0) {
            let labels = self.names.iter().zip(&row.values).filter(|(name, _)| !name.is_empty());
            let labels: Labels = labels.map(|(name, value)| (*name, value.clone())).collect();
            self.family.get_or_create(&labels).inc_by(std::mem::take(&mut row.open));
        }
    }

    fn drop_open(&mut self) {
        self.rows.iter_mut().for_each(|r| r.open = 0);
    }
}

/// What a unit's sessions and rolling calibrations did in the open transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SessionCounts {
    pub(super) observed: u64,
    pub(super) attacks: u64,
    pub(super) restarts: u64,
    /// Rolling calibrations that came into force.
    pub(super) rolls: u64,
    /// Rows of the newest of them.
    pub(super) rows: Option<u32>,
    /// Writes under a frozen one.
    pub(super) frozen: u64,
    /// Screened writes, and those that reach a floor.
    pub(super) screened: u64,
    pub(super) floors: u64,
    /// Alarms about their share.
    pub(super) shares: u64,
}

/// Counts of the open transaction.
#[derive(Debug)]
pub(super) struct Meter {
    verdicts: Tally,
    decode_errors: Tally,
    decisions: Tally,
    dead_letters: Tally,
    alerts: Tally,
    uncalibrated: u64,
    times: Vec<Millis>,
}

impl Default for Meter {
    fn default() -> Self {
        let m = metrics();
        Self {
            verdicts: Tally::new(&m.policy_verdicts, ["verdict", "rule"]),
            decode_errors: Tally::new(&m.decode_errors, ["code", ""]),
            decisions: Tally::new(&m.decisions, ["decision", "reason"]),
            dead_letters: Tally::new(&m.dead_letters, ["stage", "code"]),
            alerts: Tally::new(&m.alerts, ["severity", ""]),
            uncalibrated: 0,
            times: Vec::new(),
        }
    }
}

impl Meter {
    /// A record that is about to be decided.
    pub(super) fn admitted(&mut self, pending: &Pending) {
        self.times.push(pending.fetched.at.timestamp);
        match &pending.stage {
            Stage::Write(_, ruling) => {
                self.verdicts.add(ruling.verdict.as_str(), ruling.rule.as_deref().unwrap_or("none"))
            }
            Stage::Dead(error) => self.decode_errors.add(error.code().name(), ""),
            Stage::Batch(facts) => {
                for fact in facts {
                    if let Fact::Write(_, ruling) = fact {
                        self.verdicts.add(ruling.verdict.as_str(), ruling.rule.as_deref().unwrap_or("none"));
                    }
                }
            }
            Stage::Retrieval(_) | Stage::Skip(_) | Stage::Part => {}
        }
    }

    /// What became of it.
    pub(super) fn decided(&mut self, at: At, outputs: &[Output]) {
        for o in outputs {
            match o.role {
                Role::CommittedMemory | Role::Quarantine => {
                    let reason = o.header(h::REASONS).and_then(|r| r.split(',').next()).unwrap_or("none");
                    self.decisions.add(o.header(h::VERDICT).unwrap_or_default(), reason);
                }
                Role::DeadLetters => {
                    let code = o.header(h::ERROR_CODE).unwrap_or_default();
                    self.dead_letters.add(o.header(h::ERROR_STAGE).unwrap_or_default(), code);
                    if at.role == Role::MemoryWrites {
                        self.decisions.add(Verdict::DeadLetter.as_str(), code);
                    }
                }
                Role::Attacks => self.alerts.add(o.header(h::CE_SEVERITYNUMBER).unwrap_or_default(), ""),
                Role::Decisions => self.uncalibrated += u64::from(o.header(h::UNCALIBRATED).is_some()),
                _ => {}
            }
        }
    }

    /// The transaction is committed; `now` is wall time.
    pub(super) fn committed(&mut self, now: Millis, sessions: impl Iterator<Item = SessionCounts>) {
        let m = metrics();
        for tally in self.tallies() {
            tally.publish();
        }
        m.uncalibrated.inc_by(std::mem::take(&mut self.uncalibrated));
        #[allow(clippy::cast_precision_loss)] // counts and milliseconds fit 53 bits
        {
            m.txn_records.observe(self.times.len() as f64);
            for time in self.times.drain(..) {
                m.end_to_end.observe(now.saturating_sub(time).max(0) as f64 / 1000.0);
            }
        }
        for counts in sessions {
            m.sprt_observations.inc_by(counts.observed);
            m.rolls.inc_by(counts.rolls);
            m.frozen.inc_by(counts.frozen);
            m.screened.inc_by(counts.screened);
            m.floor_hits.inc_by(counts.floors);
            m.share_alarms.inc_by(counts.shares);
            if let Some(rows) = counts.rows {
                m.rolling_rows.set(i64::from(rows));
            }
            for (hypothesis, n) in [("attack", counts.attacks), ("restart", counts.restarts)] {
                if n > 0 {
                    m.sprt_decisions.get_or_create(&vec![("hypothesis", hypothesis.to_owned())]).inc_by(n);
                }
            }
        }
    }

    /// The transaction is rolled back.
    pub(super) fn rolled_back(&mut self) {
        for tally in self.tallies() {
            tally.drop_open();
        }
        self.uncalibrated = 0;
        self.times.clear();
    }

    fn tallies(&mut self) -> [&mut Tally; 5] {
        [&mut self.verdicts, &mut self.decode_errors, &mut self.decisions, &mut self.dead_letters, &mut self.alerts]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(role: Role, headers: &[(&str, &str)]) -> Output {
        let headers = headers.iter().map(|(n, v)| ((*n).to_owned(), Some(v.as_bytes().to_vec()))).collect();
        Output { role, partition: 0, key: Vec::new(), value: None, headers }
    }

    fn at(role: Role) -> At {
        At { generation: 1, role, partition: 0, offset: 0, timestamp: 0 }
    }

    fn decided(decision: &str, reason: &str) -> u64 {
        let labels = vec![("decision", decision.to_owned()), ("reason", reason.to_owned())];
        metrics().decisions.get_or_create(&labels).get()
    }

    /// Only what is committed is counted, by its first reason.
    #[test]
    fn counts_what_is_committed() {
        let mut meter = Meter::default();
        let held = output(Role::Quarantine, &[(h::VERDICT, "quarantine"), (h::REASONS, "test:meter,other")]);
        let dead = output(Role::DeadLetters, &[(h::ERROR_CODE, "test_code"), (h::ERROR_STAGE, "decode")]);
        meter.decided(at(Role::MemoryWrites), std::slice::from_ref(&held));
        meter.rolled_back();
        meter.committed(0, std::iter::empty());
        assert_eq!(decided("quarantine", "test:meter"), 0);
        meter.decided(at(Role::MemoryWrites), &[held]);
        meter.decided(at(Role::MemoryWrites), std::slice::from_ref(&dead));
        meter.decided(at(Role::RetrievalLogs), &[dead]);
        meter.committed(0, std::iter::empty());
        assert_eq!(decided("quarantine", "test:meter"), 1);
        assert_eq!(decided("dead_letter", "test_code"), 1, "a retrieval gets no decision");
        let labels = vec![("stage", "decode".to_owned()), ("code", "test_code".to_owned())];
        assert_eq!(metrics().dead_letters.get_or_create(&labels).get(), 2);
    }
}
