//! What every machine does around its CPUs.
//!
//! `core/sched` knows one CPU. A machine has several, and owns clocks, stacks and interrupts. What stands between the two is the
//! same on every machine and is written here once:
//!
//! * [`recorded_cpu`]: the only way to a [`Cpu`](mainspring_sched::Cpu). Each event gets a time that does not go back, is shown to
//!   an [`Observer`], carried out, and shown again with its outcome.
//! * [`machine`]: what a machine has to have, as a trait.
//! * [`placement`]: where threads run. Start, wake, expire, hand over, steal, migrate, exit.
//! * [`islands`]: graphs that get all that they need, or nothing.
//! * [`leases`]: CPUs to oneself, and ticks that stop. Grant, placement, proof, and every ending.
//! * [`policy`]: the policy service's word, carried out within its bounds.
//! * [`sqpoll`]: the poller of a ring, as an entity of the scheduler.
//! * [`local_ring`]: the entries of a ring whose two sides are threads of one machine.
//! * [`steal`]: which CPU has the most overdue thread to give.
//! * [`contexts`]: who holds CPU time as a context, how it is lent along calls and comes back, and what takes it away.
//! * [`sessions`], [`ledgers`]: to whom contexts belong, and what each may hold.
//! * [`debts`]: used time that has not come back when its context ends.
//!
//! No operation holds two CPUs at once, and none allocates, except those that create something.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod contexts;
pub mod debts;
pub mod islands;
pub mod leases;
pub mod ledgers;
pub mod local_ring;
pub mod machine;
pub mod observer;
pub mod placement;
pub mod policy;
pub mod recorded_cpu;
pub mod sessions;
pub mod sqpoll;
pub mod steal;

pub use contexts::{ContextMachine, Contexts};
pub use machine::{CpuAccess, Home, Left, Machine, Notified, Threads};
pub use observer::{FrequentEvent, Observer};
pub use recorded_cpu::{CpuCore, RecordedCpu};
