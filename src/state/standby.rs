//! Standby: a warm copy of the units that other members own, so that a takeover replays a tail only.
//!
//! The group's assignment does not know who is warm (KIP-1071 could; librdkafka has none): with `standby`
//! every member keeps every unit.
#![allow(clippy::disallowed_methods)] // a thread of its own

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};

use super::restore::{change, flush};
use super::{Change, Db, Positions, UnitPlan};
use crate::clock::{monotonic, wall_millis};
use crate::error::{Code, Error, Result};
use crate::source::{Reader, follower, watermarks};
use crate::topology::{Role, Topology};

/// Changes are written this often, and where a unit stands at least each [`NOTE`].
const FLUSH: Duration = Duration::from_millis(200);
const NOTE: Duration = Duration::from_secs(60);
/// Changes of all units held before they are written, bytes.
const HELD: usize = 8 << 20;
/// After an error the units are planned anew.
const BACK_OFF: Duration = Duration::from_secs(2);

/// What the stream owns, and how often it took each unit: a copy that was read before a take is stale.
#[derive(Debug, Default)]
struct Owned {
    units: BTreeSet<i32>,
    takes: BTreeMap<i32, u64>,
}

impl Owned {
    fn takes_of(&self, unit: i32) -> u64 {
        self.takes.get(&unit).copied().unwrap_or_default()
    }
}

/// The running copy.
#[derive(Debug)]
pub struct Standby {
    owned: Arc<Mutex<Owned>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Standby {
    /// Starts copying every unit; `delete_retention` is the changelog's, ms. The stream takes its own by [`Standby::yield_to`].
    ///
    /// # Errors
    /// `config_invalid`, `internal`.
    pub fn start(client: &ClientConfig, topology: &Topology, db: Db, delete_retention: i64) -> Result<Self> {
        let owned: Arc<Mutex<Owned>> = Arc::default();
        let stop: Arc<AtomicBool> = Arc::default();
        let copier = Copier {
            consumer: follower(client, "memsluice-standby")?,
            changelog: topology.name(Role::Changelog).to_owned(),
            units: (0..topology.units()).collect(),
            db,
            delete_retention,
            owned: owned.clone(),
            stop: stop.clone(),
            following: BTreeMap::new(),
            held: 0,
        };
        let thread = std::thread::Builder::new()
            .name("memsluice-standby".to_owned())
            .spawn(move || copier.run())
            .map_err(|e| Error::with(Code::Internal, "can't start a thread", e))?;
        Ok(Self { owned, stop, thread: Some(thread) })
    }

    /// The stream owns these units from now on: once this returns, the copy writes none of them.
    pub fn yield_to(&self, units: BTreeSet<i32>) {
        let mut owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        for unit in &units {
            *owned.takes.entry(*unit).or_default() += 1;
        }
        owned.units = units;
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// A unit that is copied.
#[derive(Debug)]
struct Following {
    next: i64,
    /// Takes of the unit when the copy began.
    takes: u64,
    changes: Vec<Change>,
    /// Last time that its position was written.
    noted: Instant,
}

struct Copier {
    consumer: Reader,
    changelog: String,
    units: BTreeSet<i32>,
    db: Db,
    delete_retention: i64,
    owned: Arc<Mutex<Owned>>,
    stop: Arc<AtomicBool>,
    following: BTreeMap<i32, Following>,
    held: usize,
}

impl Copier {
    fn run(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            if let Err(error) = self.turn() {
                tracing::warn!(%error, "standby");
                self.following.clear();
                self.held = 0;
                self.pause();
            }
        }
    }

    fn pause(&self) {
        let until = monotonic() + BACK_OFF;
        while monotonic() < until && !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Follows what is to be followed for one flush interval, then writes.
    fn turn(&mut self) -> Result<()> {
        self.choose()?;
        let until = monotonic() + FLUSH;
        while monotonic() < until && self.held < HELD {
            match self.consumer.poll(Duration::from_millis(20)) {
                None => {}
                Some(Ok(m)) => {
                    let Some(unit) = self.following.get_mut(&m.partition()) else { continue };
                    let change = change(&m, m.partition())?;
                    self.held += change.0.len() + change.1.as_ref().map_or(0, Vec::len) + 64;
                    unit.changes.push(change);
                    unit.next = m.offset() + 1;
                }
                Some(Err(KafkaError::PartitionEOF(_))) => {}
                Some(Err(e)) if e.rdkafka_error_code().is_some_and(crate::source::passing) => {}
                Some(Err(e)) => return Err(Error::with(Code::BrokerUnreachable, "the changelog can't be followed", e)),
            }
        }
        self.write()
    }

    /// Brings the assignment up to date with what the stream does not own.
    fn choose(&mut self) -> Result<()> {
        let owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted: BTreeSet<i32> = self.units.difference(&owned.units).copied().collect();
        self.following.retain(|u, f| wanted.contains(u) && f.takes == owned.takes_of(*u));
        drop(owned);
        if wanted.iter().eq(self.following.keys()) {
            return Ok(());
        }
        for unit in wanted {
            if self.following.contains_key(&unit) {
                continue;
            }
            let log = watermarks(&self.consumer, &self.changelog, unit)?;
            // Held throughout: the stream must not take the unit between plan and wipe.
            let owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
            if owned.units.contains(&unit) {
                continue;
            }
            let plan =
                UnitPlan::new(Positions::of(&self.db, unit)?.as_ref(), log, wall_millis(), self.delete_retention)?;
            if let Some(why) = plan.wipe {
                tracing::debug!(unit, why, "standby starts over");
                self.db.wipe(unit)?;
            }
            self.following.insert(
                unit,
                Following { next: plan.from, takes: owned.takes_of(unit), changes: Vec::new(), noted: monotonic() },
            );
        }
        let mut list = TopicPartitionList::new();
        for (unit, f) in &self.following {
            drop(list.add_partition_offset(&self.changelog, *unit, Offset::Offset(f.next)));
        }
        // A new assignment drops what was fetched; what is held stays valid, as it ends at `next`.
        self.consumer
            .assign(&list)
            .map_err(|e| Error::with(Code::BrokerRefused, "the changelog can't be followed", e))?;
        tracing::info!(units = self.following.len(), "standby");
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        let ends = self.consumer.position().ok();
        let owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        for (unit, f) in &mut self.following {
            if owned.takes_of(*unit) != f.takes {
                f.changes.clear();
                continue;
            }
            // Control records move the position, too.
            let position = ends.as_ref().and_then(|l| l.find_partition(&self.changelog, *unit)).map(|p| p.offset());
            if let Some(Offset::Offset(p)) = position {
                f.next = f.next.max(p);
            }
            if f.changes.is_empty() && f.noted.elapsed() < NOTE {
                continue;
            }
            flush(&mut self.db, *unit, std::mem::take(&mut f.changes), f.next)?;
            f.noted = monotonic();
        }
        self.held = 0;
        Ok(())
    }
}
