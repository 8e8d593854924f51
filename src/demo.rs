//! The main job on sample data: a broker, topics, sample records, a run to their end.
//!
//! The embedded broker is librdkafka's mock cluster. It shows aborted records to read-committed readers
//! and answers no admin requests, so the demo on it is not exactly-once and says so.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::app::{self, BrokerKind, Setup};
use crate::calibrate::{Samples, fit_boundary};
use crate::clock::wall_millis;
use crate::config::{Config, Secret};
use crate::embed::Embedder;
use crate::error::{Code, Error, Result};
use crate::files::{Lines, read_honeypots};
use crate::pipeline::{RunOptions, Summary};
use crate::schema::Calibration;
use crate::sink::{Output, Publication, publish};
use crate::source::{self, MockBroker};
use crate::topology::{Form, Role};

/// The sample files.
#[derive(Debug, Clone)]
pub struct DemoInput {
    writes: PathBuf,
    retrievals: PathBuf,
    calibrate: PathBuf,
    honeypots: PathBuf,
    malformed: PathBuf,
}

impl DemoInput {
    /// The files of a folder.
    #[must_use]
    pub fn at(folder: &Path) -> Self {
        Self {
            writes: folder.join("writes.jsonl"),
            retrievals: folder.join("retrievals.jsonl"),
            calibrate: folder.join("calibrate.jsonl"),
            honeypots: folder.join("honeypots.jsonl"),
            malformed: folder.join("malformed.txt"),
        }
    }
}

/// Runs the demo; `shown` gets each calibration, `each` every output once it is committed.
///
/// # Errors
/// Those of the parts.
pub fn run(
    mut config: Config,
    input: &DemoInput,
    kafka: Option<&str>,
    mut shown: impl FnMut(&Calibration) -> Result<()>,
    each: impl FnMut(&Output) + Send + 'static,
) -> Result<Summary> {
    let folder = ThrowAway::new()?;
    config.state_dir = Some(folder.0.clone());
    config.kafka.topic_prefix = format!("demo-{}-{}-", wall_millis(), std::process::id());
    config.kafka.group = Some(format!("{}group", config.kafka.topic_prefix));
    config.kafka.instance_id = Some(config.kafka.topic_prefix.clone());
    let mock = if kafka.is_none() { Some(MockBroker::start()?) } else { None };
    config.kafka.bootstrap = Some(match (&mock, kafka) {
        (Some(m), _) => m.bootstrap(),
        (None, given) => given.unwrap_or_default().to_owned(),
    });
    let mut setup = Setup::load(config, None, None)?;
    // The level of the hardened form needs more benign writes than the sample has.
    Arc::make_mut(&mut setup.topology).main.memsad.form = Form::Reference;
    let client = source::client(&setup.config)?;
    match &mock {
        Some(m) => m.create_topics(&setup.topology)?,
        None => drop(source::apply(&client, &setup.topology, 1)?),
    }
    let secret = Secret::from_file_or_new(&folder.0.join("secret"))?;
    let embedder = Embedder::start(&setup.config.encoder)?;
    for c in calibrations(&setup, input, &embedder)? {
        shown(&app::publish_calibration(&setup, c)?)?;
    }
    for set in read_honeypots(&input.honeypots)? {
        app::publish_honeypots(&setup, set)?;
    }
    produce(&setup, input)?;
    let options = RunOptions {
        until_end: true,
        stop: Arc::default(),
        on_output: Some(Box::new(each)),
        on_progress: None,
        on_restore: None,
    };
    let kind = if mock.is_some() { BrokerKind::Mock } else { BrokerKind::Real };
    app::run(&setup, secret, embedder, kind, options)
}

/// A folder that goes when the demo ends.
struct ThrowAway(PathBuf);

impl ThrowAway {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("memsluice-demo-{}-{}", std::process::id(), wall_millis()));
        std::fs::create_dir_all(&path).map_err(|e| Error::with(Code::StateFailed, "can't make a state folder", e))?;
        Ok(Self(path))
    }
}

impl Drop for ThrowAway {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn calibrations(setup: &Setup, input: &DemoInput, embedder: &Embedder) -> Result<Vec<Calibration>> {
    let (writes, queries) = ([input.calibrate.clone()], [input.retrievals.clone()]);
    let samples = Samples::read(&writes, &queries, &[], setup.config.encoder.dimension)?;
    let backend = setup.config.encoder.backend;
    samples.writes.keys().map(|b| fit_boundary(&samples, b, 1, &setup.topology, embedder, backend, || ())).collect()
}

/// Sample records with their own times; the malformed ones under an ordinary key.
fn produce(setup: &Setup, input: &DemoInput) -> Result<()> {
    let units = setup.topology.units();
    let mut records = Vec::new();
    for (role, file) in [
        (Role::RetrievalLogs, &input.retrievals),
        (Role::MemoryWrites, &input.writes),
        (Role::MemoryWrites, &input.malformed),
    ] {
        let mut lines = Lines::new(role, units, std::slice::from_ref(file));
        while let Some(r) = lines.next_record()? {
            let key = r.key.unwrap_or_else(|| b"acme/support".to_vec());
            records.push(Publication {
                topic: setup.topology.name(role).to_owned(),
                partition: Some(source::partition_of(&key, units)),
                key,
                value: r.value.unwrap_or_default(),
                timestamp: Some(if r.at.timestamp == 0 { wall_millis() } else { r.at.timestamp }),
            });
        }
    }
    publish(&source::client(&setup.config)?, &records)
}
