//! Waiting inside of a mutex.
//!
//! Conserved: a notification of one reaches one task that waits, if there is any: a task that is cancelled after it was
//! notified, and before it has the mutex again, hands it on. A task is in line before it lets the mutex go.

use super::mutex::MutexGuard;
use super::semaphore::AcquireError;
use crate::calls;
use crate::cx::Cx;
use crate::queue::{Got, Missed, Queue, Rule, enter};
use crate::task::WaitReason;
use crate::wait::Who;
use std::time::Duration;

/// Notifications that are being handed out: none outside of a change.
#[derive(Default)]
struct Pending(bool);

impl Rule for Pending {
    type Wish = ();

    fn take(&mut self, (): ()) -> bool {
        std::mem::take(&mut self.0)
    }

    fn put_back(&mut self, (): (), others_wait: bool) {
        self.0 = others_wait;
    }
}

/// Waits inside of a [`Mutex`](super::Mutex) until another task has changed the value.
///
/// ```
/// # use mainspring::{Config, Profile, sync::{Condvar, Mutex}};
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// let (jobs, more) = (Mutex::new(Vec::new()), Condvar::new());
/// let job = runtime.run(|cx| {
///     cx.nursery(|n| {
///         n.start(|cx| {
///             jobs.lock(cx).unwrap().push("sort");
///             more.notify_one();
///         }).unwrap();
///         let mut jobs = more.wait_while(cx, jobs.lock(cx).unwrap(), |jobs| jobs.is_empty()).unwrap();
///         jobs.pop()
///     })
/// });
/// assert_eq!(job.unwrap().unwrap(), Some("sort"));
/// ```
#[derive(Debug)]
pub struct Condvar {
    queue: Queue<Pending>,
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

/// Hands a notification on, if the task that got it ends before it has the mutex.
struct HandOn<'a>(&'a Queue<Pending>);

impl Drop for HandOn<'_> {
    fn drop(&mut self) {
        self.0.give_back(());
    }
}

impl Condvar {
    /// No task waits.
    pub fn new() -> Self {
        Self { queue: Queue::new(Pending::default()) }
    }

    /// Lets the mutex go, waits for a notification, and waits for the mutex again. A task is never woken without a
    /// notification, but the value may have changed again meanwhile: see [`Condvar::wait_while`]. Fails only in a
    /// destructor of a task that unwinds.
    pub fn wait<'a, T>(&self, cx: &Cx, guard: MutexGuard<'a, T>) -> Result<MutexGuard<'a, T>, AcquireError> {
        self.wait_as(&Who::Task(cx), guard, None).map(|(guard, _)| guard)
    }

    /// As [`Condvar::wait`], for at most this long. With the mutex, whether there was a notification.
    pub fn wait_timeout<'a, T>(
        &self,
        cx: &Cx,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> Result<(MutexGuard<'a, T>, bool), AcquireError> {
        self.wait_as(&Who::Task(cx), guard, Some(timeout))
    }

    /// Waits as long as the value is as `unwanted` says.
    pub fn wait_while<'a, T>(
        &self,
        cx: &Cx,
        mut guard: MutexGuard<'a, T>,
        mut unwanted: impl FnMut(&mut T) -> bool,
    ) -> Result<MutexGuard<'a, T>, AcquireError> {
        calls::count(cx);
        while unwanted(&mut guard) {
            guard = self.wait(cx, guard)?;
        }
        Ok(guard)
    }

    /// As [`Condvar::wait`], from an ordinary thread, which blocks. Must not be called from inside a task.
    pub fn wait_blocking<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.wait_as(&Who::thread(), guard, None).expect("a thread waits for as long as it takes").0
    }

    fn wait_as<'a, T>(
        &self,
        who: &Who<'_>,
        guard: MutexGuard<'a, T>,
        timeout: Option<Duration>,
    ) -> Result<(MutexGuard<'a, T>, bool), AcquireError> {
        let mutex = guard.mutex();
        enter(who);
        let got = self.queue.wait_after(who, (), WaitReason::Sync, timeout, move || drop(guard));
        let hand_on = (got == Ok(Got::Granted)).then(|| HandOn(&self.queue));
        match got {
            Err(Missed::Unwinding) => Err(AcquireError::Unwinding),
            _ => {
                let guard = mutex.lock_as(who, None)?;
                std::mem::forget(hand_on);
                Ok((guard, got.is_ok()))
            }
        }
    }

    /// Lets the one go that has waited longest. If no task waits, nothing happens.
    pub fn notify_one(&self) {
        calls::count_action();
        self.queue.give_back(());
    }

    /// Lets all go that wait.
    pub fn notify_all(&self) {
        calls::count_action();
        self.queue.release_all();
    }
}
