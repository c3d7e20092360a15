//! Which thread is queued where, and which is next. [The queue](super) states the rules.
//!
//! Conserved: `queued` counts every queued thread, and an entry's `place` says where it stands. A thread that may run
//! anywhere stands among the few unless the queue is long, and in a bucket or in the open tree if it is.

use super::entry::QueuedIn;
use super::{Ask, FairQueue, GRACE_UNITS, Tag};
use crate::hint::unlikely;
use crate::small_sorted::{Rank, SMALL};
use crate::virtual_time::{VirtualTime, span};
use mainspring_abi::{Nanos, Policy};

/// A queue that has shrunk to this is short again. Well below what makes it long, so that it does not go to and fro.
const FEW_AGAIN: u32 = SMALL as u32 / 2;

impl FairQueue {
    /// Queues `seat`; the tags it got.
    #[inline(always)]
    pub(crate) fn enqueue(&mut self, seat: u32, ask: &Ask) -> Tag {
        let entry = &mut self.nodes.entries[seat];
        let key = entry.begin_to_wait(ask, span(ask.request, entry.weight));
        self.queued += 1;
        if unlikely(self.long || ask.reach.is_some()) {
            self.enqueue_among_many(seat, ask.reach);
        } else {
            entry.place = QueuedIn::SmallSorted;
            if unlikely(!self.few.insert(seat, key)) {
                self.become_long(seat);
            }
        }
        Tag { start: key.start, deadline: key.deadline }
    }

    /// Queues `seat`, which may run anywhere and has just been charged for `ran`, moving it by `moved`; takes out the thread
    /// to run next, which is the same or another, and says how many were queued between the two.
    #[inline(always)]
    pub(crate) fn exchange(&mut self, seat: u32, ask: &Ask, ran: Nanos, moved: u64) -> (u32, Option<u32>) {
        let entry = &mut self.nodes.entries[seat];
        // Mostly it ran for just its request, and the division is done.
        let length = if ran == ask.request { moved } else { span(ask.request, entry.weight) };
        entry.begin_to_wait(ask, length);
        self.queued += 1;
        let queued = self.queued;
        if !self.long {
            return (queued, self.exchange_among_few(seat));
        }
        self.put_among_many(seat);
        (queued, self.take_of_many())
    }

    #[inline(never)]
    fn exchange_among_few(&mut self, seat: u32) -> Option<u32> {
        let entry = &mut self.nodes.entries[seat];
        entry.place = QueuedIn::SmallSorted;
        if !self.few.insert(seat, entry.key()) {
            self.become_long(seat);
        }
        self.take_next()
    }

    #[inline(never)]
    fn enqueue_among_many(&mut self, seat: u32, reach: Option<u64>) {
        if reach.is_some() {
            let priority = self.draw();
            self.put_in_tree(seat, reach, priority);
        } else {
            self.put_among_many(seat);
        }
    }

    #[inline(always)]
    fn put_among_many(&mut self, seat: u32) {
        let priority = self.draw();
        if !self.buckets.insert(&mut self.nodes.entries, seat, priority) {
            self.put_in_tree(seat, None, priority);
        }
    }

    /// With `seat` there are too many to be few.
    #[inline(never)]
    fn become_long(&mut self, seat: u32) {
        self.long = true;
        let mut next = Some(seat);
        while let Some(seat) = next {
            self.put_among_many(seat);
            next = self.few.take_first().map(|(_, seat)| seat);
        }
    }

    /// The queue, which is long, has shrunk to a few.
    #[inline(never)]
    fn become_short(&mut self) {
        while let Some(seat) = self.first_open() {
            self.take_out(seat);
            let entry = &mut self.nodes.entries[seat];
            entry.place = QueuedIn::SmallSorted;
            let fits = self.few.insert(seat, entry.key());
            debug_assert!(fits, "fewer than few");
        }
        self.long = false;
    }

    #[inline(never)]
    fn put_in_tree(&mut self, seat: u32, reach: Option<u64>, priority: u32) {
        self.queued_in_trees += 1;
        let key = self.nodes.entries[seat].key();
        if let Some(reach) = reach {
            self.nodes.entries[seat].place = QueuedIn::Bound;
            self.bound.insert(&mut self.nodes, seat, key, reach, priority);
        } else {
            self.nodes.entries[seat].place = QueuedIn::Open;
            self.open.insert(&mut self.nodes, seat, key, 0, priority);
        }
    }

    pub(crate) fn dequeue(&mut self, seat: u32) {
        self.take_out(seat);
        self.note_shrunk();
    }

    #[inline]
    fn note_shrunk(&mut self) {
        self.queued -= 1;
        if self.long && self.queued <= FEW_AGAIN {
            self.become_short();
        }
    }

    /// Takes `seat` out of whatever it is queued in.
    fn take_out(&mut self, seat: u32) {
        let entry = &mut self.nodes.entries[seat];
        match core::mem::replace(&mut entry.place, QueuedIn::Out) {
            QueuedIn::SmallSorted => {
                self.few.take(|(_, one)| *one == seat);
            }
            QueuedIn::SpanBucket => self.buckets.remove(&mut self.nodes.entries, seat),
            QueuedIn::Open => {
                self.queued_in_trees -= 1;
                self.open.remove(&mut self.nodes, seat);
            }
            QueuedIn::Bound => {
                self.queued_in_trees -= 1;
                self.bound.remove(&mut self.nodes, seat);
            }
            QueuedIn::Out | QueuedIn::Debt => debug_assert!(false, "not queued"),
        }
    }

    /// Takes the thread to run next out. Moves the clock if every queued thread is ahead of it.
    #[inline(always)]
    pub(crate) fn take_next(&mut self) -> Option<u32> {
        if unlikely(self.long || self.queued_in_trees != 0) {
            return self.take_next_of_many();
        }
        let (reached, any) = (self.reached(), self.policy == Policy::Wfq);
        let Some((key, seat)) = self.few.take(|(key, _)| any || !reached.is_before(key.start)) else {
            return self.take_next_of_all();
        };
        self.queued -= 1;
        self.nodes.entries[seat].place = QueuedIn::Out;
        if unlikely(reached.is_before(key.start)) {
            self.pull_clock(seat);
        }
        Some(seat)
    }

    #[inline(never)]
    fn take_next_of_many(&mut self) -> Option<u32> {
        if self.long { self.take_of_many() } else { self.take_next_of_all() }
    }

    /// [`FairQueue::take_next`] of a queue that is long.
    #[inline(always)]
    fn take_of_many(&mut self) -> Option<u32> {
        if self.queued_in_trees != 0 {
            return self.take_next_of_all();
        }
        let reached = self.reached();
        let taken = match self.policy {
            Policy::Eevdf => self.buckets.take_first_started(&mut self.nodes.entries, reached),
            Policy::Wfq => self.buckets.take_first(&mut self.nodes.entries),
        };
        let Some((seat, start)) = taken else { return self.take_next_of_all() };
        if reached.is_before(start) && self.buckets.first_started(reached).is_none() {
            self.pull_clock(seat);
        }
        self.note_shrunk();
        Some(seat)
    }

    #[inline(never)]
    fn take_next_of_all(&mut self) -> Option<u32> {
        let seat = match self.first_eligible() {
            Some(seat) => seat,
            None => {
                self.jump_to(self.earliest_start()?);
                self.first_eligible()?
            }
        };
        self.dequeue(seat);
        if self.reached().is_before(self.nodes.entries[seat].start) {
            self.pull_clock(seat);
        }
        Some(seat)
    }

    /// `seat` was taken although its start has not come, as WFQ does. If no thread's start has come, the clock is
    /// behind them all.
    #[cold]
    fn pull_clock(&mut self, seat: u32) {
        let start = self.nodes.entries[seat].start;
        let earliest = self.earliest_start().map_or(start, |other| other.earlier(start));
        if self.reached().is_before(earliest) {
            self.jump_to(earliest);
        }
    }

    /// No thread is queued, and the running thread is at a request that began at `start`: the clock is there
    /// at least.
    pub(crate) fn catch_up(&mut self, start: VirtualTime) {
        if self.reached().is_before(start) {
            self.jump_to(start);
        }
    }

    fn jump_to(&mut self, start: VirtualTime) {
        self.clock = start;
        self.remainder = 0;
    }

    fn earliest_start(&self) -> Option<VirtualTime> {
        let starts = [
            self.few.iter().map(|(key, _)| key.start).reduce(VirtualTime::earlier),
            self.buckets.earliest_start(),
            self.open.earliest_start(&self.nodes),
            self.bound.earliest_start(&self.nodes),
        ];
        starts.into_iter().flatten().reduce(VirtualTime::earlier)
    }

    /// The first queued thread whose start has come; under WFQ the first of all.
    pub(crate) fn first_eligible(&self) -> Option<u32> {
        let reached = self.reached();
        let [open, bound] = match self.policy {
            Policy::Eevdf => {
                [self.first_open_started(reached), self.bound.first_started(&self.nodes, reached)]
            }
            Policy::Wfq => [self.first_open(), self.bound.first(&self.nodes)],
        };
        self.sooner(open, bound)
    }

    /// The first queued thread that may run anywhere and whose start is not after `reached`.
    #[inline]
    fn first_open_started(&self, reached: VirtualTime) -> Option<u32> {
        if !self.long {
            return self.few.iter().find(|(key, _)| !reached.is_before(key.start)).map(|(_, seat)| *seat);
        }
        self.sooner(self.buckets.first_started(reached), self.open.first_started(&self.nodes, reached))
    }

    /// The latest start that counts as come.
    #[inline]
    pub(super) fn reached(&self) -> VirtualTime {
        self.clock.plus(GRACE_UNITS)
    }

    pub(super) fn sooner(&self, a: Option<u32>, b: Option<u32>) -> Option<u32> {
        match (a, b) {
            (Some(x), Some(y)) if self.precedes(y, x) => Some(y),
            (Some(x), _) => Some(x),
            (None, y) => y,
        }
    }

    /// Whether `a` stands before `b` in the queue's order.
    pub(crate) fn precedes(&self, a: u32, b: u32) -> bool {
        self.nodes.entries[a].key().is_before(&self.nodes.entries[b].key())
    }

    /// The first queued thread, taken out, if its start has come: a thread that is owed service, under either
    /// policy.
    pub(crate) fn take_next_if_owed(&mut self) -> Option<u32> {
        let seat = self.first_eligible().filter(|seat| self.has_started(self.nodes.entries[*seat].start))?;
        self.dequeue(seat);
        Some(seat)
    }

    /// Whether the clock has come to `start`.
    pub(crate) fn has_started(&self, start: VirtualTime) -> bool {
        !self.reached().is_before(start)
    }

    /// Whether a request with that start may be chosen: once it has started, and under WFQ at any time.
    pub(crate) fn has_reached(&self, start: VirtualTime) -> bool {
        self.policy == Policy::Wfq || !self.reached().is_before(start)
    }

    /// The first queued thread that may run anywhere, for a thief.
    #[inline]
    pub(crate) fn first_open(&self) -> Option<u32> {
        if !self.long {
            return self.few.first().map(|(_, seat)| *seat);
        }
        self.sooner(self.buckets.first(), self.open.first(&self.nodes))
    }

    /// The first queued thread that is bound to some CPUs and that `accept` takes, for a thief.
    pub(crate) fn first_bound(&self, thief_bit: u64, accept: &impl Fn(u32) -> bool) -> Option<u32> {
        self.bound.first_reaching(&self.nodes, thief_bit, accept)
    }

    /// Where the bound threads may go, folded.
    pub(crate) fn bound_reach(&self) -> u64 {
        self.bound.reach(&self.nodes)
    }

    /// The upper half of a linear congruential generator: enough for a treap's balance.
    #[inline]
    fn draw(&mut self) -> u32 {
        self.shape = self.shape.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.shape >> 32) as u32
    }
}
