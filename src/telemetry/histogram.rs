//! A histogram of relaxed atomics: an observation is two additions and one compare-and-swap, and many
//! equal observations cost as much as one. The client library's own takes a lock for each.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::counter::Atomic;
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Upper bounds, ascending; the last bucket is open.
pub trait Buckets: std::fmt::Debug + Send + Sync + 'static {
    /// The bounds, in base units.
    const BOUNDS: &'static [f64];
}

/// Counts of observations up to each bound, and their sum.
#[derive(Debug)]
pub struct Histogram<B> {
    inner: Arc<Inner>,
    buckets: PhantomData<B>,
}

#[derive(Debug)]
struct Inner {
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl<B> Clone for Histogram<B> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), buckets: PhantomData }
    }
}

impl<B: Buckets> Default for Histogram<B> {
    fn default() -> Self {
        let counts = (0..=B::BOUNDS.len()).map(|_| AtomicU64::new(0)).collect();
        Self { inner: Arc::new(Inner { counts, sum: AtomicU64::new(0) }), buckets: PhantomData }
    }
}

impl<B: Buckets> Histogram<B> {
    /// One observation.
    pub fn observe(&self, value: f64) {
        let bucket = B::BOUNDS.partition_point(|bound| *bound < value);
        self.inner.counts[bucket].fetch_add(1, Ordering::Relaxed);
        Atomic::<f64>::inc_by(&self.inner.sum, value);
    }

    /// One duration, in seconds.
    pub fn observe_duration(&self, value: Duration) {
        self.observe(value.as_secs_f64());
    }

    /// Observations so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.inner.counts.iter().map(|c| c.load(Ordering::Relaxed)).sum()
    }

    /// Sum of all observations.
    #[must_use]
    pub fn sum(&self) -> f64 {
        Atomic::<f64>::get(&self.inner.sum)
    }
}

impl<B> TypedMetric for Histogram<B> {
    const TYPE: MetricType = MetricType::Histogram;
}

impl<B: Buckets> EncodeMetric for Histogram<B> {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), std::fmt::Error> {
        let bounds = B::BOUNDS.iter().copied().chain([f64::INFINITY]);
        let counts = self.inner.counts.iter().map(|c| c.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let count = buckets.iter().map(|(_, n)| n).sum();
        encoder.encode_histogram::<NoLabelSet>(self.sum(), count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Three;
    impl Buckets for Three {
        const BOUNDS: &'static [f64] = &[1.0, 2.0, 4.0];
    }

    /// A value on a bound belongs to it; what is above all bounds is in the open bucket.
    #[test]
    fn bounds_are_inclusive() {
        let h = Histogram::<Three>::default();
        for value in [0.5, 1.0, 1.5, 4.0, 4.1, 1e9] {
            h.observe(value);
        }
        let counts: Vec<u64> = h.inner.counts.iter().map(|c| c.load(Ordering::Relaxed)).collect();
        assert_eq!(counts, [2, 1, 1, 2]);
        assert_eq!(h.count(), 6);
        assert!((h.sum() - (0.5 + 1.0 + 1.5 + 4.0 + 4.1 + 1e9)).abs() < 1e-3);
    }
}
