//! References to a slot that keep the memory it is in, from the first of them to the last.
//!
//! Conserved: the thread that raises the count from zero to one takes hold of the memory once, and the thread that
//! brings it back to zero lets go of it once. The memory is held by others while the first reference is made.

use super::mutant::{Mutant, broken};
use super::prim::{AtomicU32, Ordering};

/// How many references there are.
#[derive(Debug)]
pub struct SlotRefs(AtomicU32);

/// What the end of a reference must do.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetGo {
    /// Others are left.
    More,
    /// It was the last: let go of the memory.
    Last,
}

impl Default for SlotRefs {
    fn default() -> Self {
        Self::new()
    }
}

impl SlotRefs {
    /// None yet.
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// One more reference; the first takes hold of the memory.
    pub fn keep(&self, take_hold: impl FnOnce()) {
        // Relaxed, as for any count: a new reference is made from one that is there, or where others hold the memory.
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        if before > u32::MAX / 2 {
            // Only references that were forgotten can be so many. A count that wraps would free what is in use.
            std::process::abort();
        }
        if before == 0 && !broken(Mutant::NoHold) {
            take_hold();
        }
    }

    /// How many there are, at some moment.
    #[cfg(feature = "console")]
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// One less.
    pub fn let_go(&self) -> LetGo {
        // Release: what this reference did comes before the memory goes. Acquire: what the others did, too.
        let order = if broken(Mutant::LetGoWithoutAcquire) { Ordering::Relaxed } else { Ordering::AcqRel };
        if self.0.fetch_sub(1, order) == 1 { LetGo::Last } else { LetGo::More }
    }
}
