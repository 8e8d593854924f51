//! The optional scoring kernels against a plain loop: the CUDA source compiled and run on the CPU, FAISS where its
//! library is, a device where there is one.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod emulated;
mod support;

use memsluice::score::kernel::faiss::{Index, Library, Structure};
use memsluice::score::kernel::{Cpu, Cuda, Faiss, Kernel, cuda};

use support::{Case, cases, plain};

fn skipped(why: &str) {
    println!("skipped: {why}");
}

/// The path that `scripts/fetch-kernels` prints.
fn faiss_path() -> Option<std::path::PathBuf> {
    std::env::var_os("MEMSLUICE__SCORE__FAISS").map(Into::into)
}

#[test]
fn faiss_with_integers_equals_the_plain_loop() {
    let Some(path) = faiss_path() else { return skipped("MEMSLUICE__SCORE__FAISS is not set") };
    let kernel = Faiss::open(&path).unwrap();
    for case in
        [Case::new(384, 1500, 5, 1), Case::close(384, 1200, 3, 2), Case::new(33, 2000, 40, 3), Case::new(8, 10, 2, 4)]
    {
        assert_eq!(kernel.score(&[case.job()]), [plain(&case)]);
    }
}

/// Rows that change after the index was built count at once, few or many.
#[test]
fn faiss_sees_rows_that_changed() {
    let Some(path) = faiss_path() else { return skipped("MEMSLUICE__SCORE__FAISS is not set") };
    let kernel = Faiss::open(&path).unwrap();
    let mut case = Case::new(64, 1100, 4, 5);
    assert_eq!(kernel.score(&[case.job()]), [plain(&case)]);
    for changes in [1, 10, 60, 200] {
        for change in 0..changes {
            // The candidate itself: the nearest row there can be.
            let vector = case.candidates[change % 4].clone();
            case.set((change * 37) % 1100, &vector);
        }
        assert_eq!(kernel.score(&[case.job()]), [plain(&case)], "{changes} changes");
    }
}

/// The nearest rows are those of the CPU kernel, while rows come and go.
#[test]
fn faiss_finds_the_nearest_rows_of_a_changing_memory() {
    let Some(path) = faiss_path() else { return skipped("MEMSLUICE__SCORE__FAISS is not set") };
    let (kernel, cpu) = (Faiss::open(&path).unwrap(), Cpu::detect());
    let mut case = Case::close(64, 1300, 5, 7);
    for step in 0..400_usize {
        case.rows.remove((step * 37) % case.rows.len());
        if step % 3 != 0 {
            case.rows.push(&case.candidates[step % 5]);
        }
        if step % 20 == 0 {
            for candidate in &case.candidates {
                for k in [1, 5, 20] {
                    assert_eq!(
                        kernel.nearest(&case.rows, candidate, k),
                        cpu.nearest(&case.rows, candidate, k),
                        "{step}"
                    );
                }
                assert_eq!(kernel.each(&case.rows, candidate), cpu.each(&case.rows, candidate));
            }
        }
    }
}

#[test]
fn faiss_indexes_propose_what_is_near() {
    let Some(path) = faiss_path() else { return skipped("MEMSLUICE__SCORE__FAISS is not set") };
    let library = Library::open(&path).unwrap();
    let case = Case::new(64, 3000, 6, 6);
    // One list of 256 holds few rows: an approximate index may miss.
    for (structure, least) in [(Structure::Flat, 6), (Structure::Hnsw, 6), (Structure::Ivf, 0)] {
        let mut index = Index::new(&library, structure, 64).unwrap();
        assert!(index.propose(case.job().candidates, 3).iter().all(Vec::is_empty));
        assert!(index.add(&Case::new(63, 300, 0, 1).rows).is_err(), "another dimension");
        index.add(&case.rows).unwrap();
        let found = index.propose(case.job().candidates, 64);
        let hits = plain(&case).iter().zip(&found).filter(|(p, f)| f.iter().any(|(at, _)| *at == p.at)).count();
        assert!(index.len() == 3000 && hits >= least, "{structure:?}: {hits}");
    }
}

/// The kernel's own source, run thread by thread on the CPU: its indexing and its reductions.
#[test]
fn the_cuda_source_gives_the_plain_loops_results() {
    let Some(program) = emulated::build() else { return skipped("no C++ compiler") };
    for slices in [1, 3] {
        let cases = cases();
        let expected: Vec<_> = cases.iter().map(plain).collect();
        assert_eq!(emulated::run(&program, &cases, slices), expected, "{slices} slices");
    }
}

/// A source that reduces wrongly is seen.
#[test]
fn the_emulation_goes_red_on_a_broken_source() {
    let Some(program) = emulated::build_broken() else { return skipped("no C++ compiler") };
    let cases = cases();
    let expected: Vec<_> = cases.iter().map(plain).collect();
    assert_ne!(emulated::run(&program, &cases, 3), expected);
}

#[test]
fn nvrtc_compiles_the_cuda_source() {
    match cuda::compile("compute_90") {
        Ok(ptx) => assert!(ptx.to_src().contains(".entry window")),
        Err(e) if e.message().starts_with("no NVRTC") => skipped(e.message()),
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn a_device_gives_the_plain_loops_results() {
    let kernel = match Cuda::open(0) {
        Ok(kernel) => kernel.always(),
        Err(e) => return skipped(e.message()),
    };
    let cases = cases();
    let jobs: Vec<_> = cases.iter().map(Case::job).collect();
    assert_eq!(kernel.on_device(&jobs).unwrap(), cases.iter().map(plain).collect::<Vec<_>>());
}
