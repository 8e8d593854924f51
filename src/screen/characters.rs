//! How unusual a text's characters are among trusted texts of like length: reported, never a gate (`memsad.md` 2.4).
//!
//! The published character feature falls with the length of a text, and counts a text in the pool that it is compared
//! with. Here a text's cost is the cross-entropy of its character trigrams under the pool's, trusted rows are costed
//! without themselves, and a write is ranked among the rows of like length. Trigrams fall into hashed buckets: the
//! record holds no text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::schema::{CharacterCalibration, CharacterFacts};

/// Buckets of trigrams.
const BUCKETS: usize = 1 << 14;
/// Added to each bucket's count.
const SMOOTHING: f64 = 0.5;
/// Costs are in sixteenths of a bit.
const SIXTEENTHS: f64 = 16.0;
/// Rows of a calibration at most.
const ROWS: usize = 512;
/// Rows of like length that a write is ranked among.
const LIKE: usize = 64;
/// Fewest rows that say something.
const LEAST: usize = 20;

/// The buckets of a text's trigrams, in the order of the text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grams(Vec<u16>);

impl Grams {
    /// Of a text in normal form; digits are alike.
    #[must_use]
    pub fn of(normal: &str) -> Self {
        let mut window = ['\n'; 3];
        let bucket = |c: char| {
            window = [window[1], window[2], if c.is_numeric() { '0' } else { c }];
            // FNV-1a over code points.
            let hash = window.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, c| {
                (h ^ u64::from(u32::from(*c))).wrapping_mul(0x0000_0100_0000_01b3)
            });
            u16::try_from((hash >> 32) % BUCKETS as u64).unwrap_or_default()
        };
        Self(normal.chars().map(bucket).collect())
    }

    fn len(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// Thousandths of a bit a character.
    fn cost(&self, cost: impl Fn(u16) -> u8) -> u32 {
        let sum: u64 = self.0.iter().map(|b| u64::from(cost(*b))).sum();
        u32::try_from(sum * 1000 / 16 / (self.0.len() as u64).max(1)).unwrap_or(u32::MAX)
    }
}

/// The pool of a calibration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Characters {
    /// Cost of each bucket, sixteenths of a bit.
    costs: Vec<u8>,
    /// Length in characters and cost of trusted rows, by length.
    rows: Vec<[u32; 2]>,
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped
fn sixteenths(count: f64, total: f64) -> u8 {
    let p = (count + SMOOTHING) / (total + SMOOTHING * BUCKETS as f64);
    (-p.log2() * SIXTEENTHS).round().clamp(0.0, 255.0) as u8
}

impl Characters {
    /// From trusted texts, in any order; each row is costed without itself.
    #[must_use]
    pub fn fit(texts: &[&Grams]) -> Self {
        let mut counts = vec![0.0_f64; BUCKETS];
        texts.iter().flat_map(|t| &t.0).for_each(|b| counts[usize::from(*b)] += 1.0);
        let total: f64 = counts.iter().sum();
        let costs = counts.iter().map(|n| sixteenths(*n, total)).collect();
        let step = texts.len().div_ceil(ROWS).max(1);
        let mut own = vec![0.0_f64; BUCKETS];
        let mut rows: Vec<[u32; 2]> = Vec::new();
        for text in texts.iter().step_by(step).filter(|t| !t.0.is_empty()) {
            text.0.iter().for_each(|b| own[usize::from(*b)] += 1.0);
            let without = |b: u16| {
                let b = usize::from(b);
                sixteenths(counts[b] - own[b], total - text.0.len() as f64)
            };
            rows.push([text.len(), text.cost(without)]);
            text.0.iter().for_each(|b| own[usize::from(*b)] = 0.0);
        }
        rows.sort_unstable();
        Self { costs, rows }
    }

    /// How a text stands among rows of like length; `None` where there are too few, and for an empty text.
    #[must_use]
    pub fn rank(&self, text: &Grams) -> Option<CharacterFacts> {
        if self.rows.len() < LEAST || text.0.is_empty() {
            return None;
        }
        let length = text.len();
        let cost = text.cost(|b| self.costs[usize::from(b)]);
        let like = self.like(length);
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Some(CharacterFacts {
            cost,
            length,
            of: count(like.len() + 1),
            rank: count(like.iter().filter(|[_, c]| *c >= cost).count() + 1),
        })
    }

    /// The rows nearest in length, by ratio.
    fn like(&self, length: u32) -> &[[u32; 2]] {
        let wanted = LIKE.min(self.rows.len());
        let apart = |row: &[u32; 2]| {
            let (a, b) = (u64::from(row[0].max(length)), u64::from(row[0].min(length)));
            a * 1_000_000 / b.max(1)
        };
        let mut from = self.rows.partition_point(|r| r[0] < length).saturating_sub(wanted);
        while from + wanted < self.rows.len() && apart(&self.rows[from]) > apart(&self.rows[from + wanted]) {
            from += 1;
        }
        &self.rows[from..from + wanted]
    }

    /// As a record holds it.
    #[must_use]
    pub fn to_record(&self) -> CharacterCalibration {
        CharacterCalibration { costs: STANDARD.encode(&self.costs), rows: self.rows.clone() }
    }

    /// Reads a record; `None` for one that can't be.
    #[must_use]
    pub fn from_record(record: &CharacterCalibration) -> Option<Self> {
        let costs = STANDARD.decode(&record.costs).ok()?;
        let fits = costs.len() == BUCKETS && record.rows.len() <= ROWS && record.rows.is_sorted();
        fits.then(|| Self { costs, rows: record.rows.clone() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WORDS: [&str; 12] = [
        "the patient",
        "takes",
        "ten",
        "drops",
        "of oil",
        "each morning",
        "and walks",
        "home",
        "before",
        "the rain",
        "starts",
        "again",
    ];

    fn text(i: usize, words: usize) -> Grams {
        let words: Vec<&str> = (0..words).map(|k| WORDS[(i * 7 + k * (1 + i % 5)) % WORDS.len()]).collect();
        Grams::of(&words.join(" "))
    }

    fn fitted() -> Characters {
        let texts: Vec<Grams> = (0..300).map(|i| text(i, 3 + i % 30)).collect();
        Characters::fit(&texts.iter().collect::<Vec<_>>())
    }

    /// A text of the pool's kind ranks in the middle at any length; another kind is beyond all rows.
    #[test]
    fn length_alone_is_not_unusual() {
        let characters = fitted();
        for words in [4, 10, 20, 31] {
            let ranks: Vec<u32> = (400..440).map(|i| characters.rank(&text(i, words)).unwrap().rank).collect();
            let mean = ranks.iter().sum::<u32>() / 40;
            assert!((10..55).contains(&mean), "{words} words: {mean}");
        }
        let strange = characters.rank(&Grams::of("zq#xv!! kjw|zzq ~~vx")).unwrap();
        assert_eq!((strange.rank, strange.of), (1, 65));
        assert!(characters.rank(&Grams::of("")).is_none());
        assert!(Characters::default().rank(&text(1, 5)).is_none());
    }

    /// A row is costed without itself: a pool of one text finds that text as strange as any other.
    #[test]
    fn a_row_does_not_vouch_for_itself() {
        let (alone, other) = (Grams::of("quite unlike all the others: xyz"), text(1, 9));
        let mut texts = vec![&other; 30];
        texts.push(&alone);
        let characters = Characters::fit(&texts);
        let row = characters.rows.iter().find(|r| r[0] == alone.len()).unwrap();
        assert!(row[1] > characters.rank(&alone).unwrap().cost + 500, "{row:?}");
    }

    #[test]
    fn a_record_comes_back_and_a_broken_one_does_not() {
        let characters = fitted();
        let record = characters.to_record();
        assert_eq!(Characters::from_record(&record), Some(characters));
        let broken: [fn(&mut CharacterCalibration); 3] =
            [|r| r.costs.truncate(400), |r| r.rows.reverse(), |r| r.rows = vec![[1, 1]; ROWS + 1]];
        for change in broken {
            let mut r = record.clone();
            change(&mut r);
            assert!(Characters::from_record(&r).is_none());
        }
    }

    proptest! {
        /// Rows of like length are the nearest by ratio, whatever the lengths are.
        #[test]
        fn like_rows_are_the_nearest(mut lengths in prop::collection::vec(1_u32..5000, 20..200), length in 1_u32..6000) {
            lengths.sort_unstable();
            let characters = Characters { costs: Vec::new(), rows: lengths.iter().map(|l| [*l, 0]).collect() };
            let apart = |l: u32| u64::from(l.max(length)) * 1_000_000 / u64::from(l.min(length));
            let mut wanted: Vec<u64> = lengths.iter().map(|l| apart(*l)).collect();
            wanted.sort_unstable();
            wanted.truncate(LIKE);
            let mut found: Vec<u64> = characters.like(length).iter().map(|r| apart(r[0])).collect();
            found.sort_unstable();
            prop_assert_eq!(found, wanted);
        }
    }
}
