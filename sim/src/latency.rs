//! Wake latencies of one thread: every sample while there are few, a histogram once there are many. A machine may
//! have a hundred thousand threads, most of which wake now and then.

use hdrhistogram::Histogram;
use mainspring_abi::Nanos;
use mainspring_report::WakeLatency;

const FEW: usize = 64;

/// Two significant digits: a quantile is exact to one percent.
const DIGITS: u8 = 2;

#[derive(Debug, Default)]
pub(crate) struct Latencies {
    few: Vec<u64>,
    many: Option<Histogram<u32>>,
    max: u64,
}

impl Latencies {
    pub(crate) fn record(&mut self, latency: Nanos) {
        let latency = latency.get();
        self.max = self.max.max(latency);
        if let Some(histogram) = &mut self.many {
            // The histogram grows as needed; only a counter that is full is left as it is.
            let _ = histogram.record(latency);
        } else {
            self.few.push(latency);
            if self.few.len() == FEW {
                self.spill();
            }
        }
    }

    fn spill(&mut self) {
        // Only an invalid number of digits is refused.
        let Ok(mut histogram) = Histogram::new(DIGITS) else { return };
        for latency in self.few.drain(..) {
            let _ = histogram.record(latency);
        }
        self.few = Vec::new();
        self.many = Some(histogram);
    }

    pub(crate) fn summary(&mut self) -> WakeLatency {
        let (p50, p99) = match &self.many {
            Some(histogram) => (histogram.value_at_quantile(0.5), histogram.value_at_quantile(0.99)),
            None => {
                self.few.sort_unstable();
                (self.rank(50), self.rank(99))
            }
        };
        WakeLatency { p50: p50.min(self.max), p99: p99.min(self.max), max: self.max }
    }

    fn rank(&self, percent: usize) -> u64 {
        let rank = (self.few.len() * percent).div_ceil(100).max(1);
        self.few.get(rank - 1).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_agree_with_the_sorted_samples_for_few_and_for_many() {
        for count in [1u64, 10, 63, 64, 65, 5_000] {
            let mut latencies = Latencies::default();
            let mut samples: Vec<u64> = (0..count).map(|n| n * n * 7_919 % 1_000_003).collect();
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
