//! Dead letters sent again or given up, each with a mark, in transactions.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::letter::{DeadLetter, Handled};
use crate::app::Setup;
use crate::error::{Code, Error, Result};
use crate::schema::{Headers, header as h};
use crate::sink::{CommitError, Output, TransactionalProducer, Transactions, size};
use crate::source::{self, Client, FRAMING, Spans, partition_of};
use crate::topology::Role;

/// Records and bytes in one transaction.
const CHUNK: (usize, usize) = (1000, 16 << 20);
/// The broker aborts an abandoned redrive after this.
const TIMEOUT: Duration = Duration::from_secs(60);

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
            let name = setup.topology.source(role).name.as_str();
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
pub(super) fn marking(letter: &DeadLetter, act: &Act) -> Sending {
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
