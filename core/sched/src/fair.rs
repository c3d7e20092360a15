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
//! * `load` is the sum of the weights of all competitors: queued, running, and asleep in debt.
//! * Debt outlives everything: a thread that stops while it is ahead stays a competitor of the fluid schedule
//!   until the clock has caught up with it, so sleeping, moving or changing weight wipes nothing out.
//! * Credit does not: a thread that sleeps, yields or changes its weight while it is owed gives up what it was owed.
//!   Otherwise many threads could hoard credit and claim it at once, and no bound would hold for the others.
//! * The clock never goes back. It stands still while nobody competes, and jumps to the earliest start when
//!   everybody queued is ahead, so the CPU is never idle with work queued.
//!
//! Tags (start and deadline) are derived from position, weight and request at each enqueue and never kept beyond it.
//! Ties: earlier deadline, then later start, then lower thread index.

use crate::heap::{HeapKey, SeatHeap};
use crate::tree::{Key, Nodes, Tree};
use crate::virtual_time::{Lag, UNITS_AT_WEIGHT_ONE, VirtualTime, span};
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use mainspring_abi::{LatencyClass, Nanos, Policy, Weight};

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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Out,
    Open,
    Bound,
}

#[derive(Clone, Debug)]
struct Standing {
    position: VirtualTime,
    /// The weight it competes with; its thread may have asked for another since.
    weight: Weight,
    place: Place,
}

impl HeapKey for VirtualTime {
    fn is_before(&self, other: &Self) -> bool {
        (*self).is_before(*other)
    }
}

#[derive(Debug)]
pub(crate) struct FairQueue {
    policy: Policy,
    clock: VirtualTime,
    /// Part of a unit that the clock owes, in units times load.
    remainder: u64,
    at: Nanos,
    load: u64,
    debtor_load: u64,
    queued: u32,
    standings: Vec<Standing>,
    nodes: Nodes,
    /// Threads that may run anywhere.
    open: Tree<false>,
    /// Threads that may run on some CPUs only.
    bound: Tree<true>,
    /// Sleepers that still compete, by the clock time at which they are even.
    debtors: SeatHeap<VirtualTime>,
    shape: u64,
}

impl FairQueue {
    /// An empty queue. `shape` seeds the tree's balance and nothing else.
    pub(crate) fn new(policy: Policy, shape: u64) -> Self {
        Self {
            policy,
            clock: VirtualTime::default(),
            remainder: 0,
            at: Nanos::ZERO,
            load: 0,
            debtor_load: 0,
            queued: 0,
            standings: Vec::new(),
            nodes: Nodes::default(),
            open: Tree::new(),
            bound: Tree::new(),
            debtors: SeatHeap::new(),
            shape: shape | 1,
        }
    }

    #[cfg(test)]
    pub(crate) fn start_clock_at(&mut self, clock: VirtualTime) {
        self.clock = clock;
    }

    pub(crate) fn reserve(&mut self, seats: usize) -> Result<(), TryReserveError> {
        self.standings.try_reserve_exact(seats.saturating_sub(self.standings.len()))?;
        self.nodes.reserve(seats)?;
        self.debtors.reserve(seats)
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
        let elapsed = now - self.at;
        if elapsed.is_zero() {
            return;
        }
        self.at = now;
        if self.debtors.peek().is_none() && elapsed.get() < 1 << 36 && self.load != 0 {
            let service = elapsed.get() * UNITS_AT_WEIGHT_ONE + self.remainder;
            self.clock = self.clock.plus(service / self.load);
            self.remainder = service % self.load;
        } else {
            self.advance_past_debtors(elapsed);
        }
    }

    fn advance_past_debtors(&mut self, elapsed: Nanos) {
        let mut service =
            u128::from(elapsed.get()) * u128::from(UNITS_AT_WEIGHT_ONE) + u128::from(self.remainder);
        for _ in 0..DEBTORS_RETIRED_PER_EVENT {
            let Some(&(even, seat)) = self.debtors.peek() else { break };
            let needed = even.since(self.clock).max(0) as u128 * u128::from(self.load);
            if service < needed {
                break;
            }
            service -= needed;
            self.clock = self.clock.later(even);
            self.retire(seat);
        }
        if self.load == 0 {
            self.remainder = 0;
            return;
        }
        let load = u128::from(self.load);
        self.clock = self.clock.plus((service / load) as u64);
        self.remainder = (service % load) as u64;
    }

    fn retire(&mut self, seat: u32) {
        self.debtors.remove(seat);
        let weight = self.standings[seat as usize].weight;
        self.debtor_load -= u64::from(weight.get());
        self.unload(weight);
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
        let standing = Standing { position: lag.position(self.clock, weight), weight, place: Place::Out };
        while self.standings.len() <= seat as usize {
            self.standings.push(standing.clone());
            self.nodes.push();
        }
        self.standings[seat as usize] = standing;
        self.add_load(weight);
    }

    /// Ends `seat`'s competition, asleep or awake but not queued; what it is owed or owes goes with it.
    pub(crate) fn leave(&mut self, seat: u32, asleep: bool) -> Lag {
        let lag = self.lag(seat);
        if !asleep {
            self.unload(self.standings[seat as usize].weight);
            lag
        } else if self.debtors.contains(seat) {
            self.retire(seat);
            lag.debt_only()
        } else {
            Lag::ZERO
        }
    }

    /// `seat` stops competing for now: credit is gone, debt stays until it is even.
    pub(crate) fn sleep(&mut self, seat: u32) {
        let Standing { position, weight, .. } = self.standings[seat as usize];
        if self.clock.is_before(position) {
            self.debtor_load += u64::from(weight.get());
            self.debtors.insert(seat, position);
        } else {
            self.unload(weight);
        }
    }

    /// `seat` competes again, with `weight`.
    pub(crate) fn wake(&mut self, seat: u32, weight: Weight) {
        if self.debtors.contains(seat) {
            self.retire(seat);
            self.standings[seat as usize].position = self.standings[seat as usize].position.later(self.clock);
            if weight != self.standings[seat as usize].weight {
                self.standings[seat as usize].position = self.lag(seat).position(self.clock, weight);
            }
        } else {
            self.standings[seat as usize].position = self.clock;
        }
        self.standings[seat as usize].weight = weight;
        self.add_load(weight);
    }

    /// `seat` goes on under `weight`: a debt stays what it is in nanoseconds, a credit is given up.
    pub(crate) fn reweigh(&mut self, seat: u32, weight: Weight) {
        let old = self.standings[seat as usize].weight;
        if old == weight {
            return;
        }
        self.standings[seat as usize].position = self.lag(seat).debt_only().position(self.clock, weight);
        self.standings[seat as usize].weight = weight;
        self.load += u64::from(weight.get());
        self.unload(old);
    }

    /// `seat` gives up what it is owed, if anything.
    pub(crate) fn forfeit(&mut self, seat: u32) {
        let standing = &mut self.standings[seat as usize];
        standing.position = standing.position.later(self.clock);
    }

    /// Moves `seat` along by the service it had; how far.
    #[inline]
    pub(crate) fn charge(&mut self, seat: u32, ran: Nanos) -> u64 {
        let standing = &mut self.standings[seat as usize];
        let moved = span(ran, standing.weight);
        standing.position = standing.position.plus(moved);
        moved
    }

    /// What `seat` is owed.
    pub(crate) fn lag(&self, seat: u32) -> Lag {
        let standing = &self.standings[seat as usize];
        Lag::between(self.clock, standing.position, standing.weight)
    }

    /// What `seat` is owed if it has run for `ran` since it was last charged.
    pub(crate) fn lag_after(&self, seat: u32, ran: Nanos) -> Lag {
        let standing = &self.standings[seat as usize];
        let position = standing.position.plus(span(ran, standing.weight));
        Lag::between(self.clock, position, standing.weight)
    }

    /// The tags that `seat` would be queued with.
    #[inline]
    pub(crate) fn tag(&self, seat: u32, ask: &Ask, ran: Nanos) -> Tag {
        let standing = &self.standings[seat as usize];
        let mut start = standing.position;
        if !ran.is_zero() {
            start = start.plus(span(ran, standing.weight));
        }
        if !ask.used.is_zero() {
            start = start.minus(span(ask.used, standing.weight));
        }
        Tag { start, deadline: start.plus(span(ask.request, standing.weight)) }
    }

    /// The tags that `seat` is queued with.
    pub(crate) fn queued_tag(&self, seat: u32) -> Tag {
        let key = self.nodes.key(seat);
        Tag { start: key.start, deadline: key.deadline }
    }

    #[inline]
    pub(crate) fn enqueue(&mut self, seat: u32, ask: &Ask) {
        let tag = self.tag(seat, ask, Nanos::ZERO);
        debug_assert!(!tag.deadline.is_before(self.standings[seat as usize].position), "due in the past");
        debug_assert_eq!(self.standings[seat as usize].place, Place::Out, "queued twice");
        let key = Key { deadline: tag.deadline, start: tag.start, thread_index: ask.thread_index };
        let priority = self.draw();
        self.queued += 1;
        match ask.reach {
            None => {
                self.standings[seat as usize].place = Place::Open;
                self.open.insert(&mut self.nodes, seat, key, 0, priority);
            }
            Some(reach) => {
                self.standings[seat as usize].place = Place::Bound;
                self.bound.insert(&mut self.nodes, seat, key, reach, priority);
            }
        }
    }

    pub(crate) fn dequeue(&mut self, seat: u32) {
        self.queued -= 1;
        match core::mem::replace(&mut self.standings[seat as usize].place, Place::Out) {
            Place::Open => self.open.remove(&mut self.nodes, seat),
            Place::Bound => self.bound.remove(&mut self.nodes, seat),
            Place::Out => debug_assert!(false, "not queued"),
        }
    }

    /// The thread to run next. Moves the clock if everybody queued is ahead of it.
    #[inline]
    pub(crate) fn choose(&mut self) -> Option<u32> {
        if self.queued == 0 {
            return None;
        }
        if let Some(seat) = self.first_eligible() {
            return Some(seat);
        }
        let earliest = match (self.open.earliest_start(&self.nodes), self.bound.earliest_start(&self.nodes)) {
            (Some(a), Some(b)) => a.earlier(b),
            (a, b) => a.or(b)?,
        };
        self.clock = earliest;
        self.remainder = 0;
        self.first_eligible()
    }

    /// The first queued thread whose start has come; under WFQ the first of all.
    #[inline]
    pub(crate) fn first_eligible(&self) -> Option<u32> {
        if self.policy == Policy::Wfq {
            return self.first();
        }
        let reached = self.clock.plus(GRACE_UNITS);
        let open = self.open.first_started(&self.nodes, reached);
        if self.bound.is_empty() {
            return open;
        }
        self.sooner(open, self.bound.first_started(&self.nodes, reached))
    }

    fn first(&self) -> Option<u32> {
        self.sooner(self.open.first(&self.nodes), self.bound.first(&self.nodes))
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
        self.nodes.key(a).is_before(self.nodes.key(b))
    }

    /// Whether the clock has reached `start`; under WFQ everything has.
    pub(crate) fn has_reached(&self, start: VirtualTime) -> bool {
        self.policy == Policy::Wfq || !self.clock.plus(GRACE_UNITS).is_before(start)
    }

    /// The first queued thread that may run anywhere, for a thief.
    pub(crate) fn first_open(&self) -> Option<u32> {
        self.open.first(&self.nodes)
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
        self.open.in_order(&self.nodes, &mut |seat| seats.push(seat));
        self.bound.in_order(&self.nodes, &mut |seat| seats.push(seat));
        seats.sort_by(|a, b| {
            if self.precedes(*a, *b) { core::cmp::Ordering::Less } else { core::cmp::Ordering::Greater }
        });
        seats
    }

    /// Checks what the header promises of the trees; `Err` says what does not hold.
    pub(crate) fn verify(&self) -> Result<(), &'static str> {
        let counted = self.open.verify(&self.nodes)? + self.bound.verify(&self.nodes)?;
        if counted == self.queued as usize { Ok(()) } else { Err("queued threads miscounted") }
    }

    /// Xorshift64*: enough for a tree's balance.
    #[inline]
    fn draw(&mut self) -> u32 {
        self.shape ^= self.shape >> 12;
        self.shape ^= self.shape << 25;
        self.shape ^= self.shape >> 27;
        (self.shape.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
    }
}
