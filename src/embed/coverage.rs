//! Does the encoder know the script of a text? Pure.
//!
//! A tokenizer falls back on single letters, or on the unknown piece, where its vocabulary has no words of a script;
//! the vector of such a text says little. So the share of letters in pieces of two letters or more is looked at.

/// Fewest letters that say something.
const LETTERS: usize = 8;

/// Whether at least `share` of the letters of `text` are in pieces of two letters or more. `pieces` are those of the
/// whole text without special ones; an unknown piece has no letters.
pub(super) fn covered<'a>(text: &str, pieces: impl IntoIterator<Item = &'a str>, share: f64) -> bool {
    let letters = |s: &str| s.chars().filter(|c| c.is_alphabetic()).count();
    let all = letters(text);
    if all < LETTERS || share <= 0.0 {
        return true;
    }
    let known: usize = pieces.into_iter().map(letters).filter(|n| *n >= 2).sum();
    #[allow(clippy::cast_precision_loss)] // at most 8192 pieces
    let held = known as f64 >= share * all as f64;
    held
}

#[cfg(test)]
mod tests {
    use super::covered;

    #[test]
    fn words_are_covered_and_letters_are_not() {
        assert!(covered("The user runs Debian", ["the", "user", "runs", "deb", "##ian"], 0.5));
        assert!(!covered("привет всем друзья", ["п", "##р", "##и", "##в", "##е", "##т", "в", "##с", "д"], 0.5));
        assert!(!covered("用户喜欢喝绿茶和咖啡", std::iter::repeat_n("", 10), 0.5));
        assert!(covered("用户喜欢喝绿茶和咖啡", std::iter::repeat_n("", 10), 0.0), "0 turns it off");
        assert!(covered("1 + 1 = 2, x: 7", ["1", "+"], 0.5), "too few letters");
    }
}
