//! Totals of a run.

use std::collections::BTreeMap;

use crate::schema::Verdict;
use crate::sink::Output;
use crate::topology::Role;

/// Totals of a run, committed records only.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Summary {
    /// Inputs.
    pub inputs: u64,
    /// Writes by verdict word.
    pub verdicts: BTreeMap<String, u64>,
    /// Decisions that no calibration applied to.
    pub uncalibrated: u64,
    /// Findings.
    pub findings: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// Transactions.
    pub transactions: u64,
    /// Transactions rolled back.
    pub rollbacks: u64,
    /// Changelog records replayed at assignments.
    pub replayed: u64,
    /// Input offsets that were deleted unread (`consumer.on_out_of_range: earliest`).
    pub lost: u64,
    /// From the first record to the last commit, ms.
    pub elapsed_ms: u64,
}

impl Summary {
    /// Counts an output.
    pub fn count(&mut self, o: &Output) {
        match o.role {
            Role::Attacks => self.findings += 1,
            Role::DeadLetters => self.dead_letters += 1,
            Role::CommittedMemory | Role::Quarantine => {
                let verdict = o.header(crate::schema::header::VERDICT).unwrap_or(Verdict::Allow.as_str()).to_owned();
                *self.verdicts.entry(verdict).or_default() += 1;
            }
            Role::Decisions => {
                self.uncalibrated += u64::from(o.header(crate::schema::header::UNCALIBRATED).is_some());
            }
            _ => {}
        }
    }

    /// Adds the totals of a transaction.
    pub(super) fn add(&mut self, other: &Summary) {
        self.inputs += other.inputs;
        self.uncalibrated += other.uncalibrated;
        self.findings += other.findings;
        self.dead_letters += other.dead_letters;
        for (verdict, n) in &other.verdicts {
            *self.verdicts.entry(verdict.clone()).or_default() += n;
        }
    }
}
