//! Code of the program that the runtime calls in the middle of its own: destructors of what tasks leave behind, and subscribers of
//! `tracing`. It may panic, and it may try to call the runtime again.
//!
//! Conserved: no task is current on the worker while such code runs, so that nothing it reaches can switch away; and no panic of it
//! passes through the runtime.
#![allow(unsafe_code)]

use crate::task::Task;
use crate::task::body::discard;
use crate::worker::{Worker, current};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;

/// As long as this lives, no task is current on the worker of this thread.
pub(crate) struct NoTask {
    worker: *const Worker,
    task: *const Task,
}

impl NoTask {
    pub(crate) fn begin() -> Self {
        let worker = current();
        // SAFETY: null, or the worker of this thread.
        let task = unsafe { worker.as_ref() }.map_or(null(), |worker| worker.current.replace(null()));
        Self { worker, task }
    }

    /// Whether this thread runs a worker.
    pub(crate) fn is_on_worker(&self) -> bool {
        !self.worker.is_null()
    }
}

impl Drop for NoTask {
    fn drop(&mut self) {
        // SAFETY: null, or the worker of this thread.
        if let Some(worker) = unsafe { self.worker.as_ref() } {
            worker.current.set(self.task);
        }
    }
}

/// Tells a subscriber something. `None` if it panicked: its hook has said so, and the runtime goes on.
pub(crate) fn tell_subscriber<R>(f: impl FnOnce() -> R) -> Option<R> {
    let _no_task = NoTask::begin();
    catch_unwind(AssertUnwindSafe(f)).map_err(discard).ok()
}

/// Ends the process if it is dropped by an unwind: what follows in this frame is waited for by others.
pub(crate) struct NoUnwind;

impl NoUnwind {
    /// The part that must not unwind is over.
    pub(crate) fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for NoUnwind {
    fn drop(&mut self) {
        eprintln!(
            "mainspring: a panic inside the runtime, while others borrow from the frame. The process is aborted."
        );
        std::process::abort();
    }
}
