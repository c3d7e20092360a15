//! How a task ends: its result, its handle, its nursery, its slot.
//!
//! Conserved: what a task has left goes back to its nursery's pool; its result is dropped or handed over before its
//! nursery can end; its slot is free after its handle and its end have both let go of it.
#![allow(unsafe_code)]

use super::{Worker, current};
use crate::budget::Pool;
use crate::cx::Cx;
use crate::error::TaskError;
use crate::fork;
use crate::nursery::core::{NurseryCore, Whose};
use crate::protocol::join::Finished;
use crate::task::body::{Ended, Ran};
use crate::task::state::Event;
use crate::task::{Runnable, Task, TaskPtr};
use crate::waiter;
use std::sync::atomic::Ordering;

/// Runs a task that was just dispatched, to its end. Returns the worker that it ended on.
pub(crate) fn execute(task: TaskPtr) -> *const Worker {
    let cx = Cx::new(task);
    task.trim_slice(cx.yield_interval());
    let body = task.body.get().expect("a task that has not run has a body");
    task.worker().count_started(1);
    // SAFETY: the task has not ended, so that its storage holds its closure or its future.
    let ran = unsafe { (body.run)(&task, &cx) };
    let worker = task.worker.get();
    task.worker().count_started(-1);
    match ran {
        Ran::Ended(ended) => end(task, ended),
        // SAFETY: the worker that runs this.
        Ran::Pending => unsafe { &*worker }.park_without_stack(task),
    }
    worker
}

/// The task is over and its result is written.
fn end(task: TaskPtr, ended: Ended) {
    // SAFETY: the worker that runs this.
    let worker = unsafe { &*task.worker.get() };
    worker.bill(&task);
    worker.end_thread();
    worker.hurry_look(task.slice_used());
    task.home.move_out();
    task.state.step(if matches!(ended, Ended::Cancelled) { Event::Cancel } else { Event::Complete });
    if matches!(ended, Ended::Returned) && worker.ends_simply && is_ordinary(task) {
        return end_well(task, worker);
    }
    worker.close_span(task);
    if matches!(ended, Ended::Cancelled) {
        worker.rt().shares[worker.index].cancelled();
    }
    report(task, ended, Some(worker));
}

/// Whether the end of a task that is over concerns only its handle and its nursery's pool.
#[inline(always)]
fn is_ordinary(task: TaskPtr) -> bool {
    // SAFETY: no supervisor touches the rare fields, so they are the holder's.
    let has_ext = || task.mail_flag.is_announced() || unsafe { (*task.ext.get()).is_some() };
    task.job.get().is_null() && !task.listed.load(Ordering::Relaxed) && !has_ext()
}

/// What [`report`] does, for a task that returned and is ordinary.
#[inline(always)]
fn end_well(task: TaskPtr, worker: &Worker) {
    let (nursery, left) = (task.nursery.load(Ordering::Relaxed), Pool::from(task.budget()));
    let settled = complete_handle(task, true, |task| worker.slots.give(&worker.rt().slab, task));
    // SAFETY: the nursery waits for this report.
    let core = unsafe { &*nursery };
    match settled {
        Ok(()) => worker.tally(core, &left),
        // An ordinary task has no name.
        Err((id, error)) => child_done(core, Whose { id, name: None }, &left, Ended::Failed(error)),
    }
}

fn child_done(core: &NurseryCore, whose: Whose, left: &Pool, ended: Ended) {
    if let Some(waiter) = core.children_done(1, whose, left, ended) {
        waiter::wake(waiter);
    }
}

/// Tells the handle that the result is there, which is a value if the task `returned`. Without a handle the task is freed. An
/// error, and whose, if the result's destructor panicked.
#[inline(always)]
fn complete_handle(
    task: TaskPtr,
    returned: bool,
    free: impl FnOnce(TaskPtr),
) -> Result<(), (u64, TaskError)> {
    match task.join.finish() {
        Finished::KeepForHandle => {}
        Finished::Wake(waiter) => waiter::wake(waiter),
        Finished::Free => {
            let body = task.body.get().expect("set at birth");
            let mut settled = Ok(());
            if !returned || body.value_drops {
                // SAFETY: the result was written and no handle will take it.
                let dropped = unsafe { (body.drop_result)(&task) };
                settled = dropped.map_err(|error| (task.id.load(Ordering::Relaxed), error));
            }
            free(task);
            return settled;
        }
    }
    Ok(())
}

/// Tells the handle and the nursery.
#[inline(never)]
fn report(task: TaskPtr, ended: Ended, worker: Option<&Worker>) {
    let nursery: *const NurseryCore = task.nursery();
    // SAFETY: the nursery waits for this report.
    let core = unsafe { &*nursery };
    core.forget(&task);
    if !task.job.get().is_null() {
        let error = match ended {
            Ended::Returned => None,
            Ended::Failed(error) => Some(error),
            Ended::Cancelled => Some(TaskError::Cancelled),
        };
        let rt = core.rt();
        return fork::report(task, task.job.get(), error, |task| free_slot(task, rt));
    }
    let mut left = Pool::from(task.budget());
    // SAFETY: over, so that a supervisor that left something does not come again; under the lock, or no supervisor
    // did.
    let take = || unsafe { (*task.ext.get()).take() };
    let ext = if task.mail_flag.is_announced() { core.wait_group.with(|_| take()) } else { take() };
    let mut whose = Whose { id: task.id.load(Ordering::Relaxed), name: None };
    if let Some(ext) = ext {
        whose.name = ext.name;
        core.rt().labels.remove(whose.id, &ext);
        if let (Some(fair_tasks), Some(ledger)) = (&core.rt().fair_tasks, ext.time_ledger) {
            fair_tasks.close_ledger(ledger);
        }
        left.put(&ext.leave(task.ops_used()));
    }
    let settled = complete_handle(task, false, |task| match worker {
        Some(worker) => worker.slots.give(&worker.rt().slab, task),
        None => core.rt().slab.give_shared(task),
    });
    let ended = match (ended, settled) {
        (Ended::Returned | Ended::Cancelled, Err((_, error))) => Ended::Failed(error),
        (ended, _) => ended,
    };
    match (worker, ended) {
        (Some(worker), Ended::Returned) if !worker.is_virtual => worker.tally(core, &left),
        (_, ended) => child_done(core, whose, &left, ended),
    }
}

/// Children of one nursery that have ended on a worker and are not yet reported: their reports go together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tally {
    nursery: *const NurseryCore,
    children: u64,
    left: Pool,
}

impl Tally {
    pub(super) const NONE: Self = Self { nursery: std::ptr::null(), children: 0, left: Pool::ZERO };
}

/// The most children that are reported together.
const TALLY: u64 = 64;

impl Worker {
    /// Counts a child that ended well. It is reported before the worker does anything else than to run its siblings.
    #[inline]
    fn tally(&self, core: &NurseryCore, left: &Pool) {
        let now = self.tally_now();
        if !std::ptr::eq(now.nursery, core) || now.children >= TALLY {
            self.report_tally();
            *self.tally_now() = Tally { nursery: core, ..Tally::NONE };
            self.picks_left.disturb();
        }
        let tally = self.tally_now();
        tally.children += 1;
        tally.left.put(left);
    }

    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    fn tally_now(&self) -> &mut Tally {
        // SAFETY: only the worker's thread comes here, and no caller keeps the reference across a call.
        unsafe { &mut *self.tally.as_ptr() }
    }

    /// Whether `task` is a sibling of those that are not yet reported.
    pub(super) fn tallies(&self, task: &Task) -> bool {
        std::ptr::eq(self.tally_now().nursery, task.nursery.load(Ordering::Relaxed))
    }

    /// Whether children have ended here that are not yet reported.
    #[inline(always)]
    pub(super) fn has_tally(&self) -> bool {
        !self.tally_now().nursery.is_null()
    }

    /// Reports the children that have ended here.
    #[inline]
    pub(super) fn report_tally(&self) {
        if self.has_tally() {
            self.report_some();
        }
    }

    #[cold]
    #[inline(never)]
    fn report_some(&self) {
        let tally = self.tally.replace(Tally::NONE);
        // SAFETY: the nursery waits for these reports.
        let core = unsafe { &*tally.nursery };
        if let Some(waiter) = core.children_done(tally.children, Whose::NOBODY, &tally.left, Ended::Returned)
        {
            waiter::wake(waiter);
        }
    }
}

/// A handle let go of a task that has ended: its slot is free.
pub(crate) fn free_slot(task: TaskPtr, rt: &crate::runtime::Inner) {
    // SAFETY: the pointer is null or the worker of this thread.
    match unsafe { current().as_ref() } {
        Some(worker) if std::ptr::eq(worker.rt(), rt) => worker.slots.give(&rt.slab, task),
        _ => rt.slab.give_shared(task),
    }
}

impl Worker {
    /// Ends a task that was cancelled before it started.
    pub(super) fn refuse(&self, task: Runnable) {
        let task = task.take();
        let body = task.body.get().expect("set at birth");
        // SAFETY: the task is this worker's, and has not run.
        let ended = unsafe { (body.refuse)(&task, TaskError::Cancelled) };
        self.end_thread();
        self.close_span(task);
        task.state.step(Event::Cancel);
        self.rt().shares[self.index].cancelled();
        report(task, ended, Some(self));
    }

    /// Ends a task for which there is no stack.
    #[cold]
    pub(super) fn no_stack(&self, task: Runnable) {
        let task = task.take();
        let body = task.body.get().expect("set at birth");
        task.state.step(Event::Dispatch);
        // SAFETY: the task is this worker's, and has not run.
        let ended = unsafe { (body.refuse)(&task, TaskError::NoStack) };
        self.end_thread();
        self.close_span(task);
        task.state.step(Event::Complete);
        report(task, ended, Some(self));
    }
}

/// What became of a task whose frames are lost.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lost {
    Overflow,
    WorkerPanic,
}

/// The end of a task whose frames are lost, run as that task on another stack: what its frames own is cancelled and
/// awaited first, innermost first, since its children may borrow from those frames.
pub(super) fn bury(task: TaskPtr) -> *const Worker {
    let cx = Cx::new(task);
    let _ = task.mask.begin_wait();
    let error = || if task.lost_to_worker() { TaskError::WorkerPanic } else { TaskError::StackOverflow };
    loop {
        let nursery = task.owned.load(Ordering::Relaxed);
        // SAFETY: null, or a nursery whose record is in the lost frames, which are kept until this is over.
        let Some(core) = (unsafe { nursery.as_ref() }) else { break };
        core.cancel(None);
        crate::nursery::await_children(core, &cx);
        core.rt().registry.leave(core);
        let (_, _, pool) = core.finish();
        cx.take_back(pool);
        task.owned.store(core.outer.cast_mut(), Ordering::Relaxed);
    }
    cx.bury_forks();
    let body = task.body.get().expect("set at birth");
    // SAFETY: the closure was taken when the task started, and no result has been written.
    unsafe { (body.abandon)(&task, error()) };
    let worker = task.worker.get();
    end(task, Ended::Failed(error()));
    worker
}
