//! The handle of a child: its result, once.
#![allow(unsafe_code)]

use super::core::NurseryCore;
use crate::budget::Budget;
use crate::calls;
use crate::cx::{Cx, TaskId};
use crate::error::TaskError;
use crate::protocol::join::{Dropped, Waiting};
use crate::protocol::roster::interrupt;
use crate::task::body::{self, take_result};
use crate::task::state::TaskState;
use crate::task::{Task, TaskPtr, WaitReason};
use crate::waiter::{ThreadWait, task_word};
use crate::worker::finish::free_slot;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A child of a nursery. Its result can be had here and nowhere else, and only by the nursery's owner: a handle
/// does not leave the task that spawned it.
///
/// ```compile_fail,E0277
/// # use mainspring::{Config, Profile};
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// runtime.run(|cx| {
///     cx.nursery(|n| {
///         let first = n.spawn(|_| 1).unwrap();
///         n.spawn(move |cx| first.join(cx)); // a sibling is not the owner
///     })
/// });
/// ```
///
/// The handle of one nursery is not a handle of another, not even of one inside it:
///
/// ```compile_fail
/// # use mainspring::{Budget, Config, Profile};
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// runtime.run(|cx| {
///     cx.nursery(|outer| {
///         let child = outer.spawn(|_| 1).unwrap();
///         cx.nursery(|inner| inner.recharge(&child, Budget::ZERO)) // whose pool would pay?
///     })
/// });
/// ```
pub struct Handle<'scope, T> {
    task: TaskPtr,
    core: &'scope NurseryCore,
    _result: PhantomData<(*const (), T)>,
    /// Invariant: a handle of one nursery must not pass for one of a nursery inside it, which would pay for the child.
    _brand: PhantomData<fn(&'scope ()) -> &'scope ()>,
}

impl<T> std::fmt::Debug for Handle<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({:?})", self.id())
    }
}

impl<'scope, T> Handle<'scope, T> {
    pub(super) fn new(task: TaskPtr, core: &'scope NurseryCore) -> Self {
        Self { task, core, _result: PhantomData, _brand: PhantomData }
    }

    pub(crate) fn task_ptr(&self) -> TaskPtr {
        self.task
    }

    pub(super) fn task(&self) -> &Task {
        &self.task
    }

    /// The child's id.
    pub fn id(&self) -> TaskId {
        TaskId(self.task.id.load(Ordering::Relaxed))
    }

    /// What the child does now.
    pub fn state(&self) -> TaskState {
        calls::count_poll();
        self.task.state.get()
    }

    /// Ops that the child has used so far.
    pub fn ops_used(&self) -> u64 {
        calls::count_poll();
        self.task.ops_used()
    }

    /// What the child has left.
    pub fn budget(&self) -> Budget {
        calls::count_poll();
        self.task.budget()
    }

    /// Whether the child has ended.
    pub fn is_finished(&self) -> bool {
        calls::count_poll();
        self.task.join.is_done()
    }

    /// Tells the child to stop: it ends at its next yield point, or never starts. False if it has ended already.
    pub fn cancel(&self) -> bool {
        calls::count_costly_action();
        if self.task.join.is_done() {
            return false;
        }
        interrupt(&*self.task);
        self.core.rt().release_cancelled();
        true
    }

    /// Waits for the child and takes its result. The task blocks, its worker does not.
    ///
    /// A child of another runtime than the task's own is waited for as by [`Handle::wait`].
    ///
    /// A destructor of a task that unwinds must not wait: there a child that has not ended is [`TaskError::Unwinding`], and its
    /// nursery waits for it.
    pub fn join(self, cx: &Cx) -> Result<T, TaskError> {
        cx.task().assert_running();
        if std::thread::panicking() && !self.is_finished() {
            return Err(TaskError::Unwinding);
        }
        calls::count(cx);
        if !std::ptr::eq(cx.rt(), self.core.rt()) {
            // The worker that ends the child could wake a task of a runtime that has ended meanwhile. The child's nursery
            // was opened as by an ordinary thread, and blocks this one at its end in any case.
            return self.wait();
        }
        let word = task_word(cx.task_ptr());
        while !self.task.join.is_done() {
            if self.task.join.wait(word) == Waiting::Done {
                break;
            }
            if cx.must_stop() {
                if self.task.join.stop_waiting(word) == Waiting::Done {
                    break;
                }
                cx.acknowledge();
            }
            self.core.owner_joins();
            cx.block(WaitReason::Join);
            let _ = self.task.join.stop_waiting(word);
        }
        self.take()
    }

    /// Waits for the child from an ordinary thread, which blocks on a futex. Must not be called from inside a task.
    pub fn wait(self) -> Result<T, TaskError> {
        let thread = Arc::new(ThreadWait::default());
        let word = thread.word();
        match self.task.join.wait(word) {
            Waiting::Done => ThreadWait::take_back(word),
            Waiting::Wait => {
                self.core.owner_joins();
                thread.wait(None);
            }
        }
        self.take()
    }

    fn take(self) -> Result<T, TaskError> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the task is done, `T` is its type by construction, and the handle is used up.
        let result = unsafe { take_result(&this.task) };
        free_slot(this.task, this.core.rt());
        result
    }
}

impl<T> Drop for Handle<'_, T> {
    fn drop(&mut self) {
        if self.task.join.detach() == Dropped::Free {
            // SAFETY: the task is done and its result was not taken.
            let result = unsafe { take_result::<T>(&self.task) };
            free_slot(self.task, self.core.rt());
            body::drop_here(result);
        }
    }
}
