//! Best-effort fairness on one CPU: who is owed service, and who runs next.
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
//! * The clock never goes back. It stands still while nobody competes, and jumps to the earliest start when
//!   everybody queued, or the only one who runs, is ahead of it: the CPU is never idle with work queued, and what
//!   nobody else wants is given, not lent.
//!
//! Tags (start and deadline) are derived from position, weight and request at each enqueue and never kept beyond it.
//! Ties: earlier deadline, then later start, then lower thread index.
//!
//! Queued threads stand in *lanes*, one per length of request, where the usual decision costs the same however many
//! there are. Threads that no lane is left for, or that are bound to some CPUs, stand in a tree each instead, where it
//! costs O(log n) expected. Who runs is the same either way: the first in order of all that may start.

mod estate;
mod lanes;
pub(crate) mod row;

use crate::heap::{HeapKey, SeatHeap};
use crate::tree::{Nodes, Tree};
use crate::virtual_time::{Lag, NARROW_BITS, UNITS_AT_WEIGHT_ONE, VirtualTime, span};
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use estate::{Debt, Estate};
use lanes::Lanes;
use mainspring_abi::{LatencyClass, Nanos, Policy, Weight};
use row::{Key, Place, Row};

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

/// A queued thread's tags, for those who look on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// When its request may start.
    pub start: VirtualTime,
    /// When its request is due.
    pub deadline: VirtualTime,
}

impl HeapKey for VirtualTime {
    #[inline]
    fn is_before(&self, other: &Self) -> bool {
        (*self).is_before(*other)
    }
}

/// When the request in progress started, of which the thread has `used` some.
#[inline]
fn started(row: &Row, used: Nanos) -> VirtualTime {
    if used.is_zero() { row.position } else { row.position.minus(span(used, row.weight)) }
}

// In this order, what every event needs comes first.
#[derive(Debug)]
#[repr(C)]
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
    shape: u64,
    policy: Policy,
    nodes: Nodes,
    /// Sleepers that still compete, by the clock time at which they are even.
    debtors: SeatHeap<VirtualTime>,
    /// Debts of threads that have left.
    estate: Estate,
    /// Threads that may run anywhere, of spans without a lane.
    open: Tree<false>,
    /// Threads that may run on some CPUs only.
    bound: Tree<true>,
    /// Threads that may run anywhere, if their span has a lane.
    lanes: Lanes,
}

impl FairQueue {
    /// An empty queue. `shape` seeds the balance of lanes and trees, and nothing else.
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
            nodes: Nodes::default(),
            lanes: Lanes::new(),
            open: Tree::new(),
            bound: Tree::new(),
            debtors: SeatHeap::new(),
            estate: Estate::default(),
            shape: shape | 1,
        }
    }

    #[cfg(test)]
    pub(crate) fn start_clock_at(&mut self, clock: VirtualTime) {
        self.clock = clock;
    }

    pub(crate) fn reserve(&mut self, seats: usize) -> Result<(), TryReserveError> {
        self.nodes.reserve(seats)?;
        self.estate.reserve(seats)?;
        self.debtors.reserve(seats)
    }

    /// Whether a thread that leaves would make an older debt give way to its own.
    pub(crate) fn is_full_of_debts(&self) -> bool {
        self.estate.is_full()
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
        if elapsed.get() >> NARROW_BITS == 0 && self.load != 0 {
            let service = elapsed.get() * UNITS_AT_WEIGHT_ONE + self.remainder;
            let moved = service / self.load;
            let distance = self.first_even.since(self.clock).max(0) as u64;
            if self.debtor_load == 0 || moved < distance {
                self.clock = self.clock.plus(moved);
                self.remainder = service % self.load;
                return;
            }
        }
        self.advance_past_debtors(elapsed);
    }

    /// The general case: debtors come even on the way, nobody competes, or minutes have passed.
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

    /// The debt that is even first, and whose it is: a sleeper's, or that of one who has left.
    fn next_even(&self) -> Option<(VirtualTime, Option<u32>)> {
        let asleep = self.debtors.peek().map(|(even, seat)| (*even, Some(*seat)));
        let left = self.estate.first().map(|debt| (debt.even, None));
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
                self.nodes.rows[seat].weight
            }
            None => match self.estate.pop() {
                Some(debt) => debt.weight,
                None => return,
            },
        };
        self.forgive(weight);
    }

    /// A debtor's weight competes no longer; its debt has been taken out.
    fn forgive(&mut self, weight: Weight) {
        self.debtor_load -= u64::from(weight.get());
        self.unload(weight);
        self.find_first_even();
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

    /// Makes `seat` a competitor with the lag it brings along. Credit counts only against somebody who could owe it.
    pub(crate) fn join(&mut self, seat: u32, lag: Lag, weight: Weight) {
        let alone = self.load == self.debtor_load;
        let lag = if alone { lag.debt_only() } else { lag };
        self.nodes.put(seat, Row::new(lag.position(self.clock, weight), weight));
        self.add_load(weight);
    }

    /// `seat` leaves, asleep or awake but not queued, with what it is owed or owes. A debt stays behind as well: its
    /// competitors here have been made to wait, whether or not the thread waits elsewhere in turn.
    pub(crate) fn leave(&mut self, seat: u32, asleep: bool) -> Lag {
        let Row { position, weight, .. } = self.nodes.rows[seat];
        let lag = if asleep { self.lag_asleep(seat) } else { self.lag(seat) };
        let counted = asleep && self.debtors.remove(seat);
        if self.clock.is_before(position) && (counted || !asleep) {
            self.debtor_load += if counted { 0 } else { u64::from(weight.get()) };
            if let Some(forgiven) = self.estate.push(Debt { even: position, weight }) {
                self.forgive(forgiven.weight);
            }
            self.find_first_even();
        } else if counted {
            self.forgive(weight);
        } else if !asleep {
            self.unload(weight);
        }
        lag
    }

    /// `seat` stops competing for now: credit is gone, debt stays until it is even.
    #[inline]
    pub(crate) fn sleep(&mut self, seat: u32) {
        let Row { position, weight, .. } = self.nodes.rows[seat];
        if self.clock.is_before(position) {
            self.debtor_load += u64::from(weight.get());
            self.debtors.insert(seat, position);
            self.find_first_even();
        } else {
            self.unload(weight);
        }
    }

    /// `seat` competes again, with `weight`.
    #[inline]
    pub(crate) fn wake(&mut self, seat: u32, weight: Weight) {
        if self.debtors.remove(seat) {
            self.forgive(self.nodes.rows[seat].weight);
            self.nodes.rows[seat].position = self.nodes.rows[seat].position.later(self.clock);
            if weight != self.nodes.rows[seat].weight {
                self.nodes.rows[seat].position = self.lag(seat).position(self.clock, weight);
            }
        } else {
            self.nodes.rows[seat].position = self.clock;
        }
        self.nodes.rows[seat].weight = weight;
        self.add_load(weight);
    }

    /// `seat` goes on under `weight`: a debt stays what it is in nanoseconds, a credit is given up.
    #[inline(never)]
    pub(crate) fn reweigh(&mut self, seat: u32, weight: Weight) {
        let old = self.nodes.rows[seat].weight;
        if old == weight {
            return;
        }
        self.nodes.rows[seat].position = self.lag(seat).debt_only().position(self.clock, weight);
        self.nodes.rows[seat].weight = weight;
        self.load += u64::from(weight.get());
        self.unload(old);
    }

    /// `seat` gets back the credit it had when it was held.
    pub(crate) fn restore_credit(&mut self, seat: u32, lag: Lag) {
        if lag > Lag::ZERO && self.load != self.debtor_load + u64::from(self.nodes.rows[seat].weight.get()) {
            self.nodes.rows[seat].position = lag.position(self.clock, self.nodes.rows[seat].weight);
        }
    }

    /// `seat` gives up what it is owed, if anything.
    pub(crate) fn forfeit(&mut self, seat: u32) {
        let row = &mut self.nodes.rows[seat];
        row.position = row.position.later(self.clock);
    }

    /// Moves `seat` along by the service it had; how far.
    #[inline]
    pub(crate) fn charge(&mut self, seat: u32, ran: Nanos) -> u64 {
        let row = &mut self.nodes.rows[seat];
        let moved = span(ran, row.weight);
        row.position = row.position.plus(moved);
        moved
    }

    /// How far `seat` would be moved by `ran`.
    #[inline]
    pub(crate) fn would_move(&self, seat: u32, ran: Nanos) -> u64 {
        span(ran, self.nodes.rows[seat].weight)
    }

    /// Whether `seat` would be ahead of the clock if it were moved by `moved`.
    #[inline]
    pub(crate) fn is_ahead_by(&self, seat: u32, moved: u64) -> bool {
        self.reached().is_before(self.nodes.rows[seat].position.plus(moved))
    }

    /// Whether `seat`, which sleeps, still competes because of what it owes.
    #[inline]
    pub(crate) fn is_debtor(&self, seat: u32) -> bool {
        self.debtors.contains(seat)
    }

    /// `from` is charged with `moved` and sleeps; `to`, which slept and is no debtor, competes in its place, with
    /// `weight`. As [`FairQueue::wake`], [`FairQueue::charge`] and [`FairQueue::sleep`] one after the other.
    #[inline]
    pub(crate) fn hand_over(&mut self, from: u32, moved: u64, to: u32, weight: Weight) {
        let clock = self.clock;
        let row = &mut self.nodes.rows[to];
        row.position = clock;
        row.weight = weight;
        let row = &mut self.nodes.rows[from];
        row.position = row.position.plus(moved);
        let (position, leaves) = (row.position, row.weight);
        self.load += u64::from(weight.get());
        if clock.is_before(position) {
            self.remainder = self.remainder.min(self.load - 1);
            self.debtor_load += u64::from(leaves.get());
            self.debtors.insert(from, position);
            self.find_first_even();
        } else {
            self.unload(leaves);
        }
    }

    /// What `seat` is owed.
    #[inline]
    pub(crate) fn lag(&self, seat: u32) -> Lag {
        let row = &self.nodes.rows[seat];
        Lag::between(self.clock, row.position, row.weight)
    }

    /// What `seat`, which sleeps, will be owed when it wakes: its debt, as far as it is not repaid yet.
    pub(crate) fn lag_asleep(&self, seat: u32) -> Lag {
        if self.debtors.contains(seat) { self.lag(seat).debt_only() } else { Lag::ZERO }
    }

    /// What `seat` is owed if it has run for `ran` since it was last charged.
    #[inline(always)]
    pub(crate) fn lag_after(&self, seat: u32, ran: Nanos) -> Lag {
        if ran.is_zero() {
            return self.lag(seat);
        }
        let row = &self.nodes.rows[seat];
        let position = row.position.plus(span(ran, row.weight));
        Lag::between(self.clock, position, row.weight)
    }

    /// The tags of a request that `seat` has used some of, as if it had been charged for `ran` more.
    #[inline(always)]
    pub(crate) fn tag(&self, seat: u32, request: Nanos, used: Nanos, ran: Nanos) -> Tag {
        let row = &self.nodes.rows[seat];
        // Whoever is at the first request since it was queued has used just what it ran.
        let start = if used == ran { row.position } else { started(row, used).plus(span(ran, row.weight)) };
        Tag { start, deadline: start.plus(span(request, row.weight)) }
    }

    /// The tags that `seat` is queued with.
    pub(crate) fn queued_tag(&self, seat: u32) -> Tag {
        let row = &self.nodes.rows[seat];
        Tag { start: row.start, deadline: row.deadline }
    }

    /// The weight that `seat` competes with.
    #[inline]
    pub(crate) fn weight(&self, seat: u32) -> Weight {
        self.nodes.rows[seat].weight
    }

    /// Queues `seat`; the tags it got.
    #[inline]
    pub(crate) fn enqueue(&mut self, seat: u32, ask: &Ask) -> Tag {
        let tag = self.tag(seat, ask.request, ask.used, Nanos::ZERO);
        let key = Key { deadline: tag.deadline, start: tag.start, thread_index: ask.thread_index };
        self.enqueue_under(seat, key, ask.reach);
        tag
    }

    /// Queues `seat`, which may run anywhere and has just been charged for `ran`, moving it by `moved`.
    #[inline]
    pub(crate) fn enqueue_charged(&mut self, seat: u32, ask: &Ask, ran: Nanos, moved: u64) {
        let row = &self.nodes.rows[seat];
        let start = started(row, ask.used);
        // Mostly it ran for just its request, and the division is done.
        let length = if ran == ask.request { moved } else { span(ask.request, row.weight) };
        let key = Key { deadline: start.plus(length), start, thread_index: ask.thread_index };
        self.enqueue_under(seat, key, None);
    }

    #[inline]
    fn enqueue_under(&mut self, seat: u32, key: Key, reach: Option<u64>) {
        debug_assert_eq!(self.nodes.rows[seat].place, Place::Out, "queued twice");
        debug_assert!(!key.deadline.is_before(self.nodes.rows[seat].position), "due in the past");
        let priority = self.draw();
        self.queued += 1;
        if reach.is_some() || !self.lanes.insert(&mut self.nodes.rows, seat, &key, priority) {
            self.enqueue_in_tree(seat, key, reach, priority);
        }
    }

    #[inline(never)]
    fn enqueue_in_tree(&mut self, seat: u32, key: Key, reach: Option<u64>, priority: u32) {
        self.queued_in_trees += 1;
        if let Some(reach) = reach {
            self.nodes.rows[seat].place = Place::Bound;
            self.bound.insert(&mut self.nodes, seat, key, reach, priority);
        } else {
            self.nodes.rows[seat].place = Place::Open;
            self.open.insert(&mut self.nodes, seat, key, 0, priority);
        }
    }

    pub(crate) fn dequeue(&mut self, seat: u32) {
        self.queued -= 1;
        if self.nodes.rows[seat].place == Place::Lane {
            self.lanes.remove(&mut self.nodes.rows, seat);
        } else {
            self.dequeue_from_tree(seat);
        }
    }

    #[inline(never)]
    fn dequeue_from_tree(&mut self, seat: u32) {
        self.queued_in_trees -= 1;
        match core::mem::replace(&mut self.nodes.rows[seat].place, Place::Out) {
            Place::Open => self.open.remove(&mut self.nodes, seat),
            Place::Bound => self.bound.remove(&mut self.nodes, seat),
            Place::Lane | Place::Out => debug_assert!(false, "not in a tree"),
        }
    }

    /// Takes the thread to run next out. Moves the clock if everybody queued is ahead of it.
    #[inline]
    pub(crate) fn take_next(&mut self) -> Option<u32> {
        if self.queued_in_trees != 0 {
            return self.take_next_of_all();
        }
        let reached = self.reached();
        let taken = match self.policy {
            Policy::Eevdf => self.lanes.take_first_started(&mut self.nodes.rows, reached),
            Policy::Wfq => self.lanes.take_first(&mut self.nodes.rows),
        };
        let Some(seat) = taken else { return self.take_next_of_all() };
        self.queued -= 1;
        if reached.is_before(self.nodes.rows[seat].start) && self.lanes.first_started(reached).is_none() {
            self.pull_clock(seat);
        }
        taken
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
        if self.reached().is_before(self.nodes.rows[seat].start) {
            self.pull_clock(seat);
        }
        Some(seat)
    }

    /// `seat` was taken although its start has not come, as WFQ does. If nobody's has, the clock is behind them all.
    #[cold]
    fn pull_clock(&mut self, seat: u32) {
        let start = self.nodes.rows[seat].start;
        let earliest = self.earliest_start().map_or(start, |other| other.earlier(start));
        if self.reached().is_before(earliest) {
            self.jump_to(earliest);
        }
    }

    /// Nobody is queued, and whoever runs is at a request that began at `start`: the clock is there at least.
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
            self.lanes.earliest_start(),
            self.open.earliest_start(&self.nodes),
            self.bound.earliest_start(&self.nodes),
        ];
        starts.into_iter().flatten().reduce(VirtualTime::earlier)
    }

    /// The first queued thread whose start has come; under WFQ the first of all.
    pub(crate) fn first_eligible(&self) -> Option<u32> {
        let reached = self.reached();
        let [lane, open, bound] = match self.policy {
            Policy::Eevdf => [
                self.lanes.first_started(reached),
                self.open.first_started(&self.nodes, reached),
                self.bound.first_started(&self.nodes, reached),
            ],
            Policy::Wfq => [self.lanes.first(), self.open.first(&self.nodes), self.bound.first(&self.nodes)],
        };
        self.sooner(self.sooner(lane, open), bound)
    }

    /// The latest start that counts as come.
    #[inline]
    fn reached(&self) -> VirtualTime {
        self.clock.plus(GRACE_UNITS)
    }

    fn sooner(&self, a: Option<u32>, b: Option<u32>) -> Option<u32> {
        match (a, b) {
            (Some(x), Some(y)) if self.precedes(y, x) => Some(y),
            (Some(x), _) => Some(x),
            (None, y) => y,
        }
    }

    /// Whether `a` stands before `b` in the queue's order.
    pub(crate) fn precedes(&self, a: u32, b: u32) -> bool {
        self.nodes.rows[a].key().is_before(&self.nodes.rows[b].key())
    }

    /// The first queued thread, taken out, if its start has come: somebody who is owed service, under either policy.
    pub(crate) fn take_next_if_owed(&mut self) -> Option<u32> {
        let seat = self.first_eligible().filter(|seat| self.has_started(self.nodes.rows[*seat].start))?;
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
    pub(crate) fn first_open(&self) -> Option<u32> {
        self.sooner(self.lanes.first(), self.open.first(&self.nodes))
    }

    /// The first queued thread that is bound to some CPUs and that `accept` takes, for a thief.
    pub(crate) fn first_bound(&self, thief_bit: u64, accept: &impl Fn(u32) -> bool) -> Option<u32> {
        self.bound.first_reaching(&self.nodes, thief_bit, accept)
    }

    /// Where the bound threads may go, folded.
    pub(crate) fn bound_reach(&self) -> u64 {
        self.bound.reach(&self.nodes)
    }

    /// All queued seats in the queue's order, for those who look on.
    pub(crate) fn in_order(&self) -> Vec<u32> {
        let mut seats = Vec::new();
        self.lanes.visit(&self.nodes.rows, &mut |seat| seats.push(seat));
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
        let in_trees = self.open.verify(&self.nodes)? + self.bound.verify(&self.nodes)?;
        let in_lanes = self.lanes.verify(&self.nodes.rows)?;
        let counted = (in_lanes + in_trees, in_trees);
        if counted == (self.queued as usize, self.queued_in_trees as usize) {
            Ok(())
        } else {
            Err("queued threads miscounted")
        }
    }

    /// The upper half of a linear congruential generator: enough for a treap's balance.
    #[inline]
    fn draw(&mut self) -> u32 {
        self.shape = self.shape.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.shape >> 32) as u32
    }
}

#[cfg(test)]
mod tests;
