//! Pronounceable text and unit vectors.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::generate::rng::Rng;

/// Dimension of the vectors.
pub(crate) const DIMENSION: usize = 384;
/// Norm of a vector of i16.
const SCALE: f64 = 32767.0;
/// Weight of a boundary's own direction: cosines within a boundary are about its square, 0.3.
const SHARED: f64 = 0.55;

const STARTS: &[&str] =
    &["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "st", "tr", "ch", "sh", "pl"];
const VOWELS: &[&str] = &["a", "e", "i", "o", "u", "ai", "ea", "ou"];
const ENDS: &[&str] = &["", "", "", "n", "r", "s", "l", "t"];

fn word(rng: &mut Rng) -> String {
    let mut word = String::new();
    for _ in 0..2 + rng.below(3) {
        word.push_str(rng.pick(STARTS));
        word.push_str(rng.pick(VOWELS));
    }
    word.push_str(rng.pick(ENDS));
    word
}

fn capital(word: &str) -> String {
    let (first, rest) = word.split_at(word.len().min(1));
    format!("{}{rest}", first.to_ascii_uppercase())
}

/// Sentences of exactly `bytes` bytes (at least 2), ASCII.
pub(crate) fn sentences(rng: &mut Rng, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 64);
    while text.len() < bytes {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&capital(&word(rng)));
        for _ in 0..5 + rng.below(7) {
            text.push(' ');
            text.push_str(&word(rng));
        }
        text.push('.');
    }
    text.truncate(bytes.saturating_sub(1));
    if text.ends_with([' ', '.']) {
        text.pop();
        text.push('a');
    }
    text.push('.');
    text
}

/// A random direction, not normalised.
pub(crate) fn direction(rng: &mut Rng) -> Vec<f64> {
    (0..DIMENSION).map(|_| rng.normal()).collect()
}

/// A vector near `centre`, norm 32767, as base64 of little-endian i16.
pub(crate) fn vector(rng: &mut Rng, centre: &[f64]) -> String {
    let own = (1.0 - SHARED * SHARED).sqrt();
    let values: Vec<f64> = centre.iter().map(|c| SHARED * c + own * rng.normal()).collect();
    let bytes: Vec<u8> = quantised(&values).iter().flat_map(|v| v.to_le_bytes()).collect();
    STANDARD.encode(bytes)
}

#[allow(clippy::cast_possible_truncation)] // |v| <= norm
fn quantised(values: &[f64]) -> Vec<i16> {
    let norm = values.iter().map(|v| v * v).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
    values.iter().map(|v| (v / norm * SCALE).round() as i16).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_the_length_asked_for() {
        let mut rng = Rng::new(3, 0);
        for bytes in [2, 17, 100, 1024] {
            let text = sentences(&mut rng, bytes);
            assert!(text.len() == bytes && text.is_ascii() && text.ends_with('.') && !text.ends_with(" ."), "{text}");
        }
    }

    #[test]
    fn vectors_have_norm_32767_and_boundaries_differ() {
        let mut rng = Rng::new(5, 0);
        let centres = [direction(&mut rng), direction(&mut rng)];
        let mut made = |i: usize| -> Vec<f64> {
            let bytes = STANDARD.decode(vector(&mut rng, &centres[i])).unwrap();
            assert_eq!(bytes.len(), 768);
            bytes.chunks_exact(2).map(|b| f64::from(i16::from_le_bytes([b[0], b[1]]))).collect()
        };
        let (a, b, other) = (made(0), made(0), made(1));
        let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>() / (SCALE * SCALE);
        assert!((dot(&a, &a).sqrt() - 1.0).abs() < 0.005);
        assert!((dot(&a, &b) - 0.3).abs() < 0.2, "{}", dot(&a, &b));
        assert!(dot(&a, &other).abs() < 0.2);
    }
}
