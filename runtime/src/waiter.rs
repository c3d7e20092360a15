//! A waiter: a task, an ordinary thread, or a future. A word names any of them, so that records can hold it in an atomic.
#![allow(unsafe_code)]

use crate::callback;
use crate::protocol::wait_end::{Outcome, WaitEnd};
use crate::task::TaskPtr;
use crate::task::state::Event;
use crate::worker::Worker;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

/// An ordinary thread that waits on a futex.
#[derive(Debug, Default)]
pub(crate) struct ThreadWait {
    flag: futex::Flag,
}

impl ThreadWait {
    /// A word for a waker to have; it must be woken, or taken back, once.
    pub(crate) fn word(self: &Arc<Self>) -> usize {
        Arc::into_raw(self.clone()) as usize | 1
    }

    /// Takes a word back that no thread will wake.
    pub(crate) fn take_back(word: usize) {
        // SAFETY: the word came from `word`, and its holder has given it up.
        drop(unsafe { Arc::from_raw((word & !1) as *const Self) });
    }

    /// Blocks the thread until woken. False if `deadline` came first.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> bool {
        self.flag.wait(deadline)
    }
}

/// The low bits of a word say what it names: a task, whose record is aligned, has none.
const KIND: usize = 3;
const FUTURE: usize = 2;

/// A word that wakes a future; it must be woken, or taken back, once.
pub(crate) fn future_word(waker: &Waker) -> usize {
    Box::into_raw(Box::new(waker.clone())) as usize | FUTURE
}

/// Takes a word back that will not be woken. Words of tasks need nothing.
pub(crate) fn take_back(word: usize) {
    match word & KIND {
        0 => {}
        // The last of its kind drops what the program put into it.
        FUTURE => callback::call(|| drop(waker_of(word))),
        _ => ThreadWait::take_back(word),
    }
}

fn waker_of(word: usize) -> Box<Waker> {
    // SAFETY: the word came from `future_word`, and this is its one use.
    unsafe { Box::from_raw((word & !KIND) as *mut Waker) }
}

/// The word of a task.
pub(crate) fn task_word(task: TaskPtr) -> usize {
    task.word()
}

/// The task that the word names, if it is one.
#[inline(always)]
pub(crate) fn task_of(word: usize) -> Option<TaskPtr> {
    if word & KIND == 0 { Some(TaskPtr::from_word(word)) } else { None }
}

/// A wait that is over: the thread that ends it finishes this when it holds no lock any more.
#[must_use]
pub(crate) struct Ending {
    word: usize,
    /// Null if the waiter has been told already.
    end: *const WaitEnd,
    outcome: Outcome,
}

impl Ending {
    /// Under the lock that the waiter was found by. `here` is the worker of this thread.
    #[inline]
    pub(crate) fn begin(word: usize, end: &WaitEnd, outcome: Outcome, here: Option<&Worker>) -> Self {
        // Once it has been told, the waiter may go, and its runtime with it. A runtime does not go while one of its own
        // tasks runs; a thread's word keeps what it names.
        let stays = task_of(word).is_none_or(|task| here.is_some_and(|here| here.is_of_runtime_of(&task)));
        if stays {
            end.complete(outcome);
        } else {
            end.begin();
        }
        Self { word, end: if stays { std::ptr::null() } else { end }, outcome }
    }

    /// Wakes the waiter, and tells it if that was not safe before.
    #[inline]
    pub(crate) fn finish(self) {
        wake(self.word);
        // SAFETY: null, or of a waiter that stays until it has been told.
        if let Some(end) = unsafe { self.end.as_ref() } {
            end.complete(self.outcome);
        }
    }
}

/// Wakes the waiter that the word names.
pub(crate) fn wake(word: usize) {
    if word & 1 == 1 {
        // SAFETY: the word came from `ThreadWait::word`, and this is its one use.
        unsafe { Arc::from_raw((word & !1) as *const ThreadWait) }.flag.set();
    } else if word & KIND == FUTURE {
        callback::call(|| waker_of(word).wake());
    } else {
        TaskPtr::from_word(word).wake(Event::Wake);
    }
}

/// A flag that one thread waits for.
#[cfg(not(loom))]
mod futex {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Instant;

    #[derive(Debug, Default)]
    pub(super) struct Flag(AtomicU32);

    impl Flag {
        pub(super) fn set(&self) {
            // Release pairs with the acquire in `wait`.
            self.0.store(1, Ordering::Release);
            // SAFETY: only the address is used.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.0.as_ptr(),
                    libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                    1,
                )
            };
        }

        pub(super) fn wait(&self, deadline: Option<Instant>) -> bool {
            while self.0.swap(0, Ordering::Acquire) == 0 {
                let timeout = match deadline.map(|deadline| deadline.checked_duration_since(Instant::now())) {
                    None => None,
                    Some(Some(left)) if !left.is_zero() => Some(libc::timespec {
                        tv_sec: left.as_secs().try_into().unwrap_or(libc::time_t::MAX),
                        tv_nsec: left.subsec_nanos().into(),
                    }),
                    Some(_) => return false,
                };
                // SAFETY: the word is alive for the call; a spurious return is looked at again.
                unsafe {
                    libc::syscall(
                        libc::SYS_futex,
                        self.0.as_ptr(),
                        libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                        0,
                        timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
                    );
                }
            }
            true
        }
    }
}

/// What the futex does, in terms that the model checker knows.
#[cfg(loom)]
mod futex {
    use loom::sync::{Condvar, Mutex};
    use std::time::Instant;

    #[derive(Debug, Default)]
    pub(super) struct Flag(Mutex<bool>, Condvar);

    impl Flag {
        pub(super) fn set(&self) {
            *self.0.lock().unwrap() = true;
            self.1.notify_one();
        }

        pub(super) fn wait(&self, _: Option<Instant>) -> bool {
            let mut set = self.0.lock().unwrap();
            while !*set {
                set = self.1.wait(set).unwrap();
            }
            *set = false;
            true
        }
    }
}
