//! The scores of the reference MemSAD implementation (`../shared/golden/memsad_golden.json`), reached with
//! the real encoder and this crate's integer scores.
//!
//! Skipped, with a line that says so, where the shared files or the encoder are not here.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use memsluice::config::{Config, Encoder};
use memsluice::embed::{Embedder, open};
use memsluice::schema::{Calibration, MemsadFacts, Scope, Vector, to_cosine};
use memsluice::score::{FitInput, History, Scores, Settings, assess, fit};
use memsluice::topology::{Statistic, Topology};
use serde::Deserialize;

/// Tolerance of the golden file for cosine scores; i16 components add 2e-5 at most.
const TOLERANCE: f64 = 2e-4;

#[derive(Deserialize)]
struct Golden {
    encoder_check: EncoderCheck,
    inputs: Inputs,
    results: BTreeMap<String, serde_json::Value>,
    borderline: Vec<Borderline>,
}

#[derive(Deserialize)]
struct EncoderCheck {
    cosines: Vec<Pair>,
    token_counts_with_special: Vec<Count>,
    first8_of_embedding: First,
}

#[derive(Deserialize)]
struct Pair {
    a: String,
    b: String,
    cos: f64,
}

#[derive(Deserialize)]
struct Count {
    text: String,
    n: usize,
}

#[derive(Deserialize)]
struct First {
    text: String,
    values: Vec<f64>,
}

#[derive(Deserialize)]
struct Inputs {
    history: Vec<String>,
    reference_corpus: Vec<String>,
    reference_corpus_2: Vec<String>,
    candidates: Vec<Candidate>,
}

#[derive(Deserialize)]
struct Candidate {
    id: String,
    text: String,
}

#[derive(Deserialize)]
struct Run {
    stats: Stats,
    candidates: Vec<Scored>,
}

#[derive(Deserialize)]
struct Stats {
    mean_history_norm: f64,
    mu: f64,
    sigma: f64,
    kappa: f64,
    threshold: f64,
    n_history_vectors: usize,
    trigger: Option<String>,
    new_queries: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Scored {
    id: String,
    s_max: f64,
    s_mean: f64,
    score: f64,
    z: f64,
    flag: bool,
}

#[derive(Deserialize)]
struct Borderline {
    run: String,
    id: String,
}

fn golden() -> Option<Golden> {
    let shared = std::env::var_os("MEMSLUICE_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let Ok(text) = std::fs::read_to_string(shared.join("golden/memsad_golden.json")) else {
        println!("skipped: ../shared is not here");
        return None;
    };
    Some(serde_json::from_str(&text).unwrap())
}

/// The encoder that the environment names.
fn encoder() -> Option<Encoder> {
    let encoder = Config::load(None).unwrap().encoder;
    if encoder.model.is_none() || encoder.tokenizer.is_none() || encoder.runtime.is_none() {
        println!("skipped: MEMSLUICE__ENCODER__MODEL, __TOKENIZER and __RUNTIME are not set (scripts/fetch-model)");
        return None;
    }
    Some(encoder)
}

/// Encodes each text once.
struct Bench {
    golden: Golden,
    embedder: Embedder,
    dimension: usize,
    known: RefCell<HashMap<String, Vector>>,
}

impl Bench {
    fn new() -> Option<Self> {
        let golden = golden()?;
        let settings = encoder()?;
        let embedder = Embedder::start(&settings).unwrap();
        Some(Self { golden, embedder, dimension: settings.dimension, known: RefCell::default() })
    }

    fn vectors(&self, texts: &[String]) -> Vec<Vector> {
        let mut known = self.known.borrow_mut();
        let mut new: Vec<String> = texts.iter().filter(|t| !known.contains_key(*t)).cloned().collect();
        new.sort();
        new.dedup();
        for (text, encoded) in new.iter().zip(self.embedder.encode_all(&new, || ()).unwrap()) {
            assert!(!encoded.truncated, "{text} was cut");
            known.insert(text.clone(), encoded.vector);
        }
        texts.iter().map(|t| known[t].clone()).collect()
    }

    fn history(&self, capacity: usize, texts: &[String]) -> History {
        let mut history = History::new(self.dimension, capacity);
        for vector in self.vectors(texts) {
            history.push(vector.as_slice());
        }
        history
    }

    fn fit(&self, corpus: &[String], history: &History, statistic: Statistic, kappa: f64) -> Calibration {
        fit(&FitInput {
            scope: &Scope::Deployment,
            version: 1,
            statistic,
            kappa,
            history,
            benign: &self.vectors(corpus),
            triggered: &[],
            poison: &[],
            encoder: self.embedder.identity(),
            as_of: "2026-11-30T00:00:00Z".into(),
        })
        .unwrap()
    }

    fn run(&self, name: &str) -> Run {
        let run = Run::deserialize(&self.golden.results[name]).unwrap();
        assert_eq!(run.candidates.len(), self.golden.inputs.candidates.len(), "{name}");
        run
    }

    /// Scores the candidates as the stream does and compares with the run.
    fn compare(&self, name: &str, run: &Run, history: &History, calibration: &Calibration, statistic: Statistic) {
        let stats = &run.stats;
        assert_eq!(history.len(), stats.n_history_vectors, "{name}");
        near(history.mean_norm(), stats.mean_history_norm, TOLERANCE, &format!("{name}: mean_history_norm"));
        near(calibration.mean, stats.mu, TOLERANCE, &format!("{name}: mu"));
        near(calibration.std, stats.sigma, TOLERANCE, &format!("{name}: sigma"));
        near(calibration.threshold, stats.threshold, TOLERANCE, &format!("{name}: threshold"));
        let mut memsad = Topology::sample().unwrap().main.memsad;
        memsad.statistic = statistic;
        let settings = Settings { memsad, encoder: self.embedder.identity().to_owned() };
        let texts: Vec<String> = self.golden.inputs.candidates.iter().map(|c| c.text.clone()).collect();
        let (mut asserted, mut flagged) = (0, 0);
        for ((vector, input), wanted) in
            self.vectors(&texts).iter().zip(&self.golden.inputs.candidates).zip(&run.candidates)
        {
            assert_eq!(input.id, wanted.id, "{name}");
            let what = format!("{name} {}", wanted.id);
            let (facts, _) = assess(&settings, vector, history, Some(calibration));
            compare_scores(&facts, wanted, calibration, statistic, &what);
            if self.golden.borderline.iter().any(|b| b.run == name && b.id == wanted.id) {
                continue;
            }
            assert_eq!(facts.flagged, wanted.flag, "{what}: flag");
            asserted += 1;
            flagged += usize::from(wanted.flag);
        }
        println!("{name}: {asserted} flags equal, {flagged} of them set; threshold {:.6}", calibration.threshold);
    }
}

fn near(found: f64, wanted: f64, tolerance: f64, what: &str) {
    assert!((found - wanted).abs() <= tolerance, "{what} is {found}, the reference has {wanted}");
}

fn compare_scores(f: &MemsadFacts, wanted: &Scored, calibration: &Calibration, statistic: Statistic, what: &str) {
    near(to_cosine(f.s_max), wanted.s_max, TOLERANCE, &format!("{what}: s_max"));
    near(to_cosine(f.s_mean), wanted.s_mean, TOLERANCE, &format!("{what}: s_mean"));
    let score = match statistic {
        Statistic::Max => f.s_max,
        Statistic::Mean => f.s_mean,
        Statistic::Combined => f.s_comb,
    };
    let score = to_cosine(score);
    near(score, wanted.score, TOLERANCE, &format!("{what}: score"));
    let z = (score - calibration.mean) / calibration.std;
    near(z, wanted.z, TOLERANCE / calibration.std, &format!("{what}: z"));
}

/// Same model, pooling and tokenizer as the reference.
#[test]
fn encoder_agrees_with_the_reference() {
    let Some(bench) = Bench::new() else { return };
    let check = &bench.golden.encoder_check;
    for pair in &check.cosines {
        let vectors = bench.vectors(&[pair.a.clone(), pair.b.clone()]);
        let mut history = History::new(bench.dimension, 1);
        history.push(vectors[0].as_slice());
        let scores = Scores::of(&vectors[1], &history);
        assert_eq!(scores.max, scores.mean);
        near(to_cosine(scores.max), pair.cos, TOLERANCE, &format!("cos({:?}, {:?})", pair.a, pair.b));
    }
    let first = &check.first8_of_embedding;
    let vector = bench.vectors(std::slice::from_ref(&first.text)).remove(0);
    for (found, wanted) in vector.as_slice().iter().zip(&first.values) {
        near(f64::from(*found) / 32767.0, *wanted, TOLERANCE, "a component of the embedding");
    }
    let backend = open(&encoder().unwrap()).unwrap().unwrap();
    for count in &check.token_counts_with_special {
        assert_eq!(backend.prepare(&count.text).unwrap().ids.len(), count.n, "{}", count.text);
    }
}

/// Plain and triggered history, max and combined, both reference corpora.
#[test]
fn plain_and_triggered_runs_agree() {
    let Some(bench) = Bench::new() else { return };
    let inputs = &bench.golden.inputs;
    for (suffix, corpus) in [("", &inputs.reference_corpus), ("_ref2", &inputs.reference_corpus_2)] {
        for (word, statistic) in [("max", Statistic::Max), ("combined", Statistic::Combined)] {
            for kind in ["plain", "triggered"] {
                let name = format!("{kind}_{word}{suffix}");
                let run = bench.run(&name);
                assert_eq!(run.stats.trigger.is_some(), kind == "triggered", "{name}");
                let queries: Vec<String> = match &run.stats.trigger {
                    Some(trigger) => inputs.history.iter().map(|q| format!("{trigger} {q}")).collect(),
                    None => inputs.history.clone(),
                };
                let history = bench.history(1000, &queries);
                let calibration = bench.fit(corpus, &history, statistic, run.stats.kappa);
                bench.compare(&name, &run, &history, &calibration, statistic);
            }
        }
    }
}

/// New queries push out the oldest; the reference keeps the old threshold until it calibrates again.
#[test]
fn fifo_runs_agree() {
    let Some(bench) = Bench::new() else { return };
    let inputs = &bench.golden.inputs;
    let stale = bench.run("fifo_stale_combined");
    let capacity = 40;
    let before = bench.history(capacity, &inputs.history);
    let calibration = bench.fit(&inputs.reference_corpus, &before, Statistic::Combined, stale.stats.kappa);
    let mut window = before.clone();
    for vector in bench.vectors(stale.stats.new_queries.as_ref().unwrap()) {
        window.push(vector.as_slice());
    }
    assert_ne!(window.digest(), before.digest());
    bench.compare("fifo_stale_combined", &stale, &window, &calibration, Statistic::Combined);
    let recalibrated = bench.run("fifo_recalibrated_combined");
    let calibration = bench.fit(&inputs.reference_corpus, &window, Statistic::Combined, recalibrated.stats.kappa);
    bench.compare("fifo_recalibrated_combined", &recalibrated, &window, &calibration, Statistic::Combined);
}
