//! The local state from outside: what is there, and whether it is what the changelog says. No content and no
//! vector is shown; ids are keyed hashes unless the operator asks for them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use serde::Serialize;

use crate::app::Setup;
use crate::clock::rfc3339;
use crate::config::Secret;
use crate::error::{Code, Error, Result};
use crate::schema::Boundary;
use crate::score::{RollingMark, rolling_name};
use crate::source::{self, Spans};
use crate::state::{Kind, Mismatch, Positions, UnitAudit, View, audit, decode, key, parse, prefix};
use crate::topology::Role;

/// What is looked at.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Only this unit.
    pub unit: Option<i32>,
    /// Only this kind.
    pub kind: Option<Kind>,
    /// Only keys of this boundary; kinds without one are left out.
    pub boundary: Option<Boundary>,
}

/// Size of a kind in a unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Size {
    /// Keys.
    pub keys: u64,
    /// Bytes of keys and values, before compression.
    pub bytes: u64,
}

/// A unit of the local state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnitView {
    /// Unit.
    pub unit: i32,
    /// Offsets it stands at.
    pub positions: Positions,
    /// Size by kind.
    pub kinds: BTreeMap<&'static str, Size>,
}

/// One key, with nothing of its value but the length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Unit.
    pub unit: i32,
    /// Kind.
    pub kind: &'static str,
    /// Boundary, session, or what is in force: as it is, or its keyed hash.
    pub ids: Vec<String>,
    /// Ring slot; the order-preserving bits of a time for `session-expiry`.
    pub number: Option<u64>,
    /// Bytes of the value.
    pub bytes: u64,
}

/// How ids are shown.
#[derive(Debug)]
pub enum Names {
    /// As they are.
    Plain,
    /// As HMACs under the deployment's key, 16 hex digits.
    Hashed(Box<Secret>),
}

impl Names {
    fn show(&self, id: String) -> String {
        match self {
            Names::Plain => id,
            Names::Hashed(secret) => format!("hmac:{}", &secret.hmac("deployment", id.as_bytes())[..16]),
        }
    }

    /// A key as an entry; a broken one has no ids.
    #[must_use]
    pub fn entry(&self, state_key: &[u8], bytes: usize) -> Entry {
        let bytes = bytes as u64;
        match parse(state_key) {
            Some(p) => Entry {
                unit: p.partition,
                kind: p.kind.as_str(),
                ids: p.parts.into_iter().map(|id| self.show(id)).collect(),
                number: p.number,
                bytes,
            },
            None => Entry { unit: -1, kind: "broken", ids: Vec::new(), number: None, bytes },
        }
    }
}

/// The local state of this deployment.
///
/// # Errors
/// `state_failed`; `state_mismatch` when the folder belongs to another deployment.
pub fn open(setup: &Setup) -> Result<View> {
    let view = View::open(&setup.config.state_dir())?;
    let (found, wanted) = (view.identity()?.unwrap_or_default(), setup.identity());
    if found == wanted {
        return Ok(view);
    }
    Err(Error::new(Code::StateMismatch, format!("the state belongs to '{found}', not '{wanted}'")))
}

/// Units that have state, with positions and sizes.
///
/// # Errors
/// `state_failed`, `state_format`.
pub fn units(setup: &Setup, view: &View, scope: &Scope) -> Result<Vec<UnitView>> {
    let mut units = Vec::new();
    for unit in range(setup, scope) {
        let Some(positions) = view.positions(unit)? else { continue };
        let mut kinds: BTreeMap<&'static str, Size> = BTreeMap::new();
        each(view, unit, scope, |kind, key, value| {
            let size = kinds.entry(kind.as_str()).or_default();
            size.keys += 1;
            size.bytes += (key.len() + value.len()) as u64;
            Ok(ControlFlow::Continue(()))
        })?;
        units.push(UnitView { unit, positions, kinds });
    }
    Ok(units)
}

/// A boundary's rolling calibration in the local state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RollingView {
    /// `tenant/store`.
    pub boundary: String,
    /// Name in decisions; of the published one before the first of its own, empty for none.
    pub calibration: String,
    /// Rows of its own.
    pub rows: u64,
    /// Accepted writes that wait.
    pub waiting: u64,
    /// A jump was seen.
    pub frozen: bool,
    /// Stream time of the last step, RFC 3339.
    pub stepped: String,
}

/// The rolling calibrations of a scope.
///
/// # Errors
/// `state_failed`, `state_format`.
pub fn rolling(setup: &Setup, view: &View, scope: &Scope) -> Result<Vec<RollingView>> {
    let mut out = Vec::new();
    for unit in range(setup, scope) {
        let marks = Scope { kind: Some(Kind::Rolling), ..scope.clone() };
        each(view, unit, &marks, |_, state_key, value| {
            let Some(boundary) = parse(state_key).and_then(|p| p.parts.into_iter().next()) else {
                return Ok(ControlFlow::Continue(()));
            };
            let mark: RollingMark = decode(value)?;
            let (mut rows, mut waiting) = (0, 0);
            view.each(&key(Kind::RollingRow, unit, &[&boundary], None, &[]), |k, _| {
                let own = parse(k).and_then(|p| p.number).is_some_and(|n| n < mark.settled);
                *(if own { &mut rows } else { &mut waiting }) += 1;
                Ok(ControlFlow::Continue(()))
            })?;
            let calibration = if mark.rolled { rolling_name(&mark, &boundary) } else { mark.base.clone() };
            let stepped = rfc3339(mark.stepped);
            out.push(RollingView { boundary, calibration, rows, waiting, frozen: mark.frozen, stepped });
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(out)
}

/// The first `limit` keys of a scope.
///
/// # Errors
/// `state_failed`, and what `show` returns.
pub fn entries(
    setup: &Setup,
    view: &View,
    scope: &Scope,
    limit: usize,
    names: &Names,
    mut show: impl FnMut(&Entry) -> Result<()>,
) -> Result<usize> {
    let mut count = 0;
    for unit in range(setup, scope) {
        each(view, unit, scope, |_, key, value| {
            if count == limit {
                return Ok(ControlFlow::Break(()));
            }
            count += 1;
            show(&names.entry(key, value.len()))?;
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(count)
}

fn range(setup: &Setup, scope: &Scope) -> impl Iterator<Item = i32> + use<> {
    let (of_boundary, of_scope) = (scope.boundary.clone(), scope.unit);
    let units = setup.topology.units();
    let own = of_boundary.map(|b| source::partition_of(b.as_str().as_bytes(), units));
    (0..units).filter(move |u| of_scope.is_none_or(|s| s == *u) && own.is_none_or(|o| o == *u))
}

fn each(
    view: &View,
    unit: i32,
    scope: &Scope,
    mut each: impl FnMut(Kind, &[u8], &[u8]) -> Result<ControlFlow<()>>,
) -> Result<()> {
    for kind in Kind::LOGGED.into_iter().filter(|k| scope.kind.is_none_or(|s| s == *k)) {
        let from = match (&scope.boundary, kind) {
            (None, _) => prefix(kind, unit),
            (Some(_), Kind::Unit | Kind::Active) => continue,
            (Some(b), _) => key(kind, unit, &[b.as_str()], None, &[]),
        };
        view.each(&from, |k, v| each(kind, k, v))?;
    }
    Ok(())
}

/// Compares each unit with the fold of its changelog (I3).
///
/// # Errors
/// `broker_unreachable`, `restore_stalled`, `topic_recreated`, `state_failed`, `state_format`.
pub fn verify(
    setup: &Setup,
    view: &View,
    only: Option<i32>,
    mut progress: impl FnMut(i32, u64, u64),
    mut show: impl FnMut(Mismatch) -> Result<()>,
) -> Result<Vec<UnitAudit>> {
    let spans = Spans::new(&source::client(&setup.config)?)?;
    let (topic, folder) = (setup.topology.name(Role::Changelog), setup.config.state_dir());
    let mut found = Vec::new();
    for unit in (0..setup.topology.units()).filter(|u| only.is_none_or(|o| o == *u)) {
        let log = spans.bounds(topic, unit)?;
        let total = u64::try_from(log.high - log.low).unwrap_or_default();
        found.extend(audit(view, &spans, topic, unit, &folder, |n| progress(unit, n, total), &mut show)?);
    }
    Ok(found)
}
