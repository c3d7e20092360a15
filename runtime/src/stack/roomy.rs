//! A stack with much room, on which the runtime drops what tasks leave behind: captures of tasks that never started, and
//! results that no handle takes.
//!
//! A destructor may call itself for every element of a list. It is the program's code on a stack that was sized for
//! something else. Often that is another task's stack, which must not overflow for it.
//!
//! Conserved: one drop at a time is on a thread's roomy stack; one inside of it stays where it is. No task is current meanwhile,
//! so that nothing can switch away.
#![allow(unsafe_code)]

use super::arena::{self, Stack};
use super::switch::{prepare, switch};
use crate::foreign::NoTask;
use std::cell::Cell;

/// Address space of a roomy stack; memory is committed as it is touched.
pub(super) const SIZE: usize = 256 << 20;
/// Memory beyond this much is given back after use.
const KEEP: usize = 1 << 20;
/// Where a stack was not yet used beyond what is kept.
const UNTOUCHED: usize = 0x6d61_696e_7370_7269;

thread_local! {
    /// This thread's, once it has needed one.
    static ROOMY: Cell<Option<Stack>> = const { Cell::new(None) };
    static IN_USE: Cell<bool> = const { Cell::new(false) };
}

/// Whether touching `address` overflows this thread's roomy stack.
pub(super) fn guards(address: usize) -> bool {
    IN_USE.get() && ROOMY.get().is_some_and(|stack| stack.guards(address))
}

/// Gives this thread's roomy stack back. The thread is about to end.
pub(crate) fn discard() {
    if let Some(stack) = ROOMY.take() {
        arena::unmap(stack);
    }
}

struct Call<F> {
    f: Option<F>,
    /// The context that waits for the end of the call.
    caller: usize,
}

extern "C-unwind" fn entry<F: FnOnce()>(call: usize) -> ! {
    let call = call as *mut Call<F>;
    // SAFETY: the caller's, which waits.
    unsafe {
        if let Some(f) = (*call).f.take() {
            f();
        }
        let mut dead = 0;
        switch(&raw mut dead, (*call).caller, 0);
    }
    std::process::abort()
}

/// Runs `f`, which must not unwind, with room.
pub(crate) fn with_room<F: FnOnce()>(f: F) {
    let no_task = NoTask::begin();
    // On other threads values are dropped as everywhere: they have stacks of the usual size.
    let stack = if IN_USE.get() || !no_task.is_on_worker() { None } else { stack() };
    let Some(stack) = stack else { return f() };
    IN_USE.set(true);
    let mut call = Call { f: Some(f), caller: 0 };
    // SAFETY: the stack is this thread's and not in use. The call switches back once, before this frame goes on.
    unsafe {
        let context = prepare(stack.top(), entry::<F>, (&raw mut call) as usize);
        switch(&raw mut call.caller, context, 0);
    }
    IN_USE.set(false);
    let mark = (stack.top() - KEEP) as *mut usize;
    // SAFETY: within the stack, which is not in use now.
    unsafe {
        if mark.read_volatile() != UNTOUCHED {
            libc::madvise(stack.limit() as *mut _, stack.top() - KEEP - stack.limit(), libc::MADV_DONTNEED);
            mark.write_volatile(UNTOUCHED);
        }
    }
}

fn stack() -> Option<Stack> {
    ROOMY.get().or_else(|| {
        let stack = arena::dedicated(SIZE).ok()?;
        // SAFETY: within the new stack.
        unsafe { ((stack.top() - KEEP) as *mut usize).write_volatile(UNTOUCHED) };
        ROOMY.set(Some(stack));
        Some(stack)
    })
}
