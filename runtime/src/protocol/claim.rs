//! A value that one side, its owner, changes without a lock until another side needs it.
//!
//! Conserved: at most one side changes the value at a time. Claimants hold a common lock. The owner is either outside the
//! value, or inside it with no claim made, or holds that lock too.
//!
//! The owner marks that it is inside, and then looks whether the value was claimed. A claimant marks its claim, and then waits
//! until the owner is outside. Both marks are written before the other one is read, with a fence between, so that the owner
//! sees the claim or the claimant sees the owner. From then on the owner takes the lock as well. It takes the value back, under that
//! lock, once it has been alone with it for long enough.
#![allow(unsafe_code)]

use super::mutant::{Mutant, broken};
use super::prim::{AtomicBool, Ordering};
use super::{asymmetric, give_way};
use std::cell::{Cell, UnsafeCell};

/// The owner takes the value back after so many uses under the lock without a claim in between. So many, that the heavy fence of the
/// next claim costs little beside them.
const ALONE: u32 = if cfg!(loom) { 1 } else { 1 << 7 };

/// The value.
#[derive(Debug)]
pub struct Claimable<T> {
    /// The owner is inside. Written by the owner alone.
    inside: AtomicBool,
    /// A claimant has claimed the value. Written under the claimants' lock.
    claimed: AtomicBool,
    /// Uses of the owner under the lock since the last claim. Under the claimants' lock.
    alone: Cell<u32>,
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
            alone: Cell::new(0),
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

    /// Claims the value and changes it.
    ///
    /// # Safety
    ///
    /// The caller holds the claimants' lock. `f` does not use this value.
    pub unsafe fn claim<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.alone.set(0);
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

    /// Changes the value, claimed or not. It is not claimed any more if no claimant has come for long.
    ///
    /// # Safety
    ///
    /// Only the owner may call this, and it holds the claimants' lock. `f` does not use this value.
    pub unsafe fn own_locked<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let alone = self.alone.get() + 1;
        self.alone.set(alone % ALONE);
        if alone == ALONE {
            // Relaxed: the owner alone acts on it without the lock, and the next claimant holds the lock.
            self.claimed.store(false, Ordering::Relaxed);
        }
        // SAFETY: the owner is here, and not inside; claimants are kept out by the lock.
        f(unsafe { &mut *self.value.get() })
    }
}
