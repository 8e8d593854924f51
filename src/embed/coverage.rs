//! Does the encoder know the script of a text? Pure.
//!
//! A tokenizer falls back on single letters, or on the unknown piece, where its vocabulary has no words of a script;
//! the vector of such a text says little. So the share of letters in pieces of two letters or more is looked at.

/// Fewest letters that say something.
const LETTERS: usize = 8;

/// Letters of every piece.
#[derive(Debug)]
pub(super) struct Coverage {
    letters: Vec<u8>,
    share: f64,
}

impl Coverage {
    /// For a vocabulary of pieces with their ids; `special` pieces, the unknown one among them, have no letters. At
    /// least `share` of a text's letters must be in pieces of two letters or more.
    pub(super) fn new(vocabulary: impl IntoIterator<Item = (String, u32)>, special: &[u32], share: f64) -> Self {
        let mut letters = Vec::new();
        for (piece, id) in vocabulary {
            let id = id as usize;
            if letters.len() <= id {
                letters.resize(id + 1, 0);
            }
            letters[id] = u8::try_from(count(&piece)).unwrap_or(u8::MAX);
        }
        for id in special {
            if let Some(letters) = letters.get_mut(*id as usize) {
                *letters = 0;
            }
        }
        Self { letters, share }
    }

    /// Whether a text that became these pieces is covered.
    pub(super) fn covers(&self, text: &str, pieces: &[u32]) -> bool {
        let all = count(text);
        if all < LETTERS || self.share <= 0.0 {
            return true;
        }
        let letters = pieces.iter().filter_map(|id| self.letters.get(*id as usize));
        let known: usize = letters.filter(|n| **n >= 2).map(|n| usize::from(*n)).sum();
        #[allow(clippy::cast_precision_loss)] // far below 2^53
        let covered = known as f64 >= self.share * all as f64;
        covered
    }
}

fn count(text: &str) -> usize {
    text.chars().filter(|c| c.is_alphabetic()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_covered_and_letters_are_not() {
        let vocabulary = ["[CLS]", "[UNK]", "the", "user", "##ian", "п", "##р"].into_iter().map(str::to_owned).zip(0..);
        let coverage = Coverage::new(vocabulary, &[0, 1], 0.5);
        assert!(coverage.covers("the user ian", &[0, 2, 3, 4, 0]));
        assert!(!coverage.covers("привет всем", &[0, 5, 6, 6, 6, 6, 6, 1, 0]));
        assert!(!coverage.covers("用户喜欢喝绿茶和咖啡", &[0, 1, 1, 1, 0]));
        assert!(coverage.covers("1 + 1 = 2, x: 7", &[0, 1, 99]), "too few letters");
        let off = Coverage::new([("a".to_owned(), 7)], &[], 0.0);
        assert!(off.covers("用户喜欢喝绿茶和咖啡", &[]), "0 turns it off");
    }
}
