//! Exact tests and their correction for many cells.

/// ln k! for k = 0..=n.
fn log_factorials(n: usize) -> Vec<f64> {
    let mut logs = vec![0.0; n + 1];
    for k in 1..=n {
        #[allow(clippy::cast_precision_loss)] // counts
        let log = (k as f64).ln();
        logs[k] = logs[k - 1] + log;
    }
    logs
}

/// Fisher's exact test, one sided: P(at least `x1` hits in the first group | margins), for x1 of n1 against x2 of n2.
#[must_use]
pub fn fisher_greater(x1: u32, n1: u32, x2: u32, n2: u32) -> f64 {
    let [x1, n1, x2, n2] = [x1, n1, x2, n2].map(|v| v as usize);
    let (hits, all) = (x1 + x2, n1 + n2);
    let log = log_factorials(all);
    let choose = |n: usize, k: usize| log[n] - log[k] - log[n - k];
    let total = choose(all, hits);
    let p: f64 = (x1..=n1.min(hits))
        .filter(|k| hits - k <= n2)
        .map(|k| (choose(n1, k) + choose(n2, hits - k) - total).exp())
        .sum();
    p.min(1.0)
}

/// McNemar's exact test, two sided, for `only_first` and `only_second` discordant pairs.
#[must_use]
pub fn mcnemar(only_first: u32, only_second: u32) -> f64 {
    let (low, n) = (only_first.min(only_second) as usize, (only_first + only_second) as usize);
    if n == 0 {
        return 1.0;
    }
    let log = log_factorials(n);
    #[allow(clippy::cast_precision_loss)] // counts
    let all = n as f64 * std::f64::consts::LN_2;
    let tail: f64 = (0..=low).map(|k| (log[n] - log[k] - log[n - k] - all).exp()).sum();
    (2.0 * tail).min(1.0)
}

/// A p-value corrected for `tests` tests.
#[must_use]
#[allow(clippy::cast_precision_loss)] // counts
pub fn bonferroni(p: f64, tests: usize) -> f64 {
    (p * tests.max(1) as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fisher's tea tasting (3 of 4 against 1 of 4: 17/70), and R's `fisher.test(..., alternative = "greater")`
    /// on 10 of 12 against 1 of 12.
    #[test]
    fn fisher_by_hand() {
        assert!((fisher_greater(3, 4, 1, 4) - 17.0 / 70.0).abs() < 1e-12);
        assert!((fisher_greater(4, 4, 0, 4) - 1.0 / 70.0).abs() < 1e-12);
        assert!((fisher_greater(0, 4, 4, 4) - 1.0).abs() < 1e-12);
        // (C(12,10) C(12,1) + C(12,11) C(12,0)) / C(24,11) = (66 * 12 + 12) / 2496144
        assert!((fisher_greater(10, 12, 1, 12) - 804.0 / 2_496_144.0).abs() < 1e-12);
        assert!((fisher_greater(0, 0, 3, 9) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn mcnemar_by_hand() {
        // 2 * (1 + 6) / 2^6
        assert!((mcnemar(1, 5) - 14.0 / 64.0).abs() < 1e-12);
        assert!((mcnemar(5, 1) - 14.0 / 64.0).abs() < 1e-12);
        assert!((mcnemar(0, 10) - 2.0 / 1024.0).abs() < 1e-12);
        assert!((mcnemar(3, 3) - 1.0).abs() < 1e-12 && (mcnemar(0, 0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn bonferroni_is_capped() {
        assert!((bonferroni(0.01, 3) - 0.03).abs() < 1e-12);
        assert!((bonferroni(0.5, 3) - 1.0).abs() < 1e-12);
    }
}
