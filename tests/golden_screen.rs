//! The golden examples of the hardened screen (`../shared/golden/hardened_golden.json`): every value of all cases.
//!
//! Skipped, with a line that says so, where the shared files are not here; what rests on vectors is skipped where
//! the encoder isn't.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use memsluice::config::Config;
use memsluice::embed::Embedder;
use memsluice::schema::{Vector, to_cosine};
use memsluice::score::{History, Scores};
use memsluice::screen::{
    CharModel, Conformal, Earlier, Features, Finding, Fitted, Floors, Hashes, Keyed, Rank, Trace, entities,
    is_sentence, judge, norm, patterns, prototype_contrast,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    lexicon: BTreeMap<String, String>,
    weights: Weights,
    floors: BTreeMap<String, f64>,
    prototypes: Prototypes,
    boundary: Boundary,
    cases: Vec<Case>,
    conformal: ConformalCases,
}

#[derive(Deserialize)]
struct Weights {
    strong: Weight,
    weak: Weight,
}

#[derive(Deserialize)]
struct Weight {
    classes: Vec<String>,
}

#[derive(Deserialize)]
struct Prototypes {
    positive: Vec<String>,
    negative: Vec<String>,
}

#[derive(Deserialize)]
struct Boundary {
    reference: Vec<Row>,
    history_queries: Vec<String>,
    known_entities: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Row {
    text: String,
    key: Option<String>,
    value: String,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    text: String,
    key: Option<String>,
    value: String,
    earlier_writes_of_this_source: Vec<String>,
    expect: Expect,
}

#[derive(Deserialize)]
struct Expect {
    norm: String,
    lexicon_classes: Vec<String>,
    entities: Vec<(String, String)>,
    new_entities: Vec<(String, String)>,
    #[serde(rename = "payload_P")]
    payload: f64,
    novel_trigrams_of_value: u32,
    #[serde(rename = "campaign_C")]
    campaign: f64,
    #[serde(rename = "near_duplicates_B")]
    duplicates: u32,
    #[serde(rename = "near_duplicates_B_jaccard_only")]
    duplicates_by_wording: u32,
    id_drift_occurrences: u32,
    arg_drift_share: f64,
    id_pair_with_redirect: u32,
    #[serde(rename = "drift_D")]
    drift: f64,
    #[serde(rename = "junk_J")]
    junk: u32,
    cross_entropy_bits_per_char: f64,
    memsad_max: f64,
    prototype_contrast: f64,
    floors_hit: Vec<String>,
    verdict: String,
}

#[derive(Deserialize)]
struct ConformalCases {
    calibration: Vec<[f64; 4]>,
    cases: Vec<ConformalCase>,
}

#[derive(Deserialize)]
struct ConformalCase {
    x: [f64; 4],
    signal_p: [f64; 4],
    #[serde(rename = "T_harmonic")]
    harmonic: f64,
    p_screen: f64,
}

fn golden() -> Option<Golden> {
    let shared = std::env::var_os("MEMSLUICE_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let Ok(text) = std::fs::read_to_string(shared.join("golden/hardened_golden.json")) else {
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

fn near(found: f64, wanted: f64, tolerance: f64, what: &str) {
    assert!((found - wanted).abs() <= tolerance, "{what} is {found}, the golden file has {wanted}");
}

fn micro(value: u64) -> f64 {
    value as f64 / 1e6
}

fn fitted(golden: &Golden) -> Fitted {
    let rows: Vec<Features> = golden.boundary.reference.iter().map(|r| Features::of(&r.text)).collect();
    Fitted::of(&rows)
}

fn named(text: &str) -> BTreeSet<(String, String)> {
    entities(text).into_iter().map(|e| (e.kind.as_str().to_owned(), e.text)).collect()
}

/// A case's signals and verdict; `vectors` are its own and those of the earlier writes.
fn judged(
    case: &Case,
    fitted: &Fitted,
    vectors: Option<&[Vector]>,
) -> (memsluice::screen::Scored, memsluice::screen::Campaign, Finding) {
    let traces: Vec<Trace> = case.earlier_writes_of_this_source.iter().map(|t| Features::of(t).trace).collect();
    let earlier = traces.iter().enumerate().map(|(i, trace)| Earlier { trace, vector: vectors.map(|v| &v[i + 1]) });
    let features = Features::of(&case.text);
    let (scored, campaign) = features.score(vectors.map(|v| &v[0]), fitted, |_| false, Floors::STUDY.c, earlier);
    let finding = judge(&scored, &Floors::STUDY, None, true);
    (scored, campaign, finding)
}

/// The pattern tables, weights and floors are those of the file.
#[test]
fn tables_are_those_of_the_study() {
    let Some(golden) = golden() else { return };
    let own: BTreeMap<String, String> =
        patterns().into_iter().map(|(name, _, pattern)| (name.to_owned(), pattern.to_owned())).collect();
    assert_eq!(own, golden.lexicon);
    for (name, strong, _) in patterns() {
        let list = if strong { &golden.weights.strong.classes } else { &golden.weights.weak.classes };
        assert!(list.iter().any(|c| c == name), "{name}");
    }
    let f = Floors::STUDY;
    for (name, floor) in [("P", f.p), ("C", f.c), ("B", f.b), ("D", f.d)] {
        near(micro(floor), golden.floors[name], 0.0, name);
    }
}

/// Everything that needs no vector.
#[test]
fn every_value_of_every_case() {
    let Some(golden) = golden() else { return };
    let fitted = fitted(&golden);
    let known: BTreeSet<(String, String)> = golden.boundary.reference.iter().flat_map(|r| named(&r.text)).collect();
    assert_eq!(known, golden.boundary.known_entities.iter().cloned().collect());
    for row in &golden.boundary.reference {
        let keyed = Keyed::of(&row.text);
        assert_eq!((keyed.key, keyed.value), (row.key.as_deref(), row.value.as_str()));
    }
    let model = CharModel::of(golden.boundary.reference.iter().map(|r| r.text.as_str()));
    for case in &golden.cases {
        let (what, e) = (case.id.as_str(), &case.expect);
        let keyed = Keyed::of(&case.text);
        assert_eq!((keyed.key, keyed.value), (case.key.as_deref(), case.value.as_str()), "{what}");
        assert_eq!(norm(&case.text), e.norm, "{what}");
        let (scored, campaign, _) = judged(case, &fitted, None);
        let mut classes = scored.payload.classes.names();
        classes.sort_unstable();
        assert_eq!(classes, e.lexicon_classes, "{what}");
        let found = named(&case.text);
        assert_eq!(found, e.entities.iter().cloned().collect(), "{what}");
        let new: BTreeSet<_> = found.difference(&known).cloned().collect();
        assert_eq!(new, e.new_entities.iter().cloned().collect(), "{what}");
        assert_eq!(
            (scored.payload.unseen_sinks + scored.payload.unseen_calls) as usize,
            e.new_entities.len(),
            "{what}"
        );
        near(micro(scored.payload.micro()), e.payload, 0.0, what);
        assert_eq!(campaign.new, e.novel_trigrams_of_value, "{what}");
        near(micro(scored.c), e.campaign, 1e-5, what);
        assert_eq!(campaign.b_wording, e.duplicates_by_wording, "{what}");
        let drift = Features::of(&case.text).drift;
        let share = f64::from(drift.arguments.0) / f64::from(drift.arguments.1.max(1));
        assert_eq!(drift.occurrences, e.id_drift_occurrences, "{what}");
        near(share, e.arg_drift_share, 1e-5, what);
        assert_eq!(u32::from(drift.redirected_pair), e.id_pair_with_redirect, "{what}");
        near(micro(scored.d), e.drift, 1e-5, what);
        assert_eq!(scored.j, e.junk, "{what}");
        near(model.bits(&case.text), e.cross_entropy_bits_per_char, 1e-4, what);
    }
    println!("{} cases: every value but those of vectors", golden.cases.len());
}

/// B with cosines, floors, verdicts, and the two scores that are only reported.
#[test]
fn verdicts_and_vector_scores_of_every_case() {
    let Some(golden) = golden() else { return };
    let Some((embedder, dimension)) = embedder() else { return };
    let fitted = fitted(&golden);
    let mut history = History::new(dimension, golden.boundary.history_queries.len());
    for vector in vectors(&embedder, &golden.boundary.history_queries) {
        history.push(vector.as_slice());
    }
    let (directive, harmless) =
        (vectors(&embedder, &golden.prototypes.positive), vectors(&embedder, &golden.prototypes.negative));
    for case in &golden.cases {
        let (what, e) = (case.id.as_str(), &case.expect);
        let texts: Vec<String> =
            std::iter::once(&case.text).chain(&case.earlier_writes_of_this_source).cloned().collect();
        let own = vectors(&embedder, &texts);
        let (scored, _, finding) = judged(case, &fitted, Some(&own));
        assert_eq!(scored.b, e.duplicates, "{what}");
        let letter = |name: &&str| match *name {
            "payload" => "P",
            "campaign" => "C",
            "near_duplicate" => "B",
            _ => "D",
        };
        let floors: Vec<&str> = finding.floors.iter().map(letter).collect();
        assert_eq!(floors, e.floors_hit, "{what}");
        assert_eq!(finding.verdict.as_str(), e.verdict, "{what}");
        near(to_cosine(Scores::of(&own[0], &history).max), e.memsad_max, 0.002, what);
        let sentences: Vec<String> = pieces(&case.text);
        let contrast = prototype_contrast(&vectors(&embedder, &sentences), &directive, &harmless).unwrap();
        near(to_cosine(contrast), e.prototype_contrast, 0.004, what);
    }
    println!("{} cases: verdicts and vector scores", golden.cases.len());
}

/// Sentences as the study cuts them.
fn pieces(text: &str) -> Vec<String> {
    let all = memsluice::screen::sentences(text);
    let long: Vec<String> = all.into_iter().filter(|p| is_sentence(p)).map(str::to_owned).collect();
    if long.is_empty() { vec![text.to_owned()] } else { long }
}

#[test]
fn conformal_ranks() {
    let Some(golden) = golden() else { return };
    let row = |values: &[f64; 4]| values.map(|v| (v * 1e6) as u64);
    let conformal = Conformal::new(golden.conformal.calibration.iter().map(row).collect());
    let n = (conformal.len() + 1) as f64;
    for case in &golden.conformal.cases {
        let what = format!("{:?}", case.x);
        let x = row(&case.x);
        for (count, wanted) in conformal.signals(&x).into_iter().zip(case.signal_p) {
            near(f64::from(count) / n, wanted, 1e-6, &what);
        }
        near(conformal.harmonic(&x), case.harmonic, 1e-5, &what);
        let Rank { count, of } = conformal.rank(&x);
        near(f64::from(count) / f64::from(of), case.p_screen, 1e-6, &what);
    }
}

/// `hardened.md` 8.7: the same input and state give the same result, whatever order state was read in.
#[test]
fn the_same_input_gives_the_same_result() {
    let Some(golden) = golden() else { return };
    let fitted = fitted(&golden);
    let turned = Fitted {
        shingles: Hashes::new(fitted.shingles.as_slice().iter().rev().copied().collect()),
        entities: Hashes::new(fitted.entities.as_slice().iter().rev().copied().collect()),
    };
    for case in &golden.cases {
        assert_eq!(judged(case, &fitted, None), judged(case, &turned, None), "{}", case.id);
    }
}
