//! J: stray characters (`hardened.md` 6.6). Corroborates, never decides.
//!
//! Counted as in the study, but for what scripts, emoji and notation need: invisible characters that `hidden`
//! finds needed, Greek letters as symbols, exponents, the scripts of one writing system, Latin words in other scripts.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};
use unicode_script::{Script, UnicodeScript};

use super::hidden::{hidden, look_alike};

/// Letters of a script up to which it is stray beside another.
const STRAY: u32 = 3;

/// The script by which letters are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Writing {
    /// Modifier and superscript letters: the study counts them as a script of their own.
    Raised,
    /// Han, kana, bopomofo: one system.
    Cjk,
    /// Another.
    Of(Script),
}

/// Number of stray characters; saturating.
#[must_use]
pub fn junk(text: &str) -> u32 {
    static PIECES: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"##\w").ok());
    let pieces = PIECES.as_ref().map_or(0, |p| p.find_iter(text).count());
    let mut count = u32::try_from(pieces).unwrap_or(u32::MAX);
    if text.is_ascii() {
        return count;
    }
    count = count.saturating_add(hidden(text).count);
    let chars: Vec<char> = text.chars().collect();
    let mut letters: HashMap<Writing, u32> = HashMap::new();
    for (i, c) in chars.iter().enumerate() {
        let raised = is_raised(*c);
        let category = c.general_category();
        let stray = match category {
            GeneralCategory::ModifierLetter => raised,
            GeneralCategory::OtherNumber => raised && !is_exponent(&chars, i),
            GeneralCategory::PrivateUse => true,
            _ => false,
        };
        count = count.saturating_add(u32::from(stray));
        if c.is_alphabetic() && !is_symbol(&chars, i) {
            *letters.entry(if raised { Writing::Raised } else { writing(*c) }).or_default() += 1;
        }
    }
    let most = letters.values().max().copied().unwrap_or_default();
    // Short Latin words and names stand in texts of every script.
    let latin = Writing::Of(Script::Latin);
    let strays = letters.iter().filter(|(w, n)| **w != latin && **n <= STRAY && **n < most).map(|(_, n)| n).sum();
    count.saturating_add(strays)
}

fn writing(c: char) -> Writing {
    match c.script() {
        Script::Han | Script::Hiragana | Script::Katakana | Script::Bopomofo => Writing::Cjk,
        // Letters that several scripts share, such as the long vowel mark of kana.
        Script::Common | Script::Inherited if u32::from(c) > 0x2fff => Writing::Cjk,
        script => Writing::Of(script),
    }
}

/// A letter or digit that stands for another one, raised: not the letters that languages write so.
fn is_raised(c: char) -> bool {
    let latin = |s: Script| matches!(s, Script::Latin | Script::Greek | Script::Cyrillic | Script::Common);
    match c.general_category() {
        GeneralCategory::ModifierLetter => {
            latin(c.script()) && !matches!(c, '\u{2b9}'..='\u{2df}' | '\u{2ec}' | '\u{2ee}' | '\u{3005}'..)
        }
        GeneralCategory::OtherNumber => matches!(c, '\u{b2}' | '\u{b3}' | '\u{b9}' | '\u{2070}'..='\u{209c}'),
        _ => false,
    }
}

/// A raised digit right behind what it is the power or index of.
fn is_exponent(chars: &[char], i: usize) -> bool {
    let base = |c: char| c.is_alphanumeric() || matches!(c, ')' | ']' | '\u{207b}' | '\u{207a}');
    i.checked_sub(1).is_some_and(|j| base(chars[j]))
}

/// Mathematical letters, and Greek ones that stand alone or look like no Latin letter.
fn is_symbol(chars: &[char], i: usize) -> bool {
    let c = chars[i];
    if matches!(c, '\u{1d400}'..='\u{1d7ff}' | '\u{2100}'..='\u{214f}' | '\u{aa}' | '\u{b5}' | '\u{ba}') {
        return true;
    }
    let letter = |at: Option<usize>| at.and_then(|j| chars.get(j)).is_some_and(|c| c.is_alphabetic());
    let alone = !letter(i.checked_sub(1)) && !letter(Some(i + 1));
    c.script() == Script::Greek && (alone || look_alike(c).is_none())
}

#[cfg(test)]
mod tests {
    use super::junk;

    #[test]
    fn strays_are_counted_and_writing_systems_are_not() {
        for (text, wanted) in [
            ("plain text", 0),
            ("com ##cturing reeve ##led", 2),
            ("gates 1911 \u{2b3}", 2),
            ("mighty \u{6ba} thinking", 1),
            ("problem rand \u{1162}", 1),
            ("pre\u{200b}vious", 1),
            ("to use.\u{2075}", 1),
            ("\u{e000}x", 1),
            ("x² + y² is 3 m², α = ½ and Δt", 0),
            ("日本語とカタカナー and 々 on PC", 0),
            ("Привет, hello world", 0),
            ("می\u{200c}خواهم کتاب\u{200c}ها", 0),
            ("क्\u{200d}ष नमस्ते", 0),
            ("👨\u{200d}👩\u{200d}👧 ok", 0),
            ("𝐀𝛼 ∈ ℝ and ﬁne", 0),
            ("fr\u{3bf}m", 1),
        ] {
            assert_eq!(junk(text), wanted, "{text}");
        }
    }
}
