//! A handoff between two best-effort threads of this CPU, in one go.
//!
//! Nothing here is new: [`Cpu::switch_directly`] does what [`Cpu::hand_off`] and [`Cpu::resched`] do one after the other
//! when the first of them ends in a direct target and the second chooses it. It saves the choice, which is known, and
//! looks into each table once per thread.
//!
//! Conserved: either everything is as after those two, or nothing has changed and the caller takes the long way. A
//! record of a run holds the long way, so a machine that records takes it.

use super::realtime::Band;
use super::{Cpu, Dispatch, Occupant, Seat, Slot, State};
use crate::entity::Authority;
use crate::fair::FairQueue;
use crate::heap::SeatHeap;
use crate::hint::unlikely;
use crate::telemetry::NohzExit;
use crate::waiter::{Due, Timeout, WaitKind, WaitPermit};
use mainspring_abi::Nanos;

/// The clock must not be behind the request that a lone runner is at. That began no later than where the thread stands, so
/// this is only for a thread that would be ahead of the clock.
#[inline(never)]
fn keep_up_with_lone_runner(fair: &mut FairQueue, slot: u32, runner: &Occupant, ran: Nanos) {
    let used = runner.past_requests(runner.entity.used + ran);
    fair.catch_up(fair.tag(slot, runner.request, used, ran).start);
}

#[inline(never)]
fn forget(waits: &mut SeatHeap<Due>, slot: u32) {
    waits.remove(slot);
}

#[inline(never)]
fn remember(waits: &mut SeatHeap<Due>, slot: u32, from: &mut Occupant, timeout: Timeout) {
    waits.insert(slot, from.set_timeout(timeout));
}

impl Cpu {
    /// The running thread waits for what `kind` says, and the one at `next`, which waits, has what it waited for and goes
    /// on in its place, for the rest of its slice. Also the permit of the timed wait that this ends. Gives `timeout` back
    /// if it cannot be done in one go; nothing has changed then.
    #[inline(always)]
    pub fn switch_directly(
        &mut self,
        now: Nanos,
        next: Seat,
        kind: WaitKind,
        timeout: Option<Timeout>,
    ) -> Result<(Dispatch, Option<WaitPermit>), Option<Timeout>> {
        if unlikely(self.contexts != 0) {
            return self.switch_beside_contexts(now, next, kind, timeout);
        }
        self.switch::<false>(now, next, kind, timeout)
    }

    /// The same on a CPU where threads have contexts: none of them wants to run now.
    #[inline(never)]
    fn switch_beside_contexts(
        &mut self,
        now: Nanos,
        next: Seat,
        kind: WaitKind,
        timeout: Option<Timeout>,
    ) -> Result<(Dispatch, Option<WaitPermit>), Option<Timeout>> {
        if self.realtime.has_ready() || self.realtime.next_refill() <= now {
            return Err(timeout);
        }
        self.switch::<true>(now, next, kind, timeout)
    }

    #[inline(always)]
    fn switch<const BESIDE_CONTEXTS: bool>(
        &mut self,
        now: Nanos,
        next: Seat,
        kind: WaitKind,
        timeout: Option<Timeout>,
    ) -> Result<(Dispatch, Option<WaitPermit>), Option<Timeout>> {
        let Some(slot) = self.current.filter(|_| self.hands_on(now)) else { return Err(timeout) };
        let pair = self.slots.get_disjoint_mut([slot as usize, next.slot as usize]);
        let Ok([Slot::Taken(from), Slot::Taken(to)]) = pair else { return Err(timeout) };
        if !to.may_take_over(next) {
            return Err(timeout);
        }
        let ran = now - self.since;
        let Some((moved, position)) = self.fair.may_hand_over(slot, ran, next.slot) else {
            return Err(timeout);
        };
        // One that goes on without its context until the refill has that to put away.
        if BESIDE_CONTEXTS && !matches!(from.entity.authority, Authority::BestEffort) {
            return Err(timeout);
        }
        self.since = now;
        self.charged_total += ran;
        if BESIDE_CONTEXTS {
            self.realtime.floor.note_ready(now, true);
            self.realtime.floor.charge(now - ran, ran);
        }
        self.resched_wanted = false;
        self.tick.restore(now, NohzExit::DirectTarget, &mut self.telemetry);
        self.telemetry.handoffs += 1;
        self.fair.advance(now);
        if self.fair.queued() == 0 && self.fair.is_ahead(position) {
            keep_up_with_lone_runner(&mut self.fair, slot, from, ran);
        }
        let permit = to.permit.take();
        if permit.is_some() {
            forget(&mut self.waits, next.slot);
        }
        self.fair.hand_over(slot, position, next.slot, to.entity.weight);

        // A thread that waits begins another request afterwards, so nothing has to be charged to its current
        // request.
        from.entity.account.charge(ran, moved);
        from.fall_asleep(kind);
        if let Some(timeout) = timeout {
            remember(&mut self.waits, slot, from, timeout);
        }

        to.entity.ready_from(now);
        to.begin_to_run(now, self.id, true);
        // It begins a request and has used nothing of it. A long request is served a quantum at a time.
        self.slice_end = self.slice_end.min(now + to.request.min(self.quantum));
        self.current = Some(next.slot);
        let run = Dispatch { seat: next, thread: next.thread, switched: true, slice_end: self.slice_end };
        Ok((run, permit))
    }

    /// Whether the running thread could hand its slice on: it is best effort, there is no direct target yet, and there is a slice
    /// left.
    #[inline(always)]
    fn hands_on(&self, now: Nanos) -> bool {
        self.direct.is_none() && self.slice_end > now && self.band == Band::Fair
    }
}

impl Occupant {
    /// Whether the thread at `next` sits here, sleeps, and would begin a request: a thread of best effort that has used
    /// nothing of the one that it is at may have all of the slice that is handed on.
    #[inline(always)]
    fn may_take_over(&self, next: Seat) -> bool {
        self.entity.thread == next.thread
            && matches!(self.state, State::Asleep(_))
            && matches!(self.entity.authority, Authority::BestEffort)
            && self.entity.used.is_zero()
    }
}
