//! A number of permits.
//!
//! Conserved: permits that are held and permits that are free sum to what the semaphore was made with. Permits go to
//! waiters in the order in which they came.

use crate::calls;
use crate::cx::Cx;
use crate::queue::{Missed, Queue, Rule};
use crate::task::WaitReason;
use crate::wait::Who;
use std::time::Duration;

/// The permits that are free.
pub(crate) struct Free(usize);

impl Rule for Free {
    type Wish = usize;

    fn take(&mut self, wanted: usize) -> bool {
        let enough = self.0 >= wanted;
        if enough {
            self.0 -= wanted;
        }
        enough
    }

    fn put_back(&mut self, wanted: usize, _: bool) {
        self.0 += wanted;
    }
}

/// A number of permits.
pub struct Semaphore {
    queue: Queue<Free>,
    total: usize,
}

impl std::fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Semaphore({} of {})", self.queue.look(|free| free.0), self.total)
    }
}

/// Permits or a lock were not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireError {
    /// More than there are in all.
    TooMany {
        /// What was asked for.
        wanted: usize,
        /// What there is.
        total: usize,
    },
    /// Time was over.
    TimedOut,
    /// A destructor of a task that unwinds must not wait.
    Unwinding,
}

impl std::fmt::Display for AcquireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooMany { wanted, total } => write!(f, "{wanted} permits of {total}"),
            Self::TimedOut => f.write_str("time was over"),
            Self::Unwinding => f.write_str("a destructor of a task that ends must not wait"),
        }
    }
}

impl std::error::Error for AcquireError {}

impl From<Missed> for AcquireError {
    fn from(missed: Missed) -> Self {
        match missed {
            Missed::TimedOut => Self::TimedOut,
            Missed::Unwinding => Self::Unwinding,
        }
    }
}

/// Permits, until dropped. They do not outlive their semaphore:
///
/// ```compile_fail,E0515
/// # use mainspring::sync::{Permit, Semaphore};
/// fn leak() -> Option<Permit<'static>> {
///     Semaphore::new(1).try_acquire(1)
/// }
/// ```
#[must_use = "permits go back when this is dropped"]
#[derive(Debug)]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
    held: usize,
}

impl<'a> Permit<'a> {
    pub(crate) fn new(semaphore: &'a Semaphore, held: usize) -> Self {
        Self { semaphore, held }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.semaphore.queue.give_back(self.held);
    }
}

impl Semaphore {
    /// A semaphore with `permits`.
    pub fn new(permits: usize) -> Self {
        Self { queue: Queue::new(Free(permits)), total: permits }
    }

    /// How many permits are free.
    pub fn free(&self) -> usize {
        calls::count_poll();
        self.queue.look(|free| free.0)
    }

    /// Waits for `wanted` permits.
    pub fn acquire(&self, cx: &Cx, wanted: usize) -> Result<Permit<'_>, AcquireError> {
        self.acquire_as(&Who::Task(cx), wanted, None)
    }

    /// As [`Semaphore::acquire`], for at most this long.
    pub fn acquire_timeout(
        &self,
        cx: &Cx,
        wanted: usize,
        timeout: Duration,
    ) -> Result<Permit<'_>, AcquireError> {
        self.acquire_as(&Who::Task(cx), wanted, Some(timeout))
    }

    /// As [`Semaphore::acquire`], from an ordinary thread, which blocks. Must not be called from inside a task.
    pub fn acquire_blocking(&self, wanted: usize) -> Result<Permit<'_>, AcquireError> {
        self.acquire_as(&Who::thread(), wanted, None)
    }

    /// Permits if they are free and no task waits for them.
    pub fn try_acquire(&self, wanted: usize) -> Option<Permit<'_>> {
        if !self.queue.try_take(wanted) {
            calls::count_poll();
            return None;
        }
        // The permit first: if the task is stopped here, it goes back.
        let permit = Permit::new(self, wanted);
        calls::count_action();
        Some(permit)
    }

    pub(super) fn acquire_as(
        &self,
        who: &Who<'_>,
        wanted: usize,
        timeout: Option<Duration>,
    ) -> Result<Permit<'_>, AcquireError> {
        if wanted > self.total {
            crate::queue::enter(who);
            return Err(AcquireError::TooMany { wanted, total: self.total });
        }
        self.queue.wait(who, wanted, WaitReason::Sync, timeout)?;
        Ok(Permit::new(self, wanted))
    }

    pub(crate) fn queue(&self) -> &Queue<Free> {
        &self.queue
    }
}
