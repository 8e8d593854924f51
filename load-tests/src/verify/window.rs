//! The query window that writes are scored against, derived from the retrievals alone. Pure; shares no code with the
//! product.
//!
//! The numbers are those of the sample topology (docs/memsad.md): new queries wait and enter in steps; then, from
//! the newest to the oldest, a query stays unless it is too old, there are 100, its principal has 25, or newer ones
//! say the same: one of its principal, or those of two others.

use std::collections::HashMap;
use std::sync::Arc;

use crate::verify::model::{Vector, dot};

const CAPACITY: usize = 100;
const OF_ONE: usize = 25;
const STEP: usize = 20;
const AGE_MS: i64 = 30 * 86_400_000;
/// Cosine .98 in units of 1 / 32767^2.
const SAME: i64 = 32_767 * 32_767 / 100 * 98;

/// Who asked or wrote.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Who {
    pub(crate) principal: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) output: Option<String>,
}

impl Who {
    /// Whether a query is left out for a write by this one.
    fn leaves_out(&self, query: &Who) -> bool {
        let known = |a: &Option<String>, b: &Option<String>| a.is_some() && a == b;
        match (&self.principal, &query.principal) {
            (Some(a), Some(b)) if a != b => false,
            _ if known(&self.output, &query.output) || known(&self.session, &query.session) => true,
            _ => self.output.is_none() && self.session.is_none() && known(&self.principal, &query.principal),
        }
    }
}

/// A query.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) number: u64,
    pub(crate) at: i64,
    pub(crate) who: Who,
    pub(crate) vector: Vector,
}

/// All windows that a boundary has had.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    /// Offset of the retrieval that made it, its queries from the oldest.
    steps: Vec<(i64, Vec<Arc<Asked>>)>,
    waiting: Vec<Arc<Asked>>,
    /// Number of the next query, and of the first that waits.
    pub(crate) mark: (u64, u64),
}

impl Windows {
    /// Takes a query that stands at `offset` and came at stream time `at`.
    pub(crate) fn ask(&mut self, offset: i64, at: i64, who: Who, vector: Vector) {
        let number = self.mark.0;
        self.mark.0 += 1;
        self.waiting.push(Arc::new(Asked { number, at, who, vector }));
        let now = self.now().len();
        if self.waiting.len() < (now / 5).clamp(1, STEP) {
            return;
        }
        let mut all = self.now().to_vec();
        all.append(&mut self.waiting);
        let oldest = all.iter().map(|q| q.at).max().unwrap_or(at).saturating_sub(AGE_MS);
        let mut kept: Vec<Arc<Asked>> = Vec::new();
        let mut of: HashMap<Option<String>, usize> = HashMap::new();
        while let Some(q) = all.pop() {
            let alike: Vec<&Arc<Asked>> = kept.iter().filter(|k| dot(&k.vector, &q.vector) >= SAME).collect();
            let own = alike.iter().any(|k| k.who.principal == q.who.principal);
            let count = of.entry(q.who.principal.clone()).or_default();
            if q.at >= oldest && kept.len() < CAPACITY && *count < OF_ONE && !own && alike.len() < 2 {
                *count += 1;
                kept.push(q);
            }
        }
        kept.reverse();
        self.steps.push((offset, kept));
        self.mark.1 = self.mark.0;
    }

    fn now(&self) -> &[Arc<Asked>] {
        self.steps.last().map_or(&[], |(_, rows)| rows)
    }

    /// Queries in the window or waiting: what the state holds.
    pub(crate) fn held(&self) -> impl Iterator<Item = &Arc<Asked>> {
        self.now().iter().chain(&self.waiting)
    }

    /// Dot products of a write with the window that the retrievals below offset `next` make.
    pub(crate) fn dots(&self, next: i64, who: &Who, vector: &Vector) -> Vec<i64> {
        let count = self.steps.partition_point(|(offset, _)| *offset < next);
        let rows = count.checked_sub(1).map_or(&[][..], |i| &self.steps[i].1);
        rows.iter().filter(|q| !who.leaves_out(&q.who)).map(|q| dot(&q.vector, vector)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(principal: &str) -> Who {
        Who { principal: Some(principal.to_owned()), session: Some("s".to_owned()), output: None }
    }

    fn vector(i: i16) -> Vector {
        // About unit length, and unlike for unlike numbers.
        let angle = f64::from(i) * 0.5;
        #[allow(clippy::cast_possible_truncation)] // below 32767
        let part = |x: f64| (x * 32_767.0).round() as i16;
        [part(angle.cos()), part(angle.sin())].into()
    }

    #[test]
    fn windows_move_in_steps_and_keep_their_limits() {
        let mut windows = Windows::default();
        for i in 0..12_i16 {
            windows.ask(i64::from(i), 0, who(&format!("p{i}")), vector(i));
        }
        // Ten at once, then two by two.
        assert_eq!((windows.now().len(), windows.waiting.len(), windows.mark), (12, 0, (12, 12)));
        windows.ask(12, 0, who("p"), vector(20));
        assert_eq!((windows.now().len(), windows.waiting.len(), windows.mark), (12, 1, (13, 12)));
        assert_eq!(windows.dots(13, &Who::default(), &vector(0)).len(), 12);
        assert_eq!(windows.dots(5, &Who::default(), &vector(0)).len(), 5);
        assert_eq!(windows.dots(0, &Who::default(), &vector(0)).len(), 0);
        // The same principal's and session's query is left out; nobody else's.
        assert_eq!(windows.dots(13, &who("p3"), &vector(0)).len(), 11);
        // A copy by the same principal replaces; others' copies stay up to two.
        for (offset, p) in [(13, "p"), (14, "a"), (15, "b"), (16, "c"), (17, "d")] {
            windows.ask(offset, 1, who(p), vector(20));
        }
        let copies = windows.held().filter(|q| q.vector == vector(20)).count();
        assert!((2..=4).contains(&copies), "{copies}");
        windows.ask(18, AGE_MS + 1, who("z"), vector(30));
        windows.ask(19, AGE_MS + 1, who("y"), vector(40));
        windows.ask(20, AGE_MS + 1, who("x"), vector(50));
        assert!(windows.now().iter().all(|q| q.at >= 1));
    }
}
