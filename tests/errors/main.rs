//! Every error code has a page that says what was done, and something that raises it.
//!
//! A code counts as raised only by a case here or by a file under `topology/invalid/`. What a real broker
//! adds to it stands in `tests/broker/`.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod breaker;
mod pages;
mod process;
mod records;
mod state;
mod support;
mod topologies;

use std::collections::BTreeSet;

use memsluice::error::Code;

use process::{BROKER, FILES, MODELS, PROBED, SLOW, STATE};
use records::decode_cases;
use topologies::invalid_files;

/// No code is left that nothing raises.
#[test]
fn every_code_is_raised() {
    let mut here: BTreeSet<Code> = decode_cases().into_iter().map(|(code, _, _)| code).collect();
    here.extend(invalid_files().into_iter().map(|(_, _, error)| error.code()));
    here.extend([FILES, MODELS, STATE, BROKER, PROBED, SLOW].into_iter().flatten().map(|(code, _, _)| *code));
    here.insert(Code::OutputTooLarge); // outputs_stay_below_the_limit
    here.extend([Code::SourceIsolated, Code::PoisonFlood]); // a_failing_source_is_isolated_alone, several_sources_stop_the_line
    here.extend([Code::KeyHeld, Code::HeldKeysFull]); // a_later_record_waits_for_the_broken_one, a_full_hold_stops
    // shapes_read_as_documented (tests/adapters.rs)
    here.extend([Code::ShapeUnknown, Code::ShapeAmbiguous, Code::ShapeIncomplete, Code::TooManyFacts]);
    let missing: Vec<&str> = Code::ALL.iter().filter(|c| !here.contains(c)).map(|c| c.name()).collect();
    assert!(missing.is_empty(), "nothing raises {missing:?}");
}
