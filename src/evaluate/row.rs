//! A measured number with what it is to be read against.

use serde::{Deserialize, Serialize};

use super::stats::Rate;

/// A line of a preset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Table that it belongs to.
    pub section: String,
    /// What was measured.
    pub name: String,
    /// The number.
    pub value: f64,
    /// Counts, where it is a rate.
    pub rate: Option<Rate>,
    /// Range over repetitions, where it is a mean.
    pub range: Option<[f64; 2]>,
    /// Value in the paper or study.
    pub published: Option<String>,
    /// Value of an earlier re-measurement.
    pub remeasured: Option<String>,
    /// Whether the reference lies within the interval or tolerance.
    pub agrees: Option<bool>,
    /// Why it differs, or what to know.
    pub note: String,
}

impl Row {
    /// A number.
    #[must_use]
    pub fn value(section: &str, name: impl Into<String>, value: f64) -> Self {
        Self {
            section: section.to_owned(),
            name: name.into(),
            value,
            rate: None,
            range: None,
            published: None,
            remeasured: None,
            agrees: None,
            note: String::new(),
        }
    }

    /// A rate.
    #[must_use]
    pub fn rate(section: &str, name: impl Into<String>, rate: Rate) -> Self {
        Self { rate: Some(rate), ..Self::value(section, name, rate.value()) }
    }

    /// A mean over repetitions with their lowest and highest value.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // counts
    pub fn mean(section: &str, name: impl Into<String>, values: &[f64]) -> Self {
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { range: Some([low, high]), ..Self::value(section, name, mean) }
    }

    /// With the paper's value.
    #[must_use]
    pub fn published(mut self, value: impl Into<String>) -> Self {
        self.published = Some(value.into());
        self
    }

    /// With the value of an earlier re-measurement.
    #[must_use]
    pub fn remeasured(mut self, value: impl Into<String>) -> Self {
        self.remeasured = Some(value.into());
        self
    }

    /// Held against a number: it agrees within the rate's interval, the repetitions' range or a tolerance.
    #[must_use]
    pub fn against(mut self, value: f64, tolerance: f64) -> Self {
        let near = (self.value - value).abs() <= tolerance;
        let within = |i: [f64; 2]| (i[0] - 1e-9..=i[1] + 1e-9).contains(&value);
        self.agrees = Some(near || self.rate.is_some_and(|r| within(r.interval)) || self.range.is_some_and(within));
        self
    }

    /// With a remark.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agreement_is_by_interval_range_or_tolerance() {
        let rate = Row::rate("s", "r", Rate::new(5, 100));
        assert_eq!(rate.clone().against(0.09, 0.0).agrees, Some(true));
        assert_eq!(rate.against(0.2, 0.0).agrees, Some(false));
        assert_eq!(Row::mean("s", "m", &[0.1, 0.3]).against(0.3, 0.0).agrees, Some(true));
        assert_eq!(Row::value("s", "v", 0.5).against(0.52, 0.03).agrees, Some(true));
        assert_eq!(Row::value("s", "v", 0.5).against(0.52, 0.01).agrees, Some(false));
    }
}
