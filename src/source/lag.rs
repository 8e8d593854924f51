//! Lag that is right on transactional topics (`anchors_streaming` 2.2 #29): last stable offset minus
//! position, where end markers and aborted records behind the last record count as read. Stable ends are
//! asked for on a thread of their own, so that neither the task nor the poll thread waits, and so that a
//! partition whose fetches silently ended is still seen to grow (#16).
#![allow(clippy::disallowed_methods)] // a blocking call with its own deadline, on its own thread

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};
use serde::Deserialize;

use super::client::{Reader, reader};
use crate::clock::monotonic;
use crate::error::{Code, Error, Result};
use crate::telemetry::{FetchWatch, Labels, Limits, Observation, StuckDetector, health, metrics};
use crate::topology::{Role, Topology};

/// How often ends are asked for.
const EVERY: Duration = Duration::from_secs(2);
/// Longest wait for an answer; until then the lag is unknown.
const CALL: Duration = Duration::from_secs(10);

/// An input partition.
pub(super) type Input = (Role, i32);

/// What is known of an input on this side; -1 is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// Next offset as of the last commit.
    committed: i64,
    /// Behind the last record that was handed to the task thread.
    taken: i64,
    /// Next offset the client fetches, when nothing waited in its queue.
    fetch: i64,
}

impl Place {
    /// Next offset to commit. Once all that was taken is committed, what the client skipped since (end
    /// markers, aborted records) is read too.
    fn position(self) -> Option<i64> {
        let at = if self.committed >= self.taken { self.committed.max(self.fetch) } else { self.committed };
        (at >= 0).then_some(at)
    }

    /// Records that came are not committed yet.
    fn held(self) -> bool {
        self.taken > self.committed
    }
}

/// Where the inputs of one start stand.
#[derive(Debug, Clone, Default)]
struct Places {
    of: HashMap<Input, Place>,
    /// Counts the starts.
    start: u64,
    /// Counts the polls of the poll thread.
    polls: u64,
    /// An input of this start that is fetched no more.
    starved: Option<Input>,
}

/// Where the assigned inputs stand; shared by poll thread, task thread and lag thread.
#[derive(Debug, Clone, Default)]
pub struct Lags {
    places: Arc<Mutex<Places>>,
}

impl Lags {
    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The inputs are fetched from these offsets on; negative is the beginning.
    pub(super) fn start(&self, offsets: &[(Role, i32, i64)]) {
        let place = |next: i64| Place { committed: next, taken: -1, fetch: -1 };
        let mut places = self.lock();
        places.of = offsets.iter().map(|(role, partition, next)| ((*role, *partition), place(*next))).collect();
        places.start += 1;
        places.starved = None;
    }

    /// The poll thread has asked its consumer for what is there.
    pub(super) fn polled(&self) {
        self.lock().polls += 1;
    }

    /// An input that has more, of which nothing came for [`Limits::starved`] since the last start.
    #[must_use]
    pub fn starved(&self) -> Option<(Role, i32)> {
        self.lock().starved
    }

    /// Notes a starved input, unless there was another start since.
    fn starves(&self, input: Input, start: u64) {
        let mut places = self.lock();
        if places.start == start && places.of.contains_key(&input) {
            places.starved = Some(input);
        }
    }

    /// Where an input without a committed offset begins.
    fn begins(&self, input: Input, low: i64) {
        if let Some(place) = self.lock().of.get_mut(&input).filter(|p| p.committed < 0) {
            place.committed = low;
        }
    }

    /// Nothing is assigned.
    pub(super) fn clear(&self) {
        let mut places = self.lock();
        places.of.clear();
        places.starved = None;
    }

    /// A record was handed to the task thread.
    pub(super) fn taken(&self, input: Input, next: i64) {
        if let Some(place) = self.lock().of.get_mut(&input) {
            place.taken = next;
        }
    }

    /// The client's next fetch offset, with nothing of the input in its queue.
    pub(super) fn fetches(&self, input: Input, next: i64) {
        if let Some(place) = self.lock().of.get_mut(&input) {
            place.fetch = next;
        }
    }

    /// A unit's next offsets after a commit.
    pub fn committed<'a>(&self, partition: i32, inputs: impl IntoIterator<Item = (&'a Role, &'a i64)>) {
        let mut places = self.lock();
        for (role, next) in inputs {
            if let Some(place) = places.of.get_mut(&(*role, partition)) {
                place.committed = *next;
            }
        }
    }

    fn all(&self) -> Places {
        self.lock().clone()
    }
}

/// The part of librdkafka's statistics that says where its fetches stand.
#[derive(Debug, Deserialize)]
struct Statistics {
    #[serde(default)]
    topics: HashMap<String, TopicStatistics>,
}

#[derive(Debug, Deserialize)]
struct TopicStatistics {
    #[serde(default)]
    partitions: HashMap<String, PartitionStatistics>,
}

#[derive(Debug, Deserialize)]
struct PartitionStatistics {
    next_offset: i64,
    fetchq_cnt: i64,
}

/// Reads a statistics event; `role` names the inputs among its topics.
pub(super) fn read_statistics(json: &[u8], lags: &Lags, role: impl Fn(&str) -> Option<Role>) {
    let statistics: Statistics = match serde_json::from_slice(json) {
        Ok(read) => read,
        Err(error) => return tracing::debug!(%error, "statistics"),
    };
    for (topic, of) in &statistics.topics {
        let Some(role) = role(topic) else { continue };
        for (partition, p) in &of.partitions {
            let Ok(partition) = partition.parse() else { continue };
            if p.fetchq_cnt == 0 && p.next_offset >= 0 {
                lags.fetches((role, partition), p.next_offset);
            }
        }
    }
}

/// The lag thread; it ends when this is dropped.
#[derive(Debug)]
pub struct LagWatch {
    _stop: Sender<()>,
    _thread: JoinHandle<()>,
}

impl LagWatch {
    /// Starts it.
    ///
    /// # Errors
    /// `config_invalid`.
    pub fn start(client: &ClientConfig, topology: &Topology, lags: Lags) -> Result<Self> {
        let (stop, stopped) = bounded(0);
        let main = &topology.main;
        let watcher = Watcher {
            reader: reader(client, "read_committed", "memsluice-lag")?,
            names: [Role::RetrievalLogs, Role::MemoryWrites].map(|r| (r, topology.name(r).to_owned())).into(),
            lags,
            limits: Limits::new(main.consumer.session_timeout, main.posture.hold_deadline),
            begun: monotonic(),
            start: 0,
            polls: 0,
            detectors: HashMap::new(),
        };
        let thread = std::thread::Builder::new()
            .name("memsluice-lag".to_owned())
            .spawn(move || watcher.run(&stopped))
            .map_err(|e| Error::with(Code::Internal, "can't start a thread", e))?;
        Ok(Self { _stop: stop, _thread: thread })
    }
}

struct Watcher {
    reader: Reader,
    names: HashMap<Role, String>,
    lags: Lags,
    limits: Limits,
    begun: Instant,
    /// The start that is watched.
    start: u64,
    /// Polls until the last look.
    polls: u64,
    detectors: HashMap<Input, Detectors>,
}

/// What watches one input.
struct Detectors {
    stuck: StuckDetector,
    fetch: FetchWatch,
}

impl Detectors {
    fn new(limits: Limits) -> Self {
        Self { stuck: StuckDetector::new(limits.stuck), fetch: FetchWatch::new(limits.starved) }
    }
}

impl Watcher {
    fn run(mut self, stopped: &Receiver<()>) {
        while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            let places = self.lags.all().of;
            let fresh: Vec<Input> = places.iter().filter(|(_, p)| p.committed < 0).map(|(input, _)| *input).collect();
            for (input, low) in self.known(&fresh, Offset::Beginning) {
                self.lags.begins(input, low);
            }
            let inputs: Vec<Input> = places.into_keys().collect();
            let ends = self.known(&inputs, Offset::End);
            // Read after the ends, so that a position never looks behind them.
            self.publish(&ends);
        }
    }

    /// First or stable end offsets, of those inputs that the broker answers for.
    fn known(&self, inputs: &[Input], at: Offset) -> HashMap<Input, i64> {
        self.offsets(inputs, at).unwrap_or_else(|error| {
            tracing::debug!(%error, "the lag is unknown");
            HashMap::new()
        })
    }

    fn offsets(&self, inputs: &[Input], at: Offset) -> std::result::Result<HashMap<Input, i64>, KafkaError> {
        if inputs.is_empty() {
            return Ok(HashMap::new());
        }
        let mut list = TopicPartitionList::new();
        for (role, partition) in inputs {
            list.add_partition_offset(&self.names[role], *partition, at)?;
        }
        // A timestamp of -1, which is what End is, asks for the end under the handle's isolation level; -2, Beginning,
        // for the log's start.
        let found = self.reader.offsets_for_times(list, CALL)?;
        // Serves the handle's own log and errors; it has no assignment.
        drop(self.reader.poll(Duration::ZERO));
        let end = |(role, partition): &Input| match found.find_partition(&self.names[role], *partition)?.offset() {
            Offset::Offset(end) => Some(((*role, *partition), end)),
            _ => None,
        };
        Ok(inputs.iter().filter_map(end).collect())
    }

    /// Metrics and health of one look. An input without an end or a position has no lag.
    fn publish(&mut self, ends: &HashMap<Input, i64>) {
        let Places { of: places, start, polls, .. } = self.lags.all();
        // Where nobody polls, what came waits in the client.
        let polled = std::mem::replace(&mut self.polls, polls) != polls;
        if start != self.start || !polled {
            self.start = start;
            self.detectors.values_mut().for_each(|d| d.fetch = FetchWatch::new(self.limits.starved));
        }
        let known = |input: &Input| places.get(input).and_then(|p| p.position()).is_some() && ends.contains_key(input);
        for gone in self.detectors.keys().copied().filter(|input| !known(input)).collect::<Vec<_>>() {
            self.detectors.remove(&gone);
            metrics().source_lag.remove(&self.labels(&gone));
            metrics().source_stuck.remove(&self.labels(&gone));
        }
        let mut stuck = Vec::new();
        for (input, place) in &places {
            let labels = self.labels(input);
            let (Some(position), Some(end)) = (place.position(), ends.get(input).copied()) else { continue };
            metrics().source_lag.get_or_create(&labels).set((end - position).max(0));
            let detectors = self.detectors.entry(*input).or_insert_with(|| Detectors::new(self.limits));
            let at = self.begun.elapsed();
            if detectors.fetch.observe(Observation { at, position: position.max(place.taken), end }, place.held()) {
                self.lags.starves(*input, start);
            }
            let stands = detectors.stuck.observe(Observation { at, position, end });
            metrics().source_stuck.get_or_create(&labels).set(i64::from(stands));
            if stands {
                tracing::warn!(
                    topic = self.names[&input.0],
                    partition = input.1,
                    lag = end - position,
                    "an input stands still"
                );
                stuck.push((self.names[&input.0].clone(), input.1));
            }
        }
        stuck.sort();
        health().stuck(stuck);
    }

    fn labels(&self, (role, partition): &Input) -> Labels {
        vec![("topic", self.names[role].clone()), ("partition", partition.to_string())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUT: Input = (Role::MemoryWrites, 3);

    fn lags(next: i64) -> Lags {
        let lags = Lags::default();
        lags.start(&[(INPUT.0, INPUT.1, next)]);
        lags
    }

    fn statistics(next: i64, queued: i64) -> String {
        format!(
            r#"{{"name":"x","topics":{{"p-memory-writes":{{"partitions":{{"-1":{{"next_offset":-1001,"fetchq_cnt":0}},
            "3":{{"partition":3,"next_offset":{next},"fetchq_cnt":{queued},"ls_offset":99}}}}}},"other":{{}}}}}}"#
        )
    }

    fn read(lags: &Lags, json: &str) {
        read_statistics(json.as_bytes(), lags, |t| (t == "p-memory-writes").then_some(Role::MemoryWrites));
    }

    fn position(lags: &Lags) -> Option<i64> {
        lags.all().of[&INPUT].position()
    }

    /// The last record of a transactional producer is its end marker: one behind the last record read.
    #[test]
    fn end_markers_count_as_read() {
        let lags = lags(10);
        assert_eq!(position(&lags), Some(10));
        lags.taken(INPUT, 15);
        read(&lags, &statistics(16, 0));
        assert_eq!(position(&lags), Some(10), "taken, not committed");
        lags.committed(3, [(&Role::MemoryWrites, &15)]);
        assert_eq!(position(&lags), Some(16));
    }

    /// What waits in the client's queue was not read.
    #[test]
    fn queued_records_are_not_read() {
        let lags = lags(10);
        read(&lags, &statistics(20, 7));
        assert_eq!(position(&lags), Some(10));
    }

    #[test]
    fn nothing_is_known_before_the_first_fetch_of_a_new_group() {
        let lags = lags(-1);
        assert_eq!(position(&lags), None);
        read(&lags, &statistics(0, 0));
        assert_eq!(position(&lags), Some(0));
        lags.clear();
        read(&lags, "no json");
        read(&lags, &statistics(5, 0));
        assert!(lags.all().of.is_empty());
    }

    /// What was found out of an earlier start is no news of this one.
    #[test]
    fn a_start_begins_with_nothing_starved() {
        let lags = lags(10);
        let first = lags.all().start;
        lags.starves(INPUT, first);
        assert_eq!(lags.starved(), Some(INPUT));
        lags.start(&[(INPUT.0, INPUT.1, 10)]);
        assert_eq!(lags.starved(), None);
        lags.starves(INPUT, first);
        assert_eq!(lags.starved(), None);
        lags.starves(INPUT, first + 1);
        lags.clear();
        assert_eq!(lags.starved(), None);
    }
}
