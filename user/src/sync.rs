//! A mutex that parks.
//!
//! The word is 0 when free, 1 when held, 2 when held and somebody may wait. Whoever waits has set 2 before it parks, and
//! parks only while it still is 2; whoever frees a 2 wakes one. So a waiter either sees the lock free or is woken.

use crate::caps;
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

/// A lock that does not spin.
#[derive(Debug, Default)]
pub struct ParkMutex<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

#[expect(unsafe_code, reason = "a lock hands out what it guards")]
// SAFETY: the value is reached only by who holds the lock.
unsafe impl<T: Send> Sync for ParkMutex<T> {}

/// The lock, held.
#[derive(Debug)]
pub struct Held<'a, T>(&'a ParkMutex<T>);

impl<T> ParkMutex<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Waits until it is free, and takes it.
    pub fn lock(&self) -> Held<'_, T> {
        // Acquire: pairs with the release of whoever held it before.
        if self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.word.swap(2, Ordering::Acquire) != 0 {
                let _ = caps::park(self.word.as_ptr() as u64, 2, 0);
            }
        }
        Held(self)
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        // Release: pairs with the acquire of whoever takes it next.
        if self.0.word.swap(0, Ordering::Release) == 2 {
            let _ = caps::unpark(self.0.word.as_ptr() as u64, 1);
        }
    }
}

#[expect(unsafe_code, reason = "a lock hands out what it guards")]
impl<T> Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.value.get() }
    }
}

#[expect(unsafe_code, reason = "a lock hands out what it guards")]
impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, by this value alone.
        unsafe { &mut *self.0.value.get() }
    }
}
