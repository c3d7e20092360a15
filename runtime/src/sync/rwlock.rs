//! A value that several readers or one writer may use.
//!
//! Conserved: there is at most one writer, and none beside readers. Both go in the order in which they came: readers behind a
//! writer that waits wait too, so that no writer is passed for ever.
#![allow(unsafe_code)]

use super::semaphore::AcquireError;
use crate::calls;
use crate::cx::Cx;
use crate::queue::{Queue, Rule};
use crate::task::WaitReason;
use crate::wait::Who;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

#[derive(Default)]
struct Holders {
    readers: usize,
    writer: bool,
}

impl Rule for Holders {
    type Wish = Access;

    fn take(&mut self, access: Access) -> bool {
        let may = !self.writer && (access == Access::Read || self.readers == 0);
        match access {
            Access::Read => self.readers += usize::from(may),
            Access::Write => self.writer |= may,
        }
        may
    }

    fn put_back(&mut self, access: Access, _: bool) {
        match access {
            Access::Read => self.readers -= 1,
            Access::Write => self.writer = false,
        }
    }
}

/// A value that several readers or one writer may use. A lock may be held across yields.
///
/// A task that reads and asks to read again may wait for ever: a writer may have come in between.
///
/// ```
/// # use mainspring::{Config, Profile, sync::RwLock};
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// let routes = RwLock::new(vec!["/"]);
/// runtime.run(|cx| {
///     routes.write(cx).unwrap().push("/health");
///     let (one, two) = (routes.read(cx).unwrap(), routes.read(cx).unwrap());
///     assert_eq!(*one, *two);
///     assert!(routes.try_write().is_none());
/// }).unwrap();
/// ```
#[derive(Debug)]
pub struct RwLock<T> {
    queue: Queue<Holders>,
    value: UnsafeCell<T>,
}

// SAFETY: readers share the value, so it must be Sync; a writer may move it, so it must be Send.
unsafe impl<T: Send + Sync> Sync for RwLock<T> {}
// SAFETY: as for the value.
unsafe impl<T: Send> Send for RwLock<T> {}

/// The right to read, until dropped.
#[must_use = "the lock is released when this is dropped"]
#[derive(Debug)]
pub struct ReadGuard<'a, T> {
    lock: &'a RwLock<T>,
    _value: PhantomData<&'a T>,
}

/// The right to read and write, until dropped.
#[must_use = "the lock is released when this is dropped"]
#[derive(Debug)]
pub struct WriteGuard<'a, T> {
    lock: &'a RwLock<T>,
    _value: PhantomData<&'a mut T>,
}

impl<T> RwLock<T> {
    /// A lock that is free.
    pub fn new(value: T) -> Self {
        Self { queue: Queue::new(Holders::default()), value: UnsafeCell::new(value) }
    }

    /// Waits for the right to read. Fails only in a destructor of a task that unwinds.
    pub fn read(&self, cx: &Cx) -> Result<ReadGuard<'_, T>, AcquireError> {
        self.wait(&Who::Task(cx), Access::Read, None)?;
        Ok(self.reading())
    }

    /// As [`RwLock::read`], for at most this long.
    pub fn read_timeout(&self, cx: &Cx, timeout: Duration) -> Result<ReadGuard<'_, T>, AcquireError> {
        self.wait(&Who::Task(cx), Access::Read, Some(timeout))?;
        Ok(self.reading())
    }

    /// As [`RwLock::read`], from an ordinary thread, which blocks. Must not be called from inside a task.
    pub fn read_blocking(&self) -> ReadGuard<'_, T> {
        self.wait(&Who::thread(), Access::Read, None).expect("a thread waits for as long as it takes");
        self.reading()
    }

    /// Waits for the right to write. Fails only in a destructor of a task that unwinds.
    pub fn write(&self, cx: &Cx) -> Result<WriteGuard<'_, T>, AcquireError> {
        self.wait(&Who::Task(cx), Access::Write, None)?;
        Ok(self.writing())
    }

    /// As [`RwLock::write`], for at most this long.
    pub fn write_timeout(&self, cx: &Cx, timeout: Duration) -> Result<WriteGuard<'_, T>, AcquireError> {
        self.wait(&Who::Task(cx), Access::Write, Some(timeout))?;
        Ok(self.writing())
    }

    /// As [`RwLock::write`], from an ordinary thread, which blocks. Must not be called from inside a task.
    pub fn write_blocking(&self) -> WriteGuard<'_, T> {
        self.wait(&Who::thread(), Access::Write, None).expect("a thread waits for as long as it takes");
        self.writing()
    }

    fn wait(&self, who: &Who<'_>, access: Access, timeout: Option<Duration>) -> Result<(), AcquireError> {
        self.queue.wait(who, access, WaitReason::Sync, timeout)?;
        Ok(())
    }

    fn reading(&self) -> ReadGuard<'_, T> {
        ReadGuard { lock: self, _value: PhantomData }
    }

    fn writing(&self) -> WriteGuard<'_, T> {
        WriteGuard { lock: self, _value: PhantomData }
    }

    /// The right to read, if there is no writer and no task waits.
    pub fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        let guard = self.queue.try_take(Access::Read).then(|| self.reading());
        count_try(guard.is_some());
        guard
    }

    /// The right to write, if the lock is free and no task waits.
    pub fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        let guard = self.queue.try_take(Access::Write).then(|| self.writing());
        count_try(guard.is_some());
        guard
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

/// A guard is there first: if the task is stopped here, it goes back.
fn count_try(got: bool) {
    if got { calls::count_action() } else { calls::count_poll() }
}

impl<'a, T> WriteGuard<'a, T> {
    /// Goes on as a reader, without letting another writer in between.
    pub fn downgrade(self) -> ReadGuard<'a, T> {
        let lock = std::mem::ManuallyDrop::new(self).lock;
        lock.queue.change(|holders, _| *holders = Holders { readers: 1, writer: false });
        lock.reading()
    }
}

impl<T> Drop for ReadGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.queue.give_back(Access::Read);
    }
}

impl<T> Drop for WriteGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.queue.give_back(Access::Write);
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: there is no writer as long as there is a reader.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: there is nobody else as long as there is a writer.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: there is nobody else as long as there is a writer.
        unsafe { &mut *self.lock.value.get() }
    }
}
