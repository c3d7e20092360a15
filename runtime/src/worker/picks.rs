//! How soon a worker looks up, and whether its line may go round meanwhile without a look at anything else.
//!
//! Conserved: while the line goes round, nothing else waits on the worker. Whatever is put there says so by
//! [`PicksLeft::disturb`], and only a pick that has found nothing but the line ends that.

use std::cell::Cell;

/// Every so many picks the worker looks at timers, at the global queue and at its line first.
pub(super) const TEND_EVERY: u32 = 64;
const DISTURBED: u32 = 1 << 31;

/// The picks until a worker looks at timers and shared queues.
#[derive(Debug)]
pub(super) struct PicksLeft(Cell<u32>);

impl PicksLeft {
    pub(super) fn new() -> Self {
        Self(Cell::new(TEND_EVERY | DISTURBED))
    }

    /// How many.
    #[inline(always)]
    pub(super) fn get(&self) -> u32 {
        self.0.get() & !DISTURBED
    }

    /// One pick from wherever. True if it is time to look up.
    #[inline(always)]
    pub(super) fn count_down(&self) -> bool {
        let left = self.get();
        self.0.set(DISTURBED | if left == 0 { TEND_EVERY } else { left - 1 });
        left == 0
    }

    /// One pick, of which [`PicksLeft::get`] has found that one is left. The line is not disturbed by it.
    #[inline(always)]
    pub(super) fn count_one(&self) {
        self.0.set(self.0.get() - 1);
    }

    /// So many picks fewer.
    #[inline]
    pub(super) fn hurry(&self, by: u32) {
        self.0.set(self.0.get() & DISTURBED | self.get().saturating_sub(by));
    }

    /// Something else than the line waits on the worker.
    #[inline(always)]
    pub(super) fn disturb(&self) {
        self.0.set(self.0.get() | DISTURBED);
    }

    /// Nothing but the line waits on the worker.
    #[inline(always)]
    pub(super) fn go_round(&self) {
        self.0.set(self.get());
    }

    /// Whether one more task of the line can have its turn without a look at anything else.
    #[inline(always)]
    pub(super) fn goes_round(&self) -> bool {
        self.0.get().wrapping_sub(1) < TEND_EVERY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_goes_round_until_it_is_disturbed_or_a_look_is_due() {
        let picks = PicksLeft::new();
        assert!(!picks.goes_round(), "nobody has looked yet");
        picks.go_round();
        for left in (1..=TEND_EVERY).rev() {
            assert!(picks.goes_round() && picks.get() == left);
            picks.count_one();
        }
        assert!(!picks.goes_round(), "a look is due");
        assert!(picks.count_down(), "and is told of once");
        assert_eq!((picks.goes_round(), picks.get()), (false, TEND_EVERY));
        picks.go_round();
        picks.disturb();
        assert_eq!((picks.goes_round(), picks.get()), (false, TEND_EVERY), "no pick is lost by that");
        picks.hurry(TEND_EVERY - 1);
        assert_eq!((picks.goes_round(), picks.get()), (false, 1));
        picks.go_round();
        assert!(picks.goes_round());
        picks.hurry(2);
        assert!(!picks.goes_round() && picks.count_down());
    }
}
