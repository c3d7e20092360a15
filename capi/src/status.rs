//! Statuses, and which of the runtime's errors is which.

use mainspring::{
    BudgetError, CallRefusal, ChannelError, Component, ConfigError, ContextError, NurseryError, QuotaError,
    RechargeError, Refusal, SpawnError, TaskError,
};
use std::ffi::{CStr, c_char};
use std::fmt;

macro_rules! statuses {
    ($($(#[doc = $doc:literal])+ $name:ident = $value:literal, $text:literal;)*) => {
        $($(#[doc = $doc])+ pub const $name: i32 = $value;)*

        /// What a status says, in English. Never null.
        pub(crate) fn text_of(status: i32) -> &'static CStr {
            match status {
                $($value => $text,)*
                _ => c"no such status",
            }
        }
    };
}

statuses! {
    /// It is done.
    JANUS_OK = 0, c"ok";
    /// The task, or the nursery around it, was cancelled: it should return soon.
    JANUS_CANCELLED = 1, c"cancelled: return from the task";
    /// The task has used up its budget: recharge it, or return.
    JANUS_BUDGET_EXHAUSTED = 2, c"the budget is used up: recharge it, or return from the task";
    /// The nursery's pool pays for no further child.
    JANUS_SPAWN_BUDGET_EXHAUSTED = 3, c"no spawns are left: top the nursery up, or spawn less";
    /// Too little memory is left in the budget.
    JANUS_MEMORY_BUDGET_EXHAUSTED = 4, c"no memory is left in the budget: recharge it, or do without";
    /// There is no nursery, or it takes no more tasks.
    JANUS_NURSERY_NOT_ACTIVE = 5, c"no nursery takes this task: open one, or stop spawning";
    /// The capability is missing.
    JANUS_NOT_PERMITTED = 6, c"the capability is missing: its spawner or the scheduler's config must grant it";
    /// More than the capability allows.
    JANUS_OVER_LIMIT = 7, c"more than the capability allows: ask for less";
    /// More than the pool has.
    JANUS_POOL_EXHAUSTED = 8, c"more than the pool has: ask for less, or top it up";
    /// The task returned an error.
    JANUS_TASK_FAILED = 9, c"the task returned an error";
    /// The task panicked.
    JANUS_PANICKED = 10, c"the task panicked";
    /// The task had too little stack.
    JANUS_STACK_OVERFLOW = 11, c"stack overflow: give the task a larger stack";
    /// The nursery's deadline passed.
    JANUS_DEADLINE_EXCEEDED = 12, c"the deadline passed";
    /// All tasks wait for each other; the deterministic mode tells.
    JANUS_DEADLOCK = 13, c"deadlock: every task waits";
    /// The channel is closed.
    JANUS_CLOSED = 14, c"the channel is closed";
    /// It would have had to wait.
    JANUS_WOULD_BLOCK = 15, c"not ready";
    /// Time was over.
    JANUS_TIMED_OUT = 16, c"time was over";
    /// Null, or not a handle of this kind.
    JANUS_INVALID_HANDLE = 17, c"not a handle of this kind";
    /// What the handle named is gone.
    JANUS_STALE_HANDLE = 18, c"what the handle named is gone";
    /// It belongs to another task or thread.
    JANUS_NOT_OWNER = 19, c"it belongs to another task or thread";
    /// Only a task can do that.
    JANUS_NOT_A_TASK = 20, c"only a task can do that";
    /// A task must not do that.
    JANUS_IN_TASK = 21, c"a task must not do that: call it from a thread of your own";
    /// A task ends its nurseries from the inside out.
    JANUS_NOT_INNERMOST = 22, c"a nursery inside it is open: end that first";
    /// A value that makes no sense.
    JANUS_INVALID_ARGUMENT = 23, c"an argument makes no sense";
    /// The scheduler is shut down.
    JANUS_SHUT_DOWN = 24, c"the scheduler is shut down";
    /// A call of the same thread is under way.
    JANUS_BUSY = 25, c"a call of the same thread is under way";
    /// Memory, threads, stacks or handles ran out.
    JANUS_NO_MEMORY = 26, c"the host has no memory, thread or handle left";
    /// A task returned while a nursery of its own was open.
    JANUS_NURSERY_LEFT_OPEN = 27, c"a task returned while its nursery was open: await it first";
    /// The task was never granted any of that.
    JANUS_NEVER_GRANTED = 28, c"the task was never granted any of that component";
    /// A mistake of the library's.
    JANUS_INTERNAL = 29, c"a mistake in the library";
    /// The task that took the call ended without an answer.
    JANUS_SERVER_GONE = 30, c"the server ended without an answer: call again if that is safe";
    /// Some deadline would not hold.
    JANUS_NOT_ADMITTED = 31, c"some deadline would not hold: ask for less time, or a longer period";
    /// The context was taken away for good.
    JANUS_REVOKED = 32, c"the context was revoked: make another one";
    /// Another task has it or waits for it, or the task has one already.
    JANUS_IN_USE = 33, c"another task has the context or waits for it, or this task has one already: unbind that first";
    /// The time is on another worker.
    JANUS_ELSEWHERE = 34, c"the context's time is on another worker: make it in this task, or spawn a task on it";
    /// The quota has less now.
    JANUS_OVER_RATE = 35, c"the quota has not so much now: try again later, or ask for less";
    /// The process is the child of a fork, and the schedulers are its parent's.
    JANUS_FORKED = 36, c"the schedulers are those of the process that forked: exec, or exit";
}

/// What a status says, in English. The text is never null and lives as long as the library.
#[allow(unsafe_code)]
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_status_text(status: i32) -> *const c_char {
    text_of(status).as_ptr()
}

/// A status with its text.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: i32,
    pub(crate) text: String,
}

impl Problem {
    pub(crate) fn new(status: i32, text: impl fmt::Display) -> Self {
        Self { status, text: text.to_string() }
    }
}

impl From<i32> for Problem {
    fn from(status: i32) -> Self {
        Self::new(status, text_of(status).to_string_lossy())
    }
}

/// How a C function failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskFault {
    pub(crate) status: i32,
    pub(crate) code: i64,
}

impl fmt::Display for TaskFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            JANUS_TASK_FAILED => write!(f, "returned the error {}", self.code),
            status => f.write_str(&text_of(status).to_string_lossy()),
        }
    }
}

impl std::error::Error for TaskFault {}

impl From<&TaskError> for Problem {
    fn from(error: &TaskError) -> Self {
        let status = match error {
            TaskError::Failed(cause) => match cause.downcast_ref::<TaskFault>() {
                Some(fault) => fault.status,
                None => match cause.downcast_ref::<SpawnError>() {
                    Some(error) => Problem::from(*error).status,
                    None => JANUS_TASK_FAILED,
                },
            },
            TaskError::StackOverflow => JANUS_STACK_OVERFLOW,
            TaskError::Cancelled => JANUS_CANCELLED,
            TaskError::DeadlineExceeded => JANUS_DEADLINE_EXCEEDED,
            TaskError::BudgetExhausted(_) | TaskError::BudgetCut(_) => JANUS_BUDGET_EXHAUSTED,
            TaskError::Deadlock => JANUS_DEADLOCK,
            TaskError::NoStack => JANUS_NO_MEMORY,
            TaskError::Panicked(_) => JANUS_PANICKED,
            _ => JANUS_INTERNAL,
        };
        Self::new(status, error)
    }
}

impl From<NurseryError> for Problem {
    fn from(error: NurseryError) -> Self {
        Self { text: error.to_string(), ..Self::from(&error.error) }
    }
}

impl From<SpawnError> for Problem {
    fn from(error: SpawnError) -> Self {
        let status = match error {
            SpawnError::NotPermitted => JANUS_NOT_PERMITTED,
            SpawnError::NurseryNotActive => JANUS_NURSERY_NOT_ACTIVE,
            SpawnError::SpawnBudgetExhausted => JANUS_SPAWN_BUDGET_EXHAUSTED,
            SpawnError::Pool(lack) if lack.component == Component::Memory => JANUS_MEMORY_BUDGET_EXHAUSTED,
            SpawnError::Pool(_) => JANUS_POOL_EXHAUSTED,
            SpawnError::TaskLimit(_) | SpawnError::OverLimit(_) => JANUS_OVER_LIMIT,
            SpawnError::StackSize(_) | SpawnError::NoSuchTenant(_) => JANUS_INVALID_ARGUMENT,
            SpawnError::OtherTenant(_) => JANUS_NOT_PERMITTED,
            SpawnError::Context(error) => return error.into(),
            SpawnError::Quota(error) => return error.into(),
            SpawnError::Rate(_) => JANUS_OVER_RATE,
            SpawnError::Ledger(_) => JANUS_OVER_LIMIT,
            SpawnError::Thread(_) => JANUS_NO_MEMORY,
            _ => JANUS_INTERNAL,
        };
        Self::new(status, error)
    }
}

impl From<ContextError> for Problem {
    fn from(error: ContextError) -> Self {
        let status = match error {
            // What a handle names is of another scheduler.
            ContextError::OtherRuntime => JANUS_INVALID_HANDLE,
            ContextError::NotPermitted | ContextError::NoContexts => JANUS_NOT_PERMITTED,
            ContextError::NoWorker(_) | ContextError::Reservation(_) => JANUS_INVALID_ARGUMENT,
            ContextError::ContextLimit { .. } | ContextError::ShareLimit { .. } | ContextError::Full(_) => {
                JANUS_OVER_LIMIT
            }
            ContextError::NotAdmitted(_) => JANUS_NOT_ADMITTED,
            ContextError::Revoked(_) => JANUS_REVOKED,
            ContextError::Busy | ContextError::HasOne | ContextError::Awaited => JANUS_IN_USE,
            ContextError::Elsewhere(_) => JANUS_ELSEWHERE,
            _ => JANUS_INTERNAL,
        };
        Self::new(status, error)
    }
}

impl From<QuotaError> for Problem {
    fn from(error: QuotaError) -> Self {
        let status = match error {
            QuotaError::Period(_) | QuotaError::NoBurst(_) => JANUS_INVALID_ARGUMENT,
            QuotaError::Exceeds { .. } => JANUS_OVER_LIMIT,
            QuotaError::NotBelow => JANUS_NOT_PERMITTED,
            QuotaError::HasChildren => JANUS_IN_USE,
            QuotaError::OtherRuntime => JANUS_INVALID_HANDLE,
            _ => JANUS_INTERNAL,
        };
        Self::new(status, error)
    }
}

impl From<BudgetError> for Problem {
    fn from(error: BudgetError) -> Self {
        let status = match error {
            BudgetError::MemoryBudgetExhausted(_) => JANUS_MEMORY_BUDGET_EXHAUSTED,
            BudgetError::NeverGranted(_) => JANUS_NEVER_GRANTED,
            BudgetError::OverRate { .. } => JANUS_OVER_RATE,
            _ => JANUS_NO_MEMORY,
        };
        Self::new(status, error)
    }
}

impl From<RechargeError> for Problem {
    fn from(error: RechargeError) -> Self {
        let status = match error {
            RechargeError::NotPermitted | RechargeError::NotASupervisor => JANUS_NOT_PERMITTED,
            RechargeError::OverLimit(_) | RechargeError::WouldOverflow(_) => JANUS_OVER_LIMIT,
            RechargeError::Pool(_) => JANUS_POOL_EXHAUSTED,
            RechargeError::Finished => JANUS_STALE_HANDLE,
            _ => JANUS_INTERNAL,
        };
        Self::new(status, error)
    }
}

impl From<ChannelError> for Problem {
    fn from(error: ChannelError) -> Self {
        let status = match error {
            ChannelError::NotPermitted => JANUS_NOT_PERMITTED,
            _ => JANUS_OVER_LIMIT,
        };
        Self::new(status, error)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal {
            Refusal::Closed => JANUS_CLOSED,
            Refusal::WouldBlock => JANUS_WOULD_BLOCK,
            Refusal::TimedOut => JANUS_TIMED_OUT,
            Refusal::Budget(error) => return error.into(),
            _ => JANUS_INTERNAL,
        };
        Self::new(status, refusal)
    }
}

impl From<CallRefusal> for Problem {
    fn from(refusal: CallRefusal) -> Self {
        let status = match refusal {
            CallRefusal::Closed => JANUS_CLOSED,
            CallRefusal::TimedOut => JANUS_TIMED_OUT,
            CallRefusal::ServerGone => JANUS_SERVER_GONE,
            CallRefusal::Chain => JANUS_OVER_LIMIT,
            CallRefusal::OtherRuntime => JANUS_INVALID_HANDLE,
            _ => JANUS_INTERNAL,
        };
        Self::new(status, refusal)
    }
}

impl From<ConfigError> for Problem {
    fn from(error: ConfigError) -> Self {
        let status = match error {
            ConfigError::Stacks(_) | ConfigError::Thread(_) => JANUS_NO_MEMORY,
            _ => JANUS_INVALID_ARGUMENT,
        };
        Self::new(status, error)
    }
}
