//! Futures: awaited by a task on its stack, or tasks of their own that need no stack while they wait.
#![allow(unsafe_code)]

use crate::cx::Cx;
use crate::error::SpawnError;
use crate::nursery::{Handle, Nursery};
use crate::runtime::Inner;
use crate::task::state::Event;
use crate::task::{Task, TaskPtr, WaitReason};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Wakes a task. It keeps the memory of the runtime, not its threads: a waker may outlive both task and runtime, and does
/// nothing then.
struct TaskWaker {
    _memory: Arc<Inner>,
    task: TaskPtr,
    woken: AtomicBool,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Release: what the future is to find is written. Pairs with the acquire of the next poll.
        self.woken.store(true, Ordering::Release);
        self.task.wake(Event::Wake);
    }
}

fn waker(task: TaskPtr, rt: &Inner) -> Arc<TaskWaker> {
    Arc::new(TaskWaker { _memory: rt.memory(), task, woken: AtomicBool::new(false) })
}

impl Cx {
    /// Waits for a future; only this task waits. Each poll costs one op. A cancelled task drops the future.
    ///
    /// ```
    /// # use mainspring::{Config, Profile};
    /// # let runtime = Config::new(Profile::Service).build().unwrap();
    /// let two = runtime.run(|cx| cx.await_future(async { 1 + 1 }));
    /// assert_eq!(two.unwrap(), 2);
    /// ```
    pub fn await_future<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let flag = waker(self.task_ptr(), self.rt());
        let waker = Waker::from(flag.clone());
        let mut context = Context::from_waker(&waker);
        loop {
            self.check();
            flag.woken.store(false, Ordering::Relaxed);
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            while !flag.woken.load(Ordering::Acquire) {
                self.acknowledge();
                self.block(WaitReason::Future);
            }
        }
    }
}

/// A future that is a task: what its record holds between polls.
pub(crate) struct FutureBody<F> {
    pub(crate) future: F,
    waker: Option<Arc<TaskWaker>>,
}

impl<F: Future> FutureBody<F> {
    /// Polls in place.
    ///
    /// # Safety
    ///
    /// `this` does not move from the first poll until it is dropped.
    pub(crate) unsafe fn poll(this: *mut Self, task: &Task, cx: &Cx) -> Poll<F::Output> {
        // SAFETY: the caller has the only reference.
        let this = unsafe { &mut *this };
        let flag = this.waker.get_or_insert_with(|| waker(TaskPtr::of(task), cx.rt()));
        flag.woken.store(false, Ordering::Relaxed);
        let waker = Waker::from(flag.clone());
        // SAFETY: as the caller promises, it does not move.
        unsafe { Pin::new_unchecked(&mut this.future) }.poll(&mut Context::from_waker(&waker))
    }
}

impl<'scope> Nursery<'scope, '_> {
    /// Spawns a future as a child. It runs on a borrowed stack while it is polled and needs none while it waits. Needs
    /// `CapExecutor` beside `CapSpawn`.
    pub fn spawn_future<F>(&self, future: F) -> Result<Handle<'scope, F::Output>, SpawnError>
    where
        F: Future + Send + 'scope,
        F::Output: Send + 'scope,
    {
        let cap = self.children_caps().executor().copied().ok_or(SpawnError::NotPermitted);
        self.audited("CapExecutor", "spawn_future", cap)?;
        self.builder().launch_future(FutureBody { future, waker: None })
    }
}
