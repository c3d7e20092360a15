//! Waiting until one is told, as a task or as an ordinary thread.

use crate::cx::Cx;
use crate::protocol::bias::SectionFlag;
use crate::protocol::wait_end::WaitEnd;
use crate::task::WaitReason;
use crate::time::timers::Fire;
use crate::waiter::{ThreadWait, task_word};
use crate::worker::Worker;
use std::hash::{BuildHasher, RandomState};
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
    /// It is over, and is told how.
    Done,
    /// Time is over, and the wait may end yet: take the registration back first.
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

    /// The worker of this thread.
    #[inline(always)]
    pub(crate) fn worker(&self) -> Option<&Worker> {
        match self {
            Self::Task(cx) => Some(cx.task().worker()),
            Self::Thread(_) => None,
        }
    }

    /// The section flag of this thread, if it runs workers.
    #[inline(always)]
    pub(crate) fn section_flag(&self) -> Option<&Arc<SectionFlag>> {
        self.worker().map(Worker::section_flag)
    }

    /// Before it tells any waker: the wait is for something of this worker's own. False if it cannot be at home: the tasks
    /// of a fork tree lend what they have while they wait.
    #[inline(always)]
    pub(crate) fn move_in(&self) -> bool {
        match self {
            Self::Task(cx) if cx.purse().is_none() => {
                cx.task().home.move_in(cx.task().worker().section_flag());
                true
            }
            _ => false,
        }
    }

    /// As [`Who::wait`], after [`Who::move_in`].
    #[inline]
    pub(crate) fn wait_at_home(&self, end: &WaitEnd, reason: WaitReason) -> Waited {
        self.wait_until_at_home(|| end.is_over(), reason)
    }

    /// As [`Who::wait_until`], after [`Who::move_in`].
    #[inline]
    pub(crate) fn wait_until_at_home(&self, is_over: impl Fn() -> bool, reason: WaitReason) -> Waited {
        match self {
            Self::Task(cx) => wait_as_task(cx, is_over, None, || cx.block_at_home(reason)),
            Self::Thread(_) => self.wait_until(is_over, reason, None),
        }
    }

    /// Waits until it is over.
    pub(crate) fn wait(&self, end: &WaitEnd, reason: WaitReason, timeout: Option<Duration>) -> Waited {
        self.wait_until(|| end.is_over(), reason, timeout)
    }

    /// As [`Who::wait`]: whoever makes `is_over` true wakes the waiter.
    pub(crate) fn wait_until(
        &self,
        is_over: impl Fn() -> bool,
        reason: WaitReason,
        timeout: Option<Duration>,
    ) -> Waited {
        match self {
            Self::Task(cx) => wait_as_task(cx, is_over, timeout, || cx.block(reason)),
            Self::Thread(thread) => {
                // A deadline beyond what the clock can tell is none.
                let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
                while !is_over() {
                    if !thread.wait(deadline) {
                        return Waited::TimedOut;
                    }
                }
                Waited::Done
            }
        }
    }

    /// When so much time is over, for a wait that may begin more than once. An ordinary thread's begins once.
    pub(crate) fn due_ns(&self, timeout: Option<Duration>) -> Option<u64> {
        let Self::Task(cx) = self else { return None };
        let ns = u64::try_from(timeout?.as_nanos()).unwrap_or(u64::MAX);
        Some(cx.rt().timers.now_ns().saturating_add(ns))
    }

    /// What is left of it.
    pub(crate) fn time_until(&self, due_ns: Option<u64>) -> Option<Duration> {
        let Self::Task(cx) = self else { return None };
        Some(Duration::from_nanos(due_ns?.saturating_sub(cx.rt().timers.now_ns())))
    }

    /// Whose turn it is among `n` equals.
    pub(crate) fn turn_of(&self, n: usize) -> usize {
        match self {
            Self::Task(cx) => cx.task().worker().turn_of(n),
            // Another for each, without anything that threads share.
            Self::Thread(_) => RandomState::new().hash_one(0) as usize % n.max(1),
        }
    }

    /// Whether [`Who::acknowledge`] will end the task.
    pub(crate) fn must_stop(&self) -> bool {
        matches!(self, Self::Task(cx) if cx.must_stop())
    }

    /// What follows a [`Waited::Stop`] once the registration is taken back.
    pub(crate) fn acknowledge(&self) {
        if let Self::Task(cx) = self {
            cx.acknowledge();
        }
    }
}

#[inline]
fn wait_as_task(cx: &Cx, is_over: impl Fn() -> bool, timeout: Option<Duration>, block: impl Fn()) -> Waited {
    if std::thread::panicking() {
        // A destructor must not switch.
        return if is_over() { Waited::Done } else { Waited::Stop };
    }
    let timer = timeout.map(|timeout| {
        let ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let due = cx.rt().timers.now_ns().saturating_add(ns);
        (due, cx.rt().add_timer(due, Fire::Wake(cx.task_ptr())))
    });
    let waited = loop {
        if is_over() {
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
