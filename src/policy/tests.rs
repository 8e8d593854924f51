//! Rules: each condition, each action, each mode, their order, and the cost.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::error::Code;
use crate::schema::Boundary;

mod suite;

const TOPIC: &str = "memory-writes";
/// 2026-11-30.
const AT: Millis = 1_796_000_000_000;
const DAY: Millis = 86_400_000;

const HEAD: &str = "
trust:
  memory-writes: { tenants: ['*'], origins: [user_input, system, agent_generated, tool_output, retrieved], principal: 'svc-*' }
ttl: { default: 365d, cap: 730d, untrusted_cap: 30d, untrusted: [retrieved, external] }
tools: [crm.lookup]
";

fn policy(rest: &str) -> Policy {
    Policy::parse(&format!("{HEAD}{rest}")).unwrap_or_else(|e| panic!("{rest}: {e}"))
}

fn write(origin: Origin) -> Write {
    Write {
        boundary: Boundary::new("acme", "support").unwrap(),
        record_id: "m-1".to_owned(),
        op: Op::Create,
        content: "The user runs Debian 12.".to_owned(),
        origin,
        principal: Some("svc-crm".to_owned()),
        session_id: None,
        output_id: None,
        written_by: Some("bot/extractor@3".to_owned()),
        source_ref: None,
        derived_from: Vec::new(),
        created_at: Some(AT - 2 * DAY),
        expires_at: None,
        embedding: None,
    }
}

fn of(trust: u8) -> Label {
    Label { trust, tenants: BTreeSet::from(["acme".to_owned()]) }
}

fn facts() -> Facts<'static> {
    let screen = Signals::new(["secrecy", "universal"], ["payload"], 2, 3).with_p(Some(Ratio { count: 1, of: 100 }));
    Facts {
        parents: &[],
        screen: Some(screen),
        memsad_p: Some(Ratio { count: 5, of: 1000 }),
        growth: Some(6000),
        support: Some(2),
    }
}

/// Each condition holds for the write above and, with the other value, does not; without facts none about them holds.
#[test]
fn conditions_one_by_one() {
    for (yes, no, by_facts) in [
        ("origin: [user_input, system]", "origin: [retrieved]", false),
        ("op: [create]", "op: [update, delete]", false),
        ("tenant: [acme]", "tenant: [acm]", false),
        ("tenant: ['ac*']", "tenant: ['*x']", false),
        ("store: [support, sales]", "store: [sales]", false),
        ("record: ['m-*', x]", "record: [m]", false),
        ("agent: ['*/extractor@*']", "agent: [bot]", false),
        ("principal: ['svc-c*']", "principal: ['svc-d*']", false),
        ("authenticated: true", "authenticated: false", false),
        ("trust_at_most: 3", "trust_at_most: 2", false),
        ("content_bytes_over: 23", "content_bytes_over: 24", false),
        ("age_over: 47h", "age_over: 2d", false),
        ("script: [Latin]", "script: [Cyrillic, Han]", false),
        ("script_other_than: [Han]", "script_other_than: [Latn]", false),
        ("classes: [secrecy, agent]", "classes: [agent]", true),
        ("floors: [payload]", "floors: [drift]", true),
        ("unseen_sinks_at_least: 2", "unseen_sinks_at_least: 3", true),
        ("hidden_at_least: 3", "hidden_at_least: 4", true),
        ("screen_p_at_most: 0.01", "screen_p_at_most: 0.009999", true),
        ("memsad_p_at_most: 0.005", "memsad_p_at_most: 0.0049", true),
        ("growth_over: 5.999", "growth_over: 6", true),
    ] {
        for (when, wanted) in [(yes, true), (no, false)] {
            let p = policy(&format!("rules: [{{ name: r, action: block, when: {{ {when} }} }}]"));
            let blocked = |f: &Facts<'_>| p.judge(TOPIC, &write(Origin::UserInput), AT, f).verdict == Verdict::Block;
            assert_eq!(blocked(&facts()), wanted, "{when}");
            assert_eq!(blocked(&Facts::default()), wanted && !by_facts, "{when} without facts");
            assert_eq!(p.is_late(), by_facts || when.contains("trust"), "{when}");
        }
    }
}

/// Credentials are counted in the text itself.
#[test]
fn credentials_are_counted_where_a_rule_asks() {
    let p = policy("rules: [{ name: r, action: block, when: { secrets_at_least: 2 } }]");
    let mut w = write(Origin::UserInput);
    for (keys, verdict) in [(0, Verdict::Allow), (1, Verdict::Allow), (2, Verdict::Block), (3, Verdict::Block)] {
        w.content = "key AKIAIOSFODNN7EXAMPLE. ".repeat(keys);
        assert_eq!(p.rule(TOPIC, &w, AT).verdict, verdict, "{keys}");
    }
    assert!(!p.is_late());
}

/// Of one unmet condition no number of met ones makes up.
#[test]
fn all_conditions_must_hold() {
    let both = policy("rules: [{ name: r, action: block, when: { op: [create], origin: [system] } }]");
    assert_eq!(both.rule(TOPIC, &write(Origin::UserInput), AT).verdict, Verdict::Allow);
    assert_eq!(both.rule(TOPIC, &write(Origin::System), AT).verdict, Verdict::Block);
}

#[test]
fn absent_names_fulfil_no_condition() {
    let mut w = write(Origin::UserInput);
    (w.principal, w.written_by, w.created_at) = (None, None, None);
    for when in ["principal: ['*']", "agent: ['*']", "age_over: 0s", "authenticated: true"] {
        let p = policy(&format!("rules: [{{ name: r, action: block, when: {{ {when} }} }}]"));
        assert_eq!(p.rule(TOPIC, &w, AT).verdict, Verdict::Allow, "{when}");
    }
    // A claim that the mapping doesn't vouch for authenticates nobody.
    w.principal = Some("eve".to_owned());
    let p = policy("rules: [{ name: r, action: quarantine, when: { authenticated: false } }]");
    assert_eq!(p.rule(TOPIC, &w, AT).verdict, Verdict::Quarantine);
    let unmapped = Policy::parse(&format!(
        "{}rules: [{{ name: r, action: block, when: {{ authenticated: true }} }}]",
        HEAD.replace(", principal: 'svc-*'", "")
    ))
    .unwrap();
    assert_eq!(unmapped.rule(TOPIC, &write(Origin::UserInput), AT).verdict, Verdict::Allow);
}

#[test]
fn actions_and_their_reasons() {
    for (action, support, verdict, expires) in [
        ("allow", None, Verdict::Allow, 365),
        ("redact", None, Verdict::Redact, 365),
        ("quarantine", None, Verdict::Quarantine, 365),
        ("block", None, Verdict::Block, 365),
        ("set_ttl, ttl: 7d", None, Verdict::Allow, 7),
        ("quarantine, ttl: 7d", None, Verdict::Quarantine, 7),
        ("allow, ttl: 9999d", None, Verdict::Allow, 365),
        ("require_corroboration", None, Verdict::Quarantine, 365),
        ("require_corroboration", Some(1), Verdict::Quarantine, 365),
        ("require_corroboration", Some(2), Verdict::Allow, 365),
        ("require_corroboration, domains: 3", Some(2), Verdict::Quarantine, 365),
        ("require_corroboration, domains: 3", Some(3), Verdict::Allow, 365),
    ] {
        let p = policy(&format!("rules: [{{ name: r, action: {action} }}, {{ name: late, action: block }}]"));
        let ruling = p.judge(TOPIC, &write(Origin::UserInput), AT, &Facts { support, ..Facts::default() });
        assert_eq!((ruling.verdict, ruling.expires_at), (verdict, Some(AT + expires * DAY)), "{action} {support:?}");
        assert_eq!(reason(&ruling), "policy:r");
    }
    assert_eq!(reason(&policy("rules: []").rule(TOPIC, &write(Origin::UserInput), AT)), "policy:default");
}

#[test]
fn a_ttl_shortens_and_never_lengthens() {
    let p = policy("rules: [{ name: r, action: set_ttl, ttl: 60d }]");
    let mut w = write(Origin::Retrieved);
    assert_eq!(p.rule(TOPIC, &w, AT).expires_at, Some(AT + 30 * DAY), "the cap of untrusted origins");
    w.expires_at = Some(AT + DAY);
    assert_eq!(p.rule(TOPIC, &w, AT).expires_at, Some(AT + DAY), "what it declared");
    w.op = Op::Delete;
    assert_eq!(p.rule(TOPIC, &w, AT).expires_at, None);
}

/// Modes of rule and tenant, and their ends, which are exclusive.
#[test]
fn modes_and_their_ends() {
    let end = crate::clock::rfc3339(AT);
    for (mode, verdict, shadow) in [
        ("".to_owned(), Verdict::Block, false),
        (", mode: enforce".to_owned(), Verdict::Block, false),
        (", mode: shadow".to_owned(), Verdict::Allow, true),
        (", mode: off".to_owned(), Verdict::Allow, false),
        (format!(", expires: '{end}'"), Verdict::Allow, false),
        (format!(", mode: shadow, expires: '{end}'"), Verdict::Allow, false),
    ] {
        let p = policy(&format!("rules: [{{ name: r, action: block{mode} }}]"));
        let ruling = p.rule(TOPIC, &write(Origin::UserInput), AT);
        assert_eq!((ruling.verdict, ruling.shadow.len()), (verdict, usize::from(shadow)), "{mode}");
        let before = p.rule(TOPIC, &write(Origin::UserInput), AT - 1);
        assert!(!mode.contains("expires") || before.verdict == Verdict::Block || !before.shadow.is_empty(), "{mode}");
    }
    for (modes, own, verdict, shadow) in [
        ("{ tenant: acme, mode: shadow }", "enforce", Verdict::Allow, 1),
        ("{ tenant: acme, mode: 'off' }", "enforce", Verdict::Allow, 0),
        ("{ tenant: 'a*', mode: enforce }", "off", Verdict::Block, 0),
        ("{ tenant: globex, mode: 'off' }", "enforce", Verdict::Block, 0),
        ("{ tenant: acme, rules: [r], mode: shadow }", "enforce", Verdict::Allow, 1),
        ("{ tenant: acme, rules: [other], mode: shadow }", "enforce", Verdict::Block, 0),
        (&format!("{{ tenant: acme, mode: shadow, expires: '{end}' }}"), "enforce", Verdict::Block, 0),
        ("{ tenant: acme, mode: 'off' }, { tenant: '*', mode: enforce }", "shadow", Verdict::Allow, 0),
    ] {
        let p = policy(&format!(
            "rules: [{{ name: r, action: block, mode: '{own}' }}, {{ name: other, action: allow }}]\ntenant_modes: [{modes}]"
        ));
        let ruling = p.rule(TOPIC, &write(Origin::UserInput), AT);
        assert_eq!((ruling.verdict, ruling.shadow.len()), (verdict, shadow), "{modes} over {own}");
    }
    assert!(
        policy("rules: [{ name: r, action: block, mode: off }]\ntenant_modes: [{ tenant: a, mode: enforce }]")
            .enforces()
    );
    assert!(!policy("rules: [{ name: r, action: block, mode: off }]").enforces());
}

#[test]
fn a_shadow_ttl_is_seen_and_changes_nothing() {
    let p = policy(
        "rules: [{ name: short, action: set_ttl, ttl: 1d, mode: shadow }, { name: r, action: allow, mode: shadow }]",
    );
    let ruling = p.rule(TOPIC, &write(Origin::UserInput), AT);
    assert_eq!((ruling.shadow, ruling.expires_at), (vec!["short".to_owned()], Some(AT + 365 * DAY)));
    let sooner = Write { expires_at: Some(AT + DAY), ..write(Origin::UserInput) };
    assert!(p.rule(TOPIC, &sooner, AT).shadow.is_empty(), "it would have shortened nothing");
    let delete = Write { op: Op::Delete, ..write(Origin::UserInput) };
    assert!(p.rule(TOPIC, &delete, AT).shadow.is_empty(), "a delete has no end");
}

/// What a topic may not declare is external and has label 0; a tool counts when it is listed and its input trusted.
#[test]
fn labels_follow_the_effective_origin() {
    let p = policy("rules: []");
    let made = |origin, source: Option<&str>, parents: &[u8]| {
        let mut w = write(origin);
        w.source_ref = source.map(str::to_owned);
        w.derived_from = parents.iter().map(ToString::to_string).collect();
        let parents: Vec<Label> = parents.iter().map(|t| of(*t)).collect();
        p.label(TOPIC, &w, &parents).trust
    };
    assert_eq!(made(Origin::UserInput, None, &[]), 3);
    assert_eq!(made(Origin::ToolOutput, Some("tool:crm.lookup"), &[3]), 2);
    assert_eq!(made(Origin::ToolOutput, Some("tool:web.fetch"), &[3]), 0);
    assert_eq!(made(Origin::ToolOutput, Some("crm.lookup"), &[3]), 0);
    assert_eq!(made(Origin::ToolOutput, Some("tool:crm.lookup"), &[3, 0]), 0);
    assert_eq!(made(Origin::AgentGenerated, None, &[2, 3]), 2);
    assert_eq!(p.label("retrieval-logs", &write(Origin::UserInput), &[]).trust, 0, "no mapping");
}

#[test]
fn a_low_label_is_a_condition_whatever_the_word() {
    let p = policy("rules: [{ name: laundered, action: quarantine, when: { trust_at_most: 1 } }]");
    let mut w = write(Origin::AgentGenerated);
    assert_eq!(p.rule(TOPIC, &w, AT).verdict, Verdict::Quarantine, "an agent's text without a parent");
    w.derived_from = vec!["a".to_owned(), "b".to_owned()];
    let verdict = |parents: &[Label]| p.judge(TOPIC, &w, AT, &Facts { parents, ..Facts::default() }).verdict;
    assert_eq!(verdict(&[of(3), of(2)]), Verdict::Allow);
    assert_eq!(verdict(&[of(3), of(0)]), Verdict::Quarantine);
    assert_eq!(verdict(&[of(3)]), Verdict::Quarantine, "one parent is unknown");
}

/// R1, R4: the gate comes before every rule and has no mode.
#[test]
fn another_tenant_is_refused_before_any_rule() {
    let p = Policy::parse(
        &format!("{HEAD}rules: [{{ name: r, action: allow }}]\ntenant_modes: [{{ tenant: '*', mode: 'off' }}]")
            .replace("['*']", "[globex]"),
    )
    .unwrap();
    let ruling = p.rule(TOPIC, &write(Origin::UserInput), AT);
    assert_eq!((ruling.verdict, ruling.rule.as_deref()), (Verdict::Block, Some(CROSS_BOUNDARY)));
    let all = policy("rules: [{ name: r, action: allow }]");
    let foreign = [Label { trust: 3, tenants: BTreeSet::from(["globex".to_owned()]) }];
    let merged = all.judge(TOPIC, &write(Origin::System), AT, &Facts { parents: &foreign, ..Facts::default() });
    assert_eq!((merged.verdict, merged.rule.as_deref()), (Verdict::Block, Some(CROSS_BOUNDARY)));
}

/// R5: into a strict boundary nothing comes without its provenance, and every field that lacks is named.
#[test]
fn a_strict_boundary_refuses_what_says_nothing_of_its_source() {
    let p = policy("rules: [{ name: r, action: allow }]\nstrict: ['acme/*']");
    let ruled = |w: &Write| p.rule(TOPIC, w, AT);
    let whole = |origin| Write { source_ref: Some("ticket:881".to_owned()), ..write(origin) };
    for origin in [Origin::UserInput, Origin::System, Origin::AgentGenerated, Origin::ToolOutput, Origin::Retrieved] {
        assert_eq!(ruled(&whole(origin)).verdict, Verdict::Allow, "{origin:?}");
        let bare = Write { source_ref: None, written_by: None, created_at: None, ..whole(origin) };
        let ruling = ruled(&bare);
        assert_eq!((ruling.verdict, ruling.rule.as_deref()), (Verdict::Block, Some(PROVENANCE_MISSING)));
        let said = matches!(origin, Origin::UserInput | Origin::System);
        let wanted = if said { &["written_by", "created_at"][..] } else { &["source_ref", "written_by", "created_at"] };
        assert_eq!(ruling.missing, wanted, "{origin:?}");
    }
    assert_eq!(ruled(&whole(Origin::External)).missing, ["origin"], "no origin, or one that the topic may not declare");
    for blank in ["", " \t"].map(|b| Some(b.to_owned())) {
        let blanks = Write { source_ref: blank.clone(), written_by: blank, ..whole(Origin::ToolOutput) };
        assert_eq!(ruled(&blanks).missing, ["source_ref", "written_by"], "a blank word says nothing");
    }
    let of_nothing = Write { derived_from: vec!["a".to_owned(), String::new()], ..write(Origin::AgentGenerated) };
    assert_eq!(ruled(&of_nothing).missing, ["source_ref"]);
    let derived = Write { derived_from: vec!["a".to_owned()], ..write(Origin::AgentGenerated) };
    assert_eq!(ruled(&derived).verdict, Verdict::Allow, "its parents are its source");
    let elsewhere = Write { boundary: Boundary::new("globex", "support").unwrap(), ..whole(Origin::External) };
    assert_eq!(ruled(&elsewhere).verdict, Verdict::Allow);
    let by_null = Write { op: Op::Delete, written_by: None, created_at: None, ..write(Origin::External) };
    assert_eq!(ruled(&by_null).verdict, Verdict::Block, "a null value says nothing of its source");
}

#[test]
fn broken_rules_are_refused() {
    for (rule, words) in [
        ("when: { script: [Klingon] }", "is no script of Unicode"),
        ("when: { classes: [evil] }", "there is no class 'evil'"),
        ("when: { floors: [payloads] }", "there is no floor 'payloads'"),
        ("when: { trust_at_most: 4 }", "trust_at_most is 0 to 3"),
        ("when: { screen_p_at_most: 1.5 }", "screen_p_at_most is 0 to 1"),
        ("when: { memsad_p_at_most: -0.1 }", "memsad_p_at_most is 0 to 1"),
        ("when: { growth_over: .nan }", "growth is 0 or more"),
        ("when: { age_over: soon }", "is not a duration"),
        ("ttl: soon", "is not a duration"),
        ("domains: 1", "domains must be at least 2"),
        ("domains: 2", "domains is for require_corroboration"),
        ("when: { script: [Common] }", "is no script of Unicode"),
        ("when: { script_other_than: [Inherited] }", "is no script of Unicode"),
        ("when: { tenant: ['acme/support'] }", "fits no tenant and no store"),
        ("when: { store: [''] }", "fits no tenant and no store"),
        ("when: { store: ['support desk*'] }", "fits no tenant and no store"),
    ] {
        let text = format!("{HEAD}rules: [{{ name: r, action: block, {rule} }}]");
        let error = Policy::parse(&text).unwrap_err();
        assert!(error.code() == Code::PolicyInvalid && error.message().contains(words), "{rule}: {error}");
    }
    for (rest, words) in [
        ("rules: [{ name: r, action: set_ttl }]", "set_ttl needs ttl"),
        ("rules: [{ name: provenance_missing, action: allow }]", "is taken"),
        ("rules: []\ntenant_modes: [{ tenant: a, rules: [r], mode: 'off' }]", "which is no rule"),
        ("rules: []\ntenant_modes: [{ tenant: 'a/*', mode: 'off' }]", "fits no tenant and no store"),
        ("rules: []\nstrict: [acme]", "fits no boundary"),
        ("rules: []\nstrict: ['acme/']", "fits no boundary"),
        (
            "rules: [{ name: r, action: allow }]\ntenant_modes: [{ tenant: a, mode: 'off', expires: soon }]",
            "is not RFC 3339",
        ),
    ] {
        let error = Policy::parse(&format!("{HEAD}{rest}")).unwrap_err();
        assert!(error.code() == Code::PolicyInvalid && error.message().contains(words), "{rest}: {error}");
    }
}

/// An empty list would ask nothing, so that removing its last entry would widen the rule to every write.
#[test]
fn empty_lists_are_refused() {
    for list in
        ["origin", "op", "tenant", "store", "agent", "principal", "script", "script_other_than", "classes", "floors"]
    {
        let text = format!("{HEAD}rules: [{{ name: r, action: allow, when: {{ {list}: [] }} }}]");
        let error = Policy::parse(&text).unwrap_err();
        assert!(error.to_string().contains("an empty list asks nothing"), "{list}: {error}");
    }
    let modes = format!("{HEAD}rules: []\ntenant_modes: [{{ tenant: a, rules: [], mode: 'off' }}]");
    assert_eq!(Policy::parse(&modes).unwrap_err().code(), Code::PolicyInvalid);
    let trust = HEAD.replace("['*']", "['acme-*']");
    let error = Policy::parse(&format!("{trust}rules: []")).unwrap_err();
    assert!(error.message().contains("is no tenant"), "{error}");
    let outside = HEAD.replace("[user_input, system, agent_generated, tool_output, retrieved]", "[external]");
    let error = Policy::parse(&format!("{outside}rules: []\nstrict: ['acme/*']")).unwrap_err();
    assert!(error.message().contains("may declare no origin"), "{error}");
}

/// A rule on what a filter finds would never hold where the filter is off.
#[test]
fn a_rule_on_a_filter_that_is_off_is_named() {
    let p = |rest: &str| policy(&format!("rules: [{{ name: r, action: block, {rest} }}]"));
    let (screen, memsad) = (p("when: { classes: [secrecy] }"), p("when: { memsad_p_at_most: 0.01 }"));
    assert_eq!((screen.blind(false, true), screen.blind(true, false)), (Some("r"), None));
    assert_eq!((memsad.blind(false, true), memsad.blind(true, false)), (None, Some("r")));
    assert_eq!(p("mode: 'off', when: { classes: [secrecy] }").blind(false, false), None);
    assert_eq!(p("when: { op: [delete] }").blind(false, false), None);
}

/// The rulings of the first policy engine on the sample, for every origin, operation and size.
#[test]
fn the_sample_rules_as_it_did() {
    let p = Policy::sample().unwrap();
    let origins = [
        Origin::UserInput,
        Origin::System,
        Origin::AgentGenerated,
        Origin::ToolOutput,
        Origin::Retrieved,
        Origin::External,
    ];
    for origin in origins {
        for (op, bytes) in [(Op::Create, 10), (Op::Update, 65_536), (Op::Create, 65_537), (Op::Delete, 0)] {
            let outside = matches!(origin, Origin::Retrieved | Origin::External);
            let w = Write { op, content: "x".repeat(bytes), origin, ..write(origin) };
            let wanted = match () {
                () if bytes > 65_536 => (Verdict::Quarantine, Some("oversized-memory")),
                () if outside => (Verdict::Quarantine, Some("untrusted-origin")),
                () => (Verdict::Allow, None),
            };
            let ruling = p.rule(TOPIC, &w, AT);
            assert_eq!((ruling.verdict, ruling.rule.as_deref()), wanted, "{origin:?} {op:?} {bytes}");
            let days = if outside || origin == Origin::ToolOutput { 30 } else { 365 };
            assert_eq!(ruling.expires_at, (op != Op::Delete).then_some(AT + days * DAY));
            assert_eq!((ruling.basis, ruling.may_embed, ruling.origin), ("topic", true, origin));
        }
    }
    assert!(p.enforces() && !p.is_late());
}

/// Old files keep their hash: a field that isn't used is no part of it, and fixtures never are.
#[test]
fn unused_fields_and_fixtures_are_no_part_of_the_hash() {
    let rule = "name: r, action: block, when: { op: [create] }";
    let plain = policy(&format!("rules: [{{ {rule} }}]"));
    let same = policy(&format!("rules: [{{ {rule}, fixtures: {{ positive: [{{}}] }} }}]\ntenant_modes: []"));
    let other = policy(&format!("rules: [{{ {rule}, ttl: 1d }}]"));
    assert_eq!(plain.hash(), same.hash());
    assert_ne!(plain.hash(), other.hash());
}

const WHENS: [&str; 8] = [
    "op: [create]",
    "op: [delete]",
    "origin: [user_input]",
    "origin: [retrieved, external]",
    "content_bytes_over: 10",
    "trust_at_most: 1",
    "classes: [secrecy]",
    "tenant: ['b*']",
];
const ACTIONS: [&str; 4] = ["allow", "quarantine", "block", "require_corroboration"];
const MODES: [&str; 3] = ["off", "shadow", "enforce"];

proptest! {
    /// The first rule in force whose conditions hold decides, whatever stands behind it; the same write is ruled the
    /// same again.
    #[test]
    fn first_match_wins(
        rules in prop::collection::vec((0..8_usize, 0..4_usize, 0..3_usize), 0..8),
        origin in prop::sample::select(vec![Origin::UserInput, Origin::Retrieved, Origin::AgentGenerated]),
        known in any::<bool>(),
    ) {
        let rule = |(i, (w, a, m)): (usize, &(usize, usize, usize))| {
            format!("  - {{ name: r-{i}, action: {}, mode: '{}', when: {{ {} }} }}\n", ACTIONS[*a], MODES[*m], WHENS[*w])
        };
        let text: String = rules.iter().enumerate().map(rule).collect();
        let p = policy(&if rules.is_empty() { "rules: []".to_owned() } else { format!("rules:\n{text}") });
        let (w, f) = (write(origin), if known { facts() } else { Facts::default() });
        let ruling = p.judge(TOPIC, &w, AT, &f);
        prop_assert_eq!(&ruling, &p.judge(TOPIC, &w, AT, &f));
        let alone = |i: usize| {
            let (when, action, _) = rules[i];
            let one = format!("rules: [{{ name: r, action: {}, when: {{ {} }} }}]", ACTIONS[action], WHENS[when]);
            let said = policy(&one).judge(TOPIC, &w, AT, &f);
            said.rule.is_some().then_some(said.verdict)
        };
        let first = (0..rules.len()).filter(|i| rules[*i].2 == 2).find_map(|i| alone(i).map(|v| (i, v)));
        prop_assert_eq!(ruling.verdict, first.map_or(Verdict::Allow, |(_, v)| v));
        prop_assert_eq!(ruling.rule, first.map(|(i, _)| format!("r-{i}")));
        let end = first.map_or(rules.len(), |(i, _)| i);
        let shadow: Vec<String> = (0..end)
            .filter(|i| rules[*i].2 == 1 && alone(*i).is_some_and(|v| v != Verdict::Allow))
            .map(|i| format!("r-{i}"))
            .collect();
        prop_assert_eq!(ruling.shadow, shadow);
    }
}
