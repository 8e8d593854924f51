//! Separability margins by encoder.

use super::defenses::Memsad;
use super::matrix::Field;
use super::stats::margin;
use super::{Encode, Row};
use crate::error::Result;
use crate::topology::Statistic;

/// For each attack and encoder: lowest poison score minus highest benign score of reference MEMSAD. Below 0 no
/// threshold separates, so the detector must not be a gate for this encoder.
///
/// # Errors
/// `encoder_failed`.
pub fn margins(field: &Field, encoders: &[&dyn Encode]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (word, statistic) in [("max", Statistic::Max), ("combined", Statistic::Combined)] {
        for encode in encoders {
            let detector = Memsad::reference(&field.boundary, statistic, *encode)?;
            let benign = detector.scores(&field.boundary.test, *encode)?;
            for attack in &field.attacks {
                let poison = detector.scores(&attack.poison, *encode)?;
                let Some(m) = margin(&benign, &poison) else { continue };
                let section = format!("separability margin of MEMSAD on the {} corpus", field.boundary.name);
                rows.push(Row::value(&section, format!("{word}: {}", attack.name), m).note(encode.identity()));
            }
        }
    }
    Ok(rows)
}
