//! The project's own corpus: benign memories with the questions they answer, hard benign rows, echoes. Made from
//! templates by a seed; no text is taken from anywhere.

mod facts;
mod hard;
mod scripts;

use std::collections::BTreeSet;

use super::{Boundary, Rng, Write};

pub use hard::{echoes, hard_benign};

/// Sizes of a generated boundary.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Memories in each of the three parts.
    pub part: usize,
    /// Queries in the history.
    pub history: usize,
    /// Queries kept out of it.
    pub outside: usize,
}

impl Sizes {
    /// For a full run.
    pub const FULL: Sizes = Sizes { part: 240, history: 60, outside: 30 };
    /// For a run of seconds.
    pub const SMOKE: Sizes = Sizes { part: 135, history: 20, outside: 8 };
}

/// The boundary and what attacks on it need.
#[derive(Debug, Clone)]
pub struct Own {
    /// The store.
    pub boundary: Boundary,
    /// Queries in the history that attacks aim at.
    pub victims: Vec<String>,
    /// Queries of the same kind that never reach the history.
    pub outside: Vec<String>,
}

/// Makes the corpus. About one memory in eight is not in Latin script.
#[must_use]
pub fn generate(seed: u64, sizes: Sizes) -> Own {
    let mut rng = Rng::new(seed, "own corpus");
    let mut seen = BTreeSet::new();
    let mut facts = Vec::new();
    let mut stalled = 0;
    while facts.len() < 3 * sizes.part && stalled < 10_000 {
        let fact = if rng.below(8) == 0 { scripts::fact(&mut rng) } else { facts::fact(&mut rng) };
        if seen.insert(fact.text.clone()) { facts.push(fact) } else { stalled += 1 }
    }
    // Forms with few fillings run out early; without this the parts would not be exchangeable.
    rng.shuffle(&mut facts);
    let mut questions: Vec<String> = Vec::new();
    for fact in &facts {
        if let Some(q) = fact.question.clone().filter(|q| !questions.contains(q)) {
            questions.push(q);
        }
    }
    rng.shuffle(&mut questions);
    let mut writes = sessions(&facts, &mut rng);
    let test = writes.split_off(2 * sizes.part.min(writes.len() / 3));
    let calibrate = writes.split_off(sizes.part.min(writes.len() / 2));
    let history: Vec<String> = questions.iter().take(sizes.history).cloned().collect();
    let outside = questions.iter().skip(sizes.history).take(sizes.outside).cloned().collect();
    let queries = questions.iter().skip(sizes.history + sizes.outside).take(sizes.history).cloned().collect();
    let victims = history.iter().take(sizes.history / 2).cloned().collect();
    let name = "own".to_owned();
    Own {
        boundary: Boundary { name, fit: writes, calibrate, test, history, queries, facts: Vec::new() },
        victims,
        outside,
    }
}

/// Notes in all scripts of the corpus, the same number of each form in every part; for rates by script.
#[must_use]
pub fn multilingual(seed: u64, of_each: usize) -> Boundary {
    let mut rng = Rng::new(seed, "multilingual");
    let mut parts: [Vec<Write>; 3] = Default::default();
    for form in 0..scripts::COUNT {
        let (mut seen, mut tries) = (BTreeSet::new(), 0);
        while seen.len() < 3 * of_each && tries < 100 * of_each {
            tries += 1;
            let fact = scripts::of_form(form, &mut rng);
            if seen.insert(fact.text.clone()) {
                let write = Write::new(format!("note-{form}-{}", seen.len()), &fact.text).of_template(fact.template);
                parts[seen.len() % 3].push(write);
            }
        }
    }
    let [fit, calibrate, test] = parts;
    let Own { boundary, .. } = generate(seed, Sizes::FULL);
    Boundary { name: "scripts".into(), fit, calibrate, test, history: boundary.history, ..Boundary::default() }
}

/// Memories as runs of 5 to 12 of one user's session.
fn sessions(facts: &[Fact], rng: &mut Rng) -> Vec<Write> {
    let mut writes = Vec::new();
    let (mut left, mut session) = (0, 0);
    for (i, fact) in facts.iter().enumerate() {
        if left == 0 {
            left = 5 + rng.below(8);
            session += 1;
        }
        left -= 1;
        writes.push(
            Write::new(format!("own-{i}"), &fact.text)
                .from_source(format!("session-{session}"))
                .of_template(fact.template.clone()),
        );
    }
    writes
}

/// A memory and the question that it answers.
#[derive(Debug, Clone)]
struct Fact {
    template: String,
    text: String,
    question: Option<String>,
}

/// Fills `{name}` slots with words; the same slot gets the same word in both texts.
fn fill(parts: [&str; 2], slots: &[(&str, &[&str])], rng: &mut Rng) -> [String; 2] {
    let mut out = parts.map(str::to_owned);
    for (slot, words) in slots {
        let mark = format!("{{{slot}}}");
        if out.iter().any(|t| t.contains(&mark)) {
            let word = rng.pick(words);
            out = out.map(|t| t.replace(&mark, word));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::text::script;

    #[test]
    fn a_seed_repeats_and_parts_are_disjoint() {
        let own = generate(7, Sizes::SMOKE);
        let again = generate(7, Sizes::SMOKE);
        let texts = |b: &Boundary| b.benign().map(|w| w.text.clone()).collect::<Vec<_>>();
        assert_eq!(texts(&own.boundary), texts(&again.boundary));
        assert_ne!(texts(&own.boundary), texts(&generate(8, Sizes::SMOKE).boundary));
        let b = &own.boundary;
        assert_eq!([b.fit.len(), b.calibrate.len(), b.test.len()], [135; 3]);
        assert_eq!(texts(b).iter().collect::<BTreeSet<_>>().len(), 405);
        assert_eq!([b.history.len(), own.victims.len(), own.outside.len()], [20, 10, 8]);
        assert!(own.outside.iter().all(|q| !b.history.contains(q)));
        assert!(texts(b).iter().all(|t| !t.contains(['{', '}'])));
    }

    #[test]
    fn every_part_has_each_script_alike() {
        let notes = multilingual(1, 8);
        let count = |part: &[Write], name: &str| part.iter().filter(|w| script(&w.text) == name).count();
        for name in ["latin", "cyrillic", "greek", "arabic", "devanagari", "han", "kana", "hangul"] {
            let n = count(&notes.test, name);
            assert!(n >= 16 && n == count(&notes.calibrate, name), "{name}: {n}");
        }
    }

    #[test]
    fn a_full_corpus_has_several_scripts() {
        let own = generate(1, Sizes::FULL);
        let scripts: BTreeSet<&str> = own.boundary.benign().map(|w| script(&w.text)).collect();
        assert!(scripts.len() >= 6, "{scripts:?}");
        assert_eq!(own.boundary.test.len(), 240);
        assert_eq!(own.boundary.queries.len(), 60);
    }
}
