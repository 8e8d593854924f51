//! A running stream: its log, its signals, its end.

use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::support::Outcome;

/// A running stream.
pub(crate) struct Running {
    pub(super) child: Child,
    pub(super) log: PathBuf,
}

/// A failed test leaves no process behind.
impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Running {
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
    }

    /// Ends by itself within a limit; the status and the log.
    pub(crate) fn ends(mut self, limit: Duration) -> (Option<i32>, String) {
        let until = Instant::now() + limit;
        while self.child.try_wait().unwrap().is_none() {
            if Instant::now() > until {
                drop(self.child.kill());
                panic!("still running after {limit:?}: {}", self.log());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        (self.child.wait().unwrap().code(), self.log())
    }

    /// Memory that is resident now and at its peak, KiB.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let of = |name: &str| {
            let line = status.lines().find(|l| l.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        (of("VmRSS:"), of("VmHWM:"))
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn wait(mut self) -> Outcome {
        let status = self.child.wait().unwrap();
        status.code().map_or(Outcome::Signal, Outcome::Exit)
    }

    /// SIGTERM, then the exit.
    pub(crate) fn terminate(self) -> Outcome {
        Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        self.wait()
    }
}

/// The first of two processes to end by itself; the other is killed.
pub(crate) fn first_to_end<const N: usize>(
    runs: [(&str, Running); N],
    limit: Duration,
) -> (String, Option<i32>, String) {
    let mut runs = runs;
    let until = Instant::now() + limit;
    let ended = loop {
        let found = runs.iter_mut().position(|(_, r)| r.child.try_wait().unwrap().is_some());
        if found.is_some() || Instant::now() > until {
            break found;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let result = match ended {
        Some(i) => (runs[i].0.to_owned(), runs[i].1.child.wait().unwrap().code(), runs[i].1.log()),
        None => ("neither".to_owned(), None, runs.iter().map(|(n, r)| format!("{n}: {}", r.log())).collect()),
    };
    for (_, run) in &mut runs {
        drop(run.child.kill());
        drop(run.child.wait());
    }
    result
}
