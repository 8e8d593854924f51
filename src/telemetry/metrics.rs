//! Every metric, in one table: name, kind, labels, help. `docs/operations.md` holds the same table and a
//! test holds them equal. Base units; labels carry no content and no ids of records or people.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::Registry;

use super::histogram::{Buckets, Histogram};
use super::process;
use crate::clock::wall_millis;
use crate::error::Code;

/// Label names and values.
pub type Labels = Vec<(&'static str, String)>;

/// Counts of whole things.
pub type Count = Counter<u64, AtomicU64>;
/// Counts of seconds.
pub type Seconds = Counter<f64, AtomicU64>;
/// Counts by label values.
pub type Counts = Family<Labels, Count>;
/// A level in whole things.
type Level = Gauge<i64, AtomicI64>;
/// A level in fractions.
type Real = Gauge<f64, AtomicU64>;
/// Short durations.
type Short = Histogram<ShortBounds>;
/// Long durations.
type Long = Histogram<LongBounds>;
/// Numbers of things.
type Number = Histogram<NumberBounds>;
/// Shares from 0 to 1.
type Share = Histogram<ShareBounds>;

/// 1 µs to 10 s.
#[derive(Debug)]
pub struct ShortBounds;
impl Buckets for ShortBounds {
    const BOUNDS: &'static [f64] =
        &[1e-6, 4e-6, 1.6e-5, 6.4e-5, 2.5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
}

/// 5 ms to an hour.
#[derive(Debug)]
pub struct LongBounds;
impl Buckets for LongBounds {
    const BOUNDS: &'static [f64] =
        &[5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0];
}

/// 1 to 65 536.
#[derive(Debug)]
pub struct NumberBounds;
impl Buckets for NumberBounds {
    const BOUNDS: &'static [f64] = &[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16_384.0, 65_536.0];
}

/// Tenths.
#[derive(Debug)]
pub struct ShareBounds;
impl Buckets for ShareBounds {
    const BOUNDS: &'static [f64] = &[0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Definition {
    /// Full name, with `_total` for counters.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Label names in order.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

const fn kind<M: TypedMetric>() -> &'static str {
    match M::TYPE {
        MetricType::Counter => "counter",
        MetricType::Gauge => "gauge",
        MetricType::Histogram => "histogram",
        MetricType::Info | MetricType::Unknown => "unknown",
    }
}

macro_rules! of {
    ($kind:ident;) => { $kind };
    ($kind:ident; $($label:literal)+) => { Family<Labels, $kind> };
}

macro_rules! metrics {
    ($($field:ident $name:literal $kind:ident [$($label:literal)*] $help:literal;)*) => {
        /// Handles of all metrics; each may be used from any thread.
        #[derive(Debug)]
        pub struct Metrics { $(#[doc = $help] pub $field: of!($kind; $($label)*),)* registry: Registry }

        /// All metrics.
        pub const DEFINITIONS: &[Definition] = &[$(
            Definition { name: $name, kind: kind::<$kind>(), labels: &[$($label),*], help: $help },
        )*];

        impl Metrics {
            fn build() -> Self {
                let mut registry = Registry::default();
                $(let $field = <of!($kind; $($label)*)>::default();
                // The encoder adds `_total` itself, and a full stop to the help.
                registry.register($name.trim_end_matches("_total"), $help, $field.clone());)*
                Self { $($field,)* registry }
            }
        }
    };
}

metrics! {
    source_records "memsluice_source_records_total" Count ["topic" "partition"] "Input records fetched, repeats after a rollback too";
    source_lag "memsluice_source_lag_records" Level ["topic" "partition"] "Last stable offset minus committed position; 0 when all is read, also behind end markers; absent while unknown";
    source_paused "memsluice_source_paused" Level ["topic" "partition"] "1 while the input is paused for its share of the bytes in flight";
    source_stuck "memsluice_source_stuck" Level ["topic" "partition"] "1 while the input grows and nothing of it was committed for the stuck time";
    source_in_flight "memsluice_source_in_flight_bytes" Level [] "Bytes fetched and not yet decided";
    assigned_units "memsluice_assigned_units" Level [] "Units this instance runs";
    rebalances "memsluice_rebalance_total" Count ["kind"] "Rebalance events: assigned, revoked, lost";
    rebalance_seconds "memsluice_rebalance_seconds" Long [] "From an assignment to its first fetch, restore included";
    decode_errors "memsluice_decode_errors_total" Count ["code"] "Inputs that are no valid record, by error code; committed";
    policy_verdicts "memsluice_policy_verdict_total" Count ["verdict" "rule"] "Rulings of the policy on writes, by rule (none: no rule matched); committed";
    decisions "memsluice_decision_total" Count ["decision" "reason"] "Decisions on writes by verdict and first reason (none: allowed without one); committed";
    uncalibrated "memsluice_decisions_uncalibrated_total" Count [] "Decisions that no calibration applied to; committed";
    rolls "memsluice_rolling_calibrations_total" Count [] "Rolling calibrations that came into force; committed";
    rolling_rows "memsluice_rolling_calibration_rows" Level [] "Rows of the newest rolling calibration of this instance";
    frozen "memsluice_decisions_frozen_total" Count [] "Writes decided while a jump has frozen their calibration; committed";
    screened "memsluice_screened_writes_total" Count [] "Writes that the screen scored; committed";
    floor_hits "memsluice_screen_floor_hits_total" Count [] "Screened writes that reach a floor; committed";
    share_alarms "memsluice_screen_share_alarms_total" Count [] "Findings that the share of writes which reach a floor moved by a factor of 3; committed";
    alerts "memsluice_alerts_total" Count ["severity"] "Findings by OCSF severity_id; committed";
    dead_letters "memsluice_dlq_records_total" Count ["stage" "code"] "Dead letters by stage and error code; committed";
    embed_queue "memsluice_embed_queue_records" Level [] "Texts submitted and not yet encoded";
    embed_queue_seconds "memsluice_embed_queue_seconds" Short [] "From submit to the start of the text's batch";
    embed_inference "memsluice_embed_inference_seconds" Short [] "Encoding one batch";
    embed_batch_records "memsluice_embed_batch_records" Number [] "Texts in a batch";
    embed_batch_tokens "memsluice_embed_batch_tokens" Number [] "Pieces in a batch, padding included";
    embed_padding "memsluice_embed_padding_ratio" Share [] "Share of a batch's pieces that is padding";
    embed_hits "memsluice_embed_cache_hits_total" Count [] "Texts whose vector was known";
    embed_misses "memsluice_embed_cache_misses_total" Count [] "Texts that went to the encoder";
    embed_failures "memsluice_embed_failures_total" Count [] "Texts that the encoder gave no vector for: the posture applies";
    score_seconds "memsluice_score_seconds" Short [] "Scoring one write against its boundary's history";
    sprt_observations "memsluice_sprt_observations_total" Count [] "Retrievals that counted in a session's test; committed";
    sprt_decisions "memsluice_sprt_decision_total" Count ["hypothesis"] "Ends of a session's test: attack, or restart (benign or inconclusive); committed";
    state_read "memsluice_state_read_seconds" Short [] "One read of the local state that the open transaction did not answer";
    restore_remaining "memsluice_state_restore_remaining_records" Level [] "Changelog offsets still to replay in the unit that is being restored";
    restored_records "memsluice_state_restored_records_total" Count [] "Changelog records replayed";
    txn_state_seconds "memsluice_txn_state_seconds_total" Seconds ["state"] "Time of the task thread in each state of the transaction";
    transactions "memsluice_txn_total" Count ["outcome"] "Transactions: committed, aborted, rebuilt (unknown outcome or fenced)";
    txn_records "memsluice_txn_records" Number [] "Inputs in a committed transaction";
    txn_seconds "memsluice_txn_duration_seconds" Long [] "From begin to the acknowledged commit";
    txn_open_age "memsluice_txn_open_age_seconds" Real [] "Age of the open transaction; 0 when none is open";
    commit_latency "memsluice_commit_latency_seconds" Short [] "From due to the acknowledged commit: drain, offsets, commit";
    end_to_end "memsluice_end_to_end_seconds" Long [] "From an input's record timestamp to the acknowledged commit of its outputs";
    heartbeat_age "memsluice_heartbeat_age_seconds" Real ["thread"] "Time since the thread last turned: poll, task";
    ready "memsluice_ready" Level [] "1 while /ready says yes";
    build_info "memsluice_build_info" Level ["version" "topology"] "1; program version and hash of the topology";
    resident "memsluice_process_resident_memory_bytes" Level [] "Resident memory";
    cpu "memsluice_process_cpu_seconds_total" Seconds [] "User and system time";
    open_fds "memsluice_process_open_fds" Level [] "Open file descriptors";
    threads "memsluice_process_threads" Level [] "Threads, those of librdkafka and RocksDB too";
    started "memsluice_process_start_time_seconds" Real [] "Unix time of the start";
}

impl Metrics {
    /// All at zero; label values that are known beforehand exist from the start, so that a rate has a
    /// first value.
    #[must_use]
    pub fn new() -> Self {
        let this = Self::build();
        for kind in ["assigned", "revoked", "lost"] {
            drop(this.rebalances.get_or_create(&vec![("kind", kind.to_owned())]));
        }
        for outcome in ["committed", "aborted", "rebuilt"] {
            drop(this.transactions.get_or_create(&vec![("outcome", outcome.to_owned())]));
        }
        for hypothesis in ["attack", "restart"] {
            drop(this.sprt_decisions.get_or_create(&vec![("hypothesis", hypothesis.to_owned())]));
        }
        for code in Code::ALL.iter().filter(|c| c.action() == crate::error::Action::DeadLetter) {
            let code = code.name().to_owned();
            if code != Code::OutputTooLarge.name() {
                drop(this.decode_errors.get_or_create(&vec![("code", code.clone())]));
            }
        }
        #[allow(clippy::cast_precision_loss)] // milliseconds since 1970 fit 53 bits
        this.started.set(wall_millis() as f64 / 1000.0);
        this
    }

    /// The exposition in the `OpenMetrics` text format; what only a look can tell is looked up first.
    #[must_use]
    pub fn scrape(&self) -> String {
        self.look();
        super::health().publish(self);
        let mut text = String::new();
        // A String takes everything.
        let _ = encode(&mut text, &self.registry);
        text
    }

    fn look(&self) {
        let Some(own) = process::usage() else {
            return;
        };
        self.resident.set(own.resident_bytes);
        self.threads.set(own.threads);
        self.open_fds.set(own.open_fds);
        self.cpu.inner().store(own.cpu_seconds.to_bits(), Ordering::Relaxed);
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and labels follow the conventions: prefix, `_total` on counters alone, no two alike.
    #[test]
    fn names_follow_the_conventions() {
        let mut names: Vec<&str> = DEFINITIONS.iter().map(|d| d.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DEFINITIONS.len(), "a name is used twice");
        let word = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        for d in DEFINITIONS {
            assert!(d.name.starts_with("memsluice_") && word(d.name), "{}", d.name);
            assert_eq!(d.name.ends_with("_total"), d.kind == "counter", "{}", d.name);
            assert!(d.labels.iter().all(|l| word(l)) && !d.help.is_empty() && !d.help.contains('|'), "{}", d.name);
            let of_content = ["tenant", "store", "record", "session", "principal", "boundary", "id"];
            assert!(d.labels.iter().all(|l| !of_content.contains(l)), "{} tells who or what", d.name);
        }
    }

    /// A label set with a value of its own appears under the declared names.
    #[test]
    fn the_exposition_holds_what_was_set() {
        let metrics = Metrics::new();
        metrics.source_lag.get_or_create(&vec![("topic", "t\"\n".to_owned()), ("partition", "3".to_owned())]).set(7);
        metrics.end_to_end.observe(0.2);
        let text = metrics.scrape();
        assert!(text.contains(r#"memsluice_source_lag_records{topic="t\"\n",partition="3"} 7"#), "{text}");
        assert!(text.contains(r#"memsluice_end_to_end_seconds_bucket{le="0.25"} 1"#), "{text}");
        assert!(text.contains("memsluice_txn_total{outcome=\"committed\"} 0"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
