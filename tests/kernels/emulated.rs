//! Builds and calls `emulate.cc`, which runs `window.cu` on the CPU.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use memsluice::score::kernel::{Dots, cuda};

use crate::support::Case;

/// A built emulation in its own folder.
pub(crate) struct Program {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

/// With the kernel's source; `None` without a C++ compiler.
pub(crate) fn build() -> Option<Program> {
    build_with(cuda::SOURCE)
}

/// With a source whose warps forget half of their lanes.
pub(crate) fn build_broken() -> Option<Program> {
    let broken = cuda::SOURCE.replace("step > 0", "step > 1");
    assert_ne!(broken, cuda::SOURCE);
    build_with(&broken)
}

fn build_with(source: &str) -> Option<Program> {
    let compiler = ["c++", "g++", "clang++"].into_iter().find(|c| Command::new(c).arg("--version").output().is_ok())?;
    let folder = tempfile::tempdir().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels/emulate.cc");
    let wrapper = std::fs::read_to_string(here).unwrap().replace("../../src/score/kernel/window.cu", "window.cu");
    std::fs::write(folder.path().join("window.cu"), source).unwrap();
    std::fs::write(folder.path().join("emulate.cc"), wrapper).unwrap();
    let path = folder.path().join("emulate");
    let built = Command::new(compiler)
        .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-o"])
        .args([&path, &folder.path().join("emulate.cc")])
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(Program { path, _folder: folder })
}

/// Scores the cases in one launch of `slices` blocks a job.
pub(crate) fn run(program: &Program, cases: &[Case], slices: u32) -> Vec<Vec<Dots>> {
    // As the host code does: at most 8 candidates a job.
    let stride = 2 * cases[0].rows.stride();
    let ints = u32::try_from(stride * 16).unwrap();
    let mut jobs: Vec<u8> = Vec::new();
    let mut vectors: Vec<u8> = Vec::new();
    let mut count = 0;
    for case in cases {
        let words = case.rows.words().iter().flat_map(|w| w.0).flat_map(i16::to_le_bytes);
        let rows: Vec<u8> = words.collect();
        for group in case.candidates.chunks(8) {
            jobs.extend(u32::try_from(case.rows.len()).unwrap().to_le_bytes());
            jobs.extend(u32::try_from(group.len()).unwrap().to_le_bytes());
            jobs.extend(&rows);
            count += 1_u32;
        }
        vectors.extend(case.job().candidates.words().iter().flat_map(|w| w.0).flat_map(i16::to_le_bytes));
    }
    let total: usize = cases.iter().map(|c| c.candidates.len()).sum();
    let head = [ints, slices, count, u32::try_from(total).unwrap()];
    let input: Vec<u8> = head.into_iter().flat_map(u32::to_le_bytes).chain(jobs).chain(vectors).collect();
    let mut child = Command::new(&program.path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || stdin.write_all(&input).unwrap());
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    assert!(output.status.success());
    let numbers: Vec<u64> = output.stdout.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
    let (best, sums) = numbers.split_at(total);
    let mut dots = best.iter().zip(sums).map(|(key, sum)| cuda::unpack(*key, *sum));
    let taken = |case: &Case| {
        let all: Vec<Dots> = dots.by_ref().take(case.candidates.len()).collect();
        if case.rows.is_empty() { Vec::new() } else { all }
    };
    cases.iter().map(taken).collect()
}
