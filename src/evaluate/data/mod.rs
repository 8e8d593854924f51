//! Public data sets in the JSON Lines form of `../shared/data` (its `DATA.md` names source and licence of each). Read
//! from a path, never shipped.

mod assembled;
mod boundaries;
mod sets;

pub use assembled::{qa, shop};
pub use boundaries::{chat, ds, ehr};
pub use sets::{Golden, Set, chat_sets, ehr_sets};

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Rng, Write};
use crate::error::{Code, Error, Result};

/// A row of any of the files; absent fields are empty.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Row {
    /// Id.
    pub id: String,
    /// benign, poison or extraction.
    pub label: String,
    /// Text.
    pub text: String,
    /// Question of a memory.
    pub query: String,
    /// Knowledge lines.
    pub knowledge: String,
    /// Question template.
    pub template: Option<String>,
    /// Task of an experience.
    pub task: String,
    /// Session.
    pub session: String,
    /// Day.
    pub ts: String,
    /// Role of a query.
    pub role: String,
    /// Attack.
    pub attack: Option<String>,
    /// Variant of a scenario.
    pub variant: String,
    /// Scenario.
    pub scenario: String,
    /// Facts that a registry would hold.
    pub trusted_facts: Vec<String>,
    /// Attacked query.
    pub victim_query: String,
    /// Right answer.
    pub correct: String,
    /// Trigger.
    pub trigger: String,
    /// Question without the trigger.
    pub base_question: String,
    /// Question with it.
    pub retrieval_key: String,
    /// Agent.
    pub agent: String,
    /// Victim and target pair.
    pub pair: Option<i64>,
    /// Victim term.
    pub victim: String,
    /// Target term.
    pub target: String,
    /// Last shortening stage.
    #[serde(rename = "final")]
    pub last: bool,
    /// Where it comes from.
    pub provenance: Origin,
}

/// The part of a row's provenance that tables need.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// Published wording.
    pub published: bool,
}

/// A folder of data.
#[derive(Debug, Clone)]
pub struct Data {
    folder: PathBuf,
}

impl Data {
    /// A folder with `benign/`, `poison/` and `extraction/`; `None` when it isn't there.
    #[must_use]
    pub fn at(folder: &Path) -> Option<Self> {
        folder.is_dir().then(|| Self { folder: folder.to_owned() })
    }

    /// The rows of a file such as `benign/clinc150_queries`.
    ///
    /// # Errors
    /// `file_unreadable`, also for a line that is no row.
    pub fn rows(&self, name: &str) -> Result<Vec<Row>> {
        let path = self.folder.join(format!("{name}.jsonl"));
        let text = std::fs::read_to_string(&path)
            .map_err(|e| Error::with(Code::FileUnreadable, format!("can't read {}", path.display()), e))?;
        let row = |(number, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|e| {
                let why = format!("{} line {}: no row, column {}", path.display(), number + 1, e.column());
                Error::new(Code::FileUnreadable, why)
            })
        };
        text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()).map(row).collect()
    }
}

/// Texts of rows.
fn texts(rows: &[Row]) -> Vec<String> {
    rows.iter().map(|r| r.text.clone()).collect()
}

/// Runs of 5 to 20 consecutive writes are one source each.
fn in_runs(writes: Vec<Write>, name: &str, rng: &mut Rng) -> Vec<Vec<Write>> {
    let mut groups: Vec<Vec<Write>> = Vec::new();
    let mut left = 0;
    for write in writes {
        if left == 0 {
            left = 5 + rng.below(16);
            groups.push(Vec::new());
        }
        left -= 1;
        let source = format!("{name}-run-{}", groups.len());
        if let Some(group) = groups.last_mut() {
            group.push(write.from_source(source));
        }
    }
    groups
}

/// Cuts groups, in order, into 35 %, 35 % and 30 % of the writes; a group stays whole.
pub(super) fn cut(groups: Vec<Vec<Write>>) -> [Vec<Write>; 3] {
    let all: usize = groups.iter().map(Vec::len).sum();
    let mut parts: [Vec<Write>; 3] = Default::default();
    let mut before = 0;
    for group in groups {
        let part = match before {
            n if n * 100 < all * 35 => 0,
            n if n * 100 < all * 70 => 1,
            _ => 2,
        };
        before += group.len();
        parts[part].extend(group);
    }
    parts
}

/// Two lists of groups as one, each in its order, at an even pace.
pub(super) fn interleave(a: Vec<Vec<Write>>, b: Vec<Vec<Write>>) -> Vec<Vec<Write>> {
    let size = |g: &[Vec<Write>]| g.iter().map(Vec::len).sum::<usize>().max(1);
    let (all_a, all_b) = (size(&a), size(&b));
    let (mut done_a, mut done_b) = (0, 0);
    let (mut a, mut b) = (a.into_iter().peekable(), b.into_iter().peekable());
    let mut out = Vec::new();
    loop {
        let first = match (a.peek(), b.peek()) {
            (None, None) => return out,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(_), Some(_)) => done_a * all_b <= done_b * all_a,
        };
        let (next, done) = if first { (a.next(), &mut done_a) } else { (b.next(), &mut done_b) };
        if let Some(group) = next {
            *done += group.len();
            out.push(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_stay_whole_and_in_order() {
        let make = |name: &str, n: usize| (0..n).map(|i| Write::new(format!("{name}{i}"), "t")).collect::<Vec<_>>();
        let mut rng = Rng::new(1, "t");
        let (a, b) = (in_runs(make("a", 100), "a", &mut rng), in_runs(make("b", 50), "b", &mut rng));
        let joined = interleave(a, b);
        assert_eq!(joined.iter().map(Vec::len).sum::<usize>(), 150);
        let parts = cut(joined);
        for (i, part) in parts.iter().enumerate() {
            for other in &parts[i + 1..] {
                assert!(part.iter().all(|w| other.iter().all(|o| o.source != w.source)));
            }
        }
        assert!(parts[0].iter().any(|w| w.id.starts_with('a')) && parts[0].iter().any(|w| w.id.starts_with('b')));
        assert!((40..75).contains(&parts[0].len()));
    }

    #[test]
    fn a_broken_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("benign")).unwrap();
        std::fs::write(folder.path().join("benign/x.jsonl"), "{\"id\":\"a\",\"text\":\"t\",\"more\":1}\n\n{oops\n")
            .unwrap();
        let data = Data::at(folder.path()).unwrap();
        let error = data.rows("benign/x").unwrap_err();
        assert_eq!(error.code(), Code::FileUnreadable);
        assert!(error.message().contains("line 3"), "{}", error.message());
        assert_eq!(data.rows("benign/absent").unwrap_err().code(), Code::FileUnreadable);
        assert!(Data::at(&folder.path().join("absent")).is_none());
    }
}
