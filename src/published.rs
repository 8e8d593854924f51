//! Calibrations on the topic: which versions are there, what is in force, how two of them differ, and putting another
//! one in force.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::app::{self, Setup};
use crate::error::{Code, Error, Result};
use crate::schema::{ActivePointer, Calibration, Control, ScreenCalibration};

/// Versions of a scope that an instance keeps.
const KEPT: usize = 64;

/// One version.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Record {
    /// Of MEMSAD.
    Memsad(Box<Calibration>),
    /// Of the screen.
    Screen(Box<ScreenCalibration>),
}

/// What the topic holds.
#[derive(Debug, Clone, Default)]
pub struct Published {
    /// `kind/scope` to versions.
    records: BTreeMap<String, BTreeMap<u64, Record>>,
    /// `kind/scope` to the version in force.
    active: BTreeMap<String, u64>,
    /// Records that can't be read.
    pub broken: u64,
}

/// One field of two versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Name.
    pub field: &'static str,
    /// In the first.
    pub before: String,
    /// In the second.
    pub after: String,
    /// What a reader should look at; empty where nothing stands out.
    pub note: String,
}

impl Published {
    /// Reads the topic to its end.
    ///
    /// # Errors
    /// `broker_unreachable`, `topic_missing`, `restore_stalled`.
    pub fn read(setup: &Setup) -> Result<Self> {
        let records = app::calibration_records(setup)?;
        Ok(Self::of(records.iter().map(|r| (r.key.as_slice(), r.value.as_deref()))))
    }

    /// Of records in their order; the last under a key counts, and a null value takes it away.
    #[must_use]
    pub fn of<'a>(records: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> Self {
        let mut out = Self::default();
        for (key, value) in records {
            let key = String::from_utf8_lossy(key);
            if out.take(&key, value).is_none() {
                out.broken += 1;
            }
        }
        out
    }

    fn take(&mut self, key: &str, value: Option<&[u8]>) -> Option<()> {
        if let Some(what) = key.strip_prefix("active/") {
            let pointer = value.map(serde_json::from_slice::<ActivePointer>).transpose().ok()?;
            self.active.remove(what);
            self.active.extend(pointer.map(|p| (what.to_owned(), p.version)));
            return Some(());
        }
        let (what, version) = key.rsplit_once('@')?;
        let version: u64 = version.parse().ok()?;
        let versions = self.records.entry(what.to_owned()).or_default();
        let Some(value) = value else {
            versions.remove(&version);
            return Some(());
        };
        let record = match what.split_once('/')? {
            ("memsad" | "rolling", _) => Record::Memsad(serde_json::from_slice(value).ok()?),
            ("screen", _) => Record::Screen(serde_json::from_slice(value).ok()?),
            _ => return None,
        };
        versions.insert(version, record);
        Some(())
    }

    /// Every version: `kind/scope`, version, record, whether it is in force.
    pub fn all(&self) -> impl Iterator<Item = (&str, u64, &Record, bool)> {
        self.records.iter().flat_map(|(what, versions)| {
            let active = self.active.get(what).copied();
            versions.iter().map(move |(v, r)| (what.as_str(), *v, r, active == Some(*v)))
        })
    }

    /// The version in force.
    #[must_use]
    pub fn active(&self, what: &str) -> Option<u64> {
        self.active.get(what).copied()
    }

    /// Whether instances still know a version: each keeps the newest 64 of a scope and the one in force.
    ///
    /// # Errors
    /// `calibration_missing`.
    pub fn ready(&self, what: &str, version: u64) -> Result<()> {
        self.get(what, version)?;
        let newer = self.records.get(what).map_or(0, |v| v.range(version + 1..).count());
        if newer < KEPT || self.active(what) == Some(version) {
            return Ok(());
        }
        let what = format!("{what}@{version} has {newer} newer versions: publish its record with --file as a new one");
        Err(Error::new(Code::CalibrationMissing, what))
    }

    /// A version of `kind/scope`; those that the stream made are of MEMSAD.
    ///
    /// # Errors
    /// `calibration_missing`.
    pub fn find(&self, what: &str, version: Version) -> Result<&Record> {
        match (version, what.strip_prefix("memsad/")) {
            (Version::Published(v), _) => self.get(what, v),
            (Version::Rolling(v), Some(scope)) => self.get(&format!("rolling/{scope}"), v),
            (Version::Rolling(_), None) => {
                Err(Error::new(Code::CalibrationMissing, "the stream makes no calibration of the screen"))
            }
        }
    }

    /// A version.
    ///
    /// # Errors
    /// `calibration_missing`.
    pub fn get(&self, what: &str, version: u64) -> Result<&Record> {
        let found = self.records.get(what).and_then(|v| v.get(&version));
        found.ok_or_else(|| Error::new(Code::CalibrationMissing, format!("the topic has no {what}@{version}")))
    }
}

/// A version as decisions count it: `7` is published, `rolling.7` a copy of what the stream made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Version {
    /// Published.
    Published(u64),
    /// Made by the stream.
    #[serde(serialize_with = "rolling")]
    Rolling(u64),
}

fn rolling<S: serde::Serializer>(version: &u64, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_str(&Version::Rolling(*version))
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Version::Published(v) => write!(f, "{v}"),
            Version::Rolling(v) => write!(f, "rolling.{v}"),
        }
    }
}

impl std::str::FromStr for Version {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        match text.strip_prefix("rolling.") {
            Some(number) => number.parse().map(Version::Rolling),
            None => text.parse().map(Version::Published),
        }
    }
}

/// Publishes a copy of what the stream made as the next version of its boundary, in force.
///
/// # Errors
/// `calibration_missing`, `calibration_invalid`, `broker_unreachable`, `topic_missing`.
pub fn restore(setup: &Setup, copy: &Record) -> Result<Calibration> {
    let Record::Memsad(copy) = copy else {
        return Err(Error::new(Code::CalibrationMissing, "the stream makes no calibration of the screen"));
    };
    crate::pipeline::Registry::default().add_calibration((**copy).clone())?;
    app::publish_calibration(setup, (**copy).clone())
}

/// Puts a version that is there in force: forward, or back.
///
/// # Errors
/// `calibration_missing`, `broker_unreachable`, `topic_missing`.
pub fn activate(setup: &Setup, published: &Published, what: &str, version: u64) -> Result<()> {
    published.ready(what, version)?;
    app::point(setup, what, version)
}

/// How two versions of one kind differ.
///
/// # Errors
/// `calibration_missing` for two kinds.
pub fn compare(a: &Record, b: &Record) -> Result<Vec<Difference>> {
    match (a, b) {
        (Record::Memsad(a), Record::Memsad(b)) => Ok(memsad(a, b)),
        (Record::Screen(a), Record::Screen(b)) => Ok(screen(a, b)),
        _ => Err(Error::new(
            Code::CalibrationMissing,
            "a calibration of MEMSAD and one of the screen have no field in common",
        )),
    }
}

fn row(field: &'static str, before: impl ToString, after: impl ToString, note: impl Into<String>) -> Difference {
    Difference { field, before: before.to_string(), after: after.to_string(), note: note.into() }
}

fn memsad(a: &Calibration, b: &Calibration) -> Vec<Difference> {
    let level =
        |c: &Calibration| c.conformal.as_ref().map_or("-".to_owned(), |r| format!("{:.6}", f64::from(r.level) / 1e6));
    let number = |x: f64| format!("{x:.6}");
    let moved = (b.threshold - a.threshold).abs() / a.std.max(1e-8);
    let margin = |m: Option<f64>| m.map_or("-".to_owned(), number);
    let worse = b.margin.is_some_and(|m| m <= 0.0);
    vec![
        row("mode", &a.mode, &b.mode, other(a.mode != b.mode, "decisions need the form that memsad.form names")),
        row("statistic", &a.statistic, &b.statistic, ""),
        row("encoder", &a.encoder, &b.encoder, other(a.encoder != b.encoder, "scores of two encoders don't compare")),
        row("n", a.n, b.n, ""),
        row("queries m", a.history.m, b.history.m, ""),
        row("made by the stream", made(a), made(b), ""),
        row("level", level(a), level(b), ""),
        row("mean", number(a.mean), number(b.mean), ""),
        row("standard deviation", number(a.std), number(b.std), ""),
        row(
            "threshold",
            number(a.threshold),
            number(b.threshold),
            format!("moved by {moved:.2} deviations of the first"),
        ),
        row("margin", margin(a.margin), margin(b.margin), other(worse, "no threshold separates")),
        share("random prefix", &a.control, &b.control),
        row("as of", &a.as_of, &b.as_of, ""),
    ]
}

/// Name in decisions of what the stream made.
fn made(c: &Calibration) -> &str {
    c.rolling.as_deref().unwrap_or("-")
}

fn screen(a: &ScreenCalibration, b: &ScreenCalibration) -> Vec<Difference> {
    let mut rows = vec![
        row("lexicon", &a.lexicon, &b.lexicon, other(a.lexicon != b.lexicon, "a record counts for its lexicon alone")),
        row("encoder", &a.encoder, &b.encoder, other(a.encoder != b.encoder, "a record counts for its encoder alone")),
        row("fitted", a.fitted, b.fitted, ""),
        row("ranking n", a.n, b.n, ""),
        row("sources", a.sources, b.sources, ""),
        share("held by the floors", &a.held, &b.held),
        share("random prefix", &a.control, &b.control),
    ];
    if let (Some(a), Some(b)) = (&a.poison, &b.poison) {
        rows.push(share("known poison", a, b));
    }
    rows.push(row("as of", &a.as_of, &b.as_of, ""));
    rows
}

/// A share with its interval. Intervals apart say more than two numbers; a factor of three is named as such.
fn share(field: &'static str, a: &Control, b: &Control) -> Difference {
    let text = |c: &Control| format!("{} of {} ({:.3} to {:.3})", c.flagged, c.n, c.interval[0], c.interval[1]);
    // Cross-multiplied: 3 a/n < b/m, or the reverse.
    let times =
        |x: &Control, y: &Control| 3 * u64::from(x.flagged) * u64::from(y.n) < u64::from(y.flagged) * u64::from(x.n);
    let apart = a.interval[1] < b.interval[0] || b.interval[1] < a.interval[0];
    let note = match (times(a, b) || times(b, a), apart) {
        (true, true) => "changed by more than a factor of 3, intervals apart: look before you publish",
        (true, false) => "changed by more than a factor of 3, within the intervals",
        (false, true) => "intervals apart",
        (false, false) => "",
    };
    row(field, text(a), text(b), note)
}

fn other(differs: bool, note: &str) -> String {
    if differs { note.to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calibration(version: u64, threshold: f64, flagged: u32) -> serde_json::Value {
        serde_json::json!({
            "kind": "memsad", "scope": "acme/support", "version": version, "mode": "reference", "statistic": "combined",
            "n": 200, "mean": 0.1, "std": 0.1, "kappa": 2.0, "threshold": threshold, "threshold_units": 1, "flagged": 0,
            "interval": [0, 1], "margin": null,
            "control": {"flagged": flagged, "n": 200, "interval": crate::score::clopper_pearson(flagged, 200)},
            "encoder": "e", "dimension": 8, "history": {"m": 1, "mean_norm": 1.0, "digest": ""},
            "as_of": "2026-11-28T00:00:00Z",
        })
    }

    #[test]
    fn versions_pointers_and_what_cant_be_read() {
        let (one, two) = (calibration(1, 0.3, 2).to_string(), calibration(2, 0.5, 90).to_string());
        let records: [(&str, Option<&str>); 8] = [
            ("memsad/acme/support@1", Some(&one)),
            ("active/memsad/acme/support", Some(r#"{"version":1}"#)),
            ("memsad/acme/support@2", Some(&two)),
            ("active/memsad/acme/support", Some(r#"{"version":2}"#)),
            ("memsad/acme/support@3", Some("{}")),
            ("screen/acme@x", Some("{}")),
            ("memsad/acme@4", Some(&one)),
            ("memsad/acme@4", None),
        ];
        let bytes = records.iter().map(|(k, v)| (k.as_bytes(), v.map(str::as_bytes)));
        let published = Published::of(bytes);
        let found: Vec<_> = published.all().map(|(what, v, _, active)| (what.to_owned(), v, active)).collect();
        let what = "memsad/acme/support";
        assert_eq!(found, [(what.to_owned(), 1, false), (what.to_owned(), 2, true)]);
        assert_eq!((published.broken, published.active(what), published.active("screen/*")), (2, Some(2), None));
        assert_eq!(published.get(what, 3).unwrap_err().code(), Code::CalibrationMissing);
        let many: Vec<(String, String)> =
            (1..=70).map(|v| (format!("{what}@{v}"), calibration(v, 0.3, 2).to_string())).collect();
        let many = Published::of(many.iter().map(|(k, v)| (k.as_bytes(), Some(v.as_bytes()))));
        assert!(many.ready(what, 7).is_ok() && many.ready(what, 6).is_err(), "instances keep the newest 64");
        let rows = compare(published.get(what, 1).unwrap(), published.get(what, 2).unwrap()).unwrap();
        let note = |field: &str| rows.iter().find(|r| r.field == field).unwrap().note.clone();
        assert_eq!(note("threshold"), "moved by 2.00 deviations of the first");
        assert!(note("random prefix").contains("factor of 3, intervals apart"));
        assert_eq!(note("encoder"), "");
        let same = compare(published.get(what, 1).unwrap(), published.get(what, 1).unwrap()).unwrap();
        assert!(same.iter().all(|r| r.before == r.after) && same.iter().all(|r| !r.note.contains("factor")));
    }

    /// Copies of what the stream made are listed and compared beside what is published, and are never in force.
    #[test]
    fn copies_stand_beside_published_versions() {
        let mut made = calibration(7, 0.5, 0);
        made["rolling"] = "acme/support@2+rolling.7".into();
        let (one, made) = (calibration(1, 0.3, 2).to_string(), made.to_string());
        let records: [(&str, Option<&str>); 3] = [
            ("memsad/acme/support@1", Some(&one)),
            ("active/memsad/acme/support", Some(r#"{"version":1}"#)),
            ("rolling/acme/support@7", Some(&made)),
        ];
        let published = Published::of(records.iter().map(|(k, v)| (k.as_bytes(), v.map(str::as_bytes))));
        let found: Vec<_> = published.all().map(|(what, v, _, active)| (what, v, active)).collect();
        assert_eq!(found, [("memsad/acme/support", 1, true), ("rolling/acme/support", 7, false)]);
        let find = |what: &str, version: &str| published.find(what, version.parse().unwrap());
        let rows =
            compare(find("memsad/acme/support", "1").unwrap(), find("memsad/acme/support", "rolling.7").unwrap());
        let rows = rows.unwrap();
        let row = |field: &str| rows.iter().find(|r| r.field == field).unwrap();
        assert_eq!((row("made by the stream").before.as_str(), row("threshold").after.as_str()), ("-", "0.500000"));
        assert_eq!(row("made by the stream").after, "acme/support@2+rolling.7");
        for (what, version) in
            [("memsad/acme/support", "7"), ("memsad/acme/support", "rolling.1"), ("screen/acme/support", "rolling.7")]
        {
            assert_eq!(find(what, version).unwrap_err().code(), Code::CalibrationMissing, "{what} {version}");
        }
        assert!("rolling.x".parse::<Version>().is_err() && "".parse::<Version>().is_err());
        let both = [Version::Published(3), Version::Rolling(7)];
        assert_eq!(serde_json::to_string(&both).unwrap(), r#"[3,"rolling.7"]"#);
    }
}
