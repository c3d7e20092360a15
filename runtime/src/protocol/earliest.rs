//! The earliest deadline, and the one sleeper that wakes for it: the keeper.
//!
//! Conserved: while a deadline is set and every worker sleeps, one of them, the keeper, sleeps no longer than until that
//! deadline. The thread that sets an earlier deadline tells the keeper, or, if there is none, wakes a sleeper that
//! becomes the keeper.
//!
//! A worker offers to be the keeper, then reads the deadline, enters the list of sleepers, and looks once more whether the
//! deadline has become earlier: the thread that set it may have told the keeper before the keeper was in the list.

use super::mutant::{Mutant, broken};
use super::prim::{AtomicU64, AtomicUsize, Ordering};

const NOBODY: usize = usize::MAX;

/// No deadline.
pub const NEVER: u64 = u64::MAX;

/// The earliest deadline and its keeper.
#[derive(Debug)]
pub struct Earliest {
    at: AtomicU64,
    keeper: AtomicUsize,
}

/// Which worker has to know of an earlier deadline.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhoKeeps {
    /// This worker, which sleeps or is about to.
    Worker(usize),
    /// No worker does: wake any sleeper.
    Nobody,
}

impl Default for Earliest {
    fn default() -> Self {
        Self { at: AtomicU64::new(NEVER), keeper: AtomicUsize::new(NOBODY) }
    }
}

impl Earliest {
    /// The earliest deadline, or [`NEVER`].
    #[inline]
    pub fn get(&self) -> u64 {
        // SeqCst: see `keep`.
        self.at.load(Ordering::SeqCst)
    }

    /// Sets the earliest deadline. Under the lock of the deadlines.
    pub fn set(&self, at: u64) {
        // SeqCst: see `keep`.
        self.at.store(at, Ordering::SeqCst);
    }

    /// After an earlier deadline was set: which worker to wake.
    pub fn who_keeps(&self) -> WhoKeeps {
        // SeqCst: see `keep`.
        match self.keeper.load(Ordering::SeqCst) {
            NOBODY => WhoKeeps::Nobody,
            worker => WhoKeeps::Worker(worker),
        }
    }

    /// Worker `index` is about to sleep. If it is the keeper now, the deadline that it must not sleep over; `None` if another
    /// is. A keeper calls [`Earliest::resign`] when it is awake.
    #[must_use]
    pub fn keep(&self, index: usize) -> Option<u64> {
        // SeqCst, and so is the read that follows: a thread that sets a deadline and then finds no keeper has set it
        // before this read.
        self.keeper.compare_exchange(NOBODY, index, Ordering::SeqCst, Ordering::Relaxed).ok()?;
        Some(self.get())
    }

    /// The last look of a keeper that is in the list of sleepers: whether it was told in vain before that.
    pub fn is_before(&self, planned: u64) -> bool {
        // The thread that told the keeper had set the deadline, and then looked for the keeper in the list under
        // the list's lock.
        !broken(Mutant::SleepWithoutLook) && self.get() < planned
    }

    /// The keeper is awake: it looks at the deadlines itself, and the next sleeper keeps them.
    pub fn resign(&self) {
        self.keeper.store(NOBODY, Ordering::SeqCst);
    }
}
