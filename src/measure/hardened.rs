//! What a write costs in the hardened form: its scores and certificate against a window, and taking it into memory.

use std::hint::black_box;

use serde::Serialize;

use super::Spread;
use super::contend::{Clock, race};
use super::kernels::Random;
use crate::error::{Code, Error, Result};
use crate::schema::Vector;
use crate::score::{Keys, Limits, Memory, Settings, Window, assess_hardened, tag};
use crate::topology::Memsad;

/// Stored memories that most boundaries have room for.
const MEMORIES: usize = 500;

/// One size.
#[derive(Debug, Clone, Serialize)]
pub struct Cost {
    /// Queries in the window.
    pub window: usize,
    /// Stored memories.
    pub memories: usize,
    /// Scores and certificate, microseconds a write.
    pub score: Spread,
    /// Taking the write into a full memory, microseconds.
    pub accept: Spread,
}

/// Measures one window of unrelated queries.
///
/// # Errors
/// `internal` for a dimension that gives no vector.
pub fn cost(memsad: &Memsad, dimension: usize, window: usize, rounds: usize, seed: u64) -> Result<Cost> {
    let mut random = Random(seed);
    let mut vector = || {
        let found = Vector::from_f64(&random.normal(dimension, 1.0));
        found.ok_or_else(|| Error::new(Code::Internal, "a random vector of norm 0"))
    };
    let limits = Limits { capacity: window, per_principal: window, settle: window, age: i64::MAX };
    let mut queries = Window::new(limits);
    for _ in 0..window {
        queries.push(0, Keys::default(), vector()?);
    }
    queries.finish();
    let mut memory = Memory::restore(dimension, MEMORIES, 0, Vec::new());
    let writes: Vec<Vector> = (0..2 * MEMORIES).map(|_| vector()).collect::<Result<_>>()?;
    for (i, w) in writes.iter().enumerate() {
        memory.push(&queries, tag(&i.to_string()), i64::MAX, w.clone());
    }
    let settings = Settings { memsad: memsad.clone(), encoder: String::new() };
    let (mut at, mut next) = (0, writes.len());
    let scored = memory.clone();
    let score = || {
        at = (at + 1) % writes.len();
        let facts = assess_hardened(&settings, &writes[at], &Keys::default(), &queries, &scored, None);
        drop(black_box(facts));
    };
    let accept = || {
        next += 1;
        let write = writes[next % writes.len()].clone();
        drop(black_box(memory.push(&queries, tag(&next.to_string()), i64::MAX, write)));
    };
    let mut racers: Vec<Box<dyn FnMut() + '_>> = vec![Box::new(score), Box::new(accept)];
    let times = race(&mut racers, rounds, Clock::Thread);
    drop(racers);
    Ok(Cost { window, memories: MEMORIES, score: Spread::of(&times[0]), accept: Spread::of(&times[1]) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    #[test]
    fn a_cost_is_measured() {
        let memsad = Topology::sample().unwrap().main.memsad;
        let cost = cost(&memsad, 16, 40, 1, 3).unwrap();
        assert!(cost.window == 40 && cost.score.median > 0.0 && cost.accept.median > 0.0);
    }
}
