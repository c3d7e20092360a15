//! A call or a reply between two threads of this CPU that runs on one context, in one go.
//!
//! Nothing here is new: [`Cpu::call_directly`] does what [`Cpu::block_current`], [`Cpu::lend`], [`Cpu::bind`],
//! [`Cpu::wake`] and [`Cpu::resched`] do one after the other, and [`Cpu::reply_directly`] the same the other way round. It
//! saves the queues: the thread that runs on the context next is the most urgent, since the thread that ran on it until
//! now was.
//!
//! Conserved: either everything is as after those five, or nothing has changed and the caller takes the long way. A
//! record of a run holds the long way, so a machine that records takes it: the simulator does. The direct way is for a
//! machine that keeps no record.

use super::realtime::Band;
use super::{Cpu, Dispatch, Seat, Slot, State};
use crate::context::Context;
use crate::entity::Authority;
use crate::fair::FairQueue;
use crate::small_sorted::Rank;
use crate::telemetry::NohzExit;
use crate::waiter::{Timeout, WaitKind, WaitPermit};
use mainspring_abi::Nanos;

impl Cpu {
    /// The running thread calls the one at `server`, which waits for requests, and which serves it on the running thread's
    /// context. Gives `timeout` back if it cannot be done in one go; nothing has changed then.
    // Both always in line: the caller mostly has no timeout, and wants little of what they answer.
    #[inline(always)]
    pub fn call_directly(
        &mut self,
        now: Nanos,
        server: Seat,
        timeout: Option<Timeout>,
    ) -> Result<Dispatch, Option<Timeout>> {
        self.hand_context_over::<true>(now, server, timeout).map(|(run, _)| run)
    }

    /// The running thread, which serves a call on the context of the thread at `caller`, is done with it and waits for the
    /// next. The caller has its context back and goes on. Gives `timeout` back if it cannot be done in one go; nothing has
    /// changed then.
    #[inline(always)]
    pub fn reply_directly(
        &mut self,
        now: Nanos,
        caller: Seat,
        timeout: Option<Timeout>,
    ) -> Result<(Dispatch, Option<WaitPermit>), Option<Timeout>> {
        self.hand_context_over::<false>(now, caller, timeout)
    }

    /// The running thread waits, and the one at `next` goes on with its context: the server of its call, or the caller that it
    /// answers. Each of the two is looked up once, and everything is decided before anything changes.
    #[inline(always)]
    fn hand_context_over<const CALLS: bool>(
        &mut self,
        now: Nanos,
        next: Seat,
        timeout: Option<Timeout>,
    ) -> Result<(Dispatch, Option<WaitPermit>), Option<Timeout>> {
        let hands_on = self.band == Band::Deadline && self.direct.is_none();
        let Some(slot) = self.current.filter(|_| hands_on) else { return Err(timeout) };
        let pair = self.slots.get_disjoint_mut([slot as usize, next.slot as usize]);
        let Ok([Slot::Taken(from), Slot::Taken(to)]) = pair else { return Err(timeout) };
        let Authority::Context(context) = &mut from.entity.authority else { return Err(timeout) };
        let (thread, who) = (from.entity.thread, context.who());
        let ran = now - self.since;
        if to.entity.thread != next.thread
            || ran >= context.refills().head().amount
            || now > context.deadline()
            || !self.realtime.lets_go_on(now, &self.fair, context, next.thread.index())
        {
            return Err(timeout);
        }
        let fits = if CALLS {
            let idle = to.state == State::Asleep(WaitKind::Receive) && to.permit.is_none();
            let passive = matches!(to.entity.authority, Authority::BestEffort);
            idle && passive && context.may_lend(thread, next.thread).is_ok()
        } else {
            let waits = to.state == State::Asleep(WaitKind::Call);
            waits
                && context.donors().last() == Some(next.thread)
                && matches!(to.entity.authority, Authority::Lent(lent) if lent == who)
        };
        if !fits {
            return Err(timeout);
        }

        self.fair.skip(now);
        self.since = now;
        self.charged_total += ran;
        self.resched_wanted = false;
        self.realtime.floor.note_ready(now, self.fair.queued() != 0);
        self.tick.restore(now, NohzExit::Dispatch, &mut self.telemetry);

        context.charge_part(ran);
        context.change_hands(now);
        if CALLS {
            context.donors.push(thread);
            let depth = context.donors.depth() as u64;
            self.telemetry.donation_depth_max = self.telemetry.donation_depth_max.max(depth);
            self.lent += 1;
        } else {
            context.donors.drop_last();
            self.lent -= 1;
        }
        self.slice_end = now + context.refills().head().amount;
        core::mem::swap(&mut from.entity.authority, &mut to.entity.authority);
        from.entity.authority = if CALLS { Authority::Lent(who) } else { Authority::BestEffort };

        from.entity.account.charge(ran, 0);
        from.fall_asleep(if CALLS { WaitKind::Call } else { WaitKind::Receive });
        if let Some(timeout) = timeout {
            self.waits.insert(slot, from.set_timeout(timeout));
        }

        // A server that waits with a timeout is not called in one go.
        let permit = if CALLS { None } else { to.permit.take() };
        if permit.is_some() {
            self.waits.remove(next.slot);
        }
        to.entity.ready_from(now);
        to.begin_to_run(now, self.id, true);
        self.current = Some(next.slot);
        let run = Dispatch { seat: next, thread: next.thread, switched: true, slice_end: self.slice_end };
        Ok((run, permit))
    }
}

impl super::realtime::Realtime {
    /// Whether the thread with this index is the next to run if it goes on with `context`: no other is more urgent, none is to be
    /// refilled, and best effort, which is in `fair`, does not insist on its floor.
    #[inline(always)]
    fn lets_go_on(&self, now: Nanos, fair: &FairQueue, context: &Context, thread_index: u32) -> bool {
        if self.has_ready() && self.outdoes(context, thread_index) || self.next_refill() <= now {
            return false;
        }
        fair.queued() == 0 || !self.claims(now, context)
    }

    #[inline(never)]
    fn outdoes(&self, context: &Context, thread_index: u32) -> bool {
        self.first_ready().is_some_and(|first| first.is_before(&context.urgency(thread_index)))
    }

    #[inline(never)]
    fn claims(&self, now: Nanos, context: &Context) -> bool {
        self.floor.due(now).is_some_and(|due| due < context.deadline())
    }
}
