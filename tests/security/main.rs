//! Encryption, sign-in, rights and secrets against a real Apache Kafka with an authorizer.
//!
//! `scripts/test` starts the broker and sets `MEMSLUICE_TEST_KAFKA_SECURE`; without it every test but those of
//! printed rights says that it was skipped.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stderr)] // tests, with what they measured

mod access;
mod golden;
mod rights;
mod roles;
mod secrets;
mod support;
mod tokens;
