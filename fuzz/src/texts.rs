//! Files and requests.

use std::hint::black_box;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};

use memsluice::clock::Millis;
use memsluice::config::Config;
use memsluice::decode::Write;
use memsluice::policy::{CLASSES, FLOORS, Facts, Policy, Ratio, Signals, Suite};
use memsluice::schema::{Boundary, Op, Origin};
use memsluice::telemetry::{Health, Metrics, connection};
use memsluice::topology::{Topology, describe, dot};

static SAMPLE: LazyLock<Option<Topology>> = LazyLock::new(|| Topology::sample().ok());

/// Either file of a topology beside the other one of the sample.
pub fn topology(data: &[u8]) {
    let (Ok(text), Some(sample)) = (std::str::from_utf8(data), SAMPLE.as_ref()) else { return };
    let main = serde_yaml_ng::from_str(text).ok().map(|main| Topology::new(main, sample.topics.clone()));
    let topics = || serde_yaml_ng::from_str(text).ok().map(|topics| Topology::new(sample.main.clone(), topics));
    if let Some(Ok(parsed)) = main.or_else(topics) {
        black_box((describe(&parsed), dot(&parsed), parsed.units()));
    }
}

/// A policy, and its ruling on a write at the ends of time.
pub fn policy(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (Ok(policy), Ok(boundary)) = (Policy::parse(text), Boundary::new("acme", "support")) else { return };
    let write = Write {
        boundary,
        record_id: "m-1".to_owned(),
        op: Op::Create,
        content: "text".to_owned(),
        origin: Origin::UserInput,
        principal: None,
        session_id: None,
        output_id: None,
        written_by: None,
        source_ref: None,
        derived_from: Vec::new(),
        created_at: None,
        expires_at: None,
        embedding: None,
    };
    for at in [-1, 0, 1_790_000_000_000, Millis::MAX] {
        let screen = Signals::new(CLASSES, FLOORS, u32::MAX, u32::MAX).with_p(Some(Ratio { count: 1, of: 1 }));
        let facts = Facts { screen: Some(screen), growth: Some(u64::MAX), support: Some(1), ..Facts::default() };
        black_box((policy.rule("memory-writes", &write, at), policy.judge("memory-writes", &write, at, &facts)));
    }
    // The same text as a policy with its own fixtures.
    let Ok(suite) = Suite::parse(text, None) else { return };
    for at in [-1, Millis::MAX] {
        black_box((suite.lint(at), suite.test(at)));
    }
}

/// A `memsluice.yaml`; one that names a file of a secret would read it.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if text.contains("file") {
        return;
    }
    if let Ok(config) = Config::parse(text) {
        black_box((config.effective().is_ok(), config.bootstrap().is_ok(), config.state_dir()));
    }
}

/// A peer that has sent everything and reads everything.
struct Peer<'a> {
    sent: &'a [u8],
    heard: Vec<u8>,
}

impl hyper::rt::Read for Peer<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        let (now, later) = self.sent.split_at(self.sent.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.sent = later;
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Peer<'_> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.heard.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::default);
static HEALTH: LazyLock<Health> = LazyLock::new(Health::default);

thread_local! {
    static RUNTIME: Option<tokio::runtime::Runtime> =
        tokio::runtime::Builder::new_current_thread().enable_time().build().ok();
}

/// A connection to the HTTP endpoint.
pub fn http(data: &[u8]) {
    let peer = Peer { sent: data, heard: Vec::new() };
    RUNTIME.with(|runtime| {
        if let Some(runtime) = runtime {
            runtime.block_on(connection(peer, &METRICS, &HEALTH));
        }
    });
}
