//! The broker or brokers under test, by `scripts/kafka`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::error::{Error, Result};

/// Heap of each broker: three of them stand beside the members.
const HEAP: &str = "512m";

/// A cluster of this run.
#[derive(Debug)]
pub(crate) struct Cluster {
    script: PathBuf,
    port: u16,
    data: PathBuf,
    brokers: u16,
}

impl Cluster {
    /// Starts brokers with fresh data.
    pub(crate) fn up(root: &Path, port: u16, data: PathBuf, brokers: u16) -> Result<Self> {
        let cluster = Self { script: root.join("scripts/kafka"), port, data, brokers };
        cluster.call(&["up", "--fresh", "--brokers", &brokers.to_string()])?;
        Ok(cluster)
    }

    /// Addresses of all brokers.
    pub(crate) fn bootstrap(&self) -> String {
        let all: Vec<String> = (0..self.brokers).map(|i| format!("127.0.0.1:{}", self.port + i)).collect();
        all.join(",")
    }

    /// Number of brokers.
    pub(crate) fn brokers(&self) -> u16 {
        self.brokers
    }

    /// kill -9 of broker `node` (1 to `brokers`).
    pub(crate) fn kill(&self, node: usize) -> Result<()> {
        self.call(&["kill", "--node", &node.to_string()])
    }

    /// Starts broker `node`; the process ends when the broker answers.
    pub(crate) fn start(&self, node: usize) -> Result<Child> {
        let mut command = self.command(&["start", "--node", &node.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().map_err(|source| Error::Io { what: "can't run scripts/kafka".to_owned(), source })
    }

    fn call(&self, args: &[&str]) -> Result<()> {
        finished(self.command(args), &format!("scripts/kafka {}", args.join(" "))).map(drop)
    }

    fn command(&self, args: &[&str]) -> Command {
        let (port, data) = (self.port.to_string(), self.data.display().to_string());
        let mut command = Command::new(&self.script);
        command.args(args).args(["--port", &port, "--data", &data]).env("KAFKA_HEAP", HEAP);
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The brokers' logs outlive their data. Nothing is left to tell a failure to: the run is over.
        if let Some(folder) = self.data.parent() {
            for node in 1..=self.brokers {
                let log = self.data.join(format!("node-{node}/server.log"));
                let _ = std::fs::copy(log, folder.join(format!("logs/broker-{node}.out")));
            }
        }
        let _ = self.call(&["down", "--fresh"]);
    }
}

/// Runs a command to its end; its standard output.
pub(crate) fn finished(mut command: Command, what: &str) -> Result<String> {
    let out = command.output().map_err(|source| Error::Io { what: format!("can't run {what}"), source })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !out.status.success() {
        return Err(Error::Input(format!("{what} failed: {}{}", text(&out.stdout), text(&out.stderr))));
    }
    Ok(text(&out.stdout))
}
