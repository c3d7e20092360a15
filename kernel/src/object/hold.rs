//! Holds, which keep an occupant of a table's slot where it is.
//!
//! Conserved: a slot changes hands only when no [`Hold`] of it exists. A handle in a capability table is one; so is what a
//! request works with, and what a living occupant has of itself. Counting is done by making and dropping them and nowhere
//! else, so it cannot be out of balance.

use core::fmt;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, Ordering};

/// How many hold a slot.
#[derive(Debug, Default)]
pub struct Claims(AtomicU32);

/// A slot of a table whose occupants come and go.
pub trait Slot: 'static {
    /// How many hold it.
    fn claims(&self) -> &Claims;

    /// It has no hold any more: it can be given to another occupant, under another name.
    fn vacate(&'static self);
}

/// While it lives, its slot has the same occupant.
pub struct Hold<T: Slot>(&'static T);

impl<T: Slot> Hold<T> {
    /// The first of a slot that was just taken off the list of those that are free.
    pub(super) fn first(slot: &'static T) -> Self {
        // Relaxed: only the CPU that took it off the list knows of it.
        let before = slot.claims().0.swap(1, Ordering::Relaxed);
        debug_assert_eq!(before, 0, "a free slot is held by somebody");
        Self(slot)
    }

    /// The slot itself. It outlives the occupant, so code that keeps it and not the hold may find another occupant
    /// there.
    #[must_use]
    pub fn slot(&self) -> &'static T {
        self.0
    }
}

impl<T: Slot> Clone for Hold<T> {
    fn clone(&self) -> Self {
        // Relaxed: there is one already, and it lives meanwhile.
        self.0.claims().0.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl<T: Slot> Drop for Hold<T> {
    fn drop(&mut self) {
        // AcqRel: what the holders did comes before what its next occupant does.
        if self.0.claims().0.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.vacate();
        }
    }
}

impl<T: Slot> Deref for Hold<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

impl<T: Slot> fmt::Debug for Hold<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hold")
    }
}
