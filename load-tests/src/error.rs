//! What can go wrong, with its context.

use std::path::Path;

use rdkafka::error::KafkaError;

/// Result of this crate.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// A run that could not be finished. A check that failed is no error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A file.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// Cause.
        source: std::io::Error,
    },
    /// A line that is not the JSON it should be.
    #[error("{what}")]
    Json {
        /// Where.
        what: String,
        /// Cause.
        source: serde_json::Error,
    },
    /// A call to Kafka.
    #[error("{what}")]
    Kafka {
        /// What was tried.
        what: String,
        /// Cause.
        source: KafkaError,
    },
    /// Nothing arrived for too long.
    #[error("{0}")]
    Stalled(String),
    /// The arguments or the data make no sense.
    #[error("{0}")]
    Input(String),
}

impl Error {
    /// A file error with its path.
    pub(crate) fn io(doing: &str, path: &Path, source: std::io::Error) -> Self {
        Error::Io { what: format!("can't {doing} {}", path.display()), source }
    }

    /// A JSON error with its place.
    pub(crate) fn json(place: impl Into<String>, source: serde_json::Error) -> Self {
        Error::Json { what: place.into(), source }
    }
}

/// Adds what was being done to an error of librdkafka.
pub(crate) trait Doing<T> {
    /// `doing` reads as "<doing> failed".
    fn doing(self, doing: &str) -> Result<T>;
}

impl<T> Doing<T> for std::result::Result<T, KafkaError> {
    fn doing(self, doing: &str) -> Result<T> {
        self.map_err(|source| Error::Kafka { what: format!("{doing} failed"), source })
    }
}

/// The error and its causes on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
