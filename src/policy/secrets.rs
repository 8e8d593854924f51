//! Credentials by their shape: keys and tokens that their issuers gave a prefix, private keys, passwords in addresses.
//! A word such as "password" is none: see the class `credential`.

use std::sync::LazyLock;

use regex::Regex;

/// Lengths are the shortest that issuers give. `sk-` takes five words with dashes too: rare, and only held.
const SHAPES: &str = concat!(
    r"\b(?:",
    r"(?:AKIA|ASIA)[0-9A-Z]{16}",
    r"|gh[opsur]_[0-9A-Za-z]{36}",
    r"|github_pat_[0-9A-Za-z_]{22}",
    r"|glpat-[0-9A-Za-z_-]{20}",
    r"|sk-[0-9A-Za-z_-]{20}",
    r"|[rs]k_live_[0-9A-Za-z]{16}",
    r"|xox[abeoprs]-[0-9A-Za-z-]{10}",
    r"|AIza[0-9A-Za-z_-]{35}",
    r"|hf_[0-9A-Za-z]{30}",
    r"|npm_[0-9A-Za-z]{36}",
    r"|eyJ[0-9A-Za-z_-]{8,}\.eyJ[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]{8,}",
    r")",
    r"|-----BEGIN [A-Z ]{0,32}PRIVATE KEY",
    r"|://[^\s/:@]{1,64}:[^\s/:@]{1,128}@",
);

static SECRETS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(SHAPES).ok());

/// How many stand in a text, at most `limit`.
pub(super) fn count(text: &str, limit: usize) -> usize {
    SECRETS.as_ref().map_or(0, |shapes| shapes.find_iter(text).take(limit).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_found() {
        let long = "a1B2".repeat(12);
        for text in [
            "Access key is AKIAIOSFODNN7EXAMPLE for the prod account.".to_owned(),
            format!("Use token ghp_{} to push.", &long[..36]),
            format!("github_pat_{}", &long[..22]),
            format!("glpat-{}", &long[..20]),
            format!("OPENAI_API_KEY=sk-proj-{}", &long[..20]),
            format!("sk_live_{}", &long[..16]),
            "xoxb-1234567890-abc".to_owned(),
            format!("AIza{}", &long[..35]),
            format!("hf_{}", &long[..30]),
            format!("npm_{}", &long[..36]),
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl".to_owned(),
            "-----BEGIN RSA PRIVATE KEY-----".to_owned(),
            "-----BEGIN PRIVATE KEY-----".to_owned(),
            "postgresql://admin:hunter2@prod-db.internal:5432/users".to_owned(),
        ] {
            assert_eq!(count(&text, 9), 1, "{text}");
        }
        assert_eq!(count(&"AKIAIOSFODNN7EXAMPLE ".repeat(5), 3), 3);
    }

    /// Talk about secrets, and what only looks like one.
    #[test]
    fn words_and_lookalikes_are_none() {
        for text in [
            "The password is in the safe; rotate the API key each quarter.",
            "https://example.org/a:b@c and mail bob@example.org",
            "ssh://git@example.org:22/repo",
            "task-management-for-small-teams-in-2026",
            "sk-learn is imported as sklearn",
            "The AKIA prefix marks long-lived keys.",
            "eyJ is how a JWT begins",
            "-----BEGIN CERTIFICATE-----",
            "",
        ] {
            assert_eq!(count(text, 9), 0, "{text}");
        }
    }
}
