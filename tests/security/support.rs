//! The secured broker, benches with topics of their own, and runs of the program under any settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::rights::{self, Right};

const MEMSLUICE: &str = env!("CARGO_BIN_EXE_memsluice");
/// Queries beside the writes of each load.
pub(crate) const QUERIES: u64 = 20;

/// What `scripts/kafka up --secure` left for its clients.
pub(crate) struct Secured {
    pub(crate) folder: PathBuf,
    listeners: BTreeMap<String, String>,
    passwords: BTreeMap<String, String>,
}

impl Secured {
    /// `None` without a secured broker.
    pub(crate) fn find() -> Option<Self> {
        let Ok(folder) = std::env::var("MEMSLUICE_TEST_KAFKA_SECURE") else {
            eprintln!("skipped: MEMSLUICE_TEST_KAFKA_SECURE names no folder (scripts/test --only security sets it)");
            return None;
        };
        let folder = PathBuf::from(folder);
        let pairs = |file: &str| {
            let text = std::fs::read_to_string(folder.join(file)).unwrap();
            text.lines().map(|l| l.split_once('=').unwrap()).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
        };
        Some(Self { listeners: pairs("listeners"), passwords: pairs("passwords"), folder })
    }

    pub(crate) fn listener(&self, name: &str) -> &str {
        &self.listeners[name]
    }

    pub(crate) fn password(&self, user: &str) -> &str {
        &self.passwords[user]
    }

    pub(crate) fn passwords(&self) -> impl Iterator<Item = &str> {
        self.passwords.values().map(String::as_str)
    }

    pub(crate) fn path(&self, file: &str) -> String {
        text(&self.folder.join(file)).to_owned()
    }

    /// TLS without a user.
    pub(crate) fn tls(&self) -> Access {
        Access::new(self.listener("tls"), "ssl").with("ssl.ca.location", &self.path("ca.pem"))
    }

    /// TLS with a client certificate whose key has a password.
    pub(crate) fn mtls(&self) -> Access {
        Access::new(self.listener("mtls"), "ssl")
            .with("ssl.ca.location", &self.path("ca.pem"))
            .with("ssl.certificate.location", &self.path("client.pem"))
            .with("ssl.key.location", &self.path("client-encrypted.key"))
            .with("ssl.key.password", self.password("client-key"))
    }

    /// A user's password under a mechanism.
    pub(crate) fn sasl(&self, mechanism: &str, user: &str) -> Access {
        Access::new(self.listener("sasl"), "sasl_ssl")
            .with("ssl.ca.location", &self.path("ca.pem"))
            .with("sasl.mechanisms", mechanism)
            .with("sasl.username", user)
            .with("sasl.password", self.password(user))
    }

    /// A token from this address.
    pub(crate) fn oidc(&self, url: &str) -> Access {
        Access::new(self.listener("sasl"), "sasl_ssl")
            .with("ssl.ca.location", &self.path("ca.pem"))
            .with("sasl.mechanisms", "OAUTHBEARER")
            .with("sasl.oauthbearer.method", "oidc")
            .with("sasl.oauthbearer.client.id", crate::tokens::CLIENT)
            .with("sasl.oauthbearer.client.secret", crate::tokens::SECRET)
            .with("sasl.oauthbearer.token.endpoint.url", url)
    }
}

/// How a client signs in.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    bootstrap: String,
    properties: BTreeMap<String, String>,
}

impl Access {
    pub(crate) fn new(bootstrap: &str, protocol: &str) -> Self {
        let properties = BTreeMap::from([("security.protocol".to_owned(), protocol.to_owned())]);
        Self { bootstrap: bootstrap.to_owned(), properties }
    }

    pub(crate) fn with(mut self, key: &str, value: &str) -> Self {
        self.properties.insert(key.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn sets(&self, key: &str) -> bool {
        self.properties.contains_key(key)
    }

    pub(crate) fn without(mut self, key: &str) -> Self {
        self.properties.remove(key);
        self
    }

    pub(crate) fn at(mut self, bootstrap: &str) -> Self {
        bootstrap.clone_into(&mut self.bootstrap);
        self
    }

    /// As variables.
    fn env(&self) -> BTreeMap<String, String> {
        let name = |key: &str| format!("MEMSLUICE__KAFKA__PROPERTIES__{}", key.to_uppercase().replace('.', "_"));
        let mut env: BTreeMap<String, String> = self.properties.iter().map(|(k, v)| (name(k), v.clone())).collect();
        env.insert("MEMSLUICE__KAFKA__BOOTSTRAP".to_owned(), self.bootstrap.clone());
        env
    }

    /// As a file.
    fn yaml(&self) -> String {
        serde_json::json!({"kafka": {"bootstrap": self.bootstrap, "properties": self.properties}}).to_string()
    }
}

/// How the program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Everything that was printed.
    pub(crate) fn all(&self) -> String {
        format!("{}\n{}", self.stdout, self.stderr)
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.status, Some(0), "{}", self.tail());
        self
    }

    /// The error that ended it.
    pub(crate) fn message(&self) -> &str {
        let start = if self.stderr.starts_with("error: ") { Some(0) } else { self.stderr.rfind("\nerror: ") };
        start.map_or("", |at| &self.stderr[at..])
    }

    /// The last lines; a talkative log has thousands.
    pub(crate) fn tail(&self) -> String {
        let lines: Vec<&str> = self.stderr.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    pub(crate) fn totals(&self) -> Value {
        serde_json::from_str(self.stdout.trim()).unwrap_or_else(|e| panic!("{e}: {}", self.all()))
    }

    /// Ended with this status and code, and the message names what to look at.
    #[track_caller]
    pub(crate) fn refused(&self, status: i32, code: &str, named: &str) {
        let message = self.message();
        assert_eq!(self.status, Some(status), "{code}: {}", self.tail());
        assert!(message.contains(&format!("[{code}]")), "{code}: {}", self.tail());
        assert!(message.contains(named), "{code} does not name {named}: {message}");
    }
}

/// Topics, settings and state of one test. The broker's users and their rights belong to all: one test at a time
/// (`--test-threads 1`).
pub(crate) struct Bench {
    pub(crate) secured: Secured,
    pub(crate) prefix: String,
    pub(crate) folder: tempfile::TempDir,
    env: BTreeMap<String, String>,
}

impl Bench {
    /// Fresh topics; `None` without a secured broker.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let bench = Self::without_topics(name)?;
        bench.admin(&["topology", "apply"]).ok();
        Some(bench)
    }

    pub(crate) fn without_topics(name: &str) -> Option<Self> {
        let secured = Secured::find()?;
        let folder = tempfile::tempdir().unwrap();
        let topology = folder.path().join("topology");
        std::fs::create_dir(&topology).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("topology");
        for file in ["memsluice.yaml", "topics.yaml", "policy.yaml"] {
            let content = std::fs::read_to_string(source.join(file)).unwrap();
            // Test data is dated in the past: retention would delete it.
            std::fs::write(topology.join(file), content.replace("retention: 7d", "retention: forever")).unwrap();
        }
        std::fs::write(folder.path().join("secret"), [7_u8; 32]).unwrap();
        let prefix = format!("{name}-{}-", std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() % 1_000_000_000_000);
        let env = BTreeMap::from([
            ("MEMSLUICE__KAFKA__TOPIC_PREFIX".to_owned(), prefix.clone()),
            ("MEMSLUICE__SECRET_FILE".to_owned(), text(&folder.path().join("secret")).to_owned()),
            ("MEMSLUICE__STATE_DIR".to_owned(), text(&folder.path().join("state")).to_owned()),
            ("MEMSLUICE__ENCODER__BACKEND".to_owned(), "hash".to_owned()),
            ("MEMSLUICE__HTTP__LISTEN".to_owned(), "off".to_owned()),
            ("MEMSLUICE_TOPOLOGY".to_owned(), text(&topology).to_owned()),
        ]);
        Some(Self { secured, prefix, folder, env })
    }

    pub(crate) fn set(&mut self, key: &str, value: &str) {
        self.env.insert(key.to_owned(), value.to_owned());
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(MEMSLUICE);
        for (key, _) in std::env::vars().filter(|(k, _)| k.starts_with("MEMSLUICE")) {
            command.env_remove(key);
        }
        command.args(args).envs(&self.env).current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    /// The program as the operator of the test broker.
    pub(crate) fn admin(&self, args: &[&str]) -> Ended {
        let bootstrap = self.secured.listener("plaintext");
        Ended::of(self.command(args).env("MEMSLUICE__KAFKA__BOOTSTRAP", bootstrap).output().unwrap())
    }

    /// The program with settings from the environment.
    pub(crate) fn cli(&self, access: &Access, args: &[&str]) -> Ended {
        Ended::of(self.command(args).envs(access.env()).output().unwrap())
    }

    /// The program with settings from a file.
    pub(crate) fn cli_with_file(&self, access: &Access, args: &[&str]) -> Ended {
        let file = self.folder.path().join("memsluice.yaml");
        std::fs::write(&file, access.yaml()).unwrap();
        let ended = Ended::of(self.command(args).output().unwrap());
        std::fs::remove_file(&file).unwrap();
        ended
    }

    pub(crate) fn run(&self, access: &Access) -> Ended {
        self.cli(access, &["run", "--until-end", "--output", "json"])
    }

    /// The rights of a role as `topology acls` prints them.
    pub(crate) fn rights(&self, role: &str) -> Vec<Right> {
        let printed = self.admin(&["topology", "acls", "--role", role, "--output", "json"]).ok();
        printed.stdout.lines().map(Right::parse).collect()
    }

    pub(crate) fn give(&self, user: &str, rights: &[Right]) {
        rights::set(self.secured.listener("plaintext"), &format!("User:{user}"), rights);
    }

    pub(crate) fn wipe_state(&self) {
        let state = self.folder.path().join("state");
        if state.exists() {
            std::fs::remove_dir_all(state).unwrap();
        }
    }

    /// Changes the topology of this test.
    pub(crate) fn edit(&self, from: &str, to: &str) {
        let path = self.folder.path().join("topology/memsluice.yaml");
        let content = std::fs::read_to_string(&path).unwrap();
        assert!(content.contains(from));
        std::fs::write(&path, content.replace(from, to)).unwrap();
    }

    /// Writes and queries, over the loopback listener.
    pub(crate) fn load(&self, writes: usize) {
        self.load_at(writes, "2026-06-01T00:00:00Z");
    }

    /// The same, at another time.
    pub(crate) fn load_at(&self, writes: usize, start: &str) {
        let (w, q) = (self.folder.path().join("w.jsonl"), self.folder.path().join("q.jsonl"));
        let (count, queries) = (writes.to_string(), QUERIES.to_string());
        let (writes, events) = (["--out", text(&w)], ["--queries", &queries, "--queries-out", text(&q)]);
        tool(&[&["generate", "--count", &count, "--start", start][..], &writes, &events].concat());
        for (topic, file) in [("retrieval-logs", &q), ("memory-writes", &w)] {
            let topic = format!("{}{topic}", self.prefix);
            let bootstrap = self.secured.listener("plaintext");
            tool(&["produce", "--bootstrap", bootstrap, "--topic", &topic, "--file", text(file)]);
        }
    }

    /// The verifier finds every input decided once.
    pub(crate) fn verify(&self) {
        tool(&["--json", "verify", "--bootstrap", self.secured.listener("plaintext"), "--prefix", &self.prefix]);
    }
}

fn tool(args: &[&str]) {
    let program = Path::new(MEMSLUICE).with_file_name("load-tests");
    let out = Command::new(program).args(args).output().expect("load-tests is built (scripts/test builds it)");
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "load-tests {args:?}: {said}");
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
