//! The scope of a nursery: where its pool comes from, the wait at its end on every way out, and what comes of it.
#![allow(unsafe_code)]

use super::core::{Exhaustion, NurseryCore, Whose};
use super::open::{Canceller, shared};
use super::state::NurseryState;
use super::{Nursery, NurseryError, NurseryOptions};
use crate::budget::{Component, Pool, Unpayable};
use crate::cx::Cx;
use crate::error::{SpawnError, TaskError};
use crate::foreign::NoUnwind;
use crate::quota;
use crate::runtime::Inner;
use crate::task::body::StopUnwind;
use crate::task::{TaskPtr, WaitReason};
use crate::time::timers::{Fire, TimerKey};
use crate::waiter::{ThreadWait, task_word};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Whether a nursery, or one further out that is open around it, has failed.
pub(crate) fn fails_around(mut core: *const NurseryCore) -> bool {
    // SAFETY: null, or a nursery of a frame around this one.
    while let Some(around) = unsafe { core.as_ref() } {
        if around.has_failed() {
            return true;
        }
        core = around.outer;
    }
    false
}

/// As [`fails_around`], of the nurseries that were opened in the innermost of so many cleanups.
pub(crate) fn fails_in_cleanup(mut core: *const NurseryCore, cleanups: u8) -> bool {
    // SAFETY: as there.
    while let Some(around) = unsafe { core.as_ref() }.filter(|around| around.cleanups == cleanups) {
        if around.has_failed() {
            return true;
        }
        core = around.outer;
    }
    false
}

/// The end of a nursery: its result, or the first error. `interrupted`: the nursery's failure interrupted its body. What is
/// left of the pool goes back first: a result that is not handed on is dropped here, and its destructor may panic.
fn outcome<R>(
    core: &NurseryCore,
    result: std::thread::Result<R>,
    interrupted: bool,
    give_back: impl FnOnce(Pool),
) -> std::thread::Result<Result<R, NurseryError>> {
    let (state, error, pool) = core.finish();
    give_back(pool);
    match (result, error) {
        (Err(payload), Some((whose, error))) if interrupted && StopUnwind::is_cancellation(&*payload) => {
            StopUnwind::is_over(payload);
            Ok(Err(NurseryError::of(whose, error)))
        }
        // What stopped the owner inside its own nursery goes on; it was not the nursery's error.
        (Err(payload), _) => Err(payload),
        (Ok(_), Some((whose, error))) => Ok(Err(NurseryError::of(whose, error))),
        (Ok(_), None) if state == NurseryState::Cancelled => {
            Ok(Err(NurseryError::of(Whose::NOBODY, TaskError::Cancelled)))
        }
        (Ok(value), None) => Ok(Ok(value)),
    }
}

fn unpayable_pool(unpayable: Unpayable) -> NurseryError {
    NurseryError::of(Whose::NOBODY, TaskError::Failed(SpawnError::Pool(unpayable).into()))
}

/// A nursery of a task, not yet entered, and where its pool came from.
pub(super) fn found_by_task(
    cx: &Cx,
    options: &NurseryOptions,
) -> Result<(NurseryCore, Source), NurseryError> {
    let task = cx.task();
    task.probe_stack();
    if std::thread::panicking() {
        return Err(NurseryError::of(Whose::NOBODY, TaskError::Unwinding));
    }
    let around = task.owned.load(Ordering::Relaxed);
    let (pool, source) = take_pool(cx, around, options.pool).map_err(unpayable_pool)?;
    let mine = cx.caps();
    let caps = options.caps.map_or(mine, |caps| mine.intersect(&caps));
    let mut core = NurseryCore::new(cx.rt(), task, cx.id().0, around, caps, options.on_exhausted, pool);
    core.draws_on_root = task.nursery().is_run && options.pool.is_none();
    core.isolates = options.isolates;
    if let Some(quota) = quota::quota_of(task) {
        core.set_quota(quota);
    }
    Ok((core, source))
}

/// The nursery is the task's innermost from here on, and must not move. Returns its deadline's timer.
pub(super) fn enter(cx: &Cx, core: &NurseryCore, options: &NurseryOptions) -> Option<TimerKey> {
    let task = cx.task();
    cx.rt().registry.enter(core);
    if !task.listed.load(Ordering::Relaxed) {
        task.nursery().enlist(task);
    }
    task.owned.store(std::ptr::from_ref(core).cast_mut(), Ordering::Relaxed);
    set_deadline(cx.rt(), core, options)
}

fn set_deadline(rt: &Inner, core: &NurseryCore, options: &NurseryOptions) -> Option<TimerKey> {
    options.deadline.map(|after| {
        let due = rt.timers.now_ns().saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
        rt.add_timer(due, Fire::Deadline(core))
    })
}

/// Waits for the children and takes the nursery off the task, whose innermost it is.
pub(super) fn leave(cx: &Cx, core: &NurseryCore, deadline: Option<TimerKey>) {
    if core.close() {
        await_children(core, cx);
    }
    if let Some(key) = deadline {
        cx.rt().timers.remove(key);
    }
    cx.task().owned.store(core.outer.cast_mut(), Ordering::Relaxed);
    cx.rt().registry.leave(core);
}

/// What came of a nursery that the task has left: `body` is what came of the code inside. An error is what stops the task.
pub(super) fn conclude<R>(
    cx: &Cx,
    core: &NurseryCore,
    body: std::thread::Result<R>,
    source: Source,
) -> std::thread::Result<Result<R, NurseryError>> {
    conclude_with(cx, core, body, |pool| give_back(cx, &pool, source))
}

/// As [`conclude`]: what is left of the pool goes to `put`.
fn conclude_with<R>(
    cx: &Cx,
    core: &NurseryCore,
    body: std::thread::Result<R>,
    put: impl FnOnce(Pool),
) -> std::thread::Result<Result<R, NurseryError>> {
    let task = cx.task();
    task.scope_failed.store(fails_around(core.outer), Ordering::SeqCst);
    // A cleanup hears nothing of the cancellation that it is for.
    let interrupted = core.has_failed() && (core.cleanups > 0 || !task.is_cancelled());
    outcome(core, body, interrupted, put)
}

/// A nursery of a task whose pool somebody else has paid: it is taken from `pool`, and what is left is there at the end, on
/// every way out. If the frames of the task are lost, the task gets it.
pub(crate) fn prepaid<'env, F, R>(
    cx: &Cx,
    pool: &mut Pool,
    options: NurseryOptions,
    f: F,
) -> Result<R, NurseryError>
where
    F: for<'scope> FnOnce(&'scope Nursery<'scope, 'env>) -> R,
{
    let task = cx.task();
    task.probe_stack();
    if std::thread::panicking() {
        return Err(NurseryError::of(Whose::NOBODY, TaskError::Unwinding));
    }
    let around = task.owned.load(Ordering::Relaxed);
    let paid = std::mem::take(pool);
    let mut core = NurseryCore::new(cx.rt(), task, cx.id().0, around, cx.caps(), options.on_exhausted, paid);
    core.isolates = options.isolates;
    let no_unwind = NoUnwind;
    let deadline = enter(cx, &core, &options);
    let nursery = Nursery::of(&core, Some(cx.task_ptr()));
    // The scope must not end before its children, so every unwind stops here first.
    let result = catch_unwind(AssertUnwindSafe(|| f(&nursery)));
    if result.is_err() {
        core.cancel(None);
    }
    leave(cx, &core, deadline);
    no_unwind.end();
    match conclude_with(cx, &core, result, |left| *pool = left) {
        Ok(result) => {
            cx.acknowledge();
            result
        }
        Err(payload) => resume_unwind(payload),
    }
}

/// Takes what goes with a message from where a nursery's pool would come from.
#[inline]
pub(crate) fn take_for_message(cx: &Cx, grant: &Pool) -> Result<Source, Unpayable> {
    let around: *const NurseryCore = cx.task().owned.load(Ordering::Relaxed);
    let open = with_pool(around);
    // SAFETY: null, or a nursery of a frame of this task.
    if let Some(core) = unsafe { open.as_ref() } {
        cx.task().assert_running();
        if core.take_at_hand(grant) {
            return Ok(Source::Open(open));
        }
    }
    take_pool(cx, around, Some(*grant)).map(|(_, source)| source)
}

pub(crate) fn task_nursery<'env, F, R>(cx: &Cx, options: NurseryOptions, f: F) -> Result<R, NurseryError>
where
    F: for<'scope> FnOnce(&'scope Nursery<'scope, 'env>) -> R,
{
    let (core, source) = found_by_task(cx, &options)?;
    let no_unwind = NoUnwind;
    let deadline = enter(cx, &core, &options);
    let nursery = Nursery::of(&core, Some(cx.task_ptr()));
    // The scope must not end before its children, so every unwind stops here first.
    let result = catch_unwind(AssertUnwindSafe(|| f(&nursery)));
    if result.is_err() {
        core.cancel(None);
    }
    leave(cx, &core, deadline);
    no_unwind.end();
    match conclude(cx, &core, result, source) {
        Ok(result) => {
            cx.acknowledge();
            result
        }
        Err(payload) => resume_unwind(payload),
    }
}

/// Runs `f` in a scope that is stopped when its time is over, or from elsewhere: `register` is handed what stops it, and what it
/// returns is dropped at the end. `None` if it returns `None`: then `f` does not run. What `f` has returned before it was stopped
/// is the result.
pub(crate) fn interruptible<G, R>(
    cx: &Cx,
    deadline: Option<Duration>,
    register: impl FnOnce(Canceller) -> Option<G>,
    f: impl FnOnce(&Cx) -> R,
) -> Option<Result<R, NurseryError>> {
    let task = cx.task();
    task.probe_stack();
    if std::thread::panicking() {
        return Some(Err(NurseryError::of(Whose::NOBODY, TaskError::Unwinding)));
    }
    let around = task.owned.load(Ordering::Relaxed);
    let mut core =
        NurseryCore::new(cx.rt(), task, cx.id().0, around, cx.caps(), Exhaustion::default(), Pool::ZERO);
    core.is_transparent = true;
    let core = shared(core);
    let registered = register(Canceller::of(&core))?;
    let no_unwind = NoUnwind;
    let timer = enter(cx, &core, &NurseryOptions { deadline, ..NurseryOptions::default() });
    let mut returned = None;
    let body = catch_unwind(AssertUnwindSafe(|| returned = Some(f(cx))));
    drop(registered);
    if body.is_err() {
        core.cancel(None);
    }
    leave(cx, &core, timer);
    no_unwind.end();
    let ended = conclude(cx, &core, body, Source::Budget).unwrap_or_else(|payload| resume_unwind(payload));
    cx.acknowledge();
    Some(returned.map_or_else(|| Err(ended.expect_err("a body that has not returned was stopped")), Ok))
}

/// Where a nursery's pool came from, and goes back to.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    /// The pool of a nursery that the task has open.
    Open(*const NurseryCore),
    /// The pool of a nursery that is open around the fork whose half the task is.
    Fork(*const NurseryCore),
    /// The pool that the task got from its spawner. In a fork tree: the pool of the task that forked first.
    Own(TaskPtr),
    /// The task's budget, or its fork tree's.
    Budget,
}

/// Takes a nursery's pool from its opener: from the pool of the nursery around it, from the task's own pool, or from its
/// budget. A half of a fork takes it from where the forking task would, so that it does not matter which worker runs the
/// half.
fn take_pool(cx: &Cx, around: *const NurseryCore, asked: Option<Pool>) -> Result<(Pool, Source), Unpayable> {
    let task = cx.task();
    let open = with_pool(around);
    // SAFETY: null, or a nursery of a frame of this task.
    if let Some(core) = unsafe { open.as_ref() } {
        task.assert_running();
        return Ok((core.take_part(asked)?, Source::Open(open)));
    }
    let around = with_pool(cx.nursery_of_fork());
    // SAFETY: null, or a nursery of a frame of a task that waits for this one.
    if let Some(core) = unsafe { around.as_ref() } {
        let pool = core.draw_part(|all| asked.unwrap_or_else(|| all.part(2)))?;
        return Ok((pool, Source::Fork(around)));
    }
    let account = cx.account();
    let own = task.nursery().with_ext(&account, |ext| {
        let own = ext?.own_pool.as_mut()?;
        let pool = asked.unwrap_or(*own);
        Some(own.take(&pool).map(|()| pool))
    });
    if let Some(taken) = own {
        return taken.map(|pool| (pool, Source::Own(account)));
    }
    let choose = |all: &Pool| asked.unwrap_or(Pool { spawn_count: all.spawn_count, ..all.part(2) });
    let pool = match cx.purse() {
        Some(purse) => purse.take_part(task, choose)?,
        None => {
            let mut left = Pool::from(task.budget());
            let pool = choose(&left);
            left.take(&pool)?;
            let had = task.exhausted.load(Ordering::Relaxed);
            task.write_budget(left.narrow());
            task.exhausted.store(had, Ordering::Relaxed);
            task.ops_granted.fetch_sub(pool.ops, Ordering::Relaxed);
            pool
        }
    };
    Ok((pool, Source::Budget))
}

/// The innermost of these nurseries that has a pool, or null.
fn with_pool(mut core: *const NurseryCore) -> *const NurseryCore {
    // SAFETY: null, or a nursery of a frame around this one, of this task or of one that waits for this one.
    while let Some(outer) = unsafe { core.as_ref() }.filter(|core| core.is_transparent) {
        core = outer.outer;
    }
    core
}

/// What a nursery had left goes back.
#[inline]
pub(crate) fn give_back(cx: &Cx, pool: &Pool, source: Source) {
    if *pool == Pool::ZERO {
        return;
    }
    match source {
        Source::Budget => cx.take_back(*pool),
        Source::Own(account) => {
            cx.task().nursery().change_ext(&account, |ext| ext.own_pool.get_or_insert_default().put(pool));
        }
        // SAFETY: the nursery that the pool came from, which is still open: around this frame, and of this task.
        Source::Open(open) => unsafe { &*open }.put_own(pool),
        // SAFETY: as above, of a task that waits for this one.
        Source::Fork(around) => unsafe { &*around }.put_back(pool),
    }
}

/// Moves more into the pool of a nursery, from where its pool came from.
pub(super) fn top_up(core: &NurseryCore, owner: Option<TaskPtr>, amount: &Pool) -> Result<(), Unpayable> {
    match owner {
        Some(owner) => {
            take_pool(&Cx::new(owner), core.outer, Some(*amount))?;
        }
        None => core.rt().pool.lock().expect("no panic while it is held").take(amount)?,
    }
    core.put_back(amount);
    Ok(())
}

/// Blocks the task until all children have ended. A cancelled owner cancels its nursery and goes on waiting.
pub(crate) fn await_children(core: &NurseryCore, cx: &Cx) {
    let task = cx.task();
    let masked = task.mask.get();
    core.owner_awaits(true);
    while core.wait_group.wait(task_word(cx.task_ptr())) {
        if cx.must_stop() {
            core.cancel(None);
            // The children are told; until they have ended there is nothing to acknowledge.
            let _ = task.mask.begin_wait();
        }
        cx.block(WaitReason::NurseryAwait);
    }
    task.mask.set(masked);
    core.owner_awaits(false);
}

/// Blocks the thread until all children have ended.
pub(super) fn await_children_blocking(core: &NurseryCore) {
    core.owner_awaits(true);
    let thread = Arc::new(ThreadWait::default());
    loop {
        let word = thread.word();
        if !core.wait_group.wait(word) {
            ThreadWait::take_back(word);
            break;
        }
        thread.wait(None);
    }
    core.owner_awaits(false);
}

/// What a nursery of an ordinary thread takes of the root pool if it does not say. Other threads may open nurseries at the
/// same time. The nursery of a run, which can draw on the root pool later, begins with a small part. Any other begins with
/// half of what is left.
fn root_share(left: &Pool, is_run: bool) -> Pool {
    if !is_run {
        return left.part(2);
    }
    /// Of a small pool: enough to begin with.
    const LEAST: u64 = 16;
    let mut share = left.part(64);
    Component::ALL.into_iter().for_each(|component| {
        let more = LEAST.min(left.get(component)).saturating_sub(share.get(component));
        share.put(&Pool::only(component, more));
    });
    share
}

/// A nursery of an ordinary thread, not yet entered.
pub(super) fn found_by_host(
    rt: &Inner,
    options: &NurseryOptions,
    is_run: bool,
) -> Result<NurseryCore, NurseryError> {
    let pool = {
        let mut root = rt.pool.lock().expect("no panic while it is held");
        let pool = options.pool.unwrap_or_else(|| root_share(&root, is_run));
        root.take(&pool).map_err(unpayable_pool)?;
        pool
    };
    let root_caps = rt.config.root_caps;
    let caps = options.caps.map_or(root_caps, |caps| root_caps.intersect(&caps));
    let mut core = NurseryCore::new(rt, null(), 0, null(), caps, options.on_exhausted, pool);
    (core.is_run, core.draws_on_root) = (is_run, is_run);
    core.isolates = options.isolates;
    Ok(core)
}

/// The runtime knows of the nursery from here on, which must not move. Returns its deadline's timer.
pub(super) fn enter_host(rt: &Inner, core: &NurseryCore, options: &NurseryOptions) -> Option<TimerKey> {
    rt.registry.enter(core);
    let deadline = set_deadline(rt, core, options);
    rt.note_host_nursery(core, true);
    deadline
}

/// Waits for the children. The runtime does not know of the nursery any more.
pub(super) fn leave_host(rt: &Inner, core: &NurseryCore, deadline: Option<TimerKey>) {
    if core.close() {
        await_children_blocking(core);
    }
    if let Some(key) = deadline {
        rt.timers.remove(key);
    }
    rt.note_host_nursery(core, false);
    rt.registry.leave(core);
}

/// What came of a nursery that its thread has left. An error is a panic of the code inside.
pub(super) fn conclude_host<R>(
    rt: &Inner,
    core: &NurseryCore,
    body: std::thread::Result<R>,
) -> std::thread::Result<Result<R, NurseryError>> {
    let give_back = |pool: Pool| rt.pool.lock().expect("no panic while it is held").put(&pool);
    outcome(core, body, false, give_back)
}

pub(crate) fn host_nursery<'env, F, R>(
    rt: &Inner,
    options: NurseryOptions,
    is_run: bool,
    f: F,
) -> Result<R, NurseryError>
where
    F: for<'scope> FnOnce(&'scope Nursery<'scope, 'env>) -> R,
{
    let core = found_by_host(rt, &options, is_run)?;
    let no_unwind = NoUnwind;
    let deadline = enter_host(rt, &core, &options);
    let nursery = Nursery::of(&core, None);
    let result = catch_unwind(AssertUnwindSafe(|| f(&nursery)));
    if result.is_err() {
        core.cancel(None);
    }
    leave_host(rt, &core, deadline);
    no_unwind.end();
    conclude_host(rt, &core, result).unwrap_or_else(|payload| resume_unwind(payload))
}
