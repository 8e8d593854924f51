//! Fitting a hardened calibration: which trusted writes it holds, and what their scores say at the fit.

use std::collections::BTreeMap;

use super::clopper_pearson;
use super::conformal::{Conformal, Row, level_units, most, pack};
use super::hardened::score;
use super::window::Window;
use crate::error::{Code, Error, Result};
use crate::schema::{
    Calibration, CalibrationHistory, CalibrationKind, ConformalRows, Control, Scope, Vector, to_cosine,
};
use crate::topology::Memsad;

/// A source's share of the writes, at most one in this many, where there are enough sources.
const SHARE: usize = 20;

/// A trusted write, in order of time.
#[derive(Debug, Clone)]
pub struct Sampled {
    /// What it becomes.
    pub row: Row,
    /// Who or what wrote it; writes without any are one source.
    pub source: String,
    /// The same text behind a random five-word prefix.
    pub prefixed: Option<Vector>,
}

/// What a fit needs.
#[derive(Debug)]
pub struct HardenedInput<'a> {
    /// Where it applies.
    pub scope: &'a Scope,
    /// Version to give it.
    pub version: u64,
    /// Settings.
    pub memsad: &'a Memsad,
    /// Queries.
    pub window: &'a Window,
    /// Benign writes, oldest first.
    pub benign: Vec<Sampled>,
    /// Known poison, for the margin.
    pub poison: &'a [Row],
    /// Encoder identity.
    pub encoder: &'a str,
    /// Record time of the newest benign write, RFC 3339.
    pub as_of: String,
}

/// Fits a calibration record.
///
/// # Errors
/// `calibration_too_small` below two writes, `calibration_no_queries` for an empty window.
#[allow(clippy::cast_precision_loss)] // counts and scores stay below 2^53
pub fn fit_hardened(input: HardenedInput<'_>) -> Result<Calibration> {
    let HardenedInput { scope, version, memsad, window, benign, poison, encoder, as_of } = input;
    if window.rows().is_empty() {
        return Err(Error::new(Code::CalibrationNoQueries, format!("no query for {}", scope.name())));
    }
    let all = benign.len();
    let dimension = benign.first().map_or(0, |s| s.row.vector.as_slice().len());
    let benign = shared_out(benign, most(dimension));
    if benign.len() < 2 {
        let what = format!("{} benign writes for {}", benign.len(), scope.name());
        return Err(Error::new(Code::CalibrationTooSmall, what));
    }
    let rows: Vec<Row> = benign.iter().map(|s| s.row.clone()).collect();
    let tested = |vector: &Vector, row: &Row| score(vector, &row.keys, window).scores.tested(memsad.statistic);
    let conformal = Conformal::of(&rows, window);
    let scores = conformal.scores(memsad.statistic);
    let n = scores.len() as f64;
    let mean = scores.iter().map(|s| to_cosine(*s)).sum::<f64>() / n;
    let std = (scores.iter().map(|s| (to_cosine(*s) - mean).powi(2)).sum::<f64>() / n).sqrt() + 1e-8;
    let level = level_units(memsad.level);
    let worst = scores.last().copied().unwrap_or_default();
    let threshold = conformal.threshold(memsad.statistic, level).unwrap_or(worst);
    let flagged = count(scores.iter().filter(|s| **s > threshold).count());
    let prefixed: Vec<i64> = benign.iter().filter_map(|s| Some(tested(s.prefixed.as_ref()?, &s.row))).collect();
    let triggered = count(prefixed.iter().filter(|s| **s > threshold).count());
    let margin = poison.iter().map(|r| tested(&r.vector, r)).min().map(|p| to_cosine(p - worst));
    let (digest, mean_norm) = window.summary();
    Ok(Calibration {
        kind: CalibrationKind::Memsad,
        scope: scope.name(),
        version,
        mode: "hardened".to_owned(),
        statistic: memsad.statistic.as_str().to_owned(),
        n: count(rows.len()),
        mean,
        std,
        kappa: memsad.kappa,
        threshold: to_cosine(threshold),
        threshold_units: threshold,
        flagged,
        interval: clopper_pearson(flagged, count(rows.len())),
        margin,
        control: Control {
            flagged: triggered,
            n: count(prefixed.len()),
            interval: clopper_pearson(triggered, count(prefixed.len())),
        },
        encoder: encoder.to_owned(),
        dimension: count(dimension),
        history: CalibrationHistory { m: count(window.rows().len()), mean_norm, digest },
        as_of,
        conformal: Some(ConformalRows { level, left_out: count(all - rows.len()), rows: pack(&rows) }),
        rolling: None,
    })
}

/// At most a twentieth of the writes from one source, the newest; with fewer sources their even share. Of what is
/// left the newest `most`.
fn shared_out(benign: Vec<Sampled>, most: usize) -> Vec<Sampled> {
    let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
    benign.iter().for_each(|s| *sizes.entry(s.source.clone()).or_default() += 1);
    let share = benign.len().div_ceil(SHARE).max(benign.len().div_ceil(sizes.len().max(1)));
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    let mut kept: Vec<Sampled> = Vec::with_capacity(most.min(benign.len()));
    for s in benign.into_iter().rev() {
        let n = taken.entry(s.source.clone()).or_default();
        *n += 1;
        if *n <= share && kept.len() < most {
            kept.push(s);
        }
    }
    kept.reverse();
    kept
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::{Fitted, Keys, Limits};
    use super::*;
    use crate::topology::Topology;

    fn vector(i: usize) -> Vector {
        let x = i as f64;
        Vector::from_f64(&[x.sin(), (1.7 * x).cos(), (0.3 * x).sin() + 0.2, 0.4]).unwrap()
    }

    fn window() -> Window {
        let mut window = Window::new(Limits { capacity: 20, per_principal: 20, settle: 1, age: 1000 });
        (0..12).for_each(|i| drop(window.push(0, Keys::of(Some(&format!("u{i}")), None, None), vector(7 * i))));
        window
    }

    fn sampled(n: usize, source: impl Fn(usize) -> String) -> Vec<Sampled> {
        let one = |i| {
            let keys = Keys::of(Some(&format!("u{}", i % 30)), None, None);
            Sampled { row: Row { keys, vector: vector(i) }, source: source(i), prefixed: Some(vector(i + 1)) }
        };
        (0..n).map(one).collect()
    }

    fn fitted(benign: Vec<Sampled>) -> Result<Calibration> {
        let memsad = Topology::sample().unwrap().main.memsad;
        let poison = [Row { keys: Keys::default(), vector: vector(0) }];
        fit_hardened(HardenedInput {
            scope: &Scope::Deployment,
            version: 3,
            memsad: &memsad,
            window: &window(),
            benign,
            poison: &poison,
            encoder: "e",
            as_of: "2026-11-30T00:00:00Z".into(),
        })
    }

    #[test]
    fn a_record_holds_its_rows_and_says_what_they_score() {
        let record = fitted(sampled(250, |i| format!("s{i}"))).unwrap();
        let conformal = record.conformal.as_ref().unwrap();
        assert_eq!((record.n, record.flagged, record.control.n, conformal.left_out), (250, 0, 250, 0));
        let ready = Fitted::of(record.clone()).unwrap();
        let again = Conformal::of(&ready.rows, &window());
        let memsad = Topology::sample().unwrap().main.memsad;
        assert_eq!(again.threshold(memsad.statistic, 5000), Some(record.threshold_units));
        // Of 512 rows at most the newest stay; too few for the level fall back to the largest.
        let most = fitted(sampled(700, |i| format!("s{i}"))).unwrap();
        assert_eq!((most.n, most.conformal.unwrap().left_out), (512, 188));
        let few = fitted(sampled(50, |i| format!("s{i}"))).unwrap();
        assert_eq!((few.n, few.flagged), (50, 0));
    }

    #[test]
    fn a_flood_of_one_source_gets_its_share() {
        let flood = |i: usize| if i < 160 { "flood".to_owned() } else { format!("s{i}") };
        let record = fitted(sampled(200, flood)).unwrap();
        assert_eq!((record.n, record.conformal.unwrap().left_out), (50, 150));
        assert_eq!(fitted(sampled(30, |_| "only".into())).unwrap().n, 30);
        assert_eq!(fitted(sampled(1, |_| "only".into())).unwrap_err().code(), Code::CalibrationTooSmall);
    }

    #[test]
    fn broken_rows_are_refused() {
        let good = fitted(sampled(20, |i| format!("s{i}"))).unwrap();
        let broken: [fn(&mut Calibration); 4] = [
            |c| c.n += 1,
            |c| c.dimension = 0,
            |c| c.conformal.as_mut().unwrap().rows = "?".into(),
            |c| c.conformal.as_mut().unwrap().rows = pack(&[]) + "AAAA",
        ];
        for change in broken {
            let mut c = good.clone();
            change(&mut c);
            assert_eq!(Fitted::of(c).unwrap_err().code(), Code::CalibrationInvalid);
        }
    }
}
