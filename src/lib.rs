//! memsluice guards the long-term memory of LLM agents: a Kafka stream processor between what is about to
//! be written and what was read.
//!
//! ```text
//! source -> decode -> breaker -> policy -> embed -> score -> screen -> decide -> sink
//!              \-> session -> sprt -> alert ---------------------------^
//! ```
//!
//! Modules stand in flow order; each imports only those before it, plus `schema`, `error`, `clock`,
//! `config`, `telemetry` and `topology`. `pipeline` alone sees all stages; only `source`, `sink` and `state` know
//! rdkafka and rocksdb (`tests/architecture.rs`).

pub mod clock;
pub mod config;
pub mod error;
pub mod schema;
pub mod telemetry;
pub mod topology;

pub mod source;

pub mod decode;

pub mod breaker;

pub mod policy;

pub mod embed;

pub mod score;

pub mod screen;

pub mod decide;

pub mod session;

pub mod alert;

pub mod state;

pub mod sink;

pub mod pipeline;

pub mod files;

pub mod calibrate;

pub mod screening;

pub mod scan;

pub mod evaluate;

pub mod agreement;

pub mod app;

pub mod published;

pub mod inspect;

pub mod verify;

pub mod measure;

pub mod dlq;

pub mod reset;

pub mod demo;

pub mod cli;
