//! What contexts tell their watchers: two cells for each context, drained or waited for wherever the context is.

use super::record::Position;
use super::transfer::{at_home, home_of};
use super::{ContextError, ContextMachine, Contexts, RevokeReason};
use core::fmt;
use mainspring_abi::{ContextRef, ThreadRef};
use mainspring_sched::context::{Notice, Notices};

/// What a drain gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drained {
    /// The contents of the cells: budget depleted, and deadline or timeout. They are empty now.
    Ok([Option<Notice>; 2]),
    /// The context is revoked.
    Revoked {
        /// The generation that it ended with.
        generation: u32,
        /// Why.
        reason: RevokeReason,
    },
    /// The name is of an old generation; nothing was drained.
    StaleGeneration {
        /// The present one.
        current: u32,
    },
}

/// What to do about a wish to be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum NoticeWait {
    /// There is something to drain already: do not sleep.
    Pending,
    /// The thread will be told of the next event, and of the end of the context: it may sleep.
    Armed,
}

/// Why a thread cannot wait; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitError {
    /// The name could not be used.
    Context(ContextError),
    /// This thread waits already.
    Busy(ThreadRef),
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Context(error) => error.fmt(f),
            Self::Busy(waiter) => write!(f, "{waiter:?} waits for this context already; drain instead"),
        }
    }
}

impl core::error::Error for WaitError {}

impl Contexts {
    /// Empties the cells of a context, wherever it is. `Err` for a name that never named anything.
    pub fn drain<M: ContextMachine>(
        &mut self,
        machine: &mut M,
        who: ContextRef,
    ) -> Result<Drained, ContextError> {
        match self.live(who) {
            Ok(index) => {
                Ok(Drained::Ok(self.with_notices(machine, index, Notices::drain).unwrap_or_default()))
            }
            Err(ContextError::StaleGeneration { current }) => Ok(Drained::StaleGeneration { current }),
            Err(ContextError::Revoked { generation, reason }) => Ok(Drained::Revoked { generation, reason }),
            Err(error) => Err(error),
        }
    }

    /// Lets `waiter` be told of the next event of a context, unless there is something to drain already. One thread at a time can
    /// wait; a waiter that has ended makes room.
    pub fn wait_for_notice<M: ContextMachine>(
        &mut self,
        machine: &mut M,
        who: ContextRef,
        waiter: ThreadRef,
    ) -> Result<NoticeWait, WaitError> {
        let index = self.live(who).map_err(WaitError::Context)?;
        let other = self.with_notices(machine, index, |notices| notices.waiter()).flatten();
        if let Some(other) = other.filter(|other| *other != waiter && home_of(machine, *other).is_some()) {
            return Err(WaitError::Busy(other));
        }
        let wait = self.with_notices(machine, index, |notices| {
            if notices.is_empty() {
                notices.arm(waiter);
                NoticeWait::Armed
            } else {
                NoticeWait::Pending
            }
        });
        Ok(wait.unwrap_or(NoticeWait::Pending))
    }

    /// `waiter` waits no longer for a notice of the context with this name.
    pub fn stop_waiting<M: ContextMachine>(&mut self, machine: &mut M, who: ContextRef, waiter: ThreadRef) {
        if let Some(index) = self.of_value(who) {
            self.with_notices(machine, index, |notices| {
                if notices.waiter() == Some(waiter) {
                    notices.take_waiter();
                }
            });
        }
    }

    fn with_notices<M: ContextMachine, R>(
        &mut self,
        machine: &mut M,
        index: usize,
        mut act: impl FnMut(&mut Notices) -> R,
    ) -> Option<R> {
        match &mut self.records[index].position {
            Position::Rest(value) => Some(act(value.notices_mut())),
            Position::InFlight(flight) => Some(act(flight.value.notices_mut())),
            Position::With(holder) => {
                at_home(machine, *holder, |access, seat| access.notices_mut(seat).map(&mut act)).flatten()
            }
            Position::Gone => None,
        }
    }
}
