//! Time as the counts of a counter since an origin. Nothing here touches hardware.
//!
//! Conserved: no reading is before any that was given out earlier, on any CPU. Time that a timer has seen pass has passed: a
//! counter that stood still meanwhile, as a halted machine's counter may, has its origin moved back by as much.

use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// How far the counter may be behind a timer that has come: both were measured, neither exactly.
pub const SLACK_NS: u64 = 1_000_000;

/// A timeline.
#[derive(Debug)]
pub struct Timeline {
    /// The count at which time began. Moves back, never forth; before the counter's own beginning it is negative.
    origin: AtomicI64,
    /// Nanoseconds per count, with 32 binary places; 0 before it begins.
    scale: AtomicU64,
    /// The latest time that was given out.
    latest: AtomicU64,
}

impl Timeline {
    /// One that has not begun: it stands at 0.
    #[must_use]
    pub const fn new() -> Self {
        Self { origin: AtomicI64::new(0), scale: AtomicU64::new(0), latest: AtomicU64::new(0) }
    }

    /// Time begins at this count, with `counts` in `nanos` nanoseconds.
    pub fn begin(&self, count: u64, counts: u64, nanos: u64) {
        self.scale.store(((u128::from(nanos) << 32) / u128::from(counts.max(1))) as u64, Ordering::Relaxed);
        self.origin.store(count.cast_signed(), Ordering::Relaxed);
    }

    /// Whether it has begun, and so moves.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.scale.load(Ordering::Relaxed) != 0
    }

    /// The time at this count, in nanoseconds.
    #[inline]
    #[must_use]
    pub fn at(&self, count: u64) -> u64 {
        // A CPU whose counter is a little behind may ask before the origin.
        let counts =
            count.cast_signed().wrapping_sub(self.origin.load(Ordering::Relaxed)).max(0).cast_unsigned();
        let time = ((u128::from(counts) * u128::from(self.scale.load(Ordering::Relaxed))) >> 32) as u64;
        // As a maximum, but it mostly is one already. Relaxed: the value alone matters, and a maximum is the same in any order.
        let mut latest = self.latest.load(Ordering::Relaxed);
        while latest < time {
            match self.latest.compare_exchange_weak(latest, time, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return time,
                Err(now) => latest = now,
            }
        }
        latest
    }

    /// A timer that was set for `due` has come, at this count. Whether the counter was so far behind that time had to be
    /// moved on to there.
    pub fn timer_came(&self, count: u64, due: u64) -> bool {
        if self.at(count) + SLACK_NS >= due || !self.has_begun() {
            return false;
        }
        let counts = (u128::from(due) << 32).div_ceil(u128::from(self.scale.load(Ordering::Relaxed)));
        // Relaxed: as above. The minimum, so that CPUs which notice the same standstill do not each add it.
        self.origin.fetch_min(count.cast_signed().wrapping_sub(counts as i64), Ordering::Relaxed);
        true
    }
}
