//! Calls that cost nothing count towards the quantum: no loop of them keeps a worker from its other tasks.
//!
//! Every public operation that a task can repeat, and that does not charge an op, passes one of the functions here
//! first. `tests/free_calls` holds a table of all public operations against the sources, and repeats each of them beside
//! a task that must get on.
//!
//! - An operation that takes a context is a yield point: [`count`] gives way when the quantum is over.
//! - A poll ([`count_poll`]) only asks, and may be spun on: the time, the budget, a handle's state, an attempt to lock that failed.
//! - An action ([`count_action`]) does something without a context: an unpark, a clone.
//!
//! The last two may be called while the program holds a lock of the standard library. To give way there would block the worker
//! as soon as another of its tasks wants that lock. So they only count, and the next operation with a context gives way. If
//! none comes for `BLIND_LIMIT`, which is a loop that waits or one without an end, they give way themselves.

use crate::cx::Cx;
use crate::task::TaskPtr;
use crate::worker;
use std::cell::Cell;
use std::sync::atomic::Ordering;

/// A call counts as so many ops towards the quantum: about what it takes.
pub(crate) const CALL_OPS: u32 = 16;

/// What calls without a context may add up to before they give way.
const BLIND_LIMIT: u32 = 1 << 20;
/// What a poll adds.
const BLIND_POLL: u32 = 1 << 10;
/// What an action adds.
const BLIND_ACTION: u32 = 1;
/// What an action adds that takes microseconds.
const BLIND_COSTLY_ACTION: u32 = 1 << 6;

thread_local! {
    /// What calls without a context have added up to, since the task on this thread had something left of its slice.
    static BLIND: Cell<u32> = const { Cell::new(0) };
}

/// Adds to what calls without a context have added up to. True if that is enough. Never inlined, so that no address of a
/// thread-local is kept across a switch.
#[inline(never)]
fn add_blind(n: u32) -> bool {
    let sum = BLIND.get() + n;
    let is_enough = sum >= BLIND_LIMIT;
    BLIND.set(if is_enough { 0 } else { sum });
    is_enough
}

#[inline(never)]
fn reset_blind() {
    BLIND.set(0);
}

/// Counts a call with a context. Gives way if that ends the quantum and others wait.
#[inline(always)]
pub(crate) fn count(cx: &Cx) {
    let task = cx.task();
    if task.fuel.load(Ordering::Relaxed) > CALL_OPS {
        task.look_up_sooner(CALL_OPS);
    } else {
        look(cx);
    }
}

/// A slice is over, though no op of it may have been used.
#[cold]
#[inline(never)]
fn look(cx: &Cx) {
    if !std::thread::panicking() {
        cx.task().worker().count_free(cx.task().slice_ops());
        cx.check_slow(0);
    }
}

/// Counts a question without a context.
#[inline]
pub(crate) fn count_poll() {
    count_blindly(BLIND_POLL);
}

/// Counts an action without a context.
#[inline]
pub(crate) fn count_action() {
    count_blindly(BLIND_ACTION);
}

/// Counts an action without a context that takes as long as many others: it interrupts all threads of the process, asks the
/// kernel, or makes or ends something that the whole runtime knows.
#[inline]
pub(crate) fn count_costly_action() {
    count_blindly(BLIND_COSTLY_ACTION);
}

fn count_blindly(weight: u32) {
    let Some(task) = current_task() else { return };
    if task.fuel.load(Ordering::Relaxed) != 0 {
        task.look_up_sooner(CALL_OPS);
        reset_blind();
    } else if add_blind(weight) {
        let cx = Cx::new(task);
        look(&cx);
        cx.yield_now();
    }
}

/// The task whose code runs on this thread.
#[allow(unsafe_code)]
pub(crate) fn current_task() -> Option<TaskPtr> {
    // SAFETY: the pointer is null or the worker of this thread, which does not go away under it.
    unsafe { worker::current().as_ref() }?.running_task()
}
