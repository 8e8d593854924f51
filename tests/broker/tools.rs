//! More that a bench can do to a running stream, its state and its topics.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use memsluice::source::watermarks;
use memsluice::state::{Restored, Restorer, Watch};
use memsluice::topology::Topology;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewPartitions, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;

use super::support::{Bench, Outcome, Run, Running, UNITS, tool_ok};

/// Waits for a condition.
pub(crate) fn wait_for(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + limit;
    while !is_so() {
        assert!(Instant::now() < until, "no {what} in {limit:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Keys whose values differ, or that one side lacks.
pub(crate) fn differing(a: &[(Vec<u8>, Vec<u8>)], b: &[(Vec<u8>, Vec<u8>)]) -> usize {
    let (a, b): (BTreeMap<_, _>, BTreeMap<_, _>) = (a.iter().cloned().collect(), b.iter().cloned().collect());
    let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
    keys.into_iter().filter(|k| a.get(*k) != b.get(*k)).count()
}

impl Bench {
    pub(crate) fn unset(&mut self, key: &str) {
        self.env.remove(key);
    }

    /// Settings that the environment can't say.
    pub(crate) fn config(&self, yaml: &str) {
        std::fs::write(self.folder.path().join("memsluice.yaml"), yaml).unwrap();
    }

    /// A run that may end in any way.
    pub(crate) fn run_quietly(&self, run: Run) -> Outcome {
        self.spawn(run).wait()
    }

    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Until this many inputs have their decisions.
    pub(crate) fn wait_for_input_decisions(&self, inputs: u64, limit: Duration) {
        let until = Instant::now() + limit;
        while self.count("decisions") < inputs || {
            let found = self.verify();
            found.lost > 0 || found.inputs < inputs
        } {
            assert!(Instant::now() < until, "inputs stay undecided: {:?}", self.verify());
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    pub(crate) fn changelog_records(&self) -> u64 {
        self.count("memsluice-changelog")
    }

    /// Restores one unit of the bench's state.
    pub(crate) fn restore(&self, unit: i32, watch: Watch<'_>) -> Option<Restored> {
        let mut topology = Topology::load(&self.folder("topology")).unwrap();
        topology.prefix(&self.prefix);
        let restorer = Restorer::new(&self.client(), &format!("{}group", self.prefix), &topology).unwrap();
        restorer.unit(&mut self.db(), unit, watch).unwrap()
    }

    /// Overwrites the database's manifest.
    pub(crate) fn corrupt_state(&self) {
        let files = std::fs::read_dir(self.folder("state-one/rocksdb")).unwrap().map(|e| e.unwrap().path());
        let manifests: Vec<PathBuf> = files.filter(|p| p.to_string_lossy().contains("MANIFEST")).collect();
        assert!(!manifests.is_empty());
        for file in manifests {
            std::fs::write(file, b"not a manifest").unwrap();
        }
    }

    fn admin<R>(&self, body: impl AsyncFnOnce(&AdminClient<DefaultClientContext>) -> R) -> R {
        let admin: AdminClient<DefaultClientContext> = self.client().create().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(body(&admin))
    }

    /// Changes a setting of a topic; the other settings go back to the broker's own.
    pub(crate) fn set_topic(&self, role: &str, key: &str, value: &str) {
        let topic = self.topic(role);
        let change = AlterConfig::new(ResourceSpecifier::Topic(&topic))
            .set("cleanup.policy", "compact")
            .set("max.message.bytes", "1200000")
            .set(key, value);
        self.admin(async |admin| {
            let done = admin.alter_configs([&change], &AdminOptions::new()).await.unwrap();
            assert!(done.iter().all(Result::is_ok), "{done:?}");
        });
        wait_for("the broker to know the setting", Duration::from_secs(30), || {
            let found = self.admin(async |admin| {
                let asked = [ResourceSpecifier::Topic(&topic)];
                let answer = admin.describe_configs(&asked, &AdminOptions::new()).await.unwrap().remove(0).unwrap();
                answer.get(key).and_then(|e| e.value.clone())
            });
            found.as_deref() == Some(value)
        });
    }

    pub(crate) fn grow_topic(&self, role: &str, partitions: usize) {
        let topic = self.topic(role);
        let change = NewPartitions::new(&topic, partitions);
        self.admin(async |admin| {
            let done = admin.create_partitions([&change], &AdminOptions::new()).await.unwrap();
            assert!(done.iter().all(Result::is_ok), "{done:?}");
        });
    }

    /// Deletes a topic and makes it again, with the settings that the topology asks for.
    pub(crate) fn recreate_topic(&self, role: &str) {
        let topic = self.topic(role);
        tool_ok(&["topics", "--bootstrap", &self.bootstrap, "--delete", &topic]);
        let reader = self.reader();
        wait_for("deletion", Duration::from_secs(30), || {
            (0..UNITS).all(|p| {
                std::thread::sleep(Duration::from_millis(100));
                reader_lacks(&reader, &topic, p)
            })
        });
        self.cli_ok(&["topology", "apply"]);
        wait_for("the new topic", Duration::from_secs(30), || watermarks(&self.reader(), &topic, 0).is_ok());
    }
}

fn reader_lacks(reader: &memsluice::source::Reader, topic: &str, partition: i32) -> bool {
    use rdkafka::consumer::Consumer;
    reader.fetch_watermarks(topic, partition, Duration::from_secs(2)).is_err()
}

impl Running {
    /// Until the log has this text.
    pub(crate) fn wait_for_log(&self, text: &str, limit: Duration) {
        wait_for(text, limit, || self.log().contains(text));
    }

    /// Changelog records replayed so far, as the log says.
    pub(crate) fn replayed(&self) -> u64 {
        let log = self.log();
        let numbers = log.lines().filter(|l| l.contains("restored")).filter_map(|l| {
            let (_, rest) = l.split_once("replayed=")?;
            rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u64>().ok()
        });
        numbers.sum()
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
