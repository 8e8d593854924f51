//! Scoring kernels side by side on the same data in one run. Every contender's result is compared with the plain
//! CPU path before it is timed.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use super::Spread;
use super::contend::{Clock, race};
use crate::clock::monotonic;
use crate::error::{Code, Error, Result};
use crate::schema::Vector;
use crate::score::kernel::faiss::{Index, Library, Structure};
use crate::score::kernel::{Candidates, Cpu, Cuda, Dots, Isa, Job, Kernel, Rows, Window};

/// Proposals asked of an approximate index; a graph looks at as many candidates.
const PROPOSED: usize = 64;

/// What to race.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Components of a vector.
    pub dimension: usize,
    /// Window sizes.
    pub windows: Vec<usize>,
    /// Writes in a call.
    pub batches: Vec<usize>,
    /// Boundaries in a call, each with a window of its own.
    pub boundaries: Vec<usize>,
    /// Rounds, at least 1.
    pub rounds: usize,
    /// Of the vectors.
    pub seed: u64,
    /// From this window on approximate indexes race too; building one takes minutes for 100 000 vectors.
    pub approximate_from: Option<usize>,
}

/// The contenders that this machine has.
#[derive(Debug)]
pub struct Contenders {
    kernels: Vec<Box<dyn Kernel>>,
    /// A device is among them: its time is no thread's.
    device: bool,
    faiss: Option<Arc<Library>>,
}

impl Contenders {
    /// All instruction sets of the CPU, FAISS where its library is named, and the device if asked for.
    ///
    /// # Errors
    /// `kernel_unavailable`.
    pub fn open(faiss: Option<&Path>, device: Option<usize>) -> Result<Self> {
        let cpus = Isa::ALL.into_iter().filter_map(Cpu::with);
        let mut kernels: Vec<Box<dyn Kernel>> = cpus.map(|c| Box::new(c) as Box<dyn Kernel>).collect();
        if let Some(ordinal) = device {
            kernels.push(Box::new(Cuda::open(ordinal)?.always()));
        }
        Ok(Self { kernels, device: device.is_some(), faiss: faiss.map(Library::open).transpose()? })
    }

    /// Their names; the first is the one that `auto` takes.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let faiss = self.faiss.iter().map(|_| "faiss flat".to_owned());
        self.kernels.iter().map(|k| k.name()).chain(faiss).collect()
    }
}

/// One contender at one size.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Vectors in a window.
    pub window: usize,
    /// Writes for each boundary in a call.
    pub batch: usize,
    /// Boundaries in a call.
    pub boundaries: usize,
    /// Contender.
    pub kernel: String,
    /// Microseconds a write.
    pub micros: Spread,
    /// Its time as a multiple of the first contender's, round by round.
    pub ratio: Spread,
    /// Share of writes whose nearest vector was among the proposals; 1 for exact kernels.
    pub recall: f64,
    /// Seconds to build its index.
    pub build_seconds: Option<f64>,
}

/// Runs the race; `done` is called with each size's rows.
///
/// # Errors
/// `kernel_unavailable` when FAISS refuses an index, `internal` when a kernel gives another result than the plain
/// loop: never a matter of speed.
pub fn run(plan: &Plan, contenders: &Contenders, mut done: impl FnMut(&[Row]) -> Result<()>) -> Result<Vec<Row>> {
    let mut all = Vec::new();
    for (boundaries, window) in sizes(plan) {
        let data = Data::new(plan, window, boundaries);
        let mut indexes = Vec::new();
        if let Some(library) = contenders.faiss.as_ref().filter(|_| boundaries == 1) {
            indexes.push(Indexed::build(library, Structure::Flat, "faiss flat", &data)?);
            if plan.approximate_from.is_some_and(|from| window >= from) {
                indexes.push(Indexed::build(library, Structure::Ivf, "faiss ivf256", &data)?);
                indexes.push(Indexed::build(library, Structure::Hnsw, "faiss hnsw32", &data)?);
            }
        }
        for batch in &plan.batches {
            let rows = size(plan, contenders, &data, &indexes, *batch)?;
            done(&rows)?;
            all.extend(rows);
        }
    }
    Ok(all)
}

fn sizes(plan: &Plan) -> Vec<(usize, usize)> {
    plan.boundaries.iter().flat_map(|b| plan.windows.iter().map(|w| (*b, *w))).collect()
}

/// All contenders at one size.
fn size(plan: &Plan, contenders: &Contenders, data: &Data, indexes: &[Indexed], batch: usize) -> Result<Vec<Row>> {
    let candidates: Vec<Candidates> = data.candidates(batch);
    let jobs: Vec<Job<'_>> = data.jobs(&candidates);
    let exact: Vec<Vec<Dots>> = Cpu::with(Isa::Portable).map(|c| c.score(&jobs)).unwrap_or_default();
    let mut names = Vec::new();
    let mut racers: Vec<Box<dyn FnMut() + '_>> = Vec::new();
    for kernel in &contenders.kernels {
        if kernel.score(&jobs) != exact {
            return Err(Error::new(
                Code::Internal,
                format!("{} gives other results than the plain loop", kernel.name()),
            ));
        }
        names.push((kernel.name(), 1.0, None));
        let jobs = &jobs;
        racers.push(Box::new(move || drop(black_box(kernel.score(black_box(jobs))))));
    }
    for index in indexes {
        let depth = if index.exact { 1 } else { PROPOSED };
        names.push((index.name.to_owned(), index.recall(&candidates[0], &exact[0], depth), Some(index.seconds)));
        let candidates = &candidates[0];
        racers.push(Box::new(move || drop(black_box(index.index.propose(black_box(candidates), depth)))));
    }
    let clock = if contenders.device { Clock::Wall } else { Clock::Thread };
    let times = race(&mut racers, plan.rounds, clock);
    drop(racers);
    let writes = (batch * data.boundaries.len()).max(1) as f64;
    let row = |((kernel, recall, build_seconds), micros): ((String, f64, Option<f64>), &Vec<f64>)| Row {
        window: data.window,
        batch,
        boundaries: data.boundaries.len(),
        kernel,
        micros: Spread::of(&micros.iter().map(|m| m / writes).collect::<Vec<_>>()),
        ratio: Spread::of(&micros.iter().zip(&times[0]).map(|(m, first)| m / first).collect::<Vec<_>>()),
        recall,
        build_seconds,
    };
    Ok(names.into_iter().zip(&times).map(row).collect())
}

/// Windows and the vectors that candidates are taken from.
struct Data {
    window: usize,
    boundaries: Vec<(Rows, Vec<i64>)>,
    pool: Vec<Vec<i16>>,
}

/// Vectors of one topic.
const TOPIC: usize = 25;

impl Data {
    /// Vectors in topics, as queries come: about 0.4 similar within one, unrelated between them.
    fn new(plan: &Plan, window: usize, boundaries: usize) -> Self {
        let mut random = Random(plan.seed);
        let mut topics = Vec::new();
        let mut vector = |i: usize| {
            while topics.len() <= i / TOPIC {
                topics.push(random.normal(plan.dimension, 1.0));
            }
            let noise = random.normal(plan.dimension, 1.2);
            let mixed: Vec<f64> = topics[i / TOPIC].iter().zip(noise).map(|(t, n)| t + n).collect();
            Vector::from_f64(&mixed).map(|v| v.as_slice().to_vec()).unwrap_or_default()
        };
        let mut fill = |_| {
            let mut rows = Rows::new(plan.dimension);
            let mut sum = vec![0_i64; plan.dimension];
            for i in 0..window {
                // Neighbours in a window are not of one topic.
                let vector = vector(i * 7919 % window);
                sum.iter_mut().zip(&vector).for_each(|(s, v)| *s += i64::from(*v));
                rows.push(&vector);
            }
            (rows, sum)
        };
        let filled = (0..boundaries).map(&mut fill).collect();
        let most = plan.batches.iter().copied().max().unwrap_or(1);
        let pool = (0..most).map(|i| vector(i * 31 % window.max(1))).collect();
        Self { window, boundaries: filled, pool }
    }

    fn candidates(&self, batch: usize) -> Vec<Candidates> {
        let one = |(rows, _): &(Rows, Vec<i64>)| {
            Candidates::of(rows.dimension(), self.pool.iter().take(batch).map(Vec::as_slice))
        };
        self.boundaries.iter().map(one).collect()
    }

    fn jobs<'a>(&'a self, candidates: &'a [Candidates]) -> Vec<Job<'a>> {
        let windows = self.boundaries.iter().map(|(rows, sum)| Window { rows, sum });
        windows.zip(candidates).map(|(window, candidates)| Job { window, candidates }).collect()
    }
}

/// A FAISS index of the first window.
struct Indexed {
    name: &'static str,
    exact: bool,
    index: Index,
    seconds: f64,
}

impl Indexed {
    fn build(library: &Arc<Library>, structure: Structure, name: &'static str, data: &Data) -> Result<Self> {
        let rows = &data.boundaries[0].0;
        let start = monotonic();
        let mut index = Index::new(library, structure, rows.dimension())?;
        index.add(rows)?;
        Ok(Self { name, exact: structure == Structure::Flat, index, seconds: start.elapsed().as_secs_f64() })
    }

    fn recall(&self, candidates: &Candidates, exact: &[Dots], depth: usize) -> f64 {
        let found = self.index.propose(candidates, depth);
        let hits = found.iter().zip(exact).filter(|(f, e)| f.iter().any(|(at, _)| *at == e.at)).count();
        hits as f64 / exact.len().max(1) as f64
    }
}

/// SplitMix64.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Close to normal: the sum of four 16-bit numbers.
    pub(super) fn normal(&mut self, count: usize, deviation: f64) -> Vec<f64> {
        let one = |bits: u64| {
            let sum: f64 = (0..4).map(|i| f64::from((bits >> (16 * i)) as u16) / 65536.0 - 0.5).sum();
            sum * deviation * 3.0_f64.sqrt()
        };
        (0..count).map(|_| one(self.next())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_every_contender_once() {
        let plan = Plan {
            dimension: 48,
            windows: vec![3, 70],
            batches: vec![1, 5],
            boundaries: vec![1, 2],
            rounds: 1,
            seed: 7,
            approximate_from: None,
        };
        let contenders = Contenders::open(None, None).unwrap();
        let mut printed = 0;
        let rows = run(&plan, &contenders, |rows| {
            printed += rows.len();
            Ok(())
        });
        let rows = rows.unwrap();
        assert_eq!((rows.len(), printed), (8 * contenders.names().len(), rows.len()));
        assert!(rows.iter().all(|r| r.micros.median > 0.0 && (r.recall - 1.0).abs() < 1e-9));
    }
}
