//! What keeps a stop from a task.

use std::sync::atomic::{AtomicU8, Ordering};

/// The task waits for what cannot be given up: no code of the program runs meanwhile.
const WAITS: u8 = 0x80;

/// The cleanups that a task is in, one inside of the other, and whether it waits for what cannot be given up. Written by the holder.
#[derive(Debug)]
pub(crate) struct Mask(AtomicU8);

/// A mask at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Masked(u8);

impl Mask {
    pub(crate) const fn none() -> Self {
        Self(AtomicU8::new(0))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Masked {
        Masked(self.0.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(crate) fn is_set(&self) -> bool {
        self.get().is_set()
    }

    #[inline(always)]
    pub(crate) fn set(&self, masked: Masked) {
        self.0.store(masked.0, Ordering::Relaxed);
    }

    /// A cleanup begins. What the mask was.
    pub(crate) fn begin_cleanup(&self) -> Masked {
        let before = self.get();
        self.set(Masked((before.0 + 1).min(!WAITS)));
        before
    }

    /// No stop reaches the task until the mask is set to what it was.
    pub(crate) fn begin_wait(&self) -> Masked {
        let before = self.get();
        self.set(Masked(before.0 | WAITS));
        before
    }
}

impl Masked {
    pub(crate) const NOT: Self = Self(0);

    #[inline(always)]
    pub(crate) fn is_set(self) -> bool {
        self != Self::NOT
    }

    pub(crate) fn waits(self) -> bool {
        self.0 & WAITS != 0
    }

    /// How many cleanups it is in.
    #[inline(always)]
    pub(crate) fn cleanups(self) -> u8 {
        self.0 & !WAITS
    }
}
