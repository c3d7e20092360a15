//! A few seats in order of their keys, in one small array.
//!
//! Nothing that is good for many is as cheap for a dozen: the first is taken in constant time, and a new entry is put in
//! its place by moving the entries before it.
//!
//! Conserved: `seats[..len]` is sorted, the first in order last; of equal keys the one that came last is the first. There
//! are never more than [`SMALL`].

/// How many are few. Beyond this an insertion would cost more than one into a tree.
pub(crate) const SMALL: usize = 16;

/// A key with a strict order. Not `Ord`, since virtual instants wrap.
pub(crate) trait Rank: Copy {
    /// Fills places that have no entry.
    const NONE: Self;

    fn is_before(&self, other: &Self) -> bool;
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct SmallSorted<K> {
    len: usize,
    seats: [(K, u32); SMALL],
}

impl<K: Rank> SmallSorted<K> {
    pub(crate) const fn new() -> Self {
        Self { len: 0, seats: [(K::NONE, 0); SMALL] }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn line(&self) -> &[(K, u32)] {
        &self.seats[..self.len]
    }

    /// All, the first in order first.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(K, u32)> {
        self.line().iter().rev()
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<&(K, u32)> {
        self.seats.get(self.len.wrapping_sub(1))
    }

    /// Puts `seat` where it belongs; whether there was room.
    #[inline]
    #[must_use]
    pub(crate) fn insert(&mut self, seat: u32, key: K) -> bool {
        let Some(line) = self.seats.get_mut(..=self.len) else { return false };
        let mut at = line.len() - 1;
        while at > 0 && line[at - 1].0.is_before(&key) {
            line[at] = line[at - 1];
            at -= 1;
        }
        line[at] = (key, seat);
        self.len += 1;
        true
    }

    /// Takes the first in order out.
    #[inline]
    pub(crate) fn take_first(&mut self) -> Option<(K, u32)> {
        let first = *self.first()?;
        self.len -= 1;
        Some(first)
    }

    /// Takes out the first in order that `is_it`.
    #[inline]
    pub(crate) fn take(&mut self, is_it: impl Fn(&(K, u32)) -> bool) -> Option<(K, u32)> {
        if is_it(self.first()?) {
            return self.take_first();
        }
        let at = self.line().iter().rposition(is_it)?;
        let taken = self.seats[at];
        for later in at + 1..self.len {
            self.seats[later - 1] = self.seats[later];
        }
        self.len -= 1;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::virtual_time::VirtualTime;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[derive(Clone, Debug)]
    enum Op {
        Insert(u64),
        TakeFirst,
        Take(u32),
        TakeFrom(u64),
    }

    fn an_op() -> impl Strategy<Value = Op> {
        // Few distances, so that keys are often equal.
        prop_oneof![
            4 => prop_oneof![0u64..4, 0u64..1 << 40].prop_map(Op::Insert),
            1 => Just(Op::TakeFirst),
            1 => (0..2 * SMALL as u32).prop_map(Op::Take),
            1 => prop_oneof![0u64..4, 0u64..1 << 40].prop_map(Op::TakeFrom),
        ]
    }

    /// On both sides of the wrap.
    fn key(distance: u64) -> VirtualTime {
        VirtualTime(u64::MAX - 2).plus(distance)
    }

    proptest! {
        #[test]
        fn a_few_stand_as_a_list_that_is_sorted_at_each_change(ops in prop::collection::vec(an_op(), 1..200)) {
            let mut few = SmallSorted::new();
            let mut list: Vec<(VirtualTime, u32)> = Vec::new();
            for (seat, op) in (0u32..).zip(ops) {
                match op {
                    Op::Insert(distance) if list.len() < SMALL => {
                        assert!(few.insert(seat, key(distance)));
                        list.insert(0, (key(distance), seat));
                        list.sort_by_key(|(key, _)| key.since(VirtualTime(u64::MAX - 2)));
                    }
                    Op::Insert(distance) => assert!(!few.insert(seat, key(distance))),
                    Op::TakeFirst => {
                        let first = (!list.is_empty()).then(|| list.remove(0));
                        assert_eq!(few.take_first(), first);
                    }
                    Op::Take(seat) => {
                        let at = list.iter().position(|(_, listed)| *listed == seat);
                        assert_eq!(few.take(|(_, listed)| *listed == seat), at.map(|at| list.remove(at)));
                    }
                    Op::TakeFrom(distance) => {
                        let at = list.iter().position(|(listed, _)| !listed.is_before(&key(distance)));
                        let taken = few.take(|(listed, _)| !listed.is_before(&key(distance)));
                        assert_eq!(taken, at.map(|at| list.remove(at)));
                    }
                }
                assert_eq!(few.len(), list.len());
                assert_eq!(few.is_empty(), list.is_empty());
                assert_eq!(few.first(), list.first());
                assert!(few.iter().eq(&list));
            }
        }
    }
}
