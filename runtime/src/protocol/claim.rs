//! A value that one side, its owner, changes without a lock until another side needs it.
//!
//! Conserved: at most one side changes the value at a time. Claimants hold a common lock. The owner is either outside the
//! value, or inside it with no claim made, or holds that lock too.
//!
//! The owner marks that it is inside, and then looks whether the value was claimed. A claimant marks its claim, and then waits
//! until the owner is outside. Both marks are written before the other one is read, with a fence between, so that the owner
//! sees the claim or the claimant sees the owner. A claim is for good: from then on the owner takes the lock as well.
#![allow(unsafe_code)]

use super::mutant::{Mutant, broken};
use super::prim::{AtomicBool, Ordering};
use super::{asymmetric, give_way};
use std::cell::UnsafeCell;

/// The value.
#[derive(Debug)]
pub struct Claimable<T> {
    /// The owner is inside. Written by the owner alone.
    inside: AtomicBool,
    /// A claimant has claimed the value. Written under the claimants' lock.
    claimed: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: one side at a time changes the value, as the header says, and it may move between threads.
unsafe impl<T: Send> Sync for Claimable<T> {}

impl<T> Claimable<T> {
    /// A value that is not claimed.
    pub fn new(value: T) -> Self {
        Self {
            inside: AtomicBool::new(false),
            claimed: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Changes the value without the lock. `None`, and nothing done, if it was claimed.
    ///
    /// # Safety
    ///
    /// Only the owner may call this. `f` comes back at once: it neither switches tasks, nor unwinds, nor uses this value.
    #[inline(always)]
    pub unsafe fn try_own<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.inside.store(true, Ordering::Relaxed);
        // Pairs with the heavy fence of `claim`, between its mark and its look at `inside`.
        if !broken(Mutant::OwnWithoutFence) {
            asymmetric::light();
        }
        let result = if self.claimed.load(Ordering::Relaxed) {
            None
        } else {
            // SAFETY: the owner is inside and the value is not claimed, so that claimants wait.
            Some(f(unsafe { &mut *self.value.get() }))
        };
        // Release: a claimant that sees the owner outside sees what it did inside.
        let order = if broken(Mutant::LeaveWithoutRelease) { Ordering::Relaxed } else { Ordering::Release };
        self.inside.store(false, order);
        result
    }

    /// Claims the value, for good, and changes it.
    ///
    /// # Safety
    ///
    /// The caller holds the claimants' lock. `f` does not use this value.
    pub unsafe fn claim<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        if !self.claimed.load(Ordering::Relaxed) {
            self.claimed.store(true, Ordering::Relaxed);
            // Pairs with the light fence of `try_own`.
            if !broken(Mutant::ClaimWithoutFence) {
                asymmetric::heavy();
            }
            // Acquire: pairs with the owner's release when it leaves.
            while self.inside.load(Ordering::Acquire) && !broken(Mutant::ClaimWithoutWaiting) {
                give_way();
            }
        }
        // SAFETY: claimed, and the owner has left; the caller holds the lock that all claimants hold.
        f(unsafe { &mut *self.value.get() })
    }

    /// Changes the value, claimed or not.
    ///
    /// # Safety
    ///
    /// Only the owner may call this, and it holds the claimants' lock. `f` does not use this value.
    pub unsafe fn own_locked<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the owner is here, and not inside; claimants are kept out by the lock.
        f(unsafe { &mut *self.value.get() })
    }
}
