//! Vectors as the kernels read them: whole cache lines, no tails.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Components in a line of a sketch, and in a pair of words.
pub const LANES: usize = 64;

/// 32 components, aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Words(pub [i16; LANES / 2]);

/// 64 components of a sketch, aligned, 128 added to each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Bytes(pub [u8; LANES]);

/// Vectors of one dimension, row after row, each padded with zeros to whole lines; with them a [`Sketch`].
#[derive(Debug)]
pub struct Rows {
    dimension: usize,
    words: Vec<Words>,
    sketch: Sketch,
    id: u64,
    /// Rows in the order in which they were last set or taken off; the newest of them.
    changes: VecDeque<usize>,
    version: u64,
}

/// Changes that are remembered for copies elsewhere: these, or one for eight rows.
const CHANGES: usize = 64;

/// The next id of rows.
static IDS: AtomicU64 = AtomicU64::new(0);

impl Clone for Rows {
    /// A copy is another window: it has an id of its own.
    fn clone(&self) -> Self {
        let (words, sketch) = (self.words.clone(), self.sketch.clone());
        Self { words, sketch, changes: self.changes.clone(), ..Self::new(self.dimension).at(self.version) }
    }
}

/// The rows in 8 bits: a third of what a pass must read. `row = scale * q + rest` for each component; Cauchy-Schwarz
/// bounds what the rest adds to a dot product, so that most rows are ruled out unread.
#[derive(Debug, Clone)]
pub struct Sketch {
    lines: Vec<Bytes>,
    scale: i32,
    rest: i64,
}

impl Sketch {
    /// `q + 128`, row after row.
    #[must_use]
    pub fn lines(&self) -> &[Bytes] {
        &self.lines
    }

    /// What one step of `q` stands for.
    #[must_use]
    pub fn scale(&self) -> i32 {
        self.scale
    }

    /// No row's rest has a larger squared norm. Never falls while the scale stays: an upper bound.
    #[must_use]
    pub fn rest(&self) -> i64 {
        self.rest
    }

    /// How a component is rounded is a matter of tightness alone: the rest is taken from what was rounded to. No
    /// component is above 127 steps, so that a rest is about a step at most, and the squares of a line fit i32.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped to 8 bits
    fn set(&mut self, first: usize, components: &[i16]) {
        let mut rest = 0;
        let step = 65_536 / self.scale;
        for (line, chunk) in self.lines[first..].iter_mut().zip(components.chunks(LANES)) {
            let mut of_line = 0_i32;
            for (byte, component) in line.0.iter_mut().zip(chunk) {
                let component = i32::from(*component);
                let q = ((component * step + 32_768) >> 16).clamp(-128, 127);
                *byte = (q + 128) as u8;
                of_line += (component - self.scale * q) * (component - self.scale * q);
            }
            rest += i64::from(of_line);
        }
        self.rest = self.rest.max(rest);
    }
}

impl Rows {
    /// No rows yet.
    #[must_use]
    pub fn new(dimension: usize) -> Self {
        Self {
            dimension,
            words: Vec::new(),
            sketch: Sketch { lines: Vec::new(), scale: 1, rest: 0 },
            id: IDS.fetch_add(1, Ordering::Relaxed),
            changes: VecDeque::new(),
            version: 0,
        }
    }

    fn at(self, version: u64) -> Self {
        Self { version, ..self }
    }

    /// Names these rows in this process.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Changes so far.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Rows set or taken off since `version`, also those that are no longer there; `None` when there were too many to
    /// remember.
    pub fn changed_since(&self, version: u64) -> Option<impl Iterator<Item = usize> + '_> {
        let count = usize::try_from(self.version.checked_sub(version)?).ok()?;
        (count <= self.changes.len()).then(|| self.changes.iter().skip(self.changes.len() - count).copied())
    }

    /// One row for each of `vectors`; those of another dimension are left out.
    pub fn of<'a>(dimension: usize, vectors: impl IntoIterator<Item = &'a [i16]>) -> Self {
        let mut rows = Self::new(dimension);
        vectors.into_iter().filter(|v| v.len() == dimension).for_each(|v| rows.push(v));
        rows
    }

    /// Components in a row, without padding.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// Lines of a row's sketch; its words are twice as many.
    #[must_use]
    pub fn stride(&self) -> usize {
        stride(self.dimension)
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sketch.lines.len() / self.stride()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Adds a row of `dimension` components.
    pub fn push(&mut self, components: &[i16]) {
        let at = self.len();
        let lines = (at + 1) * self.stride();
        self.words.resize(2 * lines, Words([0; LANES / 2]));
        self.sketch.lines.resize(lines, Bytes([128; LANES]));
        self.set(at, components);
    }

    /// Overwrites row `at`.
    pub fn set(&mut self, at: usize, components: &[i16]) {
        debug_assert_eq!(components.len(), self.dimension);
        self.changed(at);
        let first = at * self.stride();
        for (line, chunk) in self.words[2 * first..].iter_mut().zip(components.chunks(LANES / 2)) {
            line.0[..chunk.len()].copy_from_slice(chunk);
        }
        let largest = components.iter().map(|c| i32::from(*c).abs()).max().unwrap_or(0);
        if largest > 127 * self.sketch.scale {
            self.coarsen(largest);
        } else {
            self.sketch.set(first, components);
        }
    }

    /// Takes row `at` out; the last row takes its place.
    pub fn remove(&mut self, at: usize) {
        let Some(last) = self.len().checked_sub(1).filter(|last| at <= *last) else { return };
        if at < last {
            let components: Vec<i16> = self.row(last).collect();
            self.set(at, &components);
        }
        self.changed(last);
        let lines = last * self.stride();
        self.words.truncate(2 * lines);
        self.sketch.lines.truncate(lines);
    }

    fn changed(&mut self, at: usize) {
        self.version += 1;
        self.changes.push_back(at);
        while self.changes.len() > CHANGES.max(self.len() / 8) {
            self.changes.pop_front();
        }
    }

    /// Takes a scale that holds `largest` with a quarter to spare, and sketches all rows again: a handful of times
    /// in the life of a window.
    fn coarsen(&mut self, largest: i32) {
        self.sketch.scale = (largest + largest / 4) / 127 + 1;
        self.sketch.rest = 0;
        for at in 0..self.len() {
            let components: Vec<i16> = self.row(at).collect();
            self.sketch.set(at * self.stride(), &components);
        }
    }

    /// The components of row `at`.
    pub fn row(&self, at: usize) -> impl Iterator<Item = i16> + '_ {
        components(&self.words, at, self.dimension)
    }

    /// All lines, row after row.
    #[must_use]
    pub fn words(&self) -> &[Words] {
        &self.words
    }

    /// The rows in 8 bits.
    #[must_use]
    pub fn sketch(&self) -> &Sketch {
        &self.sketch
    }

    /// Memory held, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        (self.words.capacity() + self.sketch.lines.capacity()) * LANES
    }
}

/// Candidates, padded as rows are.
#[derive(Debug, Clone)]
pub struct Candidates {
    dimension: usize,
    words: Vec<Words>,
}

impl Candidates {
    /// One for each of `vectors`; those of another dimension are left out.
    pub fn of<'a>(dimension: usize, vectors: impl IntoIterator<Item = &'a [i16]>) -> Self {
        let mut words = Vec::new();
        for vector in vectors.into_iter().filter(|v| v.len() == dimension) {
            let at = words.len();
            words.resize(at + 2 * stride(dimension), Words([0; LANES / 2]));
            for (line, chunk) in words[at..].iter_mut().zip(vector.chunks(LANES / 2)) {
                line.0[..chunk.len()].copy_from_slice(chunk);
            }
        }
        Self { dimension, words }
    }

    /// Components of a candidate.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// Lines of a candidate.
    #[must_use]
    pub fn stride(&self) -> usize {
        2 * stride(self.dimension)
    }

    /// Number of candidates.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.len() / self.stride()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// All lines, candidate after candidate.
    #[must_use]
    pub fn words(&self) -> &[Words] {
        &self.words
    }

    /// The components of candidate `at`.
    pub fn row(&self, at: usize) -> impl Iterator<Item = i16> + '_ {
        components(&self.words, at, self.dimension)
    }
}

fn stride(dimension: usize) -> usize {
    dimension.div_ceil(LANES).max(1)
}

fn components(words: &[Words], at: usize, dimension: usize) -> impl Iterator<Item = i16> + '_ {
    let lines = 2 * stride(dimension);
    words[at * lines..(at + 1) * lines].iter().flat_map(|w| w.0).take(dimension)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_are_aligned_padded_and_read_back() {
        let ramp = |from: i16| (from..from + 70).map(|i| i * 301).collect::<Vec<i16>>();
        let mut rows = Rows::of(70, [ramp(-90).as_slice(), &ramp(3), &[3; 5]]);
        assert_eq!((rows.len(), rows.stride(), rows.bytes() >= 768), (2, 2, true));
        assert_eq!((rows.words().as_ptr() as usize % 64, rows.sketch().lines().as_ptr() as usize % 64), (0, 0));
        assert_eq!(rows.row(0).collect::<Vec<_>>(), ramp(-90));
        rows.set(0, &ramp(-20));
        assert_eq!(rows.row(0).collect::<Vec<_>>(), ramp(-20));
        assert_eq!(rows.row(1).collect::<Vec<_>>(), ramp(3));
        let candidates = Candidates::of(70, [ramp(-90).as_slice(), &ramp(3)]);
        assert_eq!((candidates.len(), candidates.stride()), (2, 4));
        assert_eq!(candidates.row(1).collect::<Vec<_>>(), ramp(3));
    }

    #[test]
    fn the_last_row_takes_the_place_of_one_that_leaves() {
        let mut rows = Rows::of(2, [[1_i16, 2].as_slice(), &[3, 4], &[5, 6]]);
        let version = rows.version();
        rows.remove(0);
        rows.remove(7);
        assert_eq!((rows.len(), rows.row(0).collect::<Vec<_>>()), (2, vec![5, 6]));
        assert_eq!(rows.changed_since(version).unwrap().collect::<Vec<_>>(), [0, 2]);
        rows.push(&[7, 8]);
        rows.remove(2);
        rows.remove(1);
        rows.remove(0);
        assert!(rows.is_empty() && rows.sketch().lines().is_empty());
    }

    #[test]
    fn changes_are_known_until_they_are_too_many() {
        let mut rows = Rows::of(2, [[1_i16, 2].as_slice(), &[3, 4]]);
        let (version, copy) = (rows.version(), rows.clone());
        rows.set(1, &[5, 6]);
        rows.set(0, &[7, 8]);
        assert_eq!(rows.changed_since(version).unwrap().collect::<Vec<_>>(), [1, 0]);
        assert_eq!(rows.changed_since(rows.version()).unwrap().count(), 0);
        assert!(copy.id() != rows.id() && copy.changed_since(version).unwrap().count() == 0);
        (0..64).for_each(|_| rows.set(1, &[5, 6]));
        assert!(rows.changed_since(version).is_none() && rows.changed_since(rows.version() + 1).is_none());
    }

    proptest! {
        /// Whatever order rows come in, the sketch holds each within its bound.
        #[test]
        fn the_sketch_is_within_its_bound(
            vectors in prop::collection::vec((prop::collection::vec(any::<i16>(), 67), 0_u32..15), 1..20),
        ) {
            let vectors: Vec<Vec<i16>> = vectors.iter().map(|(v, s)| v.iter().map(|c| c >> s).collect()).collect();
            let mut rows = Rows::of(67, vectors.iter().map(Vec::as_slice));
            rows.set(0, &vectors[vectors.len() - 1]);
            let sketch = rows.sketch();
            for at in 0..rows.len() {
                let bytes = sketch.lines()[at * rows.stride()..].iter().flat_map(|l| l.0);
                let rest = |(c, b): (i16, u8)| i64::from(i32::from(c) - sketch.scale() * (i32::from(b) - 128)).pow(2);
                prop_assert!(rows.row(at).zip(bytes).map(rest).sum::<i64>() <= sketch.rest());
            }
        }
    }
}
