//! Semaphore, mutex and once, for tasks: waiting blocks the task and not its worker, and may cross a yield.
//!
//! Conserved: permits that are held and permits that are free sum to what the semaphore was made with. Permits go to
//! waiters in the order in which they came.
#![allow(unsafe_code)]

use crate::calls;
use crate::cx::Cx;
use crate::protocol::lock::Lock;
use crate::protocol::wait_end::{Outcome, WaitEnd};
use crate::task::WaitReason;
use crate::wait::{Waited, Who};
use crate::waiter::Ending;
use crate::worker;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

struct Node {
    word: usize,
    wanted: usize,
    end: WaitEnd,
}

struct Inside {
    free: usize,
    line: VecDeque<*const Node>,
}

// SAFETY: nodes are touched under the lock, or by their own waiter after they left the line.
unsafe impl Send for Inside {}

/// A number of permits.
pub struct Semaphore {
    inside: Lock<Inside>,
    total: usize,
}

impl std::fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Semaphore({} of {})", self.inside.lock().free, self.total)
    }
}

/// Permits were not to be had.
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

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.semaphore.release(self.held);
    }
}

/// A node that is in the line, or was taken out and given its permits. Dropped on every way out of the frame that the node is
/// in.
struct Enlisted<'s, 'w> {
    semaphore: &'s Semaphore,
    who: &'w Who<'w>,
    node: &'w Node,
}

impl<'s> Enlisted<'s, '_> {
    /// Ends the wait: with the permits, if they were given.
    fn leave(self) -> Option<Permit<'s>> {
        let this = std::mem::ManuallyDrop::new(self);
        this.take_out()
    }

    fn take_out(&self) -> Option<Permit<'s>> {
        let Self { semaphore, who, node } = *self;
        let permit = || Permit { semaphore, held: node.wanted };
        if node.end.outcome().is_some() {
            return Some(permit());
        }
        let mut inside = semaphore.inside.lock();
        let Some(place) = inside.line.iter().position(|&other| std::ptr::eq(other, node)) else {
            drop(inside);
            node.end.outcome().expect("whoever took it off the line told it");
            return Some(permit());
        };
        inside.line.remove(place);
        drop(inside);
        who.take_back(node.word);
        // Others behind it may go now.
        semaphore.release(0);
        None
    }
}

impl Drop for Enlisted<'_, '_> {
    fn drop(&mut self) {
        drop(self.take_out());
    }
}

impl Semaphore {
    /// A semaphore with `permits`.
    pub fn new(permits: usize) -> Self {
        Self { inside: Lock::new(Inside { free: permits, line: VecDeque::new() }), total: permits }
    }

    /// How many permits are free.
    pub fn free(&self) -> usize {
        calls::count_poll();
        self.inside.lock().free
    }

    /// Waits for `wanted` permits.
    pub fn acquire(&self, cx: &Cx, wanted: usize) -> Result<Permit<'_>, AcquireError> {
        self.take(&Who::Task(cx), wanted, None)
    }

    /// As [`Semaphore::acquire`], for at most this long.
    pub fn acquire_timeout(
        &self,
        cx: &Cx,
        wanted: usize,
        timeout: Duration,
    ) -> Result<Permit<'_>, AcquireError> {
        self.take(&Who::Task(cx), wanted, Some(timeout))
    }

    /// Permits if they are free and no task waits for them.
    pub fn try_acquire(&self, wanted: usize) -> Option<Permit<'_>> {
        let mut inside = self.inside.lock();
        if inside.free < wanted || !inside.line.is_empty() {
            drop(inside);
            calls::count_poll();
            return None;
        }
        inside.free -= wanted;
        drop(inside);
        // The permit first: if the task is stopped here, it goes back.
        let permit = Permit { semaphore: self, held: wanted };
        calls::count_action();
        Some(permit)
    }

    fn take(
        &self,
        who: &Who<'_>,
        wanted: usize,
        timeout: Option<Duration>,
    ) -> Result<Permit<'_>, AcquireError> {
        if let Who::Task(cx) = who {
            cx.probe_stack();
            calls::count(cx);
            cx.acknowledge();
        }
        if wanted > self.total {
            return Err(AcquireError::TooMany { wanted, total: self.total });
        }
        let node = Node { word: who.word(), wanted, end: WaitEnd::new() };
        {
            let mut inside = self.inside.lock();
            if inside.free >= wanted && inside.line.is_empty() {
                inside.free -= wanted;
                drop(inside);
                who.take_back(node.word);
                return Ok(Permit { semaphore: self, held: wanted });
            }
            inside.line.push_back(&raw const node);
        }
        let enlisted = Enlisted { semaphore: self, who, node: &node };
        let waited = who.wait(&node.end, WaitReason::Sync, timeout);
        match (enlisted.leave(), waited) {
            (Some(permit), _) => Ok(permit),
            (None, Waited::TimedOut) => Err(AcquireError::TimedOut),
            (None, _) => {
                who.acknowledge();
                Err(AcquireError::Unwinding)
            }
        }
    }

    /// Gives permits back, and hands them on in order.
    fn release(&self, permits: usize) {
        let mut inside = self.inside.lock();
        inside.free += permits;
        debug_assert!(inside.free <= self.total);
        let mut endings = Vec::new();
        // SAFETY: the pointer is null or the worker of this thread, which does not go away under it.
        let here = unsafe { worker::current().as_ref() };
        while let Some(&first) = inside.line.front() {
            // SAFETY: a node in the line is in a frame that waits to be told; the lock makes us alone with it.
            let node = unsafe { &*first };
            if node.wanted > inside.free {
                break;
            }
            inside.free -= node.wanted;
            inside.line.pop_front();
            endings.push(Ending::begin(node.word, &node.end, Outcome::Done, here));
        }
        drop(inside);
        endings.into_iter().for_each(Ending::finish);
    }
}

/// A value that one task at a time may use. The lock may be held across yields.
#[derive(Debug)]
pub struct Mutex<T> {
    semaphore: Semaphore,
    value: UnsafeCell<T>,
}

// SAFETY: the semaphore has one permit, and only its holder reaches the value.
unsafe impl<T: Send> Sync for Mutex<T> {}
// SAFETY: as for the value.
unsafe impl<T: Send> Send for Mutex<T> {}

/// The right to a mutex's value, until dropped.
///
/// A shared guard is a shared value, so a guard of a `Cell` does not go to several tasks at once:
///
/// ```compile_fail,E0277
/// # use mainspring::sync::Mutex;
/// # use std::cell::Cell;
/// let mutex = Mutex::new(Cell::new(1));
/// let guard = mutex.try_lock().unwrap();
/// std::thread::scope(|threads| {
///     threads.spawn(|| guard.set(2));
/// });
/// ```
#[must_use = "the mutex is released when this is dropped"]
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    _permit: Permit<'a>,
    /// A shared guard is a shared value: without this the guard would be `Sync` for every `T: Send`, as the mutex is.
    _value: PhantomData<&'a mut T>,
}

impl<T> Mutex<T> {
    /// A mutex that is free.
    pub fn new(value: T) -> Self {
        Self { semaphore: Semaphore::new(1), value: UnsafeCell::new(value) }
    }

    /// Waits for the mutex. Fails only in a destructor of a task that unwinds.
    pub fn lock(&self, cx: &Cx) -> Result<MutexGuard<'_, T>, AcquireError> {
        let permit = self.semaphore.acquire(cx, 1)?;
        Ok(MutexGuard { mutex: self, _permit: permit, _value: PhantomData })
    }

    /// The mutex, if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let permit = self.semaphore.try_acquire(1)?;
        Some(MutexGuard { mutex: self, _permit: permit, _value: PhantomData })
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard holds the only permit.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the only permit.
        unsafe { &mut *self.mutex.value.get() }
    }
}

/// A value that is made once, by the first task that wants it; others wait for it.
#[derive(Debug)]
pub struct Once<T> {
    value: Mutex<Option<T>>,
}

impl<T: Clone> Default for Once<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone> Once<T> {
    /// No value yet.
    pub fn new() -> Self {
        Self { value: Mutex::new(None) }
    }

    /// A copy of the value; `make` makes it if there is none yet. If `make` panics or is cancelled, the next one
    /// makes it.
    pub fn get_or_make(&self, cx: &Cx, make: impl FnOnce() -> T) -> Result<T, AcquireError> {
        let mut value = self.value.lock(cx)?;
        Ok(value.get_or_insert_with(make).clone())
    }
}
