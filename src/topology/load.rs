//! Files to model.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::model::{Main, Role, Topology};
use super::topic::Topic;
use crate::error::{Code, Error, Result};

/// The sample topology, embedded so that `scan` and `demo` need no files.
const SAMPLE_MAIN: &str = include_str!("../../topology/memsluice.yaml");
const SAMPLE_TOPICS: &str = include_str!("../../topology/topics.yaml");

impl Topology {
    /// Reads and validates `memsluice.yaml` and `topics.yaml` of a folder.
    ///
    /// # Errors
    /// `topology_unreadable`, `topology_syntax`, and every code of validation.
    pub fn load(folder: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path)
                .map_err(|e| Error::with(Code::TopologyUnreadable, format!("can't read {}", path.display()), e))
        };
        Self::parse(&read("memsluice.yaml")?, &read("topics.yaml")?)
    }

    /// The sample topology of the repository.
    ///
    /// # Errors
    /// None that a test hasn't ruled out.
    pub fn sample() -> Result<Self> {
        Self::parse(SAMPLE_MAIN, SAMPLE_TOPICS)
    }

    /// Parses and validates both texts.
    ///
    /// # Errors
    /// `topology_syntax` and every code of validation.
    pub fn parse(main: &str, topics: &str) -> Result<Self> {
        Self::new(yaml(main, "memsluice.yaml")?, yaml(topics, "topics.yaml")?)
    }

    /// Validates what stands in both files.
    ///
    /// # Errors
    /// Every code of validation.
    pub fn new(main: Main, mut topics: BTreeMap<Role, Topic>) -> Result<Self> {
        for (role, topic) in &mut topics {
            if topic.name.is_empty() {
                role.as_str().clone_into(&mut topic.name);
            }
        }
        let normal = serde_json::to_vec(&(&main, &topics))
            .map_err(|e| Error::with(Code::Internal, "the topology can't be hashed", e))?;
        let hash = hex::encode(&Sha256::digest(normal)[..8]);
        // Not part of the hash: what members agree on is recorded there, and decides nothing.
        topics.entry(Role::Meta).or_insert_with(|| Topic::meta(&main.application));
        let mut topology = Self { main, topics, sources: BTreeMap::new(), hash };
        super::validate::validate(&topology)?;
        topology.repartition();
        Ok(topology)
    }
}

fn yaml<T: DeserializeOwned>(text: &str, name: &str) -> Result<T> {
    serde_yaml_ng::from_str(text).map_err(|e| Error::with(Code::TopologySyntax, format!("{name} can't be parsed"), e))
}
