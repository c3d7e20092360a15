//! Durations of one task by size, each power of two in four parts: one writer at a time, any number of readers, no lock.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A power of two has so many buckets, as a power of two.
const PARTS_LOG2: u32 = 2;
const PARTS: usize = 1 << PARTS_LOG2;
/// The last power of two that is told apart: 2^38 ns are four and a half minutes.
const LAST: u32 = 38;
const BUCKETS: usize = (LAST as usize - PARTS_LOG2 as usize + 2) * PARTS;

/// How often a duration of about that size was seen.
#[derive(Debug)]
pub(super) struct Buckets([AtomicU32; BUCKETS]);

impl Default for Buckets {
    fn default() -> Self {
        Self([const { AtomicU32::new(0) }; BUCKETS])
    }
}

impl Buckets {
    /// Counts one.
    pub(super) fn record(&self, ns: u64) {
        let counter = &self.0[index(ns)];
        // One writer at a time: a load and a store are enough.
        counter.store(counter.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
    }

    /// The middle of each bucket that has any, and how many.
    pub(super) fn counts(&self) -> Vec<(Duration, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        counts
            .enumerate()
            .filter(|(_, count)| *count > 0)
            .map(|(index, count)| (Duration::from_nanos(middle(index)), count.into()))
            .collect()
    }
}

fn index(ns: u64) -> usize {
    if ns < PARTS as u64 {
        return ns as usize;
    }
    let power = ns.ilog2();
    if power > LAST {
        return BUCKETS - 1;
    }
    let part = (ns >> (power - PARTS_LOG2)) as usize % PARTS;
    (power - PARTS_LOG2 + 1) as usize * PARTS + part
}

fn middle(index: usize) -> u64 {
    if index < PARTS {
        return index as u64;
    }
    let shift = index / PARTS - 1;
    let least = ((PARTS + index % PARTS) as u64) << shift;
    least + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_bucket_is_within_an_eighth_of_what_was_recorded() {
        let mut seed = 1_u64;
        for _ in 0..100_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let ns = (seed >> (63 - LAST)) >> (seed % 40);
            let said = middle(index(ns));
            assert!(said.abs_diff(ns) * 8 <= ns, "{ns} is said to be {said}");
        }
    }

    #[test]
    fn buckets_are_in_order_and_the_last_takes_all_that_is_longer() {
        let all: Vec<u64> = (0..BUCKETS).map(middle).collect();
        assert!(all.is_sorted_by(|a, b| a < b));
        assert!(all.iter().enumerate().all(|(at, &ns)| index(ns) == at));
        assert_eq!(index(u64::MAX), BUCKETS - 1);
        let buckets = Buckets::default();
        [0, 1_000, 1_001, u64::MAX].into_iter().for_each(|ns| buckets.record(ns));
        assert_eq!(buckets.counts().iter().map(|(_, count)| *count).collect::<Vec<_>>(), [1, 2, 1]);
    }
}
