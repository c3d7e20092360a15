//! Nurseries, and the tasks in them.
//!
//! Conserved: a nursery is ended once, by its owner or by the shutdown of its scheduler. The handles of its tasks are dropped
//! before. Only its owner spawns into it and reads its tasks' results.
#![allow(unsafe_code)]

use crate::caller::{Caller, Faults, Nurseries, OwnerId, Work, call, status};
use crate::context;
use crate::handle::{Kind, Name, Table};
use crate::layout::{
    JANUS_EXHAUSTED_CANCEL, JANUS_EXHAUSTED_FAIL, JANUS_EXHAUSTED_PARK, JANUS_EXHAUSTED_REFILL,
    janus_nursery, janus_nursery_options, janus_nursery_result, janus_pool, janus_spawn_options, janus_task,
    janus_task_fn,
};
use crate::quota::QUOTAS;
use crate::scheduler::{Scheduler, current, reserved, select};
use crate::status::{
    JANUS_INVALID_ARGUMENT, JANUS_NOT_INNERMOST, JANUS_NOT_OWNER, JANUS_NURSERY_NOT_ACTIVE, JANUS_OK,
    JANUS_SHUT_DOWN, Problem,
};
use mainspring::{
    Budget, Canceller, Caps, Cx, Exhaustion, Handle, NurseryError, NurseryOptions, OpenNursery, Pool,
    Runtime, Stop, TaskError,
};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a nursery costs the task that makes it, until the task ends.
const NURSERY_BYTES: usize = 512;

/// A nursery that has not ended.
struct Open {
    nursery: OpenNursery,
    tasks: HashMap<Name, Handle<'static, i64>>,
}

enum Stage {
    Open(Open),
    Ended(janus_nursery_result, String),
}

/// What may go to another thread: the shutdown of a scheduler ends the nurseries of other threads.
struct Movable(Stage);

// SAFETY: what a nursery and its handles keep for their owner is not of a thread. The lock around it lets one thread at a time use
// it, and the nurseries of tasks are used by their task alone.
unsafe impl Send for Movable {}

/// A nursery.
pub(crate) struct Entry {
    owner: OwnerId,
    canceller: Canceller,
    /// Where its tasks run.
    home: Arc<Scheduler>,
    /// For a nursery of a thread: the same.
    scheduler: Option<Arc<Scheduler>>,
    faults: Faults,
    /// Held while its owner waits in it. A task that waits so keeps nobody else out: others do not get past the owner's number.
    stage: Mutex<Movable>,
}

pub(crate) static NURSERIES: Table<Arc<Entry>> = Table::new(Kind::Nursery);

/// Tasks are named for the owner of their nursery.
pub(crate) static TASKS: Table<Arc<Entry>> = Table::new(Kind::Task);

impl Entry {
    /// Of a thread.
    pub(crate) fn new(owner: OwnerId, scheduler: Arc<Scheduler>, nursery: OpenNursery) -> Self {
        Self { scheduler: Some(scheduler.clone()), ..Self::of_task(owner, scheduler, nursery) }
    }

    fn of_task(owner: OwnerId, home: Arc<Scheduler>, nursery: OpenNursery) -> Self {
        let canceller = nursery.canceller();
        let stage = Mutex::new(Movable(Stage::Open(Open { nursery, tasks: HashMap::new() })));
        Self { owner, canceller, home, scheduler: None, faults: Faults::default(), stage }
    }

    pub(crate) fn faults(&self) -> Faults {
        self.faults.clone()
    }

    pub(crate) fn cancel(&self) -> bool {
        self.canceller.cancel()
    }

    fn stage(&self) -> MutexGuard<'_, Movable> {
        // A stop may unwind through an owner that holds it. Nothing is halfway then.
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses all but the owner.
    fn owned_by(&self, caller: &Caller<'_>) -> Result<(), Problem> {
        if self.owner == caller.id() { Ok(()) } else { Err(JANUS_NOT_OWNER.into()) }
    }

    /// Uses the nursery while it is open.
    fn with<R>(&self, f: impl FnOnce(&mut Open) -> Result<R, Problem>) -> Result<R, Problem> {
        // Kept until the runtime is not used any more.
        let _inside = self.scheduler.as_ref().map(|scheduler| scheduler.enter()).transpose()?;
        match &mut self.stage().0 {
            Stage::Open(open) => f(open),
            Stage::Ended(..) => Err(JANUS_NURSERY_NOT_ACTIVE.into()),
        }
    }

    /// Uses one of its tasks.
    pub(crate) fn with_task<R>(
        &self,
        caller: &Caller<'_>,
        task: Name,
        f: impl FnOnce(&OpenNursery, &Handle<'static, i64>) -> Result<R, Problem>,
    ) -> Result<R, Problem> {
        self.owned_by(caller)?;
        self.with(|open| {
            let handle = open.tasks.get(&task).ok_or(JANUS_NURSERY_NOT_ACTIVE)?;
            f(&open.nursery, handle)
        })
    }

    /// Waits for a task and takes its result.
    pub(crate) fn join(
        &self,
        caller: &mut Caller<'_>,
        task: Name,
    ) -> Result<Result<i64, TaskError>, Problem> {
        self.owned_by(caller)?;
        let cx = caller.running()?;
        self.with(|open| {
            let handle = open.tasks.remove(&task).ok_or(JANUS_NURSERY_NOT_ACTIVE)?;
            TASKS.remove(task)?;
            Ok(match cx {
                Some(cx) => handle.join(cx),
                None => handle.wait(),
            })
        })
    }

    /// Nobody will ask for the task's result.
    pub(crate) fn detach(&self, caller: &Caller<'_>, task: Name) -> Result<(), Problem> {
        self.owned_by(caller)?;
        self.with(|open| {
            open.tasks.remove(&task).ok_or(JANUS_NURSERY_NOT_ACTIVE)?;
            TASKS.remove(task)?;
            Ok(())
        })
    }

    /// Runs the root task of a run, and ends the run's nursery.
    pub(crate) fn run_root(&self, runtime: &Runtime, work: Work) -> Result<Result<i64, TaskError>, Problem> {
        let mut stage = self.stage();
        let Stage::Open(open) = &mut stage.0 else { return Err(JANUS_SHUT_DOWN.into()) };
        let root = runtime.spawn_root(&open.nursery.nursery(), move |cx| work.run(cx));
        let ended = root.map(Handle::wait);
        let result = self.end(&mut stage, None).map_err(|_| Problem::from(JANUS_SHUT_DOWN))?;
        match (ended?, &stage.0) {
            // Its nursery knows why it was cancelled.
            (Err(TaskError::Cancelled), Stage::Ended(_, text)) if result.status != JANUS_OK => {
                Err(Problem::new(result.status, text))
            }
            (ended, _) => Ok(ended),
        }
    }

    /// Ends the nursery if it has not ended, and says how. An error is what the task has to stop for.
    fn end(
        &self,
        stage: &mut MutexGuard<'_, Movable>,
        task: Option<(&Cx, Option<Stop>)>,
    ) -> Result<janus_nursery_result, Stop> {
        let over = Stage::Ended(janus_nursery_result::default(), String::new());
        let open = match std::mem::replace(&mut stage.0, over) {
            Stage::Open(open) => open,
            ended @ Stage::Ended(result, _) => {
                stage.0 = ended;
                return Ok(result);
            }
        };
        let Open { nursery, tasks } = open;
        for (name, handle) in tasks {
            // The name was in the table as long as the handle was here.
            let _ = TASKS.remove(name);
            drop(handle);
        }
        let (cx, stop) = task.unzip();
        let (ended, stop) = match nursery.end(cx, stop.flatten()) {
            Ok(ended) => (ended, None),
            Err(stop) => {
                let error = TaskError::Cancelled;
                (Err(NurseryError { task: None, name: None, error }), Some(stop))
            }
        };
        let (result, text) = self.result_of(ended);
        stage.0 = Stage::Ended(result, text);
        stop.map_or(Ok(result), Err)
    }

    fn result_of(&self, ended: Result<(), NurseryError>) -> (janus_nursery_result, String) {
        let Err(error) = ended else { return (janus_nursery_result::default(), String::new()) };
        let task_id = error.task.map_or(0, |task| task.0);
        let faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = faults.iter().find(|(id, _)| *id == task_id).map(|(_, fault)| *fault);
        let problem = Problem::from(error);
        // The runtime hands on the text of a child's own error, and not its number.
        let (status, code) = fault.map_or((problem.status, 0), |fault| (fault.status, fault.code));
        (janus_nursery_result { status, reserved: 0, code, task_id }, problem.text)
    }

    /// Ends a nursery of a thread at the shutdown of its scheduler, which has cancelled it.
    pub(crate) fn end_by_shutdown(&self) {
        // No task stops by it.
        let _ = self.end(&mut self.stage(), None);
    }
}

/// Ends all nurseries of a caller that goes away, the innermost first, and forgets them.
pub(crate) fn abandon(nurseries: &mut Nurseries, mut task: Option<(&Cx, &mut Option<Stop>)>) {
    for name in std::mem::take(&mut nurseries.open).into_iter().rev() {
        let Ok(entry) = NURSERIES.remove(name) else { continue };
        entry.cancel();
        let of_task = task.as_mut().map(|(cx, stop)| (*cx, stop.take()));
        // A scheduler that is shut down has ended its nurseries.
        let inside = entry.scheduler.as_ref().map(|scheduler| scheduler.enter());
        if let Err(again) = entry.end(&mut entry.stage(), of_task)
            && let Some((_, stop)) = &mut task
        {
            **stop = Some(again);
        }
        drop(inside);
        if let Some(scheduler) = &entry.scheduler {
            scheduler.forget(&entry);
        }
    }
    for name in nurseries.ended.drain() {
        let _ = NURSERIES.remove(name);
    }
}

fn options(options: &janus_nursery_options) -> Result<NurseryOptions, Problem> {
    reserved(&options.reserved)?;
    let mut built = NurseryOptions::new().on_exhausted(match options.on_exhausted {
        JANUS_EXHAUSTED_REFILL => Exhaustion::RefillOrFail,
        JANUS_EXHAUSTED_FAIL => Exhaustion::Fail,
        JANUS_EXHAUSTED_PARK => Exhaustion::Park,
        JANUS_EXHAUSTED_CANCEL => Exhaustion::Cancel,
        other => {
            return Err(Problem::new(
                JANUS_INVALID_ARGUMENT,
                format_args!("there is no way {other} to be exhausted"),
            ));
        }
    });
    if options.has_pool != 0 {
        built = built.pool(options.pool.into());
    }
    if options.deadline_ns != 0 {
        built = built.deadline(Duration::from_nanos(options.deadline_ns));
    }
    Ok(built)
}

fn create(caller: &mut Caller<'_>, asked: &janus_nursery_options) -> Result<Name, Problem> {
    let options = options(asked)?;
    let owner = caller.id();
    let entry = match caller {
        Caller::Task(frame) => {
            let home = frame.scheduler.clone();
            let cx = frame.running()?;
            cx.charge_alloc(NURSERY_BYTES)?;
            // SAFETY: the frame ends it before the task does, and `end` lets only the innermost one end.
            let open = unsafe { cx.open_nursery(options) }?;
            Arc::new(Entry::of_task(owner, home, open))
        }
        Caller::Host(host) => {
            let scheduler = current(host.scheduler)?;
            let inside = scheduler.enter()?;
            // SAFETY: the thread, or the shutdown, ends it before the runtime goes.
            let open = unsafe { inside.runtime().open_nursery(options) }?;
            let entry = Arc::new(Entry::new(owner, scheduler.clone(), open));
            if !scheduler.note(&entry) {
                entry.end_by_shutdown();
                return Err(JANUS_SHUT_DOWN.into());
            }
            entry
        }
    };
    // From here on a shutdown waits for the entry's lock.
    match NURSERIES.insert(entry.clone()) {
        Ok(name) => {
            caller.nurseries().open.push(name);
            Ok(name)
        }
        Err(refused) => {
            let task = caller.task().ok().map(|frame| (frame.cx, None));
            let ended = entry.end(&mut entry.stage(), task);
            if let (Err(stop), Ok(frame)) = (ended, caller.task()) {
                frame.stop = Some(stop);
            }
            if let Some(scheduler) = &entry.scheduler {
                scheduler.forget(&entry);
            }
            Err(refused.into())
        }
    }
}

/// Opens a nursery of the calling task, or of the calling thread on its current scheduler. Null if that fails.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_nursery_create() -> janus_nursery {
    call(|caller| create(caller, &janus_nursery_options::default())).map_or(null_mut(), Name::handle)
}

/// As `janus_nursery_create`, with options.
///
/// # Safety
///
/// `options` is null, which is the default, or can be read.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_nursery_create_with(options: *const janus_nursery_options) -> janus_nursery {
    // SAFETY: null, or the caller says that it can be read.
    let options = unsafe { options.as_ref() }.copied().unwrap_or_default();
    call(|caller| create(caller, &options)).map_or(null_mut(), Name::handle)
}

/// The capabilities that a child asks for.
fn child_caps(options: &janus_spawn_options) -> Result<Caps, Problem> {
    let all = Caps::root(u32::MAX, Budget::MAX, options.recharge_limit.into(), u32::MAX, u32::MAX);
    select(all.with_contexts(options.context_count, options.context_share_ppm), options.caps)
}

fn start(
    entry: &Entry,
    open: &Open,
    function: janus_task_fn,
    arg: *mut c_void,
    options: &janus_spawn_options,
) -> Result<Handle<'static, i64>, Problem> {
    reserved(&options.reserved)?;
    let function = function.ok_or(JANUS_INVALID_ARGUMENT)?;
    let work = Work { function, arg, faults: entry.faults(), scheduler: entry.home.clone() };
    let context = (!options.context.is_null()).then(|| context::Entry::of(options.context)).transpose()?;
    let quota = (!options.quota.is_null()).then(|| QUOTAS.get(Name::of(options.quota))).transpose()?;
    let nursery = open.nursery.nursery();
    let mut builder = nursery.builder();
    if options.has_budget != 0 {
        builder = builder.budget(options.budget.into());
    }
    if options.has_pool != 0 {
        builder = builder.pool(options.pool.into());
    }
    if options.caps != 0 {
        builder = builder.caps(child_caps(options)?);
    }
    if options.tenant != 0 {
        builder = builder.tenant(options.tenant as usize - 1);
    }
    if options.stack_size != 0 {
        builder = builder.stack_size(options.stack_size);
    }
    if let Some(context) = &context {
        builder = builder.context(context);
    }
    if let Some(quota) = &quota {
        builder = builder.quota(quota);
    }
    Ok(builder.spawn_try(move |cx| work.run(cx))?)
}

fn spawn(
    caller: &mut Caller<'_>,
    nursery: Name,
    function: janus_task_fn,
    arg: *mut c_void,
    options: &janus_spawn_options,
) -> Result<Name, Problem> {
    let entry = NURSERIES.get(nursery)?;
    entry.owned_by(caller)?;
    caller.running()?;
    entry.with(|open| {
        let name = TASKS.insert(entry.clone())?;
        let handle = Stop::catch(|| start(&entry, open, function, arg, options));
        match handle {
            Ok(Ok(handle)) => {
                open.tasks.insert(name, handle);
                Ok(name)
            }
            failed => {
                let _ = TASKS.remove(name);
                match failed {
                    Ok(refused) => refused.map(|_| name),
                    // The child may have started. Its nursery waits for it.
                    Err(stop) => stop.resume(),
                }
            }
        }
    })
}

/// Spawns a task into the nursery. Null if that fails. For the nursery's owner.
///
/// # Safety
///
/// `function` may be called with `arg` on another thread until the nursery has ended, and must not throw.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_nursery_spawn(
    nursery: janus_nursery,
    function: janus_task_fn,
    arg: *mut c_void,
) -> janus_task {
    let options = janus_spawn_options::default();
    call(|caller| spawn(caller, Name::of(nursery), function, arg, &options)).map_or(null_mut(), Name::handle)
}

/// As `janus_nursery_spawn`, with options.
///
/// # Safety
///
/// As for `janus_nursery_spawn`. `options` is null, which is the default, or can be read.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_nursery_spawn_with(
    nursery: janus_nursery,
    function: janus_task_fn,
    arg: *mut c_void,
    options: *const janus_spawn_options,
) -> janus_task {
    // SAFETY: null, or the caller says that it can be read.
    let options = unsafe { options.as_ref() }.copied().unwrap_or_default();
    call(|caller| spawn(caller, Name::of(nursery), function, arg, &options)).map_or(null_mut(), Name::handle)
}

/// Spawns a task into the innermost open nursery of the calling task or thread. Nobody gets its result but the nursery.
///
/// # Safety
///
/// As for `janus_nursery_spawn`.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_scheduler_spawn(function: janus_task_fn, arg: *mut c_void) -> i32 {
    status(|caller| {
        let innermost = *caller.nurseries().open.last().ok_or(JANUS_NURSERY_NOT_ACTIVE)?;
        let entry = NURSERIES.get(innermost)?;
        caller.running()?;
        // Without a handle that anybody keeps.
        entry.with(|open| start(&entry, open, function, arg, &janus_spawn_options::default()).map(drop))
    })
}

/// Ends the nursery, and says how.
fn end(caller: &mut Caller<'_>, name: Name) -> Result<janus_nursery_result, Problem> {
    let entry = NURSERIES.get(name)?;
    entry.owned_by(caller)?;
    let is_task = matches!(caller, Caller::Task(_));
    let nurseries = caller.nurseries();
    if let Some(at) = nurseries.open.iter().position(|open| *open == name) {
        if is_task && at + 1 < nurseries.open.len() {
            return Err(JANUS_NOT_INNERMOST.into());
        }
        nurseries.open.remove(at);
        nurseries.ended.insert(name);
    }
    let task = caller.task().ok().map(|frame| (frame.cx, frame.stop.take()));
    // Kept until the runtime is not used any more. A scheduler that is shut down has ended the nursery.
    let inside = entry.scheduler.as_ref().map(|scheduler| scheduler.enter());
    let ended = entry.end(&mut entry.stage(), task);
    drop(inside);
    if let Some(scheduler) = &entry.scheduler {
        scheduler.forget(&entry);
    }
    match ended {
        Ok(result) => {
            if let Stage::Ended(_, text) = &entry.stage().0 {
                caller.error().clone_from(text);
            }
            Ok(result)
        }
        Err(stop) => stop.resume(),
    }
}

fn failed(status: i32) -> janus_nursery_result {
    janus_nursery_result { status, ..janus_nursery_result::default() }
}

/// Waits for all tasks of the nursery and ends it. It takes no more tasks. A task ends its nurseries from the inside out. If a task
/// failed, `janus_error_text` says how. A second call gives the same result.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_nursery_await(nursery: janus_nursery) -> janus_nursery_result {
    call(|caller| end(caller, Name::of(nursery))).unwrap_or_else(failed)
}

/// Ends the nursery if it has not ended, and gives its handle back. The status is about the handle: how tasks ended is what
/// `janus_nursery_await` says.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_nursery_destroy(nursery: janus_nursery) -> i32 {
    status(|caller| {
        let name = Name::of(nursery);
        end(caller, name)?;
        caller.nurseries().ended.remove(&name);
        NURSERIES.remove(name)?;
        Ok(())
    })
}

/// Tells all tasks of the nursery to stop. For any task or thread.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_nursery_cancel(nursery: janus_nursery) -> i32 {
    status(|_| {
        let entry = NURSERIES.get(Name::of(nursery))?;
        if entry.cancel() { Ok(()) } else { Err(JANUS_NURSERY_NOT_ACTIVE.into()) }
    })
}

/// What is left of the nursery's pool. For its owner.
///
/// # Safety
///
/// `pool` is null or can be written to.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_nursery_pool(nursery: janus_nursery, pool: *mut janus_pool) -> i32 {
    status(|caller| {
        let entry = NURSERIES.get(Name::of(nursery))?;
        entry.owned_by(caller)?;
        let left = entry.with(|open| Ok(open.nursery.nursery().pool()))?;
        if pool.is_null() {
            return Err(JANUS_INVALID_ARGUMENT.into());
        }
        // SAFETY: not null, and the caller says that it can be written to.
        unsafe { pool.write(left.into()) };
        Ok(())
    })
}

/// Moves more into the nursery's pool, from where the pool came from. For its owner.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_nursery_top_up(nursery: janus_nursery, amount: janus_pool) -> i32 {
    status(|caller| {
        let entry = NURSERIES.get(Name::of(nursery))?;
        entry.owned_by(caller)?;
        entry.with(|open| Ok(open.nursery.nursery().top_up(Pool::from(amount))?))
    })
}

/// The tasks of the nursery that have not ended. For its owner.
///
/// # Safety
///
/// `live` is null or can be written to.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_nursery_live(nursery: janus_nursery, live: *mut u64) -> i32 {
    status(|caller| {
        let entry = NURSERIES.get(Name::of(nursery))?;
        entry.owned_by(caller)?;
        let count = entry.with(|open| Ok(open.nursery.nursery().live()))?;
        if live.is_null() {
            return Err(JANUS_INVALID_ARGUMENT.into());
        }
        // SAFETY: not null, and the caller says that it can be written to.
        unsafe { live.write(count) };
        Ok(())
    })
}
