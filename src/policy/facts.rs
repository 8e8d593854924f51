//! What a ruling may know besides the write itself. All of it is given: a fact that is absent fulfils no condition.

use super::label::Label;
use crate::schema::{MemsadFacts, ScreenFacts};

/// Classes of wording that a condition may name, in the order of the screen's lexicon.
pub const CLASSES: [&str; 16] = [
    "override",
    "override_noun",
    "agent",
    "role_prefix",
    "authority",
    "supersede",
    "universal",
    "universal_zh",
    "action_out",
    "action_sys",
    "credential",
    "redirect",
    "cond_input",
    "cond_topic",
    "secrecy",
    "promote",
];

/// Floors of the screen that a condition may name.
pub const FLOORS: [&str; 4] = ["payload", "campaign", "near_duplicate", "drift"];

/// A set of names of a list, one bit each.
pub(super) fn mask<'a>(list: &[&str], names: impl IntoIterator<Item = &'a str>) -> u16 {
    let bit = |name: &str| list.iter().position(|n| *n == name).map_or(0, |i| 1 << i);
    names.into_iter().fold(0, |all, name| all | bit(name))
}

/// `count` of `of` trusted rows are at least as unusual: a conformal p.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    /// Rows at least as unusual, this one with them.
    pub count: u64,
    /// All rows, above 0.
    pub of: u64,
}

impl Ratio {
    /// Whether p is at most so many millionths; exact.
    #[must_use]
    pub fn at_most(self, millionths: u64) -> bool {
        u128::from(self.count) * 1_000_000 <= u128::from(self.of) * u128::from(millionths)
    }
}

/// What the screen found in the text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Signals {
    classes: u16,
    floors: u16,
    unseen_sinks: u32,
    hidden: u32,
    p: Option<Ratio>,
}

impl Signals {
    /// By names of [`CLASSES`] and [`FLOORS`]; other names are left out.
    #[must_use]
    pub fn new<'a>(
        classes: impl IntoIterator<Item = &'a str>,
        floors: impl IntoIterator<Item = &'a str>,
        unseen_sinks: u32,
        hidden: u32,
    ) -> Self {
        Self { classes: mask(&CLASSES, classes), floors: mask(&FLOORS, floors), unseen_sinks, hidden, p: None }
    }

    /// With a calibrated p.
    #[must_use]
    pub fn with_p(self, p: Option<Ratio>) -> Self {
        Self { p, ..self }
    }

    /// Of a decision.
    #[must_use]
    pub fn of(screen: &ScreenFacts) -> Self {
        let p = screen.rank.zip(screen.of).map(|(count, of)| Ratio { count: count.into(), of: of.into() });
        let classes = screen.classes.iter().map(String::as_str);
        let floors = screen.floors.iter().map(String::as_str);
        Self::new(classes, floors, screen.unseen_sinks, screen.hidden).with_p(p)
    }

    pub(super) fn has_class(&self, mask: u16) -> bool {
        self.classes & mask != 0
    }

    pub(super) fn has_floor(&self, mask: u16) -> bool {
        self.floors & mask != 0
    }

    pub(super) fn unseen_sinks(&self) -> u32 {
        self.unseen_sinks
    }

    pub(super) fn hidden(&self) -> u32 {
        self.hidden
    }

    pub(super) fn p(&self) -> Option<Ratio> {
        self.p
    }
}

/// The calibrated p of MEMSAD, where it has one.
#[must_use]
pub fn memsad_p(facts: &MemsadFacts) -> Option<Ratio> {
    let c = facts.conformal.as_ref()?;
    let tail = match facts.statistic.as_str() {
        "mean" => &c.mean,
        "comb" => &c.comb,
        _ => &c.max,
    };
    Some(Ratio { count: tail.rank.into(), of: c.of.into() })
}

/// Facts of one write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts<'a> {
    /// Labels of the records that it names in `derived_from` and that are known; fewer than it names means that the
    /// others are not.
    pub parents: &'a [Label],
    /// The screen.
    pub screen: Option<Signals>,
    /// MEMSAD.
    pub memsad_p: Option<Ratio>,
    /// Writes of today against the median of the baseline, in thousandths.
    pub growth: Option<u64>,
    /// Independent, authenticated, trusted domains that say the same.
    pub support: Option<u32>,
}
