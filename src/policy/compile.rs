//! A rule made ready: conditions are numbers and bit masks, asked in order of their cost.

use unicode_script::Script;

use super::facts::mask;
use super::file::{invalid, millis, time};
use super::model::TenantMode;
use super::pattern::{Pattern, any, any_of};
use super::seen::{MAX_SECRETS, Seen};
use super::{CLASSES, DOMAINS, FLOORS, Mode, Rule, RuleAction, When};
use crate::clock::Millis;
use crate::error::Result;
use crate::schema::{Op, Origin, Verdict};

/// What a rule makes of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// This.
    Verdict(Verdict),
    /// Allow with so many independent domains, else quarantine.
    Corroborated(u32),
}

/// A rule ready to be asked.
#[derive(Debug, Clone)]
pub(crate) struct Ready {
    name: String,
    mode: Mode,
    expires: Option<Millis>,
    effect: Effect,
    ttl: Option<Millis>,
    modes: Vec<ModeOf>,
    when: Conditions,
}

#[derive(Debug, Clone)]
struct ModeOf {
    tenant: Pattern,
    mode: Mode,
    expires: Option<Millis>,
}

/// Empty masks and lists ask nothing.
#[derive(Debug, Clone, Default, PartialEq)]
struct Conditions {
    origins: u8,
    ops: u8,
    trust_at_most: Option<u8>,
    authenticated: Option<bool>,
    bytes_over: Option<usize>,
    age_over: Option<Millis>,
    screen: Option<Screened>,
    memsad_p: Option<u64>,
    growth_over: Option<u64>,
    tenants: Vec<Pattern>,
    stores: Vec<Pattern>,
    records: Vec<Pattern>,
    agents: Vec<Pattern>,
    principals: Vec<Pattern>,
    scripts: Vec<Script>,
    other_scripts: Vec<Script>,
    secrets: Option<u16>,
}

/// Conditions on the screen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Screened {
    classes: u16,
    floors: u16,
    unseen_sinks: Option<u32>,
    hidden: Option<u32>,
    p: Option<u64>,
}

impl Ready {
    /// # Errors
    /// `policy_invalid`.
    pub(super) fn new(rule: Rule, modes: &[TenantMode]) -> Result<Self> {
        let name = &rule.name;
        let expires = rule.expires.as_deref().map(|t| time(t, &format!("rule {name}: expires"))).transpose()?;
        let ttl = rule.ttl.as_deref().map(|t| millis(t, &format!("rule {name}: ttl"))).transpose()?;
        if rule.action == RuleAction::SetTtl && ttl.is_none() {
            return Err(invalid(format!("rule {name}: set_ttl needs ttl")));
        }
        if rule.domains.is_some_and(|n| n < DOMAINS) {
            return Err(invalid(format!("rule {name}: domains must be at least {DOMAINS}")));
        }
        if rule.domains.is_some() && rule.action != RuleAction::RequireCorroboration {
            return Err(invalid(format!("rule {name}: domains is for require_corroboration")));
        }
        let of = |m: &TenantMode| m.rules.is_empty() || m.rules.contains(name);
        let modes = modes.iter().filter(|m| of(m)).map(mode_of).collect::<Result<_>>()?;
        let effect = match rule.action {
            RuleAction::Allow | RuleAction::SetTtl => Effect::Verdict(Verdict::Allow),
            RuleAction::Redact => Effect::Verdict(Verdict::Redact),
            RuleAction::Quarantine => Effect::Verdict(Verdict::Quarantine),
            RuleAction::Block => Effect::Verdict(Verdict::Block),
            RuleAction::RequireCorroboration => Effect::Corroborated(rule.domains.unwrap_or(DOMAINS)),
        };
        let when = conditions(&rule.when, name)?;
        Ok(Self { mode: rule.mode, expires, effect, ttl, modes, when, name: rule.name })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn ttl(&self) -> Option<Millis> {
        self.ttl
    }

    /// How it counts for a tenant at a time.
    pub(super) fn mode(&self, tenant: &str, at: Millis) -> Mode {
        if self.expires.is_some_and(|e| at >= e) {
            return Mode::Off;
        }
        let there = self.modes.iter().find(|m| m.tenant.matches(tenant) && m.expires.is_none_or(|e| at < e));
        there.map_or(self.mode, |m| m.mode)
    }

    /// Its verdict on a write that fulfils its conditions.
    pub(super) fn verdict(&self, seen: &Seen<'_>) -> Verdict {
        match self.effect {
            Effect::Verdict(verdict) => verdict,
            Effect::Corroborated(n) if seen.facts.support.is_some_and(|s| s >= n) => Verdict::Allow,
            Effect::Corroborated(_) => Verdict::Quarantine,
        }
    }

    /// Whether it holds, blocks or redacts writes somewhere.
    pub(super) fn enforces(&self) -> bool {
        let somewhere = self.mode == Mode::Enforce || self.modes.iter().any(|m| m.mode == Mode::Enforce);
        somewhere && self.effect != Effect::Verdict(Verdict::Allow)
    }

    /// Whether it is asked about some tenant.
    pub(super) fn counts(&self) -> bool {
        self.mode != Mode::Off || self.modes.iter().any(|m| m.mode != Mode::Off)
    }

    pub(super) fn asks_screen(&self) -> bool {
        self.when.screen.is_some()
    }

    pub(super) fn asks_memsad(&self) -> bool {
        self.when.memsad_p.is_some()
    }

    /// What the stream doesn't do for it yet.
    pub(super) fn unmet(&self) -> Option<&'static str> {
        match self.effect {
            _ if self.when.growth_over.is_some() => {
                Some("asks for growth, which the stream doesn't know: it never holds")
            }
            Effect::Corroborated(_) => Some("asks for support, which the stream doesn't know: it holds all"),
            Effect::Verdict(Verdict::Redact) => Some("redacts, which the stream doesn't do: it holds"),
            Effect::Verdict(_) => None,
        }
    }

    /// Whether it takes every write that comes to it.
    pub(super) fn takes_all(&self) -> bool {
        self.mode == Mode::Enforce
            && self.modes.is_empty()
            && self.expires.is_none()
            && self.when == Conditions::default()
    }

    pub(super) fn is_shadow(&self) -> bool {
        self.mode == Mode::Shadow
    }

    pub(super) fn expires(&self) -> Option<Millis> {
        self.expires
    }

    /// Whether it asks for what is known only after scoring.
    pub(super) fn is_late(&self) -> bool {
        let w = &self.when;
        w.screen.is_some()
            || w.memsad_p.is_some()
            || w.growth_over.is_some()
            || w.trust_at_most.is_some()
            || matches!(self.effect, Effect::Corroborated(_))
    }

    /// Whether its conditions hold: flags and numbers first, then names, then the text.
    pub(super) fn holds(&self, seen: &Seen<'_>) -> bool {
        let w = &self.when;
        w.flags(seen) && w.numbers(seen) && w.names(seen) && w.text(seen)
    }
}

impl Conditions {
    fn flags(&self, seen: &Seen<'_>) -> bool {
        (self.origins == 0 || self.origins & origin_bit(seen.origin) != 0)
            && (self.ops == 0 || self.ops & op_bit(seen.write.op) != 0)
            && self.trust_at_most.is_none_or(|n| seen.trust <= n)
            && self.authenticated.is_none_or(|wanted| wanted == seen.principal.is_some())
    }

    fn numbers(&self, seen: &Seen<'_>) -> bool {
        let facts = seen.facts;
        self.bytes_over.is_none_or(|n| seen.write.content.len() > n)
            && self.age_over.is_none_or(|n| seen.age().is_some_and(|age| age > n))
            && self.screen.is_none_or(|s| s.holds(seen))
            && self.memsad_p.is_none_or(|n| facts.memsad_p.is_some_and(|p| p.at_most(n)))
            && self.growth_over.is_none_or(|n| facts.growth.is_some_and(|g| g > n))
    }

    fn names(&self, seen: &Seen<'_>) -> bool {
        any(&self.tenants, seen.tenant())
            && any(&self.stores, seen.write.boundary.store())
            && any(&self.records, &seen.write.record_id)
            && any_of(&self.principals, seen.principal)
            && any_of(&self.agents, seen.write.written_by.as_deref())
    }

    fn text(&self, seen: &Seen<'_>) -> bool {
        (self.scripts.is_empty() || seen.scripts().iter().any(|s| self.scripts.contains(s)))
            && (self.other_scripts.is_empty() || seen.scripts().iter().any(|s| !self.other_scripts.contains(s)))
            && self.secrets.is_none_or(|n| seen.secrets() >= usize::from(n))
    }
}

impl Screened {
    fn holds(self, seen: &Seen<'_>) -> bool {
        let Some(found) = seen.facts.screen else { return false };
        (self.classes == 0 || found.has_class(self.classes))
            && (self.floors == 0 || found.has_floor(self.floors))
            && self.unseen_sinks.is_none_or(|n| found.unseen_sinks() >= n)
            && self.hidden.is_none_or(|n| found.hidden() >= n)
            && self.p.is_none_or(|n| found.p().is_some_and(|p| p.at_most(n)))
    }
}

fn mode_of(m: &TenantMode) -> Result<ModeOf> {
    let expires = m.expires.as_deref().map(|t| time(t, "tenant_modes: expires")).transpose()?;
    Ok(ModeOf { tenant: Pattern::new(&m.tenant), mode: m.mode, expires })
}

fn conditions(w: &When, rule: &str) -> Result<Conditions> {
    if w.trust_at_most.is_some_and(|n| n > super::TRUSTED) {
        return Err(invalid(format!("rule {rule}: trust_at_most is 0 to 3")));
    }
    if w.secrets_at_least.is_some_and(|n| !(1..=MAX_SECRETS).contains(&n)) {
        return Err(invalid(format!("rule {rule}: secrets_at_least is 1 to {MAX_SECRETS}")));
    }
    if w.record.iter().any(String::is_empty) {
        return Err(invalid(format!("rule {rule}: an empty pattern fits no record")));
    }
    let place = format!("rule {rule}");
    let age = w.age_over.as_deref().map(|t| millis(t, &format!("rule {rule}: age_over"))).transpose()?;
    let screen = Screened {
        classes: mask(&CLASSES, known(&CLASSES, &w.classes, rule, "class")?),
        floors: mask(&FLOORS, known(&FLOORS, &w.floors, rule, "floor")?),
        unseen_sinks: w.unseen_sinks_at_least,
        hidden: w.hidden_at_least,
        p: w.screen_p_at_most.map(|p| share(p, &place, "screen_p_at_most")).transpose()?,
    };
    let patterns = |texts: &[String]| texts.iter().map(|t| Pattern::new(t)).collect();
    Ok(Conditions {
        origins: w.origin.iter().fold(0, |all, o| all | origin_bit(*o)),
        ops: w.op.iter().fold(0, |all, o| all | op_bit(*o)),
        trust_at_most: w.trust_at_most,
        authenticated: w.authenticated,
        bytes_over: w.content_bytes_over,
        age_over: age,
        screen: (screen != Screened::default()).then_some(screen),
        memsad_p: w.memsad_p_at_most.map(|p| share(p, &place, "memsad_p_at_most")).transpose()?,
        growth_over: w.growth_over.map(|g| thousandths(g, &place)).transpose()?,
        tenants: patterns(&w.tenant),
        stores: patterns(&w.store),
        records: patterns(&w.record),
        agents: patterns(&w.agent),
        principals: patterns(&w.principal),
        scripts: scripts(&w.script, rule)?,
        other_scripts: scripts(&w.script_other_than, rule)?,
        secrets: w.secrets_at_least,
    })
}

fn known<'a>(
    list: &[&str],
    names: &'a [String],
    rule: &str,
    what: &str,
) -> Result<impl Iterator<Item = &'a str> + use<'a>> {
    match names.iter().find(|n| !list.contains(&n.as_str())) {
        Some(other) => Err(invalid(format!("rule {rule}: there is no {what} '{other}', only {}", list.join(", ")))),
        None => Ok(names.iter().map(String::as_str)),
    }
}

fn scripts(names: &[String], rule: &str) -> Result<Vec<Script>> {
    let script = |n: &String| {
        let found = Script::from_full_name(n).or_else(|| Script::from_short_name(n));
        let found = found.filter(|s| !matches!(s, Script::Common | Script::Inherited | Script::Unknown));
        found.ok_or_else(|| invalid(format!("rule {rule}: '{n}' is no script of Unicode")))
    };
    names.iter().map(script).collect()
}

/// A share as millionths.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // the range is checked
pub(super) fn share(value: f64, rule: &str, what: &str) -> Result<u64> {
    if !(0.0..=1.0).contains(&value) {
        return Err(invalid(format!("{rule}: {what} is 0 to 1")));
    }
    Ok((value * 1e6).round() as u64)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // the range is checked
pub(super) fn thousandths(value: f64, rule: &str) -> Result<u64> {
    if !(0.0..=1e12).contains(&value) {
        return Err(invalid(format!("{rule}: growth is 0 or more")));
    }
    Ok((value * 1e3).round() as u64)
}

fn origin_bit(origin: Origin) -> u8 {
    match origin {
        Origin::UserInput => 1,
        Origin::System => 2,
        Origin::AgentGenerated => 4,
        Origin::ToolOutput => 8,
        Origin::Retrieved => 16,
        Origin::External => 32,
    }
}

fn op_bit(op: Op) -> u8 {
    match op {
        Op::Create => 1,
        Op::Update => 2,
        Op::Delete => 4,
    }
}
