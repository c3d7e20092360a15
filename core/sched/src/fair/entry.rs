//! One seat's part in the fair queue: where its thread stands, the tags it is queued with, and its links.
//!
//! All of it is one cache line, so that queueing a thread touches one line of its own and one of each neighbour. A
//! entry is in at most one of the queue's structures at a time, and `place` says in which; those that link entries share its
//! links.

use super::Ask;
use crate::hint::likely;
use crate::small_sorted::Rank;
use crate::virtual_time::{VirtualTime, span};
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};
use mainspring_abi::{Nanos, Weight};

/// No seat.
pub(crate) const NIL: u32 = u32::MAX;

pub(crate) const LEFT: usize = 0;
pub(crate) const RIGHT: usize = 1;

/// Which structure holds an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueuedIn {
    /// None.
    Out,
    /// The few that are queued.
    SmallSorted,
    /// The bucket that the entry names.
    SpanBucket,
    /// The tree of threads that may run anywhere but found no bucket.
    Open,
    /// The tree of threads that may run on some CPUs only.
    Bound,
    /// The debtors: it sleeps, and still competes.
    Debt,
}

/// What orders a queued thread: earlier deadline, then later start, then lower thread index.
// Packed, so that with its seat it takes twenty-four bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, packed(4))]
pub(crate) struct Key {
    pub deadline: VirtualTime,
    pub start: VirtualTime,
    pub thread_index: u32,
}

const _: () = assert!(size_of::<(Key, u32)>() == 24);

impl Rank for Key {
    const NONE: Self = Self { deadline: VirtualTime::ZERO, start: VirtualTime::ZERO, thread_index: 0 };

    #[inline]
    fn is_before(&self, other: &Self) -> bool {
        let sooner = self.deadline.since(other.deadline);
        if sooner != 0 {
            return sooner < 0;
        }
        let started = self.start.since(other.start);
        if started != 0 { started > 0 } else { self.thread_index < other.thread_index }
    }
}

#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Entry {
    /// Where its service puts the thread on the virtual scale.
    pub position: VirtualTime,
    pub deadline: VirtualTime,
    pub start: VirtualTime,
    /// Earliest start in each part below, in a tree.
    pub earliest: [VirtualTime; 2],
    pub parent: u32,
    pub child: [u32; 2],
    /// A parent's is at least its children's.
    pub priority: u32,
    pub thread_index: u32,
    /// The weight it competes with; its thread may have asked for another since.
    pub weight: Weight,
    pub place: QueuedIn,
    /// The bucket it is in, or was last.
    pub bucket: u8,
}

const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    /// An entry that is not queued.
    pub(crate) const fn new(position: VirtualTime, weight: Weight) -> Self {
        Self {
            position,
            deadline: position,
            start: position,
            earliest: [position; 2],
            parent: NIL,
            child: [NIL; 2],
            priority: 0,
            thread_index: 0,
            weight,
            place: QueuedIn::Out,
            bucket: 0,
        }
    }

    /// When the request in progress started. The thread has used `used` of it.
    #[inline]
    pub(crate) fn started(&self, used: Nanos) -> VirtualTime {
        if likely(used.is_zero()) { self.position } else { self.position.minus(span(used, self.weight)) }
    }

    /// Gives the thread, which is about to be queued, the tags of what it asks for, which moves it by `length`.
    #[inline]
    pub(crate) fn begin_to_wait(&mut self, ask: &Ask, length: u64) -> Key {
        debug_assert_eq!(self.place, QueuedIn::Out, "queued twice");
        self.start = self.started(ask.used);
        self.deadline = self.start.plus(length);
        self.thread_index = ask.thread_index;
        debug_assert!(!self.deadline.is_before(self.position), "due in the past");
        self.key()
    }

    #[inline]
    pub(crate) fn key(&self) -> Key {
        Key { deadline: self.deadline, start: self.start, thread_index: self.thread_index }
    }

    /// Whether it stands before `key`, which has the same span, so that equal deadlines are equal starts.
    #[inline]
    pub(crate) fn is_before_in_bucket(&self, key: &Key) -> bool {
        let sooner = self.deadline.since(key.deadline);
        sooner < 0 || (sooner == 0 && self.thread_index < key.thread_index)
    }
}

/// The entries of all seats of one CPU, by seat.
#[derive(Debug, Default)]
pub(crate) struct Entries(Vec<Entry>);

impl Entries {
    pub(crate) fn reserve(&mut self, seats: usize) -> Result<(), TryReserveError> {
        self.0.try_reserve_exact(seats.saturating_sub(self.0.len()))
    }

    /// Puts `entry` at `seat`, within what was reserved.
    pub(crate) fn put(&mut self, seat: u32, entry: Entry) {
        while self.0.len() <= seat as usize {
            self.0.push(entry.clone());
        }
        self[seat] = entry;
    }

    #[inline]
    pub(crate) fn get(&self, seat: u32) -> Option<&Entry> {
        self.0.get(seat as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, seat: u32) -> Option<&mut Entry> {
        self.0.get_mut(seat as usize)
    }

    /// How many entries are at `place`, for observers.
    pub(crate) fn count(&self, place: QueuedIn) -> usize {
        self.0.iter().filter(|entry| entry.place == place).count()
    }

    /// On which side of `parent` the entry hangs.
    #[inline]
    pub(crate) fn side_of(&self, parent: u32, seat: u32) -> usize {
        self.get(parent).map_or(LEFT, |above| usize::from(above.child[RIGHT] == seat))
    }

    /// The outermost entry of the part at `at`, on `side`.
    #[inline]
    pub(crate) fn outermost(&self, mut at: u32, side: usize) -> u32 {
        while self[at].child[side] != NIL {
            at = self[at].child[side];
        }
        at
    }

    /// The next entry in order, towards `side`; [`NIL`] after the last.
    #[inline]
    pub(crate) fn neighbour(&self, seat: u32, side: usize) -> u32 {
        let below = self[seat].child[side];
        if below != NIL {
            return self.outermost(below, 1 - side);
        }
        let (mut at, mut above) = (seat, self[seat].parent);
        while above != NIL && self[above].child[side] == at {
            (at, above) = (above, self[above].parent);
        }
        above
    }

    /// All entries of the part at `root` in order, for observers.
    pub(crate) fn in_order(&self, root: u32, visit: &mut impl FnMut(u32)) {
        if root == NIL {
            return;
        }
        let (mut at, last) = (self.outermost(root, LEFT), self.outermost(root, RIGHT));
        visit(at);
        while at != last {
            at = self.neighbour(at, RIGHT);
            visit(at);
        }
    }

    /// Checks links, order and priorities of the part at `root`; its entries in order.
    pub(crate) fn verify(&self, root: u32) -> Result<Vec<u32>, &'static str> {
        let mut seats = Vec::new();
        self.in_order(root, &mut |seat| seats.push(seat));
        if seats.windows(2).any(|pair| !self[pair[0]].key().is_before(&self[pair[1]].key())) {
            return Err("queue out of order");
        }
        for &seat in &seats {
            let entry = &self[seat];
            let below = entry.child.iter().filter_map(|child| self.get(*child));
            for child in below {
                if child.parent != seat {
                    return Err("child names another parent");
                }
                if child.priority > entry.priority {
                    return Err("child outranks parent");
                }
            }
        }
        Ok(seats)
    }
}

impl Index<u32> for Entries {
    type Output = Entry;
    #[inline]
    fn index(&self, seat: u32) -> &Entry {
        &self.0[seat as usize]
    }
}

impl IndexMut<u32> for Entries {
    #[inline]
    fn index_mut(&mut self, seat: u32) -> &mut Entry {
        &mut self.0[seat as usize]
    }
}
