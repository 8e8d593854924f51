//! `memsluice demo`.

use std::path::PathBuf;

use clap::Args;

use super::{calibrate, out, render};
use crate::config::Config;
use crate::demo::{self, DemoInput};
use crate::error::Result;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  memsluice demo\n  memsluice demo --kafka 127.0.0.1:19092")]
pub(super) struct DemoArgs {
    /// Folder with the sample data
    #[arg(long, value_name = "DIR", default_value = "examples/demo")]
    data: PathBuf,
    /// Run on this broker instead of the embedded one
    #[arg(long, value_name = "BOOTSTRAP")]
    kafka: Option<String>,
    /// Configuration file [default: ./memsluice.yaml if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(super) fn run(args: &DemoArgs) -> Result<()> {
    let config = Config::load(args.config.as_deref())?;
    let input = DemoInput::at(&args.data);
    match &args.kafka {
        None => {
            out::line("demo, not exactly-once: librdkafka's in-process mock broker, one instance, throw-away state")?
        }
        Some(b) => out::line(&format!("demo on the broker at {b}: exactly-once, topics with a prefix of their own"))?,
    }
    let shown = |c: &crate::schema::Calibration| {
        out::line(&format!("calibrated  {}@{}", c.scope, c.version))?;
        calibrate::print(c, true)
    };
    let each = |o: &crate::sink::Output| {
        if let Err(error) = render::output(o, false) {
            tracing::error!(%error, "output");
        }
    };
    let summary = demo::run(config, &input, args.kafka.as_deref(), shown, each)?;
    out::line("")?;
    render::summary(&summary)?;
    out::line("Held writes are in `quarantine`, findings in `attacks`, every decision with its reasons in `decisions`.")
}
