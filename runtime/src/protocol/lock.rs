//! A lock for critical sections of a few instructions, in which nothing switches, allocates much or calls user code.
//!
//! Conserved: at most one guard of a lock exists. Dropping it is the last touch of the lock's memory, so that the
//! next holder may free it.
//!
//! The model checker cannot follow spinning, so that under it the lock is loom's; the protocols that use it are checked,
//! the spinning itself is not.

#[cfg(loom)]
pub use modelled::{Guard, Lock};
#[cfg(not(loom))]
pub use spinning::{Guard, Lock};

#[cfg(loom)]
mod modelled {
    /// As the spinning one.
    #[derive(Debug)]
    pub struct Lock<T>(loom::sync::Mutex<T>);

    /// The right to the value, until dropped.
    pub type Guard<'a, T> = loom::sync::MutexGuard<'a, T>;

    impl<T> Lock<T> {
        /// A lock that is free.
        pub fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        /// Waits for the lock.
        pub fn lock(&self) -> Guard<'_, T> {
            self.0.lock().expect("no panic while it is held")
        }
    }
}

#[cfg(not(loom))]
mod spinning {
    use std::cell::UnsafeCell;
    use std::ops::{Deref, DerefMut};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A value behind a spinning lock.
    #[derive(Debug)]
    pub struct Lock<T> {
        held: AtomicBool,
        value: UnsafeCell<T>,
    }

    #[allow(unsafe_code)]
    // SAFETY: the lock gives one thread at a time access to the value, which may move between threads.
    unsafe impl<T: Send> Sync for Lock<T> {}
    #[allow(unsafe_code)]
    // SAFETY: as for the value itself.
    unsafe impl<T: Send> Send for Lock<T> {}

    /// The right to the value, until dropped.
    #[derive(Debug)]
    pub struct Guard<'a, T> {
        lock: &'a Lock<T>,
        value: *mut T,
    }

    /// Looks before the thread gives its time slice away. The holder needs a few nanoseconds, unless the kernel took its
    /// CPU, and then spinning would only delay it.
    const SPINS: u32 = 64;

    impl<T> Lock<T> {
        /// A lock that is free.
        pub fn new(value: T) -> Self {
            Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
        }

        /// Waits for the lock.
        #[inline]
        pub fn lock(&self) -> Guard<'_, T> {
            // Acquire pairs with the release in `Guard::drop`: what the last holder wrote is seen.
            if self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
                self.contended();
            }
            Guard { lock: self, value: self.value.get() }
        }

        #[cold]
        fn contended(&self) {
            let mut looks = 0;
            loop {
                looks += 1;
                if looks > SPINS {
                    std::thread::yield_now();
                } else {
                    std::hint::spin_loop();
                }
                if !self.held.load(Ordering::Relaxed)
                    && self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
                {
                    return;
                }
            }
        }
    }

    impl<T> Deref for Guard<'_, T> {
        type Target = T;

        #[allow(unsafe_code)]
        fn deref(&self) -> &T {
            // SAFETY: the guard proves that this thread alone may use the value.
            unsafe { &*self.value }
        }
    }

    impl<T> DerefMut for Guard<'_, T> {
        #[allow(unsafe_code)]
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: the guard proves that this thread alone may use the value.
            unsafe { &mut *self.value }
        }
    }

    impl<T> Drop for Guard<'_, T> {
        #[inline]
        fn drop(&mut self) {
            // Release pairs with the acquire of the next holder.
            self.lock.held.store(false, Ordering::Release);
        }
    }
}
