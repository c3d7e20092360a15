//! A thread becomes ready, or is kept from running.

use super::realtime::Band;
use super::{Cpu, Seat, SeatError, State, taken};
use crate::entity::{Authority, Entity};
use crate::fair::Tag;
use crate::hint::unlikely;
use crate::telemetry::NohzExit;
use crate::virtual_time::Lag;
use crate::waiter::WaitPermit;
use mainspring_abi::{LatencyClass, Nanos};

/// A thread became ready on this CPU.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Woken {
    /// Whether this CPU should reschedule: it is idle, or the thread is to run before the one that runs.
    pub reschedule: bool,
    /// The permit of the timed wait that ended, to be given back.
    pub permit: Option<WaitPermit>,
}

/// How a direct handoff went.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Handoff {
    /// The thread is the direct target: it runs when the running thread stops by itself, if it may.
    Direct(Option<WaitPermit>),
    /// There was a direct target already; the thread is queued like any other.
    Queued(Woken),
}

impl Cpu {
    /// What the thread at `seat` waited for has come.
    pub fn wake(&mut self, now: Nanos, seat: Seat) -> Result<Woken, SeatError> {
        self.asleep(seat)?;
        let permit = self.end_wait(seat.slot);
        let reschedule = self.ready_again(now, seat.slot);
        Ok(Woken { reschedule, permit })
    }

    /// What the thread at `seat` waited for has come from the running thread, which is about to wait itself.
    pub fn hand_off(&mut self, now: Nanos, seat: Seat) -> Result<Handoff, SeatError> {
        self.asleep(seat)?;
        let permit = self.end_wait(seat.slot);
        self.compete_again(now, seat.slot);
        if self.publish_direct(now, seat.slot) {
            return Ok(Handoff::Direct(permit));
        }
        let reschedule = self.publish(now, seat.slot);
        Ok(Handoff::Queued(Woken { reschedule, permit }))
    }

    /// The queued thread at `seat` may not be chosen until released. It keeps its place, and hides no thread behind
    /// it.
    pub fn hold(&mut self, now: Nanos, seat: Seat) -> Result<(), SeatError> {
        match self.occupant(seat)?.state {
            State::Queued => {}
            other => return Err(SeatError::WrongState(other)),
        }
        self.bring_clock_up(now);
        self.suspend_context(now, seat.slot);
        let lag = if self.withdraw_queued(seat.slot) {
            let lag = self.fair.lag(seat.slot);
            self.fair.sleep(seat.slot);
            lag
        } else {
            Lag::ZERO
        };
        let occupant = self.at_mut(seat.slot);
        occupant.entity.lag = lag;
        occupant.state = State::Held;
        self.held += 1;
        Ok(())
    }

    /// The held thread at `seat` may be chosen again.
    pub fn release(&mut self, now: Nanos, seat: Seat) -> Result<Woken, SeatError> {
        match self.occupant(seat)?.state {
            State::Held => {}
            other => return Err(SeatError::WrongState(other)),
        }
        self.bring_clock_up(now);
        self.held -= 1;
        if let Entity { lag, weight, authority: Authority::BestEffort, .. } = self.at(seat.slot).entity {
            self.fair.wake(seat.slot, weight);
            self.fair.restore_credit(seat.slot, lag);
        }
        let reschedule = self.publish(now, seat.slot);
        Ok(Woken { reschedule, permit: None })
    }

    fn asleep(&self, seat: Seat) -> Result<(), SeatError> {
        let occupant = self.occupant(seat)?;
        match occupant.state {
            State::Asleep(_) if self.lent == 0 => Ok(()),
            State::Asleep(_) => {
                occupant.entity.has_lent().map_or(Ok(()), |who| Err(SeatError::ContextAway(who)))
            }
            other => Err(SeatError::WrongState(other)),
        }
    }

    /// Ends the timed wait of `slot`, if one is pending.
    fn end_wait(&mut self, slot: u32) -> Option<WaitPermit> {
        let permit = self.at_mut(slot).permit.take();
        if permit.is_some() {
            self.waits.remove(slot);
        }
        permit
    }

    /// `slot` sleeps no longer, and no timed wait is pending for it; whether this CPU should reschedule. If no thread has a
    /// context, that is one straight piece of code, since it comes before nearly every decision.
    #[inline(never)]
    pub(super) fn ready_again(&mut self, now: Nanos, slot: u32) -> bool {
        if unlikely(self.has_authority()) {
            self.compete_again(now, slot);
            return self.publish(now, slot);
        }
        self.bring_fair_clock_up(now);
        self.publish_fairly(now, slot, true)
    }

    /// `slot` has its share of the fluid schedule again, but is not queued yet.
    fn compete_again(&mut self, now: Nanos, slot: u32) {
        self.bring_clock_up(now);
        if self.is_best_effort(slot) {
            let weight = self.at(slot).entity.weight;
            self.fair.wake(slot, weight);
        }
    }

    /// Queues `slot`, which competes but is not queued; whether this CPU should reschedule.
    pub(super) fn publish(&mut self, now: Nanos, slot: u32) -> bool {
        if self.contexts != 0 && self.at(slot).entity.context().is_some() {
            return self.publish_on_context(now, slot);
        }
        self.publish_fairly(now, slot, false)
    }

    /// The same for a thread without a context, which is `just_awake` if it does not compete yet and no thread here
    /// has a context or has lent one.
    #[inline(always)]
    fn publish_fairly(&mut self, now: Nanos, slot: u32, just_awake: bool) -> bool {
        self.begin_contention(now, NohzExit::SecondRunnable);
        let authority = !just_awake && self.has_authority();
        let occupant = taken(&mut self.slots, slot);
        if just_awake {
            self.fair.wake(slot, occupant.entity.weight);
        }
        occupant.entity.ready_from(now);
        occupant.state = State::Queued;
        let patient = occupant.entity.class == LatencyClass::Batch;
        let tag = self.fair.enqueue(slot, &occupant.ask(authority));
        self.telemetry.note_queue_depth(self.fair.queued());
        let reschedule = match self.current {
            None => true,
            Some(current) if unlikely(self.band == Band::Deadline) => self.floor_claims(now, current),
            Some(current) => !patient && self.preempts(now, tag, current),
        };
        self.resched_wanted |= reschedule;
        reschedule
    }

    /// Makes `slot` the direct target, unless there is one; whether it is.
    pub(super) fn publish_direct(&mut self, now: Nanos, slot: u32) -> bool {
        if self.direct.is_some() || self.contexts != 0 && self.at(slot).entity.context().is_some() {
            return false;
        }
        self.begin_contention(now, NohzExit::DirectTarget);
        let occupant = self.at_mut(slot);
        occupant.state = State::Direct;
        occupant.entity.ready_from(now);
        self.direct = Some(slot);
        if unlikely(self.contexts != 0) {
            self.realtime.floor.note_ready(now, true);
        }
        self.resched_wanted |= self.current.is_none();
        true
    }

    /// A thread is about to wait for the CPU. Requests that the running thread has completed undisturbed meanwhile are
    /// behind it; the one in progress ends at the next multiple. The running thread is alone no longer, so the tick is
    /// back first.
    #[inline]
    pub(super) fn begin_contention(&mut self, now: Nanos, why: NohzExit) {
        let Some(current) = self.current else { return };
        self.tick.restore(now, why, &mut self.telemetry);
        if unlikely(self.band == Band::Fair && self.slice_end < now) {
            let slice = self.at(current).request.min(self.quantum).get();
            let missed = (now - self.slice_end).get().div_ceil(slice);
            self.slice_end += Nanos::new(missed.saturating_mul(slice));
        }
    }

    /// Whether a queued thread with the tags `waiting` should take the CPU from `current` at once.
    #[inline]
    fn preempts(&self, now: Nanos, waiting: Tag, current: u32) -> bool {
        self.fair.has_reached(waiting.start)
            && waiting.deadline.is_before(self.running_tag(current, now - self.since).deadline)
    }
}
