//! The seats that wait for something, smallest key first, from which any seat can be taken in O(log n).
//!
//! A few stand in order in one small array; many in a heap, four below one.
//!
//! Conserved: the few are [`SMALL`] at most, and there are none while there is a heap. While there is one, `place[seat]` is
//! where `seat` stands in it, for exactly the seats that do; for others it says nothing. No table grows beyond what
//! [`SeatHeap::reserve`] has set aside.

use crate::hint::{likely, unlikely};
use crate::small_sorted::{Rank, SMALL, SmallSorted};
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::hint::select_unpredictable;

/// A heap that has shrunk to this is one no longer. Well below what makes one, so that it does not go to and fro.
const FEW_AGAIN: usize = SMALL / 2;

/// How many entries stand below one. Four of them are a cache line.
const FAN: usize = 4;

/// Where the entry above `at`, which is not the first, stands.
#[inline]
fn above(at: usize) -> usize {
    (at - 1) / FAN
}

/// Which entry comes first, found without a branch: no guess about it would be better than a coin.
#[inline]
fn least_of_all<K: Rank>(entries: &[(K, u32); FAN]) -> (usize, (K, u32)) {
    let left = usize::from(entries[1].0.is_before(&entries[0].0));
    let right = 2 + usize::from(entries[3].0.is_before(&entries[2].0));
    let least = select_unpredictable(entries[right].0.is_before(&entries[left].0), right, left);
    (least, entries[least])
}

/// The same of at most three children. `None` without any.
#[inline]
fn least_of_few<K: Rank>(entries: &[(K, u32)]) -> Option<(usize, (K, u32))> {
    let mut entries = entries.iter().copied().enumerate();
    let mut least = entries.next()?;
    for entry in entries {
        if entry.1.0.is_before(&least.1.0) {
            least = entry;
        }
    }
    Some(least)
}

#[derive(Debug)]
pub(crate) struct SeatHeap<K> {
    few: SmallSorted<K>,
    heap: Vec<(K, u32)>,
    place: Vec<u32>,
}

impl<K: Rank> SeatHeap<K> {
    pub(crate) const fn new() -> Self {
        Self { few: SmallSorted::new(), heap: Vec::new(), place: Vec::new() }
    }

    /// Sets room for `seats` seats aside.
    pub(crate) fn reserve(&mut self, seats: usize) -> Result<(), TryReserveError> {
        self.heap.try_reserve_exact(seats.saturating_sub(self.heap.len()))?;
        let more = seats.saturating_sub(self.place.len());
        self.place.try_reserve_exact(more)?;
        self.place.resize(self.place.len() + more, 0);
        Ok(())
    }

    /// The seat with the smallest key.
    #[inline]
    pub(crate) fn peek(&self) -> Option<&(K, u32)> {
        if likely(self.heap.is_empty()) { self.few.first() } else { self.heap.first() }
    }

    pub(crate) fn len(&self) -> usize {
        self.few.len() + self.heap.len()
    }

    /// All seats, in no order.
    pub(crate) fn seats(&self) -> impl Iterator<Item = u32> + '_ {
        self.few.iter().chain(&self.heap).map(|(_, seat)| *seat)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.few.is_empty() && self.heap.is_empty()
    }

    pub(crate) fn contains(&self, seat: u32) -> bool {
        self.key(seat).is_some()
    }

    /// The key that `seat` waits with.
    pub(crate) fn key(&self, seat: u32) -> Option<K> {
        let place = self.place_in_heap(seat);
        let entry = place.map(|at| &self.heap[at]).or_else(|| self.few.iter().find(|(_, one)| *one == seat));
        entry.map(|(key, _)| *key)
    }

    /// Where `seat` stands in the heap.
    #[inline]
    fn place_in_heap(&self, seat: u32) -> Option<usize> {
        let at = *self.place.get(seat as usize)? as usize;
        self.heap.get(at).is_some_and(|(_, there)| *there == seat).then_some(at)
    }

    #[inline]
    pub(crate) fn insert(&mut self, seat: u32, key: K) {
        debug_assert!(!self.contains(seat), "seat {seat} waits already");
        if unlikely(!(self.heap.is_empty() && self.few.insert(seat, key))) {
            self.insert_among_many(seat, key);
        }
    }

    #[inline(never)]
    fn insert_among_many(&mut self, seat: u32, key: K) {
        if !self.few.is_empty() {
            self.become_many();
        }
        let (entry, at) = ((key, seat), self.heap.len());
        self.heap.push(entry);
        self.rise(at, entry);
    }

    #[inline(never)]
    fn become_many(&mut self) {
        // What is in order is a heap.
        while let Some(entry) = self.few.take_first() {
            self.place[entry.1 as usize] = self.heap.len() as u32;
            self.heap.push(entry);
        }
    }

    /// Takes `seat` out; whether it was there.
    pub(crate) fn remove(&mut self, seat: u32) -> bool {
        if likely(self.heap.is_empty()) {
            return self.few.take(|(_, one)| *one == seat).is_some();
        }
        let place = self.place_in_heap(seat);
        if let Some(at) = place {
            self.fill(at);
        }
        place.is_some()
    }

    /// Takes the seat with the smallest key out.
    #[inline]
    pub(crate) fn remove_first(&mut self) {
        if self.heap.is_empty() {
            self.few.take_first();
        } else {
            self.remove_first_of_many();
        }
    }

    #[inline(never)]
    fn remove_first_of_many(&mut self) {
        let Some(last) = self.heap.pop() else { return };
        if !self.heap.is_empty() {
            let bottom = self.sink_gap(0);
            self.rise(bottom, last);
        }
        self.note_shrunk();
    }

    /// What stands at `at` has gone: the last entry takes its place, and goes where it belongs from there.
    #[inline(never)]
    fn fill(&mut self, at: usize) {
        let Some(last) = self.heap.pop() else { return };
        if at < self.heap.len() {
            // The last entry seldom belongs far from the bottom. So the gap goes all the way down first, which needs no
            // decision that could be guessed wrong, and the entry comes up from there.
            let rises = at > 0 && last.0.is_before(&self.heap[above(at)].0);
            let bottom = if rises { at } else { self.sink_gap(at) };
            self.rise(bottom, last);
        }
        self.note_shrunk();
    }

    #[inline(never)]
    fn become_few(&mut self) {
        for (key, seat) in self.heap.drain(..) {
            let fits = self.few.insert(seat, key);
            debug_assert!(fits, "fewer than few");
        }
    }

    #[inline]
    fn note_shrunk(&mut self) {
        if self.heap.len() <= FEW_AGAIN {
            self.become_few();
        }
    }

    /// Puts `entry` at `at`, or further up; those it passes come down.
    #[inline(always)]
    fn rise(&mut self, mut at: usize, entry: (K, u32)) {
        while at > 0 {
            let higher = self.heap[above(at)];
            if !entry.0.is_before(&higher.0) {
                break;
            }
            self.put(at, higher);
            at = above(at);
        }
        self.put(at, entry);
    }

    /// Lets the gap at `at` change places with the smallest below it, down to where nothing is below; where that is.
    #[inline(always)]
    fn sink_gap(&mut self, at: usize) -> usize {
        let (heap, place) = (self.heap.as_mut_slice(), self.place.as_mut_slice());
        // As a seat's number is, so that what is below cannot overflow.
        let mut at = at as u32;
        loop {
            let below = FAN * at as usize + 1;
            let (least, entry) = match heap.get(below..below + FAN).and_then(<[_]>::first_chunk) {
                Some(children) => least_of_all(children),
                // Below the few that stand last there is nothing: the next round ends it.
                None => match heap.get(below..).and_then(least_of_few) {
                    Some(least) => least,
                    None => return at as usize,
                },
            };
            heap[at as usize] = entry;
            place[entry.1 as usize] = at;
            at = (below + least) as u32;
        }
    }

    #[inline]
    fn put(&mut self, at: usize, entry: (K, u32)) {
        self.heap[at] = entry;
        self.place[entry.1 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::virtual_time::VirtualTime;
    use proptest::prelude::*;

    const SEATS: u32 = 40;

    #[derive(Clone, Debug)]
    enum Op {
        Insert { seat: u32, distance: u64 },
        Remove { seat: u32 },
        RemoveFirst,
    }

    fn an_op() -> impl Strategy<Value = Op> {
        // Few distances, so that keys are often equal.
        let distance = prop_oneof![0u64..4, 0u64..1 << 40];
        // About as many come as go once there are too many to be few, so that they are both again and again.
        prop_oneof![
            4 => (0..SEATS, distance).prop_map(|(seat, distance)| Op::Insert { seat, distance }),
            1 => (0..SEATS).prop_map(|seat| Op::Remove { seat }),
            2 => Just(Op::RemoveFirst),
        ]
    }

    fn check(heap: &SeatHeap<VirtualTime>, list: &[(VirtualTime, u32)]) {
        let first = list.iter().map(|(key, _)| *key).reduce(VirtualTime::earlier);
        assert_eq!(heap.peek().map(|(key, _)| *key), first);
        for seat in 0..SEATS {
            let listed = list.iter().find(|(_, listed)| *listed == seat).map(|(key, _)| *key);
            assert_eq!(heap.key(seat), listed);
            assert_eq!(heap.contains(seat), listed.is_some());
        }
        assert_eq!(heap.len(), list.len());
        assert!(heap.few.is_empty() || heap.heap.is_empty());
        for (at, (key, seat)) in heap.heap.iter().enumerate() {
            assert_eq!(heap.place[*seat as usize], at as u32);
            assert!(
                at == 0 || !key.is_before(&heap.heap[above(at)].0),
                "seat {seat} precedes what is above it"
            );
        }
    }

    proptest! {
        #[test]
        fn the_heap_finds_what_a_search_of_a_list_finds(ops in prop::collection::vec(an_op(), 1..300)) {
            let mut heap = SeatHeap::new();
            heap.reserve(SEATS as usize).expect("a few seats fit");
            let room = (heap.heap.capacity(), heap.place.capacity());
            let mut list: Vec<(VirtualTime, u32)> = Vec::new();
            for op in ops {
                match op {
                    Op::Insert { seat, distance } if !heap.contains(seat) => {
                        // Keys on both sides of the wrap.
                        let key = VirtualTime(u64::MAX - 2).plus(distance);
                        heap.insert(seat, key);
                        list.push((key, seat));
                    }
                    Op::Insert { .. } => {}
                    Op::Remove { seat } => {
                        assert_eq!(heap.remove(seat), list.iter().any(|(_, listed)| *listed == seat));
                        list.retain(|(_, listed)| *listed != seat);
                    }
                    Op::RemoveFirst => {
                        let first = heap.peek().map(|(_, seat)| *seat);
                        heap.remove_first();
                        list.retain(|(_, listed)| Some(*listed) != first);
                    }
                }
                check(&heap, &list);
            }
            while let Some((_, first)) = heap.peek().copied() {
                heap.remove_first();
                list.retain(|(_, listed)| *listed != first);
                check(&heap, &list);
            }
            assert!(list.is_empty());
            assert_eq!((heap.heap.capacity(), heap.place.capacity()), room);
        }
    }
}
