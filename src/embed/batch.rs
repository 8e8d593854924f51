//! Batches by padded token budget, texts of like length together. Pure.

/// What has a number of pieces.
pub trait Sized {
    /// Pieces.
    fn pieces(&self) -> usize;
}

/// Collects items until a batch is due.
#[derive(Debug)]
pub struct Batcher<T> {
    budget: usize,
    one_by_one: bool,
    waiting: Vec<T>,
}

impl<T: Sized> Batcher<T> {
    /// With a budget of padded pieces a batch; `one_by_one` for encoders whose bits depend on the batch.
    #[must_use]
    pub fn new(budget: usize, one_by_one: bool) -> Self {
        Self { budget, one_by_one, waiting: Vec::new() }
    }

    /// Adds an item.
    pub fn push(&mut self, item: T) {
        self.waiting.push(item);
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether enough waits for a full batch.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let longest = self.waiting.iter().map(Sized::pieces).max().unwrap_or(0);
        longest * self.waiting.len() >= self.budget
    }

    /// Takes everything that waits, as batches within the budget; an item above it stands alone.
    pub fn take(&mut self) -> Vec<Vec<T>> {
        let mut items = std::mem::take(&mut self.waiting);
        items.sort_by_key(Sized::pieces);
        let mut batches: Vec<Vec<T>> = Vec::new();
        for item in items {
            // Sorted, so this item is the longest of its batch.
            let fits = |batch: &Vec<T>| !self.one_by_one && (batch.len() + 1) * item.pieces() <= self.budget;
            match batches.last_mut().filter(|b| fits(b)) {
                Some(batch) => batch.push(item),
                None => batches.push(vec![item]),
            }
        }
        batches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Sized for (usize, usize) {
        fn pieces(&self) -> usize {
            self.1
        }
    }

    proptest! {
        /// Nothing is lost, nothing doubled, and only a single item may exceed the budget.
        #[test]
        fn batches_keep_the_budget(sizes in prop::collection::vec(1_usize..300, 0..60), alone in any::<bool>()) {
            let mut b = Batcher::new(256, alone);
            for item in sizes.iter().copied().enumerate() { b.push(item); }
            let batches = b.take();
            let mut seen: Vec<_> = batches.iter().flatten().copied().collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, sizes.iter().copied().enumerate().collect::<Vec<_>>());
            for batch in &batches {
                let longest = batch.iter().map(|i| i.1).max().unwrap();
                prop_assert!(batch.len() == 1 || longest * batch.len() <= 256);
                prop_assert!(!alone || batch.len() == 1);
            }
        }
    }
}
