//! What a process says about itself: metrics, health, and the HTTP endpoint that shows both. One process
//! is one member, so both are process-wide, as the log is. Nothing here decides anything about a record.

mod health;
mod histogram;
mod http;
mod metrics;
mod process;
mod stuck;

use std::sync::LazyLock;

pub use health::{Health, Heartbeat, Limits, Report};
pub use histogram::{Buckets, Histogram};
pub use http::{connection, serve};
pub use metrics::{Count, Counts, DEFINITIONS, Definition, Labels, Metrics, Seconds};
pub use stuck::{FetchWatch, Observation, StuckDetector};

static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);
static HEALTH: LazyLock<Health> = LazyLock::new(Health::default);

/// The process's metrics.
#[must_use]
pub fn metrics() -> &'static Metrics {
    &METRICS
}

/// The process's health.
#[must_use]
pub fn health() -> &'static Health {
    &HEALTH
}
