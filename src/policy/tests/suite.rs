//! Fixtures, lint and diff.

use super::*;

/// Fixtures of the sample pass, and lint has nothing but the shadow rule without an end to say.
#[test]
fn the_sample_is_tested_and_linted() {
    let suite = Suite::sample().unwrap();
    let failed: Vec<_> = suite.test(AT).into_iter().filter(|c| !c.passed).collect();
    assert!(failed.is_empty() && suite.len() > 8, "{failed:?}");
    let notes = suite.lint(AT);
    assert!(notes.iter().all(|n| n.level == Level::Warning) && notes.len() == 1, "{notes:?}");
}

#[test]
fn lint_refuses_what_is_not_shown_to_work() {
    let lint =
        |rules: &str, fixtures: Option<&str>| Suite::parse(&format!("{HEAD}{rules}"), fixtures).unwrap().lint(AT);
    let errors =
        |notes: Vec<Note>| notes.into_iter().filter(|n| n.level == Level::Error).map(|n| n.what).collect::<Vec<_>>();
    let bare = "rules: [{ name: r, action: block, when: { op: [delete] } }]";
    assert_eq!(errors(lint(bare, None)), ["has no positive fixture", "has no negative fixture"]);
    let one = "rules: { r: { positive: [{ op: delete }] } }";
    assert_eq!(errors(lint(bare, Some(one))), ["has no negative fixture"]);
    let both = "rules: { r: { positive: [{ op: delete }], negative: [{}] } }";
    assert!(lint(bare, Some(both)).is_empty());
    let inline = "rules: [{ name: r, action: block, when: { op: [delete] }, fixtures: { positive: [{ op: delete }], negative: [{}] } }]";
    assert!(lint(inline, None).is_empty());
    let lost = "rules: { r: { positive: [{ op: delete }], negative: [{}] }, gone: {} }";
    assert_eq!(errors(lint(bare, Some(lost))), ["has fixtures and is no rule of the policy"]);
    // The negative fixture never comes to the rule.
    let vacuous = "rules: [{ name: first, action: allow, when: { op: [update] } }, { name: r, action: block, when: { op: [delete] } }]";
    let text = "rules: { first: { positive: [{ op: update }], negative: [{}] }, r: { positive: [{ op: delete }], negative: [{ op: update }] } }";
    let found = errors(lint(vacuous, Some(text)));
    assert!(found.len() == 1 && found[0].contains("is asked about none of its negative"), "{found:?}");
    // What the stream can't do for a rule is said.
    for (rule, words) in [
        ("action: block, when: { growth_over: 5 }", "it never holds"),
        ("action: require_corroboration", "it holds all"),
        ("action: redact", "it holds"),
    ] {
        let notes = lint(&format!("rules: [{{ name: r, {rule} }}]"), None);
        assert!(notes.iter().any(|n| n.level == Level::Warning && n.what.ends_with(words)), "{rule}: {notes:?}");
    }
    let behind = "rules: [{ name: all, action: allow }, { name: r, action: block }]";
    let found = errors(lint(behind, None));
    assert!(found.iter().any(|w| w.contains("is never asked: 'all' before it")), "{found:?}");
}

/// A fixture fails when the rule is wrong, when an earlier rule takes the write, and when the verdict differs.
#[test]
fn fixtures_turn_red() {
    let suite = |rules: &str, fixtures: &str| Suite::parse(&format!("{HEAD}{rules}"), Some(fixtures)).unwrap();
    let passed = |s: &Suite| s.test(AT).iter().map(|c| c.passed).collect::<Vec<_>>();
    let rules = "rules: [{ name: r, action: block, when: { op: [delete] } }]";
    assert_eq!(
        passed(&suite(rules, "rules: { r: { positive: [{ op: delete }, {}], negative: [{}, { op: delete }] } }")),
        [true, false, true, false]
    );
    let shaded = "rules: [{ name: first, action: allow, when: { op: [delete] } }, { name: r, action: block, when: { op: [delete] } }]";
    assert_eq!(passed(&suite(shaded, "rules: { r: { positive: [{ op: delete }] } }")), [false]);
    assert_eq!(
        passed(&suite(
            rules,
            "rules: { r: { positive: [{ op: delete, verdict: block }, { op: delete, verdict: quarantine }] } }"
        )),
        [true, false]
    );
    let off = "rules: [{ name: r, action: block, mode: 'off', when: { op: [delete] } }]";
    assert_eq!(
        passed(&suite(off, "rules: { r: { positive: [{ op: delete, verdict: allow }], negative: [{}] } }")),
        [true, true]
    );
    let facts = "rules: [{ name: r, action: block, when: { trust_at_most: 0, classes: [agent], screen_p_at_most: 0.01, growth_over: 2, memsad_p_at_most: 0.01, age_over: 3d, hidden_at_least: 1 } }]";
    let known = "origin: agent_generated, parents: [3, 0], classes: [agent], screen_p: 0.01, growth: 2.5, memsad_p: 0.01, age: 4d, hidden: 1";
    assert_eq!(
        passed(&suite(
            facts,
            &format!(
                "rules: {{ r: {{ positive: [{{ {known} }}], negative: [{{ {} }}] }} }}",
                known.replace("[3, 0]", "[3]")
            )
        )),
        [true, true]
    );
    for broken in [
        "classes: [evil]",
        "floors: [x]",
        "parents: [4]",
        "age: soon",
        "screen_p: 2",
        "growth: -1",
        "tenant: 'a b'",
        "content_bytes: 999999999999",
        "content_bytes: 3, content: abc",
        "op: delete, content: abc",
        "op: delete, classes: [agent]",
        "op: delete, memsad_p: 0.1",
        "what: 1",
    ] {
        let text = format!("rules: {{ r: {{ positive: [{{ {broken} }}] }} }}");
        let error = Suite::parse(&format!("{HEAD}{rules}"), Some(&text)).unwrap_err();
        assert_eq!(error.code(), Code::PolicyInvalid, "{broken}: {error}");
    }
    let large = vec!["{ content_bytes: 4194304 }"; 17].join(", ");
    let text = format!("rules: {{ r: {{ positive: [{large}] }} }}");
    let error = Suite::parse(&format!("{HEAD}{rules}"), Some(&text)).unwrap_err();
    assert!(error.message().contains("longer than 64 MiB"), "{error}");
}

#[test]
fn a_diff_names_what_changes() {
    let suite = |rules: &str| {
        Suite::parse(&format!("{HEAD}{rules}"), Some("rules: { r: { positive: [{ op: delete }], negative: [{}] } }"))
            .unwrap()
    };
    let old = suite("rules: [{ name: r, action: block, when: { op: [delete] } }]");
    assert!(old.compare(&old, AT).is_empty());
    let changes = old.compare(&suite("rules: [{ name: r, action: quarantine, when: { op: [delete] } }]"), AT);
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert!(changes[0].verdict && changes[0].what == "fixture r positive 1 (old)");
    assert_eq!((changes[0].old.verdict, changes[0].new.verdict), (Verdict::Block, Verdict::Quarantine));
    let renamed = old.compare(&suite("rules: [{ name: r, action: block, when: { op: [delete] }, mode: shadow }]"), AT);
    assert_eq!(renamed[0].new.shadow, ["r"]);
}
