//! `memsluice evaluate`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::{Format, out};
use crate::config::{Backend, Config, Encoder};
use crate::error::{Code, Error, Result};
use crate::evaluate::data::{Data, Golden};
use crate::evaluate::defenses::Kind;
use crate::evaluate::matrix::{self, Options, describe};
use crate::evaluate::report::{self, Report};
use crate::evaluate::{Encode as _, Vectors, Work, corpus, failing, margins, presets};

/// Which tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Preset {
    /// Every attack against every defense, with controls, and each defense where it fails.
    Matrix,
    /// The paper's reproducible numbers beside published and re-measured ones.
    MemsadPaper,
    /// The screen's study: its rows, controls, honest column, false positives by script and length.
    Hardened,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The data sets are read from --data and never shipped; what needs them is skipped where they are absent. A killed run goes on from --work.\n\nExamples:\n  memsluice evaluate --smoke\n  memsluice evaluate --preset matrix --data ../shared/data --work evaluation-work --out evaluation\n  memsluice evaluate --preset memsad-paper --data ../shared/data --output json\n  memsluice evaluate --attack minja --defense screen --defense memsad-combined"
)]
pub(super) struct EvaluateArgs {
    /// Configuration file, for the encoder [default: ./memsluice.yaml if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Which tables
    #[arg(long, value_enum, default_value = "matrix")]
    preset: Preset,
    /// Folder with benign/, poison/ and extraction/
    #[arg(long, value_name = "DIR", default_value = "../shared/data")]
    data: PathBuf,
    /// hardened_golden.json, for its hard benign and adaptive rows [default: ../golden beside --data]
    #[arg(long, value_name = "FILE")]
    golden: Option<PathBuf>,
    /// Folder for vectors and finished cells
    #[arg(long, value_name = "DIR", default_value = "evaluation-work")]
    work: PathBuf,
    /// Write evaluation.json, evaluation.parquet and evaluation.html into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seed of every draw
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Ranks that count as retrieved
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    k: u32,
    /// Bootstrap resamples
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    resamples: u32,
    /// A small own corpus with the test encoder: seconds, no meaning
    #[arg(long)]
    smoke: bool,
    /// Only these attacks
    #[arg(long, value_name = "NAME")]
    attack: Vec<String>,
    /// Only these defenses
    #[arg(long, value_name = "NAME", value_parser = kind)]
    defense: Vec<Kind>,
    /// Model file of the second encoder, for the coherence control [default: hashed trigrams]
    #[arg(long, value_name = "FILE", requires = "second_tokenizer")]
    second_model: Option<PathBuf>,
    /// Its tokenizer
    #[arg(long, value_name = "FILE", requires = "second_model")]
    second_tokenizer: Option<PathBuf>,
    /// How results are printed
    #[arg(long, value_enum, default_value = "table")]
    output: Format,
}

fn kind(name: &str) -> std::result::Result<Kind, String> {
    let all = || Kind::ALL.map(Kind::as_str).join(", ");
    Kind::parse(name).ok_or_else(|| format!("no such defense; there are {}", all()))
}

pub(super) fn run(args: &EvaluateArgs) -> Result<()> {
    let encoder = encoder(args)?;
    let work = Work::open(Some(&args.work))?;
    let encode = Vectors::open(&encoder, Some(&args.work))?;
    let data = if args.smoke { None } else { Data::at(&args.data) };
    let golden = data.as_ref().and_then(|_| Golden::at(&golden_path(args)));
    let options = Options {
        seed: args.seed,
        k: args.k as usize,
        resamples: args.resamples as usize,
        smoke: args.smoke,
        defenses: args.defense.clone(),
        attacks: args.attack.clone(),
    };
    let mut report = Report {
        preset: args.preset.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned()),
        seed: args.seed,
        k: options.k,
        resamples: options.resamples,
        encoder: encode.identity().to_owned(),
        corpora: Vec::new(),
        skipped: skipped(args, data.is_some(), golden.is_some()),
        cells: Vec::new(),
        rows: Vec::new(),
    };
    let bar = out::progress(1, "cells");
    let step = |what: &str| bar.set_message(what.to_owned());
    match args.preset {
        Preset::Matrix => {
            let fields = matrix::fields(&options, data.as_ref(), golden.as_ref(), &encode, step)?;
            report.corpora = describe(&fields);
            bar.set_length(matrix::count(&options, &fields) as u64 + 1);
            report.cells = matrix::run(&options, &fields, &encode, &work, |what| {
                bar.set_message(what.to_owned());
                bar.inc(1);
            })?;
            unknown_attacks(args, &report)?;
            let second = Vectors::open(&second(args, &encoder), Some(&args.work))?;
            step("defenses where they fail");
            let own = corpus::generate(args.seed, if args.smoke { corpus::Sizes::SMOKE } else { corpus::Sizes::FULL });
            report.rows = failing(&own, args.seed, &encode, &second)?;
            report.rows.extend(margins(&fields[0], &[&encode, &second])?);
        }
        Preset::MemsadPaper => {
            if let Some(data) = &data {
                report.rows = presets::memsad_paper(data, args.seed, &encode, step)?;
            }
        }
        Preset::Hardened => {
            if let Some(data) = &data {
                report.rows = presets::hardened(data, golden.as_ref(), args.seed, &encode, step)?;
            }
        }
    }
    bar.finish_and_clear();
    if let Some(folder) = &args.out {
        report::write(&report, folder)?;
        out::note(&format!("written: {}/evaluation.{{json,parquet,html}}", folder.display()));
    }
    match args.output {
        Format::Json => out::json(&report),
        Format::Table => report::lines(&report).iter().try_for_each(|l| out::line(l)),
    }
}

fn encoder(args: &EvaluateArgs) -> Result<Encoder> {
    if args.smoke {
        return Ok(Encoder { backend: Backend::Hash, ..Encoder::default() });
    }
    Ok(Config::load(args.config.as_deref())?.encoder)
}

/// Hashed trigrams where no other model is given: another encoder at any rate.
fn second(args: &EvaluateArgs, first: &Encoder) -> Encoder {
    match (&args.second_model, &args.second_tokenizer) {
        (Some(model), Some(tokenizer)) => {
            Encoder { model: Some(model.clone()), tokenizer: Some(tokenizer.clone()), ..first.clone() }
        }
        // Not the first one's dimension, so that it differs from the smoke run's encoder, too.
        _ => Encoder { backend: Backend::Hash, dimension: 48, ..Encoder::default() },
    }
}

fn golden_path(args: &EvaluateArgs) -> PathBuf {
    let beside = || args.data.parent().unwrap_or(Path::new(".")).join("golden/hardened_golden.json");
    args.golden.clone().unwrap_or_else(beside)
}

fn skipped(args: &EvaluateArgs, data: bool, golden: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if args.smoke {
        lines.push("the data sets: --smoke takes the own corpus alone".to_owned());
    } else if !data {
        let rows = if args.preset == Preset::Matrix { "their boundaries" } else { "every row of this preset" };
        lines.push(format!("the data sets: {} is no folder (--data), so {rows}", args.data.display()));
    } else if !golden {
        lines.push(format!("hard benign, echo and adaptive rows, qa and shop: no {}", golden_path(args).display()));
    }
    lines
}

fn unknown_attacks(args: &EvaluateArgs, report: &Report) -> Result<()> {
    let known = |name: &String| report.cells.iter().any(|c| c.attack == *name);
    match args.attack.iter().find(|a| !known(a)) {
        None => Ok(()),
        Some(name) => Err(Error::new(Code::ConfigInvalid, format!("--attack {name}: no boundary has such an attack"))),
    }
}
