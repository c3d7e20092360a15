//! When the job after an `every` step is released.

use mainspring_abi::Nanos;

/// The next job of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// When it is released.
    pub at: Nanos,
    /// The multiples of the period that have passed since the last job was released and that no job was done by.
    pub missed: u64,
}

/// A thread comes to `every` with `period` at the time `now`; its last job was released at `last`, and its life began at `life`.
/// Jobs are released at multiples of the period since `life`. A multiple that is just now is met, not missed.
#[must_use]
pub fn next_release(life: Nanos, last: Nanos, now: Nanos, period: Nanos) -> Release {
    let period = period.get();
    let begun = (last - life).get() / period;
    let behind = (now - life).get().saturating_sub(1) / period;
    let missed = behind.saturating_sub(begun);
    let at = life + Nanos::new(period.saturating_mul(begun + missed + 1));
    Release { at, missed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(last: u64, now: u64, period: u64) -> (u64, u64) {
        let life = 1_000;
        let ns = |time: u64| Nanos::new(life + time);
        let Release { at, missed } = next_release(Nanos::new(life), ns(last), ns(now), Nanos::new(period));
        (at.get() - life, missed)
    }

    #[test]
    fn multiples_are_met_when_they_come_and_missed_when_they_have_passed() {
        assert_eq!(release(0, 0, 10), (10, 0));
        assert_eq!(release(0, 9, 10), (10, 0));
        assert_eq!(release(0, 10, 10), (10, 0), "met");
        assert_eq!(release(0, 11, 10), (20, 1));
        assert_eq!(release(20, 55, 10), (60, 3));
        assert_eq!(release(20, 20, 10), (30, 0), "before it was released, or as it is");
    }

    #[test]
    fn a_step_with_another_period_goes_on_from_the_time_and_not_from_the_number() {
        assert_eq!(release(400, 401, 5), (405, 0));
        assert_eq!(release(405, 406, 100), (500, 0));
    }
}
