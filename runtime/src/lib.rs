//! Budgeted stackful tasks, nurseries and work stealing for Linux.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod blocking;
pub mod budget;
pub mod caps;
pub mod channel;
mod config;
pub mod cx;
pub mod error;
mod fork;
mod future;
mod histogram;
pub mod io;
mod meter;
pub mod nursery;
mod profile;
#[doc(hidden)]
pub mod protocol;
mod runtime;
pub mod snapshot;
mod stack;
pub mod sync;
pub mod task;
pub mod testing;
pub mod time;
mod virtual_workers;
mod wait;
mod waiter;
mod worker;

pub use blocking::BlockingError;
pub use budget::{Budget, Charged, Component, Cost, Pool, Unpayable};
pub use caps::{CapBudget, CapChannel, CapExecutor, CapSpawn, Caps};
pub use channel::{Capacity, ChannelError, Receiver, Refusal, Select, SendError, Sender};
pub use config::Config;
pub use cx::{Cx, TaskId};
pub use error::{BudgetError, ConfigError, RechargeError, SpawnError, StackError, TaskError};
pub use histogram::Durations;
pub use mainspring_runtime_macros::budgeted;
pub use meter::Meter;
pub use nursery::state::NurseryState;
pub use nursery::{Exhaustion, Handle, Nursery, NurseryError, NurseryOptions, Priority, SpawnBuilder};
pub use profile::Profile;
pub use runtime::{Runtime, WorkerStats};
pub use snapshot::Snapshot;
pub use stack::arena::GuardKind;
pub use task::WaitReason;
pub use task::state::TaskState;
pub use worker::victim::{VictimStrategy, Victims};
