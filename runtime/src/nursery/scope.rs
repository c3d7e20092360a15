//! The scope of a nursery: where its pool comes from, the wait at its end on every way out, and what comes of it.
#![allow(unsafe_code)]

use super::core::NurseryCore;
use super::state::NurseryState;
use super::{Nursery, NurseryError, NurseryOptions};
use crate::budget::Pool;
use crate::cx::{Cx, TaskId};
use crate::error::{SpawnError, TaskError};
use crate::foreign::NoUnwind;
use crate::runtime::Inner;
use crate::task::WaitReason;
use crate::task::body::StopUnwind;
use crate::time::timers::Fire;
use crate::waiter::{ThreadWait, task_word};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Whether a nursery further out that the same task has open has failed.
fn fails_around(mut core: *const NurseryCore) -> bool {
    // SAFETY: null, or a nursery of a frame around this one.
    while let Some(around) = unsafe { core.as_ref() } {
        if around.has_failed() {
            return true;
        }
        core = around.outer;
    }
    false
}

/// The end of a nursery: its result, or the first error. `interrupted`: the nursery's failure interrupted its body.
fn outcome<R>(
    core: &NurseryCore,
    result: std::thread::Result<R>,
    interrupted: bool,
) -> (Pool, std::thread::Result<Result<R, NurseryError>>) {
    let (state, error, pool) = core.finish();
    let result = match (result, error) {
        (Err(payload), Some((task, error))) if interrupted && StopUnwind::is_cancellation(&*payload) => {
            StopUnwind::is_over(payload);
            Ok(Err(NurseryError { task: (task != 0).then_some(TaskId(task)), error }))
        }
        // What stopped the owner inside its own nursery goes on; it was not the nursery's error.
        (Err(payload), _) => Err(payload),
        (Ok(_), Some((task, error))) => {
            Ok(Err(NurseryError { task: (task != 0).then_some(TaskId(task)), error }))
        }
        (Ok(_), None) if state == NurseryState::Cancelled => {
            Ok(Err(NurseryError { task: None, error: TaskError::Cancelled }))
        }
        (Ok(value), None) => Ok(Ok(value)),
    };
    (pool, result)
}

pub(crate) fn task_nursery<'env, F, R>(cx: &Cx, options: NurseryOptions, f: F) -> Result<R, NurseryError>
where
    F: for<'scope> FnOnce(&'scope Nursery<'scope, 'env>) -> R,
{
    let task = cx.task();
    task.probe_stack();
    if std::thread::panicking() {
        return Err(NurseryError { task: None, error: TaskError::Unwinding });
    }
    let (pool, source) = take_pool(cx, options.pool).map_err(|unpayable| NurseryError {
        task: None,
        error: TaskError::Failed(SpawnError::Pool(unpayable).into()),
    })?;
    let mine = cx.caps();
    let caps = options.caps.map_or(mine, |caps| mine.intersect(&caps));
    let core = NurseryCore::new(
        cx.rt(),
        task,
        cx.id().0,
        task.owned.load(Ordering::Relaxed),
        caps,
        options.on_exhausted,
        pool,
    );
    let no_unwind = NoUnwind;
    core.share_pool();
    cx.rt().registry.enter(&core);
    if !task.listed.load(Ordering::Relaxed) {
        task.nursery().enlist(task);
    }
    task.owned.store((&raw const core).cast_mut(), Ordering::Relaxed);
    let deadline = options.deadline.map(|after| {
        let due = cx.rt().timers.now_ns().saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
        cx.rt().add_timer(due, Fire::Deadline(&raw const core))
    });
    let nursery = Nursery {
        core: &core,
        owner: Some(cx.task_ptr()),
        _scope: PhantomData,
        _env: PhantomData,
        _of_its_owner: PhantomData,
    };
    // The scope must not end before its children, so every unwind stops here first.
    let result = catch_unwind(AssertUnwindSafe(|| f(&nursery)));
    if result.is_err() {
        core.cancel(None);
    }
    if core.close() {
        await_children(&core, cx);
    }
    if let Some(key) = deadline {
        cx.rt().timers.remove(key);
    }
    task.owned.store(core.outer.cast_mut(), Ordering::Relaxed);
    cx.rt().registry.leave(&core);
    no_unwind.end();
    task.scope_failed.store(fails_around(core.outer), Ordering::SeqCst);
    let interrupted = core.has_failed() && !task.is_cancelled();
    let (pool, result) = outcome(&core, result, interrupted);
    give_back(cx, &core, pool, source);
    match result {
        Ok(result) => {
            cx.acknowledge();
            result
        }
        Err(payload) => resume_unwind(payload),
    }
}

/// Where a nursery's pool came from, and goes back to.
#[derive(Clone, Copy)]
enum Source {
    /// The pool of the nursery around it, of the same task.
    Around,
    /// The task's own pool, or its budget.
    Task,
}

/// Takes a nursery's pool from its opener: from the pool of the nursery around it, from the task's own pool, or from its
/// budget.
fn take_pool(cx: &Cx, asked: Option<Pool>) -> Result<(Pool, Source), crate::budget::Unpayable> {
    let task = cx.task();
    // SAFETY: null, or a nursery of a frame around this one.
    if let Some(around) = unsafe { task.owned.load(Ordering::Relaxed).as_ref() } {
        around.collect();
        let pool = asked.unwrap_or_else(|| around.pool.get().part(2));
        let carved = around.carve(&pool).map(|()| (pool, Source::Around));
        around.share_pool();
        return carved;
    }
    let from_estate = task.nursery().with_ext(task, |ext| {
        let estate = ext?.estate.as_mut()?;
        let pool = asked.unwrap_or(*estate);
        Some(estate.take(&pool).map(|()| (pool, Source::Task)))
    });
    if let Some(result) = from_estate {
        return result;
    }
    let budget = task.budget();
    let half = Pool { spawn_count: budget.spawn_count.into(), ..Pool::from(budget).part(2) };
    let pool = asked.unwrap_or(half);
    let mut left = Pool::from(budget);
    left.take(&pool)?;
    let had = task.exhausted.load(Ordering::Relaxed);
    task.write_budget(left.narrow());
    task.exhausted.store(had, Ordering::Relaxed);
    Ok((pool, Source::Task))
}

/// What a nursery had left goes back.
fn give_back(cx: &Cx, core: &NurseryCore, pool: Pool, source: Source) {
    match source {
        Source::Task => cx.take_back(pool),
        Source::Around => {
            // SAFETY: the nursery that the pool came from, of a frame around this one.
            let around = unsafe { &*core.outer };
            let mut all = around.pool.get();
            all.put(&pool);
            around.pool.set(all);
            around.share_pool();
        }
    }
}

/// Blocks the task until all children have ended. A cancelled owner cancels its nursery and goes on waiting.
pub(crate) fn await_children(core: &NurseryCore, cx: &Cx) {
    let task = cx.task();
    let was_masked = task.masked.load(Ordering::Relaxed);
    core.lend_pool();
    while core.brood.wait(task_word(cx.task_ptr())) {
        if cx.must_stop() {
            core.cancel(None);
            // The children are told; until they have ended there is nothing to acknowledge.
            task.masked.store(true, Ordering::Relaxed);
        }
        cx.block(WaitReason::NurseryAwait);
    }
    task.masked.store(was_masked, Ordering::Relaxed);
    core.collect();
    core.share_pool();
}

/// Blocks the thread until all children have ended.
pub(super) fn await_children_blocking(core: &NurseryCore) {
    core.lend_pool();
    let thread = Arc::new(ThreadWait::default());
    loop {
        let word = thread.word();
        if !core.brood.wait(word) {
            ThreadWait::take_back(word);
            break;
        }
        thread.wait(None);
    }
    core.collect();
    core.share_pool();
}

pub(crate) fn host_nursery<'env, F, R>(rt: &Inner, options: NurseryOptions, f: F) -> Result<R, NurseryError>
where
    F: for<'scope> FnOnce(&'scope Nursery<'scope, 'env>) -> R,
{
    let pool = {
        let mut root = rt.pool.lock().expect("no panic while it is held");
        let pool = options.pool.unwrap_or(*root);
        root.take(&pool).map_err(|unpayable| NurseryError {
            task: None,
            error: TaskError::Failed(SpawnError::Pool(unpayable).into()),
        })?;
        pool
    };
    let root_caps = rt.config.root_caps;
    let caps = options.caps.map_or(root_caps, |caps| root_caps.intersect(&caps));
    let core = NurseryCore::new(rt, null(), 0, null(), caps, options.on_exhausted, pool);
    let no_unwind = NoUnwind;
    core.share_pool();
    rt.registry.enter(&core);
    let deadline = options.deadline.map(|after| {
        let due = rt.timers.now_ns().saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
        rt.add_timer(due, Fire::Deadline(&raw const core))
    });
    rt.note_host_nursery(&core, true);
    let nursery = Nursery {
        core: &core,
        owner: None,
        _scope: PhantomData,
        _env: PhantomData,
        _of_its_owner: PhantomData,
    };
    let result = catch_unwind(AssertUnwindSafe(|| f(&nursery)));
    if result.is_err() {
        core.cancel(None);
    }
    if core.close() {
        await_children_blocking(&core);
    }
    if let Some(key) = deadline {
        rt.timers.remove(key);
    }
    rt.note_host_nursery(&core, false);
    rt.registry.leave(&core);
    no_unwind.end();
    let (pool, result) = outcome(&core, result, false);
    rt.pool.lock().expect("no panic while it is held").put(&pool);
    match result {
        Ok(result) => result,
        Err(payload) => resume_unwind(payload),
    }
}
