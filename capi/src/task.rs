//! Tasks: what their owner can ask of them, and what they do for themselves.
#![allow(unsafe_code)]

use crate::caller::status;
use crate::handle::Name;
use crate::layout::{
    JANUS_TASK_BLOCKED, JANUS_TASK_BUDGET_EXHAUSTED, JANUS_TASK_CANCELLED, JANUS_TASK_COMPLETED,
    JANUS_TASK_READY, JANUS_TASK_RUNNING, janus_budget, janus_task,
};
use crate::nursery::TASKS;
use crate::status::{JANUS_INVALID_ARGUMENT, Problem, TaskFault};
use mainspring::{TaskError, TaskState};
use std::time::Duration;

/// Waits for the task and takes its result, if `result` is not null. The handle is used up. For the owner of its nursery.
///
/// # Safety
///
/// `result` is null or can be written to.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_task_join(task: janus_task, result: *mut i64) -> i32 {
    status(|caller| {
        let name = Name::of(task);
        let ended = TASKS.get(name)?.join(caller, name)?;
        let value = match &ended {
            Ok(value) => Some(*value),
            Err(TaskError::Failed(cause)) => cause.downcast_ref().map(|fault: &TaskFault| fault.code),
            Err(_) => None,
        };
        if let (Some(value), false) = (value, result.is_null()) {
            // SAFETY: not null, and the caller says that it can be written to.
            unsafe { result.write(value) };
        }
        ended.map(|_| ()).map_err(|error| Problem::from(&error))
    })
}

/// Gives the handle back without waiting. The nursery waits for the task.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_task_detach(task: janus_task) -> i32 {
    status(|caller| {
        let name = Name::of(task);
        TASKS.get(name)?.detach(caller, name)
    })
}

/// Tells the task to stop. For the owner of its nursery.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_task_cancel(task: janus_task) -> i32 {
    status(|caller| {
        let name = Name::of(task);
        TASKS.get(name)?.with_task(caller, name, |_, handle| {
            handle.cancel();
            Ok(())
        })
    })
}

/// What the task does now, one of `JANUS_TASK_`. For the owner of its nursery.
///
/// # Safety
///
/// `state` is null or can be written to.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_task_state(task: janus_task, state: *mut u32) -> i32 {
    status(|caller| {
        let name = Name::of(task);
        let is = TASKS.get(name)?.with_task(caller, name, |_, handle| Ok(handle.state()))?;
        if state.is_null() {
            return Err(JANUS_INVALID_ARGUMENT.into());
        }
        let is = match is {
            TaskState::Ready => JANUS_TASK_READY,
            TaskState::Running => JANUS_TASK_RUNNING,
            TaskState::Blocked => JANUS_TASK_BLOCKED,
            TaskState::BudgetExhausted => JANUS_TASK_BUDGET_EXHAUSTED,
            TaskState::Completed => JANUS_TASK_COMPLETED,
            TaskState::Cancelled => JANUS_TASK_CANCELLED,
        };
        // SAFETY: not null, and the caller says that it can be written to.
        unsafe { state.write(is) };
        Ok(())
    })
}

/// The number of the task, as `janus_nursery_result` has it; 0 if there is no such task. For the owner of its nursery.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_task_id(task: janus_task) -> u64 {
    let name = Name::of(task);
    let id =
        crate::caller::call(|caller| TASKS.get(name)?.with_task(caller, name, |_, handle| Ok(handle.id().0)));
    id.unwrap_or(0)
}

/// Grants the task more budget, out of its nursery's pool. One that waits for budget goes on. For the owner of the nursery.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_task_recharge(task: janus_task, amount: janus_budget) -> i32 {
    status(|caller| {
        let name = Name::of(task);
        TASKS.get(name)?.with_task(caller, name, |nursery, handle| {
            Ok(nursery.nursery().recharge(handle, amount.into())?)
        })
    })
}

/// Grants the task more budget by the owner's `JANUS_CAP_BUDGET`, in the cluster profile. For the task that owns the nursery.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_task_supervise(task: janus_task, amount: janus_budget) -> i32 {
    status(|caller| {
        let cx = caller.task()?.cx;
        let name = Name::of(task);
        TASKS.get(name)?.with_task(caller, name, |nursery, handle| {
            Ok(nursery.nursery().supervise(cx, handle, amount.into())?)
        })
    })
}

/// Lets other tasks run. Free of charge. For tasks.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_scheduler_yield() -> i32 {
    status(|caller| {
        caller.task()?.running()?.yield_now();
        Ok(())
    })
}

/// Waits for so long. The task waits, its worker does not. For tasks.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_task_sleep(ns: u64) -> i32 {
    status(|caller| {
        caller.task()?.running()?.sleep(Duration::from_nanos(ns));
        Ok(())
    })
}

/// Nanoseconds since the scheduler started, by its clock, which is virtual in the deterministic mode; 0 outside of tasks.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_task_now() -> u64 {
    let now = crate::caller::call(|caller| Ok(caller.task()?.cx.now()));
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

/// `JANUS_OK`, or why the calling task should return.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_task_check() -> i32 {
    status(|caller| {
        caller.task()?.running()?.look_up();
        Ok(())
    })
}
