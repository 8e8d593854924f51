//! The matrix: every attack against every defense on every boundary.

use std::collections::BTreeMap;

use serde::Serialize;

use super::attacks::{Scene, all};
use super::cell::{Cell, Ground, cell};
use super::corpus::{Sizes, generate};
use super::data::{Data, Golden, Set, chat, chat_sets, ds, ehr, ehr_sets, qa, shop};
use super::defenses::{Kind, fit};
use super::stats::{Bootstrap, mcnemar};
use super::work::Work;
use super::{Attack, Boundary, Control, Encode, Judged, Store, Truth, digest};
use crate::error::Result;

/// Cells of another form than this are made again.
const FORM: u32 = 1;

/// How a run is done.
#[derive(Debug, Clone)]
pub struct Options {
    /// Seed of everything.
    pub seed: u64,
    /// Ranks that count as retrieved.
    pub k: usize,
    /// Bootstrap resamples.
    pub resamples: usize,
    /// A small own corpus alone.
    pub smoke: bool,
    /// Defenses; all when empty.
    pub defenses: Vec<Kind>,
    /// Names of attacks; all when empty.
    pub attacks: Vec<String>,
}

/// A boundary with the attacks on it.
#[derive(Debug)]
pub struct Field {
    /// The store.
    pub boundary: Boundary,
    /// Attacks.
    pub attacks: Vec<Attack>,
}

/// The own corpus with all generated attacks, and, where the data are, their boundaries with generated and published
/// attacks.
///
/// # Errors
/// `file_unreadable`, `encoder_failed`.
pub fn fields(
    options: &Options,
    data: Option<&Data>,
    golden: Option<&Golden>,
    encode: &dyn Encode,
    mut step: impl FnMut(&str),
) -> Result<Vec<Field>> {
    step("own corpus");
    let own = generate(options.seed, if options.smoke { Sizes::SMOKE } else { Sizes::FULL });
    let mut fields = vec![generated(own.boundary, &own.victims, &own.outside, options, encode)?];
    let Some(data) = data.filter(|_| !options.smoke) else { return Ok(fields) };
    step("chat");
    let boundary = chat(data, options.seed)?;
    // Those that fit an office corpus; the persona queries are kept for the utility.
    let victims: Vec<String> = boundary.history.iter().take(40).cloned().collect();
    let outside: Vec<String> = boundary.queries.iter().take(40).cloned().collect();
    let mut field = generated(boundary, &victims, &outside, options, encode)?;
    field.attacks.extend(published(&chat_sets(data, golden, options.seed)?, "chat", &field.boundary, options.seed));
    fields.push(field);
    step("ehr, ds, qa, shop");
    let records = ehr(data, options.seed)?;
    let sets = ehr_sets(data, &records.template_sessions, options.seed)?;
    let mut boundaries = vec![records.boundary, ds(data, options.seed)?];
    if let Some(golden) = golden {
        boundaries.extend([qa(data, golden, options.seed)?, shop(data, options.seed)?]);
    }
    for boundary in boundaries {
        let attacks = published(&sets, &boundary.name, &boundary, options.seed);
        fields.push(Field { boundary, attacks });
    }
    Ok(fields)
}

fn generated(
    boundary: Boundary,
    victims: &[String],
    outside: &[String],
    options: &Options,
    encode: &dyn Encode,
) -> Result<Field> {
    let scene = Scene { boundary: &boundary, victims, outside, seed: options.seed, k: options.k };
    let attacks = all(&scene, encode)?;
    Ok(Field { attacks, boundary })
}

/// Poison sets of a domain as attacks; the domain's benign sets, echoes of its history and texts behind random words
/// stand beside each.
fn published(sets: &[Set], domain: &str, boundary: &Boundary, seed: u64) -> Vec<Attack> {
    let of = |truth: Truth| sets.iter().filter(move |s| s.domain == domain && s.truth == truth);
    let benign: Vec<Control> = of(Truth::Benign)
        .map(|s| Control { name: s.name.into(), truth: s.truth, writes: s.writes.clone(), victims: Vec::new() })
        .collect();
    let attack = |s: &Set| {
        let counted = |i: usize| s.counted.is_empty() || s.counted[i];
        let poison: Vec<_> = s.writes.iter().enumerate().filter(|(i, _)| counted(*i)).map(|(_, w)| w.clone()).collect();
        let scene = Scene { boundary, victims: &boundary.history, outside: &[], seed, k: 0 };
        let mut controls = super::attacks::standard(&scene, &poison, outside_history(&poison, boundary));
        controls.retain(|c| !c.writes.is_empty());
        // The victims of a set are its own; what would be retrieved for the history says nothing about it.
        for c in controls.iter_mut().filter(|c| c.truth == Truth::Poison) {
            c.victims = Vec::new();
        }
        controls.extend(benign.iter().cloned());
        Attack { name: s.name.into(), provenance: s.provenance, poison, victims: s.victims.clone(), controls }
    };
    of(Truth::Poison).map(attack).collect()
}

/// The poison whose victim query never reached the history.
fn outside_history(poison: &[super::Write], boundary: &Boundary) -> Vec<super::Write> {
    let known = |w: &&super::Write| w.cause.as_ref().is_some_and(|c| !boundary.history.contains(c));
    poison.iter().filter(known).cloned().collect()
}

/// All cells. `step` is told what is done, before it is done.
///
/// # Errors
/// `encoder_failed`, `output_failed`.
pub fn run(
    options: &Options,
    fields: &[Field],
    encode: &dyn Encode,
    work: &Work,
    mut step: impl FnMut(&str),
) -> Result<Vec<Cell>> {
    let kinds = if options.defenses.is_empty() { Kind::ALL.to_vec() } else { options.defenses.clone() };
    let mut cells = Vec::new();
    for field in fields {
        let lazy = Lazy::new(field, options, encode);
        let boundary = digest(&field.boundary);
        for attack in field.attacks.iter().filter(|a| wanted(options, a)) {
            let poison = digest(attack);
            for kind in &kinds {
                step(&format!("{} {} {}", field.boundary.name, attack.name, kind.as_str()));
                let inputs =
                    (FORM, options.seed, options.k, options.resamples, encode.identity(), &boundary, &poison, kind);
                cells.push(work.part(&inputs, || lazy.cell(attack, *kind))?);
            }
        }
    }
    compare(&mut cells);
    Ok(cells)
}

/// Number of cells that [`run`] makes.
#[must_use]
pub fn count(options: &Options, fields: &[Field]) -> usize {
    let kinds = if options.defenses.is_empty() { Kind::ALL.len() } else { options.defenses.len() };
    fields.iter().flat_map(|f| &f.attacks).filter(|a| wanted(options, a)).count() * kinds
}

fn wanted(options: &Options, attack: &Attack) -> bool {
    !attack.poison.is_empty() && (options.attacks.is_empty() || options.attacks.contains(&attack.name))
}

/// Made when the first cell needs it, since cells that are kept need none of it.
struct Lazy<'a> {
    field: &'a Field,
    options: &'a Options,
    encode: &'a dyn Encode,
    store: std::cell::OnceCell<Store>,
    fitted: std::cell::RefCell<BTreeMap<Kind, Fitted>>,
}

/// A defense with its verdicts on the benign test part.
type Fitted = std::rc::Rc<(Box<dyn super::Defense>, Vec<Judged>)>;

impl<'a> Lazy<'a> {
    fn new(field: &'a Field, options: &'a Options, encode: &'a dyn Encode) -> Self {
        Self { field, options, encode, store: std::cell::OnceCell::new(), fitted: std::cell::RefCell::default() }
    }

    fn cell(&self, attack: &Attack, kind: Kind) -> Result<Cell> {
        let boundary = &self.field.boundary;
        if self.store.get().is_none() {
            drop(self.store.set(Store::new(boundary, self.options.k, self.encode)?));
        }
        let known = self.fitted.borrow().get(&kind).cloned();
        let fitted = match known {
            Some(fitted) => fitted,
            None => {
                let defense = fit(kind, boundary, self.encode)?;
                let benign = defense.judge(&boundary.test, self.encode)?;
                let fitted = std::rc::Rc::new((defense, benign));
                self.fitted.borrow_mut().insert(kind, fitted.clone());
                fitted
            }
        };
        let Some(store) = self.store.get() else {
            return Err(crate::error::Error::new(crate::error::Code::Internal, "the store was just made"));
        };
        let bootstrap = Bootstrap { resamples: self.options.resamples, seed: self.options.seed };
        let ground = Ground { boundary, store, encode: self.encode, bootstrap };
        cell(&ground, attack, kind.as_str(), fitted.0.as_ref(), &fitted.1)
    }
}

/// Tests each defense against reference MEMSAD on the same texts, and says how many tests the run makes.
fn compare(cells: &mut [Cell]) {
    let reference: BTreeMap<(String, String), Vec<bool>> = cells
        .iter()
        .filter(|c| c.defense == Kind::MemsadCombined.as_str())
        .map(|c| ((c.boundary.clone(), c.attack.clone()), c.flags.clone()))
        .collect();
    for c in cells.iter_mut().filter(|c| c.defense != Kind::MemsadCombined.as_str()) {
        let Some(other) = reference.get(&(c.boundary.clone(), c.attack.clone())) else { continue };
        let only = |a: &[bool], b: &[bool]| {
            u32::try_from(a.iter().zip(b).filter(|(x, y)| **x && !**y).count()).unwrap_or(u32::MAX)
        };
        c.p_mcnemar = Some(mcnemar(only(&c.flags, other), only(other, &c.flags)));
    }
    let tests = cells.len() + cells.iter().filter(|c| c.p_mcnemar.is_some()).count();
    cells.iter_mut().for_each(|c| c.tests = tests);
}

/// Sizes of a boundary, for the head of a report.
#[derive(Debug, Clone, Serialize)]
pub struct Corpus {
    /// Boundary.
    pub boundary: String,
    /// Writes in the three parts.
    pub parts: [usize; 3],
    /// Queries in the history.
    pub history: usize,
}

/// What each field holds.
#[must_use]
pub fn describe(fields: &[Field]) -> Vec<Corpus> {
    let one = |f: &Field| Corpus {
        boundary: f.boundary.name.clone(),
        parts: [f.boundary.fit.len(), f.boundary.calibrate.len(), f.boundary.test.len()],
        history: f.boundary.history.len(),
    };
    fields.iter().map(one).collect()
}
