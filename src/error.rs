//! Every failure memsluice can name: a stable code, the action the stream takes, and what to do next.
//!
//! Each code has a page in `docs/errors/<code>.md` and a test that raises it (`tests/errors/`).

use std::fmt;

/// What the stream does when the error is met (total: every error has exactly one).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The same call again, after a back-off.
    RetrySame,
    /// Abort the transaction, drop the overlay, rewind every partition.
    Abort,
    /// Drop producer and caches, fence again, restore, rewind.
    Rebuild,
    /// The record goes to `dead-letters` in the same transaction.
    DeadLetter,
    /// The process ends with this code.
    Stop,
}

macro_rules! codes {
    ($($variant:ident = $name:literal, $action:ident, $hint:literal;)*) => {
        /// Stable error codes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $(#[doc = $hint] $variant,)* }

        impl Code {
            /// All codes, in the order of the flow.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            /// The stable name, as in headers, logs and `docs/errors/`.
            #[must_use]
            pub fn name(self) -> &'static str { match self { $(Code::$variant => $name,)* } }

            /// What the stream does.
            #[must_use]
            pub fn action(self) -> Action { match self { $(Code::$variant => Action::$action,)* } }

            /// What the reader of the message should do next.
            #[must_use]
            pub fn hint(self) -> &'static str { match self { $(Code::$variant => $hint,)* } }
        }
    };
}

codes! {
    InvalidJson = "invalid_json", DeadLetter, "the value is not valid JSON: fix the producer, then send the record again";
    InvalidRecord = "invalid_record", DeadLetter, "a field is missing or has the wrong type: compare with `memsluice schema print`";
    InvalidBoundary = "invalid_boundary", DeadLetter, "tenant and store must each match [A-Za-z0-9._-]{1,128}";
    InvalidId = "invalid_id", DeadLetter, "ids must be 1 to 512 bytes without control characters";
    EmptyContent = "empty_content", DeadLetter, "a create or update needs text: send a delete to remove a record";
    UnknownOrigin = "unknown_origin", DeadLetter, "use one of user_input, system, agent_generated, tool_output, retrieved, external";
    RecordTooLarge = "record_too_large", DeadLetter, "the value is above limits.max_record_bytes: split the fact or raise the limit";
    EmbeddingDimension = "embedding_dimension", DeadLetter, "send as many numbers as the encoder has dimensions";
    EmbeddingNotFinite = "embedding_not_finite", DeadLetter, "the embedding holds a value that is not a finite number";
    EmbeddingNotUnit = "embedding_not_unit", DeadLetter, "the i16 embedding must have norm 32767 (1 % tolerance)";
    TombstoneWithoutRecord = "tombstone_without_record", DeadLetter, "a null value needs the header memsluice-record-id";
    MisplacedPartition = "misplaced_partition", DeadLetter, "produce with key tenant/store and the murmur2 partitioner";
    ShapeUnknown = "shape_unknown", DeadLetter, "the value has none of the declared shapes: compare with docs/adapters.md, or correct input.format in topics.yaml";
    ShapeAmbiguous = "shape_ambiguous", DeadLetter, "the value fits two shapes: name one as input.format in topics.yaml";
    ShapeIncomplete = "shape_incomplete", DeadLetter, "the producer's record lacks what a decision needs: map it in topics.yaml, or let the producer send it";
    TooManyFacts = "too_many_facts", DeadLetter, "one record holds more facts than are taken: let the producer send smaller batches";
    OutputTooLarge = "output_too_large", DeadLetter, "the output would not fit limits.max_output_bytes: raise it with the topic's max.message.bytes";
    SourceIsolated = "source_isolated", DeadLetter, "its source failed too often: mend the producer, then redrive after the cool-down";
    KeyHeld = "key_held", DeadLetter, "an earlier record of its key is a dead letter: redrive or skip that one first";
    ConfigInvalid = "config_invalid", Stop, "correct the named setting; `memsluice run --help` lists files and variables";
    HttpUnavailable = "http_unavailable", Stop, "another process listens there, or the address is not of this host: set http.listen, or `off`";
    SecretMissing = "secret_missing", Stop, "write at least 32 random bytes to a file and name it in secret_file";
    TopologyUnreadable = "topology_unreadable", Stop, "give the folder that holds memsluice.yaml with --topology";
    TopologySyntax = "topology_syntax", Stop, "correct the YAML at the named line";
    TopologyTopicUndeclared = "topology_topic_undeclared", Stop, "declare the topic in topics.yaml or correct the reference";
    TopologyName = "topology_name", Stop, "give each topic a name of its own, 1 to 200 of [A-Za-z0-9._-]";
    TopologyCopartition = "topology_copartition", Stop, "give all topics of a co-partition group the same partition count";
    TopologyStages = "topology_stages", Stop, "list the stages exactly as the binary runs them (`topology describe`)";
    TopologyCleanup = "topology_cleanup", Stop, "set the cleanup policy that the topic's role needs";
    TopologyBroadcastPartitions = "topology_broadcast_partitions", Stop, "broadcast topics have exactly one partition";
    TopologyKey = "topology_key", Stop, "use the key that the topic's role needs";
    TopologyAssignor = "topology_assignor", Stop, "use the range assignor: others split co-partitioned topics between members";
    TopologyTimeouts = "topology_timeouts", Stop, "keep commit interval < transaction timeout and transaction timeout + 10 s <= session timeout";
    TopologyLimits = "topology_limits", Stop, "correct the named limit";
    TopologyStore = "topology_store", Stop, "name a changelog that is declared and co-partitioned with the inputs";
    TopologyInput = "topology_input", Stop, "correct `input` of the named topic in topics.yaml (docs/adapters.md)";
    TopologyIncompatible = "topology_incompatible", Stop, "undo the change, or do what the message names: reset, or a new application id";
    MemberDiffers = "member_differs", Stop, "give this member the files of the others; to change all of them: `memsluice upgrade begin` with the new ones";
    PolicyInvalid = "policy_invalid", Stop, "correct the named rule in policy.yaml";
    BrokerUnreachable = "broker_unreachable", Stop, "check kafka.bootstrap and that the broker listens there";
    BrokerRefused = "broker_refused", Stop, "read the broker's reason in the message";
    TlsFailed = "tls_failed", Stop, "check the certificates: the broker's authority (ssl.ca.location), its host names, and ours (ssl.certificate.location)";
    AuthenticationFailed = "authentication_failed", Stop, "check the sasl.* settings in kafka.properties that the message names";
    AccessDenied = "access_denied", Stop, "give the right that the message names: `memsluice topology acls` prints them all";
    BrokerUnsupported = "broker_unsupported", Stop, "use a broker that provides what is named; `memsluice check --broker` says what each means";
    TopicMissing = "topic_missing", Stop, "create the topics: `memsluice topology apply`";
    PartitionCountMismatch = "partition_count_mismatch", Stop, "partition counts are fixed at creation: restore the count or migrate to a new application id";
    TopicRecreated = "topic_recreated", Stop, "a topic ends before the stored offset: it was recreated; start with a new application id";
    OffsetOutOfRange = "offset_out_of_range", Stop, "inputs were deleted unread: raise retention, then accept the gap with consumer.on_out_of_range: earliest";
    InstanceFenced = "instance_fenced", Stop, "another process uses this instance id: give each instance its own";
    PoisonFlood = "poison_flood", Stop, "records of several sources fail: look at dead-letters, then mend the producers or raise breaker.stop_sources";
    HeldKeysFull = "held_keys_full", Stop, "too many records wait behind dead letters: raise breaker.max_held, then redrive or skip them";
    GroupActive = "group_active", Stop, "stop every instance of the application first, and wait for session_timeout";
    UpgradeUnfinished = "upgrade_unfinished", Stop, "restart the named members with the new files or program, then finalize again";
    TransactionAborted = "transaction_aborted", Abort, "no action: the transaction is rolled back and run again";
    TransactionUnknown = "transaction_unknown", Rebuild, "no action: state is rebuilt from what Kafka holds";
    RestoreStalled = "restore_stalled", Stop, "the changelog did not reach its end in time: look for a hanging transaction";
    StateFailed = "state_failed", Stop, "check the disk under state_dir";
    StateCorrupt = "state_corrupt", Stop, "start again: the state is put aside once and rebuilt; if it comes back, check the disk, then remove rocksdb-corrupt";
    StateMismatch = "state_mismatch", Stop, "state_dir belongs to another application or topology: name another folder";
    StateFormat = "state_format", Stop, "a stored value was written by a newer or broken version: move state_dir away to rebuild it";
    FormatUnsupported = "format_unsupported", Stop, "run the program version that finalized the upgrade, or a later one";
    ChainMismatch = "chain_mismatch", Stop, "the decision chain and the state disagree: keep both topics and open an incident";
    ModelMissing = "model_missing", Stop, "run scripts/fetch-model, or set encoder.model to a path";
    ModelCorrupt = "model_corrupt", Stop, "fetch the model again: ONNX Runtime can't load this file";
    RuntimeMissing = "runtime_missing", Stop, "run scripts/fetch-model, or set encoder.runtime to libonnxruntime.so";
    TokenizerInvalid = "tokenizer_invalid", Stop, "set encoder.tokenizer to the model's tokenizer.json";
    KernelUnavailable = "kernel_unavailable", Stop, "set score.kernel to cpu, or install what the message names (docs/kernels.md)";
    EncoderFailed = "encoder_failed", RetrySame, "the encoder refused this text: the declared posture applies";
    CalibrationTooSmall = "calibration_too_small", Stop, "give at least two benign writes (50 or more are advised)";
    CalibrationNoQueries = "calibration_no_queries", Stop, "give at least one query of the same boundary";
    CalibrationInvalid = "calibration_invalid", Stop, "the calibration record is broken: fit it again";
    CalibrationMissing = "calibration_missing", Stop, "list what is there: `memsluice calibrate show`";
    HoneypotInvalid = "honeypot_invalid", Stop, "correct the honeypot file: `memsluice schema print honeypot`";
    SprtInvalid = "sprt_invalid", Stop, "choose 0 < p0 < p1 < 1 with p1 > 2 p0, and alpha, beta in (0, 0.5)";
    TopologyDiffers = "topology_differs", Stop, "create what lacks with `memsluice topology apply`; change what differs with kafka-configs.sh";
    DeadLetterMissing = "dead_letter_missing", Stop, "list what is there: `memsluice dlq list --all`";
    DeadLetterIncomplete = "dead_letter_incomplete", Stop, "send the record to its input topic yourself, then `memsluice dlq skip` the dead letter";
    StateDiffers = "state_differs", Stop, "stop the stream and move state_dir away: it is rebuilt from the changelog";
    DecisionDiffers = "decision_differs", Stop, "keep the decision and what it was compared with, and open an incident: a record was changed, or another program made it";
    FileUnreadable = "file_unreadable", Stop, "check the path and its permissions";
    OutputFailed = "output_failed", Stop, "check that the output can be written";
    StopDrainFailed = "stop_drain_failed", Stop, "no record is lost: what was not committed is decided again at the next start";
    StopCommitFailed = "stop_commit_failed", Stop, "no record is lost: what was not committed is decided again at the next start";
    StopFlushFailed = "stop_flush_failed", Stop, "committed work is safe in Kafka: check the disk; the next start replays the changelog";
    StopLeaveFailed = "stop_leave_failed", Stop, "all is committed: its partitions move after the session timeout";
    Internal = "internal", Stop, "a bug: please report it with the log";
}

/// An error with its code, a message without content or secrets, and its cause.
#[derive(Debug)]
pub struct Error {
    code: Code,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A new error; `message` says what was found where.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), source: None }
    }

    /// The same with a cause.
    pub fn with(
        code: Code,
        message: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { code, message: message.into(), source: Some(source.into()) }
    }

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// The message alone.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Process exit status: 2 configuration, 3 broker, 4 state, 5 encoder, 10 to 13 the step of a stop that
    /// failed (drain, commit, flush, leave), 1 anything else.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        use Code as C;
        match self.code {
            C::SprtInvalid => 2,
            C::StopDrainFailed => 10,
            C::StopCommitFailed => 11,
            C::StopFlushFailed => 12,
            C::StopLeaveFailed => 13,
            c if c >= C::ConfigInvalid && c <= C::PolicyInvalid => 2,
            c if c >= C::BrokerUnreachable && c <= C::TransactionUnknown => 3,
            c if c >= C::RestoreStalled && c <= C::ChainMismatch => 4,
            c if c >= C::ModelMissing && c <= C::EncoderFailed => 5,
            _ => 1,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.message, self.code.name())?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        write!(f, "\n  next: {}\n  more: docs/errors/{}.md", self.code.hint(), self.code.name())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|s| s as _)
    }
}
