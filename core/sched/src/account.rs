//! What a thread has used: its CPU account.
//!
//! Conserved: `runtime` grows by exactly the length of each running interval, when that interval ends and at no
//! other time; summed over all threads and added to idle time it equals elapsed time on every CPU.
//! `virtual_runtime` grows by the same interval scaled by the weight under which the thread was dispatched.

use crate::hint::unlikely;
use crate::virtual_time::FRACTION_BITS;
use mainspring_abi::Nanos;

/// A thread's CPU account. Cumulative and raw: windows and smoothing belong to its reader.
// In this order, what changes at every interval comes first: see `Occupant`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Account {
    pub(crate) runtime: Nanos,
    /// Virtual service in units: the lower half, and the upper one, which a thread of any usual weight never needs.
    pub(crate) virtual_units: u64,
    pub(crate) last_started: Nanos,
    pub(crate) runnable_accumulated: Nanos,
    pub(crate) switches: u64,
    pub(crate) voluntary_blocks: u64,
    pub(crate) preemptions: u64,
    pub(crate) migrations: u64,
    pub(crate) virtual_units_high: u64,
}

impl Account {
    pub(crate) fn charge(&mut self, ran: Nanos, virtual_span: u64) {
        self.runtime += ran;
        let (units, wrapped) = self.virtual_units.overflowing_add(virtual_span);
        self.virtual_units = units;
        if unlikely(wrapped) {
            self.virtual_units_high += 1;
        }
    }

    /// CPU time received.
    #[must_use]
    pub fn runtime(&self) -> Nanos {
        self.runtime
    }

    /// CPU time received, scaled by reference weight over weight.
    #[must_use]
    pub fn virtual_runtime(&self) -> Nanos {
        let units = u128::from(self.virtual_units_high) << 64 | u128::from(self.virtual_units);
        Nanos::new(u64::try_from(units >> FRACTION_BITS).unwrap_or(u64::MAX))
    }

    /// When it last began to run.
    #[must_use]
    pub fn last_started(&self) -> Nanos {
        self.last_started
    }

    /// Time spent queued but not running, up to the last time it was chosen.
    #[must_use]
    pub fn runnable_accumulated(&self) -> Nanos {
        self.runnable_accumulated
    }

    /// How often it took a CPU over from another thread or from idle.
    #[must_use]
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// How often it was requeued while it could have gone on.
    #[must_use]
    pub fn preemptions(&self) -> u64 {
        self.preemptions
    }

    /// How often it blocked by itself.
    #[must_use]
    pub fn voluntary_blocks(&self) -> u64 {
        self.voluntary_blocks
    }

    /// How often it was queued on a CPU other than the one it last ran on.
    #[must_use]
    pub fn migrations(&self) -> u64 {
        self.migrations
    }
}
