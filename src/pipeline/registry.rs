//! Broadcast records as every instance sees them: versions and active pointers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::error::{Code, Error, Result};
use crate::schema::{ActivePointer, Calibration, HoneypotSet, Scope, ScreenCalibration, to_cosine};
use crate::score::Fitted;
use crate::screen::Screening;
use crate::topology::Role;

/// JSON numbers are exact up to here (RFC 8785).
const MAX_VERSION: u64 = 1 << 53;
/// Versions kept for each scope.
const KEPT: usize = 64;

/// All versions and pointers; `generation` grows with each change.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    calibrations: HashMap<String, BTreeMap<u64, Arc<Fitted>>>,
    screenings: HashMap<String, BTreeMap<u64, Arc<Screening>>>,
    honeypots: HashMap<String, BTreeMap<u64, HoneypotSet>>,
    active: BTreeMap<String, u64>,
    generation: u64,
}

impl Registry {
    /// Takes a record of a broadcast topic. A null value or an unknown key is ignored.
    ///
    /// # Errors
    /// `calibration_invalid`, `honeypot_invalid`.
    pub fn apply(&mut self, role: Role, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let (Ok(key), Some(value)) = (std::str::from_utf8(key), value) else {
            return Ok(());
        };
        let invalid = |e: serde_json::Error| {
            let code = if role == Role::Calibrations { Code::CalibrationInvalid } else { Code::HoneypotInvalid };
            Error::new(code, format!("{key}: line {} column {}", e.line(), e.column()))
        };
        let kinds: &[&str] = if role == Role::Calibrations { &["memsad/", "screen/"] } else { &["honeypots/"] };
        if let Some(what) = key.strip_prefix("active/").filter(|w| kinds.iter().any(|kind| w.starts_with(kind))) {
            let pointer: ActivePointer = serde_json::from_slice(value).map_err(invalid)?;
            if self.active.insert(what.to_owned(), pointer.version) != Some(pointer.version) {
                self.generation += 1;
            }
            return Ok(());
        }
        // A copy of what a unit made for itself.
        if role == Role::Calibrations && key.starts_with("rolling/") {
            return Ok(());
        }
        if role == Role::Calibrations && key.starts_with("screen/") {
            let c: ScreenCalibration = serde_json::from_slice(value).map_err(invalid)?;
            named(key, &format!("screen/{}@{}", c.scope, c.version), Code::CalibrationInvalid)?;
            return self.add_screening(&c);
        }
        if role == Role::Calibrations {
            let c: Calibration = serde_json::from_slice(value).map_err(invalid)?;
            named(key, &format!("memsad/{}@{}", c.scope, c.version), Code::CalibrationInvalid)?;
            return self.add_calibration(c);
        }
        let set: HoneypotSet = serde_json::from_slice(value).map_err(invalid)?;
        named(key, &format!("honeypots/{}@{}", set.scope, set.version), Code::HoneypotInvalid)?;
        self.add_honeypots(set)
    }

    /// Adds a version of a calibration.
    ///
    /// # Errors
    /// `calibration_invalid`.
    pub fn add_calibration(&mut self, c: Calibration) -> Result<()> {
        let numbers = [c.mean, c.std, c.threshold, c.kappa].iter().all(|x| x.is_finite() && x.abs() < 1e6);
        let mode = if c.conformal.is_some() { "hardened" } else { "reference" };
        let words = c.mode == mode && ["max", "mean", "combined"].contains(&c.statistic.as_str());
        // Units and cosine must say the same, or the record was edited by hand.
        let units = (to_cosine(c.threshold_units) - c.threshold).abs() < 1e-6;
        let sane = numbers && words && units && c.version <= MAX_VERSION;
        if Scope::parse(&c.scope).is_none() || !sane {
            return Err(Error::new(
                Code::CalibrationInvalid,
                "a calibration has a scope, mode or number that can't be",
            ));
        }
        let active = self.active.get(&format!("memsad/{}", c.scope)).copied();
        let (scope, version) = (c.scope.clone(), c.version);
        insert(&mut self.calibrations, scope, version, Arc::new(Fitted::of(c)?), active);
        self.generation += 1;
        Ok(())
    }

    /// Adds a version of a calibration of the screen.
    ///
    /// # Errors
    /// `calibration_invalid`.
    pub fn add_screening(&mut self, c: &ScreenCalibration) -> Result<()> {
        if Scope::parse(&c.scope).is_none() || c.version > MAX_VERSION {
            return Err(Error::new(
                Code::CalibrationInvalid,
                "a screen calibration has a scope or version that can't be",
            ));
        }
        let ready = Arc::new(Screening::of(c)?);
        let active = self.active.get(&format!("screen/{}", c.scope)).copied();
        insert(&mut self.screenings, c.scope.clone(), c.version, ready, active);
        self.generation += 1;
        Ok(())
    }

    /// Adds a version of a honeypot set.
    ///
    /// # Errors
    /// `honeypot_invalid`.
    pub fn add_honeypots(&mut self, set: HoneypotSet) -> Result<()> {
        let sane = set.version <= MAX_VERSION
            && set
                .honeypots
                .iter()
                .all(|h| crate::schema::valid_id(&h.honeypot_id) && format!("{}/{}", h.tenant, h.store) == set.scope);
        if !matches!(Scope::parse(&set.scope), Some(Scope::Boundary(_))) || !sane {
            return Err(Error::new(Code::HoneypotInvalid, "a honeypot set has a scope or member that can't be"));
        }
        let active = self.active.get(&format!("honeypots/{}", set.scope)).copied();
        insert(&mut self.honeypots, set.scope.clone(), set.version, set, active);
        self.generation += 1;
        Ok(())
    }

    /// Puts a version in force; `what` is `memsad/<scope>`, `screen/<scope>` or `honeypots/<scope>`.
    pub fn activate(&mut self, what: String, version: u64) {
        self.active.insert(what, version);
        self.generation += 1;
    }

    /// Grows with each change.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// What is in force.
    #[must_use]
    pub fn active(&self) -> &BTreeMap<String, u64> {
        &self.active
    }

    /// Highest version of a scope; 0 when there is none.
    #[must_use]
    pub fn latest(&self, what: &str) -> u64 {
        let (kind, scope) = what.split_once('/').unwrap_or((what, ""));
        let last = |n: Option<&u64>| n.copied().unwrap_or_default();
        match kind {
            "memsad" => last(self.calibrations.get(scope).and_then(|v| v.keys().next_back())),
            "screen" => last(self.screenings.get(scope).and_then(|v| v.keys().next_back())),
            _ => last(self.honeypots.get(scope).and_then(|v| v.keys().next_back())),
        }
    }

    /// A version of a calibration.
    #[must_use]
    pub fn calibration(&self, scope: &str, version: u64) -> Option<&Arc<Fitted>> {
        self.calibrations.get(scope)?.get(&version)
    }

    /// A version of a calibration of the screen.
    #[must_use]
    pub fn screening(&self, scope: &str, version: u64) -> Option<&Arc<Screening>> {
        self.screenings.get(scope)?.get(&version)
    }

    /// A version of a honeypot set.
    #[must_use]
    pub fn honeypots(&self, scope: &str, version: u64) -> Option<&HoneypotSet> {
        self.honeypots.get(scope)?.get(&version)
    }
}

fn insert<T>(map: &mut HashMap<String, BTreeMap<u64, T>>, scope: String, version: u64, value: T, active: Option<u64>) {
    let versions = map.entry(scope).or_default();
    versions.insert(version, value);
    while versions.len() > KEPT {
        let Some(oldest) = versions.keys().copied().find(|v| Some(*v) != active) else { return };
        versions.remove(&oldest);
    }
}

/// A record must stand under the key that its value names.
fn named(key: &str, wanted: &str, code: Code) -> Result<()> {
    if key == wanted {
        return Ok(());
    }
    Err(Error::new(code, format!("key {key} holds {wanted}")))
}
