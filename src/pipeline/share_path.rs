//! The share of writes that reach a floor, on the write path: counted for each screened write, compared when a block
//! is full.

use super::screen_path::{Occasion, Screened};
use super::{Engine, Unit, outputs};
use crate::alert;
use crate::error::{Code, Error, Result};
use crate::schema::IdKind;
use crate::score::applicable;
use crate::screen::ShareMark;
use crate::sink::Output;
use crate::state::{self, Kind, State, Store, key};

/// On decisions while an alarm stands.
const MOVED: &str = "floor_share_moved";

impl Engine {
    /// Counts a screened write, and says in its facts and in a finding where the share has moved.
    pub(super) fn share<S: Store>(
        &self,
        unit: &mut Unit,
        state: &mut State<S>,
        o: Occasion<'_>,
        screened: Option<&mut Screened>,
    ) -> Result<Option<Output>> {
        let Some(screened) = screened else { return Ok(None) };
        let (partition, b) = (unit.partition, &o.write.boundary);
        let key = key(Kind::FloorShare, partition, &[b.as_str()], None, &[]);
        let mut mark: ShareMark = state.get(&key)?.map(|v| state::decode(&v)).transpose()?.unwrap_or_default();
        if !mark.is_possible() {
            return Err(Error::new(Code::StateFormat, "the share of floor hits of a boundary is broken"));
        }
        let calibration = applicable(&unit.screenings, b).filter(|c| c.fits(&self.memsad.encoder));
        mark.sync(calibration.map_or("", |c| c.name.as_str()));
        let hit = !screened.facts.floors.is_empty();
        let facts = mark.count(hit, calibration.map(|c| c.share));
        state.put(key, state::encode(&mark));
        if mark.alarm.is_some() {
            screened.flags.push(MOVED.to_owned());
        }
        screened.facts.share.clone_from(&facts);
        let counts = &mut unit.sessions;
        counts.screened += 1;
        counts.floors += u64::from(hit);
        let Some(facts) = facts.filter(|f| f.raised) else { return Ok(None) };
        counts.shares += 1;
        let attack = alert::moved_share(self.id_of(unit, o.input, IdKind::Share), b, &facts, o.at.timestamp);
        outputs::finding(self, partition, &attack).map(Some)
    }
}
