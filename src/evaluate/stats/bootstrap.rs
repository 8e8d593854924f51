//! Block bootstrap: whole templates are drawn, so that a hundred fillings of one wording count as one idea.

use std::collections::BTreeMap;

use super::Estimate;
use crate::evaluate::Rng;

/// Scores with the template that each text was made from.
#[derive(Debug, Clone, Default)]
pub struct Group {
    scores: Vec<f64>,
    /// Template number of each score.
    templates: Vec<usize>,
    count: usize,
}

impl Group {
    /// From scores and template names.
    #[must_use]
    pub fn new<'a>(scores: &[f64], templates: impl IntoIterator<Item = &'a str>) -> Self {
        let mut names = BTreeMap::new();
        let templates: Vec<usize> = templates
            .into_iter()
            .map(|t| {
                let next = names.len();
                *names.entry(t.to_owned()).or_insert(next)
            })
            .collect();
        Self { scores: scores.to_vec(), templates, count: names.len() }
    }

    /// Number of templates.
    #[must_use]
    pub fn templates(&self) -> usize {
        self.count
    }

    /// How often each template is drawn in one resample.
    fn draw(&self, rng: &mut Rng) -> Vec<u32> {
        let mut weights = vec![0; self.count];
        for _ in 0..self.count {
            weights[rng.below(self.count)] += 1;
        }
        weights
    }
}

/// How many resamples, from which sequence.
#[derive(Debug, Clone)]
pub struct Bootstrap {
    /// Number of resamples.
    pub resamples: usize,
    /// Seed of the evaluation.
    pub seed: u64,
}

impl Bootstrap {
    /// The area with its percentile interval; `None` when a side is empty.
    #[must_use]
    pub fn auroc(&self, benign: &Group, poison: &Group) -> Option<Estimate> {
        let value = super::auroc(&benign.scores, &poison.scores)?;
        let mut order: Vec<(f64, bool, usize)> = benign
            .scores
            .iter()
            .zip(&benign.templates)
            .map(|(s, t)| (*s, false, *t))
            .chain(poison.scores.iter().zip(&poison.templates).map(|(s, t)| (*s, true, *t)))
            .collect();
        order.sort_by(|a, b| f64::total_cmp(&a.0, &b.0));
        let mut rng = Rng::new(self.seed, "bootstrap auroc");
        let values = (0..self.resamples)
            .filter_map(|_| weighted_area(&order, &benign.draw(&mut rng), &poison.draw(&mut rng)))
            .collect();
        Some(Estimate { value, interval: percentiles(values, value) })
    }

    /// The share of scores above a threshold; `None` for an empty group.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // counts
    pub fn share_above(&self, group: &Group, threshold: f64) -> Option<Estimate> {
        if group.scores.is_empty() {
            return None;
        }
        let share = |weights: &[u32]| {
            let (mut above, mut all) = (0_u64, 0_u64);
            for (score, template) in group.scores.iter().zip(&group.templates) {
                let weight = u64::from(weights[*template]);
                all += weight;
                above += if *score > threshold { weight } else { 0 };
            }
            above as f64 / all.max(1) as f64
        };
        let value = share(&vec![1; group.count]);
        let mut rng = Rng::new(self.seed, "bootstrap share");
        let values = (0..self.resamples).map(|_| share(&group.draw(&mut rng))).collect();
        Some(Estimate { value, interval: percentiles(values, value) })
    }
}

/// Area with each text counted as often as its template was drawn; `order` is by score.
#[allow(clippy::cast_precision_loss)] // counts
fn weighted_area(order: &[(f64, bool, usize)], benign: &[u32], poison: &[u32]) -> Option<f64> {
    let (mut below, mut all_poison, mut area) = (0.0, 0.0, 0.0);
    let mut at = 0;
    while at < order.len() {
        let score = order[at].0;
        let (mut ties, mut here) = (0.0, 0.0);
        while at < order.len() && order[at].0 <= score {
            let (_, is_poison, template) = order[at];
            if is_poison {
                here += f64::from(poison[template])
            } else {
                ties += f64::from(benign[template])
            }
            at += 1;
        }
        area += here * (below + ties / 2.0);
        below += ties;
        all_poison += here;
    }
    (below > 0.0 && all_poison > 0.0).then(|| area / (below * all_poison))
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // indexes
fn percentiles(mut values: Vec<f64>, fallback: f64) -> [f64; 2] {
    if values.is_empty() {
        return [fallback, fallback];
    }
    values.sort_by(f64::total_cmp);
    let at = |q: f64| values[((values.len() - 1) as f64 * q).round() as usize];
    [at(0.025), at(0.975)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: Bootstrap = Bootstrap { resamples: 400, seed: 5 };

    #[test]
    fn one_template_has_no_spread_and_many_have() {
        let scores: Vec<f64> = (0..100).map(|i| f64::from(i % 2)).collect();
        let one = B.share_above(&Group::new(&scores, std::iter::repeat_n("t", 100)), 0.5).unwrap();
        assert_eq!((one.value, one.interval), (0.5, [0.5, 0.5]));
        let names: Vec<String> = (0..100).map(|i| format!("t{i}")).collect();
        let many = B.share_above(&Group::new(&scores, names.iter().map(String::as_str)), 0.5).unwrap();
        // Binomial(100, .5): standard deviation .05.
        assert!((many.interval[0] - 0.4).abs() < 0.03 && (many.interval[1] - 0.6).abs() < 0.03, "{many:?}");
    }

    #[test]
    fn a_block_of_copies_is_wider_than_as_many_texts() {
        let scores: Vec<f64> = (0..100).map(|i| f64::from(i / 50)).collect();
        let width = |names: Vec<String>| {
            let e = B.share_above(&Group::new(&scores, names.iter().map(String::as_str)), 0.5).unwrap();
            e.interval[1] - e.interval[0]
        };
        let texts = width((0..100).map(|i| format!("t{i}")).collect());
        let blocks = width((0..100).map(|i| format!("t{}", i / 10)).collect());
        assert!(blocks > 2.0 * texts, "{blocks} {texts}");
    }

    #[test]
    fn areas_repeat_and_cover() {
        let benign: Vec<f64> = (0..40).map(f64::from).collect();
        let poison: Vec<f64> = (20..60).map(f64::from).collect();
        let names: Vec<String> = (0..40).map(|i| format!("t{i}")).collect();
        let group = |s: &[f64]| Group::new(s, names.iter().map(String::as_str));
        let e = B.auroc(&group(&benign), &group(&poison)).unwrap();
        assert_eq!(Some(e.value), crate::evaluate::stats::auroc(&benign, &poison));
        assert!(e.interval[0] < e.value && e.value < e.interval[1]);
        assert_eq!(B.auroc(&group(&benign), &group(&poison)), Some(e));
        assert_eq!(group(&benign).templates(), 40);
    }
}
