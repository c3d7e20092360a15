//! A reference to one of several things that live for ever, which any CPU can read and change.

use core::sync::atomic::{AtomicPtr, Ordering};

/// Such a reference: a slot of a table that is never freed, without looking the slot up each time.
#[derive(Debug)]
pub struct StaticRef<T: 'static>(AtomicPtr<T>);

impl<T: Sync> StaticRef<T> {
    /// A reference to `to`, for now.
    #[must_use]
    pub fn new(to: &'static T) -> Self {
        Self(AtomicPtr::new(core::ptr::from_ref(to).cast_mut()))
    }

    /// What it refers to now.
    #[inline]
    #[must_use]
    pub fn get(&self) -> &'static T {
        // Acquire: pairs with the release in `set`; a CPU that sees the reference sees what was done before it was
        // set. SAFETY: only shared references that live for ever are ever stored, and that is all that is made of
        // them.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }

    /// It refers to `to` from now on.
    pub fn set(&self, to: &'static T) {
        self.0.store(core::ptr::from_ref(to).cast_mut(), Ordering::Release);
    }
}
