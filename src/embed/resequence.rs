//! Completions in any order, releases in input order for each unit (I4). Pure.

use std::collections::{HashMap, VecDeque};

#[derive(Debug)]
struct Slot<T, R> {
    ticket: u64,
    item: T,
    result: Option<R>,
}

/// Holds items until their result is there and their turn has come.
#[derive(Debug)]
pub struct Resequencer<T, R> {
    lanes: HashMap<i32, VecDeque<Slot<T, R>>>,
    next_ticket: u64,
    held: usize,
}

impl<T, R> Default for Resequencer<T, R> {
    fn default() -> Self {
        Self { lanes: HashMap::new(), next_ticket: 0, held: 0 }
    }
}

impl<T, R> Resequencer<T, R> {
    /// Takes a place in the unit's order; the ticket names it.
    pub fn admit(&mut self, unit: i32, item: T, result: Option<R>) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.held += 1;
        self.lanes.entry(unit).or_default().push_back(Slot { ticket, item, result });
        ticket
    }

    /// Hands in a result; unknown tickets (of a cleared generation) are dropped.
    pub fn complete(&mut self, unit: i32, ticket: u64, result: R) {
        let Some(lane) = self.lanes.get_mut(&unit) else {
            return;
        };
        // Tickets ascend within a lane.
        if let Ok(i) = lane.binary_search_by_key(&ticket, |s| s.ticket) {
            lane[i].result = Some(result);
        }
    }

    /// The next item of the unit whose turn it is, with its result.
    pub fn pop(&mut self, unit: i32) -> Option<(T, R)> {
        let lane = self.lanes.get_mut(&unit)?;
        lane.front()?.result.as_ref()?;
        let slot = lane.pop_front()?;
        self.held -= 1;
        slot.result.map(|r| (slot.item, r))
    }

    /// Units that hold something.
    #[must_use]
    pub fn units(&self) -> Vec<i32> {
        self.lanes.iter().filter(|(_, l)| !l.is_empty()).map(|(u, _)| *u).collect()
    }

    /// Items held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Drops everything and returns it, in no particular order of units.
    pub fn clear(&mut self) -> Vec<T> {
        self.held = 0;
        self.lanes.drain().flat_map(|(_, lane)| lane.into_iter().map(|s| s.item)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the order of completions, each unit releases its items in the order of admission.
        #[test]
        fn releases_in_order(units in prop::collection::vec(0_i32..4, 1..50), seed in any::<u64>()) {
            let mut r = Resequencer::default();
            let mut tickets: Vec<_> = units.iter().enumerate().map(|(i, u)| (*u, r.admit(*u, i, None))).collect();
            let mut out: HashMap<i32, Vec<usize>> = HashMap::new();
            let mut s = seed;
            while !tickets.is_empty() {
                s = s.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let (unit, ticket) = tickets.swap_remove((s >> 33) as usize % tickets.len());
                r.complete(unit, ticket, ());
                for u in 0..4 { while let Some((i, ())) = r.pop(u) { out.entry(u).or_default().push(i); } }
            }
            prop_assert!(r.is_empty());
            for u in 0..4 {
                let wanted: Vec<usize> = units.iter().enumerate().filter(|(_, x)| **x == u).map(|(i, _)| i).collect();
                prop_assert_eq!(out.remove(&u).unwrap_or_default(), wanted);
            }
        }
    }
}
