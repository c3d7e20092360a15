//! The Mainspring scheduler core: events in, actions out.
//!
//! A [`Cpu`] is the scheduler of one CPU. Everything that happens to it is a method call with the time as an
//! argument; what must be done comes back as a value that names the action. It reads no clock, takes no lock, does no
//! I/O and makes no call out of the core. A machine (the simulator, the Linux runtime, the kernel) owns the clocks,
//! the stacks and the interrupts, keeps one `Cpu` per CPU under whatever guard it likes, and carries the actions out.
//!
//! Two `Cpu`s share nothing. A thread moves from one to the next as an [`Entity`] by value: removed first, published
//! after, so it has one owner at every instant and each CPU's events replay on their own.
//!
//! No method allocates, except [`Cpu::reserve`], which sets room aside for threads before they are admitted.
//!
//! ```
//! use mainspring_abi::{CpuId, LatencyClass, Nanos, Policy, ProcessId, ThreadRef, Weight};
//! use mainspring_sched::{Affinity, Config, Cpu, Decision, Entity, Spec, Stop, Via};
//!
//! let mut cpu = Cpu::new(Config::new(CpuId::BOOT, Policy::Eevdf));
//! cpu.reserve(2).expect("two seats fit in memory");
//! for index in 0..2 {
//!     let spec = Spec {
//!         thread: ThreadRef::new(index, 0),
//!         process: ProcessId::new(0),
//!         weight: Weight::DEFAULT,
//!         class: LatencyClass::Normal,
//!         request: None,
//!         affinity: Affinity::Any,
//!     };
//!     let _ = cpu.accept(Nanos::ZERO, Entity::new(spec), Via::Admit).expect("a seat was reserved");
//! }
//! let Decision::Run(first) = cpu.resched(Nanos::ZERO, Stop::Nothing) else { panic!("two threads are ready") };
//! assert_eq!(first.thread.index(), 0);
//! // The first thread's quantum ends; the second is owed service by now.
//! let Decision::Run(second) = cpu.resched(first.slice_end, Stop::Preempted) else { panic!() };
//! assert_eq!(second.thread.index(), 1);
//! ```
#![no_std]

extern crate alloc;

mod account;
pub mod context;
mod cpu;
mod entity;
mod fair;
pub mod flight;
mod floor;
mod heap;
pub mod hint;
pub mod identity;
pub mod lease;
pub mod nohz;
mod small_sorted;
mod steal;
mod telemetry;
mod tick;
mod tree;
mod virtual_time;
mod waiter;

pub use account::Account;
pub use cpu::{
    AcceptError, BindRefusal, Config, Cpu, Decision, Dispatch, Expired, Handoff, IdleTick, LendError, NoRoom,
    NohzEntry, NohzRecheck, NotBound, Overran, PolicyCap, PolicyError, Refused, Removed, Seat, SeatError,
    Snapshot, State, Stop, ThreadView, TimerOutcome, UnbindError, Via, Woken,
};
pub use entity::{Affinity, Authority, Entity, Spec};
pub use fair::{DEBTORS_RETIRED_PER_EVENT, MAX_REQUEST, Tag, class_request};
pub use floor::{Floor, FloorError};
pub use steal::Offer;
pub use telemetry::{NohzExit, Telemetry};
pub use tick::{
    ClockEvent, HOUSEKEEPING_FLOOR, IdleConditions, KeepTicking, NetworkNeed, NetworkPollClock, PollResult,
    TickMode, arm_oneshot, clamp_oneshot,
};
pub use virtual_time::{FRACTION_BITS, Lag, VirtualTime};
pub use waiter::{QuotaError, Timeout, WaitKind, WaitPermit, WaitQuota};
