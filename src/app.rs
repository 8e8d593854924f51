//! Wires one process: configuration and topology to threads; owns start order and stop order.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::agreement::{MetaTopic, Own};
use crate::config::{Config, Secret};
use crate::embed::Embedder;
use crate::error::{Code, Error, Result};
use crate::pipeline::{
    Ahead, Engine, EngineSettings, Failpoint, Faults, Registry, Rejoin, Remake, Repartition, RepartitionSettings,
    RunOptions, Summary, Task, TaskParts,
};
use crate::policy::Policy;
use crate::schema::{ActivePointer, Agreement, Calibration, HoneypotSet, ScreenCalibration};
use crate::sink::{Publication, TransactionalProducer, attempt, publish};
use crate::source::{
    self, BroadcastReader, BroadcastRecord, Budget, Client, FRAMING, Heartbeat, LagWatch, Lags, PollThread,
    StartOptions, TopicIds,
};
use crate::state::{self, Db, Restorer, Standby, State};
use crate::telemetry::health;
use crate::topology::{MemsadMode, Role, Settings, Topology, agreed, fingerprint};

/// What a process runs with.
#[derive(Debug)]
pub struct Setup {
    /// Configuration.
    pub config: Config,
    /// Topology.
    pub topology: Arc<Topology>,
    /// Policy.
    pub policy: Policy,
}

impl Setup {
    /// Reads topology and policy of a folder; `None` is the embedded sample.
    ///
    /// # Errors
    /// Those of topology and policy; `policy_invalid` where a rule needs a filter that is off.
    pub fn load(mut config: Config, folder: Option<&Path>, policy: Option<&Path>) -> Result<Self> {
        let mut topology = match folder {
            Some(folder) => Topology::load(folder)?,
            None => Topology::sample()?,
        };
        let beside = folder.map(|f| f.join("policy.yaml"));
        let policy = match policy.or(beside.as_deref()) {
            Some(path) => Policy::load(path)?,
            None => Policy::sample()?,
        };
        let on = |mode| mode != MemsadMode::Off;
        if let Some(rule) = policy.blind(on(topology.main.screen.mode), on(topology.main.memsad.mode)) {
            let what = format!("rule {rule} asks for what the screen or MEMSAD finds, which the topology has off");
            return Err(Error::new(Code::PolicyInvalid, what));
        }
        topology.prefix(&config.kafka.topic_prefix);
        let group = || format!("{}{}", config.kafka.topic_prefix, topology.main.application);
        config.kafka.group = Some(config.kafka.group.clone().unwrap_or_else(group));
        Ok(Self { config, topology: Arc::new(topology), policy })
    }

    /// An engine for this setup.
    ///
    /// # Errors
    /// `sprt_invalid`.
    pub fn engine(&self, secret: Secret, embedder: &Embedder) -> Result<Engine> {
        Engine::new(EngineSettings {
            topology: self.topology.clone(),
            policy: self.policy.clone(),
            secret,
            encoder: embedder.identity().to_owned(),
            dimension: self.config.encoder.dimension,
            partitioned: true,
        })
        .map(|engine| engine.with_prefixes(embedder.prefixes().clone()))
    }

    /// The deployment secret that `run` needs.
    ///
    /// # Errors
    /// `secret_missing`.
    pub fn secret(&self) -> Result<Secret> {
        let missing = || Error::new(Code::SecretMissing, "secret_file (MEMSLUICE__SECRET_FILE) is not set");
        Secret::from_file(self.config.secret_file.as_deref().ok_or_else(missing)?)
    }

    /// The stream's consumer group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.config.kafka.group.as_deref().unwrap_or_default()
    }

    /// The transactional id of an instance; that of no instance is where all of them start.
    #[must_use]
    pub fn transactional_id(&self, instance: &str) -> String {
        format!("{}{}-{instance}", self.config.kafka.topic_prefix, self.topology.main.application)
    }

    /// Every setting that a change is judged by.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let mut all = self.topology.settings();
        all.insert("encoder.dimension".to_owned(), self.config.encoder.dimension.to_string());
        all
    }

    /// What this process runs with, for the other members; `key_id` names its secret.
    #[must_use]
    pub fn own(&self, key_id: &str) -> Own {
        let settings = agreed(&self.settings());
        let agreement = Agreement {
            fingerprint: fingerprint(&settings),
            policy: self.policy.hash().to_owned(),
            key_id: key_id.to_owned(),
            settings,
        };
        let (instance, program) = (self.config.instance_id().to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        Own { instance, agreement, reads: state::READS, program }
    }

    /// The topic of what the members agree on.
    #[must_use]
    pub fn meta<'a>(&self, client: &'a Client) -> MetaTopic<'a> {
        MetaTopic::new(client, &self.topology, &self.transactional_id(""))
    }

    /// Names application, units and stores: what a state folder must agree with.
    #[must_use]
    pub fn identity(&self) -> String {
        let stores: Vec<&str> = self.topology.main.stores.keys().map(String::as_str).collect();
        format!(
            "{}{} units={} dimension={} stores={}",
            self.config.kafka.topic_prefix,
            self.topology.main.application,
            self.topology.units(),
            self.config.encoder.dimension,
            stores.join(",")
        )
    }
}

/// A broker that answers no admin requests and keeps no transactional promises: the demo's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokerKind {
    /// Apache Kafka.
    Real,
    /// librdkafka's in-process mock.
    Mock,
}

/// Runs the stream until its end, a stop or an error.
///
/// Order: preflight, state, fence (`init_transactions`), broadcast topics to their watermark, group.
///
/// # Errors
/// Any code with action `Stop`.
pub fn run(
    setup: &Setup,
    secret: Secret,
    embedder: Embedder,
    broker: BrokerKind,
    options: RunOptions,
) -> Result<Summary> {
    let client = source::client(&setup.config)?;
    source::preflight(&client, &setup.topology, broker == BrokerKind::Real)?;
    health().started();
    if broker == BrokerKind::Real {
        source::readable(&client, &setup.topology)?;
        state::write_format(setup.meta(&client).join(&setup.own(secret.key_id()))?)?;
    }
    let db = Db::open(&setup.config.state_dir(), &setup.identity(), setup.topology.main.limits.state_bytes)?;
    let retention = match broker {
        BrokerKind::Real => source::delete_retention(&client, setup.topology.name(Role::Changelog)),
        BrokerKind::Mock => None,
    };
    let retention = retention.unwrap_or(source::DELETE_RETENTION_MS);
    let standby = setup.topology.standby().then(|| Standby::start(&client, &setup.topology, db.clone(), retention));
    let standby = standby.transpose()?;
    let engine = setup.engine(secret, &embedder)?;
    let remake = remake(setup, &client);
    let mut restorer = Restorer::new(&client, setup.group(), &setup.topology)?.with_delete_retention(retention);
    if broker == BrokerKind::Real {
        restorer = restorer.with_ids(TopicIds::new(&client)?);
    }
    restorer.local_offsets = setup.config.sabotage == Some(crate::config::Sabotage::TransactionsOff);
    let repartition = repartition(setup, &client, &options)?;
    let ends = if options.until_end { source::ends(&client, &setup.topology)? } else { HashMap::new() };
    let (broadcast, whole) = BroadcastReader::start(&client, &setup.topology, false)?;
    let registry = registry(whole);
    let (budget, heartbeat) = (Budget::default(), Heartbeat::default());
    heartbeat.beat();
    // Fencing comes first: the task makes its producer before the group is joined.
    let producer = match broker {
        BrokerKind::Real => with_copies(setup, &remake)?,
        BrokerKind::Mock => remake()?,
    };
    let lags = Lags::default();
    let rejoin = rejoin(setup, &client, &budget, &heartbeat, &lags);
    let poll = rejoin()?;
    let _lag = LagWatch::start(&client, &setup.topology, lags)?;
    let parts = TaskParts {
        engine,
        embedder,
        ahead: Ahead::start()?,
        state: State::new(db),
        broadcast,
        registry,
        restorer,
        standby,
        poll,
        budget,
        heartbeat,
        ends,
    };
    let failpoint = setup.config.failpoint.as_deref().map(Failpoint::parse).transpose()?;
    let faults = Faults { sabotage: setup.config.sabotage, failpoint };
    let summary = Task::new(parts, producer, options, remake, rejoin, faults).run();
    repartition.stop().and(summary)
}

/// Starts the flows into internal topics. Under `until_end` they come to their ends first: what they
/// relayed is what the units have to read.
fn repartition(setup: &Setup, client: &Client, options: &RunOptions) -> Result<Repartition> {
    let mut flows = Repartition::start(&RepartitionSettings {
        client: client.clone(),
        topology: setup.topology.clone(),
        group: setup.group().to_owned(),
        instance: setup.config.instance_id().to_owned(),
        prefix: setup.config.kafka.topic_prefix.clone(),
        sabotage: setup.config.sabotage,
        until_end: options.until_end,
        stop: options.stop.clone(),
    })?;
    if options.until_end {
        flows.finish()?;
    }
    Ok(flows)
}

fn rejoin(setup: &Setup, client: &Client, budget: &Budget, heartbeat: &Heartbeat, lags: &Lags) -> Rejoin {
    let (client, topology, group) = (client.clone(), setup.topology.clone(), setup.group().to_owned());
    let (instance, sabotage) = (setup.config.instance_id().to_owned(), setup.config.sabotage);
    let (budget, heartbeat, lags) = (budget.clone(), heartbeat.clone(), lags.clone());
    let first = AtomicBool::new(true);
    Box::new(move || {
        let first = first.swap(false, Ordering::Relaxed);
        let sabotage = sabotage.filter(|s| *s != crate::config::Sabotage::FetchLost || first);
        PollThread::start(StartOptions {
            client: &client,
            topology: &topology,
            group: &group,
            instance: &instance,
            budget: budget.clone(),
            task: heartbeat.clone(),
            lags: lags.clone(),
            sabotage,
        })
    })
}

fn remake(setup: &Setup, client: &Client) -> Remake {
    let client = client.clone();
    let timeout = setup.topology.main.commit.transaction_timeout;
    let largest = setup.topology.main.limits.max_output_bytes + FRAMING;
    let sabotaged = setup.config.sabotage == Some(crate::config::Sabotage::TransactionsOff);
    let id = setup.transactional_id(setup.config.instance_id());
    let hangs = AtomicBool::new(setup.config.sabotage == Some(crate::config::Sabotage::OffsetsHang));
    Box::new(move || {
        let id = (!sabotaged).then_some(id.as_str());
        let producer = TransactionalProducer::start(&client, id, timeout, largest)?;
        if hangs.swap(false, Ordering::Relaxed) { producer.without_answers() } else { Ok(producer) }
    })
}

/// A producer that may write copies of rolling calibrations: the first one may come a day after the start.
fn with_copies(setup: &Setup, remake: &Remake) -> Result<TransactionalProducer> {
    let mut producer = remake()?;
    let transactional = setup.config.sabotage != Some(crate::config::Sabotage::TransactionsOff);
    if !transactional || !setup.topology.main.memsad.rolls() {
        return Ok(producer);
    }
    let topic = setup.topology.name(Role::Calibrations);
    match attempt(&mut producer, topic, Role::Calibrations, b"rolling/") {
        Ok(()) => Ok(producer),
        Err(failed) if failed.error.code() == Code::AccessDenied => Err(failed.error),
        // What passes is met again where it matters, with all that is done about it.
        Err(failed) => {
            tracing::warn!(error = %failed.error, topic, "a try to write was not answered");
            drop(producer);
            remake()
        }
    }
}

/// Publishes a calibration and puts it in force; its version becomes the latest plus one.
///
/// # Errors
/// `broker_unreachable`, `topic_missing`.
pub fn publish_calibration(setup: &Setup, mut calibration: Calibration) -> Result<Calibration> {
    let what = format!("{}/{}", calibration.kind.as_str(), calibration.scope);
    calibration.version = latest(setup, Role::Calibrations, &what)? + 1;
    let value = serde_json::to_vec(&calibration)
        .map_err(|e| Error::with(Code::Internal, "a calibration can't be written", e))?;
    announce(setup, Role::Calibrations, &what, calibration.version, value)?;
    Ok(calibration)
}

/// Publishes a calibration of the screen under its next version and puts it in force.
///
/// # Errors
/// `broker_unreachable`, `topic_missing`.
pub fn publish_screening(setup: &Setup, mut calibration: ScreenCalibration) -> Result<ScreenCalibration> {
    let what = format!("screen/{}", calibration.scope);
    calibration.version = latest(setup, Role::Calibrations, &what)? + 1;
    let value = serde_json::to_vec(&calibration)
        .map_err(|e| Error::with(Code::Internal, "a calibration can't be written", e))?;
    announce(setup, Role::Calibrations, &what, calibration.version, value)?;
    Ok(calibration)
}

/// Publishes a honeypot set and puts it in force.
///
/// # Errors
/// `broker_unreachable`, `topic_missing`.
pub fn publish_honeypots(setup: &Setup, mut set: HoneypotSet) -> Result<HoneypotSet> {
    let what = format!("honeypots/{}", set.scope);
    set.version = latest(setup, Role::Honeypots, &what)? + 1;
    let value =
        serde_json::to_vec(&set).map_err(|e| Error::with(Code::Internal, "a honeypot set can't be written", e))?;
    announce(setup, Role::Honeypots, &what, set.version, value)?;
    Ok(set)
}

fn latest(setup: &Setup, role: Role, what: &str) -> Result<u64> {
    Ok(registry(whole(setup, role, false)?).latest(what))
}

/// Everything on the topic of calibrations, copies of rolling ones too.
///
/// # Errors
/// `broker_unreachable`, `topic_missing`, `restore_stalled`.
pub fn calibration_records(setup: &Setup) -> Result<Vec<BroadcastRecord>> {
    whole(setup, Role::Calibrations, true)
}

/// Reads that one topic alone: who publishes calibrations need not know the honeypots.
fn whole(setup: &Setup, role: Role, copies: bool) -> Result<Vec<BroadcastRecord>> {
    let client = source::client(&setup.config)?;
    source::connect(&client)?;
    let mut only = setup.topology.as_ref().clone();
    only.main.broadcast = vec![role];
    BroadcastReader::start(&client, &only, copies).map(|(_, whole)| whole)
}

/// Puts a version of a calibration in force; `what` is `memsad/<scope>` or `screen/<scope>`.
///
/// # Errors
/// `broker_unreachable`, `topic_missing`.
pub fn point(setup: &Setup, what: &str, version: u64) -> Result<()> {
    let record = pointer(setup, Role::Calibrations, what, version)?;
    publish(&source::client(&setup.config)?, &[record])
}

/// What the broadcast topics said at start.
fn registry(whole: Vec<BroadcastRecord>) -> Registry {
    let mut registry = Registry::default();
    for r in whole {
        if let Err(error) = registry.apply(r.role, &r.key, r.value.as_deref()) {
            tracing::warn!(%error, "a broadcast record is ignored");
        }
    }
    registry
}

fn announce(setup: &Setup, role: Role, what: &str, version: u64, value: Vec<u8>) -> Result<()> {
    let record = broadcast(setup, role, format!("{what}@{version}"), value);
    publish(&source::client(&setup.config)?, &[record, pointer(setup, role, what, version)?])
}

fn pointer(setup: &Setup, role: Role, what: &str, version: u64) -> Result<Publication> {
    let value = serde_json::to_vec(&ActivePointer { version })
        .map_err(|e| Error::with(Code::Internal, "a pointer can't be written", e))?;
    Ok(broadcast(setup, role, format!("active/{what}"), value))
}

fn broadcast(setup: &Setup, role: Role, key: String, value: Vec<u8>) -> Publication {
    let topic = setup.topology.name(role).to_owned();
    Publication { topic, partition: Some(0), key: key.into_bytes(), value, timestamp: None }
}
