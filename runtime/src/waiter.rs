//! Who waits: a task, or an ordinary thread. A word names either, so that records can hold it in an atomic.
#![allow(unsafe_code)]

use crate::protocol::prim::{AtomicU32, Ordering};
use crate::task::TaskPtr;
use crate::task::state::Event;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An ordinary thread that waits on a futex.
#[derive(Debug, Default)]
pub(crate) struct ThreadWait {
    woken: AtomicU32,
}

impl ThreadWait {
    /// A word for a waker to have; it must be woken, or taken back, once.
    pub(crate) fn word(self: &Arc<Self>) -> usize {
        Arc::into_raw(self.clone()) as usize | 1
    }

    /// Takes a word back that nobody will wake.
    pub(crate) fn take_back(word: usize) {
        // SAFETY: the word came from `word`, and whoever had it has given it up.
        drop(unsafe { Arc::from_raw((word & !1) as *const Self) });
    }

    /// Blocks the thread until woken. False if `deadline` came first.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> bool {
        // Acquire pairs with the release in `wake`.
        while self.woken.swap(0, Ordering::Acquire) == 0 {
            let timeout = match deadline {
                None => None,
                Some(deadline) => match deadline.checked_duration_since(Instant::now()) {
                    Some(left) if !left.is_zero() => Some(left),
                    _ => return false,
                },
            };
            futex_wait(&self.woken, 0, timeout);
        }
        true
    }

    fn wake(&self) {
        self.woken.store(1, Ordering::Release);
        futex_wake(&self.woken);
    }
}

/// The word of a task.
pub(crate) fn task_word(task: TaskPtr) -> usize {
    task.word()
}

/// Wakes whoever the word names.
pub(crate) fn wake(word: usize) {
    if word & 1 == 1 {
        // SAFETY: the word came from `ThreadWait::word`, and this is its one use.
        unsafe { Arc::from_raw((word & !1) as *const ThreadWait) }.wake();
    } else {
        TaskPtr::from_word(word).wake(Event::Wake);
    }
}

#[cfg(loom)]
fn futex_wait(_: &AtomicU32, _: u32, _: Option<Duration>) {
    crate::protocol::prim::thread_yield();
}

#[cfg(loom)]
fn futex_wake(_: &AtomicU32) {}

#[cfg(not(loom))]
fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|left| libc::timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    // SAFETY: the word is alive for the call; a spurious return is looked at again by the caller.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
        );
    }
}

#[cfg(not(loom))]
fn futex_wake(word: &AtomicU32) {
    // SAFETY: only the address is used.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
}
