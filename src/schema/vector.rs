//! Unit vectors as i16.

use std::sync::Arc;

use multiversion::multiversion;

/// Scale of one component.
const SCALE: f64 = 32767.0;

/// The score of two equal unit vectors: 32767^2. Scores are in units of 1 / ONE.
pub const ONE: i64 = 32767 * 32767;

/// Squared norms that count as one: within 1 %.
const NORM2_LOW: f64 = SCALE * SCALE * 0.99 * 0.99;
const NORM2_HIGH: f64 = SCALE * SCALE * 1.01 * 1.01;

/// A score in cosine units.
#[must_use]
#[allow(clippy::cast_precision_loss)] // scores stay below 2^31
pub fn to_cosine(units: i64) -> f64 {
    units as f64 / ONE as f64
}

/// A unit vector: d values of scale 32767. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vector(Arc<[i16]>);

impl Vector {
    /// Normalises d numbers; `None` when one isn't finite or the norm is 0 or overflows.
    #[must_use]
    pub fn from_f64(values: &[f64]) -> Option<Self> {
        let norm = values.iter().map(|v| v * v).sum::<f64>().sqrt();
        if !norm.is_finite() || norm <= 0.0 {
            return None;
        }
        Some(Self(values.iter().map(|v| quantise(v / norm)).collect()))
    }

    /// The same from f32.
    #[must_use]
    pub fn from_f32(values: &[f32]) -> Option<Self> {
        let wide: Vec<f64> = values.iter().map(|v| f64::from(*v)).collect();
        Self::from_f64(&wide)
    }

    /// Takes values that already have norm 32767; `None` when it is off by more than 1 %.
    #[must_use]
    pub fn from_unit(values: Vec<i16>) -> Option<Self> {
        let norm2: f64 = values.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
        (NORM2_LOW..=NORM2_HIGH).contains(&norm2).then(|| Self(values.into()))
    }

    /// The components.
    #[must_use]
    pub fn as_slice(&self) -> &[i16] {
        &self.0
    }

    /// Little-endian bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; 2 * self.0.len()];
        out.as_chunks_mut().0.iter_mut().zip(self.0.iter()).for_each(|(to, v)| *to = v.to_le_bytes());
        out
    }
}

/// Dot product of two vectors, in units of 1 / [`ONE`]. Sums stay in range: both are unit vectors.
#[must_use]
pub fn dot(a: &Vector, b: &Vector) -> i64 {
    i64::from(product(&a.0, &b.0))
}

/// Compiled for wider registers too, and chosen at run time; integers, so that the result is the same.
#[multiversion(targets("x86_64+avx512f+avx512bw", "x86_64+avx2"))]
fn product(a: &[i16], b: &[i16]) -> i32 {
    a.iter().zip(b).fold(0_i32, |sum, (x, y)| sum.wrapping_add(i32::from(*x) * i32::from(*y)))
}

#[allow(clippy::cast_possible_truncation)] // |value| <= 1
fn quantise(value: f64) -> i16 {
    (value * SCALE).round().clamp(-SCALE, SCALE) as i16
}
