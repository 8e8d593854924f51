//! Normal form, tokens, shingles and sentences of a text (`hardened.md` 6.1), and its key and value.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;
use sha2::{Digest, Sha256};
use unicode_normalization::UnicodeNormalization;

/// Shortest piece that counts as a sentence of its own where others do, characters.
const SENTENCE: usize = 8;
/// Letters of a spelled word ("i g n o r e") at least.
const SPELLED: usize = 4;
/// Tokens in a shingle.
const SHINGLE: usize = 3;

/// Characters that the normal form drops: soft hyphen, zero width, bidi controls and tags.
#[must_use]
pub(super) fn is_dropped(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}')
}

/// NFKC without dropped characters: case is kept.
#[must_use]
pub(super) fn composed(text: &str) -> String {
    if text.is_ascii() {
        return text.to_owned();
    }
    text.chars().filter(|c| !is_dropped(*c)).nfkc().collect()
}

/// Composed and case folded.
#[must_use]
pub(super) fn folded(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    caseless::default_case_fold_str(&composed(text))
}

/// The normal form.
#[must_use]
pub fn norm(text: &str) -> String {
    if text.is_ascii() && !may_be_spelled(text.as_bytes()) {
        return ascii_norm(text);
    }
    let folded = folded(text);
    let joined = if text.is_ascii() {
        join_spelled(folded.as_bytes())
    } else {
        let quote = |c| if matches!(c, '\u{2018}' | '\u{2019}') { '\'' } else { c };
        join_spelled(&folded.chars().map(quote).collect::<Vec<char>>())
    };
    let mut out = String::with_capacity(joined.len());
    for word in joined.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}

/// Lower case, with runs of white space as one space and none at the ends.
fn ascii_norm(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut space = false;
    for byte in text.bytes() {
        if matches!(byte, b' ' | b'\t'..=b'\r') {
            space = !out.is_empty();
            continue;
        }
        if space {
            out.push(b' ');
            space = false;
        }
        out.push(byte.to_ascii_lowercase());
    }
    String::from_utf8(out).unwrap_or_default()
}

/// Two single letters and their spaces: a spelled word has them.
fn may_be_spelled(text: &[u8]) -> bool {
    text.windows(SPELLED)
        .any(|w| w[1] == b' ' && w[3] == b' ' && w[0].is_ascii_alphabetic() && w[2].is_ascii_alphabetic())
}

/// Joins runs of four or more single letters, one space apart, that touch no other letter.
fn join_spelled<C: Copy + Into<char>>(chars: &[C]) -> String {
    let at = |i: usize| chars.get(i).map(|c| -> char { (*c).into() });
    let letter = |i: usize| at(i).is_some_and(char::is_alphabetic);
    let mut out = String::with_capacity(chars.len());
    let mut i = 0;
    while i < chars.len() {
        let starts = letter(i) && (i == 0 || !letter(i - 1));
        let mut end = i;
        if starts {
            while at(end + 1) == Some(' ') && letter(end + 2) {
                end += 2;
            }
            // The last letter may be the first of a word.
            if letter(end + 1) {
                end = end.saturating_sub(2).max(i);
            }
        }
        if starts && !letter(end + 1) && (end - i) / 2 + 1 >= SPELLED {
            out.extend(chars[i..=end].iter().step_by(2).map(|c| -> char { (*c).into() }));
            i = end + 1;
        } else {
            out.push(chars[i].into());
            i += 1;
        }
    }
    out
}

/// Words of a text in normal form: runs of word characters without `_`, joined by single apostrophes.
pub(super) fn tokens(normal: &str) -> Vec<&str> {
    static TOKEN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"[\w&&[^_]]+(?:'[\w&&[^_]]+)*").ok());
    if normal.is_ascii() {
        return ascii_tokens(normal);
    }
    TOKEN.iter().flat_map(|r| r.find_iter(normal)).map(|m| m.as_str()).collect()
}

/// The same without an automaton.
fn ascii_tokens(normal: &str) -> Vec<&str> {
    let bytes = normal.as_bytes();
    let word = |i: usize| bytes.get(i).is_some_and(u8::is_ascii_alphanumeric);
    let (mut out, mut i) = (Vec::with_capacity(bytes.len() / 5), 0);
    while i < bytes.len() {
        if !word(i) {
            i += 1;
            continue;
        }
        let start = i;
        while word(i) || (bytes.get(i) == Some(&b'\'') && word(i + 1)) {
            i += 1;
        }
        out.push(&normal[start..i]);
    }
    out
}

/// A token with each run of digits as one 0.
pub(super) fn fold_digits(token: &str) -> Cow<'_, str> {
    static DIGITS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\d+").ok());
    if !token.bytes().any(|b| b.is_ascii_digit() || !b.is_ascii()) {
        return Cow::Borrowed(token);
    }
    DIGITS.as_ref().map_or(Cow::Borrowed(token), |r| r.replace_all(token, "0"))
}

/// A set of 64-bit hashes, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hashes(Vec<u64>);

impl Hashes {
    /// Of any numbers.
    #[must_use]
    pub fn new(mut hashes: Vec<u64>) -> Self {
        hashes.sort_unstable();
        hashes.dedup();
        Self(hashes)
    }

    /// The numbers, ascending.
    #[must_use]
    pub fn as_slice(&self) -> &[u64] {
        &self.0
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one is in it.
    #[must_use]
    pub fn contains(&self, hash: u64) -> bool {
        self.0.binary_search(&hash).is_ok()
    }

    /// Little-endian bytes, ascending.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; 8 * self.len()];
        out.as_chunks_mut().0.iter_mut().zip(&self.0).for_each(|(to, h)| *to = h.to_le_bytes());
        out
    }

    /// Reads what [`Hashes::to_bytes`] wrote; `None` for a length that can't be.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (whole, rest) = bytes.as_chunks::<8>();
        rest.is_empty().then(|| Self::new(whole.iter().map(|b| u64::from_le_bytes(*b)).collect()))
    }

    /// Size of the intersection.
    #[must_use]
    pub fn shared(&self, other: &Self) -> usize {
        let (mut i, mut j, mut n) = (0, 0, 0);
        while let (Some(a), Some(b)) = (self.0.get(i), other.0.get(j)) {
            i += usize::from(a <= b);
            j += usize::from(b <= a);
            n += usize::from(a == b);
        }
        n
    }

    /// Intersection and union; their ratio is the Jaccard similarity. (0, 1) for two empty sets.
    #[must_use]
    pub(super) fn jaccard(&self, other: &Self) -> (u64, u64) {
        let shared = self.shared(other);
        (shared as u64, (self.len() + other.len() - shared).max(1) as u64)
    }

    /// The smallest `most`: the same for the same set, wherever it is cut.
    pub(super) fn cut(&mut self, most: usize) {
        self.0.truncate(most);
    }

    pub(super) fn minus(&self, other: &Self) -> Self {
        Self(self.0.iter().copied().filter(|h| !other.contains(*h)).collect())
    }
}

/// Two sets that are compared with many at once: most hashes that are in neither are told by one bit.
#[derive(Debug)]
pub(super) struct Probe {
    /// Ascending, and whether a hash is in the first set, and in the second.
    hashes: Vec<(u64, [bool; 2])>,
    second: usize,
    /// By the lowest bits of a hash: 0 where no hash has them.
    table: [u8; TABLE],
}

const TABLE: usize = 4096;

/// Place in a table.
#[allow(clippy::cast_possible_truncation)] // the lowest bits are what is wanted
fn place(hash: u64) -> usize {
    hash as usize % TABLE
}

impl Probe {
    pub(super) fn new(first: &Hashes, second: &Hashes) -> Self {
        let mut table = [0; TABLE];
        let mut hashes: Vec<_> = second.0.iter().map(|h| (*h, [first.contains(*h), true])).collect();
        hashes.extend(first.0.iter().filter(|h| !second.contains(**h)).map(|h| (*h, [true, false])));
        hashes.sort_unstable();
        hashes.iter().for_each(|(h, _)| table[place(*h)] = 1);
        Self { hashes, second: second.len(), table }
    }

    /// What a set shares with the first, and with the second.
    pub(super) fn shared(&self, other: &Hashes) -> (u32, u32) {
        let mut shared = (0, 0);
        for eight in other.0.chunks(8) {
            if eight.iter().fold(0, |any, h| any | self.table[place(*h)]) == 0 {
                continue;
            }
            for hash in eight.iter().filter(|h| self.table[place(**h)] == 1) {
                if let Ok(at) = self.hashes.binary_search_by_key(hash, |(h, _)| *h) {
                    let [first, second] = self.hashes[at].1;
                    shared = (shared.0 + u32::from(first), shared.1 + u32::from(second));
                }
            }
        }
        shared
    }

    /// Size of the second's union with a set that shares so many.
    pub(super) fn all(&self, other: &Hashes, shared: u32) -> u64 {
        (self.second as u64 + other.len() as u64).saturating_sub(u64::from(shared)).max(1)
    }
}

/// The first 8 bytes of SHA-256 over parts with a zero behind each: nobody finds a text with a wanted hash.
#[must_use]
pub(super) fn hash(parts: &[&str]) -> u64 {
    let mut joined = Vec::with_capacity(parts.iter().map(|p| p.len() + 1).sum());
    for part in parts {
        joined.extend_from_slice(part.as_bytes());
        joined.push(0);
    }
    hash_of(&joined)
}

fn hash_of(joined: &[u8]) -> u64 {
    Sha256::digest(joined).first_chunk::<8>().map_or(0, |b| u64::from_be_bytes(*b))
}

/// Hashes of all windows of three folded tokens; of all tokens when there are fewer. No token, no shingle.
#[must_use]
pub fn shingles(normal: &str) -> Hashes {
    let tokens = tokens(normal);
    let (mut joined, mut ends) = (Vec::with_capacity(normal.len() + 8), Vec::with_capacity(tokens.len() + 1));
    ends.push(0);
    for token in tokens {
        joined.extend_from_slice(fold_digits(token).as_bytes());
        joined.push(0);
        ends.push(joined.len());
    }
    if joined.is_empty() {
        return Hashes::default();
    }
    let wide = SHINGLE.min(ends.len() - 1);
    Hashes::new(ends.windows(wide + 1).map(|w| hash_of(&joined[w[0]..w[wide]])).collect())
}

/// Hashes of the distinct tokens, with digits folded or not.
#[must_use]
pub(super) fn token_set(normal: &str, fold: bool) -> Hashes {
    let hashed = |t: &str| if fold { hash(&[&fold_digits(t)]) } else { hash(&[t]) };
    Hashes::new(tokens(normal).into_iter().map(hashed).collect())
}

/// Pieces of the raw text: cut behind `. ! ? ;` before white space, and at line breaks. Where there are longer
/// ones, those below eight characters are no sentences of their own ([`is_sentence`]).
#[must_use]
pub fn sentences(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut start, mut closing) = (0, false);
    for (at, c) in text.char_indices() {
        if c == '\n' || (closing && c.is_whitespace()) {
            pieces.push(text[start..at].trim());
            start = at;
        }
        closing = matches!(c, '.' | '!' | '?' | ';');
    }
    pieces.push(text[start..].trim());
    pieces.retain(|p| !p.is_empty());
    pieces
}

/// Whether a piece is long enough to be a sentence by itself.
#[must_use]
pub fn is_sentence(piece: &str) -> bool {
    piece.chars().nth(SENTENCE - 1).is_some()
}

/// What a record's key and value are called in its text, or that it has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Form {
    /// No key.
    #[default]
    Text,
    /// `Question: K`, a line break, the value.
    Question,
    /// `Instruction: K`, a line break, the value.
    Instruction,
}

impl Form {
    /// The word of records and decisions.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Form::Text => "text",
            Form::Question => "question",
            Form::Instruction => "instruction",
        }
    }
}

/// Reads the word.
impl std::str::FromStr for Form {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        [Form::Text, Form::Question, Form::Instruction].into_iter().find(|f| f.as_str() == word).ok_or(())
    }
}

/// A text with its key and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keyed<'a> {
    /// Text.
    pub text: &'a str,
    /// Key, if it has one.
    pub key: Option<&'a str>,
    /// Value; the text, where there is no key.
    pub value: &'a str,
    /// Form.
    pub form: Form,
}

impl<'a> Keyed<'a> {
    /// Reads the two forms with a key.
    #[must_use]
    pub fn of(text: &'a str) -> Self {
        for (head, form) in [("Question: ", Form::Question), ("Instruction: ", Form::Instruction)] {
            let parts = text.strip_prefix(head).and_then(|rest| rest.split_once('\n'));
            if let Some((key, value)) = parts.filter(|(k, v)| !k.trim().is_empty() && !v.trim().is_empty()) {
                return Self { text, key: Some(key.trim()), value, form };
            }
        }
        Self { text, key: None, value: text, form: Form::Text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spelled_words_are_joined() {
        for (text, wanted) in [
            ("i g n o r e all", "ignore all"),
            ("a b c", "a b c"),
            ("we a r e here", "we a r e here"),
            ("i g n o r e  r u l e s", "ignore rules"),
            ("x i g n o words", "xigno words"),
            ("b o o k s", "books"),
            ("h\u{200b}i  \u{ff29}\u{2019}m", "hi i'm"),
        ] {
            assert_eq!(norm(text), wanted, "{text}");
        }
    }

    #[test]
    fn pieces_are_cut_where_the_study_cuts() {
        assert_eq!(
            sentences("One here. Two there! v1.2 stays\nthree; four"),
            ["One here.", "Two there!", "v1.2 stays", "three;", "four"]
        );
        assert!(sentences(" \n ").is_empty());
        assert!(is_sentence("You must") && !is_sentence("Send it"));
    }

    #[test]
    fn key_and_value_come_from_two_forms() {
        let keyed = Keyed::of("Question: who?\nAda.");
        assert_eq!((keyed.key, keyed.value, keyed.form), (Some("who?"), "Ada.", Form::Question));
        for text in ["Question: who? Ada.", "question: who?\nAda", "Question: \nAda", "Question: who?\n "] {
            assert_eq!(Keyed::of(text), Keyed { text, key: None, value: text, form: Form::Text });
        }
    }

    #[test]
    fn shingles_fold_digits() {
        assert_eq!(shingles("patient 40771 left the unit"), shingles("patient 9 left the unit"));
        assert_eq!(shingles("one two").len(), 1);
        assert!(shingles("\u{1f600} !").is_empty());
    }

    proptest! {
        #[test]
        fn a_probe_counts_as_its_sets(
            a in prop::collection::vec(0..5000_u64, 0..60), b in prop::collection::vec(0..5000_u64, 0..60),
            c in prop::collection::vec(0..5000_u64, 0..60),
        ) {
            let (a, b, c) = (Hashes::new(a), Hashes::new(b), Hashes::new(c));
            let probe = Probe::new(&a, &b);
            let (first, second) = probe.shared(&c);
            prop_assert_eq!((first as usize, second as usize), (a.shared(&c), b.shared(&c)));
            prop_assert_eq!((u64::from(second), probe.all(&c, second)), b.jaccard(&c));
        }

        #[test]
        fn what_is_not_looked_at_is_not_spelled(text in "[a-c ]{0,16}") {
            let joined = join_spelled(text.as_bytes());
            prop_assert!(joined == text || may_be_spelled(text.as_bytes()));
        }

        /// The quick path of ASCII is the long one.
        #[test]
        fn ascii_is_normalised_alike(text in "[ -~\\t-\\r]{0,60}") {
            let long: Vec<&str> = text.split_whitespace().collect();
            prop_assert_eq!(ascii_norm(&text), long.join(" ").to_ascii_lowercase());
        }

        /// Shingles are hashes of their tokens.
        #[test]
        fn shingles_hash_their_tokens(words in prop::collection::vec("[a-z]{1,4}", 0..12)) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let wanted = words.windows(SHINGLE.min(words.len()).max(1)).map(hash).collect();
            prop_assert_eq!(shingles(&words.join(" ")), Hashes::new(wanted));
        }

        /// Without an automaton or with one: the same words.
        #[test]
        fn ascii_words_are_those_of_the_pattern(text in "[a-c0-1_' .-]{0,24}") {
            let pattern = Regex::new(r"[\w&&[^_]]+(?:'[\w&&[^_]]+)*").unwrap();
            let wanted: Vec<&str> = pattern.find_iter(&text).map(|m| m.as_str()).collect();
            prop_assert_eq!(ascii_tokens(&text), wanted);
        }

        #[test]
        fn norm_is_stable(text in "\\PC{0,80}") {
            let once = norm(&text);
            prop_assert!(!once.contains("  ") && once.trim() == once);
            prop_assert_eq!(norm(&text), once);
        }
    }
}
