//! Trust labels (`defenses.md` 2.4): what a write's channel is worth, never more than the records it was made from.
//!
//! A label is a function of the channel and the parents alone: no content, no approval and no count of supporters is
//! an input, so none of them can raise it. What elevation there is holds for one claim or one action
//! ([`super::elevation`]).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::schema::{Boundary, Origin, valid_part};

/// Highest label: a user or the operator said it.
pub const TRUSTED: u8 = 3;
/// A listed tool whose input was trusted.
pub const TOOL: u8 = 2;
/// Nothing vouches for it.
pub const UNTRUSTED: u8 = 0;

/// How a text came in, as derived from the authenticated topic or key, never from the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// `user_input` or `system`.
    Trusted,
    /// `tool_output`.
    Tool {
        /// The policy lists the tool.
        listed: bool,
    },
    /// `agent_generated`.
    Agent,
    /// All others.
    Untrusted,
}

impl Channel {
    /// Of an effective origin.
    #[must_use]
    pub fn of(origin: Origin, tool_listed: bool) -> Self {
        match origin {
            Origin::UserInput | Origin::System => Channel::Trusted,
            Origin::ToolOutput => Channel::Tool { listed: tool_listed },
            Origin::AgentGenerated => Channel::Agent,
            Origin::Retrieved | Origin::External => Channel::Untrusted,
        }
    }
}

/// In front of a parent that is named with its boundary: `memory:tenant/store/record`.
const FULL: &str = "memory:";

/// Where a record of `derived_from` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parent<'a> {
    /// In the write's own boundary, under this id.
    Here(&'a str),
    /// In another store of the tenant.
    Elsewhere,
    /// With this other tenant.
    Foreign(&'a str),
}

impl<'a> Parent<'a> {
    /// Of a word of `derived_from` in a write into `b`.
    #[must_use]
    pub fn of(b: &Boundary, named: &'a str) -> Self {
        let Some(full) = named.strip_prefix(FULL) else { return Parent::Here(named) };
        let mut parts = full.splitn(3, '/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(tenant), Some(store), Some(_)) if !valid_part(tenant) || !valid_part(store) => Parent::Here(named),
            (Some(tenant), Some(_), Some(_)) if tenant != b.tenant() => Parent::Foreign(tenant),
            (Some(_), Some(store), Some(record)) if store == b.store() => Parent::Here(record),
            (Some(_), Some(_), Some(_)) => Parent::Elsewhere,
            _ => Parent::Here(named),
        }
    }
}

/// What a record may be used for, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// 0 to 3.
    pub trust: u8,
    /// Tenants that it was made from, its own with them.
    pub tenants: BTreeSet<String>,
}

impl Label {
    /// Of a record of which only the tenant is known.
    #[must_use]
    pub fn unknown(tenant: &str) -> Self {
        Self { trust: UNTRUSTED, tenants: BTreeSet::from([tenant.to_owned()]) }
    }
}

/// A label in the state of its boundary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelNote {
    trust: u8,
    /// One of the other tenants that it was made from.
    foreign: Option<String>,
}

impl LabelNote {
    /// Of a label of `tenant`'s.
    #[must_use]
    pub fn new(label: &Label, tenant: &str) -> Self {
        Self { trust: label.trust, foreign: label.tenants.iter().find(|t| *t != tenant).cloned() }
    }

    /// Whether the label can be.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.trust <= TRUSTED && self.foreign.as_deref().is_none_or(valid_part)
    }

    /// The label again.
    #[must_use]
    pub fn label(self, tenant: &str) -> Label {
        let tenants = std::iter::once(tenant.to_owned()).chain(self.foreign).collect();
        Label { trust: self.trust, tenants }
    }

    /// The least of two versions' labels.
    #[must_use]
    pub fn least(self, other: Self) -> Self {
        Self { trust: self.trust.min(other.trust), foreign: self.foreign.or(other.foreign) }
    }
}

/// The trust of a write that names `named` parents of which `known` are known. An unknown parent counts 0.
#[must_use]
pub fn trust(channel: Channel, named: usize, known: &[Label]) -> u8 {
    let least = known.iter().map(|l| l.trust.min(TRUSTED)).min();
    let parents = if known.len() < named { Some(UNTRUSTED) } else { least };
    match channel {
        Channel::Trusted => parents.unwrap_or(TRUSTED),
        Channel::Tool { listed: true } if parents.is_some_and(|p| p >= TOOL) => TOOL,
        Channel::Agent => parents.unwrap_or(UNTRUSTED),
        Channel::Tool { .. } | Channel::Untrusted => UNTRUSTED,
    }
}

/// Whether something of another tenant went into a write for `tenant`.
#[must_use]
pub fn is_foreign(tenant: &str, parents: &[Label]) -> bool {
    parents.iter().any(|l| l.tenants.iter().any(|t| t != tenant))
}

/// The label of a write for `tenant`.
#[must_use]
pub fn label(channel: Channel, tenant: &str, named: usize, known: &[Label]) -> Label {
    let mut tenants: BTreeSet<String> = known.iter().flat_map(|l| l.tenants.iter().cloned()).collect();
    tenants.insert(tenant.to_owned());
    Label { trust: trust(channel, named, known), tenants }
}

/// Labels of the records of a boundary. A later version of a record is made from the earlier one, and a delete leaves
/// the label: under one id it never rises.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(BTreeMap<String, Label>);

impl Labels {
    /// Those of the records that a write into `b` names and that are known.
    #[must_use]
    pub fn known(&self, b: &Boundary, named: &[String]) -> Vec<Label> {
        let known = |name: &String| match Parent::of(b, name) {
            Parent::Here(id) => self.0.get(id).cloned(),
            Parent::Foreign(tenant) => Some(Label::unknown(tenant)),
            Parent::Elsewhere => None,
        };
        named.iter().filter_map(known).collect()
    }

    /// Notes what a write left under its id.
    pub fn note(&mut self, id: &str, label: Label) {
        let Some(before) = self.0.get_mut(id) else {
            self.0.insert(id.to_owned(), label);
            return;
        };
        before.trust = before.trust.min(label.trust);
        before.tenants.extend(label.tenants);
    }

    /// The label of a record.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Label> {
        self.0.get(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(trust: u8) -> Label {
        Label { trust, tenants: BTreeSet::from(["acme".to_owned()]) }
    }

    /// Every channel with none, each kind of and an unknown parent.
    #[test]
    fn label_table() {
        use Origin as O;
        for (origin, listed, parents, wanted) in [
            (O::UserInput, false, &[][..], 3),
            (O::System, false, &[], 3),
            (O::UserInput, false, &[Some(2)], 2),
            (O::UserInput, false, &[Some(3), None], 0),
            (O::AgentGenerated, false, &[], 0),
            (O::AgentGenerated, false, &[Some(3), Some(3)], 3),
            (O::AgentGenerated, false, &[Some(3), Some(0)], 0),
            (O::AgentGenerated, false, &[Some(3), None], 0),
            (O::ToolOutput, true, &[Some(3)], 2),
            (O::ToolOutput, true, &[Some(2)], 2),
            (O::ToolOutput, true, &[Some(1)], 0),
            (O::ToolOutput, true, &[None], 0),
            (O::ToolOutput, true, &[], 0),
            (O::ToolOutput, false, &[Some(3)], 0),
            (O::Retrieved, true, &[Some(3)], 0),
            (O::External, true, &[Some(3)], 0),
        ] {
            let known: Vec<Label> = parents.iter().flatten().map(|t| of(*t)).collect();
            assert_eq!(trust(Channel::of(origin, listed), parents.len(), &known), wanted, "{origin:?} {parents:?}");
        }
    }

    /// Published mistake 4: a trusted tool that echoes untrusted text is not trusted, whatever the caller tags.
    #[test]
    fn a_listed_tool_does_not_launder_its_input() {
        let web = label(Channel::Untrusted, "acme", 0, &[]);
        let echo = label(Channel::Tool { listed: true }, "acme", 1, std::slice::from_ref(&web));
        let summary = label(Channel::Agent, "acme", 1, std::slice::from_ref(&echo));
        assert_eq!((web.trust, echo.trust, summary.trust), (0, 0, 0));
    }

    /// R4: a summary of two tenants belongs to neither.
    #[test]
    fn parents_of_another_tenant_are_seen() {
        let other = Label { trust: 3, tenants: BTreeSet::from(["globex".to_owned()]) };
        assert!(is_foreign("acme", &[of(3), other.clone()]) && !is_foreign("acme", &[of(0)]));
        let merged = label(Channel::Agent, "acme", 2, &[of(3), other]);
        assert_eq!(merged.tenants.len(), 2);
        assert!(is_foreign("acme", &[merged]), "through a derivation too");
    }

    #[test]
    fn a_parent_may_name_its_boundary() {
        let b = Boundary::new("acme", "support").unwrap();
        for (named, wanted) in [
            ("m-1", Parent::Here("m-1")),
            ("globex/support/m-1", Parent::Here("globex/support/m-1")),
            ("memory:acme/support/a/b", Parent::Here("a/b")),
            ("memory:acme/sales/m-1", Parent::Elsewhere),
            ("memory:globex/support/m-1", Parent::Foreign("globex")),
            ("memory:acme", Parent::Here("memory:acme")),
            ("memory:/x/y", Parent::Here("memory:/x/y")),
        ] {
            assert_eq!(Parent::of(&b, named), wanted, "{named}");
        }
    }

    /// What the state keeps decides as the label itself does.
    #[test]
    fn notes_keep_what_counts() {
        let mixed = label(Channel::Agent, "acme", 2, &[of(3), Label::unknown("globex")]);
        let note = LabelNote::new(&mixed, "acme");
        assert!(is_foreign("acme", &[note.clone().label("acme")]));
        let plain = LabelNote::new(&of(2), "acme");
        assert_eq!(plain.clone().label("acme"), of(2));
        for (a, b) in [(plain.clone(), note.clone()), (note, plain)] {
            assert_eq!(a.least(b).label("acme"), mixed);
        }
        assert!(!LabelNote { trust: 4, foreign: None }.is_possible());
    }

    /// A write of a stream: who writes what from what.
    #[derive(Debug, Clone)]
    struct Step {
        id: usize,
        channel: Channel,
        parents: Vec<usize>,
    }

    fn name(id: usize) -> String {
        format!("m-{id}")
    }

    fn step() -> impl Strategy<Value = Step> {
        let channel = prop_oneof![
            Just(Channel::Trusted),
            any::<bool>().prop_map(|listed| Channel::Tool { listed }),
            Just(Channel::Agent),
            Just(Channel::Untrusted),
        ];
        let parts = (0..12_usize, channel, prop::collection::vec(0..12_usize, 0..4));
        parts.prop_map(|(id, channel, parents)| Step { id, channel, parents })
    }

    fn apply(labels: &mut Labels, s: &Step) -> (Label, Vec<Label>) {
        let named: Vec<String> = s.parents.iter().map(|p| name(*p)).collect();
        let known = labels.known(&Boundary::new("acme", "support").unwrap(), &named);
        let made = label(s.channel, "acme", named.len(), &known);
        labels.note(&name(s.id), made.clone());
        (made, known)
    }

    fn run(steps: &[Step]) -> Labels {
        let mut labels = Labels::default();
        for s in steps {
            apply(&mut labels, s);
        }
        labels
    }

    fn independent(a: &Step, b: &Step) -> bool {
        a.id != b.id && !a.parents.contains(&b.id) && !b.parents.contains(&a.id)
    }

    proptest! {
        /// `defenses.md` 2.4 (a).
        #[test]
        fn a_child_is_at_most_its_least_parent(steps in prop::collection::vec(step(), 1..40)) {
            let mut labels = Labels::default();
            for s in &steps {
                let (made, known) = apply(&mut labels, s);
                prop_assert!(known.iter().all(|p| made.trust <= p.trust));
                prop_assert!(known.len() == s.parents.len() || made.trust == UNTRUSTED);
                prop_assert!(known.iter().all(|p| p.tenants.is_subset(&made.tenants)));
            }
        }

        /// (b).
        #[test]
        fn a_replay_gives_the_same_labels(steps in prop::collection::vec(step(), 1..40)) {
            prop_assert_eq!(run(&steps), run(&steps));
        }

        /// (c): neighbours that don't name each other may change places.
        #[test]
        fn independent_writes_may_change_places(steps in prop::collection::vec(step(), 2..40), at in 0..38_usize) {
            let at = at % (steps.len() - 1);
            if independent(&steps[at], &steps[at + 1]) {
                let mut swapped = steps.clone();
                swapped.swap(at, at + 1);
                prop_assert_eq!(run(&steps), run(&swapped));
            }
        }

        /// (d): whatever is written later, by anyone, raises no label.
        #[test]
        fn no_write_raises_a_label(steps in prop::collection::vec(step(), 1..40)) {
            let mut labels = Labels::default();
            for s in &steps {
                let before = labels.clone();
                apply(&mut labels, s);
                for (id, label) in &before.0 {
                    prop_assert!(labels.get(id).is_some_and(|l| l.trust <= label.trust));
                }
            }
        }
    }
}
