//! A handoff between two best-effort threads of this CPU, in one go.
//!
//! Nothing here is new: [`Cpu::switch_directly`] does what [`Cpu::hand_off`] and [`Cpu::resched`] do one after the other
//! when the first of them ends in a direct target and the second chooses it. It saves the choice, which is known, and
//! looks into each table once per thread.
//!
//! Conserved: either everything is as after those two, or nothing has changed and the caller takes the long way. A
//! record of a run holds the long way, so whoever records takes it.

use super::realtime::Band;
use super::{Cpu, Dispatch, Occupant, Seat, Slot, State, vacant};
use crate::entity::Authority;
use crate::heap::SeatHeap;
use crate::telemetry::NohzExit;
use crate::waiter::{Due, Timeout, WaitKind, WaitPermit};
use mainspring_abi::Nanos;

/// The occupants of two slots that are taken and not the same.
#[inline(always)]
fn both(slots: &mut [Slot], one: u32, other: u32) -> [&mut Occupant; 2] {
    match slots.get_disjoint_mut([one as usize, other as usize]) {
        Ok([Slot::Taken(one), Slot::Taken(other)]) => [one, other],
        _ => vacant(other),
    }
}

#[inline(never)]
fn forget(waits: &mut SeatHeap<Due>, slot: u32) {
    waits.remove(slot);
}

#[inline(never)]
fn remember(waits: &mut SeatHeap<Due>, slot: u32, from: &mut Occupant, timeout: Timeout) {
    let Timeout { deadline, user_data, permit } = timeout;
    from.permit = Some(permit);
    from.user_data = user_data;
    waits.insert(slot, Due { deadline, thread_index: from.entity.thread.index() });
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
        let Some(slot) = self.may_switch(now, next) else { return Err(timeout) };
        let ran = now - core::mem::replace(&mut self.since, now);
        self.charged_total += ran;
        self.resched_wanted = false;
        self.tick.restore(now, NohzExit::DirectTarget, &mut self.telemetry);
        self.telemetry.handoffs += 1;
        self.fair.advance(now);
        let moved = self.fair.would_move(slot, ran);
        if self.fair.queued() == 0 && self.fair.is_ahead_by(slot, moved) {
            self.keep_up_with_lone_runner_at(slot, ran);
        }
        let [from, to] = both(&mut self.slots, slot, next.slot);
        let permit = to.permit.take();
        if permit.is_some() {
            forget(&mut self.waits, next.slot);
        }
        self.fair.hand_over(slot, moved, next.slot, to.entity.weight);

        // Whoever waits begins another request afterwards, so nothing has to be charged to the one that it was at.
        from.entity.account.charge(ran, moved);
        from.state = State::Asleep(kind);
        from.entity.used = Nanos::ZERO;
        from.entity.account.voluntary_blocks += 1;
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

    /// The running thread, if the thread at `next` would take over from it as a direct target: nobody here runs on a
    /// context, there is a slice to hand on, and who takes over owes nothing, so it may have all of that slice.
    #[inline(always)]
    fn may_switch(&self, now: Nanos, next: Seat) -> Option<u32> {
        if self.contexts != 0 || self.direct.is_some() || self.slice_end <= now || self.band != Band::Fair {
            return None;
        }
        let to = self.occupant(next).ok()?;
        let ready =
            matches!(to.state, State::Asleep(_)) && matches!(to.entity.authority, Authority::BestEffort);
        if !ready || !to.entity.used.is_zero() || self.fair.is_debtor(next.slot) {
            return None;
        }
        self.current
    }

    /// The clock must not be behind the request that a lone runner is at. That began no later than where the thread stands,
    /// so this is only for a thread that would be ahead of the clock.
    #[inline(never)]
    fn keep_up_with_lone_runner_at(&mut self, slot: u32, ran: Nanos) {
        let start = self.running_tag(slot, ran).start;
        self.fair.catch_up(start);
    }
}
