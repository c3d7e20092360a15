//! Which components of a budget a task was ever granted.
//!
//! Conserved: a bit that is set stays set until the record is used for another task. The holder of the task writes, and other
//! threads read at any time: a thief that makes a task of a forked half asks what the forking task was granted, while that
//! one lends its budget.

use super::mutant::{Mutant, broken};
use super::prim::{AtomicU8, Ordering};

/// A bit for each component, and what else is fixed at birth.
#[derive(Debug)]
pub struct Granted(AtomicU8);

impl Default for Granted {
    fn default() -> Self {
        Self::new()
    }
}

impl Granted {
    /// Nothing yet.
    pub fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    /// The bits of a new task. Only the task's sole owner may call this.
    #[inline]
    pub fn reset(&self, bits: u8) {
        self.0.store(bits, Ordering::Relaxed);
    }

    /// Adds bits. The holder only.
    #[inline]
    pub fn add(&self, bits: u8) {
        let before = self.bits();
        if broken(Mutant::GrantRewritten) {
            self.0.store(bits, Ordering::Relaxed);
        }
        // One store: a reader must not see a moment without what was granted before.
        self.0.store(before | bits, Ordering::Relaxed);
    }

    /// All bits.
    #[inline]
    pub fn bits(&self) -> u8 {
        // Relaxed: the bits say nothing about other memory.
        self.0.load(Ordering::Relaxed)
    }
}
