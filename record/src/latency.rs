//! Wake latencies of one thread: a histogram, filled in batches. A machine may have a hundred thousand threads. Most
//! wake now and then, and touching a histogram at each wakeup would cost more than the wakeup.

use hdrhistogram::Histogram;
use mainspring_abi::Nanos;
use mainspring_report::WakeLatency;

/// Up to this many samples are kept as they are, and the quantiles are exact.
const FEW: usize = 2_048;

/// How many samples go into the histogram at a time: enough to be worth fetching it.
const BATCH: usize = 256;

/// Two significant digits: a quantile is exact to one percent.
const DIGITS: u8 = 2;

/// The wake latencies of one thread. One cache line, which is all that noting a latency fetches besides the place it goes to.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Latencies {
    /// Not in the histogram yet. While there is none, these are all the samples. Four seconds are enough for nearly all of
    /// them, and half the memory is half the time to get it.
    batch: Vec<u32>,
    histogram: Option<Box<Histogram<u32>>>,
    max: u64,
}

impl Latencies {
    /// Notes one.
    pub fn record(&mut self, latency: Nanos) {
        self.max = self.max.max(latency.get());
        let Ok(short) = u32::try_from(latency.get()) else { return self.file(Some(latency)) };
        self.batch.push(short);
        let most = if self.histogram.is_some() { BATCH } else { FEW };
        if self.batch.len() == most {
            self.file(None);
        }
    }

    /// Puts the batch into the histogram, and one that is too long for it.
    #[cold]
    fn file(&mut self, long: Option<Nanos>) {
        if self.histogram.is_none() {
            // Only an invalid number of digits is refused.
            self.histogram = Histogram::new(DIGITS).ok().map(Box::new);
        }
        if let Some(histogram) = &mut self.histogram {
            for latency in self.batch.drain(..).map(u64::from).chain(long.map(Nanos::get)) {
                // The histogram grows as needed; only a counter that is full is left as it is.
                let _ = histogram.record(latency);
            }
        }
    }

    /// The quantiles of all that were noted.
    pub fn summary(&mut self) -> WakeLatency {
        if self.histogram.is_some() {
            self.file(None);
        }
        let (p50, p99) = match &self.histogram {
            Some(histogram) => (histogram.value_at_quantile(0.5), histogram.value_at_quantile(0.99)),
            None => self.exact_quantiles(),
        };
        WakeLatency { p50: p50.min(self.max), p99: p99.min(self.max), max: self.max }
    }

    /// The median and the 99th percentile of the samples that are kept as they are.
    fn exact_quantiles(&mut self) -> (u64, u64) {
        let place = |percent: usize| (self.batch.len() * percent).div_ceil(100).saturating_sub(1);
        let (median, high) = (place(50), place(99));
        if self.batch.is_empty() {
            return (0, 0);
        }
        // What is above the median is all that has to be searched for the other.
        let (_, &mut p50, above) = self.batch.select_nth_unstable(median);
        let p99 = if high == median { p50 } else { *above.select_nth_unstable(high - median - 1).1 };
        (p50.into(), p99.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_agree_with_the_sorted_samples_for_few_and_for_many() {
        let counts = [1u64, 10, 99, 100, 2_047, 2_048, 2_049, 2_304, 2_305, 5_000];
        // The greater ones are partly too long for a batch.
        for (count, scale) in counts.into_iter().flat_map(|count| [(count, 1), (count, 10_000)]) {
            let mut latencies = Latencies::default();
            let mut samples: Vec<u64> = (0..count).map(|n| n * n * 7_919 % 1_000_003 * scale).collect();
            for sample in &samples {
                latencies.record(Nanos::new(*sample));
            }
            samples.sort_unstable();
            let rank = |percent: u64| samples[((count * percent).div_ceil(100).max(1) - 1) as usize];
            let summary = latencies.summary();
            assert_eq!(summary.max, *samples.last().expect("there are samples"));
            for (told, exact) in [(summary.p50, rank(50)), (summary.p99, rank(99))] {
                assert!(told.abs_diff(exact) <= exact / 100 + 1, "{count}: {told} is not {exact}");
            }
        }
    }
}
