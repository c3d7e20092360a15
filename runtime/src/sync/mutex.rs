//! A value that one task at a time may use, and a value that is made once.
#![allow(unsafe_code)]

use super::semaphore::{AcquireError, Permit, Semaphore};
use crate::cx::Cx;
use crate::wait::Who;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

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

    fn guard<'a>(&'a self, permit: Permit<'a>) -> MutexGuard<'a, T> {
        MutexGuard { mutex: self, _permit: permit, _value: PhantomData }
    }

    /// Waits for the mutex. Fails only in a destructor of a task that unwinds.
    pub fn lock(&self, cx: &Cx) -> Result<MutexGuard<'_, T>, AcquireError> {
        self.lock_as(&Who::Task(cx), None)
    }

    /// As [`Mutex::lock`], for at most this long.
    pub fn lock_timeout(&self, cx: &Cx, timeout: Duration) -> Result<MutexGuard<'_, T>, AcquireError> {
        self.lock_as(&Who::Task(cx), Some(timeout))
    }

    /// As [`Mutex::lock`], from an ordinary thread, which blocks. Must not be called from inside a task.
    pub fn lock_blocking(&self) -> MutexGuard<'_, T> {
        self.lock_as(&Who::thread(), None).expect("a thread waits for as long as it takes")
    }

    pub(super) fn lock_as(
        &self,
        who: &Who<'_>,
        timeout: Option<Duration>,
    ) -> Result<MutexGuard<'_, T>, AcquireError> {
        Ok(self.guard(self.semaphore.acquire_as(who, 1, timeout)?))
    }

    /// The mutex, if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        Some(self.guard(self.semaphore.try_acquire(1)?))
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<'a, T> MutexGuard<'a, T> {
    pub(super) fn mutex(&self) -> &'a Mutex<T> {
        self.mutex
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
