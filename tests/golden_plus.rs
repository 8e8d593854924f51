//! MEMSAD+, the lexical gate, content validation, energy and kNN of the reference implementation
//! (`../shared/golden/memsad_golden.json`).
//!
//! Skipped, with a line that says so, where the shared files are not here; what rests on vectors is skipped where the
//! encoder isn't. The reference's word lists are not in the file: the features that rest on them are taken from it
//! where a rule needs them.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use memsluice::config::Config;
use memsluice::embed::Embedder;
use memsluice::schema::{Vector, to_cosine};
use memsluice::score::{
    Deviation, History, NEIGHBOURS, Plus, Scores, Threshold, Trigrams, energy, knn, lexical, parts, validation,
    vocabulary,
};
use serde::Deserialize;
use serde_json::Value;

const COSINE: f64 = 2e-4;
const DIVERGENCE: f64 = 5e-6;
const LEXICAL: f64 = 2e-6;

#[derive(Deserialize)]
struct Golden {
    inputs: Inputs,
    results: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct Inputs {
    history: Vec<String>,
    reference_corpus: Vec<String>,
    candidates: Vec<Candidate>,
}

#[derive(Deserialize)]
struct Candidate {
    id: String,
    text: String,
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

fn embedder() -> Option<(Embedder, usize)> {
    let encoder = Config::load(None).unwrap().encoder;
    if encoder.model.is_none() || encoder.tokenizer.is_none() || encoder.runtime.is_none() {
        println!("skipped: MEMSLUICE__ENCODER__MODEL, __TOKENIZER and __RUNTIME are not set (scripts/fetch-model)");
        return None;
    }
    Some((Embedder::start(&encoder).unwrap(), encoder.dimension))
}

fn vectors(embedder: &Embedder, texts: &[String]) -> Vec<Vector> {
    embedder.encode_all(texts, || ()).unwrap().into_iter().map(|e| e.vector).collect()
}

impl Golden {
    fn stats(&self, run: &str, name: &str) -> f64 {
        name.split('/').fold(&self.results[run]["stats"], |v, part| &v[part]).as_f64().unwrap()
    }

    /// Candidates with what a run says of them.
    fn rows<'a>(&'a self, run: &str) -> Vec<(&'a Candidate, &'a Value)> {
        let rows = self.results[run]["candidates"].as_array().unwrap();
        assert_eq!(rows.len(), self.inputs.candidates.len());
        let paired: Vec<_> = self.inputs.candidates.iter().zip(rows).collect();
        assert!(paired.iter().all(|(c, r)| r["id"] == c.id));
        paired
    }
}

fn near(found: f64, wanted: f64, tolerance: f64, what: &str) {
    assert!((found - wanted).abs() <= tolerance, "{what} is {found}, the reference has {wanted}");
}

fn fits(golden: &Golden, run: &str, fitted: &Threshold, [mu, sigma]: [&str; 2], tolerance: f64) {
    near(fitted.mean, golden.stats(run, mu), tolerance, &format!("{run} {mu}"));
    near(fitted.std, golden.stats(run, sigma), tolerance, &format!("{run} {sigma}"));
    let threshold = match mu.rsplit_once('/') {
        Some((part, _)) => format!("{part}/threshold"),
        None => "threshold".to_owned(),
    };
    near(fitted.threshold, golden.stats(run, &threshold), 3.0 * tolerance, &format!("{run} {threshold}"));
}

fn texts(all: &[String]) -> impl Iterator<Item = &str> {
    all.iter().map(String::as_str)
}

fn trigrams(golden: &Golden) -> (Trigrams, Threshold) {
    let corpus = &golden.inputs.reference_corpus;
    let pool = Trigrams::of(texts(corpus));
    let own: Vec<f64> = corpus.iter().map(|t| pool.divergence(t)).collect();
    (pool, Threshold::fit(&own, 2.0, Deviation::Population))
}

#[test]
fn character_divergence() {
    let Some(golden) = golden() else { return };
    let (pool, threshold) = trigrams(&golden);
    let run = "memsad_plus";
    let size = ["reference_trigram_total", "reference_trigram_distinct"].map(|n| golden.stats(run, n) as usize);
    assert_eq!(pool.size(), (size[0], size[1]));
    fits(&golden, run, &threshold, ["char_jsd/mu", "char_jsd/sigma"], DIVERGENCE);
    for (c, wanted) in golden.rows(run) {
        let found = pool.divergence(&c.text);
        near(found, wanted["char_jsd"].as_f64().unwrap(), DIVERGENCE, &c.id);
        assert_eq!(found > threshold.threshold, wanted["char_flag"].as_bool().unwrap(), "{}", c.id);
    }
}

/// The three rules, with the reference's own domain shares.
#[test]
fn rules_of_memsad_plus() {
    let Some(golden) = golden() else { return };
    let Some((embedder, dimension)) = embedder() else { return };
    let run = "memsad_plus";
    let mut history = History::new(dimension, 1000);
    for vector in vectors(&embedder, &golden.inputs.history) {
        history.push(vector.as_slice());
    }
    let combined = |v: &Vector| to_cosine(Scores::of(v, &history).comb);
    let benign: Vec<f64> = vectors(&embedder, &golden.inputs.reference_corpus).iter().map(combined).collect();
    let semantic = Threshold::fit(&benign, 2.0, Deviation::Population);
    fits(&golden, run, &semantic, ["semantic/mu", "semantic/sigma"], COSINE);
    let (pool, character) = trigrams(&golden);
    let [mean, std, threshold] = ["domain/mu", "domain/sigma", "domain/threshold"].map(|n| golden.stats(run, n));
    let plus = Plus { semantic, character, domain: Threshold { mean, std, threshold } };
    let candidates: Vec<String> = golden.inputs.candidates.iter().map(|c| c.text.clone()).collect();
    for ((c, wanted), vector) in golden.rows(run).into_iter().zip(vectors(&embedder, &candidates)) {
        let number = |name: &str| wanted[name].as_f64().unwrap();
        let flag = |name: &str| wanted[name].as_bool().unwrap();
        let score = combined(&vector);
        near(score, number("semantic"), COSINE, &c.id);
        assert_eq!(score > semantic.threshold, flag("semantic_flag"), "{}", c.id);
        let judged = plus.judge(score, pool.divergence(&c.text), number("domain_conc"));
        near(judged.any_score, number("any_of_score"), 5e-3, &c.id);
        near(judged.weighted_score, number("weighted_score"), 5e-3, &c.id);
        assert_eq!(judged.any, flag("any_of_flag"), "{}", c.id);
        assert_eq!(judged.paper, flag("paper_rule_flag"), "{}", c.id);
        assert_eq!(judged.weighted, flag("weighted_flag"), "{}", c.id);
    }
}

#[test]
fn lexical_gate() {
    let Some(golden) = golden() else { return };
    let run = "lexical_gate";
    let known = vocabulary(texts(&golden.inputs.history));
    assert_eq!(known.len(), golden.stats(run, "query_vocab") as usize);
    let benign: Vec<f64> = texts(&golden.inputs.reference_corpus).map(|t| lexical(t, &known).score).collect();
    let threshold = Threshold::fit(&benign, -golden.stats(run, "k"), Deviation::PopulationFloored);
    fits(&golden, run, &threshold, ["mu", "sigma"], LEXICAL);
    for (c, wanted) in golden.rows(run) {
        let found = lexical(&c.text, &known);
        for (value, name) in [
            (found.diversity, "ttr"),
            (found.overlap, "overlap"),
            (found.repetition, "repetition"),
            (found.score, "score"),
        ] {
            near(value, wanted[name].as_f64().unwrap(), LEXICAL, &format!("{} {name}", c.id));
        }
        assert_eq!(found.score < threshold.threshold, wanted["flag"].as_bool().unwrap(), "{}", c.id);
    }
}

/// Entropy and diversity; the score with the reference's own share of directive words.
#[test]
fn content_validation() {
    let Some(golden) = golden() else { return };
    let run = "content_validation";
    for (c, wanted) in golden.rows(run) {
        let found = validation(&c.text);
        let number = |name: &str| wanted[name].as_f64().unwrap();
        near(found.entropy, number("bigram_entropy_bits"), LEXICAL, &c.id);
        near(found.diversity, number("ttr"), LEXICAL, &c.id);
        let score = parts(found.entropy, found.diversity, number("directive_density"));
        near(score, number("score"), LEXICAL, &c.id);
        assert_eq!(score > golden.stats(run, "threshold"), wanted["flag"].as_bool().unwrap(), "{}", c.id);
    }
    // Without a directive word the statistics of the corpus rest on diversity alone.
    let corpus: Vec<f64> = texts(&golden.inputs.reference_corpus).map(|t| validation(t).score).collect();
    let own = Threshold::fit(&corpus, golden.stats(run, "k"), Deviation::SampleFloored);
    println!(
        "content validation with our own directive words: mu {:.6} (reference {:.6})",
        own.mean,
        golden.stats(run, "mu")
    );
}

#[test]
fn energy_and_neighbours() {
    let Some(golden) = golden() else { return };
    let Some((embedder, _)) = embedder() else { return };
    let history = vectors(&embedder, &golden.inputs.history);
    let benign = vectors(&embedder, &golden.inputs.reference_corpus);
    let candidates: Vec<String> = golden.inputs.candidates.iter().map(|c| c.text.clone()).collect();
    let candidates = vectors(&embedder, &candidates);
    let ood = &golden.results["ood"];
    type Score<'a> = &'a dyn Fn(&Vector) -> f64;
    let runs: [(&str, Score<'_>); 2] =
        [("energy", &|v| energy(v, &history)), ("knn", &|v| knn(v, &benign, NEIGHBOURS))];
    for (name, score) in runs {
        let stats = &ood[name]["stats"];
        let own: Vec<f64> = benign.iter().map(score).collect();
        let fitted = Threshold::fit(&own, 2.0, Deviation::Population);
        for (value, what) in [(fitted.mean, "mu"), (fitted.std, "sigma"), (fitted.threshold, "threshold")] {
            near(value, stats[what].as_f64().unwrap(), COSINE, &format!("{name} {what}"));
        }
        for (c, vector) in golden.inputs.candidates.iter().zip(&candidates) {
            near(score(vector), ood[name]["scores"][&c.id].as_f64().unwrap(), COSINE, &format!("{name} {}", c.id));
        }
    }
}
