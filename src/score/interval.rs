//! Clopper-Pearson intervals (`mempot.md` 5.1).

/// Two-sided 95 % interval of `x` out of `n`; (0, 1) for n = 0.
///
/// The bounds solve a binomial tail by bisection in log space; absolute error below 1e-9.
#[must_use]
pub fn clopper_pearson(x: u32, n: u32) -> [f64; 2] {
    clopper_pearson_at(0.025, x, n)
}

/// The interval that misses the truth by at most `tail` on each side.
#[must_use]
pub fn clopper_pearson_at(tail: f64, x: u32, n: u32) -> [f64; 2] {
    if n == 0 {
        return [0.0, 1.0];
    }
    let low = if x == 0 { 0.0 } else { bisect(|p| upper_tail(x, n, p) < tail) };
    let high = if x == n { 1.0 } else { bisect(|p| 1.0 - upper_tail(x + 1, n, p) > tail) };
    [low, high]
}

/// Largest p in [0, 1] for which `below` holds.
fn bisect(below: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if below(middle) { low = middle } else { high = middle }
    }
    low
}

/// P(X >= x) for X ~ Binomial(n, p).
fn upper_tail(x: u32, n: u32, p: f64) -> f64 {
    if p <= 0.0 {
        return if x == 0 { 1.0 } else { 0.0 };
    }
    if p >= 1.0 {
        return 1.0;
    }
    let mut term = log_choose(n, x) + f64::from(x) * p.ln() + f64::from(n - x) * (-p).ln_1p();
    let ratio = p.ln() - (-p).ln_1p();
    let mean = f64::from(n) * p;
    let mut sum = 0.0;
    for k in x..=n {
        let with = sum + term.exp();
        // Behind the mean terms only get smaller: what no longer adds anything never will.
        if with == sum && f64::from(k) > mean {
            break;
        }
        sum = with;
        if k < n {
            term += (f64::from(n - k) / f64::from(k + 1)).ln() + ratio;
        }
    }
    sum.min(1.0)
}

fn log_choose(n: u32, k: u32) -> f64 {
    (1..=k.min(n - k)).map(|i| (f64::from(n - k.min(n - k) + i) / f64::from(i)).ln()).sum()
}

#[cfg(test)]
mod tests {
    use super::{clopper_pearson, clopper_pearson_at};

    /// Values of `mempot.md` 5.1.
    #[test]
    fn golden_intervals() {
        for (x, n, low, high) in [
            (0, 100, 0.0, 0.03622),
            (0, 750, 0.0, 0.00491),
            (5, 750, 0.00217, 0.01549),
            (11, 750, 0.00734, 0.02609),
            (3, 100, 0.00623, 0.08518),
            (55, 60, 0.81614, 0.97239),
            (60, 60, 0.94037, 1.0),
            (12, 60, 0.10784, 0.32330),
        ] {
            let [l, h] = clopper_pearson(x, n);
            assert!((l - low).abs() < 1e-5 && (h - high).abs() < 1e-5, "{x}/{n}: {l} {h}");
        }
    }

    /// For no hit and for all the bounds have closed forms; a wider interval holds a narrower one, and a large sample
    /// takes no time.
    #[test]
    fn levels_and_large_samples() {
        for (tail, n) in [(0.025_f64, 50_u32), (0.005, 500), (0.005, 65_536)] {
            let edge = tail.powf(1.0 / f64::from(n));
            let ([none, high], [low, all]) = (clopper_pearson_at(tail, 0, n), clopper_pearson_at(tail, n, n));
            assert!(none == 0.0 && (high - (1.0 - edge)).abs() < 1e-9, "{tail} {n}: {high}");
            assert!(all == 1.0 && (low - edge).abs() < 1e-9, "{tail} {n}: {low}");
        }
        let ([low, high], [wide, wider]) = (clopper_pearson(40, 500), clopper_pearson_at(0.005, 40, 500));
        assert!(wide < low && high < wider);
    }
}
