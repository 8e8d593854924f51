//! `policy.yaml` to a checked policy.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::pattern::Pattern;
use super::{PolicyFile, Ready, Trust};
use crate::clock::{Millis, parse_rfc3339};
use crate::error::{Code, Error, Result};
use crate::schema::{Origin, valid_part};
use crate::topology::Role;

/// Reason codes that no rule may have.
const GATES: [&str; 2] = [super::CROSS_BOUNDARY, super::PROVENANCE_MISSING];

const SAMPLE: &str = include_str!("../../topology/policy.yaml");

/// A checked policy.
#[derive(Debug, Clone)]
pub struct Policy {
    trust: BTreeMap<String, Trust>,
    ttl_default: Millis,
    ttl_cap: Millis,
    ttl_untrusted_cap: Millis,
    untrusted: Vec<Origin>,
    principals: BTreeMap<String, Pattern>,
    tools: Vec<String>,
    strict: Vec<Pattern>,
    rules: Vec<Ready>,
    late: bool,
    hash: String,
}

impl Policy {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// `file_unreadable`, `policy_invalid`.
    pub fn load(path: &Path) -> Result<Self> {
        Self::parse(&read(path)?)
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
        Self::new(parse_file(text)?)
    }

    pub(super) fn new(file: PolicyFile) -> Result<Self> {
        let normal =
            serde_json::to_vec(&file).map_err(|e| Error::with(Code::Internal, "the policy can't be hashed", e))?;
        let inputs = [Role::MemoryWrites.as_str(), Role::RetrievalLogs.as_str()];
        if let Some(other) = file.trust.keys().find(|k| !inputs.contains(&k.as_str())) {
            return Err(Error::new(Code::PolicyInvalid, format!("trust names '{other}', which is no input topic")));
        }
        let mut names = BTreeSet::new();
        for rule in &file.rules {
            if !valid_part(&rule.name) || !names.insert(&rule.name) || GATES.contains(&rule.name.as_str()) {
                return Err(Error::new(
                    Code::PolicyInvalid,
                    format!("rule name '{}' is taken or not a valid name", rule.name),
                ));
            }
        }
        let named = file.tenant_modes.iter().flat_map(|m| &m.rules);
        if let Some(other) = named.into_iter().find(|r| !names.contains(r)) {
            return Err(invalid(format!("tenant_modes names '{other}', which is no rule")));
        }
        let declared = file
            .trust
            .get(Role::MemoryWrites.as_str())
            .is_some_and(|t| t.origins.iter().any(|o| *o != Origin::External));
        if !file.strict.is_empty() && !declared {
            return Err(invalid("strict: the producers of memory-writes may declare no origin".to_owned()));
        }
        names_fit(&file)?;
        let modes = &file.tenant_modes;
        let rules: Vec<Ready> = file.rules.into_iter().map(|r| Ready::new(r, modes)).collect::<Result<_>>()?;
        let principal = |(topic, t): (&String, &Trust)| Some((topic.clone(), Pattern::new(t.principal.as_deref()?)));
        let policy = Self {
            principals: file.trust.iter().filter_map(principal).collect(),
            tools: file.tools,
            strict: file.strict.iter().map(|s| Pattern::new(s)).collect(),
            late: rules.iter().any(Ready::is_late),
            ttl_default: millis(&file.ttl.default, "ttl.default")?,
            ttl_cap: millis(&file.ttl.cap, "ttl.cap")?,
            ttl_untrusted_cap: millis(&file.ttl.untrusted_cap, "ttl.untrusted_cap")?,
            untrusted: file.ttl.untrusted,
            trust: file.trust,
            rules,
            hash: hex::encode(&Sha256::digest(normal)[..8]),
        };
        Ok(policy)
    }

    /// Whether a boundary takes no write without its provenance.
    pub(super) fn is_strict(&self, boundary: &str) -> bool {
        self.strict.iter().any(|p| p.matches(boundary))
    }

    /// SHA-256 of the normal form, hex, first 16 digits.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Whether a rule holds or blocks writes.
    #[must_use]
    pub fn enforces(&self) -> bool {
        self.rules.iter().any(Ready::enforces)
    }

    /// Whether a rule asks for what is known only after scoring, so that a ruling before is not the last.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.late
    }

    /// A rule that may count and asks for what only the screen or MEMSAD finds, where that is off: it would never
    /// hold.
    #[must_use]
    pub fn blind(&self, screens: bool, memsad: bool) -> Option<&str> {
        let blind = |r: &&Ready| r.counts() && ((r.asks_screen() && !screens) || (r.asks_memsad() && !memsad));
        self.rules.iter().find(blind).map(Ready::name)
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

    pub(super) fn principals(&self, topic: &str) -> Option<&Pattern> {
        self.principals.get(topic)
    }

    pub(super) fn tools(&self) -> &[String] {
        &self.tools
    }

    /// Longest life of any memory, ms.
    pub(super) fn longest(&self) -> Millis {
        self.ttl_cap
    }

    /// Default and cap, ms.
    pub(super) fn ttl(&self, origin: Origin) -> (Millis, Millis) {
        let cap = if self.untrusted.contains(&origin) { self.ttl_untrusted_cap } else { self.ttl_cap };
        (self.ttl_default, cap)
    }
}

/// Refuses what stands where a name is meant and fits none, so that it would quietly never count.
fn names_fit(file: &PolicyFile) -> Result<()> {
    let mut tenants = file.trust.values().flat_map(|t| &t.tenants);
    if let Some(other) = tenants.find(|t| *t != "*" && !valid_part(t)) {
        return Err(invalid(format!("trust: '{other}' is no tenant, and not '*'")));
    }
    let of_rules = file.rules.iter().flat_map(|r| r.when.tenant.iter().chain(&r.when.store));
    let mut parts = of_rules.chain(file.tenant_modes.iter().map(|m| &m.tenant));
    if let Some(other) = parts.find(|p| !may_fit(p)) {
        return Err(invalid(format!("the pattern '{other}' fits no tenant and no store")));
    }
    let fits = |p: &str| match p.split_once('/') {
        Some((tenant, store)) => may_fit(tenant) && may_fit(store),
        None => p.contains('*') && may_fit(p),
    };
    match file.strict.iter().find(|p| !fits(p)) {
        Some(other) => Err(invalid(format!("strict: '{other}' fits no boundary tenant/store"))),
        None => Ok(()),
    }
}

/// Whether a tenant or store can fit a pattern.
fn may_fit(pattern: &str) -> bool {
    pattern.split('*').all(|p| p.is_empty() || valid_part(p)) && !pattern.is_empty()
}

pub(super) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|e| Error::with(Code::FileUnreadable, format!("can't read {}", path.display()), e))
}

pub(super) fn parse_file(text: &str) -> Result<PolicyFile> {
    serde_yaml_ng::from_str(text).map_err(|e| Error::with(Code::PolicyInvalid, "policy.yaml can't be parsed", e))
}

pub(super) fn invalid(what: String) -> Error {
    Error::new(Code::PolicyInvalid, what)
}

pub(super) fn time(text: &str, name: &str) -> Result<Millis> {
    parse_rfc3339(text).ok_or_else(|| invalid(format!("{name} is not RFC 3339")))
}

pub(super) fn millis(text: &str, name: &str) -> Result<Millis> {
    humantime::parse_duration(text)
        .ok()
        .and_then(|d| i64::try_from(d.as_millis()).ok())
        .ok_or_else(|| invalid(format!("{name}: '{text}' is not a duration such as 30d")))
}
