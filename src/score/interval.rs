//! Clopper-Pearson intervals (`mempot.md` 5.1).

/// Two-sided 95 % interval of `x` out of `n`; (0, 1) for n = 0.
///
/// The bounds solve a binomial tail by bisection in log space; absolute error below 1e-9.
#[must_use]
pub fn clopper_pearson(x: u32, n: u32) -> [f64; 2] {
    if n == 0 {
        return [0.0, 1.0];
    }
    let tail = 0.025;
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
    let mut sum = 0.0;
    for k in x..=n {
        sum += term.exp();
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
    use super::clopper_pearson;

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
}
