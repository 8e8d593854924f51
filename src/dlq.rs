//! Dead letters by hand: list, show, send again (redrive), give up (skip).
//!
//! What was handled is marked by a record of its own in the same partition of `dead-letters`, written in
//! the same transaction as what was sent. The mark stands behind its dead letter, so retention never takes it
//! first. One transactional id an application: a second redrive fences the first, and reads only after that.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use serde::Serialize;

use crate::app::Setup;
use crate::clock::Millis;
use crate::error::{Code, Error, Result};
use crate::schema::{Boundary, Coordinates, Headers, header as h};
use crate::sink::{CommitError, Output, TransactionalProducer, Transactions, size};
use crate::source::{self, Bounds, Client, FRAMING, Fetched, Point, Spans, partition_of};
use crate::topology::Role;

/// Records and bytes in one transaction.
const CHUNK: (usize, usize) = (1000, 16 << 20);
/// The broker aborts an abandoned redrive after this.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What was done about a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Handled {
    /// It was sent again.
    Redriven,
    /// It was given up.
    Skipped,
}

impl Handled {
    /// The wire word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Handled::Redriven => "redriven",
            Handled::Skipped => "skipped",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Handled::Redriven, Handled::Skipped].into_iter().find(|h| h.as_str() == word)
    }
}

/// A dead letter, read back into the record it was made of and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Where it stands.
    pub at: Coordinates,
    /// Record time.
    pub timestamp: Millis,
    /// The input's coordinates.
    pub source: Coordinates,
    /// What a redrive or skip names: the input, or what that was a redrive of.
    pub origin: Coordinates,
    /// Error code.
    pub code: String,
    /// Stage that refused it.
    pub stage: String,
    /// What was found.
    pub message: String,
    /// Program version that refused it.
    pub version: String,
    /// The input's key; empty where it had none.
    pub key: Vec<u8>,
    /// The input had no key.
    pub null_key: bool,
    /// The input's value, or the stub.
    pub value: Option<Vec<u8>>,
    /// The input's headers.
    pub original: Headers,
    /// Why the whole record isn't here, if it isn't.
    pub incomplete: Option<&'static str>,
    /// What was done about it.
    pub handled: Option<Handled>,
}

/// A mark that a dead letter was handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Offset of the dead letter, in the mark's own partition.
    pub offset: i64,
    /// What was done.
    pub handled: Handled,
}

/// A record of `dead-letters`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Letter {
    /// A dead letter.
    Dead(Box<DeadLetter>),
    /// A mark.
    Mark(Mark),
    /// Neither: written by something else.
    Other,
}

impl Letter {
    /// Reads a record. Our error headers begin with the last `__streams.errors.exception`: what stands in front
    /// of it is the producer's, under a prefix or (before 0.2) as it was, and no input can pass for a mark. Pure.
    #[must_use]
    pub fn parse(topic: &str, record: Fetched) -> Self {
        let at = Coordinates { topic: topic.to_owned(), partition: record.at.partition, offset: record.at.offset };
        let Some(split) = record.headers.iter().rposition(|(name, _)| name == h::EXCEPTION) else {
            return mark(&at, &record.headers).map_or(Letter::Other, Letter::Mark);
        };
        let mut original = record.headers;
        let ours = original.split_off(split);
        let text = |name: &str| {
            let value = ours.iter().find(|(n, _)| n == name).and_then(|(_, v)| v.as_deref());
            value.map(|v| String::from_utf8_lossy(v).into_owned())
        };
        let number = |name: &str| text(name).and_then(|t| t.parse::<i64>().ok());
        let source = || {
            Some(Coordinates {
                topic: text(h::TOPIC)?,
                partition: i32::try_from(number(h::PARTITION)?).ok()?,
                offset: number(h::OFFSET)?,
            })
        };
        let Some(source) = source() else { return Letter::Other };
        let origin = text(h::DLQ_ORIGIN).and_then(|o| o.parse::<Coordinates>().ok());
        if origin.is_some() {
            original.retain_mut(|(name, _)| {
                let own = name.strip_prefix(h::ORIGINAL).map(str::to_owned);
                own.map(|o| *name = o).is_some()
            });
        }
        let stub = ours.iter().any(|(name, _)| name == h::STUB);
        let unreadable = original.iter().any(|(name, _)| name == h::UNREADABLE);
        let incomplete = match (stub, unreadable) {
            (true, _) => Some("it is a stub: the record was too large to be kept"),
            (_, true) => Some("its header names were not UTF-8 and are gone"),
            _ => None,
        };
        Letter::Dead(Box::new(DeadLetter {
            at,
            timestamp: record.at.timestamp,
            origin: origin.unwrap_or_else(|| source.clone()),
            source,
            code: text(h::ERROR_CODE).unwrap_or_default(),
            stage: text(h::ERROR_STAGE).unwrap_or_default(),
            message: text(h::MESSAGE).unwrap_or_default(),
            version: text(h::VERSION).unwrap_or_default(),
            key: record.key.unwrap_or_default(),
            null_key: ours.iter().any(|(name, _)| name == h::NULL_KEY),
            value: record.value,
            original,
            incomplete,
            handled: None,
        }))
    }
}

fn mark(at: &Coordinates, headers: &Headers) -> Option<Mark> {
    let text = |name: &str| {
        let value = headers.iter().find(|(n, _)| n == name).and_then(|(_, v)| v.as_deref())?;
        std::str::from_utf8(value).ok()
    };
    let handled = Handled::parse(text(h::DLQ_HANDLED)?)?;
    let of: Coordinates = text(h::DLQ_LETTER)?.parse().ok()?;
    (of.topic == at.topic && of.partition == at.partition).then_some(Mark { offset: of.offset, handled })
}

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
    fn takes(&self, letter: &DeadLetter) -> bool {
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

/// What is done with selected dead letters.
#[derive(Debug, Clone)]
pub enum Act {
    /// Sent again to their input topic, one of them perhaps with another value.
    Redrive {
        /// The value to send instead.
        edit: Option<Vec<u8>>,
    },
    /// Given up.
    Skip {
        /// Why.
        reason: String,
        /// Releases a key that the stream holds because of them.
        release_key: bool,
    },
}

/// Counts of a redrive or skip.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Done {
    /// Sent again, or given up.
    pub handled: u64,
    /// Left alone: the dead letter doesn't hold the whole record.
    pub incomplete: u64,
    /// Transactions.
    pub transactions: u64,
}

/// A record for an input topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sending {
    /// Partition; `None` is murmur2 of the key.
    pub partition: Option<i32>,
    /// Key.
    pub key: Vec<u8>,
    /// Value.
    pub value: Option<Vec<u8>>,
    /// Headers.
    pub headers: Headers,
}

/// What a dead letter is sent as; `None` sends nothing. Pure.
///
/// # Errors
/// `dead_letter_incomplete` when the whole record isn't there to be sent again.
pub fn sending(letter: &DeadLetter, act: &Act) -> Result<Option<Sending>> {
    let named = |name: &str| (name.to_owned(), Some(letter.origin.to_string().into_bytes()));
    match act {
        Act::Redrive { edit } => {
            if let Some(why) = letter.incomplete {
                return Err(Error::new(
                    Code::DeadLetterIncomplete,
                    format!("{} can't be sent again: {why}", letter.at),
                ));
            }
            let mut headers = letter.original.clone();
            headers.retain(|(name, _)| name != h::REDRIVE);
            headers.push(named(h::REDRIVE));
            let value = edit.clone().or_else(|| letter.value.clone());
            let partition = letter.null_key.then_some(letter.source.partition);
            Ok(Some(Sending { partition, key: letter.key.clone(), value, headers }))
        }
        Act::Skip { release_key: true, .. } => {
            // The key is held where its first record failed.
            let partition = Some(letter.origin.partition);
            Ok(Some(Sending { partition, key: letter.key.clone(), value: None, headers: vec![named(h::DLQ_SKIP)] }))
        }
        Act::Skip { .. } => Ok(None),
    }
}

/// Handles dead letters, with marks, in transactions.
pub struct Handler {
    producer: TransactionalProducer,
    /// Partitions of each input topic.
    inputs: BTreeMap<String, i32>,
    open: (usize, usize),
    done: Done,
}

impl std::fmt::Debug for Handler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handler").field("done", &self.done).finish_non_exhaustive()
    }
}

impl Handler {
    /// Fences other handlers of the application, so that what is read after this is all that was done.
    ///
    /// # Errors
    /// `broker_unreachable`, `broker_refused`, `topic_missing`.
    pub fn start(setup: &Setup) -> Result<Self> {
        let client = source::client(&setup.config)?;
        let spans = Spans::new(&client)?;
        let mut inputs = BTreeMap::new();
        for role in Role::INPUTS {
            let name = setup.topology.name(role);
            inputs.insert(name.to_owned(), spans.partitions(name)?);
        }
        let producer = producer(setup, &client)?;
        Ok(Self { producer, inputs, open: (0, 0), done: Done::default() })
    }

    /// Puts one dead letter into the transaction, and commits when that is full.
    ///
    /// # Errors
    /// `dead_letter_incomplete`; those of a transaction, after which what was not committed is as it was.
    pub fn take(&mut self, letter: &DeadLetter, act: &Act) -> Result<()> {
        let sending = sending(letter, act)?;
        let mut bytes = 0;
        if let Some(s) = sending {
            let Some(count) = self.inputs.get(&letter.source.topic).copied() else {
                let what = format!("{}: {} is no input of the topology", letter.at, letter.source.topic);
                return Err(Error::new(Code::DeadLetterIncomplete, what));
            };
            bytes = size(s.key.len(), s.value.as_deref(), &s.headers);
            let partition = s.partition.unwrap_or_else(|| partition_of(&s.key, count));
            self.send(&letter.source.topic, partition, &s)?;
        }
        self.send(&letter.at.topic, letter.at.partition, &marking(letter, act))?;
        self.done.handled += 1;
        self.open = (self.open.0 + 1, self.open.1 + bytes);
        if self.open.0 >= CHUNK.0 || self.open.1 >= CHUNK.1 { self.commit() } else { Ok(()) }
    }

    /// Counts one that was left alone.
    pub fn leave(&mut self) {
        self.done.incomplete += 1;
    }

    /// Commits the rest.
    ///
    /// # Errors
    /// Those of a transaction.
    pub fn finish(mut self) -> Result<Done> {
        self.commit()?;
        Ok(std::mem::take(&mut self.done))
    }

    fn send(&mut self, topic: &str, partition: i32, s: &Sending) -> Result<()> {
        let (key, value, headers) = (s.key.clone(), s.value.clone(), s.headers.clone());
        let output = Output { role: Role::DeadLetters, partition, key, value, headers };
        let begun = self.producer.begin();
        begun.and_then(|()| self.producer.send(topic, &output)).map_err(|e| self.failed(e))
    }

    fn commit(&mut self) -> Result<()> {
        if self.open.0 == 0 {
            return Ok(());
        }
        self.open = (0, 0);
        let drained = self.producer.drain();
        drained.and_then(|_| self.producer.commit()).map_err(|e| self.failed(e))?;
        self.done.transactions += 1;
        Ok(())
    }

    /// Rolls back, so that the records don't wait for the transaction's timeout. A later handler that fenced
    /// this one has done that already.
    fn failed(&mut self, e: CommitError) -> Error {
        self.open = (0, 0);
        if let Err(abort) = self.producer.abort() {
            tracing::debug!(error = %abort.error, "nothing left to roll back");
        }
        let what = "the transaction did not come through, perhaps because another dlq command took over: run it again, \
                    what was sent is marked";
        Error::with(e.error.code(), what, e.error)
    }
}

impl Drop for Handler {
    /// What was begun and not committed hides the ends of its partitions until it is rolled back.
    fn drop(&mut self) {
        if self.open.0 > 0
            && let Err(e) = self.producer.abort()
        {
            tracing::warn!(error = %e.error, "the transaction ends by its timeout");
        }
    }
}

fn producer(setup: &Setup, client: &Client) -> Result<TransactionalProducer> {
    let id = format!("{}{}-dlq", setup.config.kafka.topic_prefix, setup.topology.main.application);
    let largest = setup.topology.main.limits.max_output_bytes + FRAMING;
    TransactionalProducer::start(client, Some(&id), TIMEOUT, largest)
}

/// The mark of a handled dead letter.
fn marking(letter: &DeadLetter, act: &Act) -> Sending {
    let (handled, reason) = match act {
        Act::Redrive { edit } => (Handled::Redriven, edit.as_ref().map(|_| "edited")),
        Act::Skip { reason, .. } => (Handled::Skipped, Some(reason.as_str())),
    };
    let mut headers: Headers = vec![
        (h::DLQ_HANDLED.to_owned(), Some(handled.as_str().as_bytes().to_vec())),
        (h::DLQ_LETTER.to_owned(), Some(letter.at.to_string().into_bytes())),
    ];
    headers.extend(reason.map(|r| (h::DLQ_REASON.to_owned(), Some(r.as_bytes().to_vec()))));
    Sending { partition: Some(letter.at.partition), key: letter.key.clone(), value: None, headers }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::DeadLetterHeaders;
    use crate::source::At;

    fn header(name: &str, value: &str) -> (String, Option<Vec<u8>>) {
        (name.to_owned(), Some(value.as_bytes().to_vec()))
    }

    fn record(headers: Headers) -> Fetched {
        let at = At { generation: 0, role: Role::DeadLetters, partition: 3, offset: 17, timestamp: 5 };
        Fetched { at, key: Some(b"acme/support".to_vec()), value: Some(b"{".to_vec()), headers }
    }

    fn errors() -> Headers {
        vec![
            header(h::EXCEPTION, "invalid_json"),
            header(h::MESSAGE, "no JSON"),
            header(h::TOPIC, "memory-writes"),
            header(h::PARTITION, "3"),
            header(h::OFFSET, "99"),
            header(h::ERROR_CODE, "invalid_json"),
            header(h::ERROR_STAGE, "decode"),
            header(h::VERSION, "0.1.0"),
        ]
    }

    fn dead(headers: Headers) -> DeadLetter {
        match Letter::parse("dlq", record(headers)) {
            Letter::Dead(letter) => *letter,
            other => panic!("{other:?}"),
        }
    }

    /// Producers may use our names: theirs stay theirs, and none of them makes a mark or a stub.
    #[test]
    fn a_producers_headers_are_kept_and_believed_in_nothing() {
        let theirs = vec![
            header(h::EXCEPTION, "forged"),
            header(h::TOPIC, "another-topic"),
            header(h::STUB, "true"),
            header(h::DLQ_HANDLED, "redriven"),
            header(h::DLQ_LETTER, "dlq/3/17"),
            header(h::ERROR_CODE, "forged"),
            header("own", "1"),
        ];
        let letter = dead(theirs.iter().cloned().chain(errors()).collect());
        assert_eq!(letter.original, theirs);
        assert_eq!((letter.code.as_str(), letter.source.to_string().as_str()), ("invalid_json", "memory-writes/3/99"));
        assert_eq!((letter.incomplete, letter.handled), (None, None));
    }

    #[test]
    fn a_redrive_is_the_record_and_names_its_dead_letter_once() {
        let headers = [vec![header("own", "1"), header(h::REDRIVE, "memory-writes/3/5")], errors()].concat();
        let sent = sending(&dead(headers), &Act::Redrive { edit: None }).unwrap().unwrap();
        assert_eq!(sent.headers, vec![header("own", "1"), header(h::REDRIVE, "memory-writes/3/99")]);
        assert_eq!(sent.partition, None);
        assert_eq!((sent.key.as_slice(), sent.value.as_deref()), (&b"acme/support"[..], Some(&b"{"[..])));
        let edited = sending(&dead(errors()), &Act::Redrive { edit: Some(b"{}".to_vec()) }).unwrap().unwrap();
        assert_eq!(edited.value.as_deref(), Some(&b"{}"[..]));
    }

    /// The typed form: headers come back from under their prefix, and the first failure stays the origin.
    #[test]
    fn typed_headers_give_the_record_back() {
        let at = |offset| Coordinates { topic: "memory-writes".into(), partition: 3, offset };
        let original = vec![header("own", "1"), (h::ERROR_CODE.to_owned(), None)];
        let typed = DeadLetterHeaders {
            input: at(99),
            timestamp: 5,
            code: "key_held".into(),
            message: "m".into(),
            stage: "hold".into(),
            version: "0.1.0".into(),
            origin: at(7),
            null_key: true,
            stub: false,
            isolation: None,
            original: original.clone(),
        };
        let letter = dead(typed.to_headers());
        assert_eq!((&letter.original, letter.code.as_str(), letter.null_key), (&original, "key_held", true));
        assert_eq!((letter.source.offset, letter.origin.offset), (99, 7));
        let sent = sending(&letter, &Act::Redrive { edit: None }).unwrap().unwrap();
        assert_eq!(sent.headers, [original, vec![header(h::REDRIVE, "memory-writes/3/7")]].concat());
        assert_eq!(sent.partition, Some(3));
    }

    #[test]
    fn what_is_not_whole_is_not_sent() {
        let stub = dead([errors(), vec![header(h::STUB, "true")]].concat());
        let unreadable = dead([vec![(h::UNREADABLE.to_owned(), None)], errors()].concat());
        for letter in [stub, unreadable] {
            let error = sending(&letter, &Act::Redrive { edit: None }).unwrap_err();
            assert_eq!(error.code(), Code::DeadLetterIncomplete);
            assert_eq!(sending(&letter, &Act::Skip { reason: "r".into(), release_key: false }).unwrap(), None);
        }
    }

    #[test]
    fn a_skip_releases_its_key_only_on_demand() {
        let letter = dead(errors());
        let skip = |release_key| Act::Skip { reason: "known".into(), release_key };
        assert_eq!(sending(&letter, &skip(false)).unwrap(), None);
        let control = sending(&letter, &skip(true)).unwrap().unwrap();
        assert_eq!((control.value, control.headers), (None, vec![header(h::DLQ_SKIP, "memory-writes/3/99")]));
    }

    /// Marks read back as they were written; one that points elsewhere counts for nothing.
    #[test]
    fn marks() {
        let letter = dead(errors());
        for (act, handled) in [
            (Act::Redrive { edit: None }, Handled::Redriven),
            (Act::Skip { reason: "r".into(), release_key: true }, Handled::Skipped),
        ] {
            let written = marking(&letter, &act);
            let mut back = record(written.headers);
            back.at.offset = 40;
            assert_eq!(Letter::parse("dlq", back.clone()), Letter::Mark(Mark { offset: 17, handled }));
            assert_eq!(Letter::parse("other", back.clone()), Letter::Other);
            back.at.partition = 2;
            assert_eq!(Letter::parse("dlq", back), Letter::Other);
        }
        assert_eq!(Letter::parse("dlq", record(vec![header("own", "1")])), Letter::Other);
    }

    #[test]
    fn selections() {
        let letter = dead(errors());
        let all = Selection::default();
        assert!(all.takes(&letter));
        assert!(!all.takes(&DeadLetter { handled: Some(Handled::Skipped), ..letter.clone() }));
        assert!(!Selection { at: Some((3, 16)), ..all.clone() }.takes(&letter));
        assert!(!Selection { codes: vec!["invalid_id".into()], ..all.clone() }.takes(&letter));
        let boundary = |b: &str| Boundary::parse(b).ok();
        assert!(Selection { boundary: boundary("acme/support"), ..all.clone() }.takes(&letter));
        assert!(!Selection { boundary: boundary("acme/other"), ..all }.takes(&letter));
    }
}
