//! Best-effort fairness on one CPU: which thread is owed service, and which runs next.
//!
//! The queue keeps the virtual clock of an ideal fluid CPU that serves all competitors at once, each in proportion
//! to its weight. A thread's *position* is where its own service puts it on the same scale. Clock minus position,
//! times weight, is its *lag*: service owed if positive, had in advance if negative.
//!
//! * EEVDF: a thread may start a request once the clock has reached the request's start, and among those the
//!   earliest virtual deadline runs. Then |lag| stays below one quantum if no request is longer than that.
//! * WFQ: the earliest virtual finish runs, started or not. A thread is then never more than one quantum behind,
//!   but may be ahead by its weight times the longest request of any competitor per weight.
//!
//! Conserved:
//! * `load` is the sum of the weights of all competitors: queued, running, and in debt, asleep or gone.
//! * Debt outlives everything: a thread that stops while it is ahead stays a competitor of the fluid schedule until
//!   the clock has caught up with it, so sleeping, ending, moving or changing weight wipes nothing out.
//! * Credit does not: a thread that sleeps, yields or changes its weight while it is owed gives up what it was owed.
//!   Otherwise many threads could hoard credit and claim it at once, and no bound would hold for the others.
//! * The clock never goes back. It stands still while no thread competes. It jumps to the earliest start when
//!   every queued thread, or a thread that runs alone, is ahead of it: the CPU is never idle with work queued,
//!   and a thread owes nothing for time that no other thread wanted.
//!
//! Tags (start and deadline) are derived from position, weight and request at each enqueue and never kept beyond it.
//! Order: earlier deadline, then later start, then lower thread index.
//!
//! The order compares the tags as they are kept, with [`FRACTION_BITS`](crate::virtual_time::FRACTION_BITS) binary places.
//! Weights that are powers of two are not rounded, so their ties are exact. For other weights each charge may round a position
//! down by less than 2^-20 ns, and tags that are equal in exact arithmetic are then ordered by their rounded values.
//!
//! While there are few, queued threads stand in order in one small array. Many stand in *buckets*, one per length of
//! request, where the usual decision costs the same however many there are. Threads that no bucket is left for, or that are
//! bound to some CPUs, stand in a tree each instead, where it costs O(log n) expected. The choice is the same in any case:
//! the first in order of all that may start.

mod departed_debts;
pub(crate) mod entry;
mod fluid;
mod queue;
mod span_buckets;

use crate::heap::SeatHeap;
use crate::small_sorted::{Rank, SmallSorted};
use crate::tree::{Nodes, Tree};
use crate::virtual_time::{VirtualTime, span};
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use departed_debts::DepartedDebts;
use entry::{Key, QueuedIn};
use mainspring_abi::{LatencyClass, Nanos, Policy, Weight};
use span_buckets::SpanBuckets;

/// The longest service that a thread may ask for at a time.
pub const MAX_REQUEST: Nanos = Nanos::from_secs(10);

/// Divisor of the quantum that gives an interactive thread's request.
const INTERACTIVE_DIVISOR: u64 = 4;

/// A start this little after the clock counts as reached. Rounding of the clock, at most one unit per change of
/// load, would otherwise make a thread wait a whole turn for the last thousandth of a virtual nanosecond.
const GRACE_UNITS: u64 = 1 << 10;

/// How many debtors may leave the fluid schedule at one event. Each event adds at most one, so none piles up; a
/// debtor that stays too long only slows the clock.
pub const DEBTORS_RETIRED_PER_EVENT: usize = 8;

/// The service that a class asks for at a time, unless the thread says otherwise.
#[must_use]
pub fn class_request(class: LatencyClass, quantum: Nanos) -> Nanos {
    match class {
        LatencyClass::Interactive => Nanos::new((quantum.get() / INTERACTIVE_DIVISOR).max(1)),
        LatencyClass::Normal | LatencyClass::Batch => quantum,
    }
}

/// What a thread brings to the queue at each enqueue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub request: Nanos,
    /// Service already had of this request.
    pub used: Nanos,
    pub thread_index: u32,
    /// CPUs it may use, folded; `None` for all.
    pub reach: Option<u64>,
}

/// A queued thread's tags, for observers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// When its request may start.
    pub start: VirtualTime,
    /// When its request is due.
    pub deadline: VirtualTime,
}

impl Rank for VirtualTime {
    const NONE: Self = Self::ZERO;

    #[inline]
    fn is_before(&self, other: &Self) -> bool {
        (*self).is_before(*other)
    }
}

// In this order, and aligned, what every event needs is in the first cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct FairQueue {
    clock: VirtualTime,
    /// Part of a unit that the clock owes, in units times load.
    remainder: u64,
    at: Nanos,
    load: u64,
    debtor_load: u64,
    /// When the first debt is even; says nothing while there is none.
    first_even: VirtualTime,
    queued: u32,
    /// How many of them in one of the trees.
    queued_in_trees: u32,
    policy: Policy,
    /// Whether there are, or were lately, too many to be few.
    long: bool,
    nodes: Nodes,
    /// Threads that may run anywhere, unless the queue is long.
    few: SmallSorted<Key>,
    /// Sleepers that still compete, by the clock time at which they are even.
    debtors: SeatHeap<VirtualTime>,
    /// Debts of threads that have left.
    departed_debts: DepartedDebts,
    /// Threads that may run anywhere, of spans without a bucket, if the queue is long.
    open: Tree<false>,
    /// Threads that may run on some CPUs only.
    bound: Tree<true>,
    shape: u64,
    /// Threads that may run anywhere, if the queue is long and their span has a bucket.
    buckets: SpanBuckets,
}

impl FairQueue {
    /// An empty queue. `shape` seeds the balance of buckets and trees, and nothing else.
    pub(crate) fn new(policy: Policy, shape: u64) -> Self {
        Self {
            policy,
            clock: VirtualTime::default(),
            remainder: 0,
            at: Nanos::ZERO,
            load: 0,
            debtor_load: 0,
            first_even: VirtualTime::ZERO,
            queued: 0,
            queued_in_trees: 0,
            long: false,
            few: SmallSorted::new(),
            nodes: Nodes::default(),
            buckets: SpanBuckets::new(),
            open: Tree::new(),
            bound: Tree::new(),
            debtors: SeatHeap::new(),
            departed_debts: DepartedDebts::default(),
            shape: shape | 1,
        }
    }

    #[cfg(test)]
    pub(crate) fn start_clock_at(&mut self, clock: VirtualTime) {
        self.clock = clock;
    }

    pub(crate) fn reserve(&mut self, seats: usize) -> Result<(), TryReserveError> {
        self.nodes.reserve(seats)?;
        self.departed_debts.reserve(seats)?;
        self.debtors.reserve(seats)
    }

    /// Whether a thread that leaves would make an older debt give way to its own.
    pub(crate) fn is_full_of_debts(&self) -> bool {
        self.departed_debts.is_full()
    }

    /// How many threads are queued.
    pub(crate) fn queued(&self) -> u32 {
        self.queued
    }

    pub(crate) fn clock(&self) -> VirtualTime {
        self.clock
    }

    pub(crate) fn load(&self) -> u64 {
        self.load
    }

    /// The tags of a request that `seat` has used some of, as if it had been charged for `ran` more.
    #[inline(always)]
    pub(crate) fn tag(&self, seat: u32, request: Nanos, used: Nanos, ran: Nanos) -> Tag {
        let entry = &self.nodes.entries[seat];
        // A thread that is at its first request since it was queued has used just what it ran.
        let start =
            if used == ran { entry.position } else { entry.started(used).plus(span(ran, entry.weight)) };
        Tag { start, deadline: start.plus(span(request, entry.weight)) }
    }

    /// The tags that `seat` is queued with.
    pub(crate) fn queued_tag(&self, seat: u32) -> Tag {
        let entry = &self.nodes.entries[seat];
        Tag { start: entry.start, deadline: entry.deadline }
    }

    /// The weight that `seat` competes with.
    #[inline]
    pub(crate) fn weight(&self, seat: u32) -> Weight {
        self.nodes.entries[seat].weight
    }

    /// All queued seats in the queue's order, for observers.
    pub(crate) fn in_order(&self) -> Vec<u32> {
        let mut seats: Vec<u32> = self.few.iter().map(|(_, seat)| *seat).collect();
        self.buckets.visit(&self.nodes.entries, &mut |seat| seats.push(seat));
        self.open.in_order(&self.nodes, &mut |seat| seats.push(seat));
        self.bound.in_order(&self.nodes, &mut |seat| seats.push(seat));
        seats.sort_by(|a, b| {
            if self.precedes(*a, *b) { core::cmp::Ordering::Less } else { core::cmp::Ordering::Greater }
        });
        seats
    }

    /// Checks debts, and what the header promises of the trees; `Err` says what does not hold.
    pub(crate) fn verify(&self) -> Result<(), &'static str> {
        if self.next_even().is_some_and(|(even, _)| even != self.first_even) {
            return Err("the first debt is not the one that is even first");
        }
        let in_open = self.open.verify(&self.nodes)?;
        let in_trees = in_open + self.bound.verify(&self.nodes)?;
        let in_buckets = self.buckets.verify(&self.nodes.entries)?;
        self.verify_inline()?;
        self.verify_debtors()?;
        let misplaced = if self.long { self.few.len() } else { in_buckets + in_open };
        if misplaced != 0 {
            return Err("a queue is long and short at once");
        }
        let counted = (self.few.len() + in_buckets + in_trees, in_trees);
        if counted == (self.queued as usize, self.queued_in_trees as usize) {
            Ok(())
        } else {
            Err("queued threads miscounted")
        }
    }

    fn verify_debtors(&self) -> Result<(), &'static str> {
        let entries = &self.nodes.entries;
        let owes = |seat: u32| {
            entries[seat].place == QueuedIn::Debt && self.debtors.key(seat) == Some(entries[seat].position)
        };
        if !self.debtors.seats().all(owes) || self.debtors.len() != entries.count(QueuedIn::Debt) {
            return Err("a debtor's entry says otherwise");
        }
        Ok(())
    }

    fn verify_inline(&self) -> Result<(), &'static str> {
        let entries = &self.nodes.entries;
        if self
            .few
            .iter()
            .any(|(key, seat)| entries[*seat].key() != *key || entries[*seat].place != QueuedIn::SmallSorted)
        {
            return Err("one of the few has other tags in its entry");
        }
        if self.few.iter().zip(self.few.iter().skip(1)).any(|(one, next)| !one.0.is_before(&next.0)) {
            return Err("the few are out of order");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
