//! Fork and join: two closures, perhaps at once.
//!
//! Conserved: the second closure runs once, here or on a thief, and has ended when `join` returns, on every way out, so
//! that both may borrow. What the thief's task has left of its half of the budget comes back.
#![allow(unsafe_code)]

use crate::budget::Budget;
use crate::cx::Cx;
use crate::error::TaskError;
use crate::protocol::join::Waiting;
use crate::task::body::{self, take_result};
use crate::task::{TaskPtr, WaitReason};
use crate::waiter::task_word;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;

impl Cx {
    /// Runs `a` and `b`, at the same time if another worker is idle, and returns both results. Costs two calls.
    ///
    /// `a` runs here. `b` waits in the worker's deque; if nobody has stolen it when `a` is done, it runs here too, on the
    /// same stack, with no switch. Without `CapSpawn` both run here.
    ///
    /// # Panics
    ///
    /// If one of them panics, after both have ended.
    ///
    /// ```
    /// # use mainspring::{Config, Cx, Profile};
    /// fn fib(cx: &Cx, n: u32) -> u64 {
    ///     if n < 2 {
    ///         return n.into();
    ///     }
    ///     let (a, b) = cx.join(|cx| fib(cx, n - 1), |cx| fib(cx, n - 2));
    ///     a + b
    /// }
    /// # let runtime = Config::new(Profile::Service).build().unwrap();
    /// assert_eq!(runtime.run(|cx| fib(cx, 15)).unwrap(), 610);
    /// ```
    pub fn join<A, B, RA, RB>(&self, a: A, b: B) -> (RA, RB)
    where
        A: FnOnce(&Self) -> RA + Send,
        B: FnOnce(&Self) -> RB + Send,
        RA: Send,
        RB: Send,
    {
        self.check();
        self.check();
        let task = self.task();
        let nursery = task.nursery();
        if !self.may_fork() {
            return (a(self), b(self));
        }
        let worker = task.worker();
        let child = worker.slots.take(&self.rt().slab);
        let half = self.split();
        child.born(worker.new_task_id(), nursery, half, true);
        child.forked.store(true, Ordering::Relaxed);
        child.own_stack.store(false, Ordering::Relaxed);
        // SAFETY: the slot is empty and not published; this frame waits for the child on every way out.
        let run_here = unsafe { body::put_closure_to_call(&child, move |cx: &Self| Ok(b(cx))) };
        // If these frames are lost, whoever ends the task must find the child.
        child.link.store(task.forks.replace(child.raw()).cast_mut(), Ordering::Relaxed);
        worker.push_spawned(child);
        let first = catch_unwind(AssertUnwindSafe(|| a(self)));
        let second = if self.task().worker().take_newest(child) {
            self.unsplit(child);
            let second = match &first {
                // SAFETY: the child came back unstarted, so its closure is ours, and of the type that was put there.
                Ok(_) => unsafe { run_here(&child, self) },
                Err(_) => {
                    // SAFETY: as above; it will not run.
                    unsafe { (child.body.get().expect("set above").refuse)(&child, TaskError::Cancelled) };
                    // SAFETY: the line above wrote a result of this type.
                    unsafe { take_result(&child) }
                }
            };
            self.free_child(child);
            second
        } else {
            self.await_thief(child)
        };
        match (first, second) {
            (Ok(first), Ok(second)) => (first, second),
            (Err(payload), _) => resume_unwind(payload),
            (_, Err(TaskError::Panicked(message))) => resume_unwind(Box::new(message)),
            (_, Err(error)) => self.stop(error),
        }
    }

    fn may_fork(&self) -> bool {
        // Under the fair discipline the deque is not used, and a half that went to the queue would only wait.
        self.task().nursery().caps.spawn().is_some() && !self.task().worker().is_fair()
    }

    /// Half of what the task has, for the child.
    fn split(&self) -> Budget {
        let task = self.task();
        let have = task.budget();
        let half = Budget {
            ops: have.ops / 2,
            memory: have.memory / 2,
            spawn_count: 0,
            channel_ops: have.channel_ops / 2,
            syscalls: have.syscalls / 2,
        };
        // From the reserve first, so that the slice goes on.
        let from_reserve = half.ops.min(task.reserve.load(Ordering::Relaxed));
        task.reserve.store(task.reserve.load(Ordering::Relaxed) - from_reserve, Ordering::Relaxed);
        task.fuel.store(task.fuel.load(Ordering::Relaxed) - (half.ops - from_reserve), Ordering::Relaxed);
        task.memory.store(have.memory - half.memory, Ordering::Relaxed);
        task.channel_ops.store(have.channel_ops - half.channel_ops, Ordering::Relaxed);
        task.syscalls.store(have.syscalls - half.syscalls, Ordering::Relaxed);
        task.ops_granted
            .store(task.ops_granted.load(Ordering::Relaxed) - u64::from(half.ops), Ordering::Relaxed);
        half
    }

    /// What the child has left comes back; what it used counts as the task's.
    fn unsplit(&self, child: TaskPtr) {
        let task = self.task();
        let left = child.budget();
        task.reserve.store(task.reserve.load(Ordering::Relaxed) + left.ops, Ordering::Relaxed);
        task.memory.store(task.memory.load(Ordering::Relaxed) + left.memory, Ordering::Relaxed);
        task.channel_ops
            .store(task.channel_ops.load(Ordering::Relaxed) + left.channel_ops, Ordering::Relaxed);
        task.syscalls.store(task.syscalls.load(Ordering::Relaxed) + left.syscalls, Ordering::Relaxed);
        let granted = child.ops_granted.load(Ordering::Relaxed);
        task.ops_granted.store(task.ops_granted.load(Ordering::Relaxed) + granted, Ordering::Relaxed);
    }

    fn free_child(&self, child: TaskPtr) {
        self.task().forks.set(child.link.load(Ordering::Relaxed));
        child.forked.store(false, Ordering::Relaxed);
        crate::worker::finish::free_slot(child, self.rt());
    }

    /// Waits for the forked children of lost frames.
    pub(crate) fn bury_forks(&self) {
        while let Some(child) = TaskPtr::from_raw(self.task().forks.get()) {
            self.wait_for_fork(child);
            self.unsplit(child);
            let body = child.body.get().expect("set at birth");
            // SAFETY: the child is done, and nobody else will take its result.
            unsafe { (body.drop_result)(&child) };
            self.free_child(child);
        }
    }

    fn wait_for_fork(&self, child: TaskPtr) {
        let word = task_word(self.task_ptr());
        while !child.join.is_done() {
            if child.join.wait(word) == Waiting::Done {
                break;
            }
            self.block(WaitReason::Join);
            let _ = child.join.stop_waiting(word);
        }
    }

    /// Somebody else runs the child. A cancelled task waits for it all the same: it borrows from this frame.
    #[cold]
    fn await_thief<T>(&self, child: TaskPtr) -> Result<T, TaskError> {
        let masked = self.task().masked.swap(true, Ordering::Relaxed);
        self.wait_for_fork(child);
        self.task().masked.store(masked, Ordering::Relaxed);
        self.unsplit(child);
        // SAFETY: the child is done, and its result is of the type that its closure returns.
        let result = unsafe { take_result(&child) };
        self.free_child(child);
        result
    }
}
