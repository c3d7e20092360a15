//! Why something could not be done with a context.

use crate::protocol::fair_tasks::{Group, GroupError};
use mainspring_driver::contexts::{
    BindError, ContextError as NameError, CreateError, RevokeReason, WaitError,
};
use mainspring_driver::ledgers::{LedgerError, Resource};
use mainspring_sched::context::SpecError;
use std::error::Error;
use std::fmt;

/// Something could not be done with a context; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContextError {
    /// The task has no `CapContext`: its spawner must grant it one with `SpawnBuilder::caps`.
    NotPermitted,
    /// This runtime has no contexts: set `Config::fair_by_task` with `FairTaskSettings::contexts`.
    NoContexts,
    /// The context is of another runtime.
    OtherRuntime,
    /// There is no such worker.
    NoWorker(usize),
    /// The reservation makes no sense.
    Reservation(SpecError),
    /// More contexts than a `CapContext` allows: its holder's, or that of a task above.
    ContextLimit {
        /// How many live.
        held: u64,
        /// How many may.
        limit: u64,
    },
    /// More CPU time than a `CapContext` allows: its holder's, or that of a task above. In billionths of a worker.
    ShareLimit {
        /// What was asked for.
        asked: u64,
        /// What is granted already.
        held: u64,
        /// What may be granted in all.
        limit: u64,
    },
    /// Some deadline would not hold on the worker that was tried last.
    NotAdmitted(CreateError),
    /// As many contexts live as `FairTaskSettings::contexts` says.
    Full(usize),
    /// It was taken away for good.
    Revoked(RevokeReason),
    /// A task is bound to it, or is being spawned on it.
    Busy,
    /// The task has a context already: unbind that first.
    HasOne,
    /// The task runs on another worker than this one, where the time is set aside, and must not move.
    Elsewhere(usize),
    /// Another task waits for its notices.
    Awaited,
    /// It is bound to this nursery or tenant already.
    OfGroup(Group),
}

impl fmt::Display for ContextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPermitted => f.write_str("this task holds no CapContext; its spawner must grant it"),
            Self::NoContexts => f.write_str(
                "this runtime has no contexts; set Config::fair_by_task and FairTaskSettings::contexts",
            ),
            Self::OtherRuntime => {
                f.write_str("the context is of another runtime; create one in this runtime")
            }
            Self::NoWorker(worker) => write!(f, "there is no worker {worker}; name one that exists"),
            Self::Reservation(error) => error.fmt(f),
            Self::ContextLimit { held, limit } => {
                write!(
                    f,
                    "{held} of {limit} contexts live, the most that CapContext allows; revoke one first"
                )
            }
            Self::ShareLimit { asked, held, limit } => write!(
                f,
                "{asked} billionths of a worker on top of {held} are more than CapContext allows, which is {limit}; \
                 ask for less, or revoke a context first"
            ),
            Self::NotAdmitted(error) => error.fmt(f),
            Self::Full(limit) => {
                write!(f, "{limit} contexts live; raise FairTaskSettings::contexts, or revoke one first")
            }
            Self::Revoked(reason) => {
                write!(f, "the context is revoked ({}); create a new one", reason.label())
            }
            Self::Busy => f.write_str("another task has the context; unbind it there first"),
            Self::HasOne => f.write_str("the task has a context already; unbind that first"),
            Self::Elsewhere(worker) => write!(
                f,
                "the time of the context is on worker {worker}, where this task does not run; create the context in this \
                 task, or spawn a task with SpawnBuilder::context"
            ),
            Self::Awaited => {
                f.write_str("another task waits for the notices of this context; drain them instead")
            }
            Self::OfGroup(Group::Nursery(id)) => {
                write!(f, "the context is bound to nursery {id}; call SchedulingContext::unbind_group first")
            }
            Self::OfGroup(Group::Tenant(tenant)) => {
                write!(
                    f,
                    "the context is bound to tenant {tenant}; call SchedulingContext::unbind_group first"
                )
            }
        }
    }
}

impl Error for ContextError {}

impl From<GroupError> for ContextError {
    fn from(error: GroupError) -> Self {
        match error {
            GroupError::Context(error) => error.into(),
            GroupError::OfGroup(group) => Self::OfGroup(group),
        }
    }
}

impl From<NameError> for ContextError {
    fn from(error: NameError) -> Self {
        match error {
            NameError::Revoked { reason, .. } => Self::Revoked(reason),
            // Names are kept by their contexts, and only a revocation makes them stale.
            NameError::Unknown(_) | NameError::StaleGeneration { .. } | NameError::Forgotten(_) => {
                Self::Revoked(RevokeReason::Explicit)
            }
        }
    }
}

impl From<CreateError> for ContextError {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::Creator(error) => error.into(),
            CreateError::Spec(error) => Self::Reservation(error),
            CreateError::Ledger(LedgerError::Limit { resource: Resource::Contexts, held, limit, .. }) => {
                Self::ContextLimit { held, limit }
            }
            CreateError::Ledger(LedgerError::Limit { held, asked, limit, .. }) => {
                Self::ShareLimit { asked, held, limit }
            }
            CreateError::Full { capacity } => Self::Full(capacity),
            CreateError::Exceeds(_)
            | CreateError::Session(_)
            | CreateError::Ledger(_)
            | CreateError::NotAdmitted { .. }
            | CreateError::NoCpu => Self::NotAdmitted(error),
        }
    }
}

impl From<BindError> for ContextError {
    fn from(error: BindError) -> Self {
        match error {
            BindError::Context(error) => error.into(),
            BindError::Busy(_) | BindError::Withheld | BindError::NoThread(_) => Self::Busy,
            BindError::HasOne(_) => Self::HasOne,
            BindError::Elsewhere(worker) | BindError::NotAllowed(worker) => Self::Elsewhere(worker.index()),
        }
    }
}

impl From<WaitError> for ContextError {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Context(error) => error.into(),
            WaitError::Busy(_) => Self::Awaited,
        }
    }
}
