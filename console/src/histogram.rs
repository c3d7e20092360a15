//! Durations of a task as the protocol has them: an HdrHistogram in its V2 format.

use console_api::tasks::DurationHistogram;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2Serializer};
use std::time::Duration;

/// Ten minutes: all that the runtime tells apart is below.
const MOST_NS: u64 = 600_000_000_000;
/// The runtime's own durations are exact to an eighth.
const DIGITS: u8 = 2;

/// `None` if it cannot be written, which its bounds exclude.
pub(crate) fn of(durations: &[(Duration, u64)]) -> Option<DurationHistogram> {
    let mut histogram = Histogram::<u64>::new_with_max(MOST_NS, DIGITS).ok()?;
    for (duration, count) in durations {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        histogram.saturating_record_n(ns, *count);
    }
    let mut raw_histogram = Vec::new();
    V2Serializer::new().serialize(&histogram, &mut raw_histogram).ok()?;
    Some(DurationHistogram { raw_histogram, max_value: MOST_NS, high_outliers: 0, highest_outlier: None })
}
