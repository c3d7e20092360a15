//! Something left for a task from outside, against the task's end.
//!
//! Conserved: what is left for a task is found at its end, or its sender learns that the task is over. A task for which
//! nothing was ever left ends without a lock.

use super::asymmetric;
use super::mutant::{Mutant, broken};
use super::prim::{AtomicBool, Ordering};

/// Whether a supervisor outside may touch what a task takes along at its end.
#[derive(Debug)]
pub struct MailFlag(AtomicBool);

impl Default for MailFlag {
    fn default() -> Self {
        Self::new()
    }
}

impl MailFlag {
    /// No supervisor may.
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// As new. Only the task's sole owner may call this.
    #[inline(always)]
    pub fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// A supervisor will leave something, under the lock, if the task is not over when the supervisor looks under
    /// the lock.
    pub fn announce(&self) {
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
            // Pairs with the light one in `is_announced`: the announcement is seen there, or the end is seen here.
            if !broken(Mutant::AnnounceMailWithoutFence) {
                asymmetric::heavy();
            }
        }
    }

    /// After the task is marked as over: whether what it takes along must be taken under the lock.
    #[inline(always)]
    pub fn is_announced(&self) -> bool {
        asymmetric::light();
        self.0.load(Ordering::Relaxed)
    }
}
