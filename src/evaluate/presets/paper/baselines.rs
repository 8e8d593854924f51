//! Energy, Mahalanobis and nearest-neighbour scores on the setting of the calibration table.

use super::detector::five;
use super::lab::{Lab, above, threshold};
use super::{DRAW, WORDS};
use crate::error::Result;
use crate::evaluate::Row;
use crate::evaluate::stats::auroc;
use crate::schema::Vector;
use crate::score::{NEIGHBOURS, energy, knn};

const SECTION: &str = "baselines: 500 entries to fit, 500 to test";

type Score<'a> = Box<dyn Fn(&Vector) -> f64 + 'a>;
/// Name, score, published areas and rates by attack, false positive rate.
type Method<'a> = (&'static str, Score<'a>, [f64; 3], [f64; 3], f64);

pub(super) fn rows(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let entries = lab.vectors(&lab.entries(1000, 0))?;
    let (fit, test) = entries.split_at(500);
    // Ten queries, as the calibration of that script.
    let queries = lab.vectors(&lab.victims[..10.min(lab.victims.len())])?;
    let gauss = Gauss::fit(fit);
    let energy = |v: &Vector| energy(v, &queries);
    let nearest = |v: &Vector| knn(v, fit, NEIGHBOURS);
    let methods: [Method<'_>; 3] = [
        ("energy", Box::new(energy), [0.945, 0.969, 0.698], [0.4, 0.2, 0.4], 0.010),
        ("kNN", Box::new(nearest), [0.533, 0.786, 0.534], [0.0, 0.4, 0.0], 0.204),
        ("Mahalanobis", Box::new(|v: &Vector| gauss.distance(v)), [0.420, 0.694, 0.452], [1.0, 1.0, 1.0], 0.964),
    ];
    let mut rows = Vec::new();
    for (name, score, areas, rates, fpr) in methods {
        let limit = threshold(&fit.iter().map(&score).collect::<Vec<_>>());
        let benign: Vec<f64> = test.iter().map(&score).collect();
        for (i, (attack, texts)) in five(lab).iter().enumerate() {
            let poison: Vec<f64> = lab.vectors(texts)?.iter().map(&score).collect();
            let (a, t) = (format!("{:.3}", areas[i]), format!("{:.2}", rates[i]));
            let area = auroc(&benign, &poison).unwrap_or_default();
            rows.push(
                Row::value(SECTION, format!("{name}: AUROC {attack}"), area)
                    .published(&a)
                    .remeasured(&a)
                    .against(areas[i], 0.1)
                    .note(WORDS),
            );
            let tpr = above(&poison, limit);
            rows.push(
                Row::value(SECTION, format!("{name}: TPR {attack}"), tpr)
                    .published(&t)
                    .remeasured(&t)
                    .against(rates[i], 0.2)
                    .note("five texts"),
            );
        }
        let text = format!("{fpr:.3}");
        let row = Row::value(SECTION, format!("{name}: FPR"), above(&benign, limit));
        rows.push(row.published("not printed").remeasured(text).against(fpr, 0.03).note(DRAW));
    }
    Ok(rows)
}

/// Mean and Cholesky factor of the covariance + 1e-4.
struct Gauss {
    mean: Vec<f64>,
    /// Lower triangle, row by row.
    factor: Vec<Vec<f64>>,
}

impl Gauss {
    #[allow(clippy::cast_precision_loss)] // counts
    fn fit(vectors: &[Vector]) -> Self {
        let rows: Vec<Vec<f64>> = vectors.iter().map(unit).collect();
        let d = rows.first().map_or(0, Vec::len);
        let n = rows.len().max(2) as f64;
        let mean: Vec<f64> = (0..d).map(|i| rows.iter().map(|r| r[i]).sum::<f64>() / n).collect();
        let centred: Vec<Vec<f64>> = rows.iter().map(|r| r.iter().zip(&mean).map(|(v, m)| v - m).collect()).collect();
        let mut factor = vec![vec![0.0; d]; d];
        for i in 0..d {
            for j in 0..=i {
                let covariance = centred.iter().map(|r| r[i] * r[j]).sum::<f64>() / (n - 1.0);
                let ridge = if i == j { 1e-4 } else { 0.0 };
                let done: f64 = (0..j).map(|k| factor[i][k] * factor[j][k]).sum();
                let value = covariance + ridge - done;
                factor[i][j] = if i == j { value.max(1e-12).sqrt() } else { value / factor[j][j] };
            }
        }
        Self { mean, factor }
    }

    /// Squared distance to the mean.
    fn distance(&self, v: &Vector) -> f64 {
        let x: Vec<f64> = unit(v).iter().zip(&self.mean).map(|(v, m)| v - m).collect();
        let mut solved: Vec<f64> = Vec::with_capacity(x.len());
        for (i, row) in self.factor.iter().enumerate() {
            let done: f64 = row.iter().zip(&solved).map(|(f, s)| f * s).sum();
            solved.push((x[i] - done) / row[i]);
        }
        solved.iter().map(|s| s * s).sum()
    }
}

fn unit(v: &Vector) -> Vec<f64> {
    v.as_slice().iter().map(|c| f64::from(*c) / 32767.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two independent coordinates with variance 1/3 each: distance^2 = sum x^2 / variance, up to the ridge.
    #[test]
    fn distance_by_hand() {
        let v = |x: f64, y: f64| Vector::from_f64(&[x, y, 1.0]).unwrap();
        let g = Gauss::fit(&[v(0.01, 0.0), v(-0.01, 0.0), v(0.0, 0.01), v(0.0, -0.01)]);
        let (near, far) = (g.distance(&v(0.0, 0.0)), g.distance(&v(0.05, 0.0)));
        assert!(near < 0.01, "{near}");
        // Variance 2e-4 / 3 plus the ridge of 1e-4.
        assert!((far - 0.0025 / (2e-4 / 3.0 + 1e-4)).abs() < 0.2, "{far}");
    }
}
