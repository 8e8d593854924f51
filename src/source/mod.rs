//! Where records come from: the consumer's thread, assignment, and the order in which a unit takes its
//! inputs.

mod broadcast;
mod budget;
mod client;
mod connect;
mod coordinators;
mod features;
mod headers;
mod hidden;
mod internal;
mod kafka;
mod lag;
mod lanes;
mod leader;
mod live;
mod merge;
mod mock;
mod murmur2;
mod pausing;
mod plan;
mod rebalance;
mod refusal;
mod snapshot;
mod span;
mod tail;
mod topic_ids;

use crate::clock::Millis;
use crate::schema::Headers;
use crate::topology::Role;

pub use crate::telemetry::Heartbeat;
pub use broadcast::{BroadcastReader, BroadcastRecord};
pub use budget::Budget;
pub use client::{Quiet, Reader, client, follower, group_reader, reader};
pub(crate) use client::{client_log, without_group};
pub use connect::{connect, readable};
pub use features::features;
pub use hidden::{Hidden, HiddenEnds};
pub use kafka::{Command, Event, PollThread, StartOptions};
pub use lag::{LagWatch, Lags};
pub use lanes::Lanes;
pub use leader::{Heard, LeaderOptions, LeaderReader, SourceOffsets};
pub use live::FRAMING;
pub use live::{delete_retention, preflight};
pub use merge::{Merge, Wait};
pub use mock::MockBroker;
pub use murmur2::partition_of;
pub use plan::{DELETE_RETENTION_MS, Difference, PlanAction, TopicPlan, apply, compare, plan, wanted};
pub use rdkafka::config::ClientConfig as Client;
pub(crate) use refusal::{is_denied, refused};
pub use snapshot::{GroupMetadata, Snapshot};
pub use span::{Group, Point, Spans, payload};
pub(crate) use tail::passing;
pub use tail::{Bounds, each_pair, each_record, ends, last_record, read, watermarks};
pub use topic_ids::TopicIds;

/// Coordinates of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// Assignment generation; what isn't of the current one never reaches state (I5).
    pub generation: u64,
    /// Topic.
    pub role: Role,
    /// Partition: the unit.
    pub partition: i32,
    /// Offset.
    pub offset: i64,
    /// Record time.
    pub timestamp: Millis,
}

/// A record as it came.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// Coordinates.
    pub at: At,
    /// Key.
    pub key: Option<Vec<u8>>,
    /// Value.
    pub value: Option<Vec<u8>>,
    /// Headers.
    pub headers: Headers,
}

impl Fetched {
    /// Value of the last header of a name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().rev().find(|(n, _)| n == name).and_then(|(_, v)| v.as_deref())
    }

    /// Memory it takes, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(n, v)| n.len() + v.as_ref().map_or(0, Vec::len)).sum();
        self.value.as_ref().map_or(0, Vec::len) + self.key.as_ref().map_or(0, Vec::len) + headers + 128
    }
}
