//! Copies of rolling calibrations, in the transaction of their activations: records under `rolling/<boundary>@<version>`
//! that nobody adopts. Only the unit of the boundary writes them.

use super::screen_path::Occasion;
use super::{Engine, Unit};
use crate::clock::rfc3339;
use crate::error::{Code, Error, Result};
use crate::schema::{Boundary, Copied, header};
use crate::score::{Copies, CopyInput, RollingMark, copy_of, rolling_name};
use crate::sink::Output;
use crate::state::{self, Kind, State, Store, key};
use crate::topology::Role;

impl Engine {
    /// The copy of what has just come into force, and what leaves the topic for it.
    pub(super) fn copied<S: Store>(
        &self,
        unit: &mut Unit,
        state: &mut State<S>,
        o: Occasion<'_>,
        mark: &RollingMark,
    ) -> Result<(Copied, Vec<Output>)> {
        let (partition, b) = (unit.partition, &o.write.boundary);
        let key = key(Kind::RollingCopies, partition, &[b.as_str()], None, &[]);
        let mut copies: Copies = state.get(&key)?.map(|v| state::decode(&v)).transpose()?.unwrap_or_default();
        if !copies.is_possible() {
            return Err(Error::new(Code::StateFormat, "the copies of a rolling calibration are broken"));
        }
        if !copies.is_due(mark.stepped) {
            return Ok((Copied::Recent, Vec::new()));
        }
        let ready = unit.memories.ready(partition, b, self, state)?;
        let input = CopyInput {
            boundary: b,
            version: mark.version,
            name: rolling_name(mark, b.as_str()),
            rows: ready.rolling.rows().iter().map(|a| a.row.clone()).collect(),
            window: &ready.window,
            memsad: &self.memsad.memsad,
            encoder: &self.memsad.encoder,
            as_of: rfc3339(mark.stepped),
        };
        // The window of a step holds queries.
        let Some(value) = copy_of(input).ok().and_then(|record| serde_json::to_vec(&record).ok()) else {
            return Ok((Copied::TooSmall, Vec::new()));
        };
        let copy = record(b, mark.version, Some(value));
        if copy.bytes() > self.topology.main.limits.max_output_bytes {
            return Ok((Copied::TooLarge, Vec::new()));
        }
        let left = copies.add(mark.version, mark.stepped);
        state.put(key, state::encode(&copies));
        let gone = left.into_iter().map(|version| record(b, version, None));
        Ok((Copied::Published, std::iter::once(copy).chain(gone).collect()))
    }
}

/// Broadcast topics have one partition.
fn record(b: &Boundary, version: u64, value: Option<Vec<u8>>) -> Output {
    let headers = vec![(header::CONTENT_TYPE.to_owned(), Some(b"application/json".to_vec()))];
    let key = format!("rolling/{b}@{version}").into_bytes();
    Output { role: Role::Calibrations, partition: 0, key, value, headers }
}
