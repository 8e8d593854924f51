//! Real encoders, where `scripts/fetch-model` has put them: MiniLM fp32 and int8, E5-small, BGE-small. One that is
//! not there is skipped and named.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::path::{Path, PathBuf};

use memsluice::config::{Device, Encoder as Settings, Pooling};
use memsluice::embed::{self, Backend, BatchRule, Embedder, Purpose};
use memsluice::error::Code;
use memsluice::schema::Vector;

const MINILM: &str = "all-minilm-l6-v2";
const MINILM_INT8: &str = "all-minilm-l6-v2-int8";
const E5: &str = "e5-small-v2";
const E5_INT8: &str = "e5-small-v2-int8";
const BGE_INT8: &str = "bge-small-en-v15-int8";

/// Settings of a model in the cache; `None` when it is not there.
fn settings(name: &str) -> Option<Settings> {
    // The default model's path leads to its neighbours.
    let path = |key: &str| std::env::var_os(format!("MEMSLUICE__ENCODER__{key}")).map(PathBuf::from);
    let found = path("MODEL").and_then(|model| Some((model.parent()?.parent()?.join(name), path("RUNTIME")?)));
    let Some((folder, runtime)) = found.filter(|(folder, _)| folder.join("model.onnx").is_file()) else {
        println!("skipped: {name} is not there (scripts/fetch-model)");
        return None;
    };
    let prefix = |word: &str| if name.starts_with("e5") { format!("{word}: ") } else { String::new() };
    Some(Settings {
        model: Some(folder.join("model.onnx")),
        tokenizer: Some(folder.join("tokenizer.json")),
        runtime: Some(runtime),
        query_prefix: prefix("query"),
        passage_prefix: prefix("passage"),
        pooling: if name.starts_with("bge") { Pooling::Cls } else { Pooling::Mean },
        ..Settings::default()
    })
}

fn open(settings: &Settings) -> Box<dyn Backend> {
    embed::open(settings).unwrap().unwrap()
}

fn vector(backend: &mut dyn Backend, text: &str) -> Vector {
    let prepared = backend.prepare(text).unwrap();
    Vector::from_f32(&backend.encode(&[prepared]).unwrap()[0]).unwrap()
}

fn cosine(a: &Vector, b: &Vector) -> f64 {
    let dot: i64 = a.as_slice().iter().zip(b.as_slice()).map(|(x, y)| i64::from(*x) * i64::from(*y)).sum();
    memsluice::schema::to_cosine(dot)
}

/// Every encoder that is there puts an answer nearer to its question than another text, with its prefixes and its
/// pooling; the probe lets fp32 batch and gives int8 one text a call.
#[test]
fn each_encoder_ranks_and_is_probed() {
    for name in [MINILM, MINILM_INT8, E5, E5_INT8, BGE_INT8] {
        let Some(settings) = settings(name) else { continue };
        let embedder = Embedder::start(&settings).unwrap();
        let text = |purpose, text: &str| embedder.prefixes().text(purpose, text);
        let texts = [
            text(Purpose::Query, "Which operating system does the user run?"),
            text(Purpose::Passage, "The user runs Debian on a laptop."),
            text(Purpose::Passage, "The canteen serves soup on Fridays."),
        ];
        let found: Vec<Vector> = embedder.encode_all(&texts, || ()).unwrap().into_iter().map(|e| e.vector).collect();
        let (near, far) = (cosine(&found[0], &found[1]), cosine(&found[0], &found[2]));
        assert!(near > far + 0.05, "{name}: {near} {far}");
        let quantised = name.ends_with("int8");
        assert_eq!(embedder.rule(), if quantised { BatchRule::One } else { BatchRule::Any }, "{name}");
        assert!(embedder.identity().contains(if quantised { "/batch-one" } else { "/batch-any" }));
    }
}

/// What the probe is for: whatever the order and company of texts, their bits are the same.
#[test]
fn a_text_has_the_same_bits_in_any_company() {
    for name in [MINILM, MINILM_INT8, E5_INT8] {
        let Some(settings) = settings(name) else { continue };
        let embedder = Embedder::start(&Settings { cache_entries: 1, ..settings }).unwrap();
        let texts: Vec<String> =
            (0..24).map(|i| "the report of room four is late ".repeat(1 + i * 5 % 7) + &i.to_string()).collect();
        let vectors = |texts: &[String]| -> Vec<Vector> {
            embedder.encode_all(texts, || ()).unwrap().into_iter().map(|e| e.vector).collect()
        };
        let together = vectors(&texts);
        let reversed: Vec<String> = texts.iter().rev().cloned().collect();
        let mut back = vectors(&reversed);
        back.reverse();
        assert_eq!(together, back, "{name}");
        for (text, vector) in texts.iter().zip(&together) {
            assert_eq!(vectors(std::slice::from_ref(text))[0], *vector, "{name}");
        }
    }
}

/// Dynamic int8 in a mixed batch is what must not happen: shown, so that the rule is seen to matter.
#[test]
fn batches_move_int8_and_leave_fp32_alone() {
    for (name, moves) in [(MINILM, false), (MINILM_INT8, true)] {
        let Some(settings) = settings(name) else { continue };
        let mut backend = open(&settings);
        let prepared = ["yes", "The nightly report goes to room four after Ada has checked it, and to nobody else."]
            .map(|t| backend.prepare(t).unwrap());
        let rows = backend.encode(&prepared).unwrap();
        let alone = backend.encode(&prepared[..1]).unwrap();
        let (a, b) = (Vector::from_f32(&rows[0]).unwrap(), Vector::from_f32(&alone[0]).unwrap());
        assert_eq!(a != b, moves, "{name}");
    }
}

#[test]
fn pooling_and_prefix_change_vector_and_identity() {
    let Some(minilm) = settings(MINILM) else { return };
    let mut mean = open(&minilm);
    let mut cls = open(&Settings { pooling: Pooling::Cls, ..minilm.clone() });
    let text = "The user runs Debian.";
    assert!(cosine(&vector(mean.as_mut(), text), &vector(cls.as_mut(), text)) < 0.99);
    let prefixed = open(&Settings { query_prefix: "query: ".to_owned(), ..minilm.clone() });
    let swapped = open(&Settings { passage_prefix: "query: ".to_owned(), ..minilm });
    let identities = [mean.identity(), cls.identity(), prefixed.identity(), swapped.identity()];
    let distinct: std::collections::BTreeSet<_> = identities.into_iter().collect();
    assert_eq!(distinct.len(), 4);
}

#[test]
fn settings_that_the_model_contradicts_are_refused() {
    let Some(minilm) = settings(MINILM) else { return };
    for wrong in [Settings { dimension: 768, ..minilm.clone() }, Settings { pooling: Pooling::Model, ..minilm }] {
        assert_eq!(embed::open(&wrong).err().unwrap().code(), Code::ConfigInvalid);
    }
}

/// Texts that the vocabulary has no words for are marked; those that it has are not, whatever the alphabet's frills.
#[test]
fn unknown_scripts_are_seen() {
    let Some(minilm) = settings(MINILM) else { return };
    let backend = open(&minilm);
    let covered = |text: &str| backend.prepare(text).unwrap().covered;
    for known in [
        "The user prefers green tea and short answers.",
        "Der Benutzer trinkt gern grünen Tee und mag kurze Antworten.",
        "El usuario prefiere respuestas breves.",
        "Le relevé du café naïf coûte 12 €.",
        "ticket 4711: set path=/usr/local/bin, retry=3",
        "E = mc^2 and a + b = c, for all x in R",
        "ok",
        "12 34 56 78",
    ] {
        assert!(covered(known), "{known}");
    }
    for unknown in [
        "Пользователь предпочитает зелёный чай",
        "用户喜欢喝绿茶和咖啡，不喜欢长回答",
        "ผู้ใช้ชอบดื่มชาเขียวและกาแฟ",
        "उपयोगकर्ता को हरी चाय पसंद है",
        "المستخدم يفضل الشاي الأخضر",
    ] {
        assert!(!covered(unknown), "{unknown}");
    }
    assert!(open(&Settings { coverage: 0.0, ..minilm }).prepare("Пользователь предпочитает чай").unwrap().covered);
}

/// Without a device `auto` runs on the CPU with the same bits, and `cuda` stops.
#[test]
fn device_auto_falls_back_and_cuda_does_not() {
    let Some(minilm) = settings(MINILM) else { return };
    if Path::new("/dev/nvidia0").exists() {
        println!("skipped: there is a device here");
        return;
    }
    let mut auto = open(&Settings { device: Device::Auto, ..minilm.clone() });
    let mut cpu = open(&minilm);
    assert_eq!(auto.identity(), cpu.identity());
    assert_eq!(vector(auto.as_mut(), "a text"), vector(cpu.as_mut(), "a text"));
    let refused = embed::open(&Settings { device: Device::Cuda, ..minilm }).err().unwrap();
    assert_eq!(refused.code(), Code::RuntimeMissing);
}
