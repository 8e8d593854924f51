//! `policy.yaml` to a checked policy.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::{Mode, PolicyFile, Ready, Rule, Trust};
use crate::clock::{Millis, parse_rfc3339};
use crate::error::{Code, Error, Result};
use crate::schema::Origin;
use crate::topology::Role;

const SAMPLE: &str = include_str!("../../topology/policy.yaml");

/// A checked policy.
#[derive(Debug, Clone)]
pub struct Policy {
    trust: BTreeMap<String, Trust>,
    ttl_default: Millis,
    ttl_cap: Millis,
    ttl_untrusted_cap: Millis,
    untrusted: Vec<Origin>,
    rules: Vec<Ready>,
    hash: String,
}

impl Policy {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// `file_unreadable`, `policy_invalid`.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::with(Code::FileUnreadable, format!("can't read {}", path.display()), e))?;
        Self::parse(&text)
    }

    /// The sample of the repository.
    ///
    /// # Errors
    /// None that a test hasn't ruled out.
    pub fn sample() -> Result<Self> {
        Self::parse(SAMPLE)
    }

    /// Parses and checks.
    ///
    /// # Errors
    /// `policy_invalid`.
    pub fn parse(text: &str) -> Result<Self> {
        let file: PolicyFile = serde_yaml_ng::from_str(text)
            .map_err(|e| Error::with(Code::PolicyInvalid, "policy.yaml can't be parsed", e))?;
        let normal =
            serde_json::to_vec(&file).map_err(|e| Error::with(Code::Internal, "the policy can't be hashed", e))?;
        let inputs = [Role::MemoryWrites.as_str(), Role::RetrievalLogs.as_str()];
        if let Some(other) = file.trust.keys().find(|k| !inputs.contains(&k.as_str())) {
            return Err(Error::new(Code::PolicyInvalid, format!("trust names '{other}', which is no input topic")));
        }
        let mut names = BTreeSet::new();
        for rule in &file.rules {
            if !crate::schema::valid_part(&rule.name) || !names.insert(&rule.name) || rule.name == super::CROSS_BOUNDARY
            {
                return Err(Error::new(
                    Code::PolicyInvalid,
                    format!("rule name '{}' is taken or not a valid name", rule.name),
                ));
            }
        }
        let policy = Self {
            ttl_default: millis(&file.ttl.default, "ttl.default")?,
            ttl_cap: millis(&file.ttl.cap, "ttl.cap")?,
            ttl_untrusted_cap: millis(&file.ttl.untrusted_cap, "ttl.untrusted_cap")?,
            untrusted: file.ttl.untrusted,
            trust: file.trust,
            rules: file.rules.into_iter().filter(|r| r.mode != Mode::Off).map(ready).collect::<Result<_>>()?,
            hash: hex::encode(&Sha256::digest(normal)[..8]),
        };
        Ok(policy)
    }

    /// SHA-256 of the normal form, hex, first 16 digits.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Whether a rule holds or blocks writes.
    #[must_use]
    pub fn enforces(&self) -> bool {
        self.rules.iter().any(super::Ready::enforces)
    }

    /// The mapping of a topic role.
    #[must_use]
    pub fn trust(&self, topic: &str) -> Option<&Trust> {
        self.trust.get(topic)
    }

    /// Whether the producers of a topic are known to speak for a tenant.
    #[must_use]
    pub fn vouches(&self, topic: &str, tenant: &str) -> bool {
        self.trust(topic).is_some_and(|t| t.tenants.iter().any(|x| x == "*" || x == tenant))
    }

    pub(super) fn rules(&self) -> &[Ready] {
        &self.rules
    }

    /// Default and cap, ms.
    pub(super) fn ttl(&self, origin: Origin) -> (Millis, Millis) {
        let cap = if self.untrusted.contains(&origin) { self.ttl_untrusted_cap } else { self.ttl_cap };
        (self.ttl_default, cap)
    }
}

fn ready(rule: Rule) -> Result<Ready> {
    let expires = rule
        .expires
        .as_deref()
        .map(|t| {
            parse_rfc3339(t)
                .ok_or_else(|| Error::new(Code::PolicyInvalid, format!("rule {}: expires is not RFC 3339", rule.name)))
        })
        .transpose()?;
    Ok(Ready {
        verdict: rule.action.verdict(),
        shadow: rule.mode == Mode::Shadow,
        name: rule.name,
        when: rule.when,
        expires,
    })
}

fn millis(text: &str, name: &str) -> Result<Millis> {
    humantime::parse_duration(text)
        .ok()
        .and_then(|d| i64::try_from(d.as_millis()).ok())
        .ok_or_else(|| Error::new(Code::PolicyInvalid, format!("{name}: '{text}' is not a duration such as 30d")))
}
