//! From the model's output to one row a text. Pure.

use super::Prepared;
use crate::config::Pooling;
use crate::error::{Code, Error, Result};

/// Rows from an output of `shape`: `[texts, width, d]` to pool, or `[texts, d]` from a model that pools itself.
///
/// # Errors
/// `encoder_failed` for another shape.
pub(super) fn pool(
    batch: &[Prepared],
    width: usize,
    d: usize,
    pooling: Pooling,
    shape: &[i64],
    data: &[f32],
) -> Result<Vec<Vec<f32>>> {
    let whole = |sizes: &[usize]| sizes.iter().map(|n| i64::try_from(*n).unwrap_or(-1)).collect::<Vec<i64>>();
    let wanted = if pooling == Pooling::Model { whole(&[batch.len(), d]) } else { whole(&[batch.len(), width, d]) };
    if shape != wanted {
        let message =
            format!("the model's output has shape {shape:?}, not {wanted:?} (encoder.pooling, encoder.dimension)");
        return Err(Error::new(Code::EncoderFailed, message));
    }
    let row = |(i, prepared): (usize, &Prepared)| match pooling {
        Pooling::Mean => mean(&data[i * width * d..][..prepared.ids.len() * d], d),
        Pooling::Cls => data[i * width * d..][..d].to_vec(),
        Pooling::Model => data[i * d..][..d].to_vec(),
    };
    Ok(batch.iter().enumerate().map(row).collect())
}

/// Mean over a text's own pieces.
#[allow(clippy::cast_precision_loss)] // at most 8192 pieces
fn mean(pieces: &[f32], d: usize) -> Vec<f32> {
    let mut out = vec![0.0_f32; d];
    for piece in pieces.chunks_exact(d) {
        for (o, p) in out.iter_mut().zip(piece) {
            *o += p;
        }
    }
    let n = (pieces.len() / d).max(1) as f32;
    out.iter_mut().for_each(|o| *o /= n);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pooling_takes_its_own_pieces() {
        let text = |n: u32| Prepared { ids: (0..n).collect(), truncated: false, covered: true };
        let batch = [text(3), text(1)];
        // Two texts, three pieces, two values; the second text's padding is 9.
        let data = [1.0, 0.0, 2.0, 6.0, 3.0, 0.0, 5.0, 4.0, 9.0, 9.0, 9.0, 9.0];
        let pooled = |pooling, shape: &[i64]| pool(&batch, 3, 2, pooling, shape, &data);
        assert_eq!(pooled(Pooling::Mean, &[2, 3, 2]).unwrap(), [[2.0, 2.0], [5.0, 4.0]]);
        assert_eq!(pooled(Pooling::Cls, &[2, 3, 2]).unwrap(), [[1.0, 0.0], [5.0, 4.0]]);
        assert_eq!(pooled(Pooling::Model, &[2, 2]).unwrap(), [[1.0, 0.0], [2.0, 6.0]]);
        assert_eq!(pooled(Pooling::Mean, &[2, 2]).unwrap_err().code(), Code::EncoderFailed);
        assert_eq!(pooled(Pooling::Model, &[2, 3, 2]).unwrap_err().code(), Code::EncoderFailed);
    }
}
