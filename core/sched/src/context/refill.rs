//! Replenishment of a scheduling context: a sporadic server with a bounded list of refills.
//!
//! A refill is an amount of CPU time and the time from which it may be used. What is used at some time comes back one
//! period after the time it became usable, so in no window of a period more than the budget is ever used; a full
//! refill once a period would allow twice that, back to back.
//!
//! Conserved, after every step:
//! * the amounts sum to the budget, to the nanosecond;
//! * refills are in order and do not overlap: each is usable no earlier than the one before it could be used up;
//! * there are at most as many as the context was made with.

use mainspring_abi::Nanos;

/// The most refills that a context can have.
pub const MAX_REFILLS: usize = 16;

/// CPU time, usable from a time on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refill {
    /// From when on.
    pub at: Nanos,
    /// How much.
    pub amount: Nanos,
}

impl Refill {
    fn end(self) -> Nanos {
        self.at + self.amount
    }
}

/// The refills of one context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refills {
    list: [Refill; MAX_REFILLS],
    len: usize,
    limit: usize,
    budget: Nanos,
    period: Nanos,
}

impl Refills {
    /// The whole budget, usable from `now` on. `limit` is clamped to 1 and [`MAX_REFILLS`].
    #[must_use]
    pub fn new(budget: Nanos, period: Nanos, limit: usize, now: Nanos) -> Self {
        let mut list = [Refill::default(); MAX_REFILLS];
        list[0] = Refill { at: now, amount: budget };
        Self { list, len: 1, limit: limit.clamp(1, MAX_REFILLS), budget, period }
    }

    /// The refills, first usable first.
    #[must_use]
    pub fn list(&self) -> &[Refill] {
        &self.list[..self.len]
    }

    /// From when on there is something to use.
    #[must_use]
    pub fn ready_at(&self) -> Nanos {
        self.list[0].at
    }

    /// How much can be used in one go from `now` on, without a gap.
    #[must_use]
    pub fn usable(&self, now: Nanos) -> Nanos {
        if self.list[0].at > now {
            return Nanos::ZERO;
        }
        // Later refills count if they become usable before the ones ahead of them, used from now on, run out.
        let mut total = self.list[0].amount;
        for refill in &self.list[1..self.len] {
            if refill.at > now + total {
                break;
            }
            total += refill.amount;
        }
        total
    }

    /// The context's thread becomes ready after a pause: what could have been used earlier is usable from `now` on,
    /// no sooner, and comes back accordingly later.
    pub fn resume(&mut self, now: Nanos) {
        if self.list[0].at >= now {
            return;
        }
        self.list[0].at = now;
        while self.len > 1 && self.list[1].at <= self.list[0].end() {
            let merged = self.list[1].amount;
            self.pop_second();
            self.list[0].amount += merged;
        }
        self.check();
    }

    /// `used` CPU time has been used, beginning at the first refill's time. It comes back a period later.
    pub fn charge(&mut self, used: Nanos) {
        let mut left = used;
        while !left.is_zero() {
            let head = self.list[0];
            if left < head.amount {
                self.list[0] = Refill { at: head.at + left, amount: head.amount - left };
                self.schedule(Refill { at: head.at + self.period, amount: left });
                break;
            }
            left = left - head.amount;
            self.pop_first();
            self.schedule(Refill { at: head.at + self.period, amount: head.amount });
            if self.len == 1 && self.list[0] == (Refill { at: head.at + self.period, amount: head.amount }) {
                // Nothing else is left: an overrun is paid by waiting longer.
                self.list[0].at += left;
                break;
            }
        }
        self.check();
    }

    /// Adds a refill behind the others. If there is no room it joins the last one, which is put off so far that
    /// neither amount comes earlier than it should.
    fn schedule(&mut self, refill: Refill) {
        let Some(last) = self.len.checked_sub(1) else {
            self.list[0] = refill;
            self.len = 1;
            return;
        };
        let tail = &mut self.list[last];
        if refill.at <= tail.end() {
            tail.amount += refill.amount;
        } else if self.len == self.limit {
            tail.at = refill.at - tail.amount;
            tail.amount += refill.amount;
        } else {
            self.list[self.len] = refill;
            self.len += 1;
        }
    }

    fn pop_first(&mut self) {
        self.list.copy_within(1..self.len, 0);
        self.len -= 1;
    }

    fn pop_second(&mut self) {
        self.list.copy_within(2..self.len, 1);
        self.len -= 1;
    }

    fn check(&self) {
        debug_assert_eq!(
            self.list().iter().fold(Nanos::ZERO, |sum, refill| sum + refill.amount),
            self.budget,
            "refills sum to the budget"
        );
        debug_assert!(self.list().windows(2).all(|pair| pair[0].end() <= pair[1].at), "refills overlap");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refills(list: &Refills) -> alloc::vec::Vec<(u64, u64)> {
        list.list().iter().map(|refill| (refill.at.get(), refill.amount.get())).collect()
    }

    fn ns(n: u64) -> Nanos {
        Nanos::new(n)
    }

    #[test]
    fn the_published_sequence_of_refills_is_reproduced() {
        // seL4 MCS: budget 10, period 100, at most 4 refills.
        let mut list = Refills::new(ns(10), ns(100), 4, ns(0));
        list.charge(ns(3));
        assert_eq!(refills(&list), [(3, 7), (100, 3)]);
        list.resume(ns(20));
        assert_eq!(refills(&list), [(20, 7), (100, 3)]);
        list.charge(ns(7));
        assert_eq!(refills(&list), [(100, 3), (120, 7)]);
        list.resume(ns(100));
        list.charge(ns(3));
        assert_eq!(refills(&list), [(120, 7), (200, 3)]);
    }

    #[test]
    fn a_full_list_puts_the_last_refill_off_rather_than_forget_it() {
        let mut list = Refills::new(ns(10), ns(100), 2, ns(0));
        list.charge(ns(3));
        list.resume(ns(20));
        list.charge(ns(3));
        assert_eq!(
            refills(&list),
            [(23, 4), (117, 6)],
            "3 at 100 and 3 at 120 are usable in one piece from 117"
        );
    }

    #[test]
    fn with_one_refill_the_budget_comes_back_whole() {
        let mut list = Refills::new(ns(10), ns(100), 1, ns(0));
        list.charge(ns(10));
        assert_eq!(refills(&list), [(100, 10)]);
        list.charge(ns(4));
        assert_eq!(
            refills(&list),
            [(194, 10)],
            "6 are put off so far that the 4 used come back right behind them"
        );
    }

    /// A run that uses up what it may, when it may, and pauses at random.
    fn history() -> impl Strategy<Value = (u64, u64, usize, Vec<(u64, u64)>)> {
        (1u64..50, 50u64..200, 1usize..=MAX_REFILLS, prop::collection::vec((0u64..120, 1u64..60), 1..200))
    }

    use alloc::vec::Vec;

    proptest! {
        #[test]
        fn no_window_of_a_period_holds_more_than_the_budget((budget, period, limit, steps) in history()) {
            let mut list = Refills::new(ns(budget), ns(period), limit, ns(0));
            let mut used: Vec<(u64, u64)> = Vec::new();
            let mut now = 0;
            for (pause, want) in steps {
                now = (now + pause).max(list.ready_at().get());
                list.resume(ns(now));
                let run = want.min(list.usable(ns(now)).get());
                list.charge(ns(run));
                used.push((now, run));
                now += run;
                let sum: u64 = list.list().iter().map(|refill| refill.amount.get()).sum();
                prop_assert_eq!(sum, budget);
                prop_assert!(list.list().len() <= limit);
                prop_assert!(list.list().windows(2).all(|pair| pair[0].end() <= pair[1].at));
            }
            for (start, _) in &used {
                let end = start + period;
                let inside: u64 = used.iter().map(|(at, run)| {
                    (at + run).min(end).saturating_sub((*at).max(*start))
                }).sum();
                prop_assert!(inside <= budget, "{} used from {} on", inside, start);
            }
        }
    }
}
