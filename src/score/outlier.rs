//! Out-of-distribution scores that MEMSAD is compared with (`memsad.md` 4.7): never a gate.

use crate::schema::{Vector, dot, to_cosine};

/// Neighbours of the kNN score.
pub const NEIGHBOURS: usize = 10;

/// log sum exp of the cosines to the history, temperature 1.
#[must_use]
pub fn energy(candidate: &Vector, history: &[Vector]) -> f64 {
    history.iter().map(|q| to_cosine(dot(candidate, q)).exp()).sum::<f64>().ln()
}

/// Minus the mean of the largest cosines to benign entries; an entry of the set is its own nearest neighbour.
#[must_use]
#[allow(clippy::cast_precision_loss)] // at most ten
pub fn knn(candidate: &Vector, benign: &[Vector], k: usize) -> f64 {
    let mut cosines: Vec<i64> = benign.iter().map(|v| dot(candidate, v)).collect();
    cosines.sort_unstable_by(|a, b| b.cmp(a));
    cosines.truncate(k);
    -cosines.iter().map(|c| to_cosine(*c)).sum::<f64>() / cosines.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearer_is_less_unusual() {
        let vector = |x: f64| Vector::from_f64(&[x, 1.0]).unwrap();
        let benign = [vector(0.0), vector(0.1), vector(0.2)];
        assert!(knn(&vector(0.1), &benign, 2) < knn(&vector(3.0), &benign, 2));
        assert!(energy(&vector(0.1), &benign) > energy(&vector(3.0), &benign));
        assert!((knn(&vector(0.1), &[], NEIGHBOURS)).abs() < f64::EPSILON);
    }
}
