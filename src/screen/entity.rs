//! Entities of a text (`hardened.md` 6.3): addresses, hosts and accounts that money or data could go to, and calls
//! and environment names.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::normal::hash;

/// What an entity is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntityKind {
    /// A mail address, lower case.
    Mail,
    /// A host, lower case.
    Host,
    /// An account, invoice or wallet number.
    Account,
    /// A called function or command.
    Call,
    /// An environment name that is assigned.
    Env,
}

impl EntityKind {
    /// The word of the study.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            EntityKind::Mail => "mail",
            EntityKind::Host => "host",
            EntityKind::Account => "acct",
            EntityKind::Call => "call",
            EntityKind::Env => "env",
        }
    }

    /// Whether something could be sent there.
    #[must_use]
    pub fn is_sink(self) -> bool {
        matches!(self, EntityKind::Mail | EntityKind::Host | EntityKind::Account)
    }
}

/// One entity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entity {
    /// What it is.
    pub kind: EntityKind,
    /// Its text.
    pub text: String,
}

impl Entity {
    /// What registries hold instead of the text.
    #[must_use]
    pub fn hash(&self) -> u64 {
        hash(&[self.kind.as_str(), &self.text])
    }
}

/// Patterns of the study; an ASCII boundary finds a URL behind a letter of any script too.
struct Patterns {
    mail: Regex,
    url: Regex,
    host: Regex,
    account: Regex,
    call: Regex,
    command: Regex,
    env: Regex,
}

static PATTERNS: LazyLock<Option<Patterns>> = LazyLock::new(|| {
    let build = |pattern: &str| regex::RegexBuilder::new(pattern).size_limit(32 << 20).build().ok();
    Some(Patterns {
        mail: build(r"(?i)[\w.+\-]+@[\w\-]+(?:\.[\w\-]+)+")?,
        url: build(
            r#"(?i)(?-u:\b)(?:[a-z][a-z0-9+.\-]{1,10}://[^\s'"<>|)]+|www\.[^\s'"<>|)]+|\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?-u:\b))"#,
        )?,
        host: build(
            r"(?i)(?:[\w&&[^_]](?:[\w&&[^_]]|-)*\.)+(?:com|net|org|io|xyz|info|biz|dev|app|ai|co|internal|example|cloud|site|online|top|ru|cn|de|fr|uk|eu)(?:$|[^\w(])",
        )?,
        account: build(
            r"(?:^|[^\w\-])([A-Z]{2,}[A-Z0-9]*(?:-[A-Z0-9]+)+|[A-Z]{2}[0-9]{2}(?:[ -]?[A-Z0-9]{2,4}){3,8}|0x[0-9a-fA-F]{8,})(?:$|[^\w\-])",
        )?,
        call: build(r"([A-Za-z_][A-Za-z0-9_.]{2,})\(")?,
        command: build(
            r"(?-u:\b)(curl|wget|bash|powershell|sudo|eval|tar|chmod|nc|ssh|scp|python|sh)(?:\s+-|\s+/|\s*\||\s+https?:)",
        )?,
        env: build(r"(?-u:\b)([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\s*=")?,
    })
});

/// Entities of a raw text.
#[must_use]
pub fn entities(text: &str) -> BTreeSet<Entity> {
    let mut found = BTreeSet::new();
    let Some(p) = PATTERNS.as_ref() else { return found };
    let mut add = |kind: EntityKind, text: &str| {
        if !text.is_empty() {
            found.insert(Entity { kind, text: text.to_owned() });
        }
    };
    let lower = |text: &str| caseless::default_case_fold_str(text);
    let mut rest = std::borrow::Cow::Borrowed(text);
    if text.contains('@') {
        p.mail.find_iter(text).for_each(|m| add(EntityKind::Mail, &lower(m.as_str())));
        rest = p.mail.replace_all(text, " ");
    }
    if may_name_host(text) {
        // Of the raw text: an address in front of a host is a user name.
        p.url.find_iter(text).for_each(|m| add(EntityKind::Host, &lower(authority(m.as_str()))));
        hosts(&p.host, &rest).for_each(|host| add(EntityKind::Host, &lower(host)));
    }
    if may_name_account(text) {
        overlapping(&p.account, text).for_each(|name| add(EntityKind::Account, name));
    }
    let first = |c: Captures<'_>| c.get(1).map_or(String::new(), |m| m.as_str().to_owned());
    if text.contains('(') {
        p.call.captures_iter(text).map(first).for_each(|name| add(EntityKind::Call, &name));
    }
    if text.bytes().any(|b| matches!(b, b'-' | b'/' | b'|' | b':')) {
        p.command.captures_iter(text).map(first).for_each(|name| add(EntityKind::Call, &name));
    }
    if text.contains('=') {
        p.env.captures_iter(text).map(first).for_each(|name| add(EntityKind::Env, &name));
    }
    found
}

/// A dot inside, or a scheme.
fn may_name_host(text: &str) -> bool {
    text.as_bytes().windows(2).any(|w| w[0] == b'.' && w[1] > b' ') || text.contains("://")
}

/// Two capitals or `0x`: every account begins so. Cheaper than the automaton, which most sentences don't need.
fn may_name_account(text: &str) -> bool {
    text.as_bytes().windows(2).any(|w| w[0].is_ascii_uppercase() && w[1].is_ascii_uppercase() || w == b"0x")
}

/// The host of a URL: no scheme, user, port or path.
fn authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let host = rest[..end].rsplit('@').next().unwrap_or_default();
    let port = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    port.map_or(host, |(host, _)| host).trim_end_matches(|c: char| !c.is_alphanumeric())
}

/// Bare names: not behind a word character, `@` or `.`.
fn hosts<'a>(pattern: &'a Regex, text: &'a str) -> impl Iterator<Item = &'a str> {
    let free = |at: usize| !text[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || "_@.".contains(c));
    let bare = |m: &str| m.trim_end_matches(|c: char| !c.is_alphanumeric()).len();
    pattern.find_iter(text).filter(move |m| free(m.start())).map(move |m| &m.as_str()[..bare(m.as_str())])
}

/// First groups of matches that may share the character between them.
fn overlapping<'a>(pattern: &'a Regex, text: &'a str) -> impl Iterator<Item = &'a str> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let group = pattern.captures_at(text, at)?.get(1)?;
        at = group.end();
        Some(group.as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> Vec<(&'static str, String)> {
        entities(text).into_iter().map(|e| (e.kind.as_str(), e.text)).collect()
    }

    #[test]
    fn entities_are_those_of_the_text() {
        let cases: [(&str, &[(&str, &str)]); 16] = [
            ("Contact Legal@Example.com.", &[("mail", "legal@example.com")]),
            ("see https://Status.example.org:8443/x?y.", &[("host", "status.example.org")]),
            ("go to https://good.com@evil.example/pay", &[("mail", "good.com@evil.example"), ("host", "evil.example")]),
            ("访问https://evil.example/a", &[("host", "evil.example")]),
            ("at www.shop.biz/now or 10.0.0.7:80", &[("host", "10.0.0.7"), ("host", "www.shop.biz")]),
            ("pandas.io( x", &[("call", "pandas.io")]),
            ("uses foo.com.bar and a_b.com", &[("host", "foo.com")]),
            ("pay NGT-PAY-01, NGT-PAY-02", &[("acct", "NGT-PAY-01"), ("acct", "NGT-PAY-02")]),
            ("pay NGT-PAY-01 NGT-PAY-02", &[("acct", "NGT-PAY-01"), ("acct", "NGT-PAY-02")]),
            ("xNGT-PAY-01 NGT-PAY-01x", &[]),
            ("IBAN DE89 3704 0044 0532 0130 00 Then", &[("acct", "DE89 3704 0044 0532 0130 00")]),
            ("wallet 0xdeadBEEF01", &[("acct", "0xdeadBEEF01")]),
            ("call build_report(month)", &[("call", "build_report")]),
            ("curl -s x | bash | sh", &[("call", "bash"), ("call", "curl")]),
            ("set API_KEY = 3", &[("env", "API_KEY")]),
            ("nothing here", &[]),
        ];
        for (text, wanted) in cases {
            let wanted: Vec<(&str, String)> = wanted.iter().map(|(k, t)| (*k, (*t).to_owned())).collect();
            assert_eq!(of(text), wanted, "{text}");
        }
    }

    proptest! {
        /// What is looked at before an automaton runs lets every match through.
        #[test]
        fn nothing_is_lost_before_the_automaton(text in "[A-C0-9x .w:/-]{0,14}(com|io)?", tail in "(sh|curl|nc)[ ]{0,2}[|/:-]?h?") {
            let p = PATTERNS.as_ref().unwrap();
            prop_assert!(may_name_host(&text) || !p.url.is_match(&text) && hosts(&p.host, &text).next().is_none());
            prop_assert!(may_name_account(&text) || overlapping(&p.account, &text).next().is_none());
            let tail = format!("{text} {tail}");
            prop_assert_eq!(p.command.is_match(&tail), entities(&tail).iter().any(|e| e.kind == EntityKind::Call));
        }
    }
}
