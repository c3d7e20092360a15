//! An event without a value.
//!
//! Conserved: a notification of one lets the task go that has waited longest, or else the next that waits; none is lost, since
//! a waiter that is cancelled hands on what it was given. A notification of all reaches those that wait, and no others.

use crate::calls;
use crate::cx::Cx;
use crate::parker::Permit;
use crate::queue::Queue;
use crate::sync::AcquireError;
use crate::task::WaitReason;
use crate::wait::Who;
use std::time::Duration;

/// An event that tasks wait for.
///
/// ```
/// # use mainspring::{Config, Profile, sync::Notify};
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// let changed = Notify::new();
/// runtime.run(|cx| {
///     cx.nursery(|n| {
///         n.start(|_| changed.notify_one()).unwrap();
///         changed.notified(cx).unwrap();
///     })
/// }).unwrap().unwrap();
/// ```
#[derive(Debug)]
pub struct Notify {
    queue: Queue<Permit>,
}

impl Default for Notify {
    fn default() -> Self {
        Self::new()
    }
}

impl Notify {
    /// Nothing has happened yet.
    pub fn new() -> Self {
        Self { queue: Queue::new(Permit::default()) }
    }

    /// Waits for a notification. Fails only in a destructor of a task that unwinds.
    pub fn notified(&self, cx: &Cx) -> Result<(), AcquireError> {
        self.wait(&Who::Task(cx), None)
    }

    /// As [`Notify::notified`], for at most this long.
    pub fn notified_timeout(&self, cx: &Cx, timeout: Duration) -> Result<(), AcquireError> {
        self.wait(&Who::Task(cx), Some(timeout))
    }

    /// As [`Notify::notified`], from an ordinary thread, which blocks. Must not be called from inside a task.
    pub fn notified_blocking(&self) {
        self.wait(&Who::thread(), None).expect("a thread waits for as long as it takes");
    }

    fn wait(&self, who: &Who<'_>, timeout: Option<Duration>) -> Result<(), AcquireError> {
        self.queue.wait(who, (), WaitReason::Sync, timeout)?;
        Ok(())
    }

    /// Lets the one that has waited longest go on, or else the next that waits. It is remembered once.
    pub fn notify_one(&self) {
        calls::count_action();
        self.queue.give_back(());
    }

    /// Lets all go on that wait. Nothing is remembered.
    pub fn notify_waiters(&self) {
        calls::count_action();
        self.queue.release_all();
    }

    pub(crate) fn queue(&self) -> &Queue<Permit> {
        &self.queue
    }
}
