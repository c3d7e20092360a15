//! By how much a context's holders ran past its budget, from the intervals that they ran and nothing else.
//!
//! An interval overruns by what it ran beyond what could be used without a gap when it began. An interval that begins when
//! nothing can be used continues the overrun of the interval before it.

/// How far the holders of one context ran past its budget.
#[derive(Clone, Debug, Default)]
pub struct Overshoot {
    overrun: u64,
    most: u64,
}

impl Overshoot {
    /// The furthest that holders ran past the budget before it was usable again.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.most
    }

    /// A holder ran for `ran`, which is not zero, and `usable` could be used when it began.
    pub fn spend(&mut self, ran: u64, usable: u64) {
        let before = if usable == 0 { self.overrun } else { 0 };
        self.overrun = before + ran.saturating_sub(usable);
        self.most = self.most.max(self.overrun);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overshoot_is_the_greatest_of_any_overrun() {
        let mut used = Overshoot::default();
        used.spend(10, 10);
        assert_eq!(used.most(), 0);
        used.spend(13, 10);
        used.spend(2, 1);
        assert_eq!(used.most(), 3);
    }

    #[test]
    fn intervals_that_begin_with_nothing_usable_continue_an_overrun() {
        let mut used = Overshoot::default();
        used.spend(11, 10);
        used.spend(2, 0);
        used.spend(4, 0);
        assert_eq!(used.most(), 7);
        used.spend(10, 10);
        used.spend(5, 0);
        assert_eq!(used.most(), 7, "the second overrun is 5");
    }
}
