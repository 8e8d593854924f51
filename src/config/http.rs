//! Where metrics and probes are served.

use serde::Deserialize;

/// Metrics and probes over HTTP; `run` only.
#[derive(Debug, Clone, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Http {
    /// `host:port`, or `off`.
    pub listen: String,
}

impl Default for Http {
    fn default() -> Self {
        Self { listen: "127.0.0.1:9310".to_owned() }
    }
}

impl Http {
    /// Where to listen; `None` when it is off.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        Some(self.listen.as_str()).filter(|l| *l != "off")
    }
}
