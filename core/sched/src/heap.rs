//! A heap of seats, four below one, smallest key first, from which any seat can be taken in O(log n).
//!
//! Conserved: `place[seat]` is where `seat` stands in `heap`, for exactly the seats that are in it. Neither table
//! grows beyond what [`SeatHeap::reserve`] has set aside.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::hint::select_unpredictable;

const ABSENT: u32 = u32::MAX;

/// How many entries stand below one. Four of them are a cache line.
const FAN: usize = 4;

/// Where the entry above `at`, which is not the first, stands.
#[inline]
fn above(at: usize) -> usize {
    (at - 1) / FAN
}

/// A key with a strict order. Not `Ord`, since virtual instants wrap.
pub(crate) trait HeapKey: Copy {
    fn is_before(&self, other: &Self) -> bool;
}

/// Which entry comes first, found without a branch: no guess about it would be better than a coin.
#[inline]
fn least_of_all<K: HeapKey>(entries: &[(K, u32); FAN]) -> (usize, (K, u32)) {
    let left = usize::from(entries[1].0.is_before(&entries[0].0));
    let right = 2 + usize::from(entries[3].0.is_before(&entries[2].0));
    let least = select_unpredictable(entries[right].0.is_before(&entries[left].0), right, left);
    (least, entries[least])
}

/// The same of fewer, of which there may be none.
#[inline]
fn least_of_few<K: HeapKey>(entries: &[(K, u32)]) -> Option<(usize, (K, u32))> {
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
    heap: Vec<(K, u32)>,
    place: Vec<u32>,
}

impl<K: HeapKey> SeatHeap<K> {
    pub(crate) const fn new() -> Self {
        Self { heap: Vec::new(), place: Vec::new() }
    }

    /// Sets room for `seats` seats aside.
    pub(crate) fn reserve(&mut self, seats: usize) -> Result<(), TryReserveError> {
        self.heap.try_reserve_exact(seats.saturating_sub(self.heap.len()))?;
        self.place.try_reserve_exact(seats.saturating_sub(self.place.len()))
    }

    /// The seat with the smallest key.
    pub(crate) fn peek(&self) -> Option<&(K, u32)> {
        self.heap.first()
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// All seats, in no order.
    pub(crate) fn seats(&self) -> impl Iterator<Item = u32> + '_ {
        self.heap.iter().map(|(_, seat)| *seat)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    pub(crate) fn contains(&self, seat: u32) -> bool {
        self.place.get(seat as usize).is_some_and(|place| *place != ABSENT)
    }

    /// The key that `seat` is in the heap with.
    pub(crate) fn key(&self, seat: u32) -> Option<K> {
        let place = *self.place.get(seat as usize)?;
        self.heap.get(place as usize).map(|(key, _)| *key)
    }

    pub(crate) fn insert(&mut self, seat: u32, key: K) {
        debug_assert!(!self.contains(seat), "seat {seat} is in the heap already");
        while self.place.len() <= seat as usize {
            self.place.push(ABSENT);
        }
        let entry = (key, seat);
        self.heap.push(entry);
        self.rise(self.heap.len() - 1, entry);
    }

    /// Takes `seat` out; whether it was there.
    pub(crate) fn remove(&mut self, seat: u32) -> bool {
        let Some(place) = self.place.get_mut(seat as usize) else { return false };
        let at = core::mem::replace(place, ABSENT);
        if at == ABSENT {
            return false;
        }
        self.fill(at as usize);
        true
    }

    /// Takes the seat with the smallest key out.
    #[inline]
    pub(crate) fn remove_first(&mut self) {
        let Some(&(_, seat)) = self.heap.first() else { return };
        self.place[seat as usize] = ABSENT;
        if let Some(last) = self.heap.pop()
            && !self.heap.is_empty()
        {
            let bottom = self.sink_gap(0);
            self.rise(bottom, last);
        }
    }

    /// What stands at `at` has gone: the last entry takes its place, and goes where it belongs from there.
    fn fill(&mut self, at: usize) {
        let Some(last) = self.heap.pop() else { return };
        if at == self.heap.len() {
            return;
        }
        // The last entry seldom belongs far from the bottom. So the gap goes all the way down first, which needs no
        // decision that could be guessed wrong, and the entry comes up from there.
        let bottom = if at > 0 && last.0.is_before(&self.heap[above(at)].0) { at } else { self.sink_gap(at) };
        self.rise(bottom, last);
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
    #[inline]
    fn sink_gap(&mut self, mut at: usize) -> usize {
        let (heap, place) = (self.heap.as_mut_slice(), self.place.as_mut_slice());
        loop {
            let below = FAN * at + 1;
            let Some(children) = heap.get(below..) else { return at };
            let (least, entry) = match children.first_chunk::<FAN>() {
                Some(children) => least_of_all(children),
                None => match least_of_few(children) {
                    Some(least) => least,
                    None => return at,
                },
            };
            heap[at] = entry;
            place[entry.1 as usize] = at as u32;
            at = below + least;
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
        prop_oneof![
            3 => (0..SEATS, distance).prop_map(|(seat, distance)| Op::Insert { seat, distance }),
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
            assert_eq!((heap.heap.capacity(), heap.place.capacity()), room);
        }
    }
}
