//! Records that the tests send, made by `load-tests`, which shares no code with the pipeline.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::support::MEMSLUICE;

/// Generated files.
pub(crate) struct Data {
    pub(super) writes: PathBuf,
    pub(super) queries: PathBuf,
    pub(super) folder: tempfile::TempDir,
}

/// Files made from the public test data.
pub(crate) struct Files {
    pub(crate) writes: Vec<PathBuf>,
    pub(crate) queries: Vec<PathBuf>,
    _folder: tempfile::TempDir,
}

pub(super) fn load_tests() -> PathBuf {
    Path::new(MEMSLUICE).with_file_name("load-tests")
}

fn tool(args: &[&str]) -> (bool, String) {
    let out = Command::new(load_tests()).args(args).output().expect("load-tests is built (scripts/test builds it)");
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (out.status.success(), text)
}

pub(super) fn tool_ok(args: &[&str]) -> String {
    let (ok, text) = tool(args);
    assert!(ok, "load-tests {args:?}: {text}");
    text
}

/// Writes and queries with vectors, spread over the units.
pub(crate) fn generated(writes: usize, queries: usize) -> Data {
    let folder = tempfile::tempdir().unwrap();
    let (w, q) = (folder.path().join("w.jsonl"), folder.path().join("q.jsonl"));
    let (count, query_count) = (writes.to_string(), queries.to_string());
    tool_ok(&[
        "generate",
        "--count",
        &count,
        "--out",
        text(&w),
        "--content-bytes",
        "200",
        "--queries",
        &query_count,
        "--queries-out",
        text(&q),
        "--seed",
        "7",
    ]);
    Data { writes: w, queries: q, folder }
}

pub(super) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A part of the public data in one store, so that queries meet writes; `None` where `../shared` is not.
pub(crate) fn converted() -> Option<Files> {
    let shared =
        std::env::var("MEMSLUICE_SHARED").unwrap_or_else(|_| format!("{}/../shared", env!("CARGO_MANIFEST_DIR")));
    let data = Path::new(&shared).join("data");
    if !data.is_dir() {
        eprintln!("skipped: ../shared/data is not here");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    tool_ok(&["convert", "--data", text(&data), "--out", text(folder.path()), "--store", "*=all"]);
    let full = std::env::var("MEMSLUICE_TEST_TIER").is_ok_and(|t| t == "full");
    let some = [
        "memsad_templates",
        "owasp_amg_corpus",
        "aws_write_cases",
        "memorygraft_poison",
        "mem_inv_bench",
        "agentpoison_records",
        "agent_memory",
    ];
    let pick = |kind: &str| {
        let mut files: Vec<PathBuf> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|e| e.unwrap().path())
            .filter(|p| {
                let name = p.file_name().unwrap().to_string_lossy().into_owned();
                name.starts_with(kind) && (full || some.iter().any(|s| name.contains(s)))
            })
            .collect();
        files.sort();
        files
    };
    let files = Files { writes: pick("writes-"), queries: pick("queries-"), _folder: folder };
    assert!(!files.writes.is_empty() && !files.queries.is_empty());
    Some(files)
}
