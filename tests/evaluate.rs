//! `memsluice evaluate` as a process, and the study's rows on `../shared/data` where it is here.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use memsluice::config::{Backend, Encoder};
use memsluice::evaluate::Vectors;
use memsluice::evaluate::data::{Data, Golden, chat, chat_sets};
use memsluice::evaluate::defenses::Screen;
use memsluice::schema::Verdict;

fn evaluate(args: &[&str], work: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_memsluice"))
        .arg("evaluate")
        .args(args)
        .arg("--work")
        .arg(work)
        .current_dir(work)
        .env("MEMSLUICE__ENCODER__BACKEND", "hash")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const SMALL: [&str; 9] =
    ["--smoke", "--attack", "minja", "--defense", "screen", "--defense", "memsad-combined", "--output", "json"];

/// Same seed, same bytes; and a run that lost some of its cells and half a vector goes on to the same result.
#[test]
fn a_run_repeats_and_a_killed_one_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let first = evaluate(&SMALL, folder.path());
    assert!(first.status.success(), "{}", text(&first.stderr));
    let report: serde_json::Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!(report["cells"].as_array().unwrap().len(), 2);
    assert!(report["rows"].as_array().unwrap().iter().any(|r| r["section"] == "seen failing"));
    let mut cells: Vec<PathBuf> =
        std::fs::read_dir(folder.path().join("cells")).unwrap().map(|f| f.unwrap().path()).collect();
    cells.sort();
    assert_eq!(cells.len(), 2);
    std::fs::remove_file(&cells[0]).unwrap();
    std::fs::write(cells[1].with_extension("part"), "{half").unwrap();
    for file in std::fs::read_dir(folder.path()).unwrap().map(|f| f.unwrap().path()) {
        if file.extension().is_some_and(|e| e == "bin") {
            let bytes = std::fs::read(&file).unwrap();
            std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
        }
    }
    let again = evaluate(&SMALL, folder.path());
    assert_eq!(text(&first.stdout), text(&again.stdout));
    let other = evaluate(&[&SMALL[..], &["--seed", "2"]].concat(), folder.path());
    assert_ne!(text(&first.stdout), text(&other.stdout));
}

#[test]
fn absent_data_is_a_line_and_broken_data_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let absent = evaluate(&["--preset", "memsad-paper", "--data", "nowhere"], folder.path());
    assert!(absent.status.success(), "{}", text(&absent.stderr));
    assert!(text(&absent.stdout).contains("skipped: the data sets: nowhere is no folder"), "{}", text(&absent.stdout));
    let data = folder.path().join("data/benign");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.join("agent_memory_corpus.jsonl"), "{\"text\": 1}\n").unwrap();
    let broken = evaluate(&["--preset", "memsad-paper", "--data", "data"], folder.path());
    let said = text(&broken.stderr);
    assert_eq!(broken.status.code(), Some(1), "{said}");
    assert!(said.contains("[file_unreadable]") && said.contains("line 1"), "{said}");
}

#[test]
fn unknown_names_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let defense = evaluate(&["--smoke", "--defense", "wall"], folder.path());
    assert_eq!(defense.status.code(), Some(2));
    assert!(text(&defense.stderr).contains("memsad-combined"), "{}", text(&defense.stderr));
    let attack = evaluate(&["--smoke", "--attack", "siege", "--defense", "provenance-gate"], folder.path());
    assert_eq!(attack.status.code(), Some(2));
    assert!(text(&attack.stderr).contains("[config_invalid]"), "{}", text(&attack.stderr));
}

fn shared() -> PathBuf {
    std::env::var_os("MEMSLUICE_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from)
}

/// Rows of `hardened.md` 4 that rest on the payload alone: the same counts as the study, whatever the encoder.
#[test]
fn the_studys_payload_rows_come_out_to_the_last_row() {
    let Some(data) = Data::at(&shared().join("data")) else {
        println!("skipped: ../shared is not here");
        return;
    };
    let golden = Golden::at(&shared().join("golden/hardened_golden.json")).unwrap();
    let encode = Vectors::open(&Encoder { backend: Backend::Hash, ..Encoder::default() }, None).unwrap();
    let boundary = chat(&data, 1).unwrap();
    let screen = Screen::fit(&boundary, false, &encode).unwrap();
    let sets = chat_sets(&data, Some(&golden), 1).unwrap();
    for (name, held, blocked, rows) in [
        ("mib/benign", 0, 0, 35),
        ("mib/static", 24, 18, 28),
        ("mib/adaptive", 25, 14, 28),
        ("mib/whitebox", 20, 0, 22),
        ("owasp_benign", 0, 0, 17),
        ("owasp", 18, 9, 28),
        ("aws_benign", 0, 0, 3),
        ("aws", 7, 5, 8),
        ("memsad/injecmem_anchor", 8, 1, 8),
        ("bipia", 2, 0, 101),
        ("unseen/garak", 0, 0, 12),
        ("unseen/mextra", 0, 0, 224),
        ("hard", 5, 1, 80),
        ("own_adaptive", 0, 0, 20),
    ] {
        let set = sets.iter().find(|s| s.name == name).unwrap();
        let judged = screen.screen(&set.writes, &encode).unwrap();
        let count = |wanted: &dyn Fn(Verdict) -> bool| judged.iter().filter(|s| wanted(s.verdict)).count();
        let found = (count(&|v| v != Verdict::Allow), count(&|v| v == Verdict::Block), judged.len());
        assert_eq!(found, (held, blocked, rows), "{name}");
    }
}
