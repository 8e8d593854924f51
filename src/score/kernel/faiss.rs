//! FAISS, loaded at run time: proposes by f32 arithmetic, exact integers decide.
//!
//! `libfaiss.so` has a C++ interface. The functions used are ordinary symbols, called by their mangled names (the
//! Itanium ABI of Linux on x86-64 and AArch64 passes `this` as the first argument), so a library that lacks one of
//! them is refused when it is opened. Of a FAISS object nothing else is touched but the destructor, which that ABI
//! puts second in the vtable, as it is the first virtual function of `faiss::Index`.

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::{Arc, Mutex};

use libloading::os::unix::{Library as Native, RTLD_LOCAL, RTLD_NOW};

use super::{Candidates, Cpu, Dots, Job, Kernel, Rows, Window};
use crate::error::{Code, Error, Result};

/// Proposals for each candidate beside those that are asked for.
const PROPOSED: usize = 8;

/// Fewest rows for which an index is kept; below, the CPU kernel scans.
const FROM: usize = 1000;

/// Indexes kept, vectors in all: at d = 384 half a gigabyte.
const HELD: usize = 300_000;

/// Lists of an [`Structure::Ivf`] index.
const LISTS: usize = 256;

const INNER_PRODUCT: c_int = 0;

type Make = unsafe extern "C-unwind" fn(c_int, *const c_char, c_int, bool) -> *mut c_void;
type Feed = unsafe extern "C-unwind" fn(*mut c_void, i64, *const f32);
type Search = unsafe extern "C-unwind" fn(*const c_void, i64, *const f32, i64, *mut f32, *mut i64, *const c_void);
type Threads = unsafe extern "C-unwind" fn(c_int);
type Drop = unsafe extern "C-unwind" fn(*mut c_void);

/// Kind of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Structure {
    /// All vectors are compared.
    Flat,
    /// A navigable graph with 32 links a vector: approximate, no training.
    Hnsw,
    /// Lists around 256 centres, one of them read: approximate, trained on the first vectors, 10 000 at least.
    Ivf,
}

/// Entry points of one kind of index.
#[derive(Debug, Clone, Copy)]
struct Calls {
    train: Option<Feed>,
    add: Feed,
    search: Search,
}

/// The opened library.
#[derive(Debug)]
pub struct Library {
    make: Make,
    flat: Calls,
    hnsw: Calls,
    ivf: Calls,
    /// Holds the code that the pointers above lead to.
    _native: Native,
}

impl Library {
    /// Opens `libfaiss.so` and gives each call one thread.
    ///
    /// # Errors
    /// `kernel_unavailable`.
    pub fn open(path: &Path) -> Result<Arc<Self>> {
        let failed = |e| Error::with(Code::KernelUnavailable, format!("{} can't be used", path.display()), e);
        // SAFETY: the user names the library; loading runs its initialisers, as any linking would.
        let native = unsafe { Native::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(failed)?;
        // SAFETY: each type is that of the C++ function whose mangled name stands beside it.
        let library = unsafe {
            for name in ["omp_set_num_threads", "openblas_set_num_threads"] {
                if let Ok(set) = native.get::<Threads>(name.as_bytes()) {
                    set(1);
                }
            }
            Self {
                make: *native.get(b"_ZN5faiss13index_factoryEiPKcNS_10MetricTypeEb").map_err(failed)?,
                flat: Calls {
                    train: None,
                    add: *native.get(b"_ZN5faiss14IndexFlatCodes3addElPKf").map_err(failed)?,
                    search: *native
                        .get(b"_ZNK5faiss9IndexFlat6searchElPKflPfPlPKNS_16SearchParametersE")
                        .map_err(failed)?,
                },
                hnsw: Calls {
                    train: None,
                    add: *native.get(b"_ZN5faiss9IndexHNSW3addElPKf").map_err(failed)?,
                    search: *native
                        .get(b"_ZNK5faiss9IndexHNSW6searchElPKflPfPlPKNS_16SearchParametersE")
                        .map_err(failed)?,
                },
                ivf: Calls {
                    train: Some(*native.get(b"_ZN5faiss8IndexIVF5trainElPKf").map_err(failed)?),
                    add: *native.get(b"_ZN5faiss8IndexIVF3addElPKf").map_err(failed)?,
                    search: *native
                        .get(b"_ZNK5faiss8IndexIVF6searchElPKflPfPlPKNS_16SearchParametersE")
                        .map_err(failed)?,
                },
                _native: native,
            }
        };
        Ok(Arc::new(library))
    }
}

/// An index of unit vectors.
#[derive(Debug)]
pub struct Index {
    library: Arc<Library>,
    calls: Calls,
    object: *mut c_void,
    dimension: usize,
    len: usize,
}

// SAFETY: an index has no thread of its own; searches of one index don't change it, and all else takes `&mut`.
unsafe impl Send for Index {}
// SAFETY: as above.
unsafe impl Sync for Index {}

impl Index {
    /// An empty index.
    ///
    /// # Errors
    /// `kernel_unavailable` when the library refuses the kind.
    pub fn new(library: &Arc<Library>, structure: Structure, dimension: usize) -> Result<Self> {
        let (calls, recipe) = match structure {
            Structure::Flat => (library.flat, "Flat"),
            Structure::Hnsw => (library.hnsw, "HNSW32,Flat"),
            Structure::Ivf => (library.ivf, "IVF256,Flat"),
        };
        let width = c_int::try_from(dimension).unwrap_or(c_int::MAX);
        let recipe = CString::new(recipe).unwrap_or_default();
        // SAFETY: the recipe is one that this version knows; the object is ours until `drop`.
        let object = unsafe { (library.make)(width, recipe.as_ptr(), INNER_PRODUCT, true) };
        if object.is_null() {
            return Err(Error::new(Code::KernelUnavailable, "FAISS made no index"));
        }
        Ok(Self { library: library.clone(), calls, object, dimension, len: 0 })
    }

    /// Vectors held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds rows; their number in the index is their number among all added. The first call trains, where the kind
    /// needs it.
    ///
    /// # Errors
    /// `kernel_unavailable` for rows of another dimension, or too few of them to train on: FAISS would throw.
    pub fn add(&mut self, rows: &Rows) -> Result<()> {
        let few = self.calls.train.is_some() && self.is_empty() && rows.len() < LISTS;
        if rows.dimension() != self.dimension || few {
            let message = format!("FAISS can't index {} rows of {} components", rows.len(), rows.dimension());
            return Err(Error::new(Code::KernelUnavailable, message));
        }
        let vectors = floats((0..rows.len()).flat_map(|at| rows.row(at)));
        let count = i64::try_from(rows.len()).unwrap_or(0);
        // SAFETY: `count` vectors of the index's dimension.
        unsafe {
            if let Some(train) = self.calls.train.filter(|_| self.len == 0) {
                train(self.object, count, vectors.as_ptr());
            }
            (self.calls.add)(self.object, count, vectors.as_ptr());
        }
        self.len += rows.len();
        Ok(())
    }

    /// Numbers of about the `k` rows nearest to each candidate with their approximate dot products, best first.
    #[must_use]
    pub fn propose(&self, candidates: &Candidates, k: usize) -> Vec<Vec<(usize, f32)>> {
        if candidates.is_empty() || k == 0 || self.is_empty() || candidates.dimension() != self.dimension {
            return vec![Vec::new(); candidates.len()];
        }
        let queries = floats((0..candidates.len()).flat_map(|at| candidates.row(at)));
        let (mut scores, mut numbers) = (vec![0.0_f32; candidates.len() * k], vec![-1_i64; candidates.len() * k]);
        let count = i64::try_from(candidates.len()).unwrap_or(0);
        let depth = i64::try_from(k).unwrap_or(0);
        // SAFETY: `count` queries, and room for `k` results of each.
        unsafe {
            let (scores, numbers) = (scores.as_mut_ptr(), numbers.as_mut_ptr());
            (self.calls.search)(self.object, count, queries.as_ptr(), depth, scores, numbers, std::ptr::null());
        }
        let hits = |(numbers, scores): (&[i64], &[f32])| {
            let pairs = numbers.iter().zip(scores);
            pairs.filter_map(|(n, s)| usize::try_from(*n).ok().map(|n| (n, *s))).collect()
        };
        numbers.chunks(k).zip(scores.chunks(k)).map(hits).collect()
    }
}

impl std::ops::Drop for Index {
    fn drop(&mut self) {
        // SAFETY: the vtable's second entry is the deleting destructor (above); it is called once.
        unsafe {
            let vtable = *self.object.cast::<*const Drop>();
            (*vtable.add(1))(self.object);
        }
        debug_assert!(Arc::strong_count(&self.library) > 0);
    }
}

/// Components as they are: f32 holds each exactly.
fn floats(components: impl Iterator<Item = i16>) -> Vec<f32> {
    components.map(f32::from).collect()
}

/// How far a dot product in f32 can be from the exact one: d roundings of sums that stay below `|a| |b|`, which
/// for unit vectors is 2^30 and a few percent.
fn rounding(dimension: usize) -> i64 {
    let sum = 1.1 * 1_073_741_824.0;
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // far below 2^53
    let error = (dimension as f64 + 2.0) * sum / 16_777_216.0;
    #[allow(clippy::cast_possible_truncation)]
    let error = error as i64 + 1;
    error
}

/// The kernel: a flat index for each large window. A window that has changed in few rows keeps its index; those rows
/// are scored apart.
#[derive(Debug)]
pub struct Faiss {
    library: Arc<Library>,
    cpu: Cpu,
    indexes: Mutex<HashMap<u64, Held>>,
}

#[derive(Debug)]
struct Held {
    index: Index,
    version: u64,
}

impl Faiss {
    /// With the library at `path`.
    ///
    /// # Errors
    /// `kernel_unavailable`.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self { library: Library::open(path)?, cpu: Cpu::detect(), indexes: Mutex::default() })
    }

    /// The rows that may be the `k` nearest of each candidate: `PROPOSED` and `k` proposals, and what has changed
    /// since they were indexed.
    fn looked(&self, rows: &Rows, candidates: &Candidates, k: usize) -> Option<Vec<Looked>> {
        if rows.len() < FROM || rows.dimension() != candidates.dimension() {
            return None;
        }
        let mut indexes = self.indexes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let known = indexes.get(&rows.id()).and_then(|h| rows.changed_since(h.version)).is_some();
        if !known {
            let mut index = Index::new(&self.library, Structure::Flat, rows.dimension()).ok()?;
            index.add(rows).ok()?;
            indexes.remove(&rows.id());
            if indexes.values().map(|h| h.index.len()).sum::<usize>() + rows.len() > HELD {
                indexes.clear();
            }
            indexes.insert(rows.id(), Held { index, version: rows.version() });
        }
        let held = indexes.get(&rows.id())?;
        let changed: HashSet<usize> = rows.changed_since(held.version)?.collect();
        let asked = PROPOSED + k;
        let looked = |proposed: Vec<(usize, f32)>| {
            #[allow(clippy::cast_possible_truncation)] // dot products fit i32
            let last = proposed.last().filter(|_| proposed.len() >= asked).map(|(_, score)| *score as i64);
            let unproposed = last.map_or(i64::MIN, |last| last + rounding(rows.dimension()));
            let fresh = proposed.into_iter().map(|(at, _)| at).filter(|at| !changed.contains(at));
            let rows = fresh.chain(changed.iter().copied().filter(|at| *at < rows.len())).collect();
            Looked { rows, unproposed }
        };
        Some(held.index.propose(candidates, asked).into_iter().map(looked).collect())
    }

    /// The exact `k` nearest, where the proposals prove that nothing else is among them.
    fn decide(rows: &Rows, candidate: &[i16], looked: &Looked, k: usize) -> Option<Vec<Dots>> {
        let dot = |at: usize| rows.row(at).zip(candidate).fold(0_i32, |sum, (a, b)| i32::from(a) * i32::from(*b) + sum);
        let mut found: Vec<Dots> = looked.rows.iter().map(|at| Dots { max: dot(*at), at: *at, sum: 0 }).collect();
        found.sort_unstable_by_key(|d| (std::cmp::Reverse(d.max), d.at));
        found.truncate(k);
        let last = found.last().filter(|_| found.len() == k.min(rows.len()))?;
        (looked.unproposed < i64::from(last.max)).then_some(found)
    }

    fn window(&self, window: Window<'_>, candidates: &Candidates) -> Option<Vec<Dots>> {
        let looked = self.looked(window.rows, candidates, 1)?;
        let decided = (0..candidates.len()).zip(&looked).map(|(i, looked)| {
            let candidate: Vec<i16> = candidates.row(i).collect();
            let sum = candidate.iter().zip(window.sum).fold(0, |total: i64, (c, s)| i64::from(*c) * *s + total);
            let largest = Self::decide(window.rows, &candidate, looked, 1)?.pop()?;
            Some(Dots { sum, ..largest })
        });
        decided.collect()
    }
}

/// What an index leaves to exact integers.
struct Looked {
    /// Rows to look at, each once.
    rows: Vec<usize>,
    /// No other row's dot product is larger.
    unproposed: i64,
}

impl Kernel for Faiss {
    fn name(&self) -> String {
        format!("faiss/flat+{}", self.cpu.name())
    }

    fn score(&self, jobs: &[Job<'_>]) -> Vec<Vec<Dots>> {
        let score = |job: &Job<'_>| {
            self.window(job.window, job.candidates).unwrap_or_else(|| self.cpu.window(job.window, job.candidates))
        };
        jobs.iter().map(score).collect()
    }

    fn each(&self, rows: &Rows, candidate: &[i16]) -> Vec<i32> {
        self.cpu.each(rows, candidate)
    }

    fn nearest(&self, rows: &Rows, candidate: &[i16], k: usize) -> Vec<Dots> {
        let candidates = Candidates::of(rows.dimension(), [candidate]);
        let looked = Some(k).filter(|k| *k > 0).and_then(|k| self.looked(rows, &candidates, k)?.pop());
        looked
            .and_then(|looked| Self::decide(rows, candidate, &looked, k))
            .unwrap_or_else(|| self.cpu.nearest(rows, candidate, k))
    }
}
