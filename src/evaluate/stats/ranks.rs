//! Areas, thresholds and margins by rank.

/// P(poison score > benign score) + half of the ties; `None` when a side is empty.
#[must_use]
#[allow(clippy::cast_precision_loss)] // counts
pub fn auroc(benign: &[f64], poison: &[f64]) -> Option<f64> {
    if benign.is_empty() || poison.is_empty() {
        return None;
    }
    let mut sorted = benign.to_vec();
    sorted.sort_by(f64::total_cmp);
    let beaten: f64 = poison
        .iter()
        .map(|p| {
            let below = sorted.partition_point(|b| b < p);
            let ties = sorted.partition_point(|b| b <= p) - below;
            below as f64 + ties as f64 / 2.0
        })
        .sum();
    Some(beaten / (benign.len() as f64 * poison.len() as f64))
}

/// Mean and standard deviation of the area over `rounds` permutations of the labels: the control that must lie at .5.
#[must_use]
#[allow(clippy::cast_precision_loss)] // counts
pub fn permuted_auroc(
    benign: &[f64],
    poison: &[f64],
    rounds: usize,
    rng: &mut crate::evaluate::Rng,
) -> Option<[f64; 2]> {
    let mut all = [benign, poison].concat();
    let mut areas = Vec::new();
    for _ in 0..rounds {
        rng.shuffle(&mut all);
        areas.push(auroc(&all[..benign.len()], &all[benign.len()..])?);
    }
    let n = areas.len().max(1) as f64;
    let mean = areas.iter().sum::<f64>() / n;
    Some([mean, (areas.iter().map(|a| (a - mean).powi(2)).sum::<f64>() / n).sqrt()])
}

/// The operating point with the most detections whose false positive rate is at most a level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AtFpr {
    /// Flag what is above.
    pub threshold: f64,
    /// Poison above it.
    pub flagged: usize,
    /// Benign above it.
    pub false_alarms: usize,
}

/// TPR at a false positive rate of at most `level`.
#[must_use]
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // counts
pub fn tpr_at_fpr(benign: &[f64], poison: &[f64], level: f64) -> AtFpr {
    let threshold = quantile_above(benign, level);
    let above = |scores: &[f64]| scores.iter().filter(|s| **s > threshold).count();
    AtFpr { threshold, flagged: above(poison), false_alarms: above(benign) }
}

/// The smallest benign score with at most a share `level` of the benign scores above it; minus infinity for none.
#[must_use]
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // counts
pub fn quantile_above(benign: &[f64], level: f64) -> f64 {
    let mut sorted = benign.to_vec();
    sorted.sort_by(|a, b| f64::total_cmp(b, a));
    let allowed = (level * sorted.len() as f64 + 1e-9).floor() as usize;
    sorted.get(allowed).copied().unwrap_or(f64::NEG_INFINITY)
}

/// Separability margin: lowest poison score minus highest benign score. In terms of trust, which is minus the
/// suspicion, it is the benign minimum minus the poison maximum. Above 0 some threshold separates.
#[must_use]
pub fn margin(benign: &[f64], poison: &[f64]) -> Option<f64> {
    let worst = benign.iter().copied().max_by(f64::total_cmp)?;
    let least = poison.iter().copied().min_by(f64::total_cmp)?;
    Some(least - worst)
}

/// The curve as (false positive rate, detection rate), from (0, 0) to (1, 1); one corner for each different score.
#[must_use]
#[allow(clippy::cast_precision_loss)] // counts
pub fn roc(benign: &[f64], poison: &[f64]) -> Vec<[f64; 2]> {
    let mut all: Vec<(f64, bool)> =
        benign.iter().map(|s| (*s, false)).chain(poison.iter().map(|s| (*s, true))).collect();
    all.sort_by(|a, b| f64::total_cmp(&b.0, &a.0));
    let (nb, np) = (benign.len().max(1) as f64, poison.len().max(1) as f64);
    let (mut b, mut p) = (0_u32, 0_u32);
    let mut curve = vec![[0.0, 0.0]];
    for (i, (score, is_poison)) in all.iter().enumerate() {
        if *is_poison {
            p += 1
        } else {
            b += 1
        }
        if all.get(i + 1).is_none_or(|next| next.0 < *score) {
            curve.push([f64::from(b) / nb, f64::from(p) / np]);
        }
    }
    curve
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The four-point example of scikit-learn's `roc_auc_score`: labels 0 0 1 1, scores .1 .4 .35 .8, area .75.
    #[test]
    fn areas_by_hand() {
        assert_eq!(auroc(&[0.1, 0.4], &[0.35, 0.8]), Some(0.75));
        assert_eq!(auroc(&[1.0, 2.0], &[1.0, 2.0]), Some(0.5));
        assert_eq!(auroc(&[1.0, 1.0], &[1.0]), Some(0.5));
        assert_eq!(auroc(&[0.0], &[1.0]), Some(1.0));
        assert_eq!(auroc(&[], &[1.0]), None);
    }

    #[test]
    fn thresholds_and_margins_by_hand() {
        let benign: Vec<f64> = (1..=100).map(f64::from).collect();
        let at = tpr_at_fpr(&benign, &[99.5, 98.0, 200.0], 0.01);
        assert_eq!((at.threshold, at.flagged, at.false_alarms), (99.0, 2, 1));
        assert_eq!(tpr_at_fpr(&benign, &[100.0, 101.0], 0.0).flagged, 1);
        assert_eq!(margin(&[0.1, 0.4], &[0.35, 0.8]), Some(0.35 - 0.4));
        assert_eq!(margin(&[0.1], &[0.3]), Some(0.3 - 0.1));
        assert_eq!(margin(&[], &[0.3]), None);
    }

    #[test]
    fn permuted_labels_lie_at_a_half() {
        let benign: Vec<f64> = (0..60).map(f64::from).collect();
        let poison: Vec<f64> = (50..90).map(f64::from).collect();
        assert!(auroc(&benign, &poison).unwrap() > 0.9);
        let [mean, sd] = permuted_auroc(&benign, &poison, 200, &mut crate::evaluate::Rng::new(1, "p")).unwrap();
        assert!((mean - 0.5).abs() < 0.02 && sd < 0.1, "{mean} {sd}");
    }

    proptest! {
        /// The area under the curve's trapezoids is the area by ranks.
        #[test]
        fn the_curve_has_the_area(
            benign in prop::collection::vec(0_u8..20, 1..30),
            poison in prop::collection::vec(0_u8..20, 1..30),
        ) {
            let wide = |v: &[u8]| v.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
            let (b, p) = (wide(&benign), wide(&poison));
            let curve = roc(&b, &p);
            let area: f64 = curve.windows(2).map(|w| (w[1][0] - w[0][0]) * f64::midpoint(w[0][1], w[1][1])).sum();
            prop_assert!((area - auroc(&b, &p).unwrap()).abs() < 1e-9);
            prop_assert_eq!(*curve.last().unwrap(), [1.0, 1.0]);
        }
    }
}
