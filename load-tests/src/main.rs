//! Harness of memsluice: makes inputs, checks outputs, and measures what Kafka alone can do.
//!
//! It shares no code with the product, so that a mistake there can't hide itself here.
#![forbid(unsafe_code)]

mod commit_latency;
mod compare;
mod convert;
mod cpu;
mod describe;
mod error;
mod generate;
mod kafka;
mod keys;
mod memory;
mod murmur2;
mod out;
mod produce;
mod read;
mod roof;
mod self_test;
mod soak;
mod time;
mod topics;
mod verify;
mod watch;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::Result;
use crate::out::Out;

#[derive(Debug, Parser)]
#[command(name = "load-tests", version, about, max_term_width = 110)]
#[command(after_help = "Exit: 0 passed, 1 a check failed, 2 it could not run.\n\n\
    Example:\n  load-tests verify --bootstrap 127.0.0.1:19092 --prefix t1. --dump run1.jsonl")]
struct Cli {
    /// Print JSON on stdout instead of text
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Convert(convert::Args),
    Produce(produce::Args),
    Verify(verify::Args),
    Compare(compare::Args),
    Generate(generate::Args),
    Roof(roof::Args),
    CommitLatency(commit_latency::Args),
    DescribeOutputs(describe::Args),
    SelfTest(self_test::Args),
    Soak(soak::Args),
    Memory(memory::Args),
    #[command(hide = true)]
    Keys(keys::Args),
    #[command(hide = true)]
    Watch(watch::Args),
    #[command(hide = true)]
    Behind(watch::BehindArgs),
    #[command(hide = true)]
    Topics(topics::Args),
}

fn run(cli: &Cli, out: &Out) -> Result<bool> {
    match &cli.command {
        Command::Convert(args) => convert::run(args, out),
        Command::Produce(args) => produce::run(args, out),
        Command::Verify(args) => verify::run(args, out),
        Command::Compare(args) => compare::run(args, out),
        Command::Generate(args) => generate::run(args, out),
        Command::Roof(args) => roof::run(args, out),
        Command::CommitLatency(args) => commit_latency::run(args, out),
        Command::DescribeOutputs(args) => describe::run(args, out),
        Command::SelfTest(args) => self_test::run(args, out),
        Command::Soak(args) => soak::run(args, out),
        Command::Memory(args) => memory::run(args, out),
        Command::Keys(args) => keys::run(args, out),
        Command::Watch(args) => watch::run(args, out),
        Command::Behind(args) => watch::behind(args, out),
        Command::Topics(args) => topics::run(args, out),
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let out = Out::new(cli.json);
    match run(&cli, &out) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            out.note(&format!("load-tests: error: {}", error::chain(&error)));
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_subcommand_has_an_example() {
        let command = Cli::command();
        command.clone().debug_assert();
        for sub in command.get_subcommands() {
            let help = sub.clone().render_long_help().to_string();
            assert!(help.contains("Example"), "{} has no example", sub.get_name());
        }
    }
}
