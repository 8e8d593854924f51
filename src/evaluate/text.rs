//! Words and sentences as the controls count them. The screen has its own normal form.

/// Lower-case runs of letters and digits.
#[must_use]
pub(super) fn words(text: &str) -> Vec<String> {
    text.to_lowercase().split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_owned).collect()
}

/// Pieces after `. ! ? ;` with white space behind, and lines; at least 8 characters each, else the text itself.
#[must_use]
pub(super) fn sentences(text: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\n' {
            pieces.push(String::new());
            continue;
        }
        if let Some(last) = pieces.last_mut() {
            last.push(c);
        }
        if matches!(c, '.' | '!' | '?' | ';') && chars.peek().is_some_and(|n| n.is_whitespace()) {
            pieces.push(String::new());
        }
    }
    let kept: Vec<String> = pieces.iter().map(|p| p.trim().to_owned()).filter(|p| p.chars().count() >= 8).collect();
    if kept.is_empty() { vec![text.to_owned()] } else { kept }
}

/// Share of equal members of two sets of word windows of length `n`.
#[must_use]
#[allow(clippy::cast_precision_loss)] // counts
pub(super) fn jaccard(a: &str, b: &str, n: usize) -> f64 {
    let windows = |t: &str| -> std::collections::BTreeSet<Vec<String>> {
        let words = words(t);
        if words.len() < n {
            std::iter::once(words).collect()
        } else {
            words.windows(n).map(<[String]>::to_vec).collect()
        }
    };
    let (a, b) = (windows(a), windows(b));
    let both = a.intersection(&b).count();
    both as f64 / (a.len() + b.len() - both).max(1) as f64
}

/// The script of most letters: a coarse name for tables; `none` without letters.
#[must_use]
pub fn script(text: &str) -> &'static str {
    let name = |c: char| match u32::from(c) {
        0x0041..=0x024F | 0x1E00..=0x1EFF => "latin",
        0x0370..=0x03FF | 0x1F00..=0x1FFF => "greek",
        0x0400..=0x052F => "cyrillic",
        0x0590..=0x05FF => "hebrew",
        0x0600..=0x06FF | 0x0750..=0x077F => "arabic",
        0x0900..=0x097F => "devanagari",
        0x0E00..=0x0E7F => "thai",
        0x1100..=0x11FF | 0xAC00..=0xD7AF => "hangul",
        0x3040..=0x30FF => "kana",
        0x3400..=0x4DBF | 0x4E00..=0x9FFF => "han",
        _ => "other",
    };
    let mut counts = std::collections::BTreeMap::new();
    for c in text.chars().filter(|c| c.is_alphabetic()) {
        *counts.entry(name(c)).or_insert(0_usize) += 1;
    }
    // Japanese mixes Han and kana; kana decides.
    if counts.get("kana").is_some_and(|k| *k * 4 >= counts.values().sum::<usize>()) {
        return "kana";
    }
    counts.into_iter().max_by_key(|(_, n)| *n).map_or("none", |(name, _)| name)
}

/// Length buckets by characters.
pub const LENGTHS: [(&str, usize, usize); 4] =
    [("1-39", 1, 39), ("40-79", 40, 79), ("80-159", 80, 159), ("160+", 160, usize::MAX)];

/// The bucket of a text.
#[must_use]
pub fn length_bucket(text: &str) -> &'static str {
    let n = text.chars().count();
    LENGTHS.iter().find(|(_, low, high)| (*low..=*high).contains(&n)).map_or("0", |(name, _, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_and_counts() {
        assert_eq!(words("It's 3 o'clock, Ada!"), ["it", "s", "3", "o", "clock", "ada"]);
        assert_eq!(sentences("First one here. Second one here! ok."), ["First one here.", "Second one here!"]);
        assert_eq!(sentences("short"), ["short"]);
        assert!((jaccard("a b c d", "a b c e", 3) - 1.0 / 3.0).abs() < 1e-12);
        assert!((jaccard("a b", "a b", 3) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn scripts_and_lengths() {
        assert_eq!(
            ["Привет мир", "会议在周五", "会議は金曜日です", "회의", "بیت", "meeting 会", "12:30"].map(script),
            ["cyrillic", "han", "kana", "hangul", "arabic", "latin", "none"]
        );
        assert_eq!(["a", &"a".repeat(40), &"a".repeat(160)].map(length_bucket), ["1-39", "40-79", "160+"]);
    }
}
