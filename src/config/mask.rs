//! Secrets never reach a reader: the values in use are remembered and replaced wherever this process writes
//! text that others made (client errors, log lines, panics).

use std::borrow::Cow;
use std::sync::{PoisonError, RwLock};

/// Stands for a secret.
pub const MASK: &str = "****";

/// Shorter values would hide ordinary words; they are masked by key only.
const SHORTEST: usize = 4;

/// A line of a PEM block that gives something away.
const PEM_LINE: usize = 16;

static IN_USE: RwLock<Vec<String>> = RwLock::new(Vec::new());

/// Hides this value from now on; a value of many lines (PEM) also line by line.
pub(super) fn remember(secret: &str) {
    let lines = secret.lines().filter(|l| l.len() >= PEM_LINE && !l.starts_with("-----"));
    let mut known = IN_USE.write().unwrap_or_else(PoisonError::into_inner);
    for part in std::iter::once(secret).chain(lines).filter(|s| s.len() >= SHORTEST) {
        if !known.iter().any(|k| k == part) {
            known.push(part.to_owned());
        }
    }
    // A secret that holds another one goes first.
    known.sort_by_key(|k| std::cmp::Reverse(k.len()));
}

/// The text without the secrets in use.
#[must_use]
pub fn mask(text: &str) -> Cow<'_, str> {
    hide(text, &IN_USE.read().unwrap_or_else(PoisonError::into_inner))
}

/// The text without these secrets.
pub(super) fn hide<'a>(text: &'a str, secrets: &[String]) -> Cow<'a, str> {
    let mut out = Cow::Borrowed(text);
    for secret in secrets.iter().filter(|s| s.len() >= SHORTEST) {
        if out.contains(secret.as_str()) {
            out = Cow::Owned(out.replace(secret.as_str(), MASK));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hides_whole_values_and_lines_of_pem() {
        remember("hunter2-hunter2");
        remember("-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49\n-----END PRIVATE KEY-----");
        remember("abc");
        assert_eq!(mask("password hunter2-hunter2."), "password ****.");
        assert_eq!(mask("in a log: MIGHAgEAMBMGByqGSM49\\n"), "in a log: ****\\n");
        assert!(matches!(mask("abc"), Cow::Borrowed("abc")), "too short to tell from a word");
    }
}
