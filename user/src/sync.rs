//! A mutex that parks.
//!
//! The word is 0 when free, 1 when held, 2 when held and a thread may wait. A waiter has set 2 before it parks, and
//! parks only while it still is 2; a holder that frees a 2 wakes one waiter. So a waiter either sees the lock free or is
//! woken.

use crate::caps;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};
use spin::{Mutex, MutexGuard};

/// A lock that does not spin.
#[derive(Debug, Default)]
pub struct ParkMutex<T> {
    word: AtomicU32,
    /// Free whenever the word is taken anew, so it is never waited for.
    value: Mutex<T>,
}

/// The lock, held.
#[derive(Debug)]
pub struct Held<'a, T> {
    mutex: &'a ParkMutex<T>,
    value: Option<MutexGuard<'a, T>>,
}

impl<T> ParkMutex<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(0), value: Mutex::new(value) }
    }

    /// Waits until it is free, and takes it.
    pub fn lock(&self) -> Held<'_, T> {
        // Acquire: pairs with the release of the last holder.
        if self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.word.swap(2, Ordering::Acquire) != 0 {
                let _ = caps::park(self.word.as_ptr() as u64, 2, 0);
            }
        }
        Held { mutex: self, value: Some(self.value.lock()) }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.value = None;
        // Release: pairs with the acquire of the next holder.
        if self.mutex.word.swap(0, Ordering::Release) == 2 {
            let _ = caps::unpark(self.mutex.word.as_ptr() as u64, 1);
        }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value.as_ref().expect("held until dropped")
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("held until dropped")
    }
}
