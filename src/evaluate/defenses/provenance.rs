//! The trivial rule: hold whatever is not from an authenticated user or operator.

use super::{Defense, Judged};
use crate::error::Result;
use crate::evaluate::{Encode, Write};
use crate::schema::Origin;

/// Rule R0 of `hardened.md` 5. What an agent writes in an authenticated user's session counts as that user's.
#[derive(Debug)]
pub struct ProvenanceGate;

impl Defense for ProvenanceGate {
    fn judge(&self, stream: &[Write], _: &dyn Encode) -> Result<Vec<Judged>> {
        let trusted = |w: &Write| {
            w.principal.is_some() && matches!(w.origin, Origin::UserInput | Origin::System | Origin::AgentGenerated)
        };
        Ok(stream.iter().map(|w| Judged::by(f64::from(u8::from(!trusted(w))), 0.5)).collect())
    }

    fn threshold(&self) -> Option<f64> {
        Some(0.5)
    }
}
