//! Another event loop on the thread of the first worker: what it hands to a task, and what the task hands back, then crosses no thread.
//!
//! The worker waits in the loop when it has nothing to do. While it has, it gives the loop a turn now and then, on its own stack. What the
//! loop runs meanwhile is not of the runtime: it sends, wakes and spawns as an ordinary thread does, and it must not block.

use crate::foreign::tell_subscriber;
use crate::worker::{self, Worker};
use std::any::Any;
use std::fmt::{self, Debug};
use std::io;
use std::panic::RefUnwindSafe;
use std::time::Duration;

/// An event loop that a worker drives: [`Config::event_loop`](crate::Config::event_loop),
/// [`Runtime::attach_event_loop`](crate::Runtime::attach_event_loop). A panic of what it runs stays in it, so it must be
/// sound to use afterwards.
pub trait EventLoop: Any + Debug + Send + Sync + RefUnwindSafe {
    /// Does what is to be done, and waits for more until [`EventLoop::wake`] is called or the time is over. Without any time it does what is
    /// to be done and does not wait. It may return early. The worker's thread calls it.
    fn wait(&self, timeout: Option<Duration>);

    /// Ends a wait, or the next one if there is none now. Any thread calls it, and so may what the loop runs. It must not block, and must
    /// not use the runtime. If it panics, only the panic hook hears of it.
    fn wake(&self);
}

/// Why a runtime does not drive an event loop.
#[derive(Debug)]
#[non_exhaustive]
pub enum AttachError {
    /// It drives another one already.
    Taken,
    /// It is deterministic: its workers are one thread, which waits for nothing.
    Deterministic,
    /// The thread did not start that is to wait for the runtime's sockets.
    Thread(io::Error),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken => f.write_str("the runtime drives another event loop already"),
            Self::Deterministic => f.write_str("a deterministic runtime drives no event loop"),
            Self::Thread(error) => write!(f, "the thread for the runtime's sockets did not start: {error}"),
        }
    }
}

impl std::error::Error for AttachError {}

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

/// Ends a wait in the loop. Whoever makes work known calls this, in the middle of anything and with a lock held: no task is current
/// meanwhile, so that nothing can switch away.
pub(crate) fn wake(event_loop: &dyn EventLoop) {
    let _ = tell_subscriber(|| event_loop.wake());
}
