//! The only place that prints.
#![allow(clippy::print_stderr)]

use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracing_subscriber::EnvFilter;

use crate::config::mask;
use crate::error::{Code, Error, Result};

/// Starts the log on standard error.
pub(super) fn log() {
    let filter = EnvFilter::try_from_env("MEMSLUICE_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    let made = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(|| Masked(std::io::stderr()))
        .try_init();
    if made.is_err() {
        tracing::debug!("the log was started before");
    }
}

/// Standard error without secrets. The log writes one whole line a call.
struct Masked(std::io::Stderr);

impl Write for Masked {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.0.write_all(mask(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// A panic's message may hold whatever the code held.
pub(super) fn mask_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let trace = std::backtrace::Backtrace::capture();
        let text = format!("thread '{}': {panic}\n{trace}", thread.name().unwrap_or("?"));
        eprintln!("{}", mask(&text));
    }));
}

/// A line on standard output. A closed pipe ends the command quietly.
pub(super) fn line(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.map_err(|e| Error::with(Code::OutputFailed, "standard output can't be written", e)),
    }
}

/// A value as one JSON line.
pub(super) fn json(value: &impl serde::Serialize) -> Result<()> {
    let text =
        serde_json::to_string(value).map_err(|e| Error::with(Code::OutputFailed, "a result can't be written", e))?;
    line(&text)
}

/// A note on standard error.
pub(super) fn note(text: &str) {
    eprintln!("{}", mask(text));
}

/// The error that ends the command.
pub(super) fn error(error: &Error) {
    eprintln!("error: {}", mask(&error.to_string()));
}

/// A progress bar on a terminal; nothing elsewhere.
pub(super) fn progress(length: u64, unit: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(10));
    let template = match unit {
        "bytes" => "{bar:30} {bytes}/{total_bytes} {elapsed} eta {eta}",
        _ => "{bar:30} {pos}/{len} {msg} {elapsed} eta {eta}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
