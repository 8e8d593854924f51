//! Fixtures: for each rule the writes that it must take and must not; what `policy test` goes by.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use super::file::{invalid, millis, parse_file, read};
use super::{CLASSES, Change, FLOORS, Facts, Label, Policy, Ratio, Ruling, Said, Signals, TRUSTED, change};
use crate::clock::Millis;
use crate::decode::Write;
use crate::error::{Code, Error, Result};
use crate::schema::{Boundary, Op, Origin, Verdict};
use crate::topology::Role;

/// Longest text of a fixture, and of all together, bytes.
const MAX_TEXT: usize = 4 << 20;
const MAX_TEXTS: usize = 64 << 20;

const SAMPLE: &str = include_str!("../../topology/policy.yaml");
const SAMPLE_FIXTURES: &str = include_str!("../../topology/policy.fixtures.yaml");

/// Writes for one rule.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fixtures {
    /// The rule takes these.
    pub positive: Vec<Case>,
    /// It doesn't take these.
    pub negative: Vec<Case>,
}

/// The file beside a policy: rule name to writes.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FixtureFile {
    /// By rule.
    pub rules: BTreeMap<String, Fixtures>,
}

/// A write in short, with what is known of it. What is left out: a create by `user_input` of `acme/support`, nothing
/// known.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Case {
    /// Tenant.
    pub tenant: Option<String>,
    /// Store.
    pub store: Option<String>,
    /// Record id.
    pub record: Option<String>,
    /// Operation.
    pub op: Option<Op>,
    /// Text.
    pub content: Option<String>,
    /// A text of so many letters instead.
    pub content_bytes: Option<usize>,
    /// Declared origin.
    pub origin: Option<Origin>,
    /// Claimed principal.
    pub principal: Option<String>,
    /// Component that wrote it.
    pub written_by: Option<String>,
    /// Where it came from; `tool:NAME` names a tool.
    pub source_ref: Option<String>,
    /// Since its creation, such as `3d`.
    pub age: Option<String>,
    /// Declared end after the write, such as `90d`.
    pub ttl: Option<String>,
    /// Labels of the records that it was made from.
    pub parents: Vec<u8>,
    /// It names this many more that are not known.
    pub unknown_parents: usize,
    /// Classes of wording.
    pub classes: Vec<String>,
    /// Floors of the screen.
    pub floors: Vec<String>,
    /// New mails, hosts and accounts.
    pub unseen_sinks: Option<u32>,
    /// Hidden characters.
    pub hidden: Option<u32>,
    /// The screen's p.
    pub screen_p: Option<f64>,
    /// MEMSAD's p.
    pub memsad_p: Option<f64>,
    /// Writes of today against the baseline.
    pub growth: Option<f64>,
    /// Independent domains that say the same.
    pub support: Option<u32>,
    /// What the whole policy must say of it, where that matters.
    pub verdict: Option<Verdict>,
}

/// Which list a fixture stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The rule must take it.
    Positive,
    /// The rule must not.
    Negative,
}

impl Kind {
    /// As in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Positive => "positive",
            Kind::Negative => "negative",
        }
    }
}

/// The outcome of a fixture.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Checked {
    /// The rule.
    pub rule: String,
    /// Which list.
    pub kind: Kind,
    /// Place in the list, from 1.
    pub number: usize,
    /// As wanted.
    pub passed: bool,
    /// Whether the rule takes it.
    pub takes: bool,
    /// Verdict that the fixture asks for.
    pub wanted: Option<Verdict>,
    /// What the whole policy says.
    pub said: Said,
}

/// A policy with its fixtures.
#[derive(Debug, Clone)]
pub struct Suite {
    /// The policy.
    pub policy: Policy,
    pub(super) rules: Vec<String>,
    /// Fixtures of what is no rule.
    pub(super) unknown: Vec<String>,
    given: Vec<Given>,
}

/// A fixture made ready; times are relative to the time of the test.
#[derive(Debug, Clone)]
struct Given {
    rule: String,
    kind: Kind,
    number: usize,
    write: Write,
    age: Option<Millis>,
    ttl: Option<Millis>,
    parents: Vec<Label>,
    screen: Option<Signals>,
    memsad_p: Option<Ratio>,
    growth: Option<u64>,
    support: Option<u32>,
    wanted: Option<Verdict>,
}

impl Suite {
    /// Reads a policy and its fixtures: those of `fixtures`, else of `NAME.fixtures.yaml` beside it if that is there,
    /// and those in the policy itself.
    ///
    /// # Errors
    /// `file_unreadable`, `policy_invalid`.
    pub fn load(policy: &Path, fixtures: Option<&Path>) -> Result<Self> {
        let beside = policy.with_extension("fixtures.yaml");
        let fixtures = fixtures.map(Path::to_path_buf).or_else(|| beside.exists().then_some(beside));
        let text = fixtures.as_deref().map(read).transpose()?;
        Self::parse(&read(policy)?, text.as_deref())
    }

    /// The sample of the repository.
    ///
    /// # Errors
    /// None that a test hasn't ruled out.
    pub fn sample() -> Result<Self> {
        Self::parse(SAMPLE, Some(SAMPLE_FIXTURES))
    }

    /// Parses and checks both.
    ///
    /// # Errors
    /// `policy_invalid`.
    pub fn parse(policy: &str, fixtures: Option<&str>) -> Result<Self> {
        let mut file = parse_file(policy)?;
        let mut all = fixtures.map(parse_fixtures).transpose()?.unwrap_or_default().rules;
        for rule in &mut file.rules {
            let own = std::mem::take(&mut rule.fixtures);
            let of = all.entry(rule.name.clone()).or_default();
            of.positive.extend(own.positive);
            of.negative.extend(own.negative);
        }
        let rules: Vec<String> = file.rules.iter().map(|r| r.name.clone()).collect();
        let unknown = all.keys().filter(|k| !rules.contains(k)).cloned().collect();
        let (mut given, mut texts) = (Vec::new(), 0);
        for rule in &rules {
            let Some(of) = all.get(rule) else { continue };
            for (kind, cases) in [(Kind::Positive, &of.positive), (Kind::Negative, &of.negative)] {
                for (case, number) in cases.iter().zip(1..) {
                    given.push(case.given(rule, kind, number)?);
                    texts += given.last().map_or(0, |g: &Given| g.write.content.len());
                    if texts > MAX_TEXTS {
                        return Err(invalid("the texts of the fixtures are longer than 64 MiB".to_owned()));
                    }
                }
            }
        }
        Ok(Self { policy: Policy::new(file)?, rules, given, unknown })
    }

    /// Runs every fixture at a time.
    #[must_use]
    pub fn test(&self, at: Millis) -> Vec<Checked> {
        self.given.iter().map(|g| g.check(&self.policy, at)).collect()
    }

    /// The fixtures of both policies that they treat differently.
    #[must_use]
    pub fn compare(&self, new: &Self, at: Millis) -> Vec<Change> {
        let mut seen = BTreeSet::new();
        let sides = [("old", &self.given), ("new", &new.given)];
        let all = sides.into_iter().flat_map(|(side, given)| given.iter().map(move |g| (side, g)));
        all.filter_map(|(side, g)| {
            let change = change(&g.title(side), &g.ruling(&self.policy, at), &g.ruling(&new.policy, at))?;
            // The same fixture stands on both sides as a rule.
            seen.insert((g.title(""), format!("{:?}", (&change.old, &change.new)))).then_some(change)
        })
        .collect()
    }

    /// Whether a rule has a fixture of a kind.
    pub(super) fn has(&self, rule: &str, kind: Kind) -> bool {
        self.given.iter().any(|g| g.rule == rule && g.kind == kind)
    }

    /// Whether a rule is asked about a negative fixture and leaves it; one that takes every write leaves none.
    pub(super) fn is_declined(&self, rule: &str, at: Millis) -> bool {
        let all = self.policy.rules().iter().any(|r| r.name() == rule && r.takes_all());
        let of = |g: &&Given| g.rule == rule && g.kind == Kind::Negative;
        all || self.given.iter().filter(of).any(|g| g.asked(&self.policy, at) == Some(false))
    }

    /// Rules on every fixture so many times, to be timed; the number of rulings.
    #[must_use]
    pub fn repeat(&self, at: Millis, rounds: u32) -> u64 {
        let mut rulings = 0;
        for g in &self.given {
            let (write, facts) = (g.write_at(at), g.facts());
            for _ in 0..rounds {
                std::hint::black_box(self.policy.judge(Role::MemoryWrites.as_str(), &write, at, &facts));
                rulings += 1;
            }
        }
        rulings
    }

    /// Number of rules.
    #[must_use]
    pub fn rules(&self) -> usize {
        self.rules.len()
    }

    /// Number of fixtures.
    #[must_use]
    pub fn len(&self) -> usize {
        self.given.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
    }
}

impl Given {
    fn title(&self, side: &str) -> String {
        let title = format!("fixture {} {} {}", self.rule, self.kind.as_str(), self.number);
        if side.is_empty() { title } else { format!("{title} ({side})") }
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            parents: &self.parents,
            screen: self.screen,
            memsad_p: self.memsad_p,
            growth: self.growth,
            support: self.support,
        }
    }

    fn write_at(&self, at: Millis) -> Write {
        let mut write = self.write.clone();
        write.created_at = self.age.map(|a| at.saturating_sub(a));
        write.expires_at = self.ttl.map(|t| at.saturating_add(t));
        write
    }

    fn ruling(&self, policy: &Policy, at: Millis) -> Ruling {
        policy.judge(Role::MemoryWrites.as_str(), &self.write_at(at), at, &self.facts())
    }

    fn asked(&self, policy: &Policy, at: Millis) -> Option<bool> {
        policy.asked(&self.rule, Role::MemoryWrites.as_str(), &self.write_at(at), at, &self.facts())
    }

    fn check(&self, policy: &Policy, at: Millis) -> Checked {
        let takes = self.asked(policy, at) == Some(true);
        let said = Said::of(&self.ruling(policy, at));
        let as_wanted = self.wanted.is_none_or(|v| v == said.verdict);
        Checked {
            rule: self.rule.clone(),
            kind: self.kind,
            number: self.number,
            passed: takes == (self.kind == Kind::Positive) && as_wanted,
            takes,
            wanted: self.wanted,
            said,
        }
    }
}

impl Case {
    fn given(&self, rule: &str, kind: Kind, number: usize) -> Result<Given> {
        let place = format!("fixture {rule} {} {number}", kind.as_str());
        let duration = |t: &Option<String>| t.as_deref().map(|t| millis(t, &place)).transpose();
        let screened = !(self.classes.is_empty() && self.floors.is_empty())
            || self.unseen_sinks.is_some()
            || self.hidden.is_some()
            || self.screen_p.is_some();
        let unknown = |list: &[&str], names: &[String]| names.iter().find(|n| !list.contains(&n.as_str())).cloned();
        if let Some(name) = unknown(&CLASSES, &self.classes).or_else(|| unknown(&FLOORS, &self.floors)) {
            return Err(invalid(format!("{place}: there is no class or floor '{name}'")));
        }
        let text = self.content.is_some() || self.content_bytes.is_some();
        if self.op == Some(Op::Delete) && (text || screened || self.memsad_p.is_some()) {
            return Err(invalid(format!("{place}: a delete has no text and is not scored")));
        }
        if self.content.is_some() && self.content_bytes.is_some() {
            return Err(invalid(format!("{place}: content or content_bytes, not both")));
        }
        if self.parents.iter().any(|t| *t > TRUSTED) {
            return Err(invalid(format!("{place}: the label of a parent is 0 to 3")));
        }
        let write = self.write().map_err(|e| invalid(format!("{place}: {}", e.message())))?;
        let tenants = BTreeSet::from([write.boundary.tenant().to_owned()]);
        let signals = Signals::new(
            self.classes.iter().map(String::as_str),
            self.floors.iter().map(String::as_str),
            self.unseen_sinks.unwrap_or_default(),
            self.hidden.unwrap_or_default(),
        );
        let screen = signals.with_p(self.screen_p.map(|p| ratio(p, &place)).transpose()?);
        Ok(Given {
            rule: rule.to_owned(),
            kind,
            number,
            age: duration(&self.age)?,
            ttl: duration(&self.ttl)?,
            parents: self.parents.iter().map(|t| Label { trust: *t, tenants: tenants.clone() }).collect(),
            screen: screened.then_some(screen),
            memsad_p: self.memsad_p.map(|p| ratio(p, &place)).transpose()?,
            growth: self.growth.map(|g| super::compile::thousandths(g, &place)).transpose()?,
            support: self.support,
            wanted: self.verdict,
            write,
        })
    }

    fn write(&self) -> Result<Write> {
        let or = |value: &Option<String>, default: &str| value.clone().unwrap_or_else(|| default.to_owned());
        let op = self.op.unwrap_or(Op::Create);
        let content = match self.content_bytes {
            _ if op == Op::Delete => String::new(),
            Some(n) if n <= MAX_TEXT => "x".repeat(n),
            Some(_) => return Err(invalid("content_bytes is at most 4 MiB".to_owned())),
            None => or(&self.content, "The user runs Debian 12."),
        };
        Ok(Write {
            boundary: Boundary::new(&or(&self.tenant, "acme"), &or(&self.store, "support"))?,
            record_id: or(&self.record, "m-1"),
            op,
            content,
            origin: self.origin.unwrap_or(Origin::UserInput),
            principal: self.principal.clone(),
            session_id: None,
            output_id: None,
            written_by: self.written_by.clone(),
            source_ref: self.source_ref.clone(),
            derived_from: (0..self.parents.len() + self.unknown_parents.min(1 << 16))
                .map(|i| format!("p-{i}"))
                .collect(),
            created_at: None,
            expires_at: None,
            embedding: None,
        })
    }
}

fn parse_fixtures(text: &str) -> Result<FixtureFile> {
    serde_yaml_ng::from_str(text).map_err(|e| Error::with(Code::PolicyInvalid, "the fixtures can't be parsed", e))
}

fn ratio(p: f64, place: &str) -> Result<Ratio> {
    Ok(Ratio { count: super::compile::share(p, place, "p")?, of: 1_000_000 })
}
