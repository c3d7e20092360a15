//! Calls that block a thread, on threads of their own.
//!
//! Conserved: a call that was queued runs once or is taken back; the task that made it waits for it in either case, so that
//! the call may borrow from the task's frame.
#![allow(unsafe_code)]

use crate::audit;
use crate::budget::Component;
use crate::calls;
use crate::cx::Cx;
use crate::error::BudgetError;
use crate::foreign::NoUnwind;
use crate::protocol::wait_end::{Outcome, WaitEnd};
use crate::task::WaitReason;
use crate::wait::{Waited, Who};
use crate::waiter;
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// How many threads there can be.
const MAX_THREADS: usize = 64;
/// How long an idle thread stays.
const LINGER: Duration = Duration::from_secs(10);

/// A blocking call was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockingError {
    /// The task has no `CapExecutor`.
    NotPermitted,
    /// The task's budget does not allow it.
    Budget(BudgetError),
    /// A destructor of a task that unwinds must not wait.
    Unwinding,
}

impl fmt::Display for BlockingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPermitted => f.write_str("this task holds no CapExecutor"),
            Self::Budget(error) => error.fmt(f),
            Self::Unwinding => f.write_str("a destructor of a task that ends must not wait"),
        }
    }
}

impl std::error::Error for BlockingError {}

struct Job {
    id: u64,
    run: Box<dyn FnOnce() + Send>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    next_id: u64,
    closed: bool,
}

/// The threads that make blocking calls, started as they are needed.
#[derive(Default)]
pub(crate) struct BlockingPool {
    queue: Mutex<Queue>,
    bell: Condvar,
}

impl BlockingPool {
    fn submit(self: &Arc<Self>, run: Box<dyn FnOnce() + Send>) -> u64 {
        let mut queue = self.queue.lock().expect("no panic while it is held");
        let id = queue.next_id;
        queue.next_id += 1;
        queue.jobs.push_back(Job { id, run });
        if queue.idle < queue.jobs.len() && queue.threads < MAX_THREADS {
            let pool = self.clone();
            let thread = std::thread::Builder::new().name("mainspring-blocking".to_owned());
            if thread.spawn(move || pool.serve()).is_ok() {
                queue.threads += 1;
            } else if queue.threads == 0 {
                // No thread would ever run it: run it here, at the price of this worker's time.
                let job = queue.jobs.pop_back();
                drop(queue);
                if let Some(job) = job {
                    (job.run)();
                }
                return id;
            }
        }
        drop(queue);
        self.bell.notify_one();
        id
    }

    /// Takes a job back that no thread has begun. Its owner drops it, without the lock: that may run any code.
    fn take_back(&self, id: u64) -> Option<Job> {
        let mut queue = self.queue.lock().expect("no panic while it is held");
        let place = queue.jobs.iter().position(|job| job.id == id)?;
        queue.jobs.remove(place)
    }

    fn serve(&self) {
        let mut queue = self.queue.lock().expect("no panic while it is held");
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                (job.run)();
                queue = self.queue.lock().expect("no panic while it is held");
                continue;
            }
            queue.idle += 1;
            let (next, timeout) = self.bell.wait_timeout(queue, LINGER).expect("no panic while it is held");
            queue = next;
            queue.idle -= 1;
            if queue.jobs.is_empty() && (queue.closed || timeout.timed_out()) {
                queue.threads -= 1;
                return;
            }
        }
    }

    pub(crate) fn close(&self) {
        self.queue.lock().expect("no panic while it is held").closed = true;
        self.bell.notify_all();
    }
}

impl Cx {
    /// Makes a call that blocks its thread, on a thread of the runtime's pool; only this task waits. Costs one op and one
    /// system call. A call that has begun cannot be interrupted: a cancelled task waits for it.
    ///
    /// In the deterministic mode the call is made in place.
    pub fn blocking<F, T>(&self, f: F) -> Result<T, BlockingError>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        calls::count(self);
        let cap = self.caps().executor().copied().ok_or(BlockingError::NotPermitted);
        audit::noted(self, "CapExecutor", "blocking", cap)?;
        self.charge(Component::Syscalls).map_err(BlockingError::Budget)?;
        if self.rt().is_virtual() {
            return Ok(f());
        }
        if std::thread::panicking() {
            return Err(BlockingError::Unwinding);
        }
        let who = Who::Task(self);
        let (word, end) = (who.word(), WaitEnd::new());
        let mut result: Option<std::thread::Result<T>> = None;
        let place = ResultSlot(&raw mut result);
        let flag = ResultSlot((&raw const end).cast_mut());
        // The pool's threads are not joined: once the flag is set the task may end, and its runtime after it, before the wake.
        let memory = self.rt().memory();
        let run: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
            let (place, flag, _memory) = (place, flag, memory);
            let value = catch_unwind(AssertUnwindSafe(f));
            // SAFETY: the task waits for the flag before it leaves the frame that both are in.
            unsafe {
                *place.0 = Some(value);
                (*flag.0).complete(Outcome::Done);
            }
            waiter::wake(word);
        });
        // SAFETY: the task waits below until the job has run or was taken back, so that it ends before what it borrows.
        let run =
            unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Box<dyn FnOnce() + Send>>(run) };
        let pool = &self.rt().blocking;
        let no_unwind = NoUnwind;
        let id = pool.submit(run);
        if who.wait(&end, WaitReason::BlockingCall, None) != Waited::Done {
            if let Some(job) = pool.take_back(id) {
                no_unwind.end();
                drop(job);
                self.acknowledge();
                return Err(BlockingError::Unwinding);
            }
            // It has begun: nothing can be done but wait.
            let masked = self.task().mask.begin_wait();
            let _ = who.wait(&end, WaitReason::BlockingCall, None);
            self.task().mask.set(masked);
        }
        no_unwind.end();
        match result.expect("the flag is set after the result") {
            Ok(value) => Ok(value),
            Err(payload) => resume_panic(payload),
        }
    }
}

fn resume_panic(payload: Box<dyn Any + Send>) -> ! {
    resume_unwind(payload)
}

struct ResultSlot<T>(*mut T);

// SAFETY: the job's thread writes, the task's thread reads after the flag is set.
unsafe impl<T> Send for ResultSlot<T> {}
