//! Futures: awaited by a task on its stack, or tasks of their own that need no stack while they wait.
#![allow(unsafe_code)]

use crate::audit;
use crate::calls;
use crate::cx::Cx;
use crate::error::SpawnError;
use crate::nursery::{Handle, Nursery, SpawnBuilder};
use crate::protocol::slot_refs::LetGo;
use crate::runtime::Inner;
use crate::task::state::Event;
use crate::task::{Task, TaskPtr, WaitReason};
use std::fmt;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};

/// Wakes a task that awaits a future on its stack. It keeps the memory of the runtime, not its threads: a waker may
/// outlive both task and runtime, and does nothing then.
struct FrameWaker {
    _memory: Arc<Inner>,
    task: TaskPtr,
    woken: AtomicBool,
}

impl Wake for FrameWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Release: what the future is to find is written. Pairs with the acquire of the next poll.
        self.woken.store(true, Ordering::Release);
        self.task.wake(Event::Wake);
    }
}

/// A future was not awaited, or not to its end. It has been dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AwaitError {
    /// The task has no `CapExecutor`: its spawner must leave it in `SpawnBuilder::caps`. Nothing was polled.
    NotPermitted,
    /// The future is not ready, and a destructor of a task that unwinds must not wait: wait in `Cx::with_cleanup` instead.
    Unwinding,
}

impl fmt::Display for AwaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPermitted => {
                f.write_str("this task holds no CapExecutor; its spawner must leave it in SpawnBuilder::caps")
            }
            Self::Unwinding => {
                f.write_str("a destructor of a task that unwinds must not wait; use Cx::with_cleanup")
            }
        }
    }
}

impl std::error::Error for AwaitError {}

impl Cx {
    /// Waits for a future; only this task waits. Each poll costs one op. A cancelled task drops the future. Needs `CapExecutor`;
    /// a task without it polls nothing.
    ///
    /// ```
    /// # use mainspring::{Config, Profile};
    /// # let runtime = Config::new(Profile::Service).build().unwrap();
    /// let two = runtime.run(|cx| cx.await_future(async { 1 + 1 }).unwrap());
    /// assert_eq!(two.unwrap(), 2);
    /// ```
    pub fn await_future<F: Future>(&self, future: F) -> Result<F::Output, AwaitError> {
        self.task().assert_running();
        calls::count(self);
        let cap = self.caps().executor().copied().ok_or(AwaitError::NotPermitted);
        audit::noted(self, "CapExecutor", "await_future", cap)?;
        let mut future = pin!(future);
        let (task, memory) = (self.task_ptr(), self.rt().memory());
        let flag = Arc::new(FrameWaker { _memory: memory, task, woken: AtomicBool::new(false) });
        let waker = Waker::from(flag.clone());
        let mut context = Context::from_waker(&waker);
        loop {
            self.check();
            flag.woken.store(false, Ordering::Relaxed);
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return Ok(output);
            }
            if std::thread::panicking() {
                return Err(AwaitError::Unwinding);
            }
            while !flag.woken.load(Ordering::Acquire) {
                self.acknowledge();
                self.block(WaitReason::Future);
            }
        }
    }
}

/// The wakers of a future that is a task. They point to the task's slot and count in it, so that a future that waits
/// needs no memory beside its slot; as long as there is one, the slot keeps the memory of the runtime.
const SLOT_WAKER: RawWakerVTable = RawWakerVTable::new(
    |slot| {
        // SAFETY: cloned inside the poll, where the slot's task lives, or from a waker that was counted.
        unsafe { keep(slot) };
        RawWaker::new(slot, &SLOT_WAKER)
    },
    |slot| {
        // SAFETY: a waker that was counted, used up here.
        unsafe {
            wake(slot);
            let_go(slot);
        }
    },
    // SAFETY: a waker that was counted, or the poll's waker.
    |slot| unsafe { wake(slot) },
    // SAFETY: a waker that was counted, used up here.
    |slot| unsafe { let_go(slot) },
);

unsafe fn slot_of<'a>(slot: *const ()) -> &'a Task {
    // SAFETY: the caller's waker keeps the memory that the slot is in, or the poll does.
    unsafe { &*slot.cast::<Task>() }
}

unsafe fn wake(slot: *const ()) {
    // SAFETY: as the caller promises.
    unsafe { slot_of(slot) }.wake(Event::Wake);
}

unsafe fn keep(slot: *const ()) {
    // SAFETY: as the caller promises.
    let task = unsafe { slot_of(slot) };
    task.wakers.keep(|| {
        let memory = Arc::into_raw(task.nursery().rt().memory());
        task.kept.store(memory.cast_mut(), Ordering::Relaxed);
    });
}

unsafe fn let_go(slot: *const ()) {
    // SAFETY: as the caller promises.
    let task = unsafe { slot_of(slot) };
    let memory = task.kept.load(Ordering::Relaxed);
    if task.wakers.let_go() == LetGo::Last {
        // SAFETY: `keep` left it there for the last waker. The slot may go with it, and is not touched again.
        drop(unsafe { Arc::from_raw(memory.cast_const()) });
    }
}

/// A future that is a task: what its record holds between polls.
pub(crate) struct FutureBody<F>(F);

impl<F: Future> FutureBody<F> {
    /// Polls in place.
    ///
    /// # Safety
    ///
    /// `this` does not move from the first poll until it is dropped.
    pub(crate) unsafe fn poll(this: *mut Self, task: &Task) -> Poll<F::Output> {
        // Not counted, and not dropped: it does not outlive this poll, in which the task lives.
        // SAFETY: the table keeps the contract of wakers.
        let waker = ManuallyDrop::new(unsafe { Waker::new(std::ptr::from_ref(task).cast(), &SLOT_WAKER) });
        // SAFETY: the caller has the only reference, and as it promises, the future does not move.
        let future = unsafe { Pin::new_unchecked(&mut (*this).0) };
        future.poll(&mut Context::from_waker(&waker))
    }
}

impl<'scope> Nursery<'scope, '_> {
    /// Spawns a future as a child. It runs on a borrowed stack while it is polled and needs none while it waits. Needs
    /// `CapExecutor` beside `CapSpawn`.
    #[cfg_attr(feature = "console", track_caller)]
    pub fn spawn_future<F>(&self, future: F) -> Result<Handle<'scope, F::Output>, SpawnError>
    where
        F: Future + Send + 'scope,
        F::Output: Send + 'scope,
    {
        self.builder().spawn_future(future)
    }
}

impl<'scope> SpawnBuilder<'_, 'scope, '_> {
    /// Spawns a future as a child, with these options. Needs `CapExecutor` beside `CapSpawn`.
    #[cfg_attr(feature = "console", track_caller)]
    pub fn spawn_future<F>(self, future: F) -> Result<Handle<'scope, F::Output>, SpawnError>
    where
        F: Future + Send + 'scope,
        F::Output: Send + 'scope,
    {
        self.admit_future().inspect_err(|_| calls::count_poll())?;
        self.launch_future(FutureBody(future))
    }
}
