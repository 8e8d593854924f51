//! `memsluice run`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;

use super::{Common, Format, out, render};
use crate::app::{self, BrokerKind, Setup};
use crate::config::{Config, Sabotage};
use crate::embed::Embedder;
use crate::error::{Code, Error, Result};
use crate::pipeline::{RunOptions, Summary};
use crate::score::kernel;
use crate::state::Progress;
use crate::telemetry::{self, health, metrics};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  memsluice run --topology topology --config memsluice.yaml\n  MEMSLUICE__KAFKA__BOOTSTRAP=127.0.0.1:19092 MEMSLUICE__SECRET_FILE=secret memsluice run --topology topology --until-end\n  memsluice run --config memsluice.yaml --print-config"
)]
pub(super) struct RunArgs {
    #[command(flatten)]
    common: Common,
    /// Stop when every input reached the end it had at start
    #[arg(long)]
    until_end: bool,
    /// Print the settings in force, secrets masked, each with where it came from, and stop
    #[arg(long)]
    print_config: bool,
    /// How the totals are printed at the end
    #[arg(long, value_enum, default_value = "table")]
    output: Format,
}

pub(super) fn run(args: &RunArgs) -> Result<()> {
    if args.print_config {
        return print_config(args);
    }
    if args.common.topology.is_none() {
        return Err(Error::new(Code::TopologyUnreadable, "run needs --topology DIR"));
    }
    let setup = args.common.setup()?;
    let secret = setup.secret()?;
    serve(&setup)?;
    let sprt = crate::session::SprtTable::new(&setup.topology.main.sprt)?;
    let (attack, benign) = (sprt.exact(sprt.parameters.p1), sprt.exact(sprt.parameters.p0));
    out::note(&format!(
        "sprt: an attack at p1 is flagged with probability {:.4} after {:.1} observations, benign use at p0 with {:.5} (exact)",
        attack.upper, attack.rounds, benign.upper
    ));
    kernel::choose(&setup.config.score)?;
    let embedder = Embedder::start(&setup.config.encoder)?;
    out::note(&format!("encoder: {}", embedder.identity()));
    let stop = stop_on_signal()?;
    let on_progress = if setup.config.sabotage == Some(Sabotage::StuckTask) { stuck() } else { progress() };
    let options = RunOptions {
        until_end: args.until_end,
        stop,
        on_output: None,
        on_progress: Some(on_progress),
        on_restore: Some(restoring()),
    };
    let summary = app::run(&setup, secret, embedder, BrokerKind::Real, options)?;
    match args.output {
        Format::Table => render::summary(&summary),
        Format::Json => out::json(&summary),
    }
}

/// Metrics and probes from here on, so that a long start can be watched.
fn serve(setup: &Setup) -> Result<()> {
    let Some(listen) = setup.config.http.address() else {
        return Ok(());
    };
    let labels = vec![("version", env!("CARGO_PKG_VERSION").to_owned()), ("topology", setup.topology.hash.clone())];
    metrics().build_info.get_or_create(&labels).set(1);
    let address = telemetry::serve(listen, metrics(), health())?;
    out::note(&format!("http: {address} (/metrics /live /ready /startup)"));
    Ok(())
}

/// Sabotage only: the task thread stands still.
fn stuck() -> Box<dyn FnMut(&Summary) + Send> {
    Box::new(|_| {
        tracing::warn!("sabotage: the task thread stands still");
        loop {
            std::thread::park();
        }
    })
}

fn print_config(args: &RunArgs) -> Result<()> {
    let settings = Config::load(args.common.config.as_deref())?.effective()?;
    if args.output == Format::Json {
        return settings.iter().try_for_each(out::json);
    }
    let width = settings.iter().map(|s| s.key.len()).max().unwrap_or_default();
    settings.iter().try_for_each(|s| {
        let value = if s.value.is_empty() { "-" } else { &s.value };
        out::line(&format!("{:<width$}  {value}  ({})", s.key, s.origin))
    })
}

/// Totals on the log, every few seconds.
fn progress() -> Box<dyn FnMut(&Summary) + Send> {
    let mut last = crate::clock::monotonic();
    let mut seen = 0;
    Box::new(move |s| {
        let elapsed = last.elapsed();
        if elapsed.as_secs() < 5 {
            return;
        }
        #[allow(clippy::cast_precision_loss)] // a rate for people
        let rate = (s.inputs - seen) as f64 / elapsed.as_secs_f64();
        tracing::info!(inputs = s.inputs, rate, dead_letters = s.dead_letters, findings = s.findings, "progress");
        seen = s.inputs;
        last = crate::clock::monotonic();
    })
}

/// A bar on a terminal, else a line every few seconds, for restores that take long.
fn restoring() -> Box<dyn Fn(Progress) + Send> {
    let bar = out::progress(0, "changelog offsets");
    let said = std::cell::Cell::new(crate::clock::monotonic());
    Box::new(move |p| {
        bar.set_length(p.replayed + p.remaining);
        bar.set_position(p.replayed);
        bar.set_message(format!("changelog, unit {}", p.unit));
        if p.remaining == 0 {
            bar.reset_elapsed();
        }
        if said.get().elapsed().as_secs() >= 5 {
            tracing::info!(unit = p.unit, replayed = p.replayed, remaining = p.remaining, "restoring");
            said.set(crate::clock::monotonic());
        }
    })
}

/// Set at the first SIGINT or SIGTERM: the stream commits and leaves the group.
pub(super) fn stop_on_signal() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    let body = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        runtime.block_on(async {
            let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) else {
                return;
            };
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            out::note("stopping: committing what is decided");
            seen.store(true, Ordering::Relaxed);
        });
    };
    std::thread::Builder::new()
        .name("memsluice-signal".to_owned())
        .spawn(body)
        .map_err(|e| Error::with(Code::Internal, "can't start a thread", e))?;
    Ok(stop)
}
