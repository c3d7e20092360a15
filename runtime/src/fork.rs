//! Fork and join: two closures, perhaps at once.
//!
//! Conserved: the second closure runs once, here or on a thief, and has ended when `join` returns, on every way out, so
//! that both may borrow. What the thief's task has left of its half of the budget comes back.
//!
//! The second half is a job in the frame of `join`, and its tagged address is in the worker's deque. Most come back to their
//! own frame and never become a task; a thief makes one for it.
#![allow(unsafe_code)]

use crate::budget::Budget;
use crate::cx::Cx;
use crate::error::TaskError;
use crate::protocol::join::{Finished, JoinCell, Waiting};
use crate::task::{Task, TaskPtr, WaitReason, body};
use crate::waiter::{self, task_word};
use crate::worker::Worker;
use std::cell::{Cell, UnsafeCell};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;

/// Marks a word of the deque as a job; tasks are aligned.
const TAG: usize = 1;

/// What is known of a job without its types.
#[repr(C)]
pub(crate) struct Job {
    kind: &'static JobKind,
    /// The task whose frame it is in.
    parent: TaskPtr,
    /// The job of the next `join` further out in the same task.
    outer: *const Job,
    /// The ops of its half of the parent's budget.
    granted_ops: u32,
    /// Its half of the parent's budget, and after the end what is left of it.
    budget: Cell<Budget>,
    /// Where its end meets the frame, if a thief has it.
    latch: JoinCell,
}

struct JobKind {
    /// Runs the closure and writes its result.
    run: unsafe fn(*const Job, &Cx),
    /// Writes an error as its result, and drops the closure if it has not run.
    fail: unsafe fn(*const Job, TaskError),
    /// Drops the result.
    discard: unsafe fn(*const Job),
}

#[repr(C)]
struct TypedJob<B, R> {
    job: Job,
    body: UnsafeCell<JobBody<B, R>>,
}

enum JobBody<B, R> {
    Closure(ManuallyDrop<B>),
    Running,
    Result(Result<R, TaskError>),
}

impl<B: FnOnce(&Cx) -> R, R> TypedJob<B, R> {
    const KIND: JobKind = JobKind { run: Self::run, fail: Self::fail, discard: Self::discard };

    unsafe fn body<'a>(job: *const Job) -> &'a mut JobBody<B, R> {
        // SAFETY: `job` is the first field of a `TypedJob<B, R>`, whose kind this is; one side at a time has the job.
        unsafe { &mut *(*job.cast::<Self>()).body.get() }
    }

    unsafe fn take(job: *const Job) -> Option<B> {
        // SAFETY: as for `body`.
        match std::mem::replace(unsafe { Self::body(job) }, JobBody::Running) {
            JobBody::Closure(closure) => Some(ManuallyDrop::into_inner(closure)),
            JobBody::Running | JobBody::Result(_) => None,
        }
    }

    unsafe fn run(job: *const Job, cx: &Cx) {
        // SAFETY: as for `body`; the closure is there until it is run.
        let closure = unsafe { Self::take(job) }.expect("a job runs once");
        let result = closure(cx);
        // SAFETY: as for `body`.
        unsafe { *Self::body(job) = JobBody::Result(Ok(result)) };
    }

    unsafe fn fail(job: *const Job, error: TaskError) {
        // A destructor that panics has nobody to tell.
        // SAFETY: as for `body`.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Self::take(job) })));
        // SAFETY: as for `body`.
        unsafe { *Self::body(job) = JobBody::Result(Err(error)) };
    }

    unsafe fn discard(job: *const Job) {
        // SAFETY: as for `body`.
        let result = std::mem::replace(unsafe { Self::body(job) }, JobBody::Running);
        let _ = catch_unwind(AssertUnwindSafe(|| drop(result)));
    }

    fn into_result(self) -> Result<R, TaskError> {
        match self.body.into_inner() {
            JobBody::Result(result) => result,
            JobBody::Closure(_) | JobBody::Running => unreachable!("it has ended"),
        }
    }
}

/// A job's address that a thief carries.
struct Stolen(*const Job);

// SAFETY: a job is made of closures and results that are `Send`, and its frame waits for it.
unsafe impl Send for Stolen {}

/// The task behind a word of a deque; a job that was stolen becomes one.
#[inline]
pub(crate) fn task_of(word: usize, worker: &Worker) -> TaskPtr {
    if word & TAG == 0 { TaskPtr::from_word(word) } else { adopt((word & !TAG) as *const Job, worker) }
}

#[cold]
fn adopt(job: *const Job, worker: &Worker) -> TaskPtr {
    // SAFETY: the frame that the job is in waits for its latch.
    let (parent, budget) = unsafe { ((*job).parent, (*job).budget.get()) };
    let task = worker.slots.take(&worker.rt().slab);
    task.born(worker.new_task_id(), parent.nursery(), budget, true);
    task.tenant.store(parent.tenant.load(Ordering::Relaxed), Ordering::Relaxed);
    task.own_stack.store(false, Ordering::Relaxed);
    task.job.set(job);
    let stolen = Stolen(job);
    // SAFETY: the slot is empty and not published; the job outlives the task, whose end sets the job's latch.
    unsafe {
        body::put_closure(&task, move |cx: &Cx| {
            let Stolen(job) = { stolen };
            ((*job).kind.run)(job, cx);
            Ok(())
        });
    }
    task
}

/// A task that was made for a job has ended: the frame gets result and budget. Frees the slot first, since the frame may go on
/// at once.
pub(crate) fn report(task: TaskPtr, job: *const Job, error: Option<TaskError>, free: impl FnOnce(TaskPtr)) {
    // SAFETY: the frame waits for the latch.
    let job_ref = unsafe { &*job };
    if let Some(error) = error {
        // SAFETY: the task has ended without a result, and the job is still ours.
        unsafe { (job_ref.kind.fail)(job, error) };
    }
    job_ref.budget.set(task.budget());
    task.job.set(std::ptr::null());
    let body = task.body.get().expect("set at birth");
    // SAFETY: the task wrote a result, of type `()`, that nobody takes.
    unsafe { (body.drop_result)(&task) };
    free(task);
    if let Finished::Wake(waiter) = job_ref.latch.finish() {
        waiter::wake(waiter);
    }
}

impl Cx {
    /// Runs `a` and `b`, at the same time if another worker is idle, and returns both results. Costs two calls.
    ///
    /// `a` runs here. `b` waits in the worker's deque; if nobody has stolen it when `a` is done, it runs here too, on the
    /// same stack, with no switch. Without `CapSpawn`, or under the fair discipline, both run here.
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
        self.check_iterations(2);
        let task = self.task();
        if !self.may_fork() {
            return (a(self), b(self));
        }
        let half = self.split();
        let typed = TypedJob {
            job: Job {
                kind: &TypedJob::<B, RB>::KIND,
                parent: self.task_ptr(),
                outer: task.forks.get(),
                granted_ops: half.ops,
                budget: Cell::new(half),
                latch: JoinCell::new(),
            },
            body: UnsafeCell::new(JobBody::Closure(ManuallyDrop::new(b))),
        };
        let job: *const Job = (&raw const typed).cast();
        // If these frames are lost, whoever ends the task must find the job.
        task.forks.set(job);
        task.worker().push_word(job as usize | TAG);
        let first = catch_unwind(AssertUnwindSafe(|| a(self)));
        if !task.worker().take_newest(job as usize | TAG) {
            self.await_thief(&typed.job);
        } else if first.is_ok() {
            self.come_back(&typed.job);
            // SAFETY: the job came back before anybody took it, so its closure is here and ours.
            let b = unsafe { TypedJob::<B, RB>::take(job) }.expect("nobody took it");
            let (Ok(first), second) = (first, b(self)) else { unreachable!("looked at above") };
            return (first, second);
        } else {
            // SAFETY: as above; it will not run.
            unsafe { (typed.job.kind.fail)(job, TaskError::Cancelled) };
        }
        self.come_back(&typed.job);
        match (first, typed.into_result()) {
            (Ok(first), Ok(second)) => (first, second),
            (Err(payload), _) => resume_unwind(payload),
            (_, Err(TaskError::Panicked(message))) => resume_unwind(Box::new(message)),
            (_, Err(error)) => self.stop(error),
        }
    }

    #[inline]
    fn may_fork(&self) -> bool {
        // Under the fair discipline the deque is not used, and a half that went to the queue would only wait.
        self.task().nursery().caps.spawn().is_some() && !self.task().worker().is_fair()
    }

    /// Half of what the task has, for the job.
    #[inline]
    fn split(&self) -> Budget {
        let task = self.task();
        let reserve = task.reserve.load(Ordering::Relaxed);
        let memory = task.memory.load(Ordering::Relaxed);
        let channel_ops = task.channel_ops.load(Ordering::Relaxed);
        let syscalls = task.syscalls.load(Ordering::Relaxed);
        // Of the ops beyond the slice, so that the slice goes on.
        let half = Budget {
            ops: reserve / 2,
            memory: memory / 2,
            spawn_count: 0,
            channel_ops: channel_ops / 2,
            syscalls: syscalls / 2,
        };
        task.reserve.store(reserve - half.ops, Ordering::Relaxed);
        task.memory.store(memory - half.memory, Ordering::Relaxed);
        task.channel_ops.store(channel_ops - half.channel_ops, Ordering::Relaxed);
        task.syscalls.store(syscalls - half.syscalls, Ordering::Relaxed);
        add(task, -i64::from(half.ops));
        half
    }

    /// The innermost job is over: what is left of its half comes back, and what it used counts as the task's.
    #[inline]
    fn come_back(&self, job: &Job) {
        let task = self.task();
        let left = job.budget.get();
        task.reserve.store(task.reserve.load(Ordering::Relaxed) + left.ops, Ordering::Relaxed);
        task.memory.store(task.memory.load(Ordering::Relaxed) + left.memory, Ordering::Relaxed);
        task.channel_ops
            .store(task.channel_ops.load(Ordering::Relaxed) + left.channel_ops, Ordering::Relaxed);
        task.syscalls.store(task.syscalls.load(Ordering::Relaxed) + left.syscalls, Ordering::Relaxed);
        add(task, left.ops.into());
        task.forks.set(job.outer);
    }

    /// Somebody else has the job. A cancelled task waits for it all the same: it borrows from this frame.
    #[cold]
    fn await_thief(&self, job: &Job) {
        let word = task_word(self.task_ptr());
        let masked = self.task().masked.swap(true, Ordering::Relaxed);
        while !job.latch.is_done() {
            if job.latch.wait(word) == Waiting::Done {
                break;
            }
            self.block(WaitReason::Join);
            let _ = job.latch.stop_waiting(word);
        }
        self.task().masked.store(masked, Ordering::Relaxed);
        // What it used of its half was granted to this task.
        add(self.task(), i64::from(job.granted_ops) - i64::from(job.budget.get().ops));
    }

    /// Waits for the jobs of lost frames.
    pub(crate) fn bury_forks(&self) {
        // SAFETY: null, or a job in the lost frames, which are kept until this is over.
        while let Some(job) = unsafe { self.task().forks.get().as_ref() } {
            self.await_thief(job);
            // SAFETY: it has ended, and nobody else will take its result.
            unsafe { (job.kind.discard)(job) };
            self.come_back(job);
        }
    }
}

#[inline]
fn add(task: &Task, ops: i64) {
    let granted = task.ops_granted.load(Ordering::Relaxed);
    task.ops_granted.store(granted.wrapping_add_signed(ops), Ordering::Relaxed);
}
