//! Another event loop on the thread of the first worker: what it hands to a task, and what the task hands back, then crosses no thread.
//!
//! The worker waits in the loop when it has nothing to do. While it has, it gives the loop a turn now and then, on its own stack. What the
//! loop runs meanwhile is not of the runtime: it sends, wakes and spawns as an ordinary thread does, and it must not block.

use crate::foreign::tell_subscriber;
use crate::worker::{self, Worker};
use std::fmt::Debug;
use std::panic::RefUnwindSafe;
use std::time::Duration;

/// An event loop that a worker drives: [`Config::event_loop`](crate::Config::event_loop). A panic of what it runs stays in it, so it must be
/// sound to use afterwards.
pub trait EventLoop: Debug + Send + Sync + RefUnwindSafe {
    /// Does what is to be done, and waits for more until [`EventLoop::wake`] is called or the time is over. Without any time it does what is
    /// to be done and does not wait. It may return early. The worker's thread calls it.
    fn wait(&self, timeout: Option<Duration>);

    /// Ends a wait, or the next one if there is none now. Any thread calls it, and so may what the loop runs. It must not block.
    fn wake(&self);
}

/// While this lives, the thread counts as an ordinary one.
struct OffWorker<'a>(&'a Worker);

impl<'a> OffWorker<'a> {
    fn begin(worker: &'a Worker) -> Self {
        worker::set_current(std::ptr::null());
        Self(worker)
    }
}

impl Drop for OffWorker<'_> {
    fn drop(&mut self) {
        worker::set_current(self.0);
    }
}

/// Waits in the loop, on the stack of the worker, which runs no task. A panic of the loop's own counts as its return.
pub(crate) fn wait_in(event_loop: &dyn EventLoop, worker: &Worker, timeout: Option<Duration>) {
    let _off_worker = OffWorker::begin(worker);
    let _ = tell_subscriber(|| event_loop.wait(timeout));
}
