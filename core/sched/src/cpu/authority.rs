//! Contexts come to threads and go: bound, lent, given back, written off.
//!
//! Conserved: a context that comes in sits in exactly one thread until it is taken out again, by value. A thread that
//! lends one cannot be made ready until the context is back or written off. A refusal gives the context back and changes
//! nothing.

use super::realtime::Band;
use super::{Cpu, Seat, SeatError, State};
use crate::context::{Context, LoanError, Notices, Overrun};
use crate::entity::Authority;
use crate::waiter::WaitKind;
use alloc::boxed::Box;
use core::fmt;
use mainspring_abi::{ContextRef, CpuId, Nanos, ThreadRef};

/// A context was used up, or was not done with in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Overran {
    /// The thread that ran on it.
    pub seat: Seat,
    /// The thread whose it is: the first that has lent it, or the one that ran on it. What its policy does to a thread is done to this
    /// one: a server does not end because its caller's time did.
    pub owner: ThreadRef,
    /// Which.
    pub context: ContextRef,
    /// It is used up.
    pub depleted: bool,
    /// Its deadline has passed.
    pub missed: bool,
    /// What its owner wants to happen. Throttling and going on have happened already; the rest is the machine's.
    pub policy: Overrun,
    /// The thread that waited to be told.
    pub waiter: Option<ThreadRef>,
}

/// Why a thread was not given a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BindRefusal {
    /// The seat could not be used.
    Seat(SeatError),
    /// The thread holds or has lent another.
    Busy(ContextRef),
    /// The context may not be spent on this CPU.
    NotAllowed(CpuId),
    /// The thread is among the donors that wait for the context; take it off the stack first.
    Waiting(ThreadRef),
}

impl fmt::Display for BindRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seat(error) => error.fmt(f),
            Self::Busy(who) => write!(f, "the thread has context {who:?}; release that first"),
            Self::NotAllowed(cpu) => write!(f, "the context may not be spent on {cpu:?}"),
            Self::Waiting(thread) => {
                write!(f, "{thread:?} waits for this very context; take it off the stack first")
            }
        }
    }
}

/// A context that was not bound, given back unchanged.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the context is in here"]
pub struct NotBound {
    /// Why.
    pub why: BindRefusal,
    /// The context.
    pub context: Box<Context>,
}

impl fmt::Display for NotBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl core::error::Error for NotBound {}

/// Why no context could be taken from a thread; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnbindError {
    /// The seat could not be used.
    Seat(SeatError),
    /// It holds none.
    NoContext,
}

impl fmt::Display for UnbindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seat(error) => error.fmt(f),
            Self::NoContext => f.write_str("the thread holds no context"),
        }
    }
}

impl core::error::Error for UnbindError {}

/// Why a context was not lent; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LendError {
    /// The seat could not be used.
    Seat(SeatError),
    /// It holds none.
    NoContext,
    /// The chain of donations does not allow it.
    Loan(LoanError),
}

impl fmt::Display for LendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seat(error) => error.fmt(f),
            Self::NoContext => f.write_str("the thread holds no context to lend"),
            Self::Loan(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for LendError {}

impl Cpu {
    /// Gives the thread at `seat` a context, or gives back the one that it has lent; whether this CPU should reschedule.
    pub fn bind(&mut self, now: Nanos, seat: Seat, context: Box<Context>) -> Result<bool, NotBound> {
        if let Err(why) = self.may_bind(seat, &context) {
            return Err(NotBound { why, context });
        }
        self.bring_clock_up(now);
        let slot = seat.slot;
        let state = self.at(slot).state;
        match state {
            State::Running => {
                self.charge(now, slot);
                self.fair.sleep(slot);
            }
            State::Queued => {
                self.fair.dequeue(slot);
                self.fair.sleep(slot);
            }
            State::Direct => {
                self.direct = None;
                self.fair.sleep(slot);
            }
            State::Held | State::Throttled | State::Asleep(_) => {}
        }
        self.count_context(now);
        let before = core::mem::replace(&mut self.at_mut(slot).entity.authority, Authority::Context(context));
        self.lent -= u32::from(matches!(before, Authority::Lent(_)));
        Ok(match state {
            State::Running => {
                self.realtime.floor.note_ready(now, self.contended());
                self.run_on_new_context(now, slot);
                true
            }
            State::Queued | State::Direct => self.publish_on_context(now, slot),
            State::Held | State::Throttled | State::Asleep(_) => false,
        })
    }

    fn may_bind(&self, seat: Seat, context: &Context) -> Result<(), BindRefusal> {
        let occupant = self.occupant(seat).map_err(BindRefusal::Seat)?;
        match &occupant.entity.authority {
            Authority::Context(other) => return Err(BindRefusal::Busy(other.who())),
            Authority::Lent(who) if *who != context.who() => return Err(BindRefusal::Busy(*who)),
            Authority::Lent(_) | Authority::BestEffort => {}
        }
        if context.donors().iter().any(|donor| donor == seat.thread) {
            return Err(BindRefusal::Waiting(seat.thread));
        }
        if context.spec().cpus.allows(self.id) { Ok(()) } else { Err(BindRefusal::NotAllowed(self.id)) }
    }

    /// The running `slot` goes on, on the context that it was just given. Whether it may is for the next decision.
    fn run_on_new_context(&mut self, now: Nanos, slot: u32) {
        self.band = Band::Deadline;
        let Some(context) = self.at_mut(slot).entity.context_mut() else { return };
        context.resume(now);
        let usable = if context.is_usable(now) { context.refills().head().amount } else { Nanos::ZERO };
        self.slice_end = now + usable;
        self.resched_wanted = true;
    }

    /// Takes the context from the thread at `seat`, whatever that is doing: it goes on as best effort. Whether this CPU
    /// should reschedule is in [`Cpu::reschedule_wanted`].
    pub fn unbind(&mut self, now: Nanos, seat: Seat) -> Result<Box<Context>, UnbindError> {
        let occupant = self.occupant(seat).map_err(UnbindError::Seat)?;
        if occupant.entity.context().is_none() {
            return Err(UnbindError::NoContext);
        }
        let (slot, state, weight) = (seat.slot, occupant.state, occupant.entity.weight);
        self.bring_clock_up(now);
        match state {
            State::Running => {
                self.charge(now, slot);
                self.realtime.forget(slot);
                if self.band == Band::Deadline {
                    self.band = Band::Fair;
                    self.fair.wake(slot, weight);
                }
                self.slice_end = now;
                self.resched_wanted = true;
            }
            State::Queued if self.withdraw_queued(slot) => {}
            State::Queued => self.fair.wake(slot, weight),
            State::Throttled => {
                self.realtime.forget(slot);
                self.fair.wake(slot, weight);
            }
            State::Direct | State::Held | State::Asleep(_) => {}
        }
        self.discount_context(now);
        let Some(mut context) = self.at_mut(slot).entity.take_context() else {
            return Err(UnbindError::NoContext);
        };
        context.pause(now);
        if matches!(state, State::Queued | State::Throttled) {
            self.publish(now, slot);
        }
        Ok(context)
    }

    /// Takes the context from the thread at `seat`, which waits for a call to return, to hand it to `to`. The thread
    /// cannot be made ready until the context is back.
    pub fn lend(&mut self, now: Nanos, seat: Seat, to: ThreadRef) -> Result<Box<Context>, LendError> {
        let occupant = self.occupant_mut(seat).map_err(LendError::Seat)?;
        if occupant.state != State::Asleep(WaitKind::Call) {
            return Err(LendError::Seat(SeatError::WrongState(occupant.state)));
        }
        let Some(context) = occupant.entity.context_mut() else { return Err(LendError::NoContext) };
        context.may_lend(seat.thread, to).map_err(LendError::Loan)?;
        context.donors.push(seat.thread);
        let (who, depth) = (context.who(), context.donors.depth());
        let Some(context) = occupant.entity.take_context() else { return Err(LendError::NoContext) };
        occupant.entity.authority = Authority::Lent(who);
        self.lent += 1;
        self.discount_context(now);
        self.telemetry.donation_depth_max = self.telemetry.donation_depth_max.max(depth as u64);
        Ok(context)
    }

    /// The context that the thread at `seat` has lent will not come back: it goes on as best effort when it is woken.
    pub fn write_off(&mut self, seat: Seat) -> Result<ContextRef, UnbindError> {
        let authority = &mut self.occupant_mut(seat).map_err(UnbindError::Seat)?.entity.authority;
        let Authority::Lent(who) = *authority else { return Err(UnbindError::NoContext) };
        *authority = Authority::BestEffort;
        self.lent -= 1;
        Ok(who)
    }

    /// How much of its context the thread at `seat` can use in one go from `now` on, if it holds one.
    #[must_use]
    pub fn budget_left(&self, now: Nanos, seat: Seat) -> Option<Nanos> {
        let refills = self.occupant(seat).ok()?.entity.context()?.refills();
        if self.current == Some(seat.slot) && self.band == Band::Deadline {
            return Some(refills.usable(self.since) - (now - self.since));
        }
        Some(refills.usable(now))
    }

    /// Whether [`Cpu::take_overrun`] has something to give.
    #[must_use]
    #[inline(always)]
    pub fn has_overrun(&self) -> bool {
        self.realtime.overran.is_some()
    }

    /// What overran at the last event. Ask after each event that stops a thread.
    pub fn take_overrun(&mut self) -> Option<Overran> {
        self.realtime.overran.take()
    }

    /// The notices of the context at `seat`. No decision depends on them.
    pub fn notices_mut(&mut self, seat: Seat) -> Option<&mut Notices> {
        Some(self.occupant_mut(seat).ok()?.entity.context_mut()?.notices_mut())
    }
}
