//! The protocols that threads meet in, each small enough to be model-checked as it ships (`tests/loom`).
//!
//! README.md beside this file has the states, the races and the arguments.

pub mod bias;
pub mod claim;
pub mod deque;
pub mod earliest;
pub mod fair_tasks;
pub mod granted;
pub mod hunger;
pub mod inbox;
pub mod join;
pub mod lock;
pub mod mail_flag;
pub mod mutant;
pub mod ready_side;
pub mod roster;
pub mod sleep;
pub mod slot_refs;
pub mod wait_end;
pub mod wait_group;
pub mod watch;

/// Atomics and yields: loom's under the model checker, the real ones otherwise.
pub mod prim {
    #[cfg(loom)]
    pub use loom::sync::atomic::{
        AtomicBool, AtomicIsize, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    #[cfg(loom)]
    pub use loom::sync::{Condvar, Mutex, MutexGuard};

    #[cfg(not(loom))]
    pub use std::sync::atomic::{
        AtomicBool, AtomicIsize, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    #[cfg(not(loom))]
    pub use std::sync::{Condvar, Mutex, MutexGuard};
}

/// The awaited thread is a few instructions from where it must be, unless the kernel took its CPU.
fn give_way() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}

/// A fence between two threads of which one comes by often and the other seldom: the seldom one pays for both.
pub mod asymmetric {
    /// On the frequent side, between its write and its read. Free if the kernel has membarrier.
    #[inline(always)]
    pub fn light() {
        #[cfg(loom)]
        loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
        #[cfg(not(loom))]
        if registered() {
            std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        } else {
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        }
    }

    /// On the seldom side, between its write and its read: every running thread of the process passes a full fence
    /// before this returns.
    pub fn heavy() {
        #[cfg(loom)]
        loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
        #[cfg(not(loom))]
        {
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            if registered() {
                membarrier(1 << 3);
            }
        }
    }

    #[cfg(not(loom))]
    fn registered() -> bool {
        READY.load(std::sync::atomic::Ordering::Relaxed)
    }

    #[cfg(not(loom))]
    static READY: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

    /// Asks the kernel once per process; without its help both sides use ordinary fences. Call before the first
    /// thread that uses [`light`].
    pub fn prepare() {
        #[cfg(not(loom))]
        {
            // MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED
            let ready = membarrier(1 << 4) == 0;
            READY.store(ready, std::sync::atomic::Ordering::SeqCst);
        }
    }

    #[cfg(not(loom))]
    #[allow(unsafe_code)]
    fn membarrier(command: i32) -> i64 {
        // SAFETY: the call has no effect on memory but ordering.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
    }
}
