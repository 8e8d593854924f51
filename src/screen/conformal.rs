//! The p-value of a write among trusted rows: full conformal, by the harmonic mean of rank p-values
//! (`hardened.md` 6.7). Exact under exchangeability.

/// P, C, B and D of a write, each in millionths.
pub type Row = [u64; 4];

/// Rows from which a p-value says something at level .05.
pub const LEAST: usize = 19;
/// Rows kept at most.
pub const MOST: usize = 2000;
/// Ties of sums of fractions, as in the study.
const TIE: f64 = 1e-9;

/// `count` of `of` pooled rows are at least as unusual: p = count / of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rank {
    /// At least as unusual, the write itself included.
    pub count: u32,
    /// Rows, the write itself included.
    pub of: u32,
}

impl Rank {
    /// p <= .05.
    #[must_use]
    pub fn is_rare(self) -> bool {
        u64::from(self.count) * 20 <= u64::from(self.of)
    }
}

/// Trusted rows, ready to rank a write against.
#[derive(Debug, Clone, Default)]
pub struct Conformal {
    rows: Vec<Row>,
    /// Each signal ascending.
    columns: [Vec<u64>; 4],
    /// For each row and signal: rows that are at least as high.
    at_least: Vec<[u32; 4]>,
}

impl Conformal {
    /// From rows; the first [`MOST`] count.
    #[must_use]
    pub fn new(mut rows: Vec<Row>) -> Self {
        rows.truncate(MOST);
        let mut columns: [Vec<u64>; 4] = std::array::from_fn(|s| rows.iter().map(|r| r[s]).collect());
        columns.iter_mut().for_each(|c| c.sort_unstable());
        let at_least = rows.iter().map(|r| std::array::from_fn(|s| count(&columns[s], r[s]))).collect();
        Self { rows, columns, at_least }
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Pooled rows, `x` included, that are at least as high in each signal.
    #[must_use]
    pub fn signals(&self, x: &Row) -> [u32; 4] {
        std::array::from_fn(|s| count(&self.columns[s], x[s]) + 1)
    }

    /// T of `x`: the mean of 1 / p over the signals.
    #[must_use]
    pub fn harmonic(&self, x: &Row) -> f64 {
        self.t(&self.signals(x))
    }

    /// Ranks `x` among the rows.
    #[must_use]
    pub fn rank(&self, x: &Row) -> Rank {
        let own = self.harmonic(x);
        let above = |(row, counts): (&Row, &[u32; 4])| {
            let pooled: [u32; 4] = std::array::from_fn(|s| counts[s] + u32::from(x[s] >= row[s]));
            self.t(&pooled) >= own - TIE
        };
        let count = self.rows.iter().zip(&self.at_least).filter(|pair| above(*pair)).count();
        Rank { count: size(count + 1), of: size(self.rows.len() + 1) }
    }

    fn t(&self, counts: &[u32; 4]) -> f64 {
        let n = f64::from(size(self.rows.len() + 1));
        counts.iter().map(|c| n / f64::from(*c)).sum::<f64>() / 4.0
    }
}

fn count(ascending: &[u64], from: u64) -> u32 {
    size(ascending.len() - ascending.partition_point(|v| *v < from))
}

fn size(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As the formula says, without anything kept.
    fn plain(rows: &[Row], x: &Row) -> Rank {
        let pooled: Vec<Row> = rows.iter().chain([x]).copied().collect();
        let n = pooled.len() as f64;
        let t = |r: &Row| -> f64 {
            (0..4).map(|s| n / pooled.iter().filter(|o| o[s] >= r[s]).count() as f64).sum::<f64>() / 4.0
        };
        let own = t(x);
        Rank { count: size(pooled.iter().filter(|r| t(r) >= own - TIE).count()), of: size(pooled.len()) }
    }

    fn row() -> impl Strategy<Value = Row> {
        [0..5_u64, 0..5_u64, 0..3_u64, 0..3_u64].prop_map(|r| r.map(|v| v * 500_000))
    }

    proptest! {
        #[test]
        fn kept_counts_give_the_formula(rows in prop::collection::vec(row(), 0..60), x in row()) {
            prop_assert_eq!(Conformal::new(rows.clone()).rank(&x), plain(&rows, &x));
        }

        /// `hardened.md` 8.6: a further row that is at least as high never lowers p, where each row has one signal
        /// above 0 as nearly all have. It doesn't hold for any rows: a row that is extreme in one signal alone
        /// loses more of its 1 / p to the new row than one that is high in three.
        #[test]
        fn higher_rows_never_lower_p(
            rows in prop::collection::vec((0..4_usize, 0..6_u64), 0..60),
            (signal, x) in (0..4_usize, 0..6_u64),
            more in 0..3_u64,
        ) {
            let alone = |(signal, value): (usize, u64)| {
                let mut row = [0; 4];
                row[signal] = value;
                row
            };
            let mut rows: Vec<Row> = rows.into_iter().map(alone).collect();
            let x = alone((signal, x));
            let before = Conformal::new(rows.clone()).rank(&x);
            rows.push(alone((signal, x[signal] + more)));
            let after = Conformal::new(rows).rank(&x);
            prop_assert!(
                u64::from(after.count) * u64::from(before.of) >= u64::from(before.count) * u64::from(after.of),
                "{:?} {:?}", before, after
            );
        }

        /// Exchangeable rows: the share with p <= a is at most a, for any a. Exact over all rotations.
        #[test]
        fn p_is_valid_over_all_choices_of_the_write(rows in prop::collection::vec(row(), 2..40)) {
            let n = rows.len();
            let mut ranks: Vec<u32> = (0..n).map(|i| {
                let rest = rows.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, r)| *r).collect();
                Conformal::new(rest).rank(&rows[i]).count
            }).collect();
            ranks.sort_unstable();
            for (i, r) in ranks.iter().enumerate() {
                prop_assert!(*r as usize > i);
            }
        }
    }

    #[test]
    fn rare_is_one_in_twenty() {
        assert!(Rank { count: 1, of: 20 }.is_rare() && !Rank { count: 1, of: 19 }.is_rare());
        assert!(!Rank { count: 2, of: 39 }.is_rare());
        assert_eq!(Conformal::default().rank(&[0; 4]), Rank { count: 1, of: 1 });
    }
}
