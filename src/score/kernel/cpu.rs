//! The CPU kernel: tiles of candidates and rows in registers, the instruction set found at run time.
//!
//! A batch reads each row once for all its candidates. A single candidate reads the 8-bit sketch of the rows
//! first, half the bytes: it gives each dot product up to a rest that Cauchy-Schwarz bounds. Only rows that
//! could still be the largest are computed in full, so the result is exact.

use super::bounds::{Best, Bound, Totals};
use super::{Bytes, Candidates, Dots, Job, Kernel, LANES, Rows, Window, Words};

/// Rows whose dot products are held at once: small enough that they stay in the first-level cache.
const BLOCK: usize = 64;

/// Candidates that share one pass over the rows: at d = 384 they fill three quarters of a 32 KiB cache.
const GROUP: usize = 32;

/// Below this many candidates each goes alone, by bounds; from it on they share the pass.
const SHARED: usize = 4;

/// What an instruction set provides. Rows and candidates have `lines` lines each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tiles {
    /// Dot products of every candidate with every row, candidate-major; `out` says how many.
    pub(super) exact: fn(candidates: &[Words], rows: &[Words], lines: usize, out: &mut [i32]),
    /// Dot products of one candidate with the sketches of rows, where that is worth it.
    pub(super) sketch: Option<Sketched>,
    /// Dot product of a candidate with a sum of rows.
    pub(super) sum: fn(candidate: &[Words], sum: &[i64]) -> i64,
}

/// Candidate, the same split, sketches of rows, results.
type SketchTile = fn(&[Words], &[Split], &[Bytes], &mut [i32]);

/// How an instruction set reads sketches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sketched {
    /// Splits a candidate, where the tile takes it so, and sums it up.
    pub(super) split: fn(candidate: &[Words], parts: &mut [Split]) -> Totals,
    /// Dot products of a candidate, as it is and split, with `q + 128` of every row.
    pub(super) tile: SketchTile,
    /// The exact dot product with one row.
    pub(super) dot: fn(candidate: &[Words], row: &[Words]) -> i32,
    /// Fewest bytes of rows for which it is faster than reading the rows themselves.
    pub(super) from: usize,
}

/// 64 components of a candidate, none above [`LARGEST`], as `256 high + low`.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Split {
    pub(super) high: [i8; LANES],
    pub(super) low: [i8; LANES],
}

impl Split {
    const ZERO: Self = Self { high: [0; LANES], low: [0; LANES] };
}

/// The largest component that `256 high + low` holds in 8 bits each.
pub(super) const LARGEST: i16 = 32639;

/// Parts of a candidate that need no memory of their own: d up to 512.
const PARTS: usize = 8;

/// An instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isa {
    /// AVX-512 with VNNI: 32 multiply-adds an instruction.
    Avx512Vnni,
    /// AVX2: 16 multiply-adds in two.
    Avx2,
    /// What the compiler makes of a plain loop: SSE2 on x86-64, NEON on AArch64.
    Portable,
}

impl Isa {
    /// From the best to the one that is always there.
    pub const ALL: [Isa; 3] = [Isa::Avx512Vnni, Isa::Avx2, Isa::Portable];

    /// The word in `cpu/<word>`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Isa::Avx512Vnni => "avx512vnni",
            Isa::Avx2 => "avx2",
            Isa::Portable => "portable",
        }
    }

    fn tiles(self) -> Option<Tiles> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => super::x86::avx512vnni(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => super::x86::avx2(),
            Isa::Portable => Some(PORTABLE),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx512Vnni | Isa::Avx2 => None,
        }
    }
}

/// The kernel with one instruction set.
#[derive(Debug, Clone, Copy)]
pub struct Cpu {
    isa: Isa,
    tiles: Tiles,
}

impl Cpu {
    /// With the best instruction set of this machine.
    #[must_use]
    pub fn detect() -> Self {
        Isa::ALL.into_iter().find_map(Self::with).unwrap_or(Self { isa: Isa::Portable, tiles: PORTABLE })
    }

    /// With this one; `None` when the machine lacks it.
    #[must_use]
    pub fn with(isa: Isa) -> Option<Self> {
        isa.tiles().map(|tiles| Self { isa, tiles })
    }

    /// Dot products of each candidate with a window; empty for an empty window.
    #[must_use]
    pub fn window(&self, window: Window<'_>, candidates: &Candidates) -> Vec<Dots> {
        let rows = window.rows;
        if rows.is_empty() || rows.dimension() != candidates.dimension() {
            return Vec::new();
        }
        let lines = candidates.stride();
        let mut found: Vec<Dots> = Vec::with_capacity(candidates.len());
        for group in candidates.words().chunks(GROUP * lines) {
            match self.tiles.sketch.filter(|s| group.len() < SHARED * lines && rows.bytes() >= s.from) {
                Some(sketched) => {
                    found.extend(group.chunks_exact(lines).filter_map(|c| self.by_bounds(sketched, c, rows, 1).pop()));
                }
                None => found.extend(self.together(group, rows)),
            }
        }
        for (dots, candidate) in found.iter_mut().zip(candidates.words().chunks_exact(lines)) {
            dots.sum = (self.tiles.sum)(candidate, window.sum);
        }
        found
    }

    fn by_bounds(&self, sketched: Sketched, candidate: &[Words], rows: &Rows, k: usize) -> Vec<Dots> {
        let (stride, sketch) = (rows.stride(), rows.sketch());
        let (mut few, mut many) = ([Split::ZERO; PARTS], Vec::new());
        let parts = if stride <= PARTS {
            &mut few[..stride]
        } else {
            many.resize(stride, Split::ZERO);
            &mut many[..]
        };
        let bound = Bound::of((sketched.split)(candidate, parts), sketch);
        let mut best = Best::new(k);
        let verify = |best: &mut Best, at: usize| {
            let row = &rows.words()[2 * stride * at..2 * stride * (at + 1)];
            best.offer((sketched.dot)(candidate, row), at);
            bound.needed(best.floor)
        };
        let mut needed = i32::MIN;
        let mut out = [0_i32; BLOCK];
        for (number, block) in sketch.lines().chunks(BLOCK * stride).enumerate() {
            let out = &mut out[..block.len() / stride];
            (sketched.tile)(candidate, parts, block, out);
            let top = largest(out);
            if top < needed {
                continue;
            }
            // The most promising row first: it raises the floor for the others.
            let top = out.iter().position(|d| *d == top).unwrap_or(0);
            needed = verify(&mut best, number * BLOCK + top);
            for (at, sketched) in out.iter().enumerate() {
                if *sketched >= needed && at != top {
                    needed = verify(&mut best, number * BLOCK + at);
                }
            }
        }
        best.found
    }

    fn all(&self, candidate: &[Words], rows: &Rows, k: usize) -> Vec<Dots> {
        let lines = 2 * rows.stride();
        let mut best = Best::new(k);
        let mut out = [0_i32; BLOCK];
        for (number, block) in rows.words().chunks(BLOCK * lines).enumerate() {
            let out = &mut out[..block.len() / lines];
            (self.tiles.exact)(candidate, block, lines, out);
            for (at, dot) in out.iter().enumerate() {
                if i64::from(*dot) > best.floor {
                    best.offer(*dot, number * BLOCK + at);
                }
            }
        }
        best.found
    }

    /// The largest for each of some candidates, in one pass.
    fn together(&self, candidates: &[Words], rows: &Rows) -> Vec<Dots> {
        let lines = 2 * rows.stride();
        let mut found = vec![Dots { max: i32::MIN, at: 0, sum: 0 }; candidates.len() / lines];
        let mut out = [0_i32; BLOCK * GROUP];
        for (number, block) in rows.words().chunks(BLOCK * lines).enumerate() {
            let height = block.len() / lines;
            let out = &mut out[..height * found.len()];
            (self.tiles.exact)(candidates, block, lines, out);
            for (best, dots) in found.iter_mut().zip(out.chunks_exact(height)) {
                let max = largest(dots);
                if max > best.max {
                    best.max = max;
                    best.at = number * BLOCK + dots.iter().position(|d| *d == max).unwrap_or(0);
                }
            }
        }
        found
    }
}

impl Kernel for Cpu {
    fn name(&self) -> String {
        format!("cpu/{}", self.isa.as_str())
    }

    fn score(&self, jobs: &[Job<'_>]) -> Vec<Vec<Dots>> {
        jobs.iter().map(|job| self.window(job.window, job.candidates)).collect()
    }

    fn each(&self, rows: &Rows, candidate: &[i16]) -> Vec<i32> {
        let candidate = Candidates::of(rows.dimension(), [candidate]);
        if candidate.is_empty() {
            return Vec::new();
        }
        let mut out = vec![0; rows.len()];
        if !rows.is_empty() {
            (self.tiles.exact)(candidate.words(), rows.words(), candidate.stride(), &mut out);
        }
        out
    }

    fn nearest(&self, rows: &Rows, candidate: &[i16], k: usize) -> Vec<Dots> {
        let candidate = Candidates::of(rows.dimension(), [candidate]);
        if candidate.is_empty() || k == 0 {
            return Vec::new();
        }
        match self.tiles.sketch {
            Some(sketched) => self.by_bounds(sketched, candidate.words(), rows, k),
            None => self.all(candidate.words(), rows, k),
        }
    }
}

const PORTABLE: Tiles = Tiles { exact: portable, sketch: None, sum: plain_sum };

fn portable(candidates: &[Words], rows: &[Words], lines: usize, out: &mut [i32]) {
    let height = rows.len() / lines;
    for (candidate, out) in candidates.chunks_exact(lines).zip(out.chunks_exact_mut(height)) {
        for (row, out) in rows.chunks_exact(lines).zip(out) {
            *out = plain_dot(candidate, row);
        }
    }
}

#[inline(always)]
pub(super) fn plain_dot(candidate: &[Words], row: &[Words]) -> i32 {
    let mut sum = 0_i32;
    for (a, b) in candidate.iter().zip(row) {
        for i in 0..LANES / 2 {
            sum = sum.wrapping_add(i32::from(a.0[i]).wrapping_mul(i32::from(b.0[i])));
        }
    }
    sum
}

/// Dot product of a candidate with a sum of rows.
#[inline(always)]
pub(super) fn plain_sum(candidate: &[Words], sum: &[i64]) -> i64 {
    let mut total = 0_i64;
    for (words, sum) in candidate.iter().zip(sum.chunks(LANES / 2)) {
        for (c, s) in words.0.iter().zip(sum) {
            total = total.wrapping_add(i64::from(*c).wrapping_mul(*s));
        }
    }
    total
}

fn largest(values: &[i32]) -> i32 {
    let mut largest = i32::MIN;
    for value in values {
        largest = largest.max(*value);
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Vector;
    use proptest::prelude::*;

    fn unit(dimension: usize) -> impl Strategy<Value = Vec<i16>> {
        prop::collection::vec(-1.0_f64..1.0, dimension)
            .prop_filter_map("zero", |v| Vector::from_f64(&v).map(|x| x.as_slice().to_vec()))
    }

    /// One dimension, rows and candidates of it.
    fn grids() -> impl Strategy<Value = (usize, Vec<Vec<i16>>, Vec<Vec<i16>>)> {
        prop::sample::select(vec![1_usize, 3, 31, 32, 33, 64, 100, 384])
            .prop_flat_map(|d| (Just(d), prop::collection::vec(unit(d), 0..150), prop::collection::vec(unit(d), 0..70)))
    }

    fn rows(dimension: usize, vectors: &[Vec<i16>]) -> Rows {
        Rows::of(dimension, vectors.iter().map(Vec::as_slice))
    }

    fn many(dimension: usize, vectors: &[Vec<i16>]) -> Candidates {
        Candidates::of(dimension, vectors.iter().map(Vec::as_slice))
    }

    fn sum(dimension: usize, vectors: &[Vec<i16>]) -> Vec<i64> {
        (0..dimension).map(|i| vectors.iter().map(|v| i64::from(v[i])).sum()).collect()
    }

    /// The plain loop that every kernel must equal.
    fn oracle(window: &[Vec<i16>], candidate: &[i16]) -> Option<(i64, usize, i64)> {
        let dot = |row: &Vec<i16>| row.iter().zip(candidate).map(|(a, b)| i64::from(*a) * i64::from(*b)).sum::<i64>();
        let dots: Vec<i64> = window.iter().map(dot).collect();
        let max = *dots.iter().max()?;
        Some((max, dots.iter().position(|d| *d == max)?, dots.iter().sum()))
    }

    /// Rows that differ from one vector in a few components: dot products that only the low bytes tell apart.
    fn close() -> impl Strategy<Value = (Vec<Vec<i16>>, Vec<i16>)> {
        (unit(384), prop::collection::vec((0_usize..384, -60_i16..60), 1..200)).prop_map(|(base, changes)| {
            let changed = |(at, by): &(usize, i16)| {
                let mut v = base.clone();
                v[*at] = v[*at].saturating_add(*by);
                v
            };
            (changes.iter().map(changed).collect(), base.clone())
        })
    }

    fn cpus() -> Vec<Cpu> {
        Isa::ALL.into_iter().filter_map(Cpu::with).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Every instruction set of this machine gives the plain loop's maximum, its row and the sum.
        #[test]
        fn every_path_equals_the_plain_loop((d, window, candidates) in grids()) {
            let (packed, sum) = (rows(d, &window), sum(d, &window));
            let exact: Vec<_> = candidates.iter().filter_map(|c| oracle(&window, c)).collect();
            for cpu in cpus() {
                let job = Job { window: Window { rows: &packed, sum: &sum }, candidates: &many(d, &candidates) };
                let found = cpu.score(&[job, job]);
                let plain: Vec<_> = found[0].iter().map(|f| (i64::from(f.max), f.at, f.sum)).collect();
                prop_assert_eq!(&plain, &exact, "{}", cpu.name());
                prop_assert_eq!(&found[0], &found[1]);
            }
        }

        /// The bound of the high plane drops no row that could win, however close the rows are.
        #[test]
        fn near_ties_are_told_apart((window, candidate) in close()) {
            let (packed, sum) = (rows(384, &window), sum(384, &window));
            for cpu in cpus() {
                let found = cpu.window(Window { rows: &packed, sum: &sum }, &many(384, std::slice::from_ref(&candidate)));
                let plain: Vec<_> = found.iter().map(|f| (i64::from(f.max), f.at, f.sum)).collect();
                prop_assert_eq!(plain, oracle(&window, &candidate).into_iter().collect::<Vec<_>>());
            }
        }

        /// Each dot product is that of the plain loop.
        #[test]
        fn each_equals_the_plain_loop((d, window, candidates) in grids()) {
            let packed = rows(d, &window);
            for candidate in candidates.iter().take(3) {
                let dot = |r: &Vec<i16>| r.iter().zip(candidate).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum::<i32>();
                let all: Vec<i32> = window.iter().map(dot).collect();
                for cpu in cpus() {
                    prop_assert_eq!(&cpu.each(&packed, candidate), &all, "{}", cpu.name());
                }
            }
        }

        /// The nearest rows are those of a full sort.
        #[test]
        fn nearest_equals_a_full_sort((d, window, candidates) in grids(), k in 0_usize..12) {
            let packed = rows(d, &window);
            for candidate in candidates.iter().take(3) {
                let dot = |r: &Vec<i16>| r.iter().zip(candidate).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum::<i32>();
                let mut all: Vec<(i32, usize)> = window.iter().enumerate().map(|(i, r)| (dot(r), i)).collect();
                all.sort_by_key(|(dot, at)| (std::cmp::Reverse(*dot), *at));
                all.truncate(k);
                for cpu in cpus() {
                    let found = cpu.nearest(&packed, candidate, k);
                    prop_assert_eq!(&found.iter().map(|f| (f.max, f.at)).collect::<Vec<_>>(), &all);
                }
            }
        }
    }

    /// The largest components there are: no partial sum leaves i32.
    #[test]
    fn full_scale_vectors_do_not_overflow() {
        let mut vectors: Vec<Vec<i16>> = vec![vec![0; 384]; 5];
        vectors[0][0] = 32767;
        vectors[1][0] = -32767;
        vectors[2] = Vector::from_f64(&[1.0; 384]).unwrap().as_slice().to_vec();
        vectors[3][7] = -32640;
        vectors[4][383] = i16::MIN;
        let (packed, sum) = (rows(384, &vectors), sum(384, &vectors));
        for cpu in cpus() {
            let found = cpu.window(Window { rows: &packed, sum: &sum }, &many(384, &vectors));
            for (v, f) in vectors.iter().zip(&found) {
                assert_eq!(oracle(&vectors, v), Some((i64::from(f.max), f.at, f.sum)), "{}", cpu.name());
            }
        }
    }

    #[test]
    fn an_empty_window_scores_nothing() {
        let cpu = Cpu::detect();
        let (empty, one) = (Rows::new(4), [[1_i16, 2, 3, 4].as_slice()]);
        assert!(cpu.window(Window { rows: &empty, sum: &[0; 4] }, &Candidates::of(4, one)).is_empty());
        assert!(cpu.window(Window { rows: &Rows::of(4, one), sum: &[0; 4] }, &Candidates::of(4, [])).is_empty());
        assert!(
            cpu.window(Window { rows: &Rows::of(4, one), sum: &[0; 4] }, &Candidates::of(3, [&[1_i16; 3][..]]))
                .is_empty()
        );
        assert!(cpu.nearest(&empty, one[0], 3).is_empty() && cpu.nearest(&Rows::of(4, one), one[0], 0).is_empty());
    }
}
