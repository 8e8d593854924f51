//! Threads that read texts for the screen before their records' turn comes. What they find depends on the text alone;
//! a text that none has read yet is read in its turn.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::decode::Write;
use crate::error::{Code, Error, Result};
use crate::screen::Features;

/// Bytes of texts that wait or were read; what comes on top is read in its turn. What is kept of a text is up to five
/// times its size.
const AHEAD: usize = 4 << 20;
/// Texts that wait at most.
const WAITING: usize = 8192;
/// Threads at most: the ordered work of a record takes longer than a third of reading its text.
const THREADS: usize = 3;

/// A decoded write, and what its text says by itself.
#[derive(Debug)]
pub struct Admitted {
    pub(super) write: Write,
    features: OnceLock<Features>,
    charge: OnceLock<Charge>,
}

/// Bytes that a write takes of what may be read ahead, until it is gone.
#[derive(Debug)]
struct Charge {
    taken: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Admitted {
    pub(super) fn new(write: Write) -> Self {
        Self { write, features: OnceLock::new(), charge: OnceLock::new() }
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
    taken: Arc<AtomicUsize>,
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
        Ok(Self { texts: Some(texts).filter(|_| threads > 0), taken: Arc::default() })
    }

    /// Hands a write to the threads, if there is room. One that is gone by then is not read.
    pub(super) fn read(&self, admitted: &Arc<Admitted>) {
        let bytes = admitted.write.content.len();
        let Some(texts) = self.texts.as_ref().filter(|_| self.taken.load(Ordering::Relaxed) + bytes <= AHEAD) else {
            return;
        };
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        admitted.charge.get_or_init(|| Charge { taken: self.taken.clone(), bytes });
        drop(texts.try_send(Arc::downgrade(admitted)));
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
