//! Who asked, in which session, for which answer: what makes a query the cause of a write.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The first 16 bytes of SHA-256 over a name.
pub type Tag = [u8; 16];

/// The tag of a name.
#[must_use]
pub fn tag(name: &str) -> Tag {
    let digest = Sha256::digest(name.as_bytes());
    let mut out = Tag::default();
    out.copy_from_slice(&digest[..16]);
    out
}

/// What a query and a write have in common when one caused the other. All of it is claimed by producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct Keys {
    /// Principal.
    pub principal: Option<Tag>,
    /// Session.
    pub session: Option<Tag>,
    /// The agent's answer.
    pub output: Option<Tag>,
}

impl Keys {
    /// From the fields of a record.
    #[must_use]
    pub fn of(principal: Option<&str>, session: Option<&str>, output: Option<&str>) -> Self {
        Self { principal: principal.map(tag), session: session.map(tag), output: output.map(tag) }
    }

    /// Of a write; nothing where nobody vouches for its producer (`basis` is `none`).
    #[must_use]
    pub fn of_write(
        principal: &Option<String>,
        session: &Option<String>,
        output: &Option<String>,
        basis: &str,
    ) -> Self {
        if basis == "none" {
            return Self::default();
        }
        Self::of(principal.as_deref(), session.as_deref(), output.as_deref())
    }

    /// Whether a query with the keys `query` caused a write with these, or is of the same principal's session: by
    /// answer, else by session, else by principal. Nobody's query is left out by a write that names another
    /// principal.
    #[must_use]
    pub fn excludes(&self, query: &Self) -> bool {
        let same = |a: &Option<Tag>, b: &Option<Tag>| a.is_some() && a == b;
        let apart = self.principal.is_some() && query.principal.is_some() && self.principal != query.principal;
        if apart {
            return false;
        }
        let alone = self.output.is_none() && self.session.is_none();
        same(&self.output, &query.output)
            || same(&self.session, &query.session)
            || (alone && same(&self.principal, &query.principal))
    }

    /// 48 bytes; zeros stand for what is missing.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        for (at, part) in out.chunks_exact_mut(16).zip([self.principal, self.session, self.output]) {
            at.copy_from_slice(&part.unwrap_or_default());
        }
        out
    }

    /// Length of [`Keys::to_bytes`].
    pub const BYTES: usize = 48;

    /// Reads them; `None` for another length.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let part = |i: usize| -> Option<Tag> { bytes.get(16 * i..16 * (i + 1))?.try_into().ok() };
        let known = |t: Tag| (t != Tag::default()).then_some(t);
        let [principal, session, output] = [part(0)?, part(1)?, part(2)?].map(known);
        (bytes.len() == Self::BYTES).then_some(Self { principal, session, output })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(p: &str, s: &str, o: &str) -> Keys {
        let some = |x: &'static str| (!x.is_empty()).then_some(x);
        let leak = |x: &str| some(Box::leak(x.to_owned().into_boxed_str()));
        Keys::of(leak(p), leak(s), leak(o))
    }

    #[test]
    fn a_cause_is_found_by_answer_session_or_principal() {
        let query = keys("u", "s", "o");
        for (write, excluded) in [
            (keys("u", "s", "o"), true),
            (keys("u", "x", "o"), true),
            (keys("u", "s", "x"), true),
            (keys("u", "s", ""), true),
            (keys("u", "", ""), true),
            (keys("", "", "o"), true),
            // Its answer or session is named, and is another.
            (keys("u", "x", ""), false),
            (keys("u", "", "x"), false),
            // Somebody else can't take a query out.
            (keys("m", "s", "o"), false),
            (keys("m", "", ""), false),
            (keys("", "", ""), false),
        ] {
            assert_eq!(write.excludes(&query), excluded, "{write:?}");
            assert_eq!(Keys::from_bytes(&write.to_bytes()), Some(write));
        }
        assert!(!keys("", "", "").excludes(&keys("", "", "")), "nothing in common");
        assert_eq!(Keys::from_bytes(&[0; 47]), None);
    }
}
