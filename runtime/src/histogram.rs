//! Durations by powers of two: one writer, any number of readers, no lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const BUCKETS: usize = 40;

/// Counts of durations; bucket `i` holds those below 2^i nanoseconds and not below half of that.
#[derive(Debug)]
pub(crate) struct Histogram([AtomicU64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl Histogram {
    pub(crate) fn record(&self, ns: u64) {
        let bucket = (64 - ns.leading_zeros() as usize).min(BUCKETS - 1);
        let counter = &self.0[bucket];
        // One writer: a load and a store are enough.
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// What a histogram held when a snapshot was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    counts: Vec<u64>,
}

impl Durations {
    pub(crate) fn add(&mut self, histogram: &Histogram) {
        self.counts.resize(BUCKETS, 0);
        for (sum, count) in self.counts.iter_mut().zip(&histogram.0) {
            *sum += count.load(Ordering::Relaxed);
        }
    }

    /// How many durations were recorded.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// A duration that at least `share` (0 to 1) of all are below; within a factor of two. `None` if there are none.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let wanted = (self.count() as f64 * share.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.counts
            .iter()
            .position(|count| {
                seen += count;
                seen >= wanted
            })
            .map(|bucket| Duration::from_nanos(1 << bucket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_bound_what_was_recorded() {
        let histogram = Histogram::default();
        for ns in [0, 1, 3, 100, 1000, u64::MAX] {
            histogram.record(ns);
        }
        let mut durations = Durations::default();
        assert_eq!(durations.quantile(0.5), None);
        durations.add(&histogram);
        assert_eq!(durations.count(), 6);
        assert_eq!(durations.quantile(0.5), Some(Duration::from_nanos(4)));
        assert_eq!(durations.quantile(0.8), Some(Duration::from_nanos(1024)));
        assert!(durations.quantile(1.0) > durations.quantile(0.8));
    }
}
