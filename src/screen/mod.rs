//! The hardened screen (`hardened.md` 6): is a write an instruction, one of a campaign, a near duplicate, or about
//! another thing than its key? No clock, no randomness, no model; integers throughout.
//!
//! In: a text, the vector that the pipeline has, the earlier writes of its source, the entities that the boundary
//! knows. Out: P, C, B, D, J, their rank among trusted rows, and a verdict.

mod campaign;
mod characters;
mod conformal;
mod drift;
mod entity;
mod entropy;
mod fit;
mod hidden;
mod junk;
mod lexicon;
mod normal;
mod payload;
mod record;
mod ring;
mod share;
mod source;
mod verdict;

pub use campaign::{Campaign, Earlier, KeyTokens, Trace, campaign};
pub use characters::{Characters, Grams};
pub use conformal::{Conformal, LEAST, MOST, Rank, Row};
pub use drift::{Drift, drift};
pub use entity::{Entity, EntityKind, entities};
pub use entropy::{CharModel, prototype_contrast};
pub use fit::{FitInput, FitRow, RING, fit};
pub use hidden::{Hidden, hidden, revealed, shown};
pub use junk::junk;
pub use lexicon::{Classes, LEXICON, classes, patterns};
pub use normal::{Form, Hashes, Keyed, is_sentence, norm, sentences, shingles};
pub use payload::{Payload, Sentences};
pub use record::{Group, Screening};
pub use ring::{Entry, Ring, Slot, Standing, Written};
pub use share::{Alarm, BLOCK, Moved, ShareMark, moved};
pub use source::source_id;
pub use verdict::{FAMILIES, Finding, Floors, Scored, judge};

use crate::schema::Vector;

/// Bytes of a text that are screened; the rest is not seen, and the decision says so.
const SCREENED: usize = 64 << 10;

/// What a text says by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Features {
    /// Form of key and value.
    pub form: Form,
    /// Sentences with classes or entities.
    pub sentences: Sentences,
    /// What later writes of the source are compared with.
    pub trace: Trace,
    /// Trigrams of its characters.
    pub grams: Grams,
    /// D.
    pub drift: Drift,
    /// J.
    pub junk: u32,
    /// Invisible characters that nothing needs.
    pub hidden: Hidden,
    /// The end of the text was not seen.
    pub cut: bool,
}

impl Features {
    /// Reads a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let end = (0..=SCREENED.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        let cut = end < text.len();
        let text = &text[..end];
        let keyed = Keyed::of(text);
        let normal = norm(text);
        let trace = Trace::of(&keyed, &normal);
        Self {
            form: keyed.form,
            sentences: Sentences::of(text),
            drift: drift(&keyed),
            junk: junk(text),
            hidden: hidden(text),
            cut,
            grams: Grams::of(&normal),
            trace,
        }
    }

    /// The four scores, and how the write stands to the earlier ones of its source.
    #[must_use]
    pub fn score<'a>(
        &self,
        vector: Option<&Vector>,
        fitted: &Fitted,
        known: impl Fn(u64) -> bool,
        floor: u64,
        earlier: impl IntoIterator<Item = Earlier<'a>>,
    ) -> (Scored, Campaign) {
        let campaign = campaign(&self.trace, vector, &fitted.shingles, floor, earlier);
        let scored = Scored {
            payload: self.sentences.score(|hash| fitted.entities.contains(hash) || known(hash)),
            c: campaign.c,
            b: campaign.b,
            d: self.drift.micro(),
            j: self.junk,
        };
        (scored, campaign)
    }
}

/// What trusted rows contain, so that it is not new.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fitted {
    /// Shingles of their values.
    pub shingles: Hashes,
    /// Their entities.
    pub entities: Hashes,
}

impl Fitted {
    /// Of the features of trusted rows.
    #[must_use]
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Features>) -> Self {
        let (mut shingles, mut entities) = (Vec::new(), Vec::new());
        for row in rows {
            shingles.extend_from_slice(row.trace.value.as_slice());
            entities.extend_from_slice(row.sentences.entities().as_slice());
        }
        Self { shingles: Hashes::new(shingles), entities: Hashes::new(entities) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever a text holds, it is read, and what is read is the same again.
        #[test]
        fn any_text_is_read(text in any::<String>(), noise in "[ -~\u{200b}-\u{200f}\u{e0040}-\u{e007f}\u{fe0f}😀а-я]{0,200}") {
            for text in [text, noise] {
                prop_assert_eq!(Features::of(&text), Features::of(&text));
                let _ = shown(&text);
            }
        }
    }

    #[test]
    fn long_texts_are_cut_and_say_so() {
        for unit in ["when if ", "a@a.", "😀\u{fe0f}\u{200d}", "AB12 1234 ", "да. ", "search["] {
            let text = unit.repeat((SCREENED + 100) / unit.len() + 1);
            let features = Features::of(&text);
            assert!(features.cut, "{unit}");
        }
        assert!(!Features::of("short").cut);
    }
}
