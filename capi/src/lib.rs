//! The runtime for C: schedulers, nurseries, tasks, budgets, channels, endpoints, contexts and quotas behind plain functions. `docs/capi.md` is the guide, and
//! `include/mainspring.h` is made from these sources.
//!
//! Conserved at the boundary:
//!
//! - A handle is an index and a generation, never an address. One that is null, stale, of another kind or of another owner is told
//!   by a status.
//! - Nothing unwinds into C. What would end a task comes back as a status, and the task ends when its function returns.
//! - A task that returns leaves no nursery open behind it.

mod budget;
mod caller;
mod channel;
mod context;
mod endpoint;
mod fork;
mod handle;
mod layout;
mod nursery;
mod quota;
mod scheduler;
mod status;
mod task;

pub use budget::*;
pub use channel::*;
pub use context::*;
pub use endpoint::*;
pub use layout::*;
pub use nursery::*;
pub use quota::*;
pub use scheduler::*;
pub use status::*;
pub use task::*;

/// How many schedulers, nurseries, tasks, channels, endpoints, open calls, contexts and quotas have names now: what leaks is seen here.
pub fn live_handles() -> [usize; 8] {
    [
        scheduler::SCHEDULERS.live(),
        nursery::NURSERIES.live(),
        nursery::TASKS.live(),
        channel::CHANNELS.live(),
        endpoint::ENDPOINTS.live(),
        endpoint::CALLS.live(),
        context::CONTEXTS.live(),
        quota::QUOTAS.live(),
    ]
}
