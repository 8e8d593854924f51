//! One member of the group: the real binary as a process that is struck and started again.

use std::fs::{File, OpenOptions};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use crate::error::{Error, Result};

/// A member that was told to stop and runs on after this long is a fault.
const STOP: Duration = Duration::from_secs(60);
/// Pause before a member that ended by itself is started again.
const AGAIN: Duration = Duration::from_secs(1);

/// What a member does just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    Paused(Instant),
    Stopping {
        until: Instant,
        down: Option<Duration>,
    },
    /// Starts again then; `None`: never.
    Down(Option<Instant>),
}

/// Why a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cause {
    /// kill -9.
    Killed,
    /// SIGTERM.
    Asked,
    /// By itself.
    Own,
    /// It did not end when it was asked to, and was killed.
    Stuck,
}

/// The end of a process.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Exit {
    pub(crate) member: usize,
    /// Which start of the member it was.
    pub(crate) run: u32,
    /// Since the start of the soak, seconds.
    pub(crate) at_s: f64,
    pub(crate) cause: Cause,
    /// Exit status; none after a signal.
    pub(crate) status: Option<i32>,
    /// Number of the signal that ended it.
    pub(crate) signal: Option<i32>,
    /// Error code on the log, where it ended by itself.
    pub(crate) code: Option<String>,
}

/// How to start members.
#[derive(Debug)]
pub(crate) struct Setup {
    /// The binary.
    pub(crate) binary: PathBuf,
    /// Work folder: logs, state, settings.
    pub(crate) folder: PathBuf,
    /// Environment of every member.
    pub(crate) env: Vec<(String, String)>,
    /// When the soak began.
    pub(crate) began: Instant,
}

impl Setup {
    /// A command of memsluice with this environment and none of the caller's settings.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        for (key, _) in std::env::vars_os().filter(|(k, _)| k.to_string_lossy().starts_with("MEMSLUICE")) {
            command.env_remove(key);
        }
        command.args(args).envs(self.env.iter().cloned()).current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    /// State folder of a member.
    pub(crate) fn state(&self, member: usize) -> PathBuf {
        self.folder.join(format!("state-{member}"))
    }

    /// Log of one run of a member.
    pub(crate) fn log(&self, member: usize, run: u32) -> PathBuf {
        self.folder.join("logs").join(format!("member-{member}-run-{run:03}.log"))
    }
}

/// A member.
#[derive(Debug)]
pub(crate) struct Member {
    id: usize,
    phase: Phase,
    child: Option<Child>,
    runs: u32,
    killed: bool,
}

impl Member {
    /// Not started yet.
    pub(crate) fn new(id: usize) -> Self {
        Self { id, phase: Phase::Down(None), child: None, runs: 0, killed: false }
    }

    /// Number of starts.
    pub(crate) fn runs(&self) -> u32 {
        self.runs
    }

    /// Whether it can be struck.
    pub(crate) fn running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Whether it neither runs nor will.
    pub(crate) fn gone(&self) -> bool {
        self.phase == Phase::Down(None)
    }

    /// Process id; `None` while it is down.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts the process.
    pub(crate) fn start(&mut self, setup: &Setup) -> Result<()> {
        self.runs += 1;
        let log = setup.log(self.id, self.runs);
        let mut command = setup.command(&["run", "--output", "json"]);
        command
            .env("MEMSLUICE__KAFKA__INSTANCE_ID", format!("soak-{}", self.id))
            .env("MEMSLUICE__STATE_DIR", setup.state(self.id))
            .stdout(opened(&log.with_extension("out"))?)
            .stderr(opened(&log)?);
        let what = || format!("can't start {}", setup.binary.display());
        self.child = Some(command.spawn().map_err(|source| Error::Io { what: what(), source })?);
        self.phase = Phase::Running;
        self.killed = false;
        Ok(())
    }

    /// kill -9; starts again after `down`.
    pub(crate) fn kill(&mut self, down: Duration) {
        self.killed = true;
        self.signal(Signal::KILL);
        self.phase = Phase::Stopping { until: Instant::now() + STOP, down: Some(down) };
    }

    /// SIGTERM; starts again after `down`, or never.
    pub(crate) fn stop(&mut self, down: Option<Duration>) {
        if self.child.is_none() {
            self.phase = Phase::Down(None);
            return;
        }
        self.signal(Signal::CONT);
        self.signal(Signal::TERM);
        self.phase = Phase::Stopping { until: Instant::now() + STOP, down };
    }

    /// SIGSTOP for `time`.
    pub(crate) fn pause(&mut self, time: Duration) {
        self.signal(Signal::STOP);
        self.phase = Phase::Paused(Instant::now() + time);
    }

    /// Looks after the process: resumes, reaps, starts again. The end of a process, if there was one.
    pub(crate) fn tend(&mut self, setup: &Setup) -> Result<Option<Exit>> {
        let now = Instant::now();
        match self.phase {
            Phase::Down(Some(at)) if now >= at => self.start(setup).map(|()| None),
            Phase::Down(_) => Ok(None),
            Phase::Paused(until) if now >= until => {
                self.signal(Signal::CONT);
                self.phase = Phase::Running;
                Ok(None)
            }
            Phase::Stopping { until, .. } if now >= until => {
                self.signal(Signal::KILL);
                let status = self.reap(true)?;
                self.ended(setup, Cause::Stuck, status, None)
            }
            Phase::Running | Phase::Paused(_) | Phase::Stopping { .. } => {
                let Some(status) = self.reap(false)? else { return Ok(None) };
                let (cause, again) = match self.phase {
                    Phase::Stopping { down, .. } if self.killed => (Cause::Killed, down),
                    Phase::Stopping { down, .. } => (Cause::Asked, down),
                    _ => (Cause::Own, Some(AGAIN)),
                };
                self.ended(setup, cause, Some(status), again)
            }
        }
    }

    fn ended(
        &mut self,
        setup: &Setup,
        cause: Cause,
        status: Option<ExitStatus>,
        again: Option<Duration>,
    ) -> Result<Option<Exit>> {
        self.child = None;
        self.phase = Phase::Down(again.map(|d| Instant::now() + d));
        let (status, signal) = (status.and_then(|s| s.code()), status.and_then(|s| s.signal()));
        let code = if status == Some(0) { None } else { error_code(&setup.log(self.id, self.runs)) };
        let at_s = setup.began.elapsed().as_secs_f64();
        Ok(Some(Exit { member: self.id, run: self.runs, at_s, cause, status, signal, code }))
    }

    fn reap(&mut self, wait: bool) -> Result<Option<ExitStatus>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let found = if wait { child.wait().map(Some) } else { child.try_wait() };
        found.map_err(|source| Error::Io { what: "can't wait for a member".to_owned(), source })
    }

    /// A process that has just ended needs no signal.
    fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().and_then(|c| i32::try_from(c.id()).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn opened(path: &Path) -> Result<File> {
    OpenOptions::new().create(true).append(true).open(path).map_err(|e| Error::io("open", path, e))
}

/// The code in the last line `error: ... [code]...` of a log.
fn error_code(log: &Path) -> Option<String> {
    let text = std::fs::read_to_string(log).ok()?;
    let line = text.lines().rev().find(|l| l.starts_with("error: "))?;
    let code = line.split('[').skip(1).filter_map(|part| part.split_once(']')).map(|(code, _)| code);
    code.filter(|c| c.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')).last().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_an_error() {
        let folder = std::env::temp_dir().join(format!("load-tests-member-{}", std::process::id()));
        std::fs::write(&folder, "x [INFO] y\nerror: no [one] here [broker_unreachable]: cause\n  next: wait\n")
            .unwrap();
        let code = error_code(&folder);
        std::fs::remove_file(&folder).unwrap();
        assert_eq!(code.as_deref(), Some("broker_unreachable"));
    }
}
