//! One task's end and one handle: which of them reads the result, is woken, and frees the task.
//!
//! Conserved: exactly one of the two sides learns that it is the last and must free the task. Waiters are words
//! that the caller gives a meaning to; they are never one of the three reserved values.

use super::mutant::{Mutant, broken};
use super::prim::{AtomicUsize, Ordering};

const IDLE: usize = 0;
const DETACHED: usize = 1;
const DONE: usize = 2;

/// Where a task's end meets its handle.
#[derive(Debug)]
pub struct JoinCell(AtomicUsize);

/// What the end of the task must do.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The handle is still there and no task waits: the handle will free the task.
    KeepForHandle,
    /// Wake this waiter; the handle will free the task.
    Wake(usize),
    /// The handle has gone: free the task now.
    Free,
}

/// What a task that wants to wait must do.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Wait until woken.
    Wait,
    /// It is done already.
    Done,
}

/// What the handle's end must do.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// The task frees itself at its end.
    Detached,
    /// The task is done: free it now.
    Free,
}

impl Default for JoinCell {
    fn default() -> Self {
        Self::new()
    }
}

impl JoinCell {
    /// A task with a handle.
    pub fn new() -> Self {
        Self(AtomicUsize::new(IDLE))
    }

    /// As new. Only the task's sole owner may call this.
    pub fn reset(&self, has_handle: bool) {
        self.0.store(if has_handle { IDLE } else { DETACHED }, Ordering::Relaxed);
    }

    /// The task has ended, its result is written.
    pub fn finish(&self) -> Finished {
        // No other thread touches a task without a handle: no swap is needed to find out.
        if self.0.load(Ordering::Acquire) == DETACHED {
            return Finished::Free;
        }
        // Release: a thread that sees `DONE` sees the result. Acquire: the waiter's word and what it points to are
        // seen.
        let order = if broken(Mutant::DoneWithoutRelease) { Ordering::Relaxed } else { Ordering::AcqRel };
        match self.0.swap(DONE, order) {
            IDLE => Finished::KeepForHandle,
            DETACHED => Finished::Free,
            waiter => Finished::Wake(waiter),
        }
    }

    /// Announces a waiter.
    pub fn wait(&self, waiter: usize) -> Waiting {
        debug_assert!(waiter > DONE);
        // Release: what the waiter points to is written. Acquire: a result that is there is seen.
        match self.0.compare_exchange(IDLE, waiter, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Waiting::Wait,
            Err(_) => Waiting::Done,
        }
    }

    /// Takes a waiter back, woken or not. Returns whether the task is done.
    pub fn stop_waiting(&self, waiter: usize) -> Waiting {
        match self.0.compare_exchange(waiter, IDLE, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Waiting::Wait,
            Err(_) => Waiting::Done,
        }
    }

    /// Whether the task is done.
    pub fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire) == DONE
    }

    /// Whether a waiter is there for the end of the task, which is not done.
    pub fn is_awaited(&self) -> bool {
        // Acquire: as for a thread that takes the waiter's word, though nothing is read through it here.
        self.0.load(Ordering::Acquire) > DONE
    }

    /// The handle goes, and no task waits.
    pub fn detach(&self) -> Dropped {
        match self.0.compare_exchange(IDLE, DETACHED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Dropped::Detached,
            Err(_) => Dropped::Free,
        }
    }
}
