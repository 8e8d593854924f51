//! The command line: parse, run, print.

mod calibrate;
mod check;
mod demo;
mod honeypots;
mod out;
mod render;
mod run;
mod scan;
mod schema;
mod topology;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::app::Setup;
use crate::config::Config;
use crate::error::Result;

/// Guards the long-term memory of LLM agents on Kafka.
#[derive(Debug, Parser)]
#[command(
    name = "memsluice",
    version,
    about,
    after_help = "Settings: --config FILE, then MEMSLUICE__SECTION__KEY variables (docs/configuration.md).\nLog: MEMSLUICE_LOG=debug."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the stream on a broker.
    Run(run::RunArgs),
    /// Check settings and files, or what the broker provides.
    Check(check::CheckArgs),
    /// Check, describe or create what the stream stands on.
    Topology(topology::TopologyArgs),
    /// Print the JSON Schema of a record.
    Schema(schema::SchemaArgs),
    /// Run the same pipeline over JSONL files, without Kafka.
    Scan(scan::ScanArgs),
    /// Fit and publish thresholds.
    Calibrate(calibrate::CalibrateArgs),
    /// Load the honeypot registry.
    Honeypots(honeypots::HoneypotsArgs),
    /// Show the main job on sample data.
    Demo(demo::DemoArgs),
}

/// Where to find configuration and topology.
#[derive(Debug, Clone, Args)]
struct Common {
    /// Configuration file [default: ./memsluice.yaml if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder with memsluice.yaml, topics.yaml and policy.yaml
    #[arg(long, value_name = "DIR", env = "MEMSLUICE_TOPOLOGY")]
    topology: Option<PathBuf>,
    /// Policy file [default: policy.yaml in the topology folder]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
}

impl Common {
    fn setup(&self) -> Result<Setup> {
        Setup::load(Config::load(self.config.as_deref())?, self.topology.as_deref(), self.policy.as_deref())
    }
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Table,
    /// One JSON value a line.
    Json,
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    out::log();
    let result = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Topology(args) => topology::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Scan(args) => scan::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Honeypots(args) => honeypots::run(&args),
        Command::Demo(args) => demo::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            out::error(&error);
            ExitCode::from(error.exit_status())
        }
    }
}
