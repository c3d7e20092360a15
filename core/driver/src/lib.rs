//! What every machine does around its CPUs.
//!
//! `core/sched` knows one CPU. A machine has several, and owns clocks, stacks and interrupts. What stands between the two is the
//! same on every machine and is written here once:
//!
//! * [`recorded_cpu`]: the only way to a [`Cpu`](mainspring_sched::Cpu). Each event gets a time that does not go back, is shown to
//!   an [`Observer`], carried out, and shown again with its outcome.
//!
//! No operation holds two CPUs at once, and none allocates.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod observer;
pub mod recorded_cpu;

pub use observer::{Observer, Usual};
pub use recorded_cpu::{CpuCore, RecordedCpu};
