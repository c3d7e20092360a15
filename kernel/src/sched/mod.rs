//! The third driver of `core/sched`: real CPUs, real timers, user threads.
//!
//! Each CPU has a [`per_cpu::PerCpu`]: its core under its own lock, and words that others may look at without it. A decision
//! takes that lock and no other. Which CPU runs a thread that starts or wakes, and which CPU is stolen from, is decided by
//! [`mainspring_driver::placement`] over [`machine::Kernel`], one lock at a time.
//!
//! Conserved: a thread's context is bound to a CPU exactly while that CPU's core says it runs; before a core publishes
//! a thread to others, its context has been saved and let go.

pub mod check;
pub mod contexts;
pub mod dispatch;
pub mod flush;
pub mod idle;
pub mod islands;
pub mod leases;
pub mod machine;
pub mod notify;
pub mod per_cpu;
pub mod policy;
pub mod record;
pub mod sqpoll;
pub mod stretch;
pub mod visible;
pub mod wakeup;

pub use per_cpu::{mine, per_cpu, per_cpus};
