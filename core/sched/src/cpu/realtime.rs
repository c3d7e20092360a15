//! Threads that run on a context: by deadline, before best effort, up to their budget and no further.
//!
//! Conserved:
//! * a thread that holds a context and is ready stands in `ready` if the context can be used, and in `refilling` if it
//!   cannot, by the time of the next refill; one that goes on as best effort meanwhile stands in `refilling` too;
//! * an interval is charged to the context or to the fair share, never to both and never to neither;
//! * while best effort waits and its floor is due sooner than the first context, best effort runs.

use super::dispatch::{Choice, end_interval};
use super::{Cpu, Decision, Dispatch, Overran, Seat, State, ThreadView, taken};
use crate::context::floor::FloorBudget;
use crate::context::{Context, Overrun, Urgency};
use crate::entity::{Authority, Entity};
use crate::floor::Floor;
use crate::heap::SeatHeap;
use crate::small_sorted::Rank;
use crate::telemetry::NohzExit;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use mainspring_abi::Nanos;

/// On what the running thread runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Band {
    /// Its share of what is left.
    Fair,
    /// A context.
    Deadline,
}

/// When a context can be used again. Those that can at the same time all become ready, so their order does not matter.
#[derive(Clone, Copy, Debug)]
struct RefillDue(Nanos);

impl Rank for RefillDue {
    const NONE: Self = Self(Nanos::MAX);

    #[inline]
    fn is_before(&self, other: &Self) -> bool {
        self.0 < other.0
    }
}

/// The queues of threads that hold a context.
#[derive(Debug)]
pub(super) struct Realtime {
    ready: SeatHeap<Urgency>,
    refilling: SeatHeap<RefillDue>,
    pub(super) floor: FloorBudget,
    /// The last overrun that was not reported yet.
    pub(super) overran: Option<Overran>,
    /// When the last context left.
    none_since: Nanos,
}

impl Realtime {
    pub(super) fn new(floor: Floor) -> Self {
        Self {
            ready: SeatHeap::new(),
            refilling: SeatHeap::new(),
            floor: FloorBudget::new(floor),
            overran: None,
            none_since: Nanos::MAX,
        }
    }

    pub(super) fn reserve(&mut self, seats: usize) -> Result<(), TryReserveError> {
        self.ready.reserve(seats)?;
        self.refilling.reserve(seats)
    }

    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn first_ready(&self) -> Option<&Urgency> {
        self.ready.peek().map(|(first, _)| first)
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn is_ready(&self, slot: u32) -> bool {
        self.ready.contains(slot)
    }

    /// When the next context can be used again.
    pub(super) fn next_refill(&self) -> Nanos {
        self.refilling.peek().map_or(Nanos::MAX, |(due, _)| due.0)
    }

    /// `slot` stands in no queue any more; whether it was ready.
    pub(super) fn forget(&mut self, slot: u32) -> bool {
        self.refilling.remove(slot);
        self.ready.remove(slot)
    }

    #[inline]
    fn await_refill(&mut self, slot: u32, at: Nanos) {
        if !self.refilling.contains(slot) {
            self.refilling.insert(slot, RefillDue(at));
        }
    }
}

/// The context of `entity`. The caller knows that it holds one.
fn held(entity: &mut Entity) -> &mut Context {
    match entity.context_mut() {
        Some(context) => context,
        None => unreachable!("it runs on a context"),
    }
}

impl Cpu {
    /// Charges `ran` to the context of `slot`, if it runs on one; whether it does. Best effort uses its floor.
    #[inline(never)]
    pub(super) fn charge_authority(&mut self, now: Nanos, slot: u32, ran: Nanos) -> bool {
        if self.band == Band::Fair {
            self.realtime.floor.charge(now - ran, ran);
            return false;
        }
        self.charge_context(now, slot, ran);
        true
    }

    #[inline(always)]
    fn charge_context(&mut self, now: Nanos, slot: u32, ran: Nanos) {
        let occupant = taken(&mut self.slots, slot);
        occupant.entity.account.charge(ran, 0);
        let thread = occupant.entity.thread;
        let context = held(&mut occupant.entity);
        let charged = context.charge(now, ran, thread);
        if charged.depleted || charged.missed {
            self.telemetry.budgets_exhausted += u64::from(charged.depleted);
            self.telemetry.realtime_overruns += u64::from(charged.missed);
            self.realtime.overran = Some(Overran {
                seat: Seat { slot, thread },
                owner: context.donors().first().unwrap_or(thread),
                context: context.who(),
                depleted: charged.depleted,
                missed: charged.missed,
                policy: context.spec().overrun,
                waiter: charged.waiter,
            });
        }
    }

    /// `slot`, which runs on a context, stands in line again, and if the first there has one too, that one is next: the
    /// usual decision among contexts, as one straight piece of code. `Err` if best effort is next, with its limit.
    #[inline(always)]
    pub(super) fn preempt_context(&mut self, now: Nanos, slot: u32) -> Result<Decision, Nanos> {
        let ran = end_interval(&mut self.since, &mut self.charged_total, now);
        self.charge_context(now, slot, ran);
        taken(&mut self.slots, slot).wait_for_cpu(now);
        self.line_up(now, slot);
        let next = self.take_first(now, self.contended())?;
        self.count_preemption(slot, Some(next));
        Ok(self.begin_on_context(now, next, next != slot))
    }

    /// A context comes to this CPU. What best effort had while there was none is not owed to it again.
    pub(super) fn count_context(&mut self, now: Nanos) {
        if self.contexts == 0 && self.realtime.none_since != now {
            self.realtime.floor.note_ready(now, false);
        }
        self.contexts += 1;
    }

    /// A context leaves this CPU. One that comes back at once, as a loan does, has not been away.
    pub(super) fn discount_context(&mut self, now: Nanos) {
        self.contexts -= 1;
        if self.contexts == 0 {
            self.realtime.none_since = now;
        }
    }

    /// `slot`, which was running and has been charged, could go on and has a context, or has lent one.
    #[inline(never)]
    pub(super) fn requeue_on_context(&mut self, now: Nanos, slot: u32) {
        self.line_up(now, slot);
    }

    #[inline(always)]
    fn line_up(&mut self, now: Nanos, slot: u32) {
        let occupant = taken(&mut self.slots, slot);
        let thread_index = occupant.entity.thread.index();
        let weight = occupant.entity.weight;
        let Some(context) = occupant.entity.context_mut() else {
            unreachable!("a thread that has lent its context does not run")
        };
        if context.is_usable(now) {
            let urgency = context.urgency(thread_index);
            if self.band == Band::Fair {
                // It went on without its context, which has been refilled.
                self.fair.sleep(slot);
            }
            self.realtime.refilling.remove(slot);
            self.realtime.ready.insert(slot, urgency);
            return;
        }
        let (at, goes_on) = (context.refills().head().at, context.spec().overrun == Overrun::Notify);
        if self.band == Band::Fair {
            self.realtime.await_refill(slot, at);
            self.fair.reweigh(slot, weight);
            self.enqueue(slot);
            return;
        }
        // It ran on its context, so it did not wait for a refill.
        self.realtime.refilling.insert(slot, RefillDue(at));
        if goes_on {
            self.fair.wake(slot, weight);
            self.enqueue(slot);
        } else {
            self.at_mut(slot).state = State::Throttled;
        }
    }

    /// Makes `slot`, which holds a context and stands in no queue, ready; whether this CPU should reschedule.
    #[inline(never)]
    pub(super) fn publish_on_context(&mut self, now: Nanos, slot: u32) -> bool {
        self.begin_contention(now, NohzExit::SecondRunnable);
        let occupant = taken(&mut self.slots, slot);
        occupant.entity.ready_from(now);
        occupant.state = State::Queued;
        let (thread_index, weight) = (occupant.entity.thread.index(), occupant.entity.weight);
        let context = held(&mut occupant.entity);
        context.resume(now);
        if context.is_usable(now) {
            let urgency = context.urgency(thread_index);
            self.end_solitude(now);
            self.realtime.ready.insert(slot, urgency);
            let reschedule = self.urgent(urgency);
            self.resched_wanted |= reschedule;
            return reschedule;
        }
        let (at, goes_on) = (context.refills().head().at, context.spec().overrun == Overrun::Notify);
        self.realtime.await_refill(slot, at);
        if !goes_on {
            self.at_mut(slot).state = State::Throttled;
            return false;
        }
        self.end_solitude(now);
        self.fair.wake(slot, weight);
        self.enqueue(slot);
        self.resched_wanted |= self.current.is_none();
        self.current.is_none()
    }

    /// A thread is about to wait for the CPU: the running thread is alone no longer, so the tick is back first.
    fn end_solitude(&mut self, now: Nanos) {
        if self.current.is_some() {
            self.tick.restore(now, NohzExit::SecondRunnable, &mut self.telemetry);
        }
    }

    /// Whether a thread of this urgency should be looked at before the running thread goes on. Best effort is charged
    /// before it is known whether it may insist on its floor.
    fn urgent(&self, urgency: Urgency) -> bool {
        match self.current {
            Some(current) if self.band == Band::Deadline => {
                let entity = &self.at(current).entity;
                entity
                    .context()
                    .is_none_or(|context| urgency.is_before(&context.urgency(entity.thread.index())))
            }
            Some(_) | None => true,
        }
    }

    /// Whether best effort, which has just become ready, may insist on its floor before `current`, which runs on a
    /// context.
    pub(super) fn floor_claims(&mut self, now: Nanos, current: u32) -> bool {
        self.realtime.floor.note_ready(now, true);
        let due = self.at(current).entity.context().map_or(Nanos::MAX, Context::deadline);
        self.realtime.floor.claim(now).is_some_and(|(floor_due, _)| floor_due < due)
    }

    /// Takes the thread that runs next out, if it is one with a context; else until when best effort may run. The
    /// caller says whether a best-effort thread is ready.
    #[inline(never)]
    pub(super) fn choose_context(&mut self, now: Nanos, waits: bool) -> Result<Choice, Nanos> {
        self.take_first(now, waits).map(|slot| Choice { slot, slice_cap: Nanos::MAX, band: Band::Deadline })
    }

    #[inline(always)]
    fn take_first(&mut self, now: Nanos, waits: bool) -> Result<u32, Nanos> {
        let released = self.release_refills(now);
        self.realtime.floor.note_ready(now, waits);
        if let Some((slot, urgency)) = released {
            if !waits && !self.realtime.has_ready() {
                return Ok(slot);
            }
            self.realtime.ready.insert(slot, urgency);
        }
        let Some(&(first, slot)) = self.realtime.ready.peek() else { return Err(Nanos::MAX) };
        if waits
            && let Some((due, amount)) = self.realtime.floor.claim(now)
            && due < first.deadline
        {
            return Err(now + amount);
        }
        self.realtime.ready.remove_first();
        Ok(slot)
    }

    /// Threads whose context can be used again by `now` are ready. The last of them, which is often the only one, is for the
    /// caller to queue.
    #[inline(always)]
    fn release_refills(&mut self, now: Nanos) -> Option<(u32, Urgency)> {
        let mut last = None;
        while let Some(&(due, slot)) = self.realtime.refilling.peek()
            && due.0 <= now
        {
            self.realtime.refilling.remove_first();
            if self.current == Some(slot) {
                // It goes on without its context, and comes back to it at the decision that this asks for.
                self.resched_wanted = true;
                continue;
            }
            if let Some((slot, urgency)) = last.replace((slot, self.make_ready(now, slot))) {
                self.realtime.ready.insert(slot, urgency);
            }
        }
        last
    }

    /// The context of `slot`, which waited for that, can be used again.
    #[inline(always)]
    fn make_ready(&mut self, now: Nanos, slot: u32) -> Urgency {
        let occupant = taken(&mut self.slots, slot);
        let throttled = core::mem::replace(&mut occupant.state, State::Queued) == State::Throttled;
        let thread_index = occupant.entity.thread.index();
        let urgency = held(&mut occupant.entity).urgency(thread_index);
        if !throttled {
            self.fair.dequeue(slot);
            self.fair.sleep(slot);
        }
        self.begin_contention(now, NohzExit::SecondRunnable);
        urgency
    }

    /// `slot` has the CPU, on its context.
    #[inline(never)]
    pub(super) fn run_on_context(&mut self, now: Nanos, slot: u32, switched: bool) -> Decision {
        self.begin_on_context(now, slot, switched)
    }

    #[inline(always)]
    fn begin_on_context(&mut self, now: Nanos, slot: u32, switched: bool) -> Decision {
        self.tick.restore(now, NohzExit::Dispatch, &mut self.telemetry);
        let occupant = taken(&mut self.slots, slot);
        occupant.begin_to_run(now, self.id, switched);
        let thread = occupant.entity.thread;
        self.slice_end = now + held(&mut occupant.entity).refills().head().amount;
        self.current = Some(slot);
        Decision::Run(Dispatch { seat: Seat { slot, thread }, thread, switched, slice_end: self.slice_end })
    }

    /// `slot` is about to wait: whether it runs on its context or goes on without, time stops counting for it.
    pub(super) fn suspend_context(&mut self, now: Nanos, slot: u32) {
        if let Some(context) = self.at_mut(slot).entity.context_mut() {
            context.pause(now);
            self.realtime.refilling.remove(slot);
        }
    }

    /// When the contexts here need a timer interrupt.
    #[inline]
    pub(super) fn next_on_contexts(&self) -> Nanos {
        let mut next = self.realtime.next_refill();
        if self.current.is_some() && (self.band == Band::Deadline || self.realtime.has_ready()) {
            next = next.min(self.slice_end);
        }
        if self.band == Band::Deadline && self.contended() { next.min(self.next_claim()) } else { next }
    }

    /// When best effort, which waits, insists on its floor before the running thread, which runs on a context.
    #[inline(never)]
    fn next_claim(&self) -> Nanos {
        if let Some((at, due)) = self.realtime.floor.next_claim()
            && let Some(context) = self.running().and_then(Entity::context)
            && due < context.deadline()
        {
            return at;
        }
        Nanos::MAX
    }

    pub(super) fn timer_on_contexts(&mut self, now: Nanos) {
        self.bring_clock_up(now);
        if let Some((slot, urgency)) = self.release_refills(now) {
            self.realtime.ready.insert(slot, urgency);
        }
        let Some(current) = self.current else { return };
        let over = self.slice_end <= now && (self.band == Band::Deadline || self.realtime.has_ready());
        let outdone = self.realtime.ready.peek().is_some_and(|(first, _)| self.urgent(*first));
        let floor = self.band == Band::Deadline && self.contended() && self.floor_claims(now, current);
        self.resched_wanted |= over || outdone || floor;
    }

    /// Takes the queued `slot` out of its queue; whether it has its share of the fluid schedule.
    pub(super) fn withdraw_queued(&mut self, slot: u32) -> bool {
        if self.realtime.forget(slot) {
            return false;
        }
        self.fair.dequeue(slot);
        true
    }

    /// The threads that are ready on contexts, the most urgent first.
    pub(super) fn realtime_queue(&self) -> Vec<ThreadView> {
        let mut queue: Vec<ThreadView> = self.realtime.ready.seats().map(|slot| self.view(slot)).collect();
        let before = |a: &ThreadView, b: &ThreadView| match (&a.context, &b.context) {
            (Some((_, a)), Some((_, b))) => a.is_before(b),
            _ => false,
        };
        queue.sort_by(
            |a, b| if before(a, b) { core::cmp::Ordering::Less } else { core::cmp::Ordering::Greater },
        );
        queue
    }

    /// Checks what the header promises; `Err` says what does not hold.
    pub(super) fn verify_contexts(&self) -> Result<(), &'static str> {
        let (mut holders, mut lenders) = (0, 0);
        for view in self.threads() {
            let slot = view.seat.slot;
            let holds = matches!(self.at(slot).entity.authority, Authority::Context(_));
            holders += u32::from(holds);
            lenders += u32::from(matches!(self.at(slot).entity.authority, Authority::Lent(_)));
            let refilling = self.realtime.refilling.contains(slot);
            if self.realtime.is_ready(slot) && (!holds || view.state != State::Queued) {
                return Err("ready without a context");
            }
            if refilling && !holds || (view.state == State::Throttled) && !refilling {
                return Err("a throttled thread waits for no refill");
            }
            if refilling && matches!(view.state, State::Asleep(_) | State::Held) {
                return Err("a sleeper waits for a refill");
            }
        }
        if (holders, lenders) == (self.contexts, self.lent) { Ok(()) } else { Err("contexts miscounted") }
    }
}
