//! The fluid schedule: its clock, which threads compete in it, and what each is owed. [The queue](super) states the
//! rules.

use super::departed_debts::Debt;
use super::entry::{Entry, QueuedIn};
use super::{DEBTORS_RETIRED_PER_EVENT, FairQueue};
use crate::hint::unlikely;
use crate::virtual_time::{Lag, NARROW_BITS, UNITS_AT_WEIGHT_ONE, VirtualTime, span};
use core::hint::cold_path;
use mainspring_abi::{Nanos, Weight};

impl FairQueue {
    /// Lets the fluid schedule run until `now`.
    #[inline]
    pub(crate) fn advance(&mut self, now: Nanos) {
        if self.at < now {
            let elapsed = now - core::mem::replace(&mut self.at, now);
            self.advance_by(elapsed);
        }
    }

    /// The CPU was not best effort's until `now`: the fluid schedule stood still.
    #[inline]
    pub(crate) fn skip(&mut self, now: Nanos) {
        self.at = now;
    }

    #[inline(always)]
    fn advance_by(&mut self, elapsed: Nanos) {
        // The product may wrap after minutes. The division cannot tell, so its result is used only below that.
        let service = elapsed.get().wrapping_mul(UNITS_AT_WEIGHT_ONE).wrapping_add(self.remainder);
        if let Some(moved) = service.checked_div(self.load)
            && elapsed.get() >> NARROW_BITS == 0
        {
            let clock = self.clock.plus(moved);
            if self.debtor_load == 0 || clock.is_before(self.first_even) {
                self.clock = clock;
                self.remainder = service % self.load;
                return;
            }
        }
        cold_path();
        self.advance_past_debtors(elapsed);
    }

    /// The general case: debtors come even on the way, no thread competes, or minutes have passed.
    #[inline(never)]
    fn advance_past_debtors(&mut self, elapsed: Nanos) {
        let mut service =
            u128::from(elapsed.get()) * u128::from(UNITS_AT_WEIGHT_ONE) + u128::from(self.remainder);
        for _ in 0..DEBTORS_RETIRED_PER_EVENT {
            let Some((even, whose)) = self.next_even() else { break };
            let needed = even.since(self.clock).max(0) as u128 * u128::from(self.load);
            if service < needed {
                break;
            }
            service -= needed;
            self.clock = self.clock.later(even);
            self.retire(whose);
        }
        if self.load == 0 {
            self.remainder = 0;
            return;
        }
        let (moved, remainder) = match u64::try_from(service) {
            Ok(service) => (service / self.load, service % self.load),
            Err(_) => {
                let load = u128::from(self.load);
                ((service / load) as u64, (service % load) as u64)
            }
        };
        self.clock = self.clock.plus(moved);
        self.remainder = remainder;
    }

    /// The debt that is even first, and its debtor: a sleeper, or `None` for a thread that has
    /// left.
    pub(super) fn next_even(&self) -> Option<(VirtualTime, Option<u32>)> {
        let asleep = self.debtors.peek().map(|(even, seat)| (*even, Some(*seat)));
        let left = self.departed_debts.first().map(|debt| (debt.even, None));
        match (asleep, left) {
            (Some(a), Some(b)) if b.0.is_before(a.0) => Some(b),
            (Some(a), _) => Some(a),
            (None, b) => b,
        }
    }

    /// The debt that is even first, which is `whose`, is even.
    fn retire(&mut self, whose: Option<u32>) {
        let weight = match whose {
            Some(seat) => {
                self.debtors.remove_first();
                let entry = &mut self.nodes.entries[seat];
                entry.place = QueuedIn::Out;
                entry.weight
            }
            None => match self.departed_debts.pop() {
                Some(debt) => debt.weight,
                None => return,
            },
        };
        self.forgive(weight);
        self.find_first_even();
    }

    /// A debtor's weight competes no longer; its debt has been taken out.
    fn forgive(&mut self, weight: Weight) {
        self.debtor_load -= u64::from(weight.get());
        self.unload(weight);
    }

    fn find_first_even(&mut self) {
        if let Some((even, _)) = self.next_even() {
            self.first_even = even;
        }
    }

    fn add_load(&mut self, weight: Weight) {
        self.load += u64::from(weight.get());
        self.remainder = self.remainder.min(self.load - 1);
    }

    fn unload(&mut self, weight: Weight) {
        self.load -= u64::from(weight.get());
        // A remainder is below one unit; what does not fit the smaller load is below the clock's resolution.
        self.remainder = self.remainder.min(self.load.saturating_sub(1));
    }

    /// Makes `seat` a competitor with the lag it brings along. Credit counts only against a thread that could owe
    /// it.
    pub(crate) fn join(&mut self, seat: u32, lag: Lag, weight: Weight) {
        let alone = self.load == self.debtor_load;
        let lag = if alone { lag.debt_only() } else { lag };
        self.nodes.put(seat, Entry::new(lag.position(self.clock, weight), weight));
        self.add_load(weight);
    }

    /// `seat` leaves, asleep or awake but not queued, with what it is owed or owes. A debt stays behind as well: its
    /// competitors here have been made to wait, whether or not the thread waits elsewhere in turn.
    pub(crate) fn leave(&mut self, seat: u32, asleep: bool) -> Lag {
        let Entry { position, weight, .. } = self.nodes.entries[seat];
        let lag = if asleep { self.lag_asleep(seat) } else { self.lag(seat) };
        let counted = self.is_debtor(seat);
        if counted {
            self.debtors.remove(seat);
            self.nodes.entries[seat].place = QueuedIn::Out;
        }
        if self.clock.is_before(position) && (counted || !asleep) {
            self.debtor_load += if counted { 0 } else { u64::from(weight.get()) };
            if let Some(forgiven) = self.departed_debts.push(Debt { even: position, weight }) {
                self.forgive(forgiven.weight);
            }
            self.find_first_even();
        } else if counted {
            self.forgive(weight);
            self.find_first_even();
        } else if !asleep {
            self.unload(weight);
        }
        lag
    }

    /// `seat` stops competing for now: credit is gone, debt stays until it is even.
    pub(crate) fn sleep(&mut self, seat: u32) {
        self.charge_and_sleep(seat, Nanos::ZERO);
    }

    /// Moves `seat` along by the service it had, and then it stops competing for now; how far.
    #[inline(always)]
    pub(crate) fn charge_and_sleep(&mut self, seat: u32, ran: Nanos) -> u64 {
        let entry = &mut self.nodes.entries[seat];
        let moved = span(ran, entry.weight);
        entry.position = entry.position.plus(moved);
        let (position, weight) = (entry.position, entry.weight);
        if self.clock.is_before(position) {
            entry.place = QueuedIn::Debt;
            self.owe(seat, position, weight);
        } else {
            self.unload(weight);
        }
        moved
    }

    /// `seat` is a debtor from now on, and is even at `position`.
    #[inline]
    fn owe(&mut self, seat: u32, position: VirtualTime, weight: Weight) {
        let first = self.debtor_load == 0 || position.is_before(self.first_even);
        self.first_even = if first { position } else { self.first_even };
        self.debtor_load += u64::from(weight.get());
        self.debtors.insert(seat, position);
    }

    /// `seat` competes again, with `weight`.
    #[inline(always)]
    pub(crate) fn wake(&mut self, seat: u32, weight: Weight) {
        let entry = &mut self.nodes.entries[seat];
        if entry.place == QueuedIn::Debt {
            self.wake_debtor(seat, weight);
        } else {
            entry.position = self.clock;
            entry.weight = weight;
            self.add_load(weight);
        }
    }

    #[inline(always)]
    fn wake_debtor(&mut self, seat: u32, weight: Weight) {
        self.debtors.remove(seat);
        let entry = &mut self.nodes.entries[seat];
        entry.place = QueuedIn::Out;
        let (owing, even) = (entry.weight, entry.position);
        entry.position = even.later(self.clock);
        if unlikely(weight != owing) {
            let lag = Lag::between(self.clock, entry.position, owing);
            entry.position = lag.position(self.clock, weight);
            entry.weight = weight;
        }
        self.forgive(owing);
        if even == self.first_even {
            self.find_first_even();
        }
        self.add_load(weight);
    }

    /// `seat` goes on under `weight`: a debt stays what it is in nanoseconds, a credit is given up.
    #[inline(never)]
    pub(crate) fn reweigh(&mut self, seat: u32, weight: Weight) {
        let old = self.nodes.entries[seat].weight;
        if old == weight {
            return;
        }
        self.nodes.entries[seat].position = self.lag(seat).debt_only().position(self.clock, weight);
        self.nodes.entries[seat].weight = weight;
        self.load += u64::from(weight.get());
        self.unload(old);
    }

    /// `seat` gets back the credit it had when it was held.
    pub(crate) fn restore_credit(&mut self, seat: u32, lag: Lag) {
        if lag > Lag::ZERO && self.load != self.debtor_load + u64::from(self.nodes.entries[seat].weight.get())
        {
            self.nodes.entries[seat].position = lag.position(self.clock, self.nodes.entries[seat].weight);
        }
    }

    /// `seat` gives up what it is owed, if anything.
    pub(crate) fn forfeit(&mut self, seat: u32) {
        let entry = &mut self.nodes.entries[seat];
        entry.position = entry.position.later(self.clock);
    }

    /// Moves `seat` along by the service it had; how far.
    #[inline]
    pub(crate) fn charge(&mut self, seat: u32, ran: Nanos) -> u64 {
        let entry = &mut self.nodes.entries[seat];
        let moved = span(ran, entry.weight);
        entry.position = entry.position.plus(moved);
        moved
    }

    /// Whether `seat`, which sleeps, still competes because of what it owes.
    #[inline]
    pub(crate) fn is_debtor(&self, seat: u32) -> bool {
        self.nodes.entries[seat].place == QueuedIn::Debt
    }

    /// How far `from` would be moved by `ran`, and where it would be then, if `to`, which sleeps, could compete in its place. `None`
    /// if that one is a debtor.
    #[inline(always)]
    pub(crate) fn may_hand_over(&self, from: u32, ran: Nanos, to: u32) -> Option<(u64, VirtualTime)> {
        if self.is_debtor(to) {
            return None;
        }
        let entry = &self.nodes.entries[from];
        let moved = span(ran, entry.weight);
        Some((moved, entry.position.plus(moved)))
    }

    /// Whether a thread at `position` is ahead of the clock.
    #[inline(always)]
    pub(crate) fn is_ahead(&self, position: VirtualTime) -> bool {
        self.reached().is_before(position)
    }

    /// `from` has been moved to `position` and sleeps; `to`, which slept, competes in its place, with `weight`, as
    /// [`FairQueue::may_hand_over`] allowed. As [`FairQueue::wake`], [`FairQueue::charge`] and [`FairQueue::sleep`] one after
    /// the other.
    #[inline(always)]
    pub(crate) fn hand_over(&mut self, from: u32, position: VirtualTime, to: u32, weight: Weight) {
        let clock = self.clock;
        let entry = &mut self.nodes.entries[to];
        entry.position = clock;
        entry.weight = weight;
        let entry = &mut self.nodes.entries[from];
        entry.position = position;
        let leaves = entry.weight;
        self.load += u64::from(weight.get());
        if clock.is_before(position) {
            entry.place = QueuedIn::Debt;
            self.leave_owing(from, position, leaves);
        } else {
            self.unload(leaves);
        }
    }

    #[inline(never)]
    fn leave_owing(&mut self, seat: u32, position: VirtualTime, weight: Weight) {
        self.remainder = self.remainder.min(self.load - 1);
        self.owe(seat, position, weight);
    }

    /// What `seat` is owed.
    #[inline]
    pub(crate) fn lag(&self, seat: u32) -> Lag {
        let entry = &self.nodes.entries[seat];
        Lag::between(self.clock, entry.position, entry.weight)
    }

    /// What `seat`, which sleeps, will be owed when it wakes: its debt, as far as it is not repaid yet.
    pub(crate) fn lag_asleep(&self, seat: u32) -> Lag {
        if self.is_debtor(seat) { self.lag(seat).debt_only() } else { Lag::ZERO }
    }

    /// What `seat` is owed if it has run for `ran` since it was last charged.
    #[inline(always)]
    pub(crate) fn lag_after(&self, seat: u32, ran: Nanos) -> Lag {
        if ran.is_zero() {
            return self.lag(seat);
        }
        let entry = &self.nodes.entries[seat];
        let position = entry.position.plus(span(ran, entry.weight));
        Lag::between(self.clock, position, entry.weight)
    }
}
