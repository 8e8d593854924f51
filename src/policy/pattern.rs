//! Name patterns: `*` stands for any run of characters, everything else for itself.

/// A compiled pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pattern {
    /// `*`.
    Any,
    /// No `*`.
    Exact(Box<str>),
    /// One `*`, at the end.
    Prefix(Box<str>),
    /// What stands between the `*`; the first and the last are anchored.
    Parts(Box<[Box<str>]>),
}

impl Pattern {
    /// Compiles; every text is a pattern.
    pub(super) fn new(text: &str) -> Self {
        let parts: Vec<&str> = text.split('*').collect();
        match parts.as_slice() {
            [one] => Pattern::Exact((*one).into()),
            ["", ""] => Pattern::Any,
            [head, ""] => Pattern::Prefix((*head).into()),
            parts => Pattern::Parts(parts.iter().map(|p| Box::from(*p)).collect()),
        }
    }

    /// Whether a name fits.
    pub(super) fn matches(&self, name: &str) -> bool {
        match self {
            Pattern::Any => true,
            Pattern::Exact(exact) => **exact == *name,
            Pattern::Prefix(head) => name.starts_with(&**head),
            Pattern::Parts(parts) => anchored(parts, name),
        }
    }
}

fn anchored(parts: &[Box<str>], name: &str) -> bool {
    let [head, middle @ .., tail] = parts else { return false };
    let Some(mut rest) = name.strip_prefix(&**head).and_then(|rest| rest.strip_suffix(&**tail)) else {
        return false;
    };
    for part in middle {
        let Some(at) = rest.find(&**part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

/// A list of patterns: empty fits everything.
pub(super) fn any(patterns: &[Pattern], name: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|p| p.matches(name))
}

/// The same for a name that may be absent: only the empty list fits then.
pub(super) fn any_of(patterns: &[Pattern], name: Option<&str>) -> bool {
    patterns.is_empty() || name.is_some_and(|name| any(patterns, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stars_stand_for_any_run() {
        for (pattern, name, wanted) in [
            ("*", "", true),
            ("acme", "acme", true),
            ("acme", "acme2", false),
            ("acme-*", "acme-eu", true),
            ("acme-*", "acme", false),
            ("*/extractor@*", "bot/extractor@3", true),
            ("*/extractor@*", "bot/extractor", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("**", "x", true),
        ] {
            assert_eq!(Pattern::new(pattern).matches(name), wanted, "{pattern} {name}");
        }
        assert!(any_of(&[], None) && !any_of(&[Pattern::Any], None));
    }

    /// Written out, step by step: what is compiled must agree.
    fn slow(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), _) => slow(rest, name) || name.split_first().is_some_and(|(_, n)| slow(pattern, n)),
            (Some((p, rest)), Some((n, more))) => p == n && slow(rest, more),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn compiled_patterns_are_globs(pattern in "[ab*]{0,8}", name in "[ab]{0,10}") {
            prop_assert_eq!(Pattern::new(&pattern).matches(&name), slow(pattern.as_bytes(), name.as_bytes()));
        }
    }
}
