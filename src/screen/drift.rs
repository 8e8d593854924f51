//! D: the value names another thing than the key does (`hardened.md` 6.5).

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::lexicon::redirects;
use super::normal::{Keyed, folded, norm, tokens};

/// What the drift consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drift {
    /// Occurrences in the value of identifiers that the key lacks, of a shape that the key has.
    pub occurrences: u32,
    /// Words of action arguments in the value whose stem the key lacks, and all such words.
    pub arguments: (u32, u32),
    /// The record names two identifiers of one shape and redirects.
    pub redirected_pair: bool,
}

impl Drift {
    /// max(i / 2, a / .5, r), in millionths.
    #[must_use]
    pub fn micro(&self) -> u64 {
        let (missing, all) = (u64::from(self.arguments.0), u64::from(self.arguments.1));
        let arguments = (missing * 2_000_000).checked_div(all).unwrap_or_default();
        let pair = if self.redirected_pair { 1_000_000 } else { 0 };
        (u64::from(self.occurrences) * 500_000).max(arguments).max(pair)
    }
}

/// Digits of an identifier at least.
const DIGITS: usize = 3;

struct Patterns {
    token: Regex,
    ordinary: Regex,
    argument: Regex,
}

static PATTERNS: LazyLock<Option<Patterns>> = LazyLock::new(|| {
    Some(Patterns {
        token: Regex::new(r"[\w&&[^_]](?:[\w\-]*[\w&&[^_]])?").ok()?,
        ordinary: Regex::new(
            r"^(?:\d{4}(?:-\d{1,2}){1,2}|\d{1,2}(?:-\d{1,2}){1,2}|(?:19|20|21)\d\d|t\d+|c\d+|\d{1,2}(?:st|nd|rd|th|am|pm|h|d|mg|ml|g|kg|mcg)?)$",
        )
        .ok()?,
        argument: Regex::new(r"(?i)(?:search|click|buy|open|call|query|lookup)\[([^\]]*)\]").ok()?,
    })
});

/// Drift of a record; none without a key.
#[must_use]
pub fn drift(keyed: &Keyed<'_>) -> Drift {
    let (Some(key), Some(p)) = (keyed.key, PATTERNS.as_ref()) else {
        return Drift::default();
    };
    let (key_text, value_text) = (folded(key), folded(keyed.value));
    let known: BTreeSet<&str> = identifiers(p, &key_text).collect();
    let shapes: BTreeSet<String> = known.iter().map(|id| shape(id)).collect();
    let in_value: Vec<&str> = identifiers(p, &value_text).collect();
    let foreign = |id: &&&str| !known.contains(**id) && shapes.contains(&shape(id));
    let occurrences = if shapes.is_empty() { 0 } else { in_value.iter().filter(foreign).count() };
    Drift {
        occurrences: u32::try_from(occurrences).unwrap_or(u32::MAX),
        arguments: arguments(p, key, keyed.value),
        redirected_pair: pair(known.iter().copied().chain(in_value.iter().copied())) && redirects(&norm(keyed.text)),
    }
}

fn identifiers<'a>(p: &'a Patterns, text: &'a str) -> impl Iterator<Item = &'a str> {
    let digits = |t: &&str| t.chars().filter(|c| c.is_numeric()).count() >= DIGITS;
    p.token.find_iter(text).map(|m| m.as_str()).filter(digits).filter(|t| !p.ordinary.is_match(t))
}

/// Digit runs as 9, letter runs as a.
fn shape(id: &str) -> String {
    let mut out = String::new();
    for c in id.chars() {
        let class = if c.is_numeric() {
            '9'
        } else if c.is_alphabetic() {
            'a'
        } else {
            c
        };
        if !(matches!(class, '9' | 'a') && out.ends_with(class)) {
            out.push(class);
        }
    }
    out
}

/// Two different identifiers of one shape.
fn pair<'a>(ids: impl Iterator<Item = &'a str>) -> bool {
    let distinct: BTreeSet<&str> = ids.collect();
    let shapes: BTreeSet<String> = distinct.iter().map(|id| shape(id)).collect();
    shapes.len() < distinct.len()
}

/// Content words of action arguments: those whose stem the key lacks, and all.
fn arguments(p: &Patterns, key: &str, value: &str) -> (u32, u32) {
    let key = norm(key);
    let known: BTreeSet<&str> = tokens(&key).into_iter().map(stem).collect();
    let (mut missing, mut all) = (0, 0);
    for argument in p.argument.captures_iter(value).filter_map(|c| c.get(1)) {
        for word in tokens(&norm(argument.as_str())).into_iter().filter(|w| !STOP_WORDS.contains(w)) {
            all += 1;
            missing += u32::from(!known.contains(stem(word)));
        }
    }
    (missing, all)
}

fn stem(word: &str) -> &str {
    let cut = |suffix: &&str| word.strip_suffix(suffix).filter(|rest| rest.chars().count() > 3);
    ["ing", "es", "s", "ed"].iter().find_map(cut).unwrap_or(word)
}

#[rustfmt::skip]
const STOP_WORDS: [&str; 74] = [
    "a", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be", "been", "by", "can", "could", "did", "do",
    "does", "for", "from", "had", "has", "have", "he", "here", "how", "i", "i'm", "if", "im", "in", "is", "it", "its",
    "just", "me", "my", "no", "not", "now", "of", "on", "or", "our", "she", "should", "so", "some", "than", "that",
    "the", "their", "then", "there", "these", "they", "this", "those", "to", "us", "was", "we", "were", "what",
    "when", "where", "which", "who", "why", "will", "with", "would", "you", "your",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Drift {
        drift(&Keyed::of(text))
    }

    #[test]
    fn identifiers_and_arguments_drift() {
        for (text, occurrences, arguments, pair, micro) in [
            ("Question: chart of patient 40771\nsee patient 58820, 58820", 2, (0, 0), false, 1_000_000),
            ("Question: chart of patient 40771\npatient 40771 is now kept under 58820", 1, (0, 0), true, 1_000_000),
            ("Question: since 2019-03-04?\nrows of 2020-05-06 and 1999", 0, (0, 0), false, 0),
            ("Question: item AB-123\nitem CD-999 and 77777", 1, (0, 0), false, 500_000),
            ("Instruction: red scarves\nsearch[red scarves]", 0, (0, 2), false, 0),
            ("Instruction: buying red shoes\nclick[red shoe]", 0, (0, 2), false, 0),
            ("Instruction: red shoe\nclick[the blue phone charger red]", 0, (3, 4), false, 1_500_000),
            ("no key 12345 54321 instead", 0, (0, 0), false, 0),
        ] {
            let found = of(text);
            assert_eq!(
                (found.occurrences, found.arguments, found.redirected_pair),
                (occurrences, arguments, pair),
                "{text}"
            );
            assert_eq!(found.micro(), micro, "{text}");
        }
    }
}
