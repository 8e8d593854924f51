//! Integer dot products. With norms near 32767 every partial sum fits i32 (Cauchy-Schwarz on any subset
//! of components), so the order of additions can't change the result.

/// Dot products of `candidate` with each row of `rows` (row-major, d columns): the largest.
/// `None` when there are no rows.
#[must_use]
pub(super) fn max_dot(candidate: &[i16], rows: &[i16]) -> Option<i32> {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the feature was just detected.
            #[allow(unsafe_code)]
            return unsafe { max_dot_avx2(candidate, rows) };
        }
    }
    max_dot_portable(candidate, rows)
}

#[inline(always)]
fn max_dot_portable(candidate: &[i16], rows: &[i16]) -> Option<i32> {
    rows.chunks_exact(candidate.len()).map(|row| dot(candidate, row)).max()
}

#[inline(always)]
fn dot(a: &[i16], b: &[i16]) -> i32 {
    a.iter().zip(b).fold(0_i32, |sum, (x, y)| sum.wrapping_add(i32::from(*x).wrapping_mul(i32::from(*y))))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn max_dot_avx2(candidate: &[i16], rows: &[i16]) -> Option<i32> {
    max_dot_portable(candidate, rows)
}

/// Dot product of `candidate` with the component sums of the history.
#[must_use]
pub(super) fn dot_sum(candidate: &[i16], sum: &[i32]) -> i64 {
    candidate.iter().zip(sum).fold(0_i64, |acc, (c, s)| acc.wrapping_add(i64::from(*c).wrapping_mul(i64::from(*s))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unit() -> impl Strategy<Value = Vec<i16>> {
        prop::collection::vec(-1.0_f64..1.0, 64)
            .prop_filter_map("zero", |v| crate::schema::Vector::from_f64(&v).map(|x| x.as_slice().to_vec()))
    }

    proptest! {
        #[test]
        fn dispatched_equals_wide_arithmetic(c in unit(), rows in prop::collection::vec(unit(), 0..9)) {
            let flat: Vec<i16> = rows.concat();
            let exact = rows.iter().map(|r| c.iter().zip(r).map(|(a, b)| i64::from(*a) * i64::from(*b)).sum::<i64>()).max();
            prop_assert_eq!(max_dot(&c, &flat).map(i64::from), exact);
        }
    }
}
