//! Windows and candidates from a seed, and the plain loop over them.

use memsluice::schema::Vector;
use memsluice::score::kernel::{Candidates, Dots, Job, Rows, Window};

/// One window with candidates.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) rows: Rows,
    pub(crate) candidates: Vec<Vec<i16>>,
    window: Vec<Vec<i16>>,
    sum: Vec<i64>,
    packed: Candidates,
}

impl Case {
    /// Random unit vectors.
    pub(crate) fn new(dimension: usize, rows: usize, candidates: usize, seed: u64) -> Self {
        let mut random = Random(seed);
        let mut vectors = |n: usize| (0..n).map(|_| random.unit(dimension)).collect::<Vec<_>>();
        let window = vectors(rows);
        Self::of(dimension, window, vectors(candidates))
    }

    /// Rows that differ in one component each: near ties, and exact ones.
    pub(crate) fn close(dimension: usize, rows: usize, candidates: usize, seed: u64) -> Self {
        let mut random = Random(seed);
        let base = random.unit(dimension);
        let near = |i: usize| {
            let mut vector = base.clone();
            vector[i * 7 % dimension] = vector[i * 7 % dimension].saturating_add(i16::try_from(i % 5).unwrap());
            vector
        };
        Self::of(dimension, (0..rows).map(near).collect(), (0..candidates).map(|_| random.unit(dimension)).collect())
    }

    fn of(dimension: usize, window: Vec<Vec<i16>>, candidates: Vec<Vec<i16>>) -> Self {
        let sum = (0..dimension).map(|k| window.iter().map(|v| i64::from(v[k])).sum()).collect();
        let rows = Rows::of(dimension, window.iter().map(Vec::as_slice));
        let packed = Candidates::of(dimension, candidates.iter().map(Vec::as_slice));
        Self { rows, candidates, window, sum, packed }
    }

    pub(crate) fn set(&mut self, at: usize, vector: &[i16]) {
        for ((sum, old), new) in self.sum.iter_mut().zip(&self.window[at]).zip(vector) {
            *sum += i64::from(*new) - i64::from(*old);
        }
        self.window[at] = vector.to_vec();
        self.rows.set(at, vector);
    }

    pub(crate) fn job(&self) -> Job<'_> {
        Job { window: Window { rows: &self.rows, sum: &self.sum }, candidates: &self.packed }
    }
}

/// Several boundaries of one dimension: empty, small, ragged, and more candidates than a block takes.
pub(crate) fn cases() -> Vec<Case> {
    let sizes = [(100, 3), (0, 2), (1, 1), (7, 8), (33, 9), (64, 0), (129, 20)];
    let mut cases: Vec<Case> = sizes.iter().zip(10..).map(|((m, n), seed)| Case::new(70, *m, *n, seed)).collect();
    cases.push(Case::close(70, 40, 4, 9));
    cases
}

/// What every kernel must give.
pub(crate) fn plain(case: &Case) -> Vec<Dots> {
    let score = |candidate: &Vec<i16>| {
        let dot = |row: &Vec<i16>| row.iter().zip(candidate).map(|(a, b)| i64::from(*a) * i64::from(*b)).sum::<i64>();
        let dots: Vec<i64> = case.window.iter().map(dot).collect();
        let max = *dots.iter().max()?;
        let at = dots.iter().position(|d| *d == max)?;
        Some(Dots { max: i32::try_from(max).unwrap(), at, sum: dots.iter().sum() })
    };
    case.candidates.iter().filter_map(score).collect()
}

/// SplitMix64.
#[derive(Debug)]
struct Random(u64);

impl Random {
    #[allow(clippy::cast_precision_loss)] // 53 bits
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
    }

    fn unit(&mut self, dimension: usize) -> Vec<i16> {
        let values: Vec<f64> = (0..dimension).map(|_| self.next()).collect();
        Vector::from_f64(&values).unwrap().as_slice().to_vec()
    }
}
