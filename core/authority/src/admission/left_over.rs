//! What work that goes first leaves to the rest.

use super::demand::Task;
use alloc::vec::Vec;
use mainspring_abi::Nanos;

/// The time that `above` leaves to others, from a common release of all of it as often as it may come.
///
/// No other pattern of releases leaves less in any interval that begins with none of that work pending: the work that
/// has arrived is never more than here, and what goes first is served whenever there is some.
pub(super) struct LeftOver<'a> {
    above: &'a [Task],
    releases: Vec<u64>,
    now: u64,
    pending: u64,
    left: u64,
}

impl<'a> LeftOver<'a> {
    pub(super) fn new(above: &'a [Task]) -> Self {
        Self { above, releases: alloc::vec![0; above.len()], now: 0, pending: 0, left: 0 }
    }

    /// The time left in the first `length`; lengths must not fall from one call to the next. `None` when `steps` runs
    /// out.
    pub(super) fn within(&mut self, length: Nanos, steps: &mut u32) -> Option<Nanos> {
        while self.now < length.get() {
            self.release();
            let next = self.releases.iter().copied().min().unwrap_or(u64::MAX).min(length.get());
            let span = next - self.now;
            let work = self.pending.min(span);
            self.pending -= work;
            self.left += span - work;
            self.now = next;
            *steps = steps.checked_sub(1)?;
        }
        Some(Nanos::new(self.left))
    }

    fn release(&mut self) {
        for (task, at) in self.above.iter().zip(&mut self.releases) {
            if *at <= self.now {
                self.pending = self.pending.saturating_add(task.cost.get());
                *at = at.saturating_add(task.period.get());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_the_idle_time_of_the_work_above() {
        let task = |cost, period| Task {
            cost: Nanos::new(cost),
            deadline: Nanos::new(period),
            period: Nanos::new(period),
        };
        let above = [task(2, 5), task(1, 4)];
        let mut left = LeftOver::new(&above);
        let mut steps = 1_000;
        // Busy in [0,3), [4,7) because of 4 and 5, [8,9), [10,12), [12,13).
        let expected = [0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 4];
        for (length, idle) in (1..).zip(expected) {
            assert_eq!(left.within(Nanos::new(length), &mut steps), Some(Nanos::new(idle)), "in {length}");
        }
        assert_eq!(LeftOver::new(&above).within(Nanos::new(100), &mut 3), None, "the steps are bounded");
        assert_eq!(LeftOver::new(&[]).within(Nanos::MAX, &mut 3), Some(Nanos::MAX));
    }
}
