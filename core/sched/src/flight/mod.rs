//! The flight record: every input of a CPU's scheduler, and what came of it.
//!
//! All inputs are events and a [`Cpu`](crate::Cpu) is a function of them, so the events alone reproduce every decision. Each
//! record also holds the outcome, so that a replay can say which decision was the first to differ. A thread that
//! arrives is recorded by value; therefore each CPU's records replay on their own, in their own order, and no order
//! between CPUs has to be known.
//!
//! This module turns events and outcomes into bytes and back. Where the bytes go is the machine's business; a [`Log`] keeps
//! them in memory.

mod apply;
mod authority;
mod bytes;
mod decode;
mod encode;
mod log;
mod nohz;
mod past;
mod told;
mod usual;
mod word;

pub use apply::Impossible;
pub use bytes::{DecodeError, MAX_RECORD, Reader, Room, Writer};
pub use decode::read_record;
pub use encode::{write_event, write_outcome};
pub use log::Log;
pub use nohz::{NohzEvent, NohzOutcome};
pub use past::Past;
pub use told::Told;
pub use usual::{FirstHalf, UsualRoom, write_decision, write_expired, write_idle, write_stop, write_timer};

use crate::context::Context;
use crate::cpu::{
    Decision, Expired, Handoff, IdleTick, NotBound, Refused, Removed, Seat, SeatError, Stop, TimerOutcome,
    UnbindError, Via, Woken,
};
use crate::entity::Entity;
use crate::tick::IdleConditions;
use crate::virtual_time::Lag;
use crate::waiter::{Timeout, WaitKind};
use alloc::boxed::Box;
use mainspring_abi::{ContextRef, CpuId, LatencyClass, Nanos, ThreadRef, Weight};

// A record starts with four bytes: the event's kind, the CPU, and in two the time since the record before. Two events
// mostly come where and when the record before did, and then start with their kind alone.

/// From this CPU on, its number follows in two bytes.
const FAR_CPU: usize = u8::MAX as usize;
const _: () = assert!(mainspring_abi::MAX_CPUS <= 1 << u16::BITS);

/// The version of all of this. Whoever keeps records says by which they were written; none is read by another.
pub const FORMAT: u16 = 5;

/// From this many nanoseconds on, the time since the record before has a number of its own.
const LONG_AGO: u64 = u16::MAX as u64;

/// Where and when something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// On which CPU.
    pub cpu: CpuId,
    /// When.
    pub now: Nanos,
}

impl Place {
    /// What comes before the first record.
    pub const START: Self = Self { cpu: CpuId::BOOT, now: Nanos::ZERO };
}

/// What happened to a CPU.
#[derive(Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the method of `Cpu` of the same name")]
pub enum Event {
    Accept(Entity, Via),
    Resched(Stop),
    ExitCurrent,
    Wake(Seat),
    HandOff(Seat),
    Hold(Seat),
    Release(Seat),
    Remove(Seat),
    Give(CpuId),
    Timer,
    Expire,
    RescheduleReceived,
    EnterIdle(IdleConditions),
    SetWeight(Seat, Weight),
    SetClass(Seat, LatencyClass),
    BlockCurrent(WaitKind, Option<Timeout>),
    Bind(Seat, Box<Context>),
    Unbind(Seat),
    Lend(Seat, ThreadRef),
    WriteOff(Seat),
    Nohz(NohzEvent),
}

impl Event {
    /// The event as a recorder takes it.
    #[must_use]
    pub fn borrowed(&self) -> EventRef<'_> {
        match self {
            Self::Accept(entity, via) => EventRef::Accept(entity, *via),
            Self::Resched(stop) => EventRef::Resched(stop),
            Self::ExitCurrent => EventRef::ExitCurrent,
            Self::Wake(seat) => EventRef::Wake(*seat),
            Self::HandOff(seat) => EventRef::HandOff(*seat),
            Self::Hold(seat) => EventRef::Hold(*seat),
            Self::Release(seat) => EventRef::Release(*seat),
            Self::Remove(seat) => EventRef::Remove(*seat),
            Self::Give(thief) => EventRef::Give(*thief),
            Self::Timer => EventRef::Timer,
            Self::Expire => EventRef::Expire,
            Self::RescheduleReceived => EventRef::RescheduleReceived,
            Self::EnterIdle(conditions) => EventRef::EnterIdle(conditions),
            Self::SetWeight(seat, weight) => EventRef::SetWeight(*seat, *weight),
            Self::SetClass(seat, class) => EventRef::SetClass(*seat, *class),
            Self::BlockCurrent(kind, timeout) => EventRef::BlockCurrent(*kind, timeout.as_ref()),
            Self::Bind(seat, context) => EventRef::Bind(*seat, context),
            Self::Unbind(seat) => EventRef::Unbind(*seat),
            Self::Lend(seat, to) => EventRef::Lend(*seat, *to),
            Self::WriteOff(seat) => EventRef::WriteOff(*seat),
            Self::Nohz(event) => EventRef::Nohz(event),
        }
    }
}

/// An event that is about to be given to a CPU.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each variant is the method of `Cpu` of the same name")]
pub enum EventRef<'a> {
    Accept(&'a Entity, Via),
    Resched(&'a Stop),
    ExitCurrent,
    Wake(Seat),
    HandOff(Seat),
    Hold(Seat),
    Release(Seat),
    Remove(Seat),
    Give(CpuId),
    Timer,
    Expire,
    RescheduleReceived,
    EnterIdle(&'a IdleConditions),
    SetWeight(Seat, Weight),
    SetClass(Seat, LatencyClass),
    BlockCurrent(WaitKind, Option<&'a Timeout>),
    Bind(Seat, &'a Context),
    Unbind(Seat),
    Lend(Seat, ThreadRef),
    WriteOff(Seat),
    Nohz(&'a NohzEvent),
}

/// What a CPU answered, without the values that move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The thread sits there; whether the CPU should reschedule.
    Seated(u32, bool),
    /// It was not accepted.
    Refused,
    /// What to run.
    Decided(Decision),
    /// The thread that left, and what it is owed; or nobody.
    Left(Option<(ThreadRef, Lag)>),
    /// The thread is ready; whether the CPU should reschedule, and whether a permit came back.
    Ready(bool, bool),
    /// The thread is the direct target; whether a permit came back.
    Direct(bool),
    /// The seat could not be used as asked.
    BadSeat,
    /// What the timer was for.
    Timer(TimerOutcome),
    /// The thread whose wait ended and when it was due; or nobody. Whether the CPU should reschedule.
    Expired(Option<(Seat, Nanos)>, bool),
    /// What becomes of the tick.
    Idle(IdleTick),
    /// What becomes of a tickless window.
    Nohz(NohzOutcome),
    /// Done; there is nothing to tell.
    Done,
    /// That context was taken out.
    Took(ContextRef),
}

impl From<&Result<(Seat, Woken), Refused>> for Outcome {
    fn from(result: &Result<(Seat, Woken), Refused>) -> Self {
        match result {
            Ok((seat, woken)) => Self::Seated(seat.slot, woken.reschedule),
            Err(_) => Self::Refused,
        }
    }
}

impl From<Decision> for Outcome {
    fn from(decision: Decision) -> Self {
        Self::Decided(decision)
    }
}

impl From<&Option<Entity>> for Outcome {
    fn from(entity: &Option<Entity>) -> Self {
        Self::Left(entity.as_ref().map(|entity| (entity.thread, entity.lag)))
    }
}

impl From<&Result<Woken, SeatError>> for Outcome {
    fn from(result: &Result<Woken, SeatError>) -> Self {
        match result {
            Ok(woken) => Self::Ready(woken.reschedule, woken.permit.is_some()),
            Err(_) => Self::BadSeat,
        }
    }
}

impl From<&Result<Handoff, SeatError>> for Outcome {
    fn from(result: &Result<Handoff, SeatError>) -> Self {
        match result {
            Ok(Handoff::Direct(permit)) => Self::Direct(permit.is_some()),
            Ok(Handoff::Queued(woken)) => Self::Ready(woken.reschedule, woken.permit.is_some()),
            Err(_) => Self::BadSeat,
        }
    }
}

impl From<&Result<(), SeatError>> for Outcome {
    fn from(result: &Result<(), SeatError>) -> Self {
        if result.is_ok() { Self::Done } else { Self::BadSeat }
    }
}

impl From<&Result<Removed, SeatError>> for Outcome {
    fn from(result: &Result<Removed, SeatError>) -> Self {
        match result {
            Ok(removed) => Self::Left(Some((removed.entity.thread, removed.entity.lag))),
            Err(_) => Self::BadSeat,
        }
    }
}

impl From<TimerOutcome> for Outcome {
    fn from(outcome: TimerOutcome) -> Self {
        Self::Timer(outcome)
    }
}

impl From<&Option<Expired>> for Outcome {
    fn from(expired: &Option<Expired>) -> Self {
        expired.as_ref().into()
    }
}

impl From<Option<&Expired>> for Outcome {
    fn from(expired: Option<&Expired>) -> Self {
        match expired {
            Some(one) => Self::Expired(Some((one.seat, one.deadline)), one.woken.reschedule),
            None => Self::Expired(None, false),
        }
    }
}

impl From<IdleTick> for Outcome {
    fn from(tick: IdleTick) -> Self {
        Self::Idle(tick)
    }
}

impl From<&Result<bool, NotBound>> for Outcome {
    fn from(result: &Result<bool, NotBound>) -> Self {
        match result {
            Ok(reschedule) => Self::Ready(*reschedule, false),
            Err(_) => Self::BadSeat,
        }
    }
}

impl<E> From<&Result<Box<Context>, E>> for Outcome {
    fn from(result: &Result<Box<Context>, E>) -> Self {
        result.as_ref().map_or(Self::BadSeat, |context| Self::Took(context.who()))
    }
}

impl From<&Result<ContextRef, UnbindError>> for Outcome {
    fn from(result: &Result<ContextRef, UnbindError>) -> Self {
        result.as_ref().map_or(Self::BadSeat, |who| Self::Took(*who))
    }
}
