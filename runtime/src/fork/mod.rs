//! Fork and join: two closures, perhaps at once.
//!
//! Conserved: the second closure runs once, here or on a thief, and has ended when `join` returns, on every way out, so
//! that both may borrow. The tree's tasks share one budget (`purse`), and what each of them used is billed to the task that
//! forked it.
//!
//! The second half is a job in the frame of `join`, and its tagged address is in the worker's deque. Most come back to their
//! own frame and never become a task; a thief makes one for it.
#![allow(unsafe_code)]

mod purse;

pub(crate) use purse::Purse;

use crate::budget::Pool;
use crate::callback;
use crate::cx::Cx;
use crate::error::TaskError;
use crate::nursery::core::NurseryCore;
use crate::nursery::fails_around;
use crate::protocol::join::{Finished, JoinCell, Waiting};
use crate::protocol::lock::Lock;
use crate::protocol::roster::interrupt;
use crate::spans;
use crate::task::body::StopUnwind;
use crate::task::{Runnable, Task, TaskPtr, WaitReason, body};
use crate::task_local::Scope;
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
    /// Where a thief's task gets its budget.
    purse: *const Purse,
    /// The innermost nursery that is open around the fork, or null: what the half opens takes its pool from there.
    around: *const NurseryCore,
    /// The innermost scope of a task-local value around the fork, or null.
    locals: *const Scope,
    /// The task that a thief made for it, until that has ended.
    thief: Lock<Option<TaskPtr>>,
    /// Ops that the thief's task has used, when it has ended.
    used: Cell<u64>,
    /// Where its end meets the frame, if a thief has it.
    latch: JoinCell,
}

impl Job {
    /// What the jobs of a tree hang from, so that its purse is found whichever of them are left: a job that is done.
    fn root(owner: TaskPtr, purse: &Purse) -> Self {
        const NONE: JobKind = JobKind { run: |_, _| {}, fail: |_, _| {}, discard: |_| {} };
        let latch = JoinCell::new();
        let _ = latch.finish();
        Self {
            kind: &NONE,
            parent: owner,
            outer: std::ptr::null(),
            purse,
            around: std::ptr::null(),
            locals: std::ptr::null(),
            thief: Lock::new(None),
            used: Cell::new(0),
            latch,
        }
    }

    /// Tells the task that runs the half to stop, if one does.
    fn interrupt(&self) {
        // Under the lock the task has not been freed.
        if let Some(thief) = *self.thief.lock() {
            interrupt(&*thief);
        }
    }

    /// Whether the task that forked has been asked to stop, or what it does around the fork is over. A nursery that it has
    /// opened since, in the first half, is none of the second half's.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.parent.is_cancelled() || fails_around(self.around) || self.parent.fork_is_interrupted()
    }
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
        // A panic of the destructor is reported to no task. SAFETY: as for `body`.
        callback::call(|| drop(unsafe { Self::take(job) }));
        // SAFETY: as for `body`.
        unsafe { *Self::body(job) = JobBody::Result(Err(error)) };
    }

    unsafe fn discard(job: *const Job) {
        // SAFETY: as for `body`.
        let result = std::mem::replace(unsafe { Self::body(job) }, JobBody::Running);
        callback::call(|| drop(result));
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

/// Whether a word of a deque is a job.
pub(crate) fn is_job(word: usize) -> bool {
    word & TAG != 0
}

/// The task behind a word of a deque; a job that was stolen becomes one.
#[inline]
pub(crate) fn task_of(word: usize, worker: &Worker) -> Runnable {
    if is_job(word) {
        Runnable::newborn(adopt((word & !TAG) as *const Job, worker))
    } else {
        Runnable::from_word(word)
    }
}

#[cold]
fn adopt(job: *const Job, worker: &Worker) -> TaskPtr {
    // SAFETY: the frame that the job is in waits for its latch, and the purse's for that frame.
    let (parent, purse) = unsafe { ((*job).parent, &*(*job).purse) };
    let task = worker.slots.take(&worker.rt().slab);
    task.born(worker.new_task_id(), parent.nursery(), purse.join_in(), true);
    // What it does not have yet it can draw, if its parent was granted it.
    task.granted.reset(parent.granted.bits());
    task.entity.store(parent.entity.load(Ordering::Relaxed), Ordering::Relaxed);
    task.own_stack.store(false, Ordering::Relaxed);
    task.job.set(job);
    // SAFETY: as above.
    *unsafe { &*job }.thief.lock() = Some(task);
    spans::adopted(task, parent);
    task.mark.adopted(&task);
    let stolen = Stolen(job);
    // SAFETY: the slot is empty and not published; the job outlives the task, whose end sets the job's latch.
    unsafe {
        body::put_closure(&task, move |cx: &Cx| {
            let Stolen(job) = { stolen };
            ((*job).kind.run)(job, &cx.with_locals((*job).locals));
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
    let mut left = Pool::from(task.budget());
    // SAFETY: off the list and over: no other thread reaches the rare fields.
    if let Some(ext) = unsafe { (*task.ext.get()).take() } {
        left.put(&ext.leave(task.ops_used()));
    }
    *job_ref.thief.lock() = None;
    job_ref.used.set(task.ops_used());
    // SAFETY: the purse's frame waits for this one.
    unsafe { &*job_ref.purse }.leave(&task, &left);
    task.job.set(std::ptr::null());
    let body = task.body.get().expect("set at birth");
    // SAFETY: the task wrote a result, of type `()`, that no handle takes.
    let _ = unsafe { (body.drop_result)(&task) };
    free(task);
    if let Finished::Wake(waiter) = job_ref.latch.finish() {
        waiter::wake(waiter);
    }
}

impl Cx {
    /// Runs `a` and `b`, at the same time if another worker is idle, and returns both results. Costs two calls.
    ///
    /// `a` runs here. `b` waits in the worker's deque; if no worker has stolen it when `a` is done, it runs here too, on
    /// the same stack, with no switch. Without `CapSpawn`, with a quota, in a cleanup, or under the fair discipline, both run here.
    ///
    /// Both have the capabilities and the budget of the task, whichever worker runs them. If the task is cancelled, or `a`
    /// fails, a half that another worker runs is told to stop.
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
        self.task().assert_running();
        if std::thread::panicking() || self.task().mask.is_set() {
            // A destructor of a task that unwinds could not wait for a thief. And a thief would be stopped by what the task cleans up
            // after, and has no part in the budget of the cleanup.
            return (a(self), b(self));
        }
        match self.purse() {
            Some(purse) => self.fork(purse, a, b),
            None => self.fork_first(a, b),
        }
    }

    /// The first fork of a tree: the task's budget becomes the tree's budget, until the tree is over.
    #[inline(never)]
    fn fork_first<A, B, RA, RB>(&self, a: A, b: B) -> (RA, RB)
    where
        A: FnOnce(&Self) -> RA + Send,
        B: FnOnce(&Self) -> RB + Send,
        RA: Send,
        RB: Send,
    {
        /// Ends the tree on every way out.
        struct Tree<'a>(&'a Cx, &'a Purse);
        impl Drop for Tree<'_> {
            fn drop(&mut self) {
                self.0.task().forks.set(std::ptr::null());
                self.0.close(self.1);
            }
        }
        if !self.may_fork() {
            return (a(self), b(self));
        }
        let purse = Purse::open(self);
        let root = Job::root(self.task_ptr(), &purse);
        self.task().forks.set(&raw const root);
        let _tree = Tree(self, &purse);
        self.fork(&purse, a, b)
    }

    #[inline(always)]
    fn fork<A, B, RA, RB>(&self, purse: &Purse, a: A, b: B) -> (RA, RB)
    where
        A: FnOnce(&Self) -> RA + Send,
        B: FnOnce(&Self) -> RB + Send,
        RA: Send,
        RB: Send,
    {
        let task = self.task();
        let typed = TypedJob {
            job: Job {
                kind: &TypedJob::<B, RB>::KIND,
                parent: self.task_ptr(),
                outer: task.forks.get(),
                purse,
                around: self.nursery_around(),
                locals: self.locals(),
                thief: Lock::new(None),
                used: Cell::new(0),
                latch: JoinCell::new(),
            },
            body: UnsafeCell::new(JobBody::Closure(ManuallyDrop::new(b))),
        };
        let job: *const Job = (&raw const typed).cast();
        // If these frames are lost, the worker that ends the task must find the job.
        task.forks.set(job);
        task.worker().push_word(job as usize | TAG);
        let first = catch_unwind(AssertUnwindSafe(|| a(self)));
        if !task.worker().take_newest(job as usize | TAG) {
            self.await_thief(&typed.job, first.is_err());
        } else if first.is_ok() {
            task.forks.set(typed.job.outer);
            // SAFETY: the job came back before any thief took it, so its closure is here and ours.
            let b = unsafe { TypedJob::<B, RB>::take(job) }.expect("nobody took it");
            let (Ok(first), second) = (first, b(self)) else { unreachable!("looked at above") };
            return (first, second);
        } else {
            // SAFETY: as above; it will not run.
            unsafe { (typed.job.kind.fail)(job, TaskError::Cancelled) };
        }
        task.forks.set(typed.job.outer);
        match (first, typed.into_result()) {
            (Ok(first), Ok(second)) => (first, second),
            // A cancellation must not hide why the other half failed: it may end at a nursery around the fork.
            (first, Err(TaskError::Panicked(message))) if is_stop_or_ok(&first) => {
                let _ = first.map_err(StopUnwind::is_over);
                resume_unwind(Box::new(message))
            }
            (first, Err(error)) if !error.is_cancelled() && is_cancelled_or_ok(&first) => {
                let _ = first.map_err(StopUnwind::is_over);
                self.stop(error)
            }
            (Err(payload), _) => resume_unwind(payload),
            (Ok(_), Err(error)) => self.stop(error),
        }
    }

    #[inline]
    fn may_fork(&self) -> bool {
        // Under the fair discipline the deque is not used, and a half that went to the queue would only wait.
        !self.task().worker().is_fair() && !self.task().has_quota() && self.caps().spawn().is_some()
    }

    /// The purse of the fork tree that the task is part of.
    #[inline]
    pub(crate) fn purse(&self) -> Option<&Purse> {
        let forks = self.task().forks.get();
        let job = if forks.is_null() { self.task().job.get() } else { forks };
        // SAFETY: null, or a job of a frame of this task, or that this task was made for: frames that wait for it.
        unsafe { job.as_ref().map(|job| &*job.purse) }
    }

    /// The task whose capabilities this one uses, and whose limits it uses up: itself, or in a fork tree the task that forked
    /// first. So a half holds nothing that the forking task does not hold, whether it was stolen or not.
    pub(crate) fn account(&self) -> TaskPtr {
        self.purse().map_or(self.task_ptr(), |purse| purse.owner)
    }

    /// The tree is over: what is left is the task's alone.
    fn close(&self, purse: &Purse) {
        self.give(purse.close());
    }

    /// The innermost nursery that is open around what the task does now, its own or one around the fork that it is a half of.
    #[inline]
    fn nursery_around(&self) -> *const NurseryCore {
        let own = self.task().owned.load(Ordering::Relaxed);
        if own.is_null() { self.nursery_of_fork() } else { own }
    }

    /// If the task is a stolen half, the innermost nursery that is open around the fork; or null.
    #[inline]
    pub(crate) fn nursery_of_fork(&self) -> *const NurseryCore {
        // SAFETY: null, or the job that this task was made for, whose frame waits for it.
        unsafe { self.task().job.get().as_ref() }.map_or(std::ptr::null(), |job| job.around)
    }

    /// Another worker has the job. A cancelled task waits for it all the same: the job borrows from this frame. The job is
    /// told to stop if this task must stop, or if `failed`: then its result will not be used.
    #[cold]
    fn await_thief(&self, job: &Job, failed: bool) {
        let task = self.task();
        let word = task_word(self.task_ptr());
        // SAFETY: the purse's frame waits for this one.
        let purse = unsafe { &*job.purse };
        purse.pause(task);
        let masked = task.mask.begin_wait();
        let mut told = false;
        while !job.latch.is_done() {
            // A later interrupt of this task ends the wait below.
            if !told && (failed || self.is_to_stop(masked)) {
                told = true;
                job.interrupt();
            }
            if job.latch.wait(word) == Waiting::Done {
                break;
            }
            self.worker_to_leave().block(task, WaitReason::Join);
            let _ = job.latch.stop_waiting(word);
        }
        task.mask.set(masked);
        purse.resume();
        // What it used was drawn from what was granted to this task.
        add(task, job.used.get());
    }

    /// Waits for the jobs of lost frames.
    pub(crate) fn bury_forks(&self) {
        // SAFETY: null, or a job in the lost frames, which are kept until this is over.
        while let Some(job) = unsafe { self.task().forks.get().as_ref() } {
            self.await_thief(job, true);
            // SAFETY: it has ended, and no other thread will take its result.
            unsafe { (job.kind.discard)(job) };
            self.task().forks.set(job.outer);
            // SAFETY: of a lost frame, or of one that waits for this task.
            let purse = unsafe { &*job.purse };
            if job.outer.is_null() && purse.owner == self.task_ptr() {
                self.close(purse);
            }
        }
    }
}

/// Whether a half did not panic by itself.
fn is_stop_or_ok<R>(half: &std::thread::Result<R>) -> bool {
    half.as_ref().err().is_none_or(|payload| payload.is::<StopUnwind>())
}

/// Whether a half did not fail by itself.
fn is_cancelled_or_ok<R>(half: &std::thread::Result<R>) -> bool {
    half.as_ref().err().is_none_or(|payload| StopUnwind::is_cancellation(&**payload))
}

#[inline]
fn add(task: &Task, ops: u64) {
    let granted = task.ops_granted.load(Ordering::Relaxed);
    task.ops_granted.store(granted.wrapping_add(ops), Ordering::Relaxed);
}
