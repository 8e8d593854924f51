//! The command line: parse, run, print.

mod acls;
mod calibrate;
mod check;
mod demo;
mod dlq;
mod encoder;
mod evaluate;
mod honeypots;
mod kernel;
mod out;
mod policy;
mod published;
mod render;
mod reset;
mod run;
mod scan;
mod schema;
mod state;
mod topology;
mod upgrade;
mod verify;

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
    /// Change topology, policy, secret or program of a running application.
    Upgrade(upgrade::UpgradeArgs),
    /// Lint, test and compare policies.
    Policy(policy::PolicyArgs),
    /// Print the JSON Schema of a record.
    Schema(schema::SchemaArgs),
    /// Run the same pipeline over JSONL files, without Kafka.
    Scan(scan::ScanArgs),
    /// Fit and publish thresholds.
    Calibrate(calibrate::CalibrateArgs),
    /// Measure attacks against defenses, with controls and intervals.
    Evaluate(evaluate::EvaluateArgs),
    /// Load the honeypot registry.
    Honeypots(honeypots::HoneypotsArgs),
    /// Look at dead letters, send them again, or give them up.
    Dlq(dlq::DlqArgs),
    /// Look at the local state, or check it against the changelog.
    State(state::StateArgs),
    /// Recompute what a decision says.
    Verify(verify::VerifyArgs),
    /// Put offsets, state and local folder of the application back to a start.
    Reset(reset::ResetArgs),
    /// Compare encoders: margin, drift, and what batches change.
    Encoder(encoder::EncoderArgs),
    /// Time scoring kernels.
    Kernel(kernel::KernelArgs),
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
    out::mask_panics();
    let cli = Cli::parse();
    out::log();
    let result = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Topology(args) => topology::run(&args),
        Command::Upgrade(args) => upgrade::run(&args),
        Command::Policy(args) => policy::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Scan(args) => scan::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Evaluate(args) => evaluate::run(&args),
        Command::Honeypots(args) => honeypots::run(&args),
        Command::Dlq(args) => dlq::run(&args),
        Command::State(args) => state::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Reset(args) => reset::run(&args),
        Command::Encoder(args) => encoder::run(&args),
        Command::Kernel(args) => kernel::run(&args),
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    fn leaves(command: &clap::Command, path: &str, out: &mut Vec<(String, String)>) {
        let path = format!("{path} {}", command.get_name());
        if command.get_subcommands().next().is_none() {
            out.push((path.clone(), command.get_after_help().map(ToString::to_string).unwrap_or_default()));
        }
        command.get_subcommands().for_each(|c| leaves(c, &path, out));
    }

    #[test]
    fn every_command_shows_an_example() {
        super::Cli::command().debug_assert();
        let mut all = Vec::new();
        leaves(&super::Cli::command(), "", &mut all);
        let without: Vec<_> = all.iter().filter(|(_, help)| !help.contains("Example")).map(|(path, _)| path).collect();
        assert!(without.is_empty() && all.len() > 10, "{without:?}");
    }
}
