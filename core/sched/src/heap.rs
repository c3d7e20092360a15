//! A binary heap of seats, smallest key first, from which any seat can be taken in O(log n).
//!
//! Conserved: `place[seat]` is where `seat` stands in `heap`, for exactly the seats that are in it. Neither table
//! grows beyond what [`SeatHeap::reserve`] has set aside.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

const ABSENT: u32 = u32::MAX;

/// A key with a strict order. Not `Ord`, since virtual instants wrap.
pub(crate) trait HeapKey: Copy {
    fn is_before(&self, other: &Self) -> bool;
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
        self.heap.push((key, seat));
        self.place[seat as usize] = self.heap.len() as u32 - 1;
        self.rise(self.heap.len() - 1);
    }

    /// Takes `seat` out; whether it was there.
    pub(crate) fn remove(&mut self, seat: u32) -> bool {
        if !self.contains(seat) {
            return false;
        }
        let at = self.place[seat as usize] as usize;
        self.place[seat as usize] = ABSENT;
        self.heap.swap_remove(at);
        if at < self.heap.len() {
            self.place[self.heap[at].1 as usize] = at as u32;
            self.rise(at);
            self.sink(at);
        }
        true
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 {
            let above = (at - 1) / 2;
            if !self.heap[at].0.is_before(&self.heap[above].0) {
                return;
            }
            self.swap(at, above);
            at = above;
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let mut least = at;
            for below in [2 * at + 1, 2 * at + 2] {
                if below < self.heap.len() && self.heap[below].0.is_before(&self.heap[least].0) {
                    least = below;
                }
            }
            if least == at {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.place[self.heap[a].1 as usize] = a as u32;
        self.place[self.heap[b].1 as usize] = b as u32;
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
                at == 0 || !key.is_before(&heap.heap[(at - 1) / 2].0),
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
                        if let Some(&(_, seat)) = heap.peek() {
                            assert!(heap.remove(seat));
                            list.retain(|(_, listed)| *listed != seat);
                        }
                    }
                }
                check(&heap, &list);
            }
            assert_eq!((heap.heap.capacity(), heap.place.capacity()), room);
        }
    }
}
