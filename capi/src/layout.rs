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
    /// 0.
    pub reserved: [u64; 4],
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
#[derive(Clone, Copy, Debug, Default)]
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
    /// 0.
    pub reserved: [u64; 2],
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
