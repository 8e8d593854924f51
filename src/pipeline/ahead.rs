//! Threads that read texts for the screen before their records' turn comes. What they find depends on the text alone;
//! a text that none has read yet is read in its turn.

use std::sync::{Arc, OnceLock, Weak};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::decode::Write;
use crate::error::{Code, Error, Result};
use crate::screen::Features;

/// Texts that wait at most; what comes on top is read in its turn.
const WAITING: usize = 4096;
/// Threads at most: the ordered work of a record takes longer than a third of reading its text.
const THREADS: usize = 3;

/// A decoded write, and what its text says by itself.
#[derive(Debug)]
pub struct Admitted {
    pub(super) write: Write,
    features: OnceLock<Features>,
}

impl Admitted {
    pub(super) fn new(write: Write) -> Self {
        Self { write, features: OnceLock::new() }
    }

    /// What the text says; read now, unless it has been.
    pub(super) fn features(&self) -> &Features {
        self.features.get_or_init(|| Features::of(&self.write.content))
    }
}

/// The threads; they end when this is dropped.
#[derive(Debug)]
pub struct Ahead {
    texts: Option<Sender<Weak<Admitted>>>,
}

impl Ahead {
    /// One thread less than there are cores; none where there is one.
    ///
    /// # Errors
    /// `internal` when a thread can't start.
    pub fn start() -> Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = THREADS.min(cores - 1);
        let (texts, inbox) = bounded(WAITING);
        (0..threads).try_for_each(|i| spawn(i, inbox.clone()))?;
        Ok(Self { texts: Some(texts).filter(|_| threads > 0) })
    }

    /// Hands a write to the threads, if there is room. One that is gone by then is not read.
    pub(super) fn read(&self, admitted: &Arc<Admitted>) {
        if let Some(texts) = &self.texts {
            drop(texts.try_send(Arc::downgrade(admitted)));
        }
    }
}

fn spawn(number: usize, inbox: Receiver<Weak<Admitted>>) -> Result<()> {
    let read = move || {
        for admitted in inbox.iter().filter_map(|weak| weak.upgrade()) {
            admitted.features();
        }
    };
    let thread = std::thread::Builder::new().name(format!("memsluice-read-{number}")).spawn(read);
    thread.map(drop).map_err(|e| Error::with(Code::Internal, "can't start a thread", e))
}
