//! Threads come and go: admission, stealing, moving, ending. Out of one CPU first, into the next after.

use super::{Cpu, Occupant, Seat, SeatError, Slot, State, Woken};
use crate::entity::{Authority, Entity};
use crate::fair::MAX_REQUEST;
use crate::steal::Offer;
use crate::waiter::WaitPermit;
use core::fmt;
use mainspring_abi::{ContextRef, CpuId, Nanos};

/// How a thread comes to a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Via {
    /// It is new, or its machine has moved it.
    Admit,
    /// This CPU stole it.
    Steal,
    /// The running thread of this CPU hands over to it.
    HandOff,
}

/// Why a thread was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcceptError {
    /// No seat is free; reserve more before admitting.
    Full {
        /// How many were reserved.
        capacity: usize,
    },
    /// The thread may not run on this CPU.
    NotAllowed(CpuId),
    /// It asks for nothing, or for more than [`MAX_REQUEST`] at a time.
    BadRequest(Nanos),
    /// Its context is lent, so it cannot be ready.
    ContextAway(ContextRef),
}

impl fmt::Display for AcceptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { capacity } => {
                write!(f, "all {capacity} reserved seats are taken; reserve before admitting")
            }
            Self::NotAllowed(cpu) => {
                write!(f, "the affinity of the thread or its context leaves {cpu:?} out")
            }
            Self::ContextAway(who) => {
                write!(f, "the thread has lent its context {who:?}; bring it back first")
            }
            Self::BadRequest(request) => {
                write!(f, "a request of {request} is out of range; choose 1ns to {MAX_REQUEST}")
            }
        }
    }
}

impl core::error::Error for AcceptError {}

/// A thread that was not accepted, given back unchanged.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the thread is in here"]
pub struct Refused {
    /// Why.
    pub why: AcceptError,
    /// The thread.
    pub entity: Entity,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} was not accepted: {}", self.entity.thread, self.why)
    }
}

impl core::error::Error for Refused {}

/// A thread that was taken out of a CPU.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Removed {
    /// The thread.
    pub entity: Entity,
    /// The permit of the timed wait that this ended.
    pub permit: Option<WaitPermit>,
}

impl Cpu {
    /// Gives `entity` a seat here and makes it ready.
    #[expect(clippy::result_large_err, reason = "the thread itself comes back, and boxing it would allocate")]
    pub fn accept(&mut self, now: Nanos, entity: Entity, via: Via) -> Result<(Seat, Woken), Refused> {
        if let Err(why) = self.may_accept(&entity) {
            return Err(Refused { why, entity });
        }
        self.bring_clock_up(now);
        let (thread, lag, weight) = (entity.thread, entity.lag, entity.weight);
        let on_context = entity.context().is_some();
        let slot = self.take_seat(entity, via);
        self.fair.join(slot, lag, weight);
        if on_context {
            self.count_context(now);
            self.fair.sleep(slot);
        }
        let direct = via == Via::HandOff && self.publish_direct(now, slot);
        let reschedule = if direct { false } else { self.publish(now, slot) };
        Ok((Seat { slot, thread }, Woken { reschedule, permit: None }))
    }

    /// Gives `thief` the most overdue queued thread that it may run.
    pub fn give(&mut self, now: Nanos, thief: CpuId) -> Option<Entity> {
        self.bring_clock_up(now);
        let slot = self.first_for(thief)?;
        self.fair.dequeue(slot);
        let lag = self.fair.leave(slot, false);
        let mut entity = self.vacate(now, slot).entity;
        entity.lag = lag;
        Some(entity)
    }

    /// Takes the thread at `seat` out, whatever it waits for. A running thread ends by [`Cpu::exit_current`].
    pub fn remove(&mut self, now: Nanos, seat: Seat) -> Result<Removed, SeatError> {
        let state = self.occupant(seat)?.state;
        if state == State::Running {
            return Err(SeatError::WrongState(state));
        }
        self.bring_clock_up(now);
        let slot = seat.slot;
        self.suspend_context(now, slot);
        let competes = match state {
            State::Running => false,
            State::Queued => self.withdraw_queued(slot),
            State::Direct => {
                self.direct = None;
                true
            }
            State::Held => {
                self.held -= 1;
                false
            }
            State::Throttled => {
                self.realtime.forget(slot);
                false
            }
            State::Asleep(_) => {
                self.waits.remove(slot);
                false
            }
        };
        let lag = self.fair.leave(slot, !competes);
        let Occupant { mut entity, permit, .. } = self.vacate(now, slot);
        entity.lag = lag;
        Ok(Removed { entity, permit })
    }

    /// What this CPU has to give, to be published after each event.
    #[must_use]
    #[inline(always)]
    pub fn offer(&self) -> Offer {
        if self.fair.queued() == 0 { Offer::NONE } else { self.offer_of_queued() }
    }

    #[inline(never)]
    fn offer_of_queued(&self) -> Offer {
        let due_in = self.fair.first_open().map_or(Offer::NOTHING, |slot| self.due_in(slot));
        Offer { due_in, bound_reach: self.fair.bound_reach() }
    }

    /// The tag, relative to this CPU's clock, of its first bound thread that `thief` may run.
    #[must_use]
    pub fn bound_due_in(&self, thief: CpuId) -> Option<i64> {
        self.first_bound_for(thief).map(|slot| self.due_in(slot))
    }

    fn due_in(&self, slot: u32) -> i64 {
        self.fair.queued_tag(slot).deadline.since(self.fair.clock())
    }

    fn first_for(&self, thief: CpuId) -> Option<u32> {
        match (self.fair.first_open(), self.first_bound_for(thief)) {
            (Some(open), Some(bound)) if self.fair.precedes(bound, open) => Some(bound),
            (None, bound) => bound,
            (open, _) => open,
        }
    }

    fn first_bound_for(&self, thief: CpuId) -> Option<u32> {
        let bit = 1 << (thief.index() % 64);
        self.fair.first_bound(bit, &|slot| self.at(slot).entity.affinity.allows(thief))
    }

    fn may_accept(&self, entity: &Entity) -> Result<(), AcceptError> {
        if self.occupied >= self.capacity {
            return Err(AcceptError::Full { capacity: self.capacity });
        }
        if !entity.affinity.allows(self.id) {
            return Err(AcceptError::NotAllowed(self.id));
        }
        match &entity.authority {
            Authority::Lent(who) => return Err(AcceptError::ContextAway(*who)),
            Authority::Context(context) if !context.spec().cpus.allows(self.id) => {
                return Err(AcceptError::NotAllowed(self.id));
            }
            Authority::Context(_) | Authority::BestEffort => {}
        }
        match entity.request.get() {
            Some(request) if request.is_zero() || request > MAX_REQUEST => {
                Err(AcceptError::BadRequest(request))
            }
            _ => Ok(()),
        }
    }

    /// Gives the thread a seat; room has been checked.
    fn take_seat(&mut self, mut entity: Entity, via: Via) -> u32 {
        let moved = entity.last_cpu.is_some_and(|cpu| cpu != self.id);
        entity.account.migrations += u64::from(moved || via == Via::Steal);
        self.telemetry.steals += u64::from(via == Via::Steal);
        self.occupied += 1;
        let occupant = Slot::Taken(Occupant::new(entity, self.quantum));
        match self.vacant {
            Some(slot) => {
                if let Slot::Vacant { next } = self.slots[slot as usize] {
                    self.vacant = next;
                }
                self.slots[slot as usize] = occupant;
                slot
            }
            None => {
                self.slots.push(occupant);
                self.slots.len() as u32 - 1
            }
        }
    }

    pub(super) fn vacate(&mut self, now: Nanos, slot: u32) -> Occupant {
        self.occupied -= 1;
        let left = core::mem::replace(&mut self.slots[slot as usize], Slot::Vacant { next: self.vacant });
        self.vacant = Some(slot);
        match left {
            Slot::Taken(occupant) => {
                match occupant.entity.authority {
                    Authority::BestEffort => {}
                    Authority::Context(_) => self.discount_context(now),
                    Authority::Lent(_) => self.lent -= 1,
                }
                occupant
            }
            Slot::Vacant { .. } => unreachable!("slot {slot} was vacated twice"),
        }
    }
}
