//! Schedulers: made and shut down by threads, never by tasks, which would get authority by it that nobody granted them.
//!
//! Conserved: a scheduler is shut down by one call. Its nurseries have ended by then, and no thread is inside it.
#![allow(unsafe_code)]

use crate::caller::{Caller, Work, call, status};
use crate::fork;
use crate::handle::{Kind, Name, Table};
use crate::layout::{
    JANUS_CAP_BUDGET, JANUS_CAP_CHANNEL, JANUS_CAP_CONTEXT, JANUS_CAP_SPAWN, JANUS_CAPS_NONE,
    JANUS_CAPS_OF_PROFILE, JANUS_ORDER_FREE, JANUS_ORDER_SEEDED, JANUS_ORDER_SEEDED_DEADLOCK_FAILS,
    JANUS_PROFILE_CLUSTER, JANUS_PROFILE_SERVICE, JANUS_PROFILE_SOVEREIGN, janus_budget, janus_pool,
    janus_scheduler, janus_scheduler_config, janus_task_fn,
};
use crate::nursery::Entry;
use crate::status::{JANUS_IN_TASK, JANUS_INVALID_ARGUMENT, JANUS_SHUT_DOWN, Problem, TaskFault};
use mainspring::{Budget, Caps, Config, FairTaskSettings, Pool, Profile, Runtime, TaskError, Weight};
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

pub(crate) struct Scheduler {
    /// None after the shutdown. Threads that are inside hold it for reading.
    runtime: RwLock<Option<Runtime>>,
    /// The nurseries of threads; none any more when it is closed.
    nurseries: Mutex<Option<Vec<Arc<Entry>>>>,
}

/// A thread is inside the scheduler.
pub(crate) struct Inside<'a>(RwLockReadGuard<'a, Option<Runtime>>);

impl Inside<'_> {
    pub(crate) fn runtime(&self) -> &Runtime {
        self.0.as_ref().expect("looked at on the way in")
    }
}

impl Scheduler {
    /// Keeps the runtime until the value is dropped.
    pub(crate) fn enter(&self) -> Result<Inside<'_>, Problem> {
        let inside = self.runtime.read().unwrap_or_else(PoisonError::into_inner);
        if inside.is_some() { Ok(Inside(inside)) } else { Err(JANUS_SHUT_DOWN.into()) }
    }

    /// The shutdown will end this nursery. False if it has begun.
    pub(crate) fn note(&self, entry: &Arc<Entry>) -> bool {
        let mut nurseries = self.nurseries.lock().unwrap_or_else(PoisonError::into_inner);
        nurseries.as_mut().map(|all| all.push(entry.clone())).is_some()
    }

    /// The nursery has ended.
    pub(crate) fn forget(&self, entry: &Entry) {
        let mut nurseries = self.nurseries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(all) = nurseries.as_mut() {
            all.retain(|other| !std::ptr::eq(&**other, entry));
        }
    }

    fn shut_down(&self) {
        let open = self.nurseries.lock().unwrap_or_else(PoisonError::into_inner).take();
        let open = open.unwrap_or_default();
        open.iter().for_each(|entry| _ = entry.cancel());
        open.iter().for_each(|entry| entry.end_by_shutdown());
        // Threads that were inside have left when this is had.
        let runtime = self.runtime.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(runtime);
    }
}

pub(crate) static SCHEDULERS: Table<Arc<Scheduler>> = Table::new(Kind::Scheduler);

fn profile(number: u32) -> Result<Profile, Problem> {
    match number {
        JANUS_PROFILE_SERVICE => Ok(Profile::Service),
        JANUS_PROFILE_CLUSTER => Ok(Profile::Cluster),
        JANUS_PROFILE_SOVEREIGN => Ok(Profile::Sovereign),
        other => Err(Problem::new(JANUS_INVALID_ARGUMENT, format_args!("there is no profile {other}"))),
    }
}

/// The capabilities that `bits` name, out of `all`.
pub(crate) fn select(all: Caps, bits: u32) -> Result<Caps, Problem> {
    const KNOWN: u32 =
        JANUS_CAP_SPAWN | JANUS_CAP_BUDGET | JANUS_CAP_CHANNEL | JANUS_CAP_CONTEXT | JANUS_CAPS_NONE;
    if bits & !KNOWN != 0 {
        return Err(Problem::new(JANUS_INVALID_ARGUMENT, format_args!("{bits:#x} are no capabilities")));
    }
    let mut caps = all.without_executor();
    if bits & JANUS_CAP_SPAWN == 0 {
        caps = caps.without_spawn();
    }
    if bits & JANUS_CAP_BUDGET == 0 {
        caps = caps.without_budget();
    }
    if bits & JANUS_CAP_CHANNEL == 0 {
        caps = caps.without_channel();
    }
    if bits & JANUS_CAP_CONTEXT == 0 {
        caps = caps.without_context();
    }
    Ok(caps)
}

/// Refuses fields that a later version may give a meaning.
pub(crate) fn reserved(words: &[u64]) -> Result<(), Problem> {
    if words.iter().all(|word| *word == 0) {
        return Ok(());
    }
    Err(Problem::new(
        JANUS_INVALID_ARGUMENT,
        "reserved fields must be 0: start from a structure that is all zero",
    ))
}

fn build(config: &janus_scheduler_config) -> Result<Runtime, Problem> {
    reserved(&config.reserved)?;
    let mut built = Config::new(profile(config.profile)?).workers(config.worker_count as usize);
    built = match config.deterministic {
        JANUS_ORDER_FREE => built,
        JANUS_ORDER_SEEDED => built.deterministic_seed(config.deterministic_seed),
        JANUS_ORDER_SEEDED_DEADLOCK_FAILS => {
            built.deterministic_seed(config.deterministic_seed).fail_on_deadlock()
        }
        other => return Err(Problem::new(JANUS_INVALID_ARGUMENT, format_args!("there is no order {other}"))),
    };
    if config.stack_size != 0 {
        built = built.stack_size(config.stack_size);
    }
    if config.caps != JANUS_CAPS_OF_PROFILE {
        let (child, limit) = (Budget::from(config.child_budget), Budget::from(config.recharge_limit));
        built = built.root_caps(select(
            granting(Caps::root(config.task_limit, child, limit, u32::MAX, u32::MAX), config),
            config.caps,
        )?);
    } else if config.context_count != 0 {
        built = built.root_caps(granting(profile(config.profile)?.implicit_caps(), config));
    }
    if config.context_count != 0 {
        const MOST: u32 = 1 << 12;
        if config.tenant_count != 0 || config.context_count > MOST {
            let why = format_args!("at most {MOST} contexts, and no tenants beside them");
            return Err(Problem::new(JANUS_INVALID_ARGUMENT, why));
        }
        let contexts = config.context_count as usize;
        built = built.fair_by_task(FairTaskSettings { contexts, ..FairTaskSettings::default() });
    }
    if config.root_pool != janus_pool::default() {
        let pool = Pool::from(config.root_pool);
        // Sums of pools stay exact below that.
        built = built.root_pool(pool.min(&Pool::AMPLE));
    }
    if config.tenant_count != 0 {
        built = built.fair(&weights(config)?);
    }
    Ok(built.build()?)
}

/// Capabilities with the time that the config grants.
fn granting(caps: Caps, config: &janus_scheduler_config) -> Caps {
    caps.with_contexts(config.context_count, config.context_share_ppm)
}

fn weights(config: &janus_scheduler_config) -> Result<Vec<Weight>, Problem> {
    const MOST: u32 = 4096;
    if config.tenant_weights.is_null() || config.tenant_count > MOST {
        return Err(Problem::new(
            JANUS_INVALID_ARGUMENT,
            format_args!("name the weights of 1 to {MOST} tenants in tenant_weights"),
        ));
    }
    // SAFETY: not null, and the caller says how many there are.
    let weights = unsafe { std::slice::from_raw_parts(config.tenant_weights, config.tenant_count as usize) };
    let weight = |weight: &u32| {
        Weight::new(u64::from(*weight)).map_err(|error| Problem::new(JANUS_INVALID_ARGUMENT, error))
    };
    weights.iter().map(weight).collect()
}

fn create(config: &janus_scheduler_config) -> Result<Name, Problem> {
    fork::watch()?;
    let runtime = RwLock::new(Some(build(config)?));
    let scheduler = Scheduler { runtime, nurseries: Mutex::new(Some(Vec::new())) };
    Ok(SCHEDULERS.insert(Arc::new(scheduler))?)
}

/// The scheduler of threads that have made none.
pub(crate) fn default_scheduler() -> Result<Arc<Scheduler>, Problem> {
    static DEFAULT: Mutex<Option<Name>> = Mutex::new(None);
    let mut default = DEFAULT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(scheduler) = default.and_then(|name| SCHEDULERS.get(name).ok()) {
        return Ok(scheduler);
    }
    let name = create(&janus_scheduler_config_default())?;
    *default = Some(name);
    Ok(SCHEDULERS.get(name)?)
}

/// The service profile, with one worker per core.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_scheduler_config_default() -> janus_scheduler_config {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    janus_scheduler_config {
        worker_count: u32::try_from(cores).unwrap_or(1).min(1024),
        profile: JANUS_PROFILE_SERVICE,
        deterministic: JANUS_ORDER_FREE,
        caps: JANUS_CAPS_OF_PROFILE,
        deterministic_seed: 0,
        stack_size: 0,
        task_limit: 0,
        tenant_count: 0,
        tenant_weights: std::ptr::null(),
        child_budget: janus_budget::default(),
        recharge_limit: janus_budget::default(),
        root_pool: janus_pool::default(),
        context_count: 0,
        context_share_ppm: 0,
        reserved: [0; 3],
    }
}

/// Makes a scheduler. Null if that fails: `janus_error_text` says why. It is the current one of the calling thread, if that has
/// none. Not for tasks.
///
/// # Safety
///
/// `config.tenant_weights` is null or has `config.tenant_count` elements.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_scheduler_create(config: janus_scheduler_config) -> janus_scheduler {
    let created = call(|caller| {
        let Caller::Host(host) = caller else { return Err(JANUS_IN_TASK.into()) };
        let name = create(&config)?;
        host.scheduler.get_or_insert(name);
        Ok(name.handle())
    });
    created.unwrap_or(null_mut())
}

/// Makes the scheduler the one that the calling thread's nurseries are of; null for the default one. Not for tasks.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_scheduler_enter(scheduler: janus_scheduler) -> i32 {
    status(|caller| {
        let Caller::Host(host) = caller else { return Err(JANUS_IN_TASK.into()) };
        let name = (!scheduler.is_null()).then(|| Name::of(scheduler));
        name.map(|name| SCHEDULERS.get(name)).transpose()?;
        host.scheduler = name;
        Ok(())
    })
}

/// Cancels all that runs on the scheduler, waits until it has ended, and stops the workers. Nurseries that threads have open there
/// end as cancelled. Not for tasks.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_scheduler_shutdown(scheduler: janus_scheduler) -> i32 {
    status(|caller| {
        let Caller::Host(host) = caller else { return Err(JANUS_IN_TASK.into()) };
        let name = Name::of(scheduler);
        let scheduler = SCHEDULERS.remove(name)?;
        host.scheduler.take_if(|current| *current == name);
        scheduler.shut_down();
        Ok(())
    })
}

/// Runs `function` as a root task and waits for it. `result`, if not null, gets what it returned. Not for tasks, which open
/// nurseries.
///
/// # Safety
///
/// `function` may be called with `arg` on another thread, and must not throw. `result` is null or can be written to.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_scheduler_run(
    scheduler: janus_scheduler,
    function: janus_task_fn,
    arg: *mut c_void,
    result: *mut i64,
) -> i32 {
    status(|caller| {
        let Caller::Host(host) = caller else { return Err(JANUS_IN_TASK.into()) };
        let function = function.ok_or(JANUS_INVALID_ARGUMENT)?;
        let scheduler = match scheduler.is_null() {
            true => current(host.scheduler)?,
            false => SCHEDULERS.get(Name::of(scheduler))?,
        };
        let ended = run(&scheduler, caller.id(), |faults| Work {
            function,
            arg,
            faults,
            scheduler: scheduler.clone(),
        })?;
        let code = match &ended {
            Ok(value) => Some(*value),
            Err(TaskError::Failed(cause)) => cause.downcast_ref().map(|fault: &TaskFault| fault.code),
            Err(_) => None,
        };
        if let (Some(code), false) = (code, result.is_null()) {
            // SAFETY: not null, and the caller says that it can be written to.
            unsafe { result.write(code) };
        }
        ended.map(|_| ()).map_err(|error| Problem::from(&error))
    })
}

/// The scheduler of a thread, by its name.
pub(crate) fn current(name: Option<Name>) -> Result<Arc<Scheduler>, Problem> {
    name.map_or_else(default_scheduler, |name| Ok(SCHEDULERS.get(name)?))
}

fn run(
    scheduler: &Arc<Scheduler>,
    owner: crate::caller::OwnerId,
    work: impl FnOnce(crate::caller::Faults) -> Work,
) -> Result<Result<i64, TaskError>, Problem> {
    let inside = scheduler.enter()?;
    // SAFETY: the nursery is ended below on every way out, and `inside` keeps the runtime.
    let open = unsafe { inside.runtime().open_run() }?;
    let entry = Arc::new(Entry::new(owner, scheduler.clone(), open));
    if !scheduler.note(&entry) {
        entry.end_by_shutdown();
        return Err(JANUS_SHUT_DOWN.into());
    }
    let ended = entry.run_root(inside.runtime(), work(entry.faults()));
    scheduler.forget(&entry);
    ended
}

/// Where the order is seeded: a hash of the order of all dispatches and steals so far, and how many there were.
///
/// # Safety
///
/// `hash` and `count` are null or can be written to.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_scheduler_trace(
    scheduler: janus_scheduler,
    hash: *mut u64,
    count: *mut u64,
) -> i32 {
    status(|caller| {
        let Caller::Host(_) = caller else { return Err(JANUS_IN_TASK.into()) };
        let scheduler = SCHEDULERS.get(Name::of(scheduler))?;
        let trace = scheduler.enter()?.runtime().trace();
        let (is, steps) = trace.ok_or_else(|| {
            Problem::new(JANUS_INVALID_ARGUMENT, "only a seeded order has a trace: set `deterministic`")
        })?;
        for (place, value) in [(hash, is), (count, steps)] {
            if !place.is_null() {
                // SAFETY: not null, and the caller says that it can be written to.
                unsafe { place.write(value) };
            }
        }
        Ok(())
    })
}

/// How many workers the scheduler has; 0 if there is no such scheduler.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_scheduler_workers(scheduler: janus_scheduler) -> u32 {
    let workers = call(|caller| {
        let Caller::Host(_) = caller else { return Err(JANUS_IN_TASK.into()) };
        let scheduler = SCHEDULERS.get(Name::of(scheduler))?;
        Ok(scheduler.enter()?.runtime().workers() as u32)
    });
    workers.unwrap_or(0)
}

/// Copies the text of the last error of the calling task or thread, cut to fit and ended by a 0. Returns the length of the whole
/// text.
///
/// # Safety
///
/// `text` is null or has room for `size` bytes.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_error_text(text: *mut c_char, size: usize) -> usize {
    let copied = call(|caller| {
        let error = caller.error();
        if !text.is_null() && size > 0 {
            let mut cut = error.len().min(size - 1);
            while !error.is_char_boundary(cut) {
                cut -= 1;
            }
            // SAFETY: not null, and the caller says that there is room.
            unsafe {
                text.copy_from_nonoverlapping(error.as_ptr().cast(), cut);
                text.add(cut).write(0);
            }
        }
        Ok(error.len())
    });
    copied.unwrap_or(0)
}
