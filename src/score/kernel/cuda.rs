//! The CUDA kernel: driver and NVRTC are loaded at run time, `window.cu` is compiled for the device at start.
//! Integer arithmetic on the device is exact, so it decides like the CPU; what fails there is scored on the CPU.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DeviceRepr, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::{CompileOptions, Ptx, compile_ptx_with_opts};

use super::{Candidates, Cpu, Dots, Job, Kernel, LANES, Rows, Window, Words};
use crate::error::{Code, Error, Result};

/// The kernel's source.
pub const SOURCE: &str = include_str!("window.cu");

/// As in the source: warps of a block, candidates of a launch's job.
const WARPS: usize = 8;
const TILE: usize = 8;

/// Rows times candidates below which a launch costs more than the CPU's scan. Not measured: `load-tests/gpu/run`
/// prints the crossover.
const WORTH_IT: usize = 1 << 14;

/// Blocks that share the rows of one job at most.
const SLICES: usize = 128;

/// Windows kept on the device, bytes.
const RESIDENT: usize = 4 << 30;

// SAFETY: 64 bytes of plain integers.
unsafe impl DeviceRepr for Words {}

/// A job as the device reads it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct DeviceJob {
    rows: u64,
    count: u64,
    first: u64,
    width: u64,
}

// SAFETY: four plain integers, laid out as `Job` in the source.
unsafe impl DeviceRepr for DeviceJob {}

/// A device with the compiled kernel.
#[derive(Debug)]
pub struct Cuda {
    name: String,
    stream: Arc<CudaStream>,
    function: CudaFunction,
    windows: Mutex<Windows>,
    cpu: Cpu,
    worth_it: usize,
}

/// Windows on the device by the id of their rows.
#[derive(Debug, Default)]
struct Windows {
    held: HashMap<u64, Resident>,
    clock: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Resident {
    version: u64,
    lines: CudaSlice<Words>,
    used: u64,
}

impl Cuda {
    /// Opens device `ordinal`, compiles the kernel for it, and checks it against the CPU.
    ///
    /// # Errors
    /// `kernel_unavailable`: no driver, no NVRTC, no such device, or one that gives other results.
    pub fn open(ordinal: usize) -> Result<Self> {
        // cudarc panics where a library lacks a symbol.
        let opened = catch_unwind(|| Self::try_open(ordinal));
        let cuda = opened.unwrap_or_else(|_| Err(unavailable("the CUDA libraries can't be used", "")))?;
        cuda.check()?;
        Ok(cuda)
    }

    fn try_open(ordinal: usize) -> Result<Self> {
        // SAFETY: both only try to load a library.
        let (driver, nvrtc) =
            unsafe { (cudarc::driver::sys::is_culib_present(), cudarc::nvrtc::sys::is_culib_present()) };
        if !driver {
            return Err(unavailable("no CUDA driver (libcuda.so) on this machine", ""));
        }
        if !nvrtc {
            return Err(unavailable("no NVRTC (libnvrtc.so) on the library path", ""));
        }
        let context = CudaContext::new(ordinal).map_err(|e| unavailable("the device can't be opened", e))?;
        let (major, minor) = context.compute_capability().map_err(|e| unavailable("the device says no class", e))?;
        let ptx = compile(&format!("compute_{major}{minor}"))?;
        let module = context.load_module(ptx).map_err(|e| unavailable("the kernel can't be loaded", e))?;
        let function = module.load_function("window").map_err(|e| unavailable("the kernel lacks its entry", e))?;
        let device = context.name().unwrap_or_else(|_| "device".to_owned());
        Ok(Self {
            name: format!("cuda/sm_{major}{minor}/{device}"),
            stream: context.default_stream(),
            function,
            windows: Mutex::default(),
            cpu: Cpu::detect(),
            worth_it: WORTH_IT,
        })
    }

    /// The same with every job on the device, however small: for checks and measurements.
    #[must_use]
    pub fn always(mut self) -> Self {
        self.worth_it = 0;
        self
    }

    /// Scores a fixed window on both.
    fn check(&self) -> Result<()> {
        let vector = |i: i32| -> Vec<i16> {
            (0..100).map(|k| i16::try_from((i * 7919 + k * 104_729 + i * k) % 6000 - 3000).unwrap_or(0)).collect()
        };
        let vectors: Vec<Vec<i16>> = (0..200).map(vector).collect();
        let rows = Rows::of(100, vectors.iter().map(Vec::as_slice));
        let sum: Vec<i64> = (0..100).map(|k| vectors.iter().map(|v| i64::from(v[k])).sum()).collect();
        let candidates = Candidates::of(100, vectors.iter().take(11).map(Vec::as_slice));
        let job = Job { window: Window { rows: &rows, sum: &sum }, candidates: &candidates };
        let found = self.on_device(&[job, job])?;
        if found != self.cpu.score(&[job, job]) {
            return Err(unavailable("the device gives other results than the CPU", ""));
        }
        Ok(())
    }

    /// Scores on the device. Jobs with an empty window or another dimension get no result, as on the CPU.
    ///
    /// # Errors
    /// `kernel_unavailable` when a call of the driver fails.
    pub fn on_device(&self, jobs: &[Job<'_>]) -> Result<Vec<Vec<Dots>>> {
        catch_unwind(AssertUnwindSafe(|| self.launch_all(jobs)))
            .unwrap_or_else(|_| Err(unavailable("a call of the driver panicked", "")))
    }

    fn launch_all(&self, jobs: &[Job<'_>]) -> Result<Vec<Vec<Dots>>> {
        let mut found: Vec<Vec<Dots>> = vec![Vec::new(); jobs.len()];
        // One launch for each dimension: in practice one.
        let mut left: Vec<usize> = (0..jobs.len()).filter(|i| scorable(&jobs[*i])).collect();
        while let Some(first) = left.first() {
            let stride = jobs[*first].candidates.stride();
            let (now, later) = left.iter().partition(|i| jobs[**i].candidates.stride() == stride);
            left = later;
            let now: Vec<usize> = now;
            for (i, dots) in now.iter().zip(self.launch(&now.iter().map(|i| jobs[*i]).collect::<Vec<_>>(), stride)?) {
                found[*i] = dots;
            }
        }
        Ok(found)
    }

    fn launch(&self, jobs: &[Job<'_>], stride: usize) -> Result<Vec<Vec<Dots>>> {
        let failed = |e| unavailable("a call of the driver failed", e);
        let mut windows = self.windows.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut list = Vec::new();
        let mut words: Vec<Words> = Vec::new();
        let mut first = 0;
        for job in jobs {
            let rows = windows.pointer(job.window.rows, &self.stream).map_err(failed)?;
            words.extend_from_slice(job.candidates.words());
            for start in (0..job.candidates.len()).step_by(TILE) {
                let width = TILE.min(job.candidates.len() - start);
                list.push(DeviceJob {
                    rows,
                    count: job.window.rows.len() as u64,
                    first: (first + start) as u64,
                    width: width as u64,
                });
            }
            first += job.candidates.len();
        }
        let longest = jobs.iter().map(|j| j.window.rows.len()).max().unwrap_or(0);
        let slices = longest.div_ceil(WARPS).clamp(1, SLICES);
        let ints = i32::try_from(stride * LANES / 4).unwrap_or(i32::MAX);
        let on_device = self.stream.clone_htod(&list).map_err(failed)?;
        let candidates = self.stream.clone_htod(&words).map_err(failed)?;
        let mut best = self.stream.alloc_zeros::<u64>(first).map_err(failed)?;
        let mut sums = self.stream.alloc_zeros::<u64>(first).map_err(failed)?;
        let config = LaunchConfig {
            grid_dim: (u32::try_from(slices).unwrap_or(1), u32::try_from(list.len()).unwrap_or(u32::MAX), 1),
            block_dim: (32 * WARPS as u32, 1, 1),
            shared_mem_bytes: u32::try_from(TILE * stride * LANES).unwrap_or(u32::MAX),
        };
        let mut launch = self.stream.launch_builder(&self.function);
        launch.arg(&on_device).arg(&candidates).arg(&ints).arg(&mut best).arg(&mut sums);
        // SAFETY: arguments and their sizes are those of `window` in the source; all buffers outlive the copies below.
        unsafe { launch.launch(config) }.map_err(failed)?;
        let best = self.stream.clone_dtoh(&best).map_err(failed)?;
        let sums = self.stream.clone_dtoh(&sums).map_err(failed)?;
        windows.evict();
        let mut dots = best.into_iter().zip(sums).map(|(key, sum)| unpack(key, sum));
        Ok(jobs.iter().map(|j| dots.by_ref().take(j.candidates.len()).collect()).collect())
    }
}

impl Kernel for Cuda {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn score(&self, jobs: &[Job<'_>]) -> Vec<Vec<Dots>> {
        let work: usize = jobs.iter().map(|j| j.window.rows.len() * j.candidates.len()).sum();
        if work < self.worth_it {
            return self.cpu.score(jobs);
        }
        self.on_device(jobs).unwrap_or_else(|error| {
            tracing::warn!(error = error.message(), "the CUDA kernel failed: scored on the CPU");
            self.cpu.score(jobs)
        })
    }

    fn each(&self, rows: &Rows, candidate: &[i16]) -> Vec<i32> {
        self.cpu.each(rows, candidate)
    }

    fn nearest(&self, rows: &Rows, candidate: &[i16], k: usize) -> Vec<Dots> {
        self.cpu.nearest(rows, candidate, k)
    }
}

impl Windows {
    /// Where the rows lie on the device, as they are now.
    fn pointer(
        &mut self,
        rows: &Rows,
        stream: &Arc<CudaStream>,
    ) -> std::result::Result<u64, cudarc::driver::DriverError> {
        self.clock += 1;
        let size = size_of_val(rows.words());
        let known = self.held.get_mut(&rows.id()).filter(|r| r.lines.len() == rows.words().len());
        let resident = match known {
            Some(resident) => {
                let lines = 2 * rows.stride();
                match rows.changed_since(resident.version) {
                    Some(changed) => {
                        for at in changed.filter(|at| *at < rows.len()) {
                            let range = at * lines..(at + 1) * lines;
                            stream.memcpy_htod(&rows.words()[range.clone()], &mut resident.lines.slice_mut(range))?;
                        }
                    }
                    None => stream.memcpy_htod(rows.words(), &mut resident.lines)?,
                }
                resident
            }
            None => {
                let lines = stream.clone_htod(rows.words())?;
                let old = self.held.insert(rows.id(), Resident { version: 0, lines, used: 0 });
                self.bytes += size;
                self.bytes -= old.map_or(0, |r| r.lines.num_bytes());
                self.held.get_mut(&rows.id()).unwrap_or_else(|| unreachable!("it was just put in"))
            }
        };
        resident.version = rows.version();
        resident.used = self.clock;
        let (pointer, _sync) = resident.lines.device_ptr(stream);
        Ok(pointer)
    }

    /// Drops the windows that were not used for longest, down to the budget.
    fn evict(&mut self) {
        while self.bytes > RESIDENT && self.held.len() > 1 {
            let oldest = self.held.iter().min_by_key(|(_, r)| r.used).map(|(id, _)| *id);
            let dropped = oldest.and_then(|id| self.held.remove(&id));
            self.bytes -= dropped.map_or(0, |r| r.lines.num_bytes());
        }
    }
}

/// Compiles the source, for example for `compute_90`.
///
/// # Errors
/// `kernel_unavailable`: no NVRTC, or it refuses the source.
pub fn compile(architecture: &str) -> Result<Ptx> {
    // SAFETY: only tries to load the library.
    if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
        return Err(unavailable("no NVRTC (libnvrtc.so) on the library path", ""));
    }
    let options = CompileOptions {
        options: vec![format!("--gpu-architecture={architecture}"), "--std=c++17".to_owned()],
        name: Some("window.cu".to_owned()),
        ..CompileOptions::default()
    };
    compile_ptx_with_opts(SOURCE, options).map_err(|e| unavailable("NVRTC refuses the kernel", format!("{e:?}")))
}

fn scorable(job: &Job<'_>) -> bool {
    let (rows, candidates) = (job.window.rows, job.candidates);
    !rows.is_empty() && !candidates.is_empty() && rows.dimension() == candidates.dimension()
}

/// A dot product from its key, as `key` in the source makes it.
#[must_use]
pub fn unpack(key: u64, sum: u64) -> Dots {
    let [high, low] = [(key >> 32) as u32, key as u32];
    Dots { max: (high ^ 0x8000_0000).cast_signed(), at: (u32::MAX - low) as usize, sum: sum.cast_signed() }
}

fn unavailable(what: &str, cause: impl std::fmt::Display) -> Error {
    let cause = cause.to_string();
    if cause.is_empty() {
        return Error::new(Code::KernelUnavailable, what);
    }
    Error::with(Code::KernelUnavailable, what, cause)
}
