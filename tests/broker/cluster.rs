//! Brokers of one test's own, to be stopped, killed and configured. They are started by `scripts/kafka`; what
//! is started again runs the same command line.

use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};

const LIMIT: Duration = Duration::from_secs(90);

/// A cluster on ports of its own.
pub(crate) struct Cluster {
    folder: tempfile::TempDir,
    port: u16,
    nodes: Vec<Node>,
}

struct Node {
    pid: u32,
    command: Vec<String>,
}

impl Cluster {
    /// Starts brokers with more settings than `scripts/kafka` writes; `None` where no broker tests run.
    pub(crate) fn start(count: u16, settings: &[(&str, &str)]) -> Option<Self> {
        if std::env::var("MEMSLUICE_TEST_KAFKA").is_err() {
            eprintln!("skipped: MEMSLUICE_TEST_KAFKA names no broker (scripts/test starts one)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let port = free_ports(count);
        let script = format!("{}/scripts/kafka", env!("CARGO_MANIFEST_DIR"));
        let out = Command::new(script)
            .args(["up", "--brokers", &count.to_string(), "--port", &port.to_string(), "--data"])
            .arg(folder.path().join("kafka"))
            .env("KAFKA_HEAP", "384m")
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let mut cluster = Self { folder, port, nodes: Vec::new() };
        for i in 1..=count {
            let pid = std::fs::read_to_string(cluster.node(i).join("pid")).unwrap().trim().parse().unwrap();
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
            let command = line.split(|b| *b == 0).filter(|p| !p.is_empty());
            let command = command.map(|p| String::from_utf8(p.to_vec()).unwrap()).collect();
            cluster.nodes.push(Node { pid, command });
        }
        if !settings.is_empty() {
            cluster.configure(settings);
        }
        cluster.wait_until_whole();
        Some(cluster)
    }

    /// Adds settings (the last of a key counts) and starts all brokers again.
    pub(crate) fn configure(&mut self, settings: &[(&str, &str)]) {
        let count = u16::try_from(self.nodes.len()).unwrap();
        for i in 1..=count {
            self.stop(i);
            let file = self.node(i).join("server.properties");
            let mut text = std::fs::read_to_string(&file).unwrap();
            settings.iter().for_each(|(k, v)| text.push_str(&format!("\n{k}={v}\n")));
            std::fs::write(file, text).unwrap();
        }
        for i in 1..=count {
            self.start_again(i);
        }
        self.wait_until_whole();
    }

    fn node(&self, i: u16) -> PathBuf {
        self.folder.path().join("kafka").join(format!("node-{i}"))
    }

    /// Whether a broker took partitions without a leader for deleted and ended a transaction without its markers
    /// there: it hangs for good (docs/operations.md).
    pub(crate) fn lost_markers(&self, i: u16) -> bool {
        let log = std::fs::read_to_string(self.node(i).join("server.log")).unwrap_or_default();
        log.contains("these partitions are likely deleted already and hence can be skipped")
    }

    pub(crate) fn bootstrap(&self) -> String {
        let list: Vec<String> =
            (0..self.nodes.len()).map(|i| format!("127.0.0.1:{}", self.port + u16::try_from(i).unwrap())).collect();
        list.join(",")
    }

    fn signal(&mut self, i: u16, name: &str) {
        let pid = self.nodes[usize::from(i) - 1].pid;
        Command::new("kill").args([name, &pid.to_string()]).status().unwrap();
        let until = Instant::now() + LIMIT;
        while alive(pid) {
            assert!(Instant::now() < until, "broker {i} does not end");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// An orderly stop.
    pub(crate) fn stop(&mut self, i: u16) {
        self.signal(i, "-TERM");
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self, i: u16) {
        self.signal(i, "-KILL");
    }

    /// Starts a broker that was stopped.
    pub(crate) fn start_again(&mut self, i: u16) {
        let log = std::fs::OpenOptions::new().append(true).open(self.node(i).join("server.log")).unwrap();
        let node = &mut self.nodes[usize::from(i) - 1];
        let child = Command::new(&node.command[0])
            .args(&node.command[1..])
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        node.pid = child.id();
        // Reaped as soon as it ends.
        std::thread::spawn(move || {
            let mut child = child;
            drop(child.wait());
        });
    }

    /// Waits until every broker is in the metadata.
    pub(crate) fn wait_until_whole(&self) {
        let until = Instant::now() + LIMIT;
        let answers = || {
            let mut config = rdkafka::ClientConfig::new();
            config.set("bootstrap.servers", self.bootstrap()).set("log_level", "0");
            let consumer: BaseConsumer = config.create().unwrap();
            consumer.fetch_metadata(None, Duration::from_secs(3)).map_or(0, |m| m.brokers().len())
        };
        let ports = || (0..self.nodes.len()).all(|i| connects(self.port + u16::try_from(i).unwrap()));
        while !ports() || answers() < self.nodes.len() {
            assert!(Instant::now() < until, "the cluster does not come up");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Node that leads a partition.
    pub(crate) fn leader(&self, topic: &str, partition: usize) -> u16 {
        let mut config = rdkafka::ClientConfig::new();
        config.set("bootstrap.servers", self.bootstrap());
        let consumer: BaseConsumer = config.create().unwrap();
        let metadata = consumer.fetch_metadata(Some(topic), Duration::from_secs(15)).unwrap();
        u16::try_from(metadata.topics()[0].partitions()[partition].leader()).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &self.nodes {
            if alive(node.pid) {
                drop(Command::new("kill").args(["-KILL", &node.pid.to_string()]).status());
            }
        }
    }
}

/// A zombie that its parent has not reaped counts as ended.
fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|s| !s.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

fn connects(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// First of `count` ports that are free, with their controllers' a thousand above; from the test broker's on.
fn free_ports(count: u16) -> u16 {
    let bootstrap = std::env::var("MEMSLUICE_TEST_KAFKA").unwrap();
    let base: u16 = bootstrap.rsplit(':').next().and_then(|p| p.parse().ok()).unwrap_or(29_292);
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    // Clusters that start at the same time take different ones.
    static TAKEN: AtomicU16 = AtomicU16::new(1);
    std::iter::repeat_with(|| base + 10 * TAKEN.fetch_add(1, Ordering::Relaxed))
        .take(40)
        .find(|port| (0..count).all(|i| free(port + i) && free(port + 1000 + i)))
        .expect("free ports for brokers")
}
