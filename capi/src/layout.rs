//! What C and Rust share by layout.

use mainspring::{Budget, Pool};
use std::ffi::c_void;
use std::marker::{PhantomData, PhantomPinned};

/// No value of it exists: a handle only looks like a pointer to one.
#[repr(C)]
#[derive(Debug)]
pub struct Opaque {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A scheduler. Null is none.
#[allow(non_camel_case_types)]
pub type janus_scheduler = *mut Opaque;
/// A nursery. Null is none.
#[allow(non_camel_case_types)]
pub type janus_nursery = *mut Opaque;
/// A task, for the owner of its nursery. Null is none.
#[allow(non_camel_case_types)]
pub type janus_task = *mut Opaque;
/// A channel of 64-bit words. Null is none.
#[allow(non_camel_case_types)]
pub type janus_channel = *mut Opaque;

/// Where tasks call and others serve. Null is none.
#[allow(non_camel_case_types)]
pub type janus_endpoint = *mut Opaque;

/// A call that a task has taken and not answered. Null is none.
#[allow(non_camel_case_types)]
pub type janus_call = *mut Opaque;

/// CPU time in every period. Null is none.
#[allow(non_camel_case_types)]
pub type janus_context = *mut Opaque;

/// A rate that tasks share. Null is none.
#[allow(non_camel_case_types)]
pub type janus_quota = *mut Opaque;

/// What a task runs. A result below 0 is an error: it fails the task's nursery, and cancels its siblings.
#[allow(non_camel_case_types)]
pub type janus_task_fn = Option<unsafe extern "C-unwind" fn(arg: *mut c_void) -> i64>;

/// What one task may still use. 0 is exhausted.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct janus_budget {
    /// Abstract operations.
    pub ops: u32,
    /// Bytes.
    pub memory: usize,
    /// Children.
    pub spawn_count: u16,
    /// Sends and receives.
    pub channel_ops: u16,
    /// File and network operations.
    pub syscalls: u16,
}

impl From<Budget> for janus_budget {
    fn from(budget: Budget) -> Self {
        let Budget { ops, memory, spawn_count, channel_ops, syscalls } = budget;
        Self { ops, memory, spawn_count, channel_ops, syscalls }
    }
}

impl From<janus_budget> for Budget {
    fn from(budget: janus_budget) -> Self {
        let janus_budget { ops, memory, spawn_count, channel_ops, syscalls } = budget;
        Self { ops, memory, spawn_count, channel_ops, syscalls }
    }
}

/// What a nursery may still hand out.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct janus_pool {
    /// Abstract operations.
    pub ops: u64,
    /// Bytes.
    pub memory: u64,
    /// Children, and the children of children.
    pub spawn_count: u64,
    /// Sends and receives.
    pub channel_ops: u64,
    /// File and network operations.
    pub syscalls: u64,
}

impl From<Pool> for janus_pool {
    fn from(pool: Pool) -> Self {
        let Pool { ops, memory, spawn_count, channel_ops, syscalls } = pool;
        Self { ops, memory, spawn_count, channel_ops, syscalls }
    }
}

impl From<janus_pool> for Pool {
    fn from(pool: janus_pool) -> Self {
        let janus_pool { ops, memory, spawn_count, channel_ops, syscalls } = pool;
        Self { ops, memory, spawn_count, channel_ops, syscalls }
    }
}

/// Implicit capabilities and default budgets.
pub const JANUS_PROFILE_SERVICE: u32 = 1;
/// Larger defaults; owners may recharge their children beyond the nursery's pool.
pub const JANUS_PROFILE_CLUSTER: u32 = 2;
/// Nothing that was not granted.
pub const JANUS_PROFILE_SOVEREIGN: u32 = 3;

/// The capabilities that the profile implies.
pub const JANUS_CAPS_OF_PROFILE: u32 = 0;
/// To spawn tasks.
pub const JANUS_CAP_SPAWN: u32 = 1;
/// To recharge oneself, and in a sovereign program to choose budgets.
pub const JANUS_CAP_BUDGET: u32 = 2;
/// To make channels.
pub const JANUS_CAP_CHANNEL: u32 = 4;
/// To make scheduling contexts.
pub const JANUS_CAP_CONTEXT: u32 = 16;
/// None of the capabilities.
pub const JANUS_CAPS_NONE: u32 = 8;

/// Workers are threads, and their order is the host's.
pub const JANUS_ORDER_FREE: u32 = 0;
/// Virtual workers in one thread, whose order is a function of the seed and of the number of workers.
pub const JANUS_ORDER_SEEDED: u32 = 1;
/// The same, and tasks that all wait for each other fail. No thread may be about to wake them then.
pub const JANUS_ORDER_SEEDED_DEADLOCK_FAILS: u32 = 2;

/// How a scheduler is set up. Start from `janus_scheduler_config_default`.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct janus_scheduler_config {
    /// Worker threads, 1 to 1024.
    pub worker_count: u32,
    /// One of `JANUS_PROFILE_`.
    pub profile: u32,
    /// One of `JANUS_ORDER_`.
    pub deterministic: u32,
    /// `JANUS_CAP_` bits that root tasks get.
    pub caps: u32,
    /// The seed, where the order is seeded.
    pub deterministic_seed: u64,
    /// Bytes of a task's stack; 0 for the usual 112 KiB.
    pub stack_size: usize,
    /// With `caps`: how many children of a nursery may be alive.
    pub task_limit: u32,
    /// How many tenants share the workers; 0 for no fair discipline.
    pub tenant_count: u32,
    /// The weights of the tenants, `tenant_count` of them, 1 to 65535 each.
    pub tenant_weights: *const u32,
    /// With `caps`: the most that a child gets, and what it gets by default.
    pub child_budget: janus_budget,
    /// With `JANUS_CAP_BUDGET`: what a root task may draw by it in all.
    pub recharge_limit: janus_budget,
    /// What all tasks together may use; all zero for ample.
    pub root_pool: janus_pool,
    /// How many scheduling contexts there can be at a time; 0 for none. Not together with tenants.
    pub context_count: u32,
    /// The CPU time that contexts may have in all, in millionths of a worker.
    pub context_share_ppm: u32,
    /// 0.
    pub reserved: [u64; 3],
}

/// A child that runs out draws on the nursery's pool, and fails when that is empty.
pub const JANUS_EXHAUSTED_REFILL: u32 = 0;
/// A child that runs out fails.
pub const JANUS_EXHAUSTED_FAIL: u32 = 1;
/// A child that runs out waits for `janus_task_recharge`.
pub const JANUS_EXHAUSTED_PARK: u32 = 2;
/// A child that runs out ends alone, as cancelled.
pub const JANUS_EXHAUSTED_CANCEL: u32 = 3;

/// How a nursery is opened. All zero is the default.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct janus_nursery_options {
    /// Not 0: `pool` says what the nursery takes from its opener. Otherwise it takes half.
    pub has_pool: u32,
    /// One of `JANUS_EXHAUSTED_`.
    pub on_exhausted: u32,
    /// The pool.
    pub pool: janus_pool,
    /// The nursery is cancelled after so long; 0 for never.
    pub deadline_ns: u64,
    /// 0.
    pub reserved: [u64; 2],
}

/// How a task is spawned. All zero is the default.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct janus_spawn_options {
    /// Not 0: `budget` is the child's, and a bound.
    pub has_budget: u32,
    /// Not 0: `pool` is for the nurseries that the child opens.
    pub has_pool: u32,
    /// `JANUS_CAP_` bits of what the child gets of its nursery's capabilities; 0 for the usual.
    pub caps: u32,
    /// The tenant whose share the child uses, counted from 1; 0 for its spawner's.
    pub tenant: u32,
    /// The budget.
    pub budget: janus_budget,
    /// The pool.
    pub pool: janus_pool,
    /// With `JANUS_CAP_BUDGET`: what the child may draw in all.
    pub recharge_limit: janus_budget,
    /// Bytes of stack; 0 for the scheduler's.
    pub stack_size: usize,
    /// The scheduling context that the child runs on; null for none.
    pub context: janus_context,
    /// The quota that the child shares; null for its spawner's.
    pub quota: janus_quota,
    /// With `JANUS_CAP_CONTEXT`: how many contexts the child may make.
    pub context_count: u32,
    /// With `JANUS_CAP_CONTEXT`: the CPU time that these may have in all, in millionths of a worker.
    pub context_share_ppm: u32,
    /// 0.
    pub reserved: [u64; 2],
}

impl Default for janus_spawn_options {
    fn default() -> Self {
        Self {
            has_budget: 0,
            has_pool: 0,
            caps: 0,
            tenant: 0,
            budget: janus_budget::default(),
            pool: janus_pool::default(),
            recharge_limit: janus_budget::default(),
            stack_size: 0,
            context: std::ptr::null_mut(),
            quota: std::ptr::null_mut(),
            context_count: 0,
            context_share_ppm: 0,
            reserved: [0; 2],
        }
    }
}

/// How a nursery ended.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct janus_nursery_result {
    /// `JANUS_OK`, or of the first child that failed.
    pub status: i32,
    /// 0.
    pub reserved: u32,
    /// What the first child that failed returned, with `JANUS_TASK_FAILED`.
    pub code: i64,
    /// The number of the child that failed; 0 if it was none.
    pub task_id: u64,
}

/// Not started, or woken.
pub const JANUS_TASK_READY: u32 = 0;
/// On a worker.
pub const JANUS_TASK_RUNNING: u32 = 1;
/// Waits.
pub const JANUS_TASK_BLOCKED: u32 = 2;
/// Waits for budget.
pub const JANUS_TASK_BUDGET_EXHAUSTED: u32 = 3;
/// Returned.
pub const JANUS_TASK_COMPLETED: u32 = 4;
/// Ended otherwise.
pub const JANUS_TASK_CANCELLED: u32 = 5;

/// Without a limit of time.
pub const JANUS_FOREVER: u64 = u64::MAX;

/// A task that has used its context up waits for the refill.
pub const JANUS_DEPLETED_THROTTLE: u32 = 0;
/// It goes on as a task without a context until the refill.
pub const JANUS_DEPLETED_BEST_EFFORT: u32 = 1;
/// Any worker.
pub const JANUS_ANY_WORKER: u32 = 4294967295;

/// CPU time that is asked for: so much in every period.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct janus_reservation {
    /// CPU time per period.
    pub budget_ns: u64,
    /// The period.
    pub period_ns: u64,
    /// How soon after its release the budget is to be had; 0 for the end of the period.
    pub deadline_ns: u64,
    /// One of `JANUS_DEPLETED_`.
    pub depleted: u32,
    /// The worker where the time is set aside, or `JANUS_ANY_WORKER`.
    pub worker: u32,
    /// 0.
    pub reserved: [u64; 2],
}

/// With nobody: it can be bound.
pub const JANUS_PLACE_AT_REST: u32 = 0;
/// With the task that it is bound to.
pub const JANUS_PLACE_BOUND: u32 = 1;
/// With a task that serves a call of the task that it is bound to.
pub const JANUS_PLACE_LENT: u32 = 2;
/// On its way to a task.
pub const JANUS_PLACE_IN_FLIGHT: u32 = 3;

/// What is known of a context.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct janus_context_info {
    /// CPU time per period.
    pub budget_ns: u64,
    /// The period.
    pub period_ns: u64,
    /// How soon after its release the budget is to be had.
    pub deadline_ns: u64,
    /// How much can be used now in one go.
    pub remaining_ns: u64,
    /// CPU time used in all, up to the last event.
    pub used_ns: u64,
    /// The part of it that was used on loan.
    pub used_on_loan_ns: u64,
    /// The furthest that anybody ran past the budget.
    pub overshoot_ns: u64,
    /// How often it was used up.
    pub depletions: u64,
    /// How many releases were not done with by their deadline.
    pub misses: u64,
    /// The worker where its time is set aside.
    pub worker: u32,
    /// One of `JANUS_PLACE_`.
    pub place: u32,
}

/// What has happened to a context since it was last asked.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct janus_context_notices {
    /// How often its budget was used up.
    pub depleted: u32,
    /// How often a deadline passed.
    pub late: u32,
}

/// A task that needs what its quota does not have now waits for it.
pub const JANUS_EMPTY_THROTTLE: u32 = 0;
/// It is refused.
pub const JANUS_EMPTY_FAIL: u32 = 1;

/// So much in every period. What is 0 is not limited.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct janus_rate {
    /// The period, up to an hour.
    pub period_ns: u64,
    /// One of `JANUS_EMPTY_`.
    pub when_empty: u32,
    /// 0.
    pub reserved: u32,
    /// What may be used in a period.
    pub limit: janus_pool,
    /// What may be used at once; 0 for all of it.
    pub burst: janus_pool,
}
