//! What threads owed when they left for good.
//!
//! A thread that ends, or moves to another CPU, while it is ahead of its share has had service that its competitors
//! are owed. Its debt stays behind, without a name, until the clock has caught up with it.
//!
//! Conserved: a min-heap by the clock time at which a debt is even. It never grows beyond its reserve: the debt that
//! is even soonest gives way, which only forgives the least there is to forgive.

use crate::virtual_time::VirtualTime;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use mainspring_abi::Weight;

#[derive(Clone, Copy, Debug)]
pub(super) struct Debt {
    /// The clock time at which it is even.
    pub even: VirtualTime,
    /// The weight that it goes on competing with.
    pub weight: Weight,
}

#[derive(Debug, Default)]
pub(super) struct DepartedDebts {
    heap: Vec<Debt>,
    room: usize,
}

impl DepartedDebts {
    pub(super) fn reserve(&mut self, debts: usize) -> Result<(), TryReserveError> {
        self.heap.try_reserve_exact(debts.saturating_sub(self.heap.len()))?;
        self.room = self.room.max(debts);
        Ok(())
    }

    pub(super) fn is_full(&self) -> bool {
        self.heap.len() >= self.room
    }

    pub(super) fn first(&self) -> Option<Debt> {
        self.heap.first().copied()
    }

    /// Adds `debt`; the one that had to give way, if any.
    pub(super) fn push(&mut self, debt: Debt) -> Option<Debt> {
        let gone = if self.is_full() { self.pop() } else { None };
        self.heap.push(debt);
        let mut at = self.heap.len() - 1;
        while at > 0 && self.heap[at].even.is_before(self.heap[(at - 1) / 2].even) {
            self.heap.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        gone
    }

    /// Takes the debt that is even first.
    pub(super) fn pop(&mut self) -> Option<Debt> {
        let first = self.first()?;
        self.heap.swap_remove(0);
        let mut at = 0;
        loop {
            let below = [2 * at + 1, 2 * at + 2].into_iter().filter(|child| *child < self.heap.len());
            let Some(least) =
                below.reduce(|a, b| if self.heap[b].even.is_before(self.heap[a].even) { b } else { a })
            else {
                return Some(first);
            };
            if !self.heap[least].even.is_before(self.heap[at].even) {
                return Some(first);
            }
            self.heap.swap(at, least);
            at = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debt(even: u64) -> Debt {
        Debt { even: VirtualTime(even), weight: Weight::DEFAULT }
    }

    #[test]
    fn debts_leave_in_the_order_in_which_they_are_even() {
        let mut departed_debts = DepartedDebts::default();
        departed_debts.reserve(100).expect("a hundred fit");
        let mut state = 9u64;
        for _ in 0..100 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            assert!(departed_debts.push(debt(state >> 44)).is_none());
        }
        let mut last = 0;
        while let Some(debt) = departed_debts.pop() {
            assert!(debt.even.0 >= last);
            last = debt.even.0;
        }
    }

    #[test]
    fn full_departed_debts_forgive_the_one_that_is_even_soonest() {
        let mut departed_debts = DepartedDebts::default();
        departed_debts.reserve(2).expect("two fit");
        assert!(departed_debts.push(debt(5)).is_none() && departed_debts.push(debt(3)).is_none());
        assert_eq!(departed_debts.push(debt(9)).map(|gone| gone.even), Some(VirtualTime(3)));
    }
}
