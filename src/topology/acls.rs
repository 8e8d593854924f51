//! The rights that each kind of principal needs, from the topology: no more, so that a stolen credential is
//! worth little.

use std::fmt::Write;

use serde::Serialize;

use super::model::{Role, Topology};

/// Who signs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor {
    /// `memsluice run`.
    Processor,
    /// Works the review queue.
    Reviewer,
    /// Replays topics; changes nothing.
    Auditor,
    /// Carries committed memories into the store.
    Committer,
    /// Knows the honeypots.
    HoneypotKeeper,
    /// Creates and checks topics, publishes calibrations.
    Operator,
}

/// What a right is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// A topic.
    Topic,
    /// A consumer group.
    Group,
    /// A transactional id.
    TransactionalId,
}

/// What may be done, in Kafka's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Operation {
    /// Fetch; join a group. Implies DESCRIBE.
    Read,
    /// Produce. Implies DESCRIBE.
    Write,
    /// Create.
    Create,
    /// Ask for metadata, offsets, the coordinator.
    Describe,
    /// Ask for settings.
    DescribeConfigs,
}

/// One right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Acl {
    /// Kind of resource.
    pub resource: Resource,
    /// Its name, or the start of its name.
    pub name: String,
    /// Whether `name` is only the start.
    pub prefixed: bool,
    /// Operation.
    pub operation: Operation,
    /// Without it the work is done, but something is not checked: a warning says what.
    pub advised: bool,
    /// What it is for.
    pub why: &'static str,
}

/// Names that are no topics.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    /// The stream's consumer group.
    pub group: &'a str,
    /// Start of every transactional id of the deployment.
    pub transactional_ids: &'a str,
}

/// The minimal rights of an actor, required ones first.
#[must_use]
pub fn acls(topology: &Topology, names: Names<'_>, actor: Actor) -> Vec<Acl> {
    let topics = Role::ALL.into_iter().flat_map(|role| {
        topic_rights(actor, role).iter().map(move |(operation, why)| Acl {
            resource: Resource::Topic,
            name: topology.name(role).to_owned(),
            prefixed: false,
            operation: *operation,
            advised: actor == Actor::Processor && *operation == Operation::DescribeConfigs,
            why,
        })
    });
    let mut all: Vec<Acl> = topics.filter(|a| a.why != COPIES || topology.main.memsad.rolls()).collect();
    all.extend(other_rights(names, actor));
    all.sort_by_key(|a| a.advised);
    all
}

/// End of the transactional id that guards the meta topic; no instance id has a `~`.
pub const META_ID: &str = "~meta";

type Rights = &'static [(Operation, &'static str)];

const SETTINGS: (Operation, &str) =
    (Operation::DescribeConfigs, "settings that the stream relies on are checked at start");
const WHOLE: &str = "read whole by every instance";
/// Not needed where rows don't follow the stream.
const COPIES: &str = "copies of rolling calibrations";
const APPLY: (Operation, &str) = (Operation::Create, "topology apply");
const CHECK: (Operation, &str) = (Operation::DescribeConfigs, "topology check --live");

fn topic_rights(actor: Actor, role: Role) -> Rights {
    use Operation::{Describe, Read, Write};
    match (actor, role) {
        (Actor::Processor, Role::MemoryWrites | Role::RetrievalLogs) => &[(Read, "input"), SETTINGS],
        (Actor::Processor, Role::Calibrations) => &[(Read, WHOLE), (Write, COPIES), SETTINGS],
        (Actor::Processor, Role::Honeypots) => &[(Read, WHOLE), SETTINGS],
        (Actor::Processor, Role::CommittedMemory | Role::Quarantine | Role::Attacks | Role::DeadLetters) => {
            &[(Write, "output"), SETTINGS]
        }
        (Actor::Processor, Role::Decisions) => {
            &[(Write, "output"), (Read, "the chain is checked at restore"), SETTINGS]
        }
        (Actor::Processor, Role::Changelog) => &[(Write, "state"), (Read, "restore"), SETTINGS],
        (Actor::Processor, Role::Meta) => {
            &[(Read, "what the members agree on"), (Write, "the first member's, and its own entry"), SETTINGS]
        }
        (Actor::Reviewer, Role::Quarantine) => &[(Read, "what is held")],
        (Actor::Reviewer, Role::Decisions) => &[(Read, "why it is held")],
        (Actor::Reviewer, Role::Attacks) => &[(Read, "findings")],
        // Honeypots stay with their keeper; the changelog holds them in sessions.
        (Actor::Auditor, Role::Honeypots | Role::Changelog) => &[],
        (Actor::Auditor, _) => &[(Read, "replay")],
        (Actor::Committer, Role::CommittedMemory) => &[(Read, "what is safe to store")],
        (Actor::HoneypotKeeper, Role::Honeypots) => &[(Read, "the latest version"), (Write, "a new version")],
        (Actor::HoneypotKeeper, Role::MemoryWrites) => &[(Write, "honeypots are planted as ordinary writes")],
        (Actor::Operator, Role::Calibrations) => {
            &[APPLY, CHECK, (Read, "the latest version"), (Write, "calibrate fit --publish")]
        }
        (Actor::Operator, Role::CommittedMemory | Role::RetrievalLogs) => {
            &[APPLY, CHECK, (Read, "calibrate fit --topic-range")]
        }
        (Actor::Operator, Role::Meta) => {
            &[APPLY, CHECK, (Read, "upgrade plan"), (Write, "upgrade begin, finalize, cancel")]
        }
        (Actor::Operator, _) => &[APPLY, CHECK, (Describe, "topology check --live")],
        (Actor::Reviewer | Actor::Committer | Actor::HoneypotKeeper, _) => &[],
    }
}

fn other_rights(names: Names<'_>, actor: Actor) -> Vec<Acl> {
    let right = |resource, name: String, prefixed, operation, why| Acl {
        resource,
        name,
        prefixed,
        operation,
        advised: false,
        why,
    };
    let own_group = |actor: &str| {
        right(Resource::Group, format!("{}-{actor}", names.group), true, Operation::Read, "groups of their own")
    };
    let group = |operation, why| right(Resource::Group, names.group.to_owned(), false, operation, why);
    let coordinator = || group(Operation::Describe, "clients of memsluice ask for its coordinator");
    match actor {
        Actor::Processor => vec![
            group(Operation::Read, "join, and offsets in the transaction"),
            right(
                Resource::TransactionalId,
                names.transactional_ids.to_owned(),
                true,
                Operation::Write,
                "one transactional producer an instance",
            ),
        ],
        Actor::Reviewer => vec![own_group("reviewer")],
        Actor::Auditor => vec![own_group("auditor"), coordinator()],
        Actor::Committer => vec![own_group("committer")],
        Actor::HoneypotKeeper => vec![coordinator()],
        Actor::Operator => vec![
            coordinator(),
            right(
                Resource::TransactionalId,
                format!("{}{META_ID}", names.transactional_ids),
                false,
                Operation::Write,
                "upgrade begin, finalize, cancel",
            ),
        ],
    }
}

impl Acl {
    /// The resource with its pattern, as a reader names it.
    #[must_use]
    pub fn target(&self) -> String {
        format!("{} {}{}", self.resource.as_str(), self.name, if self.prefixed { "*" } else { "" })
    }
}

impl Resource {
    /// As an option of `kafka-acls.sh` names it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::Group => "group",
            Self::TransactionalId => "transactional-id",
        }
    }
}

impl Operation {
    /// As `kafka-acls.sh` names it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::Create => "CREATE",
            Self::Describe => "DESCRIBE",
            Self::DescribeConfigs => "DESCRIBE_CONFIGS",
        }
    }
}

/// Commands for `kafka-acls.sh`: one for each set of operations on a resource.
#[must_use]
pub fn kafka_acls(acls: &[Acl], bootstrap: &str, principal: &str) -> String {
    let mut out = String::new();
    for (advised, title) in [(false, "required"), (true, "advised: without it a warning says what is not checked")] {
        let mut part: Vec<&Acl> = acls.iter().filter(|a| a.advised == advised).collect();
        if !part.is_empty() {
            let _ = writeln!(out, "# {title}");
        }
        while let Some(first) = part.first().copied() {
            let (same, rest): (Vec<&Acl>, Vec<&Acl>) = part.into_iter().partition(|a| a.target() == first.target());
            part = rest;
            let operations: Vec<String> =
                same.iter().map(|a| format!("--operation {}", a.operation.as_str())).collect();
            let pattern = if first.prefixed { " --resource-pattern-type prefixed" } else { "" };
            let _ = writeln!(
                out,
                "kafka-acls.sh --bootstrap-server {bootstrap} --command-config admin.properties --add --allow-principal {principal} {} --{} {}{pattern}",
                operations.join(" "),
                first.resource.as_str(),
                first.name,
            );
        }
    }
    out
}
