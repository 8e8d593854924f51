//! Faults on purpose, between any two steps of a commit: `before|after _ step = abort|error|timeout|DURATION [@ n]`.
//! Never set outside of tests: `MEMSLUICE__FAILPOINT=after_commit=timeout@3`.

use std::time::Duration;

use super::machine::Command;
use crate::error::{Code, Error, Result};

/// Where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The step isn't run.
    Before,
    /// The step is run and its answer lost.
    After,
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The process dies as by `kill -9`.
    Abort,
    /// The call is refused.
    Error,
    /// The call gives no answer.
    Timeout,
    /// The task thread stands still for so long, then goes on.
    Stall(Duration),
}

/// Steps that a failpoint may name, in commit order.
pub const STEPS: [(Command, &str); 7] = [
    (Command::Begin, "begin"),
    (Command::Drain, "drain"),
    (Command::SendOffsets, "offsets"),
    (Command::Commit, "commit"),
    (Command::Apply, "apply"),
    (Command::Abort, "abort"),
    (Command::Rebuild, "rebuild"),
];

/// One fault at the n-th passage of one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failpoint {
    step: Command,
    side: Side,
    fault: Fault,
    /// Passages until it strikes; 0 is spent.
    left: u64,
}

impl Failpoint {
    /// A fault at the `nth` passage (from 1).
    #[must_use]
    pub fn new(step: Command, side: Side, fault: Fault, nth: u64) -> Self {
        Self { step, side, fault, left: nth }
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// `config_invalid`.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || Error::new(Code::ConfigInvalid, format!("failpoint '{text}' is not before_STEP=FAULT[@N]"));
        let (place, rest) = text.split_once('=').ok_or_else(wrong)?;
        let (side, step) = place.split_once('_').ok_or_else(wrong)?;
        let (fault, nth) = rest.split_once('@').unwrap_or((rest, "1"));
        let side = match side {
            "before" => Side::Before,
            "after" => Side::After,
            _ => return Err(wrong()),
        };
        let fault = match fault {
            "abort" => Fault::Abort,
            "error" => Fault::Error,
            "timeout" => Fault::Timeout,
            _ => Fault::Stall(humantime::parse_duration(fault).map_err(|_| wrong())?),
        };
        let step = STEPS.iter().find(|(_, name)| *name == step).ok_or_else(wrong)?.0;
        let nth = nth.parse().ok().filter(|n| *n > 0).ok_or_else(wrong)?;
        Ok(Self::new(step, side, fault, nth))
    }

    /// Passes a place; the fault when it strikes.
    pub fn pass(&mut self, step: Command, side: Side) -> Option<Fault> {
        if self.left == 0 || self.step != step || self.side != side {
            return None;
        }
        self.left -= 1;
        (self.left == 0).then_some(self.fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strikes_once_at_its_place() {
        let stall = Failpoint::parse("before_commit=30s@1").unwrap().pass(Command::Commit, Side::Before);
        assert_eq!(stall, Some(Fault::Stall(Duration::from_secs(30))));
        let mut f = Failpoint::parse("after_commit=timeout@2").unwrap();
        assert_eq!(f.pass(Command::Commit, Side::Before), None);
        assert_eq!(f.pass(Command::Commit, Side::After), None);
        assert_eq!(f.pass(Command::Commit, Side::After), Some(Fault::Timeout));
        assert_eq!(f.pass(Command::Commit, Side::After), None);
        for bad in
            ["", "after_commit", "between_commit=error", "after_sleep=error", "after_commit=x", "after_commit=error@0"]
        {
            assert_eq!(Failpoint::parse(bad).unwrap_err().code(), Code::ConfigInvalid, "{bad}");
        }
    }
}
