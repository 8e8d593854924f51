//! What the members' logs tell. Pure but for reading the files.

use std::path::Path;

use serde::Serialize;

use crate::error::{Error, Result};

/// Counted lines of all members' logs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Seen {
    /// Assignments, those at a start included.
    pub(crate) assigned: u64,
    /// Revocations: a member that ran took part in a rebalance.
    pub(crate) revoked: u64,
    /// Transactions that were rolled back.
    pub(crate) rolled_back: u64,
    /// Producers that were replaced.
    pub(crate) rebuilt: u64,
    /// Consumers that were replaced.
    pub(crate) rejoined: u64,
    /// Units that were rebuilt from the changelog.
    pub(crate) wiped: u64,
    /// Changelog records replayed at assignments.
    pub(crate) replayed: u64,
    pub(crate) panics: u64,
}

impl Seen {
    /// Reads every log in a folder.
    pub(crate) fn of(folder: &Path) -> Result<Self> {
        let mut seen = Self::default();
        let failed = |e| Error::io("read", folder, e);
        for entry in std::fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|e| e == "log") {
                let bytes = std::fs::read(&path).map_err(|e| Error::io("read", &path, e))?;
                String::from_utf8_lossy(&bytes).lines().for_each(|line| seen.take(line));
            }
        }
        Ok(seen)
    }

    fn take(&mut self, line: &str) {
        let has = |words: &str| u64::from(line.contains(words));
        self.assigned += has(": assigned generation=");
        self.revoked += has(": revoked generation=");
        self.rolled_back += has(": rolled back");
        self.rebuilt += has(": rebuilding");
        self.rejoined += has(": no assignment: joining");
        self.wiped += has(": unit is rebuilt from the changelog");
        self.panics += has("panicked at");
        self.replayed += line.split_once(" replayed=").and_then(|(_, n)| n.trim().parse::<u64>().ok()).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_log() {
        let mut seen = Seen::default();
        for line in [
            "2026-11-30T10:00:00.1Z  INFO memsluice::pipeline::task: assigned generation=3 partitions=6",
            "2026-11-30T10:00:00.1Z  INFO memsluice::pipeline::task: restored unit=1 replayed=17",
            "2026-11-30T10:00:00.1Z  WARN memsluice::pipeline::task: rolled back error=x",
            "thread 'main' panicked at src/x.rs:1:1:",
        ] {
            seen.take(line);
        }
        let expected = Seen { assigned: 1, replayed: 17, rolled_back: 1, panics: 1, ..Seen::default() };
        assert_eq!(seen, expected);
    }
}
