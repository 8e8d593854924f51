//! Seeded numbers: SplitMix64 (Steele, Lea, Flood 2014). The same seed and label give the same sequence on
//! every machine.

use sha2::{Digest, Sha256};

/// A sequence of its own for each use.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The sequence of a seed for one use, named by `label`.
    #[must_use]
    pub fn new(seed: u64, label: &str) -> Self {
        let digest = Sha256::digest(format!("{seed}\n{label}"));
        Self(u64::from_le_bytes([
            digest[0], digest[1], digest[2], digest[3], digest[4], digest[5], digest[6], digest[7],
        ]))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 for n = 0. The bias is below n / 2^64.
    #[allow(clippy::cast_possible_truncation)] // below n
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// One of the items.
    ///
    /// # Panics
    /// For an empty slice.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Fisher-Yates.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// `n` different items in random order; all of them when there are fewer.
    pub fn sample<T: Clone>(&mut self, items: &[T], n: usize) -> Vec<T> {
        let mut all = items.to_vec();
        self.shuffle(&mut all);
        all.truncate(n);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_labels_differ() {
        let draw =
            |seed, label| (0..4).map(|_| 0).scan(Rng::new(seed, label), |r, _| Some(r.bits())).collect::<Vec<_>>();
        assert_eq!(draw(7, "a"), draw(7, "a"));
        assert_ne!(draw(7, "a"), draw(7, "b"));
        assert_ne!(draw(7, "a"), draw(8, "a"));
    }

    #[test]
    fn a_shuffle_keeps_every_item_and_below_is_even() {
        let mut items: Vec<u32> = (0..50).collect();
        Rng::new(1, "shuffle").shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
        let mut rng = Rng::new(1, "even");
        let mut counts = [0_u32; 10];
        (0..10_000).for_each(|_| counts[rng.below(10)] += 1);
        assert!(counts.iter().all(|c| (850..1150).contains(c)), "{counts:?}");
    }
}
