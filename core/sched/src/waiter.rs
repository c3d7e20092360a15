//! Timed waits: absolute deadlines, never tick counts, and a bound on how many there may be.
//!
//! Conserved: a [`WaitPermit`] exists for each timed wait that is pending, and for nothing else. It is taken from
//! the [`WaitQuota`] before the wait begins, travels with it, and comes back with the event that ends it. A wait that
//! would exceed the quota is refused before anything has changed; no wait that began can fail for want of room.

use crate::small_sorted::Rank;
use alloc::vec::Vec;
use core::fmt;
use mainspring_abi::{Nanos, ProcessId};

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WaitKind {
    /// Time alone.
    Sleep,
    /// An unpark.
    Park,
    /// Another thread's end.
    Join,
    /// The reply to a call.
    Call,
    /// A request at an endpoint.
    Receive,
    /// Completions in a ring.
    Ring,
}

impl WaitKind {
    /// Every kind, in the order of their codes.
    pub const ALL: [Self; 6] = [Self::Sleep, Self::Park, Self::Join, Self::Call, Self::Receive, Self::Ring];
}

/// Leave to have one timed wait pending.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an unreturned permit shrinks the quota for ever"]
pub struct WaitPermit {
    process: ProcessId,
}

impl WaitPermit {
    /// The process that waits.
    #[must_use]
    pub fn process(&self) -> ProcessId {
        self.process
    }

    pub(crate) fn from_record(process: ProcessId) -> Self {
        Self { process }
    }
}

/// When a timed wait ends by itself.
#[derive(Debug, PartialEq, Eq)]
pub struct Timeout {
    /// Absolute time.
    pub deadline: Nanos,
    /// Handed back when it ends by itself: whatever the waiter needs to know its wait again.
    pub user_data: u64,
    /// Leave to wait.
    pub permit: WaitPermit,
}

/// A timed wait that was refused; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuotaError {
    /// The process has as many timed waits pending as it may; let one end first.
    Process {
        /// The process.
        process: ProcessId,
        /// The limit.
        limit: u32,
    },
    /// The whole system has as many timed waits pending as it may.
    System {
        /// The limit.
        limit: u32,
    },
    /// The process was not admitted.
    UnknownProcess {
        /// What was asked for.
        process: ProcessId,
    },
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { process, limit } => {
                write!(f, "process {process:?} has {limit} timed waits pending, its limit; let one end first")
            }
            Self::System { limit } => write!(f, "{limit} timed waits are pending, the system's limit"),
            Self::UnknownProcess { process } => write!(f, "process {process:?} was not admitted"),
        }
    }
}

impl core::error::Error for QuotaError {}

/// How many timed waits may be pending, in all and per process.
#[derive(Clone, Debug)]
pub struct WaitQuota {
    total_limit: u32,
    process_limit: u32,
    total: u32,
    per_process: Vec<u32>,
}

impl WaitQuota {
    /// A quota for processes 0 to `processes - 1`.
    #[must_use]
    pub fn new(total_limit: u32, process_limit: u32, processes: usize) -> Self {
        Self { total_limit, process_limit, total: 0, per_process: alloc::vec![0; processes] }
    }

    /// Leave for one more timed wait of `process`.
    pub fn take(&mut self, process: ProcessId) -> Result<WaitPermit, QuotaError> {
        let Some(used) = self.per_process.get_mut(process.index()) else {
            return Err(QuotaError::UnknownProcess { process });
        };
        if *used >= self.process_limit {
            return Err(QuotaError::Process { process, limit: self.process_limit });
        }
        if self.total >= self.total_limit {
            return Err(QuotaError::System { limit: self.total_limit });
        }
        *used += 1;
        self.total += 1;
        Ok(WaitPermit { process })
    }

    /// Takes a permit back.
    #[expect(clippy::needless_pass_by_value, reason = "the permit must end here")]
    pub fn give_back(&mut self, permit: WaitPermit) {
        if let Some(used) = self.per_process.get_mut(permit.process.index()) {
            *used -= 1;
            self.total -= 1;
        }
    }

    /// How many timed waits are pending.
    #[must_use]
    pub fn pending(&self) -> u32 {
        self.total
    }
}

/// Orders waits by deadline; equal deadlines by thread, so that the order does not depend on history.
// Packed, so that with its seat it takes sixteen bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, packed(4))]
pub(crate) struct Due {
    pub deadline: Nanos,
    pub thread_index: u32,
}

const _: () = assert!(size_of::<(Due, u32)>() == 16);

impl Due {
    /// Deadline, then thread, as one number: compared without a branch.
    #[inline]
    fn rank(self) -> u128 {
        u128::from(self.deadline.get()) << 64 | u128::from(self.thread_index)
    }
}

impl Rank for Due {
    const NONE: Self = Self { deadline: Nanos::MAX, thread_index: 0 };

    #[inline]
    fn is_before(&self, other: &Self) -> bool {
        self.rank() < other.rank()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= TICK:L1.waiter-bound ARCH:inv.sleep-bounded
    #[test]
    fn one_process_cannot_fill_the_store() {
        let mut quota = WaitQuota::new(3, 2, 2);
        let (greedy, modest) = (ProcessId::new(0), ProcessId::new(1));
        let first = quota.take(greedy).expect("within both limits");
        let second = quota.take(greedy).expect("within both limits");
        assert_eq!(quota.take(greedy), Err(QuotaError::Process { process: greedy, limit: 2 }));
        let third = quota.take(modest).expect("the other process is not affected");
        assert_eq!(quota.take(modest), Err(QuotaError::System { limit: 3 }));
        for permit in [first, second, third] {
            quota.give_back(permit);
        }
        assert_eq!(quota.pending(), 0);
    }

    #[test]
    fn a_process_that_was_never_admitted_waits_for_nothing() {
        let mut quota = WaitQuota::new(3, 2, 1);
        let stranger = ProcessId::new(9);
        assert_eq!(quota.take(stranger), Err(QuotaError::UnknownProcess { process: stranger }));
    }
}
