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
mod compact;
mod decode;
mod decode_state;
mod encode;
mod encode_state;
mod event;
mod log;
mod nohz;
mod packed;

pub use apply::Impossible;
pub use bytes::{DecodeError, MAX_RECORD, Reader, Room, Writer};
pub use compact::{
    CompactBuffer, FirstHalf, write_decision, write_expired, write_idle, write_stop, write_timer,
};
pub use decode::read_record;
pub use decode_state::DecodeState;
pub use encode::{write_event, write_outcome};
pub use encode_state::EncodeState;
pub use event::{Event, EventRef, EventSummary, Field};
pub use log::Log;
pub use nohz::{NohzEvent, NohzOutcome};

use crate::context::Context;
use crate::cpu::{
    Decision, Expired, Handoff, IdleTick, NotBound, Refused, Removed, Seat, SeatError, TimerOutcome,
    UnbindError, Woken,
};
use crate::entity::Entity;
use crate::virtual_time::Lag;
use alloc::boxed::Box;
use mainspring_abi::{ContextRef, CpuId, Nanos, ThreadRef};

// A record starts with four bytes: the event's kind, the CPU, and in two the time since the record before. Two events
// mostly come where and when the record before did, and then start with their kind alone.

/// From this CPU on, its number follows in two bytes.
const FAR_CPU: usize = u8::MAX as usize;
const _: () = assert!(mainspring_abi::MAX_CPUS <= 1 << u16::BITS);

/// The version of all of this. The keeper of records says by which version they were written; no version reads
/// another's records.
pub const FORMAT: u16 = 6;

/// From this many nanoseconds on, the time since the record before has a number of its own.
const LONG_AGO: u64 = u16::MAX as u64;

/// Where and when something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// On which CPU.
    pub cpu: CpuId,
    /// When.
    pub now: Nanos,
}

impl Stamp {
    /// What comes before the first record.
    pub const START: Self = Self { cpu: CpuId::BOOT, now: Nanos::ZERO };
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
    /// The thread that left, and what it is owed; or no thread.
    Left(Option<(ThreadRef, Lag)>),
    /// The thread is ready; whether the CPU should reschedule, and whether a permit came back.
    Ready(bool, bool),
    /// The thread is the direct target; whether a permit came back.
    Direct(bool),
    /// The seat could not be used as asked.
    BadSeat,
    /// What the timer was for.
    Timer(TimerOutcome),
    /// The thread whose wait ended and when it was due; or no thread. Whether the CPU should
    /// reschedule.
    Expired(Option<(Seat, Nanos)>, bool),
    /// What becomes of the tick.
    Idle(IdleTick),
    /// What becomes of a tickless window.
    Nohz(NohzOutcome),
    /// Done; there is nothing to tell.
    Done,
    /// This context was taken out.
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
