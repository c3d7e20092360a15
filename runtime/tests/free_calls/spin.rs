//! A call that is repeated beside a task that must get on, or to see what it holds.
#![expect(unsafe_code, reason = "an allocator that counts")]

use mainspring::{Budget, Cx, Runtime};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{RwLock as StdRwLock, RwLockReadGuard};
use std::time::Duration;

/// Counts the bytes that are allocated.
struct Counting;

static HELD: AtomicU64 = AtomicU64::new(0);

// SAFETY: it passes everything on.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Taken by all tests; by the one that counts bytes alone.
pub(crate) static BYTES: StdRwLock<()> = StdRwLock::new(());

pub(crate) fn beside_others() -> RwLockReadGuard<'static, ()> {
    BYTES.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Repeats a call until the other task has got on, or to see what it holds.
pub(crate) struct Spin<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) done: &'a AtomicBool,
    pub(crate) calls: AtomicU64,
    pub(crate) most: u64,
    /// How much more is held after many calls than after a few.
    pub(crate) growth: Option<&'a AtomicU64>,
}

impl Spin<'_> {
    /// Repeats it.
    pub(crate) fn run(&self, mut call: impl FnMut()) {
        if let Some(growth) = self.growth {
            let mut held_after = |calls| {
                (0..calls).for_each(|_| call());
                HELD.load(Ordering::Relaxed)
            };
            let (few, many) = (held_after(self.most), held_after(4 * self.most));
            growth.store(many.saturating_sub(few), Ordering::Relaxed);
            return;
        }
        while !self.done.load(Ordering::Relaxed) {
            call();
            if self.calls.fetch_add(1, Ordering::Relaxed) > self.most {
                std::panic::resume_unwind(Box::new("the other task does not get on"));
            }
        }
    }
}

/// What a task repeats.
pub(crate) type Loop = fn(&Cx, &Spin<'_>);

/// Operations by their names, and how a task repeats each.
pub(crate) type Table = &'static [(&'static str, Loop)];

pub(crate) const ZERO: Duration = Duration::ZERO;
pub(crate) const SMALL: Budget = Budget { ops: 1, ..Budget::ZERO };
