//! SchedulingContext and UserSession.

use super::message::{with_params, with_result};
use super::new_cap::NewCap;
use super::threads::deadline_of;
use super::{Answer, Call};
use crate::arch;
use crate::object::caps::Object;
use crate::object::inbox::Awaits;
use crate::sched::contexts;
use crate::sched::machine::Kernel;
use mainspring_abi::ring::CapError;
use mainspring_abi::{ContextRef, Nanos};
use mainspring_driver::contexts::{
    BindError, CreateError, Drained, Location, NoticeWait, RevokeReason, WaitError,
};
use mainspring_driver::sessions::SessionRef;
use mainspring_sched::context::{ContextSpec, Notice, Overrun};
use mainspring_schema as schema;
use mainspring_schema::SchedulingContextMethod as Method;
use mainspring_schema::UserSessionMethod;

/// A name that means no context any more.
const GONE: CapError = CapError::InvalidCapability;

fn refused(why: CreateError) -> CapError {
    match why {
        CreateError::Creator(_) | CreateError::Session(_) => GONE,
        CreateError::Spec(_) | CreateError::NoCpu => CapError::InvalidParameter,
        CreateError::Exceeds(_) => CapError::Denied,
        CreateError::Ledger(_) | CreateError::Full { .. } => CapError::QuotaExceeded,
        CreateError::NotAdmitted { .. } => CapError::RealtimeAdmissionDenied,
    }
}

/// Why a thread was not given a context, as programs are told.
pub fn not_bound(why: BindError) -> CapError {
    match why {
        BindError::Context(_) => GONE,
        BindError::Busy(_) | BindError::HasOne(_) => CapError::Busy,
        BindError::Withheld | BindError::Elsewhere(_) | BindError::NotAllowed(_) => CapError::Denied,
        BindError::NoThread(_) => CapError::PeerGone,
    }
}

pub fn context(call: &mut Call<'_>, who: ContextRef) -> Result<Answer, CapError> {
    match Method::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)? {
        Method::Create => create(call, who),
        Method::Info => info(call, who),
        Method::BindCallerThread => {
            contexts::bind(who, call.thread).map_err(not_bound)?;
            Ok(Answer::Done(0))
        }
        Method::Unbind => {
            let unbound = contexts::lock().release(&mut Kernel, who, call.thread.name()).map_err(|_| GONE)?;
            if unbound { Ok(Answer::Done(0)) } else { Err(CapError::NotFound) }
        }
        Method::Revoke => {
            let revoked =
                contexts::lock().revoke(&mut Kernel, who, RevokeReason::Explicit).map_err(|_| GONE)?;
            // Whoever revokes knows the context by the name that it ended with. All other names are of an old generation.
            call.process().state.lock().caps.rename_context(call.request.v1.cap_id, who, revoked.who);
            Ok(Answer::Done(0))
        }
        Method::DrainNotifications => drain(call, who),
        Method::Wait => wait(call, who),
        Method::Release => {
            let object = call.process().state.lock().caps.remove(call.request.v1.cap_id)?;
            drop(object);
            // A name that is of no use any more had bound nobody.
            let _unbound = contexts::lock().release(&mut Kernel, who, call.thread.name());
            Ok(Answer::Done(0))
        }
        Method::Adjust => {
            let terms = with_params::<schema::context_adjust::Owned, _>(call, |params| {
                let (budget, period) =
                    (Nanos::new(params.get_budget_ns()), Nanos::new(params.get_period_ns()));
                Ok((budget, period, deadline_within(params.get_deadline_ns(), period)))
            })?;
            contexts::adjust(who, terms).map_err(refused)?;
            Ok(Answer::Done(0))
        }
    }
}

/// A deadline as it is asked for: 0 is the period.
fn deadline_within(deadline_ns: u64, period: Nanos) -> Nanos {
    if deadline_ns == 0 { period } else { Nanos::new(deadline_ns) }
}

/// What is to happen when a context is used up.
pub fn overrun(policy: schema::OverrunPolicy) -> Overrun {
    match policy {
        schema::OverrunPolicy::Throttle => Overrun::Throttle,
        schema::OverrunPolicy::Notify => Overrun::Notify,
        schema::OverrunPolicy::Fault => Overrun::Fault,
        schema::OverrunPolicy::Shutdown => Overrun::Shutdown,
    }
}

fn create(call: &Call<'_>, creator: ContextRef) -> Result<Answer, CapError> {
    let spec = with_params::<schema::context_create::Owned, _>(call, |params| {
        let (budget, period) = (Nanos::new(params.get_budget_ns()), Nanos::new(params.get_period_ns()));
        let deadline = deadline_within(params.get_deadline_ns(), period);
        let overrun = overrun(params.get_overrun().map_err(|_| CapError::InvalidParameter)?);
        let (priority, criticality) = (params.get_priority(), params.get_criticality());
        let depth = params.get_depth();
        Ok((
            ContextSpec {
                deadline,
                overrun,
                priority,
                criticality,
                depth,
                ..ContextSpec::new(budget, period)
            },
            params.get_cpus(),
        ))
    });
    let (spec, cpus) = spec?;
    let cap = NewCap::reserve(call.process())?;
    let told = with_result::<schema::handle::Owned>(call, |mut result| result.set_cap(cap.number()))?;
    let made = contexts::create(call.process(), creator, spec, cpus).map_err(refused)?;
    cap.fulfil(Object::SchedulingContext(made));
    Ok(told)
}

fn info(call: &Call<'_>, who: ContextRef) -> Result<Answer, CapError> {
    let table = contexts::lock();
    let stale = table.info(&mut Kernel, arch::now(), who).is_err();
    // A name that cannot be used any more still says what it was a name of.
    let info = table.inspect(&mut Kernel, arch::now(), who.id()).ok_or(GONE)?;
    drop(table);
    with_result::<schema::context_info::Owned>(call, |mut result| {
        result.set_id(info.who.id());
        result.set_generation(info.who.generation());
        result.set_budget_ns(info.spec.budget.get());
        result.set_period_ns(info.spec.period.get());
        result.set_deadline_ns(info.spec.deadline.get());
        result.set_remaining_ns(if stale { 0 } else { info.remaining.get() });
        result.set_stale(stale);
        result.set_used_ns(info.usage.used.get());
        result.set_donated_ns(info.usage.donated.get());
        result.set_depletions(info.usage.depletions);
        result.set_misses(info.usage.misses);
        result.set_overshoot_max_ns(info.usage.overshoot_max.get());
        result.set_cpu(info.home.index() as u32);
        result.set_budget_enforced(info.budget_enforced && !stale);
        result.set_bound(info.owner.is_some());
        result.set_lent(matches!(info.place, Location::Lent(_)));
    })
}

fn drain(call: &Call<'_>, who: ContextRef) -> Result<Answer, CapError> {
    // What cannot be told is not drained.
    with_result::<schema::context_notices::Owned>(call, |result| {
        let mut result = result;
        result.reborrow().init_depleted();
        result.init_deadline();
    })?;
    let drained = contexts::lock().drain(&mut Kernel, who).map_err(|_| GONE)?;
    with_result::<schema::context_notices::Owned>(call, |mut result| {
        let (status, reason, notices) = match drained {
            Drained::Ok(notices) => (schema::DrainStatus::Ok, schema::ContextEnd::None, notices),
            Drained::Revoked { reason, .. } => (schema::DrainStatus::Revoked, end(reason), [None; 2]),
            Drained::StaleGeneration { .. } => {
                (schema::DrainStatus::StaleGeneration, schema::ContextEnd::None, [None; 2])
            }
        };
        result.set_status(status);
        result.set_reason(reason);
        write(result.reborrow().init_depleted(), notices[0]);
        write(result.init_deadline(), notices[1]);
    })
}

fn end(reason: RevokeReason) -> schema::ContextEnd {
    match reason {
        RevokeReason::Explicit => schema::ContextEnd::ExplicitRevoke,
        RevokeReason::Logout => schema::ContextEnd::Logout,
        RevokeReason::OwnerExit => schema::ContextEnd::OwnerExit,
        RevokeReason::IslandEnd => schema::ContextEnd::IslandEnd,
    }
}

fn write(mut to: schema::context_notice::Builder<'_>, notice: Option<Notice>) {
    if let Some(notice) = notice {
        to.set_sequence(notice.sequence);
        to.set_coalesced(notice.coalesced);
        to.set_remaining_ns(notice.remaining.get());
        to.set_next_ns(notice.next.get());
        to.set_donated(notice.donated);
    }
}

/// Waits until there is something to drain. The request is in flight before the wish is armed: from then on an event on the
/// context's CPU, which takes no lock of the table, finds the request and completes it.
fn wait(call: &mut Call<'_>, who: ContextRef) -> Result<Answer, CapError> {
    let deadline = deadline_of(call)?;
    if call.thread.inbox.lock().has_awaiting(Awaits::Notice(who)) {
        return Err(CapError::Busy);
    }
    let waiter = call.begin(Awaits::Notice(who), deadline)?;
    let armed = contexts::lock().wait_for_notice(&mut Kernel, who, call.thread.name());
    if armed == Ok(NoticeWait::Armed) || !call.retract(waiter) {
        return Ok(Answer::Pending);
    }
    match armed {
        Ok(_) => Ok(Answer::Done(0)),
        Err(WaitError::Context(_)) => Err(GONE),
        Err(WaitError::Busy(_)) => Err(CapError::Busy),
    }
}

pub fn user_session(call: &Call<'_>, session: SessionRef) -> Result<Answer, CapError> {
    match UserSessionMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)? {
        UserSessionMethod::Info => {
            let live = contexts::lock().sessions.is_live(session);
            with_result::<schema::session_info::Owned>(call, |mut result| {
                result.set_id(session.id());
                result.set_live(live);
            })
        }
        UserSessionMethod::Enter => {
            // The session of its process ends all that its threads have: no thread leaves that.
            if call.process().session.lock().is_some() {
                return Err(CapError::Denied);
            }
            if !contexts::lock().sessions.is_live(session) {
                return Err(GONE);
            }
            *call.thread.session.lock() = Some(session);
            Ok(Answer::Done(0))
        }
        UserSessionMethod::Logout => {
            // What cannot be told is not done.
            with_result::<schema::session_logout::Owned>(call, |_| {})?;
            let ended = contexts::logout(session).map_err(|_| GONE)?;
            with_result::<schema::session_logout::Owned>(call, |mut result| {
                result.set_stale_marked(ended.revoked);
                result.set_donation_inflight_skipped(ended.inflight_skipped);
            })
        }
    }
}
