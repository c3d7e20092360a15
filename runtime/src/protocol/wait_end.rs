//! How a wait ended, told to the waiter, perhaps by a thread outside of the waiter's runtime.
//!
//! Conserved: a wait is told once. The waiter leaves when it has been told, and the thread that tells it touches
//! nothing of the waiter's, or of the waiter's runtime, afterwards.

use super::mutant::{Mutant, broken};
use super::prim::{AtomicU8, Ordering};

/// In the frame of a wait.
#[derive(Debug)]
pub struct WaitEnd(AtomicU8);

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// What was waited for has happened.
    Done = 1,
    /// It will not happen any more.
    Closed = 2,
}

const UNTOLD: u8 = 0;
/// It is over, and the thread that ended it is not yet done with the waiter.
const TELLING: u8 = 3;

impl Default for WaitEnd {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitEnd {
    /// Nothing was told yet.
    #[inline(always)]
    pub fn new() -> Self {
        Self(AtomicU8::new(UNTOLD))
    }

    /// Whether the wait is over: [`WaitEnd::outcome`] says how, at once or soon.
    #[inline(always)]
    pub fn is_over(&self) -> bool {
        // Acquire pairs with the releases below: what was done for the waiter is seen.
        self.0.load(Ordering::Acquire) != UNTOLD
    }

    /// The wait is over, and will be told. Until then the waiter stays, so that it can be woken.
    #[inline]
    pub fn begin(&self) {
        let outcome = if broken(Mutant::ToldTooEarly) { Outcome::Closed as u8 } else { TELLING };
        self.0.store(outcome, Ordering::Release);
    }

    /// The last touch of the waiter: its frame may go at once.
    #[inline(always)]
    pub fn complete(&self, outcome: Outcome) {
        self.0.store(outcome as u8, Ordering::Release);
    }

    /// How the wait ended; `None` if it did not. The thread that is telling it is a few instructions from having done so,
    /// unless the kernel took its CPU.
    #[inline(always)]
    pub fn outcome(&self) -> Option<Outcome> {
        loop {
            match self.0.load(Ordering::Acquire) {
                UNTOLD => return None,
                TELLING => super::give_way(),
                outcome if outcome == Outcome::Done as u8 => return Some(Outcome::Done),
                _ => return Some(Outcome::Closed),
            }
        }
    }
}
