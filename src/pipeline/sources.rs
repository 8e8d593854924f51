//! What a unit keeps for the screen: the ring of each source and the entities of each boundary. Read from the
//! state when needed, dropped with the other caches.

use std::collections::{HashMap, HashSet};

use crate::clock::Millis;
use crate::error::{Code, Error, Result};
use crate::schema::Boundary;
use crate::screen::{Entry, RING, Ring, Slot};
use crate::state::{self, Kind, State, Store, key};

/// Sources looked at in one sweep.
const SWEEP: usize = 8;
/// Entities that a boundary knows at most; later ones stay new.
const ENTITIES: usize = 65_536;
/// Numbers of writes up to here.
const MAX_SEQ: u64 = 1 << 53;

/// Rings and entities held ready.
#[derive(Debug, Default)]
pub(super) struct Sources {
    rings: HashMap<Boundary, HashMap<String, Ring>>,
    entities: HashMap<Boundary, HashSet<u64>>,
    /// No source of the boundary may be forgotten before this.
    next_expiry: HashMap<Boundary, Millis>,
    bytes: usize,
}

impl Sources {
    /// Memory of what is held, bytes, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drops what is held; it is read again when needed.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The ring of a source.
    ///
    /// # Errors
    /// `state_failed`, `state_format`.
    pub(super) fn ring<S: Store>(
        &mut self,
        partition: i32,
        b: &Boundary,
        source: &str,
        state: &State<S>,
    ) -> Result<&mut Ring> {
        let of = self.rings.entry(b.clone()).or_default();
        if !of.contains_key(source) {
            let ring = load(partition, b, source, state)?;
            self.bytes += ring.bytes();
            of.insert(source.to_owned(), ring);
        }
        of.get_mut(source).ok_or_else(|| Error::new(Code::Internal, "a ring that was just read"))
    }

    /// What a boundary knows.
    ///
    /// # Errors
    /// `state_failed`.
    pub(super) fn known<S: Store>(&mut self, partition: i32, b: &Boundary, state: &State<S>) -> Result<&HashSet<u64>> {
        if !self.entities.contains_key(b) {
            let prefix = key(Kind::Entity, partition, &[b.as_str()], None, &[]);
            let found = state.scan(&prefix, ENTITIES)?;
            let hash = |k: &[u8]| k.get(prefix.len()..)?.first_chunk::<8>().map(|b| u64::from_be_bytes(*b));
            let set: HashSet<u64> = found.iter().filter_map(|(k, _)| hash(k)).collect();
            self.bytes += 16 * set.len();
            self.entities.insert(b.clone(), set);
        }
        self.entities.get(b).ok_or_else(|| Error::new(Code::Internal, "entities that were just read"))
    }

    /// Entities of an accepted write become known.
    ///
    /// # Errors
    /// `state_failed`.
    pub(super) fn learn<S: Store>(
        &mut self,
        partition: i32,
        b: &Boundary,
        hashes: &[u64],
        state: &mut State<S>,
    ) -> Result<()> {
        if hashes.is_empty() {
            return Ok(());
        }
        self.known(partition, b, state)?;
        let Some(set) = self.entities.get_mut(b) else { return Ok(()) };
        for hash in hashes {
            if set.len() < ENTITIES && set.insert(*hash) {
                self.bytes += 16;
                state.put(key(Kind::Entity, partition, &[b.as_str()], Some(*hash), &[]), Vec::new());
            }
        }
        Ok(())
    }

    /// Notes when a source may be forgotten.
    pub(super) fn schedule<S: Store>(
        &mut self,
        partition: i32,
        b: &Boundary,
        source: &str,
        at: Millis,
        state: &mut State<S>,
    ) {
        state.put(expiry(partition, b, at, source), Vec::new());
        let next = self.next_expiry.entry(b.clone()).or_insert(Millis::MIN);
        *next = (*next).min(at);
    }

    /// Accounts for a ring that grew or shrank.
    pub(super) fn resized(&mut self, before: usize, after: usize) {
        self.bytes = self.bytes.saturating_sub(before).saturating_add(after);
    }

    /// Forgets sources of the boundary without a write for `idle` before `now`, a few at a time.
    ///
    /// # Errors
    /// `state_failed`, `state_format`.
    pub(super) fn sweep<S: Store>(
        &mut self,
        partition: i32,
        b: &Boundary,
        now: Millis,
        idle: Millis,
        state: &mut State<S>,
    ) -> Result<()> {
        if self.next_expiry.get(b).is_some_and(|t| now <= *t) {
            return Ok(());
        }
        let prefix = key(Kind::SourceExpiry, partition, &[b.as_str()], None, &[]);
        let due = state.scan(&prefix, SWEEP)?;
        let mut last = due.len() < SWEEP;
        let mut next = Millis::MAX;
        for (entry, _) in due {
            let rest = &entry[prefix.len()..];
            let (Some(bits), Some(name)) = (rest.first_chunk::<8>(), rest.get(8..rest.len().saturating_sub(1))) else {
                continue;
            };
            let at = (u64::from_be_bytes(*bits) ^ (1 << 63)).cast_signed();
            if at >= now {
                next = next.min(at);
                last = true;
                break;
            }
            let source = String::from_utf8_lossy(name).into_owned();
            state.delete(entry);
            let newest = self.ring(partition, b, &source, state)?.newest();
            let forgotten = newest.map_or(Millis::MIN, |t| t.saturating_add(idle));
            if forgotten < now {
                self.forget(partition, b, &source, state)?;
            } else {
                state.put(expiry(partition, b, forgotten, &source), Vec::new());
                next = next.min(forgotten);
            }
        }
        self.next_expiry.insert(b.clone(), if last { next } else { Millis::MIN });
        Ok(())
    }

    fn forget<S: Store>(&mut self, partition: i32, b: &Boundary, source: &str, state: &mut State<S>) -> Result<()> {
        let prefix = key(Kind::SourceSlot, partition, &[b.as_str(), source], None, &[]);
        for (slot, _) in state.scan(&prefix, RING)? {
            state.delete(slot);
        }
        if let Some(ring) = self.rings.get_mut(b).and_then(|of| of.remove(source)) {
            self.bytes = self.bytes.saturating_sub(ring.bytes());
        }
        Ok(())
    }
}

/// A write of a ring, as the state holds it.
pub(super) fn slot(partition: i32, b: &Boundary, source: &str, entry: &Entry) -> (Vec<u8>, Vec<u8>) {
    let number = entry.seq % RING as u64;
    let key = key(Kind::SourceSlot, partition, &[b.as_str(), source], Some(number), &[]);
    (key, state::encode(&entry.slot()))
}

fn load<S: Store>(partition: i32, b: &Boundary, source: &str, state: &State<S>) -> Result<Ring> {
    let prefix = key(Kind::SourceSlot, partition, &[b.as_str(), source], None, &[]);
    let mut entries = Vec::new();
    for (_, value) in state.scan(&prefix, RING)? {
        let slot: Slot = state::decode(&value)?;
        let broken = || Error::new(Code::StateFormat, "a write of a source's ring is broken");
        if slot.seq > MAX_SEQ {
            return Err(broken());
        }
        entries.push(Entry::read(slot).ok_or_else(broken)?);
    }
    Ok(Ring::restore(entries))
}

fn expiry(partition: i32, b: &Boundary, at: Millis, source: &str) -> Vec<u8> {
    let bits = at.cast_unsigned() ^ (1 << 63);
    key(Kind::SourceExpiry, partition, &[b.as_str()], Some(bits), &[source])
}
