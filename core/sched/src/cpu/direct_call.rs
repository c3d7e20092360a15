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
use super::{Cpu, Dispatch, Seat, State, taken};
use crate::context::Context;
use crate::entity::Authority;
use crate::small_sorted::Rank;
use crate::telemetry::NohzExit;
use crate::waiter::{Timeout, WaitKind, WaitPermit};
use alloc::boxed::Box;
use mainspring_abi::Nanos;

impl Cpu {
    /// The running thread calls the one at `server`, which waits for requests, and which serves it on the running thread's
    /// context. Gives `timeout` back if it cannot be done in one go; nothing has changed then.
    pub fn call_directly(
        &mut self,
        now: Nanos,
        server: Seat,
        timeout: Option<Timeout>,
    ) -> Result<Dispatch, Option<Timeout>> {
        let Some(caller) = self.goes_on_undisturbed(now, server) else { return Err(timeout) };
        let to = self.at(server.slot);
        let idle = to.state == State::Asleep(WaitKind::Receive) && to.permit.is_none();
        let passive = matches!(to.entity.authority, Authority::BestEffort);
        let entity = &self.at(caller).entity;
        let from = entity.thread;
        let lends = entity.context().is_some_and(|context| context.may_lend(from, server.thread).is_ok());
        if !(idle && passive && lends) {
            return Err(timeout);
        }
        let mut context = self.give_cpu_up(now, caller, WaitKind::Call, timeout, true);
        context.donors.push(from);
        let depth = context.donors.depth() as u64;
        self.telemetry.donation_depth_max = self.telemetry.donation_depth_max.max(depth);
        Ok(self.take_over(now, server, context).0)
    }

    /// The running thread, which serves a call on the context of the thread at `caller`, is done with it and waits for the
    /// next. The caller has its context back and goes on. Gives `timeout` back if it cannot be done in one go; nothing has
    /// changed then.
    pub fn reply_directly(
        &mut self,
        now: Nanos,
        caller: Seat,
        timeout: Option<Timeout>,
    ) -> Result<(Dispatch, Option<WaitPermit>), Option<Timeout>> {
        let Some(server) = self.goes_on_undisturbed(now, caller) else { return Err(timeout) };
        let to = self.at(caller.slot);
        let from = self.at(server).entity.context();
        let owed = from.is_some_and(|context| {
            context.donors().last() == Some(caller.thread)
                && matches!(to.entity.authority, Authority::Lent(who) if who == context.who())
        });
        if !(owed && to.state == State::Asleep(WaitKind::Call)) {
            return Err(timeout);
        }
        let mut context = self.give_cpu_up(now, server, WaitKind::Receive, timeout, false);
        let _donor = context.return_to();
        if self.at(caller.slot).permit.is_some() {
            self.waits.remove(caller.slot);
        }
        Ok(self.take_over(now, caller, context))
    }

    /// The running thread, if it runs on a context that is not used up and neither late nor outdone, also if the thread at
    /// `next` has it.
    #[inline(always)]
    fn goes_on_undisturbed(&self, now: Nanos, next: Seat) -> Option<u32> {
        let slot = self.current.filter(|_| self.band == Band::Deadline)?;
        self.occupant(next).ok()?;
        let context = self.at(slot).entity.context()?;
        let within = now - self.since < context.refills().head().amount && now <= context.deadline();
        let first = within && self.comes_first(now, context, next.thread.index());
        first.then_some(slot)
    }

    #[inline]
    fn comes_first(&self, now: Nanos, context: &Context, thread_index: u32) -> bool {
        let outdone = match self.realtime.first_ready() {
            Some(first) => first.is_before(&context.urgency(thread_index)),
            None => false,
        };
        let refilled = self.realtime.next_refill() <= now;
        let claimed =
            self.contended() && self.realtime.floor.due(now).is_some_and(|due| due < context.deadline());
        !outdone && !refilled && !claimed
    }

    /// Ends the interval of `slot`, which waits from now on; its context, which it gave away for good or lent.
    #[inline(always)]
    fn give_cpu_up(
        &mut self,
        now: Nanos,
        slot: u32,
        kind: WaitKind,
        timeout: Option<Timeout>,
        lends: bool,
    ) -> Box<Context> {
        self.fair.skip(now);
        let ran = now - core::mem::replace(&mut self.since, now);
        self.charged_total += ran;
        let occupant = taken(&mut self.slots, slot);
        occupant.fall_asleep(kind);
        if let Some(timeout) = timeout {
            self.waits.insert(slot, occupant.keep(timeout));
        }
        let entity = &mut occupant.entity;
        entity.account.charge(ran, 0);
        let Authority::Context(mut context) =
            core::mem::replace(&mut entity.authority, Authority::BestEffort)
        else {
            unreachable!("it runs on a context")
        };
        if lends {
            entity.authority = Authority::Lent(context.who());
            self.lent += 1;
        }
        context.charge_part(ran);
        context.change_hands(now);
        context
    }

    /// The thread at `next` has the CPU, on `context`; the permit of the timed wait that this ends.
    #[inline(always)]
    fn take_over(&mut self, now: Nanos, next: Seat, context: Box<Context>) -> (Dispatch, Option<WaitPermit>) {
        self.resched_wanted = false;
        self.realtime.floor.note_ready(now, self.contended());
        self.tick.restore(now, NohzExit::Dispatch, &mut self.telemetry);
        let slice_end = now + context.refills().head().amount;
        let occupant = taken(&mut self.slots, next.slot);
        let before = core::mem::replace(&mut occupant.entity.authority, Authority::Context(context));
        self.lent -= u32::from(matches!(before, Authority::Lent(_)));
        occupant.entity.ready_from(now);
        occupant.begin_to_run(now, self.id, true);
        let permit = occupant.permit.take();
        self.slice_end = slice_end;
        self.current = Some(next.slot);
        (Dispatch { seat: next, thread: next.thread, switched: true, slice_end }, permit)
    }
}
