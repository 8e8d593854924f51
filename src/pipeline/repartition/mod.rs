//! `repartition: auto`: every record of an input goes through an internal topic whose partitions are the
//! units, exactly once and in one order (docs/adr/0006).

mod flow;
mod route;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use self::flow::Flow;
use crate::config::Sabotage;
use crate::error::{Code, Error, Result};
use crate::source::{Client, LeaderOptions};
use crate::topology::{Role, Topology};

/// Longest wait for a flow to end its transaction and leave.
const CLOSE: Duration = Duration::from_secs(30);

/// What the flows of a process are made of.
#[derive(Debug, Clone)]
pub struct RepartitionSettings {
    /// Client settings.
    pub client: Client,
    /// Topology.
    pub topology: Arc<Topology>,
    /// Group of the units; the flows' groups are named after it.
    pub group: String,
    /// Static membership id.
    pub instance: String,
    /// Topic prefix, part of transactional ids.
    pub prefix: String,
    /// A guarantee to break.
    pub sabotage: Option<Sabotage>,
    /// End at the ends that the sources have at start.
    pub until_end: bool,
    /// Ends the flows when set; set by a flow that fails, so that the process ends.
    pub stop: Arc<AtomicBool>,
}

impl RepartitionSettings {
    /// Consumer group of an input's flow.
    #[must_use]
    pub fn flow_group(&self, role: Role) -> String {
        format!("{}-{}-repartition", self.group, role.as_str())
    }

    /// The one transactional id of an input's flow, for all members: who leads fences who led. Ids of
    /// instances have a `-` where this has the last `.`.
    #[must_use]
    pub fn transactional_id(&self, role: Role) -> String {
        format!("{}{}-{}.repartition", self.prefix, self.topology.main.application, role.as_str())
    }

    fn leader_options<'a>(&'a self, role: Role, group: &'a str, term: u64) -> LeaderOptions<'a> {
        LeaderOptions { client: &self.client, topology: &self.topology, role, group, instance: &self.instance, term }
    }
}

/// The running flows, one thread for each input with `repartition: auto`.
#[derive(Debug)]
pub struct Repartition {
    stop: Arc<AtomicBool>,
    flows: Vec<JoinHandle<Result<()>>>,
}

impl Repartition {
    /// Joins the groups. Without an input to repartition there is no flow.
    ///
    /// # Errors
    /// `config_invalid`, `broker_refused`, `broker_unreachable`.
    pub fn start(settings: &RepartitionSettings) -> Result<Self> {
        let mut this = Self { stop: settings.stop.clone(), flows: Vec::new() };
        for role in settings.topology.sources.keys() {
            let flow = Flow::new(settings.clone(), *role)?;
            let stop = settings.stop.clone();
            let body = move || {
                let unless_done = StopUnlessDone(stop);
                let result = flow.run();
                if result.is_ok() {
                    std::mem::forget(unless_done);
                }
                result
            };
            let thread = std::thread::Builder::new().name(format!("memsluice-repart-{}", role.as_str()));
            let started = thread.spawn(body);
            this.flows.push(started.map_err(|e| Error::with(Code::Internal, "can't start a thread", e))?);
        }
        Ok(this)
    }

    /// Waits until every flow reached the ends its source had at start.
    ///
    /// # Errors
    /// The first flow's error.
    pub fn finish(&mut self) -> Result<()> {
        self.flows.drain(..).try_for_each(ended)
    }

    /// Commits what is relayed and leaves the groups.
    ///
    /// # Errors
    /// The first error of a flow that had failed.
    pub fn stop(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let until = crate::clock::monotonic() + CLOSE;
        while self.flows.iter().any(|f| !f.is_finished()) {
            if crate::clock::monotonic() > until {
                tracing::error!("a repartition flow does not end: leaving it behind");
                self.flows.retain(JoinHandle::is_finished);
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.finish()
    }
}

/// Ends the process with a flow that fails or panics.
struct StopUnlessDone(Arc<AtomicBool>);

impl Drop for StopUnlessDone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whatever ends the process ends the flows.
impl Drop for Repartition {
    fn drop(&mut self) {
        if !self.flows.is_empty() {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

fn ended(flow: JoinHandle<Result<()>>) -> Result<()> {
    flow.join().unwrap_or_else(|_| Err(Error::new(Code::Internal, "a repartition flow panicked")))
}
