//! Dot products of candidates with the vectors of a window, in exact integers, behind one trait.
//!
//! Vectors have norm near 32767, so that every partial sum of a dot product fits i32 (Cauchy-Schwarz on any
//! subset of components) and the order of additions can't change a result. All kernels therefore give the
//! same bits; which one runs is a matter of speed alone, and a setting of the process.

mod bounds;
mod cpu;
pub mod cuda;
pub mod faiss;
mod rows;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::OnceLock;

use crate::config::{Kernel as Choice, Score};
use crate::error::{Code, Error, Result};

pub use cpu::{Cpu, Isa};
pub use cuda::Cuda;
pub use faiss::Faiss;
pub use rows::{Bytes, Candidates, LANES, Rows, Sketch, Words};

/// What candidates are scored against.
#[derive(Debug, Clone, Copy)]
pub struct Window<'a> {
    /// The vectors.
    pub rows: &'a Rows,
    /// Their sum, component by component.
    pub sum: &'a [i64],
}

/// Candidates against one window.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The window of a boundary.
    pub window: Window<'a>,
    /// Of the window's dimension.
    pub candidates: &'a Candidates,
}

/// Dot products of one candidate with a window, units of 1 / ONE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dots {
    /// The largest.
    pub max: i32,
    /// Row of the largest; of equal ones the first.
    pub at: usize,
    /// Sum over all rows.
    pub sum: i64,
}

/// A scoring kernel. All give the same result for the same job.
pub trait Kernel: std::fmt::Debug + Send + Sync {
    /// Name for logs and reports, such as `cpu/avx512vnni`.
    fn name(&self) -> String;

    /// Dot products for several boundaries; one list for each job, one entry for each candidate, and an empty
    /// list where the window is empty.
    fn score(&self, jobs: &[Job<'_>]) -> Vec<Vec<Dots>>;

    /// The dot product of a candidate with each row, in their order; empty for a candidate of another dimension.
    fn each(&self, rows: &Rows, candidate: &[i16]) -> Vec<i32>;

    /// The `k` rows with the largest dot products, best first; of equal ones the first rows. Their sum is 0.
    fn nearest(&self, rows: &Rows, candidate: &[i16], k: usize) -> Vec<Dots>;
}

static CURRENT: OnceLock<Box<dyn Kernel>> = OnceLock::new();

/// The kernel of this process; `cpu` unless another was installed before the first use.
pub fn current() -> &'static dyn Kernel {
    CURRENT.get_or_init(|| Box::new(Cpu::detect())).as_ref()
}

/// Opens the kernel that the settings name, and makes it the one of this process. Returns its name.
///
/// # Errors
/// `kernel_unavailable` when a named kernel can't run here; `auto` never fails.
pub fn choose(settings: &Score) -> Result<String> {
    let kernel: Box<dyn Kernel> = match settings.kernel {
        // The CPU is fastest at every window that was measured (docs/kernels.md).
        Choice::Auto | Choice::Cpu => Box::new(Cpu::detect()),
        Choice::Cuda => Box::new(Cuda::open(settings.device)?),
        Choice::Faiss => {
            let path = settings.faiss.as_deref();
            let unset = || Error::new(Code::KernelUnavailable, "score.faiss, the path of libfaiss.so, is not set");
            Box::new(Faiss::open(path.ok_or_else(unset)?)?)
        }
    };
    let name = kernel.name();
    tracing::info!(kernel = name, "scoring kernel");
    install(kernel);
    Ok(name)
}

/// Sets the kernel of this process; `false` when one is in use already.
pub fn install(kernel: Box<dyn Kernel>) -> bool {
    CURRENT.set(kernel).is_ok()
}
