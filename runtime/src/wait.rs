//! Waiting for one flag, as a task or as an ordinary thread.

use crate::cx::Cx;
use crate::protocol::bias::Seat;
use crate::protocol::prim::{AtomicU8, Ordering};
use crate::task::WaitReason;
use crate::time::timers::Fire;
use crate::waiter::{ThreadWait, task_word};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Who waits.
pub(crate) enum Who<'a> {
    Task(&'a Cx),
    Thread(Arc<ThreadWait>),
}

/// How a wait ended.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The flag is set.
    Done,
    /// Time is over, and the flag may be set yet: take the registration back first.
    TimedOut,
    /// The task must stop, likewise.
    Stop,
}

impl Who<'_> {
    pub(crate) fn thread() -> Self {
        Self::Thread(Arc::new(ThreadWait::default()))
    }

    /// A word for one waker.
    pub(crate) fn word(&self) -> usize {
        match self {
            Self::Task(cx) => task_word(cx.task_ptr()),
            Self::Thread(thread) => thread.word(),
        }
    }

    /// A word that was not used.
    pub(crate) fn take_back(&self, word: usize) {
        if let Self::Thread(_) = self {
            ThreadWait::take_back(word);
        }
    }

    /// The seat of this thread, if it runs workers.
    #[inline(always)]
    pub(crate) fn seat(&self) -> Option<&Arc<Seat>> {
        match self {
            Self::Task(cx) => Some(cx.task().worker().seat()),
            Self::Thread(_) => None,
        }
    }

    /// Before it tells anybody: the wait is for something of this worker's own.
    #[inline(always)]
    pub(crate) fn move_in(&self) {
        if let Self::Task(cx) = self {
            cx.task().home.move_in(cx.task().worker().seat());
        }
    }

    /// As [`Who::wait`], after [`Who::move_in`].
    #[inline]
    pub(crate) fn wait_at_home(&self, done: &AtomicU8, reason: WaitReason) -> Waited {
        match self {
            Self::Task(cx) => wait_as_task(cx, done, None, || cx.block_at_home(reason)),
            Self::Thread(_) => self.wait(done, reason, None),
        }
    }

    /// Waits until `done` is not 0.
    pub(crate) fn wait(&self, done: &AtomicU8, reason: WaitReason, timeout: Option<Duration>) -> Waited {
        match self {
            Self::Task(cx) => wait_as_task(cx, done, timeout, || cx.block(reason)),
            Self::Thread(thread) => {
                let deadline = timeout.map(|timeout| Instant::now() + timeout);
                while done.load(Ordering::Acquire) == 0 {
                    if !thread.wait(deadline) {
                        return Waited::TimedOut;
                    }
                }
                Waited::Done
            }
        }
    }

    /// What follows a [`Waited::Stop`] once the registration is taken back.
    pub(crate) fn acknowledge(&self) {
        if let Self::Task(cx) = self {
            cx.acknowledge();
        }
    }
}

#[inline]
fn wait_as_task(cx: &Cx, done: &AtomicU8, timeout: Option<Duration>, block: impl Fn()) -> Waited {
    if std::thread::panicking() {
        // A destructor must not switch.
        return if done.load(Ordering::Acquire) != 0 { Waited::Done } else { Waited::Stop };
    }
    let timer = timeout.map(|timeout| {
        let ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let due = cx.rt().timers.now_ns().saturating_add(ns);
        (due, cx.rt().add_timer(due, Fire::Wake(cx.task_ptr())))
    });
    let waited = loop {
        if done.load(Ordering::Acquire) != 0 {
            break Waited::Done;
        }
        if cx.must_stop() {
            break Waited::Stop;
        }
        if timer.is_some_and(|(due, _)| cx.rt().timers.now_ns() >= due) {
            break Waited::TimedOut;
        }
        block();
    };
    if let Some((_, key)) = timer {
        cx.rt().timers.remove(key);
    }
    waited
}
