//! Header names, and the headers of one record.

/// Names used on outputs: CloudEvents 1.0 binary mode, KIP-1034, W3C trace context, ours.
pub mod names {
    /// CloudEvents id.
    pub const CE_ID: &str = "ce_id";
    /// CloudEvents type.
    pub const CE_TYPE: &str = "ce_type";
    /// CloudEvents source.
    pub const CE_SOURCE: &str = "ce_source";
    /// CloudEvents version.
    pub const CE_SPECVERSION: &str = "ce_specversion";
    /// Time of the event.
    pub const CE_TIME: &str = "ce_time";
    /// `tenant/store/record_id`.
    pub const CE_SUBJECT: &str = "ce_subject";
    /// `topic-partition-offset` of the input.
    pub const CE_SEQUENCE: &str = "ce_sequence";
    /// When the memory ends.
    pub const CE_EXPIRYTIME: &str = "ce_expirytime";
    /// Severity of an alert, OCSF number.
    pub const CE_SEVERITYNUMBER: &str = "ce_severitynumber";
    /// Schema of the value.
    pub const CE_DATASCHEMA: &str = "ce_dataschema";
    /// Media type.
    pub const CONTENT_TYPE: &str = "content-type";
    /// Decision id.
    pub const DECISION: &str = "memsluice-decision";
    /// Verdict word.
    pub const VERDICT: &str = "memsluice-verdict";
    /// Reasons, comma-separated.
    pub const REASONS: &str = "memsluice-reasons";
    /// On a held write: what its invisible characters spell.
    pub const HIDDEN: &str = "memsluice-hidden-text";
    /// Record id of a delete by null value.
    pub const RECORD_ID: &str = "memsluice-record-id";
    /// Error code of a dead letter.
    pub const ERROR_CODE: &str = "memsluice-error-code";
    /// Stage that refused the record.
    pub const ERROR_STAGE: &str = "memsluice-error-stage";
    /// Program version that refused the record.
    pub const VERSION: &str = "memsluice-version";
    /// Record time of the input of a dead letter, ms since 1970.
    pub const INPUT_TIMESTAMP: &str = "memsluice-input-timestamp";
    /// `true` on a dead letter whose input had a null key (its own key is empty).
    pub const NULL_KEY: &str = "memsluice-null-key";
    /// `topic/partition/offset` that a redrive or skip of this dead letter must name.
    pub const DLQ_ORIGIN: &str = "memsluice-dlq-origin";
    /// In front of the name of each header that the input of a dead letter had.
    pub const ORIGINAL: &str = "memsluice-original.";
    /// On an input: the `memsluice-dlq-origin` of the dead letter that is sent again.
    pub const REDRIVE: &str = "memsluice-redrive";
    /// On an input with a null value: the `memsluice-dlq-origin` of the dead letter that is given up.
    pub const DLQ_SKIP: &str = "memsluice-dlq-skip";
    /// Source that the breaker counted the input of a dead letter for; only while it is isolated.
    pub const SOURCE: &str = "memsluice-isolated-source";
    /// Error code that opened the breaker of that source.
    pub const ISOLATED_BY: &str = "memsluice-isolated-by";
    /// Record time at which it opened, RFC 3339.
    pub const ISOLATED_SINCE: &str = "memsluice-isolated-since";
    /// On a decision that no calibration applied to.
    pub const UNCALIBRATED: &str = "memsluice-uncalibrated";
    /// Stands for the headers of a record whose names are not UTF-8.
    pub const UNREADABLE: &str = "memsluice-headers-unreadable";
    /// On records of a repartition topic, last: where the record came from.
    pub const SOURCE_STAMP: &str = "memsluice-source-stamp";
    /// Says that the value is a stub.
    pub const STUB: &str = "memsluice-stub";
    /// On a mark in `dead-letters`: `redriven` or `skipped`.
    pub const DLQ_HANDLED: &str = "memsluice-dlq-handled";
    /// On a mark: `topic/partition/offset` of the dead letter that it is about.
    pub const DLQ_LETTER: &str = "memsluice-dlq-letter";
    /// On a mark: why, in the operator's words.
    pub const DLQ_REASON: &str = "memsluice-dlq-reason";
    /// KIP-1034: error class.
    pub const EXCEPTION: &str = "__streams.errors.exception";
    /// KIP-1034: message.
    pub const MESSAGE: &str = "__streams.errors.message";
    /// KIP-1034: short trace (here: the stage).
    pub const STACKTRACE: &str = "__streams.errors.stacktrace";
    /// KIP-1034: input topic.
    pub const TOPIC: &str = "__streams.errors.topic";
    /// KIP-1034: input partition.
    pub const PARTITION: &str = "__streams.errors.partition";
    /// KIP-1034: input offset.
    pub const OFFSET: &str = "__streams.errors.offset";
    /// W3C trace context.
    pub const TRACEPARENT: &str = "traceparent";
    /// W3C trace state.
    pub const TRACESTATE: &str = "tracestate";
}

/// Ordered headers of a record; a value may be null.
pub type Headers = Vec<(String, Option<Vec<u8>>)>;
