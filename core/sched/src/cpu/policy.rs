//! What a thread may change about its own scheduling, and what it may read.
//!
//! A [`PolicyCap`] is the authority of one thread over its own weight and latency class. It has no effect unless that
//! thread is the one that runs, so a copy of another thread's capability is worth nothing. A caller that may change
//! other threads (the policy service) uses [`Cpu::set_weight`] and [`Cpu::set_class`], which a machine offers to no
//! other caller.

use super::{Cpu, Seat};
use crate::account::Account;
use core::fmt;
use mainspring_abi::{LatencyClass, Nanos, ThreadRef, Weight, WeightError};

/// A thread's authority over its own weight and latency class.
#[derive(Debug, PartialEq, Eq)]
pub struct PolicyCap {
    thread: ThreadRef,
}

/// Why a thread's wish was not granted; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicyError {
    /// The capability does not belong to the thread that runs here.
    NotTheCaller,
    /// No such weight.
    Weight(WeightError),
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTheCaller => {
                f.write_str("a policy capability acts on the thread that calls, and on no other")
            }
            Self::Weight(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for PolicyError {}

/// A thread's scheduling state as it may see it: raw and cumulative. Fields are only ever added, each with a new
/// version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Which fields there are; version 2 added the last three.
    pub version: u16,
    /// Weight as last set.
    pub weight: Weight,
    /// Latency class as last set.
    pub class: LatencyClass,
    /// CPU time received.
    pub runtime: Nanos,
    /// CPU time received, scaled by reference weight over weight.
    pub virtual_runtime: Nanos,
    /// When it last began to run.
    pub last_started: Nanos,
    /// How often it blocked by itself.
    pub voluntary_blocks: u64,
    /// How often it was requeued while it could have gone on.
    pub preemptions: u64,
    /// Time spent queued but not running.
    pub runnable_accumulated: Nanos,
}

impl PolicyCap {
    /// The capability of `thread`, made by the machine when it makes the thread.
    #[must_use]
    pub fn of(thread: ThreadRef) -> Self {
        Self { thread }
    }
}

impl Cpu {
    /// The caller sets its own weight, given as it came from outside. It counts from the next time it is queued.
    pub fn call_set_weight(&mut self, cap: &PolicyCap, weight: u64) -> Result<(), PolicyError> {
        let seat = self.caller(cap)?;
        let weight = Weight::new(weight).map_err(PolicyError::Weight)?;
        self.set_weight(seat, weight).map_err(|_| PolicyError::NotTheCaller)
    }

    /// The caller sets its own latency class. It counts from the next time it is queued.
    pub fn call_set_class(&mut self, cap: &PolicyCap, class: LatencyClass) -> Result<(), PolicyError> {
        let seat = self.caller(cap)?;
        self.set_class(seat, class).map_err(|_| PolicyError::NotTheCaller)
    }

    /// The caller reads its own account.
    pub fn call_snapshot(&self, cap: &PolicyCap) -> Result<Snapshot, PolicyError> {
        let seat = self.caller(cap)?;
        let entity = self.entity(seat).map_err(|_| PolicyError::NotTheCaller)?;
        let account: &Account = entity.account();
        Ok(Snapshot {
            version: 2,
            weight: entity.weight(),
            class: entity.class(),
            runtime: account.runtime(),
            virtual_runtime: account.virtual_runtime(),
            last_started: account.last_started(),
            voluntary_blocks: account.voluntary_blocks(),
            preemptions: account.preemptions(),
            runnable_accumulated: account.runnable_accumulated(),
        })
    }

    fn caller(&self, cap: &PolicyCap) -> Result<Seat, PolicyError> {
        self.current().filter(|seat| seat.thread() == cap.thread).ok_or(PolicyError::NotTheCaller)
    }
}
