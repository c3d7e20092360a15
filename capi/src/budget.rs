//! The calling task's budget.
#![allow(unsafe_code)]

use crate::caller::{call, status};
use crate::layout::janus_budget;
use mainspring::Component;

/// What the calling task has left; nothing outside of tasks.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_budget_get_current() -> janus_budget {
    call(|caller| Ok(caller.task()?.cx.budget().into())).unwrap_or_default()
}

/// Adds to the calling task's budget by its `JANUS_CAP_BUDGET`, out of the pool of the nursery that it is a child of. A task that had
/// used up its budget goes on.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_budget_recharge(amount: janus_budget) -> i32 {
    status(|caller| {
        let frame = caller.task()?;
        frame.cx.recharge(amount.into())?;
        frame.revive();
        Ok(())
    })
}

/// Pays for `ops` turns of a loop, or calls: the yield check of compiled code. The task gives way when its quantum is over.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_budget_charge(ops: u32) -> i32 {
    status(|caller| {
        caller.task()?.running()?.check_iterations(ops);
        Ok(())
    })
}

/// Pays for an allocation of so many bytes, and one op.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_budget_charge_memory(bytes: usize) -> i32 {
    status(|caller| Ok(caller.task()?.running()?.charge_alloc(bytes)?))
}

/// Pays for a file or network operation, and one op.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_budget_charge_syscall() -> i32 {
    status(|caller| Ok(caller.task()?.running()?.pay(Component::Syscalls)?))
}
