//! UUIDv5 ids (RFC 9562, 5.5): the same input gives the same id on every replay.

use uuid::Uuid;

use super::Boundary;

/// What an id names; part of its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A decision.
    Decision,
    /// A finding about one write or event.
    Finding,
    /// An activation.
    Activation,
    /// An output event.
    Event,
    /// A retraction.
    Retraction,
    /// A finding about a calibration.
    Calibration,
    /// A finding about the share of writes that reach a floor.
    Share,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Kind::Decision => "decision",
            Kind::Finding => "finding",
            Kind::Activation => "activation",
            Kind::Event => "event",
            Kind::Retraction => "retraction",
            Kind::Calibration => "calibration",
            Kind::Share => "share",
        }
    }
}

/// Makes ids under one application id.
#[derive(Debug, Clone)]
pub struct Ids {
    namespace: Uuid,
}

impl Ids {
    /// The namespace is UUIDv5(URL, `memsluice:<application id>`).
    #[must_use]
    pub fn new(application: &str) -> Self {
        Self { namespace: Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("memsluice:{application}").as_bytes()) }
    }

    /// Id of what came from one input record.
    #[must_use]
    pub fn of_input(&self, topic: &str, partition: i32, offset: i64, child: u32, kind: Kind) -> String {
        self.make(&format!("{topic}\n{partition}\n{offset}\n{child}\n{}", kind.as_str()))
    }

    /// Id of a session finding: boundary, session, epoch.
    #[must_use]
    pub fn of_session(&self, boundary: &Boundary, session: &str, epoch: i64) -> String {
        self.make(&format!("{boundary}\n{session}\n{epoch}\nsession"))
    }

    /// Id of an activation: unit, what, version.
    #[must_use]
    pub fn of_activation(&self, partition: i32, what: &str, version: u64, at: i64) -> String {
        self.make(&format!("{partition}\n{what}\n{version}\n{at}\nactivation"))
    }

    /// Id of a reset: unit, place in the chain.
    #[must_use]
    pub fn of_reset(&self, partition: i32, seq: u64) -> String {
        self.make(&format!("{partition}\n{seq}\nreset"))
    }

    fn make(&self, name: &str) -> String {
        Uuid::new_v5(&self.namespace, name.as_bytes()).hyphenated().to_string()
    }
}
