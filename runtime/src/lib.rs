//! Budgeted stackful tasks, nurseries and work stealing for Linux.
//!
//! A [`Runtime`] runs tasks: closures that get a [`Cx`], the only way to the scheduler. Tasks live in nurseries
//! ([`Cx::nursery`]), which own them, pay for them and outlive them. Each task has a [`Budget`], and [`Caps`] that say what it
//! may do.
//!
//! ```
//! use mainspring::{Capacity, Config, Profile};
//!
//! let runtime = Config::new(Profile::Service).build()?;
//! let sum = runtime.run(|cx| {
//!     let (tx, rx) = cx.channel(Capacity::Bounded(8)).unwrap();
//!     cx.nursery(|n| {
//!         n.spawn(move |cx| (1..=10).for_each(|i| tx.send(cx, i).unwrap())).unwrap();
//!         rx.iter(cx).sum::<Result<u32, _>>()
//!     })
//! })???;
//! assert_eq!(sum, 55);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The guide is `docs/runtime.md`. Its first page says what is guaranteed, what a program must not do, and what happens if it does.

pub mod actor;
mod audit;
mod blocking;
pub mod budget;
mod callback;
mod calls;
pub mod caps;
pub mod channel;
mod config;
pub mod context;
pub mod cx;
pub mod endpoint;
pub mod error;
pub mod event_loop;
mod foreign;
mod fork;
mod future;
mod histogram;
pub mod io;
pub mod lease;
mod line;
pub mod live;
#[doc(hidden)]
pub mod meter;
pub mod metrics;
pub mod nursery;
#[cfg(feature = "console")]
pub mod observe;
#[cfg(not(feature = "console"))]
#[path = "unobserved.rs"]
mod observe;
mod os_threads;
mod panic_strategy;
mod parker;
pub mod policy;
mod profile;
mod queue;
// The protocols have preconditions that types do not state: only the model checker sees them from outside.
#[cfg(loom)]
#[doc(hidden)]
pub mod protocol;
#[cfg(not(loom))]
mod protocol;
pub mod quota;
pub mod reserve;
mod runtime;
pub mod session;
pub mod signal;
pub mod snapshot;
mod spans;
mod stack;
mod stop;
pub mod supervisor;
pub mod sync;
#[cfg(loom)]
#[doc(hidden)]
pub mod task;
#[cfg(not(loom))]
mod task;
mod task_local;
pub mod testing;
pub mod time;
mod virtual_workers;
mod wait;
mod waiter;
pub mod watchdog;
mod worker;

pub use actor::{Address, AskError, Mailbox};
pub use blocking::BlockingError;
pub use budget::{Budget, Charged, Component, Cost, Pool, Unpayable};
pub use caps::{CapBudget, CapChannel, CapContext, CapExecutor, CapSpawn, Caps};
pub use channel::{Capacity, ChannelError, Receiver, Refusal, Select, SendError, Sender};
pub use config::Config;
pub use context::{ContextError, ContextInfo, Reservation, SchedulingContext};
pub use cx::{Cx, Paid, TaskId};
pub use endpoint::{CallError, CallRefusal, Endpoint};
pub use error::{BudgetError, ConfigError, RechargeError, SpawnError, StackError, TaskError};
pub use future::AwaitError;
pub use histogram::Durations;
pub use lease::{CpuIsolationLease, LeaseError, LeaseRequest};
pub use mainspring_abi::{CpuId, CpuSet, LatencyClass, Nanos, Policy, Weight, WeightError};
pub use mainspring_runtime_macros::budgeted;
pub use meter::Meter;
pub use nursery::state::NurseryState;
pub use nursery::{
    Canceller, Exhaustion, Handle, JoinSet, Nursery, NurseryError, NurseryOptions, OpenNursery, Priority,
    SpawnBuilder, Spawner, ThreadSpawner,
};
pub use parker::Parker;
pub use policy::PolicyService;
pub use profile::Profile;
pub use protocol::fair_tasks::{
    FairTaskSettings, RecordPart, Schedule, SessionName, ThreadError, WorkerRecord,
};
pub use quota::{Quota, QuotaError, Rate};
pub use reserve::{HostReservation, HostStanding};
pub use runtime::{Runtime, WorkerStats};
pub use session::{Session, SessionError};
pub use snapshot::Snapshot;
pub use stack::arena::GuardKind;
pub use stop::Stop;
pub use supervisor::Supervisor;
pub use task::WaitReason;
pub use task::state::{Event as TaskEvent, IllegalStep, TaskState};
pub use task_local::TaskLocal;
pub use watchdog::{Overstay, Watchdog};
pub use worker::victim::{VictimStrategy, Victims};
