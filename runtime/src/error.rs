//! What can go wrong, and what to do about it.

use crate::budget::{Component, Unpayable};
use crate::context::{ContextError, LedgerError};
use crate::protocol::fair_tasks::ThreadError;
use crate::quota::QuotaError;
use crate::task::body;
use std::error::Error;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A stack could not be had.
#[derive(Debug)]
pub enum StackError {
    /// The size or the number does not fit into an address space.
    TooLarge,
    /// All slots of the arena are in use.
    Exhausted {
        /// How many there are.
        slots: usize,
    },
    /// The kernel refused.
    Os(io::Error),
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => f.write_str("stacks of this size and number do not fit into the address space"),
            Self::Exhausted { slots } => {
                write!(
                    f,
                    "all {slots} stacks are in use; raise Config::max_stacks or run fewer blocking tasks"
                )
            }
            Self::Os(error) => write!(f, "the kernel gave no memory for stacks: {error}"),
        }
    }
}

impl Error for StackError {}

/// A runtime could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// The core profile has no scheduler.
    CoreProfile,
    /// Not between 1 and 1024.
    Workers(usize),
    /// A stack size that is not between 16 KiB and 1 GiB.
    StackSize(usize),
    /// Stacks could not be reserved.
    Stacks(StackError),
    /// A yield interval of 0.
    YieldInterval,
    /// The fair discipline with no tenants, or more than 4096.
    Tenants,
    /// The fair discipline by task with room for no thread, for more than 65,535, or for more than fit in memory.
    Threads(usize),
    /// A quantum of 0, or of more than a thread may ask for at a time.
    Quantum,
    /// There is no memory for a flight record of so many bytes.
    RecordBytes(usize),
    /// The fair discipline by task together with tenants or with the deterministic mode.
    OneDiscipline,
    /// A watchdog that waits for less than 1 ms or more than 60 s, or with more than 64 spare workers.
    Watchdog,
    /// A rate for a tenant that does not exist.
    TenantRate(usize),
    /// The rate of a tenant makes no sense.
    Rate(QuotaError),
    /// io_uring was asked for by name, and the kernel does not allow it.
    IoUring(io::Error),
    /// A thread could not be started.
    Thread(io::Error),
    /// A reservation on the host that no kernel could hold.
    Reservation,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CoreProfile => {
                f.write_str("the core profile has no scheduler; choose service, cluster or sovereign")
            }
            Self::Workers(n) => write!(f, "{n} workers; choose 1 to 1024"),
            Self::StackSize(n) => write!(f, "stacks of {n} bytes; choose 16384 to 1073741824"),
            Self::Stacks(error) => error.fmt(f),
            Self::YieldInterval => f.write_str("a yield interval of 0; choose 1 or more"),
            Self::Tenants => f.write_str("the fair discipline needs 1 to 4096 tenants"),
            Self::Threads(n) => {
                write!(f, "room for {n} threads; choose 1 to 65535, and no more than fit in memory")
            }
            Self::Quantum => {
                write!(f, "a quantum of 0 or beyond {}; choose at least a microsecond", mainspring_sched::MAX_REQUEST)
            }
            Self::RecordBytes(n) => write!(f, "flight records of {n} bytes; choose what fits in memory"),
            Self::OneDiscipline => f.write_str(
                "the fair discipline by task goes with neither tenants nor a deterministic seed; choose one",
            ),
            Self::Watchdog => {
                f.write_str("a watchdog after 1 ms to 60 s, with up to 64 spare workers; choose those")
            }
            Self::TenantRate(n) => {
                write!(f, "a rate for tenant {n}, who does not exist; name it in Config::fair")
            }
            Self::Rate(error) => error.fmt(f),
            Self::IoUring(error) => {
                write!(
                    f,
                    "the kernel does not allow io_uring ({error}); choose IoDriver::Auto or IoDriver::Epoll"
                )
            }
            Self::Thread(error) => write!(f, "a worker thread could not be started: {error}"),
            Self::Reservation => f.write_str(
                "no kernel holds such a reservation; a deadline takes a budget up to its period, a quota at least 1 ms in a \
                 period of 1 ms to 1 s",
            ),
        }
    }
}

impl Error for ConfigError {}

/// A task could not be spawned. Nothing was created and nothing was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpawnError {
    /// The task has no `CapSpawn`.
    NotPermitted,
    /// The nursery is closing, cancelled or over.
    NurseryNotActive,
    /// The nursery's pool pays for no further child: top it up (`Nursery::top_up`) or spawn less.
    SpawnBudgetExhausted,
    /// The nursery has as many live children as `CapSpawn` allows: join some first.
    TaskLimit(u32),
    /// The pool cannot pay for the budget that was asked for: ask for less, or top the nursery up (`Nursery::top_up`).
    Pool(Unpayable),
    /// The budget is more than `CapSpawn` allows a child: ask for no more than that.
    OverLimit(Unpayable),
    /// A stack size that is not between 16 KiB and 1 GiB.
    StackSize(usize),
    /// No such tenant; `Config::fair` says which there are.
    NoSuchTenant(usize),
    /// The spawner is of this tenant, and only tasks of tenant 0 and the host spawn for others.
    OtherTenant(usize),
    /// The fair discipline by task has no thread for it.
    Thread(ThreadError),
    /// A schedule without `Config::fair_by_task`.
    NotByTask,
    /// The context could not be set aside for the child.
    Context(ContextError),
    /// No ledger could be had for the contexts that the child may make.
    Ledger(LedgerError),
    /// The quota cannot be the child's.
    Quota(QuotaError),
    /// The spawner's quota does not allow a spawn now.
    Rate(BudgetError),
    /// A task of another runtime has no authority here. The host can let a thread spawn
    /// ([`Nursery::thread_spawner`](crate::Nursery::thread_spawner)).
    OtherRuntime,
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPermitted => f.write_str("this task holds no CapSpawn; its spawner must grant it"),
            Self::NurseryNotActive => {
                f.write_str("the nursery takes no more tasks: it is closing or cancelled")
            }
            Self::SpawnBudgetExhausted => {
                f.write_str("the nursery's pool has no spawn_count left; top it up with Nursery::top_up")
            }
            Self::TaskLimit(n) => write!(f, "{n} children are alive, which is all that CapSpawn allows"),
            Self::Pool(unpayable) => write!(f, "the nursery's pool cannot pay for the child: {unpayable}"),
            Self::OverLimit(over) => write!(f, "more than CapSpawn allows a child: {over}"),
            Self::NoSuchTenant(n) => write!(f, "there is no tenant {n}; name it in Config::fair"),
            Self::OtherTenant(n) => {
                write!(f, "the spawner is of tenant {n}; let the host or a task of tenant 0 spawn for others")
            }
            Self::Thread(error) => error.fmt(f),
            Self::NotByTask => f.write_str(
                "only Config::fair_by_task schedules single tasks; set it, or leave the schedule out",
            ),
            Self::StackSize(n) => write!(f, "a stack of {n} bytes; choose 16384 to 1073741824"),
            Self::Context(error) => error.fmt(f),
            Self::Ledger(error) => error.fmt(f),
            Self::Quota(error) => error.fmt(f),
            Self::Rate(error) => error.fmt(f),
            Self::OtherRuntime => f.write_str(
                "the nursery is of another runtime than the task; spawn from a task of that one, or by a ThreadSpawner",
            ),
        }
    }
}

impl Error for SpawnError {}

impl fmt::Display for ThreadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange(n) => write!(f, "there is no thread {n}; raise FairTaskSettings::threads"),
            Self::Taken(n) => write!(f, "thread {n} is a task that has not ended; join it first"),
            Self::NotToChoose(n) => {
                write!(
                    f,
                    "only the host and the root task of a run make a task thread {n}; leave the number out"
                )
            }
            Self::NoneFree => {
                f.write_str("every thread is a task that has not ended; raise FairTaskSettings::threads")
            }
            Self::NoWorker => f.write_str("none of the workers that may run it exists; name some that do"),
            Self::BadRequest(request) => {
                write!(f, "a request of {request}; choose 1ns to {}", mainspring_sched::MAX_REQUEST)
            }
            Self::Weight { asked, most } => write!(
                f,
                "a weight of {}, and this task may give at most {}; ask for less, or let the root task spawn it",
                asked.get(),
                most.get()
            ),
            Self::Class(own) => write!(
                f,
                "a latency class that is served sooner than the spawner's own ({own:?}); choose that or a later one"
            ),
        }
    }
}

impl Error for ThreadError {}

/// How a task ended, if not by returning.
#[derive(Debug)]
#[non_exhaustive]
pub enum TaskError {
    /// It panicked.
    Panicked(String),
    /// It returned an error, from a spawn that takes errors.
    Failed(Box<dyn Error + Send + Sync>),
    /// It had too little stack left at an entry point of the runtime or of a `#[budgeted]` function, and was unwound: give it a
    /// larger one (`SpawnBuilder::stack_size`). Under `Config::abandon_overflowed_stacks` its destructors may not have run.
    StackOverflow,
    /// It was cancelled.
    Cancelled,
    /// Its nursery's deadline passed.
    DeadlineExceeded,
    /// The worker thread that ran it died.
    WorkerPanic,
    /// No stack could be had for it.
    NoStack,
    /// It ran out of this component, and no other task could give it more: its budget was a bound, its nursery's pool was
    /// empty, or it waited for a recharge while its owner waited for it. Give it more (`SpawnBuilder::budget`), recharge it
    /// before you join it, or top up its nursery (`Nursery::top_up`).
    BudgetExhausted(Component),
    /// It ran out of this component, in a nursery that ends such tasks alone (`Exhaustion::Cancel`). It was not
    /// cancelled.
    BudgetCut(Component),
    /// It was to be waited for in a destructor of a task that unwinds, which must not wait: wait in `Cx::with_cleanup` instead.
    Unwinding,
    /// All remaining tasks wait for each other. Only the deterministic mode can tell.
    Deadlock,
}

/// What an error says. Its code is the program's, and may panic.
fn text_of(error: &dyn Error) -> String {
    catch_unwind(AssertUnwindSafe(|| error.to_string())).unwrap_or_else(|payload| {
        body::discard(payload);
        "an error whose text panicked".to_owned()
    })
}

impl TaskError {
    /// Whether the task or its nursery was cancelled, or the nursery's deadline passed.
    pub const fn is_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled | Self::DeadlineExceeded)
    }

    /// The component that the task ran out of, if that is why it ended.
    pub const fn exhausted(&self) -> Option<Component> {
        match self {
            Self::BudgetExhausted(component) | Self::BudgetCut(component) => Some(*component),
            _ => None,
        }
    }

    /// A copy of the error for a second holder, when the first has to keep it too.
    pub(crate) fn echo(&self) -> Self {
        match self {
            Self::Panicked(message) => Self::Panicked(message.clone()),
            Self::Failed(error) => Self::Failed(text_of(&**error).into()),
            Self::StackOverflow => Self::StackOverflow,
            Self::Cancelled => Self::Cancelled,
            Self::DeadlineExceeded => Self::DeadlineExceeded,
            Self::WorkerPanic => Self::WorkerPanic,
            Self::NoStack => Self::NoStack,
            Self::BudgetExhausted(component) => Self::BudgetExhausted(*component),
            Self::BudgetCut(component) => Self::BudgetCut(*component),
            Self::Unwinding => Self::Unwinding,
            Self::Deadlock => Self::Deadlock,
        }
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(message) => write!(f, "panicked: {message}"),
            Self::Failed(error) => error.fmt(f),
            Self::StackOverflow => f.write_str("stack overflow; give the task a larger stack"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::DeadlineExceeded => f.write_str("the nursery's deadline passed"),
            Self::WorkerPanic => f.write_str("the worker thread died"),
            Self::NoStack => f.write_str("no stack could be had; raise Config::max_stacks"),
            Self::BudgetExhausted(component) | Self::BudgetCut(component) => {
                write!(f, "ran out of {component}; give it a larger budget or recharge it in time")
            }
            Self::Unwinding => {
                f.write_str("a destructor of a task that unwinds must not wait; use Cx::with_cleanup")
            }
            Self::Deadlock => f.write_str("deadlock: every task waits"),
        }
    }
}

impl Error for TaskError {}

/// A charge that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BudgetError {
    /// Not enough memory budget is left for an allocation: recharge or do without.
    MemoryBudgetExhausted(Unpayable),
    /// The component was never granted to this task.
    NeverGranted(Component),
    /// The task's quota does not have so much now: try again later, or let the quota throttle
    /// ([`WhenEmpty::Throttle`](crate::quota::WhenEmpty)). Nothing is charged.
    OverRate {
        /// Of what.
        component: Component,
        /// What the operation needs.
        needed: u64,
        /// The most that there can be at once.
        most: u64,
        /// When there is enough at the soonest; `None` for never.
        retry_in: Option<std::time::Duration>,
    },
    /// The budget allows the allocation, and the host has no memory for it: ask for less, or do without. Nothing is charged.
    OutOfMemory {
        /// The size of the allocation.
        bytes: usize,
    },
}

impl fmt::Display for BudgetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OverRate { component, needed, retry_in: Some(time), .. } => {
                write!(f, "the quota has less than {needed} {component} now; try again in {time:?}")
            }
            Self::OverRate { component, needed, most, retry_in: None } => {
                write!(f, "{needed} {component} at once, and the quota's burst is {most}; ask for less")
            }
            Self::MemoryBudgetExhausted(unpayable) => write!(f, "memory budget exhausted: {unpayable}"),
            Self::NeverGranted(component) => write!(f, "this task was never granted any {component}"),
            Self::OutOfMemory { bytes } => write!(f, "the host has no memory for {bytes} bytes"),
        }
    }
}

impl Error for BudgetError {}

/// A recharge that was refused. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RechargeError {
    /// The task has no `CapBudget`: its spawner must grant it one with `SpawnBuilder::caps`.
    NotPermitted,
    /// More than is left of the capability's limit.
    OverLimit(Unpayable),
    /// More than there is where it would come from.
    Pool(Unpayable),
    /// More than a task can hold.
    WouldOverflow(Component),
    /// Only a supervisor of the cluster profile may.
    NotASupervisor,
    /// The task has ended.
    Finished,
}

impl fmt::Display for RechargeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPermitted => f.write_str("this task holds no CapBudget"),
            Self::OverLimit(unpayable) => write!(f, "more than CapBudget allows: {unpayable}"),
            Self::Pool(unpayable) => write!(f, "the pool cannot pay: {unpayable}"),
            Self::WouldOverflow(component) => write!(f, "a task cannot hold that much {component}"),
            Self::NotASupervisor => {
                f.write_str("only a supervisor of the cluster profile may recharge others")
            }
            Self::Finished => f.write_str("the task has ended"),
        }
    }
}

impl Error for RechargeError {}
