//! Selected dead letters of a topic, one at a time.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::letter::{DeadLetter, Handled, Letter};
use crate::app::Setup;
use crate::error::{Code, Error, Result};
use crate::schema::Boundary;
use crate::source::{self, Bounds, Point, Spans};
use crate::topology::Role;

/// Which dead letters.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Only this one: partition and offset.
    pub at: Option<(i32, i64)>,
    /// Only this partition.
    pub partition: Option<i32>,
    /// From here on, in every partition.
    pub from: Option<Point>,
    /// To below here, in every partition.
    pub to: Option<Point>,
    /// Only these codes; empty is all.
    pub codes: Vec<String>,
    /// Only with this key.
    pub boundary: Option<Boundary>,
    /// Handled ones too.
    pub handled: bool,
    /// At most this many.
    pub limit: usize,
}

impl Selection {
    pub(super) fn takes(&self, letter: &DeadLetter) -> bool {
        let at = self.at.is_none_or(|at| at == (letter.at.partition, letter.at.offset));
        let code = self.codes.is_empty() || self.codes.contains(&letter.code);
        let boundary = self.boundary.as_ref().is_none_or(|b| b.as_str().as_bytes() == letter.key);
        at && code && boundary && (self.handled || letter.handled.is_none())
    }
}

/// Reads `dead-letters`.
#[derive(Debug)]
pub struct Queue {
    spans: Spans,
    topic: String,
    partitions: i32,
}

impl Queue {
    /// Of a deployment.
    ///
    /// # Errors
    /// `config_invalid`, `broker_unreachable`, `topic_missing`.
    pub fn open(setup: &Setup) -> Result<Self> {
        let spans = Spans::new(&source::client(&setup.config)?)?;
        let topic = setup.topology.name(Role::DeadLetters).to_owned();
        let partitions = spans.partitions(&topic)?;
        Ok(Self { spans, topic, partitions })
    }

    /// Hands over each selected dead letter, by partition and offset; their number, and whether the limit
    /// ended it. Memory: one record, and about 16 bytes for each mark in the span.
    ///
    /// # Errors
    /// `broker_unreachable`, `restore_stalled`, and what `each` returns.
    pub fn each(&self, selection: &Selection, mut each: impl FnMut(DeadLetter) -> Result<()>) -> Result<(usize, bool)> {
        let mut count = 0;
        for partition in 0..self.partitions {
            let only = selection.at.map(|(p, _)| p).or(selection.partition);
            if only.is_some_and(|p| p != partition) {
                continue;
            }
            let bounds = self.spans.bounds(&self.topic, partition)?;
            let (from, to) = self.span(selection, partition, bounds)?;
            let marks = self.marks(partition, (from, bounds.high))?;
            let mut full = false;
            self.read(partition, (from, to), |letter| {
                let Letter::Dead(mut letter) = letter else { return Ok(ControlFlow::Continue(())) };
                letter.handled = marks.get(&letter.at.offset).copied();
                if !selection.takes(&letter) {
                    return Ok(ControlFlow::Continue(()));
                }
                if count == selection.limit {
                    full = true;
                    return Ok(ControlFlow::Break(()));
                }
                count += 1;
                each(*letter)?;
                Ok(ControlFlow::Continue(()))
            })?;
            if full {
                return Ok((count, true));
            }
        }
        Ok((count, false))
    }

    /// The dead letter at a place.
    ///
    /// # Errors
    /// `dead_letter_missing`, and those of [`Queue::each`].
    pub fn one(&self, partition: i32, offset: i64) -> Result<DeadLetter> {
        let selection = Selection { at: Some((partition, offset)), handled: true, limit: 1, ..Selection::default() };
        let mut found = None;
        self.each(&selection, |letter| {
            found = Some(letter);
            Ok(())
        })?;
        found.ok_or_else(|| {
            let what = format!("{} has no dead letter at {partition}/{offset}", self.topic);
            Error::new(Code::DeadLetterMissing, what)
        })
    }

    fn span(&self, selection: &Selection, partition: i32, bounds: Bounds) -> Result<(i64, i64)> {
        if let Some((_, offset)) = selection.at {
            let from = offset.clamp(bounds.low, bounds.high);
            return Ok((from, (offset.saturating_add(1)).clamp(from, bounds.high)));
        }
        let point = |p: Option<Point>, other: i64| match p {
            Some(p) => self.spans.resolve(&self.topic, partition, p, bounds),
            None => Ok(other),
        };
        Ok((point(selection.from, bounds.low)?, point(selection.to, bounds.high)?))
    }

    fn marks(&self, partition: i32, span: (i64, i64)) -> Result<BTreeMap<i64, Handled>> {
        let mut marks = BTreeMap::new();
        self.read(partition, span, |letter| {
            if let Letter::Mark(mark) = letter {
                marks.insert(mark.offset, mark.handled);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(marks)
    }

    fn read(
        &self,
        partition: i32,
        span: (i64, i64),
        mut each: impl FnMut(Letter) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let topic = (Role::DeadLetters, self.topic.as_str());
        self.spans.read(topic, partition, span, |record| each(Letter::parse(&self.topic, record)))
    }
}
