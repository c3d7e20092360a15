//! The children of a nursery, counted: the last one wakes the owner that waits for all of them.
//!
//! Conserved: `completed` never exceeds `spawned`. A waiter is woken once, by the child that makes them equal, or is told
//! that there is nothing to wait for. The release of the lock is a child's last touch, so that an owner that then finds the
//! counts equal under the lock may free the whole.

use super::lock::Lock;
use super::mutant::{Mutant, broken};
use super::prim::{AtomicUsize, Ordering};

/// Counts, a waiter, and what else is behind the same lock.
#[derive(Debug)]
pub struct WaitGroup<T> {
    /// Written by the owner alone.
    spawned: AtomicUsize,
    /// Children that others than the owner have spawned. Written under the lock.
    guests: AtomicUsize,
    /// Written under the lock.
    completed: AtomicUsize,
    inside: Lock<Inside<T>>,
}

#[derive(Debug)]
struct Inside<T> {
    /// The waiter that the last child wakes; 0 for none.
    waiter: usize,
    rest: T,
}

impl<T> WaitGroup<T> {
    /// No children yet.
    pub fn new(rest: T) -> Self {
        Self {
            spawned: AtomicUsize::new(0),
            guests: AtomicUsize::new(0),
            completed: AtomicUsize::new(0),
            inside: Lock::new(Inside { waiter: 0, rest }),
        }
    }

    /// A child is spawned. The owner only.
    #[inline]
    pub fn add(&self) {
        self.spawned.store(self.spawned.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// A child is to be spawned by another than the owner, if `may` allows it: by what is behind the lock, under which the owner
    /// also decides that it takes no more.
    pub fn add_guest(&self, may: impl FnOnce(&mut T) -> bool) -> bool {
        let mut inside = self.inside.lock();
        if !may(&mut inside.rest) {
            return false;
        }
        self.guests.store(self.guests.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        true
    }

    /// Children so far.
    #[inline]
    pub fn spawned(&self) -> usize {
        self.spawned.load(Ordering::Relaxed) + self.guests.load(Ordering::Relaxed)
    }

    /// Children that have ended.
    #[inline]
    pub fn completed(&self) -> usize {
        self.completed.load(Ordering::Relaxed)
    }

    /// Children that have not. Exact under the lock, and for the owner as long as no other spawns.
    #[inline]
    pub fn live(&self) -> usize {
        self.spawned().saturating_sub(self.completed())
    }

    /// `children` have ended; `first` comes before they count. Returns the waiter to wake.
    #[must_use = "somebody may have to be woken"]
    pub fn ended(&self, children: usize, first: impl FnOnce(&mut T)) -> Option<usize> {
        let mut inside = self.inside.lock();
        first(&mut inside.rest);
        let completed = self.completed() + children;
        self.completed.store(completed, Ordering::Relaxed);
        // The owner does not spawn while it waits, and others do under the lock, so that the count stands still.
        let last = inside.waiter != 0 && completed == self.spawned();
        if broken(Mutant::WaiterLeft) {
            return None;
        }
        last.then(|| std::mem::take(&mut inside.waiter))
    }

    /// Announces the waiter for the last child. False if there is none to wait for.
    pub fn wait(&self, waiter: usize) -> bool {
        let mut inside = self.inside.lock();
        let must_wait = self.live() > 0;
        inside.waiter = if must_wait { waiter } else { 0 };
        must_wait
    }

    /// What else is behind the lock.
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.inside.lock().rest)
    }
}
