//! Replenishment of a scheduling context: a sporadic server with a bounded list of refills.
//!
//! A refill is an amount of CPU time and the time from which it may be used, its *release*. What is used of a refill
//! comes back one period after the refill's release, however often its user was preempted meanwhile. A user that pauses
//! gives the rest a new release when it resumes. So every nanosecond of the budget is a sporadic job by itself: two
//! releases of it are a period apart, which is what admission counts on. A full refill once a period would let a thread
//! that waits until the end of one period run twice its budget back to back.
//!
//! Conserved, after every step:
//! * the amounts sum to the budget, to the nanosecond;
//! * refills are in order and do not overlap: each is usable no earlier than the one before it could be used up;
//! * there are at most as many as the context was made with;
//! * no refill is released earlier than a period after the release of what it gives back. Where two must be joined for
//!   want of room, the earlier one waits for the later one.

use mainspring_abi::Nanos;

/// The fewest refills that a context can have: what is left of the budget, and what was used of it.
pub const MIN_REFILLS: usize = 2;

/// The most refills that a context can have.
pub const MAX_REFILLS: usize = 16;

/// CPU time, usable from a time on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refill {
    /// Its release: from when on.
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
    /// The whole budget, usable from `now` on. `limit` is clamped to [`MIN_REFILLS`] and [`MAX_REFILLS`].
    #[must_use]
    pub fn new(budget: Nanos, period: Nanos, limit: usize, now: Nanos) -> Self {
        let mut list = [Refill::default(); MAX_REFILLS];
        list[0] = Refill { at: now, amount: budget };
        Self { list, len: 1, limit: limit.clamp(MIN_REFILLS, MAX_REFILLS), budget, period }
    }

    /// The refills as a record has them; `None` if they break a promise of this module.
    #[must_use]
    pub(crate) fn from_parts(refills: &[Refill], limit: usize, budget: Nanos, period: Nanos) -> Option<Self> {
        if refills.is_empty() || refills.len() > limit || !(MIN_REFILLS..=MAX_REFILLS).contains(&limit) {
            return None;
        }
        let mut list = [Refill::default(); MAX_REFILLS];
        list[..refills.len()].copy_from_slice(refills);
        let made = Self { list, len: refills.len(), limit, budget, period };
        (made.sum() == budget && made.in_order()).then_some(made)
    }

    /// The refills, first usable first.
    #[must_use]
    pub fn list(&self) -> &[Refill] {
        &self.list[..self.len]
    }

    /// How many there may be.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// What they sum to.
    #[must_use]
    pub fn budget(&self) -> Nanos {
        self.budget
    }

    /// How long what was used stays away.
    #[must_use]
    pub fn period(&self) -> Nanos {
        self.period
    }

    /// The first refill: what is used now or next.
    #[must_use]
    #[inline]
    pub fn head(&self) -> Refill {
        self.list[0]
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

    /// The context's thread becomes ready after a pause: what could have been used earlier is released now.
    pub fn resume(&mut self, now: Nanos) {
        if self.list[0].at >= now {
            return;
        }
        self.list[0].at = now;
        while self.len > 1 && self.list[1].at <= now {
            let merged = self.list[1].amount;
            self.pop_second();
            self.list[0].amount += merged;
        }
        self.keep_apart();
        self.check();
    }

    /// The context's thread pauses: what is left of the first refill is released when it resumes, and not before `now`.
    pub fn pause(&mut self, now: Nanos) {
        if self.list[0].at < now {
            self.list[0].at = now;
            self.keep_apart();
        }
        self.check();
    }

    /// The pause that has just begun is over: the first refill has the release again that it had before.
    pub(crate) fn go_on(&mut self, release: Nanos) {
        self.list[0].at = release;
    }

    /// `used` CPU time has been used, of the first refill and, if that was not enough, of what follows: an overrun is
    /// paid by waiting longer.
    #[inline]
    pub fn charge(&mut self, used: Nanos) {
        if used > self.budget {
            self.charge_whole_budgets(used);
        } else {
            self.charge_refills(used);
        }
        self.check();
    }

    /// After the budget has gone round once, every further round puts all of it off by a period.
    #[cold]
    fn charge_whole_budgets(&mut self, used: Nanos) {
        self.charge_refills(self.budget);
        let times = used.get() / self.budget.get();
        let delay = Nanos::new(self.period.get().saturating_mul(times - 1));
        for refill in &mut self.list[..self.len] {
            refill.at += delay;
        }
        self.charge_refills(Nanos::new(used.get() % self.budget.get()));
    }

    #[inline]
    fn charge_refills(&mut self, used: Nanos) {
        let mut left = used;
        while !left.is_zero() {
            let head = self.list[0];
            let back = head.at + self.period;
            if left < head.amount {
                self.list[0].amount = head.amount - left;
                self.give_back(Refill { at: back, amount: left });
                return;
            }
            left = left - head.amount;
            if self.len == 1 {
                self.list[0].at = back;
            } else {
                self.pop_first();
                self.give_back(Refill { at: back, amount: head.amount });
            }
        }
    }

    /// `used` of the first refill has been used, and something of it is left.
    #[inline]
    pub(crate) fn charge_part(&mut self, used: Nanos) {
        debug_assert!(used < self.list[0].amount, "something is left");
        if !used.is_zero() {
            let head = &mut self.list[0];
            head.amount = head.amount - used;
            let back = Refill { at: head.at + self.period, amount: used };
            self.give_back(back);
        }
        self.check();
    }

    /// Whether the refills stay as they are over a pause of no time at `now`.
    #[inline]
    pub(crate) fn stay_over_pause(&self, now: Nanos) -> bool {
        self.len == 1 || self.list[0].at.max(now) + self.list[0].amount <= self.list[1].at
    }

    /// Adds a refill behind the others.
    #[inline(always)]
    fn give_back(&mut self, refill: Refill) {
        let tail = self.len - 1;
        let last = &mut self.list[tail];
        if last.at == refill.at {
            last.amount += refill.amount;
        } else if self.len == self.limit {
            self.join_last(refill);
        } else {
            self.list[self.len] = Refill { at: refill.at.max(last.end()), ..refill };
            self.len += 1;
        }
    }

    /// There is no room: the refill joins the last one, which waits for it.
    #[cold]
    fn join_last(&mut self, refill: Refill) {
        let last = &mut self.list[self.len - 1];
        last.at = last.at.max(refill.at);
        last.amount += refill.amount;
    }

    /// A first refill that was put off puts those behind it off.
    fn keep_apart(&mut self) {
        for index in 1..self.len {
            let free = self.list[index - 1].end();
            if self.list[index].at >= free {
                return;
            }
            self.list[index].at = free;
        }
    }

    /// Nothing can be used before `from`.
    pub(crate) fn postpone(&mut self, from: Nanos) {
        if self.list[0].at < from {
            self.list[0].at = from;
            self.keep_apart();
        }
        self.check();
    }

    /// From now on the budget is another: what it has more comes a period after `now`, what it has less is taken from
    /// what comes last. With a shorter period it is taken from what comes first: what was used in the longer one and comes
    /// back late is not there again sooner.
    pub fn adjust(&mut self, budget: Nanos, period: Nanos, now: Nanos) {
        let sooner = period < self.period;
        self.period = period;
        if budget > self.budget {
            let more = Refill { at: now + period, amount: budget - self.budget };
            self.budget = budget;
            if self.len == self.limit {
                self.join_last(more);
            } else {
                self.list[self.len] = Refill { at: more.at.max(self.list[self.len - 1].end()), ..more };
                self.len += 1;
            }
        } else {
            let mut less = self.budget - budget;
            self.budget = budget;
            while !less.is_zero() {
                let place = if sooner { 0 } else { self.len - 1 };
                let from = &mut self.list[place];
                if less < from.amount {
                    from.amount = from.amount - less;
                    break;
                }
                less = less - from.amount;
                if sooner {
                    self.pop_first();
                } else {
                    self.len -= 1;
                }
            }
        }
        self.check();
    }

    fn pop_first(&mut self) {
        self.list.copy_within(1..self.len, 0);
        self.len -= 1;
    }

    fn pop_second(&mut self) {
        self.list.copy_within(2..self.len, 1);
        self.len -= 1;
    }

    fn sum(&self) -> Nanos {
        self.list().iter().fold(Nanos::ZERO, |sum, refill| sum + refill.amount)
    }

    fn in_order(&self) -> bool {
        self.list().windows(2).all(|pair| pair[0].end() <= pair[1].at)
    }

    fn check(&self) {
        debug_assert_eq!(self.sum(), self.budget, "refills sum to the budget");
        debug_assert!(self.in_order(), "refills overlap");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn refills(list: &Refills) -> Vec<(u64, u64)> {
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
        list.pause(ns(3));
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
    fn a_preempted_job_comes_back_whole() {
        let mut list = Refills::new(ns(10), ns(100), 4, ns(0));
        list.charge(ns(3));
        list.charge(ns(5));
        list.charge(ns(2));
        assert_eq!(
            refills(&list),
            [(100, 10)],
            "used in three pieces, back in one, a period after its release"
        );
    }

    #[test]
    fn a_full_list_puts_refills_off_rather_than_forget_one() {
        let mut list = Refills::new(ns(10), ns(100), 2, ns(0));
        list.charge(ns(3));
        list.pause(ns(3));
        list.resume(ns(20));
        list.charge(ns(3));
        assert_eq!(refills(&list), [(20, 4), (120, 6)], "3 due at 100 wait for the 3 due at 120");
    }

    #[test]
    fn an_overrun_is_paid_by_waiting() {
        let mut list = Refills::new(ns(10), ns(100), 4, ns(0));
        list.charge(ns(12));
        assert_eq!(refills(&list), [(100, 8), (200, 2)]);
        let mut list = Refills::new(ns(10), ns(100), 4, ns(0));
        list.charge(ns(1_000_000_000_005));
        assert_eq!(refills(&list), [(10_000_000_000_000, 5), (10_000_000_000_100, 5)]);
    }

    #[test]
    fn another_budget_takes_from_the_last_and_gives_after_a_period() {
        let mut list = Refills::new(ns(10), ns(100), 4, ns(0));
        list.charge(ns(3));
        list.adjust(ns(15), ns(100), ns(5));
        assert_eq!(refills(&list), [(0, 7), (100, 3), (105, 5)]);
        list.adjust(ns(6), ns(100), ns(7));
        assert_eq!(refills(&list), [(0, 6)]);
    }

    #[test]
    fn a_shorter_period_brings_nothing_back_sooner() {
        let mut list = Refills::new(ns(10), ns(100), 4, ns(0));
        list.charge(ns(8));
        list.adjust(ns(2), ns(20), ns(8));
        assert_eq!(refills(&list), [(100, 2)], "eight of the last hundred were used");
        let mut list = Refills::new(ns(10), ns(100), 4, ns(0));
        list.adjust(ns(2), ns(20), ns(8));
        assert_eq!(refills(&list), [(0, 2)], "nothing was used");
        list.postpone(ns(30));
        assert_eq!(refills(&list), [(30, 2)]);
    }

    /// Steps of a thread: it pauses, then wants to run, and may be preempted in between.
    fn history() -> impl Strategy<Value = (u64, u64, usize, Vec<(u64, u64, bool)>)> {
        let steps = prop::collection::vec((0u64..120, 1u64..60, any::<bool>()), 1..200);
        (1u64..50, 50u64..200, MIN_REFILLS..=MAX_REFILLS, steps)
    }

    proptest! {
        /// Each nanosecond of the budget is tracked by itself, as a job with a release; two releases of it must be a
        /// period apart.
        #[test]
        fn no_nanosecond_is_released_twice_within_a_period((budget, period, limit, steps) in history()) {
            let mut list = Refills::new(ns(budget), ns(period), limit, ns(0));
            let mut releases: Vec<(u64, u64)> = Vec::new();
            let mut now = 0;
            for (gap, want, pauses) in steps {
                now = (now + gap).max(list.head().at.get());
                if pauses {
                    list.pause(ns(now));
                    list.resume(ns(now));
                }
                let head = list.head();
                prop_assert!(head.at <= ns(now));
                let run = want.min(head.amount.get());
                list.charge(ns(run));
                releases.push((head.at.get(), run));
                now += run;
                let sum: u64 = list.list().iter().map(|refill| refill.amount.get()).sum();
                prop_assert_eq!(sum, budget);
                prop_assert!(list.list().len() <= limit);
                prop_assert!(list.list().windows(2).all(|pair| pair[0].end() <= pair[1].at));
            }
            for (start, _) in &releases {
                let window = *start..start + period;
                let inside: u64 = releases.iter().filter(|(at, _)| window.contains(at)).map(|(_, run)| run).sum();
                prop_assert!(inside <= budget, "{} released from {} on within a period", inside, start);
            }
        }

        #[test]
        fn a_budget_changes_to_the_nanosecond(
            (budget, period, limit, steps) in history(),
            changes in prop::collection::vec((1u64..50, 50u64..200), 1..20),
        ) {
            let mut list = Refills::new(ns(budget), ns(period), limit, ns(0));
            let mut now = 0;
            for ((gap, want, _), (budget, period)) in steps.into_iter().zip(changes) {
                now = (now + gap).max(list.head().at.get());
                list.charge(ns(want));
                list.adjust(ns(budget), ns(period), ns(now));
                let sum: u64 = list.list().iter().map(|refill| refill.amount.get()).sum();
                prop_assert_eq!(sum, budget);
                prop_assert!(list.list().len() <= limit);
            }
        }
    }
}
