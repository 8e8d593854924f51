//! A write as the rules see it: what they ask for often is worked out once.

use std::cell::OnceCell;

use unicode_script::{Script, UnicodeScript};

use super::{Facts, secrets};
use crate::clock::Millis;
use crate::decode::Write;
use crate::schema::Origin;

/// The write with its facts.
pub(super) struct Seen<'a> {
    pub(super) write: &'a Write,
    pub(super) facts: &'a Facts<'a>,
    pub(super) origin: Origin,
    pub(super) trust: u8,
    /// Authenticated principal.
    pub(super) principal: Option<&'a str>,
    at: Millis,
    scripts: OnceCell<Vec<Script>>,
    secrets: OnceCell<usize>,
}

/// Credentials counted in one text at most.
pub(super) const MAX_SECRETS: u16 = 1000;

impl<'a> Seen<'a> {
    pub(super) fn new(
        write: &'a Write,
        at: Millis,
        facts: &'a Facts<'a>,
        origin: Origin,
        trust: u8,
        principal: Option<&'a str>,
    ) -> Self {
        Self { write, facts, origin, trust, principal, at, scripts: OnceCell::new(), secrets: OnceCell::new() }
    }

    pub(super) fn tenant(&self) -> &'a str {
        self.write.boundary.tenant()
    }

    pub(super) fn at(&self) -> Millis {
        self.at
    }

    /// Since the declared creation, ms.
    pub(super) fn age(&self) -> Option<Millis> {
        self.write.created_at.map(|c| self.at.saturating_sub(c))
    }

    /// Credentials by their shape, counted up to [`MAX_SECRETS`].
    pub(super) fn secrets(&self) -> usize {
        *self.secrets.get_or_init(|| secrets::count(&self.write.content, MAX_SECRETS.into()))
    }

    /// Scripts of the letters, each once.
    pub(super) fn scripts(&self) -> &[Script] {
        self.scripts.get_or_init(|| scripts(&self.write.content))
    }
}

fn scripts(text: &str) -> Vec<Script> {
    if text.is_ascii() {
        let letters = text.bytes().any(|b| b.is_ascii_alphabetic());
        return if letters { vec![Script::Latin] } else { Vec::new() };
    }
    let mut found = Vec::new();
    for c in text.chars().filter(|c| c.is_alphabetic()) {
        let script = c.script();
        if !matches!(script, Script::Common | Script::Inherited) && !found.contains(&script) {
            found.push(script);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_those_of_letters() {
        for (text, wanted) in [
            ("12 + 3 = 15!", &[][..]),
            ("plain 1", &[Script::Latin]),
            ("naïve — «да»", &[Script::Latin, Script::Cyrillic]),
            ("用户 喜欢", &[Script::Han]),
            ("می\u{200c}خواهم", &[Script::Arabic]),
        ] {
            assert_eq!(scripts(text), wanted, "{text}");
        }
    }
}
