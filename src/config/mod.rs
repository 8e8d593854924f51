//! Settings of one process: file `memsluice.yaml` (`--config`), then environment `MEMSLUICE__A__B`.
//!
//! What the stream *is* stands in the topology; what this process *has* (addresses, paths, secrets)
//! stands here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Code, Error, Result};

mod effective;
mod encoder;
mod http;
mod mask;
mod properties;
mod score;
mod secret;

pub use effective::Setting;
pub use encoder::{Backend, Device, Encoder, Pooling};
pub use http::Http;
pub use mask::{MASK, mask};
pub use properties::Properties;
pub use score::{Kernel, Score};
pub use secret::Secret;

/// All settings.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Broker.
    pub kafka: Kafka,
    /// Encoder.
    pub encoder: Encoder,
    /// Scoring kernel.
    pub score: Score,
    /// Metrics and probes.
    pub http: Http,
    /// Folder of the local state; default `./memsluice-state`.
    pub state_dir: Option<PathBuf>,
    /// File with at least 32 random bytes; every keyed hash is derived from it.
    pub secret_file: Option<PathBuf>,
    /// Breaks a guarantee on purpose, so that a test can be seen to fail. Never set it.
    pub sabotage: Option<Sabotage>,
    /// A fault between two steps of a commit, for tests: `after_commit=timeout@3`. Never set it.
    pub failpoint: Option<String>,
    /// Where each value came from.
    #[serde(skip)]
    origins: BTreeMap<String, String>,
}

/// A guarantee to break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sabotage {
    /// Produce without transactions; offsets live in the local state.
    TransactionsOff,
    /// The encoder takes 2 ms a text.
    EncoderSlow,
    /// The encoder fails on a third of the texts, always the same.
    EncoderFails,
    /// Each third call of the encoder fails.
    EncoderFlaky,
    /// The poll thread sleeps once for 30 s.
    PollStalls,
    /// Partitions stay paused at a start, as if librdkafka had dropped the resume.
    ResumeLost,
    /// The first consumer never fetches `memory-writes`.
    FetchLost,
    /// The first producer's offsets are sent without an answer, as when librdkafka waits for a coordinator that is gone.
    OffsetsHang,
    /// Write the local state before the transaction commits (breaks I2).
    ApplyBeforeCommit,
    /// Leave the chain heads out of the changelog (breaks I3).
    ChangelogDropped,
    /// Take records of any assignment generation (breaks I5).
    GenerationFilterOff,
    /// Commit with the group metadata of the moment, whatever the records' generation (breaks I5).
    FreshGroupMetadata,
    /// Join with cooperative-sticky, which splits units between members.
    CooperativeSticky,
    /// Relay a repartitioned input's partitions as they come, without their merge.
    RepartitionMergeOff,
    /// The task thread stands still after its first commit.
    StuckTask,
    /// Show secrets in `Debug` output and logs.
    SecretsShown,
}

/// Broker settings.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Kafka {
    /// `host:port,...`
    pub bootstrap: Option<String>,
    /// Consumer group; default: topic prefix and application id.
    pub group: Option<String>,
    /// Stable id of this instance: `group.instance.id` and part of `transactional.id`. Default `0`.
    pub instance_id: Option<String>,
    /// Put in front of every topic name.
    pub topic_prefix: String,
    /// librdkafka settings passed through, such as `security.protocol`; secrets also as `<key>_file`.
    pub properties: Properties,
}

impl Config {
    /// Reads `file` (default `memsluice.yaml` in the working folder, if it is there), then the environment.
    ///
    /// # Errors
    /// `config_invalid`.
    pub fn load(file: Option<&Path>) -> Result<Self> {
        let mut builder = config::Config::builder();
        let default = Path::new("memsluice.yaml");
        if let Some(path) = file.or_else(|| default.is_file().then_some(default)) {
            builder = builder.add_source(config::File::from(path).format(config::FileFormat::Yaml).required(true));
        }
        let environment =
            config::Environment::with_prefix("MEMSLUICE").prefix_separator("__").separator("__").try_parsing(false);
        readable_environment()?;
        Self::built(builder.add_source(environment))
    }

    /// Reads the text of a `memsluice.yaml` alone.
    ///
    /// # Errors
    /// `config_invalid`.
    pub fn parse(text: &str) -> Result<Self> {
        Self::built(config::Config::builder().add_source(config::File::from_str(text, config::FileFormat::Yaml)))
    }

    fn built(builder: config::ConfigBuilder<config::builder::DefaultState>) -> Result<Self> {
        let built =
            builder.build().map_err(|e| Error::with(Code::ConfigInvalid, "the configuration can't be read", e))?;
        let (origins, tree) = (effective::origins(&built.cache), built.cache.clone());
        let mut loaded: Self = built.try_deserialize().map_err(|e| {
            let cause = effective::without_values(&e.to_string(), &tree);
            Error::with(Code::ConfigInvalid, "the configuration can't be read", cause)
        })?;
        let shown = loaded.sabotage == Some(Sabotage::SecretsShown);
        loaded.kafka.properties = std::mem::take(&mut loaded.kafka.properties).resolve(shown)?;
        loaded.origins = origins;
        loaded.encoder.check()?;
        loaded.encoder.sabotage = loaded.sabotage;
        Ok(loaded)
    }

    /// The broker address.
    ///
    /// # Errors
    /// `config_invalid` when none is set.
    pub fn bootstrap(&self) -> Result<&str> {
        self.kafka
            .bootstrap
            .as_deref()
            .ok_or_else(|| Error::new(Code::ConfigInvalid, "kafka.bootstrap (MEMSLUICE__KAFKA__BOOTSTRAP) is not set"))
    }

    /// The state folder.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.state_dir.clone().unwrap_or_else(|| PathBuf::from("memsluice-state"))
    }

    /// The stable instance id.
    #[must_use]
    pub fn instance_id(&self) -> &str {
        self.kafka.instance_id.as_deref().unwrap_or("0")
    }
}

/// The parser would print the value of a variable that isn't UTF-8.
fn readable_environment() -> Result<()> {
    for (name, value) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("MEMSLUICE__") && value.to_str().is_none() {
            return Err(Error::new(Code::ConfigInvalid, format!("{name} is not UTF-8")));
        }
    }
    Ok(())
}
