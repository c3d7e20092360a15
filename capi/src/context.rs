//! Scheduling contexts: CPU time that a handle stands for.
//!
//! Conserved: whoever has the handle can bind, see and revoke the context. When the handle is given back, the context is revoked. No call but
//! `janus_context_create` makes time, and that makes it out of what the scheduler's config granted.
#![allow(unsafe_code)]

use crate::caller::{Caller, call, status};
use crate::handle::{Kind, Name, Table};
use crate::layout::{
    JANUS_ANY_WORKER, JANUS_DEPLETED_BEST_EFFORT, JANUS_DEPLETED_THROTTLE, JANUS_FOREVER,
    JANUS_PLACE_AT_REST, JANUS_PLACE_BOUND, JANUS_PLACE_IN_FLIGHT, JANUS_PLACE_LENT, janus_context,
    janus_context_info, janus_context_notices, janus_reservation,
};
use crate::scheduler::{Scheduler, current, reserved};
use crate::status::{JANUS_IN_TASK, JANUS_INVALID_ARGUMENT, Problem};
use mainspring::context::{ContextState, Depleted, Event, Notices};
use mainspring::{ContextInfo, Reservation, SchedulingContext};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

/// What a handle costs the task that makes a context, until the task ends.
const CONTEXT_BYTES: usize = 512;

/// A context, and the scheduler whose time it is.
#[derive(Clone)]
pub(crate) struct Entry {
    context: Arc<SchedulingContext>,
    scheduler: Arc<Scheduler>,
}

pub(crate) static CONTEXTS: Table<Entry> = Table::new(Kind::Context);

impl Entry {
    /// Uses the context of a handle, if its scheduler is not shut down. The runtime is kept meanwhile.
    fn with<R>(
        handle: janus_context,
        f: impl FnOnce(&SchedulingContext) -> Result<R, Problem>,
    ) -> Result<R, Problem> {
        let entry = CONTEXTS.get(Name::of(handle))?;
        let _inside = entry.scheduler.enter()?;
        f(&entry.context)
    }

    /// As [`Entry::with`], for a task. It keeps the runtime by itself, and may wait.
    fn with_task<R>(
        caller: &mut Caller<'_>,
        handle: janus_context,
        f: impl FnOnce(&SchedulingContext, &mainspring::Cx) -> Result<R, Problem>,
    ) -> Result<R, Problem> {
        let entry = CONTEXTS.get(Name::of(handle))?;
        let frame = caller.task()?;
        if !Arc::ptr_eq(&frame.scheduler, &entry.scheduler) {
            return Err(mainspring::ContextError::OtherRuntime.into());
        }
        f(&entry.context, frame.running()?)
    }

    /// The context, for a child of a task or thread of that scheduler.
    pub(crate) fn of(handle: janus_context) -> Result<Arc<SchedulingContext>, Problem> {
        Ok(CONTEXTS.get(Name::of(handle))?.context)
    }
}

fn reservation(asked: &janus_reservation) -> Result<Reservation, Problem> {
    reserved(&asked.reserved)?;
    let ns = Duration::from_nanos;
    let mut built =
        Reservation::new(ns(asked.budget_ns), ns(asked.period_ns)).when_depleted(match asked.depleted {
            JANUS_DEPLETED_THROTTLE => Depleted::Throttle,
            JANUS_DEPLETED_BEST_EFFORT => Depleted::BestEffort,
            other => {
                return Err(Problem::new(
                    JANUS_INVALID_ARGUMENT,
                    format_args!("there is no way {other} to be depleted"),
                ));
            }
        });
    if asked.deadline_ns != 0 {
        built = built.deadline(ns(asked.deadline_ns));
    }
    if asked.worker != JANUS_ANY_WORKER {
        built = built.on_worker(asked.worker as usize);
    }
    Ok(built)
}

fn info_of(info: &ContextInfo) -> janus_context_info {
    let ns = |length: Duration| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    janus_context_info {
        budget_ns: ns(info.budget),
        period_ns: ns(info.period),
        deadline_ns: ns(info.deadline),
        remaining_ns: ns(info.remaining),
        used_ns: ns(info.used),
        used_on_loan_ns: ns(info.used_on_loan),
        overshoot_ns: ns(info.overshoot),
        depletions: info.depletions,
        misses: info.misses,
        worker: info.worker as u32,
        place: match info.state {
            ContextState::AtRest => JANUS_PLACE_AT_REST,
            ContextState::Bound => JANUS_PLACE_BOUND,
            ContextState::Lent => JANUS_PLACE_LENT,
            ContextState::InFlight => JANUS_PLACE_IN_FLIGHT,
        },
    }
}

fn notices_of(notices: Notices) -> janus_context_notices {
    let times = |event: Option<Event>| event.map_or(0, |event| event.times);
    janus_context_notices { depleted: times(notices.depleted), late: times(notices.late) }
}

/// Writes a value where C wants it.
///
/// # Safety
///
/// `place` is null or can be written to.
unsafe fn put<T>(place: *mut T, value: T) -> Result<(), Problem> {
    if place.is_null() {
        return Err(JANUS_INVALID_ARGUMENT.into());
    }
    // SAFETY: not null, and the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}

/// Makes a scheduling context: exactly admitted, or refused with `JANUS_NOT_ADMITTED`. Null if that fails. It is at rest: bind it, or spawn a task
/// on it. A task needs `JANUS_CAP_CONTEXT`. A thread makes it on its current scheduler, whose config says how many there can be.
///
/// # Safety
///
/// `asked` is null or can be read.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_context_create(asked: *const janus_reservation) -> janus_context {
    let made = call(|caller| {
        // SAFETY: null, or the caller says that it can be read.
        let asked = reservation(unsafe { asked.as_ref() }.ok_or(JANUS_INVALID_ARGUMENT)?)?;
        let (context, scheduler) = match caller {
            Caller::Task(frame) => {
                let scheduler = frame.scheduler.clone();
                let cx = frame.running()?;
                cx.charge_alloc(CONTEXT_BYTES)?;
                (cx.create_context(asked)?, scheduler)
            }
            Caller::Host(host) => {
                let scheduler = current(host.scheduler)?;
                let context = scheduler.enter()?.runtime().create_context(asked)?;
                (context, scheduler)
            }
        };
        Ok(CONTEXTS.insert(Entry { context: Arc::new(context), scheduler })?)
    });
    made.map_or(null_mut(), Name::handle)
}

/// Binds the context to the calling task, which runs on it from here on. The time must be on the task's worker: `JANUS_ELSEWHERE` if not.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_context_bind(context: janus_context) -> i32 {
    status(|caller| Entry::with_task(caller, context, |context, cx| Ok(context.bind(cx)?)))
}

/// The calling task gives the context up, and goes on without. `JANUS_NOT_OWNER` if it is not bound to it.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_context_unbind(context: janus_context) -> i32 {
    status(|caller| {
        let unbound = Entry::with_task(caller, context, |context, cx| Ok(context.unbind(cx)?))?;
        if unbound { Ok(()) } else { Err(crate::status::JANUS_NOT_OWNER.into()) }
    })
}

/// What is known of the context.
///
/// # Safety
///
/// `info` is null or can be written to.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_context_get_info(
    context: janus_context,
    info: *mut janus_context_info,
) -> i32 {
    status(|_| {
        let known = Entry::with(context, |context| Ok(context.info()?))?;
        // SAFETY: the caller's promise.
        unsafe { put(info, info_of(&known)) }
    })
}

/// What is known of the context that the calling task has, bound to it or lent to it. `JANUS_WOULD_BLOCK` if it has none.
///
/// # Safety
///
/// `info` is null or can be written to.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_task_context(info: *mut janus_context_info) -> i32 {
    status(|caller| {
        let known = caller.task()?.cx.context().ok_or(crate::status::JANUS_WOULD_BLOCK)?;
        // SAFETY: the caller's promise.
        unsafe { put(info, info_of(&known)) }
    })
}

/// Grants the context another budget and period: exactly admitted, or refused. Not for tasks.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_context_adjust(context: janus_context, budget_ns: u64, period_ns: u64) -> i32 {
    status(|caller| {
        let Caller::Host(_) = caller else { return Err(JANUS_IN_TASK.into()) };
        let entry = CONTEXTS.get(Name::of(context))?;
        let inside = entry.scheduler.enter()?;
        let ns = Duration::from_nanos;
        Ok(entry.context.adjust(inside.runtime(), ns(budget_ns), ns(period_ns))?)
    })
}

/// Takes the context away for good, also from the task that has it, which goes on without. Its time can be granted again at once.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_context_revoke(context: janus_context) -> i32 {
    status(|_| Entry::with(context, |context| Ok(context.revoke()?)))
}

/// How often the budget was used up, and how often a deadline passed, since this was last asked.
///
/// # Safety
///
/// `notices` is null or can be written to.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_context_take_notices(
    context: janus_context,
    notices: *mut janus_context_notices,
) -> i32 {
    status(|_| {
        if notices.is_null() {
            return Err(JANUS_INVALID_ARGUMENT.into());
        }
        let came = Entry::with(context, |context| Ok(context.notices()?))?;
        // SAFETY: the caller's promise.
        unsafe { put(notices, notices_of(came)) }
    })
}

/// Waits at most `timeout_ns` until something has happened to the context; `JANUS_FOREVER` waits as long as it takes. `JANUS_TIMED_OUT` if nothing has.
/// One task at a time can wait.
///
/// # Safety
///
/// `notices` is null or can be written to.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn janus_context_wait(
    context: janus_context,
    notices: *mut janus_context_notices,
    timeout_ns: u64,
) -> i32 {
    status(|caller| {
        if notices.is_null() {
            return Err(JANUS_INVALID_ARGUMENT.into());
        }
        let timeout = (timeout_ns != JANUS_FOREVER).then(|| Duration::from_nanos(timeout_ns));
        let came = Entry::with_task(caller, context, |context, cx| Ok(context.wait_notices(cx, timeout)?))?;
        if came == Notices::default() {
            return Err(crate::status::JANUS_TIMED_OUT.into());
        }
        // SAFETY: the caller's promise.
        unsafe { put(notices, notices_of(came)) }
    })
}

/// Gives the handle back. The context is revoked, unless it was.
// SAFETY: no other symbol of this name exists.
#[unsafe(no_mangle)]
pub extern "C" fn janus_context_destroy(context: janus_context) -> i32 {
    status(|_| {
        let entry = CONTEXTS.remove(Name::of(context))?;
        // Others may be about to use it, who find it revoked.
        if let Ok(_inside) = entry.scheduler.enter() {
            let _ = entry.context.revoke();
        }
        Ok(())
    })
}
