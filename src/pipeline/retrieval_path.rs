//! The retrieval path after embedding: cross-tenant check, history, session, SPRT, alert.

use super::engine::Taken;
use super::{Engine, Unit, outputs};
use crate::decode::Retrieval;
use crate::embed::Encoded;
use crate::error::{Code, Error, Result};
use crate::schema::IdKind;
use crate::session::{self, Observed, SessionState};
use crate::sink::Output;
use crate::source::At;
use crate::state::{self, Kind, State, Store, key};
use crate::topology::Form;

impl Engine {
    /// Takes one retrieval event.
    pub(super) fn retrieval<S: Store>(
        &self,
        unit: &mut Unit,
        state: &mut State<S>,
        taken: &Taken,
        r: &Retrieval,
        embedded: Option<Result<Encoded>>,
    ) -> Result<Vec<Output>> {
        let at = taken.fetched.at;
        let mut out = Vec::new();
        let now = unit.advance(&r.boundary, at.timestamp, state)?;
        unit.sweep(&r.boundary, now, self, state)?;
        let foreign = r.results.iter().filter(|x| x.foreign).count();
        if foreign > 0 {
            let uid = self.id_of(unit, &taken.input, IdKind::Finding);
            let attack =
                crate::alert::cross_tenant(uid, &r.boundary, &r.session_id, &r.event_id, foreign, at.timestamp);
            out.push(outputs::finding(self, unit.partition, &attack)?);
        }
        if let Some(Ok(encoded)) = embedded {
            match self.memsad.memsad.form {
                Form::Hardened => self.asked(unit, state, r, now, &encoded.vector)?,
                Form::Reference => self.remember(unit, state, r, &encoded)?,
            }
        }
        out.extend(self.session(unit, state, at, now, r)?);
        Ok(out)
    }

    fn remember<S: Store>(
        &self,
        unit: &mut Unit,
        state: &mut State<S>,
        r: &Retrieval,
        encoded: &Encoded,
    ) -> Result<()> {
        let history = unit.history(&r.boundary, self, state)?;
        let seq = history.push(encoded.vector.as_slice());
        let slot = seq % history.capacity() as u64;
        let key = key(Kind::HistorySlot, unit.partition, &[r.boundary.as_str()], Some(slot), &[]);
        state.put(key, state::encode(&(seq, encoded.vector.to_bytes())));
        Ok(())
    }

    fn session<S: Store>(
        &self,
        unit: &mut Unit,
        state: &mut State<S>,
        at: At,
        now: i64,
        r: &Retrieval,
    ) -> Result<Option<Output>> {
        let Some(traps) = unit.traps.get(&r.boundary).filter(|t| !t.by_record.is_empty()) else {
            return Ok(None);
        };
        if r.background || r.results.is_empty() || r.k == 0 {
            return Ok(None);
        }
        let first = r.results.iter().take(r.k);
        let honeypots = first.filter_map(|x| traps.by_record.get(&x.id).map(String::as_str)).collect();
        let observed = Observed {
            offset: at.offset,
            at: at.timestamp,
            stream_time: now,
            event_id: &r.event_id,
            output_id: r.output_id.as_deref(),
            honeypots,
            set_version: traps.version,
        };
        let key = key(Kind::Session, unit.partition, &[r.boundary.as_str(), &r.session_id], None, &[]);
        let previous = state.get(&key)?.map(|v| read_session(&v)).transpose()?;
        let known = previous.as_ref().is_some_and(|p| now <= p.closes_at(&self.sprt));
        let before = previous.as_ref().filter(|_| known).map_or((0, 0), |p| (p.suppressed, p.restarts));
        let (next, crossing) = session::observe(previous, &self.sprt, &observed);
        unit.sessions.observed += u64::from(next.suppressed == before.0);
        unit.sessions.restarts += u64::from(next.restarts.saturating_sub(before.1));
        unit.sessions.attacks += u64::from(crossing.is_some());
        state.put(key, state::encode(&next));
        if !known {
            unit.schedule(&r.boundary, &r.session_id, next.closes_at(&self.sprt), state);
        }
        let Some(crossing) = crossing else {
            return Ok(None);
        };
        let uid = self.ids.of_session(&r.boundary, &r.session_id, crossing.epoch);
        let attack =
            crate::alert::extraction_session(uid, &r.boundary, &r.session_id, &r.principal, &self.sprt, &crossing);
        outputs::finding(self, unit.partition, &attack).map(Some)
    }
}

/// Reads the value of a session.
///
/// # Errors
/// `state_format`.
pub(super) fn read_session(value: &[u8]) -> Result<SessionState> {
    let session: SessionState = state::decode(value)?;
    if session.is_sound() {
        return Ok(session);
    }
    Err(Error::new(Code::StateFormat, "a session has more hits than observations, or lists that are too long"))
}
