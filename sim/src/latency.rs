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
            histogram.saturating_record(latency);
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
            histogram.saturating_record(latency);
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
