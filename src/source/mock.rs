//! librdkafka's in-process mock cluster: for the demo and for injected errors. It proves nothing about
//! transactions (DESIGN 9).

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;

use crate::error::{Code, Error, Result};
use crate::topology::{Role, Topology};

/// A mock cluster of one broker, on loopback, as long as the value lives.
pub struct MockBroker(MockCluster<'static, DefaultProducerContext>);

impl std::fmt::Debug for MockBroker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MockBroker").finish_non_exhaustive()
    }
}

impl MockBroker {
    /// Starts it.
    ///
    /// # Errors
    /// `broker_refused`.
    pub fn start() -> Result<Self> {
        MockCluster::new(1).map(Self).map_err(|e| Error::with(Code::BrokerRefused, "the mock cluster can't start", e))
    }

    /// Its address.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        self.0.bootstrap_servers()
    }

    /// Creates all topics.
    ///
    /// # Errors
    /// `broker_refused`.
    pub fn create_topics(&self, topology: &Topology) -> Result<()> {
        for role in Role::ALL {
            let t = topology.topic(role);
            self.0.create_topic(&t.name, t.partitions, 1).map_err(|e| {
                Error::with(Code::BrokerRefused, format!("the mock cluster refuses topic {}", t.name), e)
            })?;
        }
        Ok(())
    }
}
