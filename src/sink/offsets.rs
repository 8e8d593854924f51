//! Offsets go into a transaction on a thread of their own, because librdkafka's call has no limit: while the client
//! knows a group coordinator that is gone it waits until some broker changes its state, whatever its timeout says
//! (librdkafka issues 5456 and 5511). Who asked goes on without it; the thread ends when the call comes back.
#![allow(clippy::disallowed_methods)] // the one call that has no deadline, on a thread of its own

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use rdkafka::TopicPartitionList;
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, Producer, ProducerContext};

use crate::error::{Code, Error, Result};
use crate::source::GroupMetadata;

/// Longer than its timeout a call may take.
const GRACE: Duration = Duration::from_secs(1);

struct Job {
    offsets: TopicPartitionList,
    group: Arc<GroupMetadata>,
    timeout: Duration,
}

/// The thread; joined when dropped, unless a call was left behind.
pub(super) struct OffsetsThread {
    jobs: Option<Sender<Job>>,
    results: Receiver<std::result::Result<(), KafkaError>>,
    thread: Option<JoinHandle<()>>,
}

impl OffsetsThread {
    /// For one producer. With `hangs` no call ever comes back.
    ///
    /// # Errors
    /// `internal` when a thread can't start.
    pub(super) fn start<C: ProducerContext + 'static>(producer: Arc<BaseProducer<C>>, hangs: bool) -> Result<Self> {
        let (jobs, inbox) = bounded::<Job>(1);
        let (outbox, results) = bounded(1);
        let run = move || {
            for job in inbox {
                if hangs {
                    loop {
                        std::thread::park();
                    }
                }
                let result = producer.send_offsets_to_transaction(&job.offsets, &job.group, job.timeout);
                if outbox.send(result).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("memsluice-offsets".to_owned()).spawn(run);
        let thread = thread.map_err(|e| Error::with(Code::Internal, "can't start a thread", e))?;
        Ok(Self { jobs: Some(jobs), results, thread: Some(thread) })
    }

    /// Adds offsets to the open transaction; `None` when the call does not come back. After that the producer is of no
    /// more use.
    pub(super) fn send(
        &mut self,
        offsets: TopicPartitionList,
        group: Arc<GroupMetadata>,
        timeout: Duration,
    ) -> Option<std::result::Result<(), KafkaError>> {
        let sent = self.jobs.as_ref()?.try_send(Job { offsets, group, timeout }).ok();
        let answer = sent.and_then(|()| self.results.recv_timeout(timeout + GRACE).ok());
        if answer.is_none() {
            (self.jobs, self.thread) = (None, None);
        }
        answer
    }

    /// A call did not come back.
    pub(super) fn is_abandoned(&self) -> bool {
        self.jobs.is_none()
    }
}

impl Drop for OffsetsThread {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
