//! CpuIsolation and CpuIsolationLease.

use super::message::{with_long_result, with_params, with_result};
use super::new_cap::NewCap;
use super::threads::PlannedPoller;
use super::{Answer, Call};
use crate::object::caps::Object;
use crate::object::thread::{self, Thread};
use crate::sched::leases::{LEASES_EACH, session_id, with_leases};
use crate::sched::machine::Kernel;
use crate::sched::{contexts, per_cpu, per_cpus, sqpoll};
use mainspring_abi::ring::CapError;
use mainspring_abi::{ContextRef, CpuId, CpuSet, Nanos, ProcessId, ThreadRef};
use mainspring_driver::leases::{Activate, GrantRefusal, GrantRequest, LeasedRing, RingId};
use mainspring_ring::SqpollGrant;
use mainspring_sched::lease::{
    AccountingTarget, EndReason, Endpoint, Info, LeaseRef, LeaseRequest, Mode, ModeSet, NamedRing, NotLive,
    Owner, Refusal, RevocationPolicy,
};
use mainspring_schema as schema;
use mainspring_schema::CpuIsolationLeaseMethod as Method;
use mainspring_schema::CpuIsolationMethod;

/// A name that means no lease any more.
const GONE: CapError = CapError::InvalidCapability;

fn refused(why: GrantRefusal) -> CapError {
    match why {
        GrantRefusal::Lease(why) => match why {
            Refusal::MalformedMask(_)
            | Refusal::EmptyMask
            | Refusal::Offline(_)
            | Refusal::RevocationLatency { .. }
            | Refusal::SqpollWithoutRing => CapError::InvalidParameter,
            Refusal::Overlap { .. } => CapError::Busy,
            Refusal::NoHousekeeping
            | Refusal::ModeNotAllowed(_)
            | Refusal::RingWithoutSqpoll
            | Refusal::DevicesNotRouted
            | Refusal::NotOwner => CapError::Denied,
            Refusal::StaleTarget | Refusal::FabricatedTarget | Refusal::Replaces(_) => GONE,
            Refusal::Full { .. } | Refusal::Exhausted => CapError::QuotaExceeded,
        },
        GrantRefusal::Affinity | GrantRefusal::ContextElsewhere => CapError::Denied,
        GrantRefusal::AlreadyLeased(_) => CapError::Busy,
        GrantRefusal::NoRoom => CapError::QuotaExceeded,
    }
}

fn mode_of(mode: schema::LeaseMode) -> Mode {
    match mode {
        schema::LeaseMode::Compute => Mode::Compute,
        schema::LeaseMode::KernelSqpoll => Mode::KernelSqpoll,
        schema::LeaseMode::UserspacePoller => Mode::UserspacePoller,
        schema::LeaseMode::KernelWorker => Mode::KernelWorker,
        schema::LeaseMode::DeviceOwner => Mode::DeviceOwner,
    }
}

fn wire_mode(mode: Mode) -> schema::LeaseMode {
    match mode {
        Mode::Compute => schema::LeaseMode::Compute,
        Mode::KernelSqpoll => schema::LeaseMode::KernelSqpoll,
        Mode::UserspacePoller => schema::LeaseMode::UserspacePoller,
        Mode::KernelWorker => schema::LeaseMode::KernelWorker,
        Mode::DeviceOwner => schema::LeaseMode::DeviceOwner,
    }
}

/// How a lease ended, as programs are told.
pub fn wire_end(reason: EndReason) -> schema::LeaseEnd {
    match reason {
        EndReason::Revoked => schema::LeaseEnd::Revoked,
        EndReason::Released => schema::LeaseEnd::Released,
        EndReason::Expired => schema::LeaseEnd::Expired,
        EndReason::ProcessExit => schema::LeaseEnd::ProcessExit,
        EndReason::ServiceReplaced => schema::LeaseEnd::ServiceReplaced,
        EndReason::Logout => schema::LeaseEnd::Logout,
        EndReason::Superseded => schema::LeaseEnd::Superseded,
    }
}

pub fn isolation(call: &Call<'_>, any_mode: bool) -> Result<Answer, CapError> {
    let CpuIsolationMethod::Grant =
        CpuIsolationMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)?;
    with_params::<schema::lease_grant::Owned, _>(call, |params| grant(call, any_mode, params))
}

/// Grants what `params` say. Everything is decided with the leases locked; what the caller is told comes first.
fn grant(
    call: &Call<'_>,
    any_mode: bool,
    params: schema::lease_grant::Reader<'_>,
) -> Result<Answer, CapError> {
    let invalid = |_| CapError::InvalidParameter;
    let mode = mode_of(params.get_mode().map_err(invalid)?);
    if !any_mode && !ModeSet::DEFAULT.contains(mode) {
        return Err(CapError::Denied);
    }
    let ring = match params.get_ring().map_err(|_| CapError::InvalidParameter)? {
        schema::NamedRing::None => NamedRing::None,
        schema::NamedRing::CallerThread => NamedRing::CallerThread,
    };
    let mut named = Named::find(call, &params)?;
    let process = call.process();
    let session = thread::find(named.lessee).and_then(Thread::in_session);
    let cap = NewCap::reserve(process)?;
    // A poller is the lessee, in the place of the thread whose ring it polls.
    let poller = match mode {
        Mode::KernelSqpoll => Some(plan_poller(call, &params, &named)?),
        _ => None,
    };
    if let Some(poller) = &poller {
        named.lessee = poller.name();
    }
    let owner =
        Owner { process: ProcessId::new(process.index()), session: session.map(session_id), service: None };
    let asked = GrantRequest {
        request: LeaseRequest {
            owner,
            cpus: params.get_cpus().map_err(|_| CapError::InvalidParameter)?,
            housekeeping_exclusions: params
                .get_housekeeping_exclusions()
                .map_err(|_| CapError::InvalidParameter)?,
            mode,
            ring,
            allow_irqs: params.get_allow_irqs(),
            target: named.target,
            max_revocation_latency: Nanos::new(params.get_max_revocation_latency_ns()),
            revocation: named.revocation,
            lifetime: Nanos::new(params.get_lifetime_ns()),
            replaces: named.replaces,
        },
        lessee: named.lessee,
        // A poller asks for its own CPU.
        caller: poller.is_none().then(|| call.thread.name()),
        ring: poller
            .as_ref()
            .map(|_| LeasedRing { ring: RingId(call.thread.name().index()), owner: call.thread.name() }),
        tickless: params.get_tickless(),
        allow_busy_spin: params.get_allow_busy_spin(),
    };
    // What cannot be told is not done.
    with_result::<schema::lease_handle::Owned>(call, |_| {})?;
    let lease = with_leases(|leases, machine| {
        if session.is_some_and(|session| !contexts::lock().sessions.is_live(session)) {
            return Err(GONE);
        }
        if leases.held_by(owner.process) >= LEASES_EACH && asked.request.replaces.is_none() {
            return Err(CapError::QuotaExceeded);
        }
        leases.grant(machine, &asked).map_err(refused)
    })?;
    if let Some(poller) = poller {
        let spin = match (params.get_allow_busy_spin(), params.get_idle_spin_ns()) {
            (false, _) => Nanos::ZERO,
            (true, 0) => sqpoll::SPIN,
            (true, asked) => Nanos::new(asked).min(sqpoll::SPIN),
        };
        if let Err(code) = start_poller(call, poller, lease, named.target, spin) {
            with_leases(|leases, machine| {
                let _ended = leases.release(machine, lease);
            });
            return Err(code);
        }
    }
    let number = cap.number();
    cap.fulfil(Object::CpuIsolationLease(lease));
    with_result::<schema::lease_handle::Owned>(call, |mut result| {
        result.set_cap(number);
        result.set_id(lease.id());
        result.set_generation(lease.generation());
    })
}

/// A poller for the ring of the caller, on the one CPU of its lease.
fn plan_poller(
    call: &Call<'_>,
    params: &schema::lease_grant::Reader<'_>,
    named: &Named,
) -> Result<PlannedPoller, CapError> {
    let cpus = params.get_cpus().map_err(|_| CapError::InvalidParameter)?;
    let cpus = CpuSet::from_bytes(cpus).map_err(|_| CapError::InvalidParameter)?;
    if cpus.len() != 1 || named.lessee != call.thread.name() || named.replaces.is_some() {
        return Err(CapError::InvalidParameter);
    }
    if cpus.iter().any(|cpu| cpu.index() >= per_cpus().len()) {
        return Err(CapError::InvalidParameter);
    }
    if sqpoll::is_polled(call.thread) {
        return Err(CapError::Busy);
    }
    if let AccountingTarget::Context { id, .. } = named.target {
        let table = contexts::lock();
        // The poller is bound to it, on the CPU where its time is set aside.
        if !table.is_free(id as u32) {
            return Err(CapError::Busy);
        }
        if !table.home(id as u32).is_some_and(|home| cpus.contains(home)) {
            return Err(CapError::Denied);
        }
    }
    PlannedPoller::decide(call.process(), cpus)
}

/// The poller starts on the CPU of its lease, bound to the context that pays.
fn start_poller(
    call: &Call<'_>,
    poller: PlannedPoller,
    lease: LeaseRef,
    target: AccountingTarget,
    spin: Nanos,
) -> Result<(), CapError> {
    let name = poller.name();
    let accounting = match target {
        AccountingTarget::Ledger => mainspring_ring::AccountingTarget::SchedulerLedger,
        AccountingTarget::Context { id, .. } => {
            mainspring_ring::AccountingTarget::SchedulingContext(id as u32)
        }
    };
    sqpoll::attach(call.thread, name, lease, SqpollGrant { accounting, spin })?;
    poller.apply(call.thread);
    if let AccountingTarget::Context { id, generation } = target {
        let who = ContextRef::new(id as u32, generation as u32);
        contexts::lock().bind(&mut Kernel, who, name).map_err(|_| CapError::Busy)?;
    }
    // Its time may have been over before there was a poller to tell.
    if with_leases(|leases, _| leases.info(crate::arch::now(), lease).is_err()) {
        sqpoll::lease_ended(lease);
    }
    Ok(())
}

/// What the parameters of a grant name by capabilities.
struct Named {
    lessee: ThreadRef,
    target: AccountingTarget,
    revocation: RevocationPolicy,
    replaces: Option<LeaseRef>,
}

impl Named {
    fn find(call: &Call<'_>, params: &schema::lease_grant::Reader<'_>) -> Result<Self, CapError> {
        let state = call.process().state.lock();
        let find = |cap| state.caps.look(cap).ok_or(CapError::InvalidCapability);
        let lessee = match params.get_thread() {
            0 => call.thread.name(),
            cap => match find(cap)? {
                Object::ThreadHandle(of) if of.home().is_some() => of.name(),
                Object::ThreadHandle(_) => return Err(CapError::PeerGone),
                _ => return Err(CapError::InvalidParameter),
            },
        };
        let target = match params.get_account() {
            0 => AccountingTarget::Ledger,
            cap => match find(cap)? {
                Object::SchedulingContext(who) => AccountingTarget::Context {
                    id: u64::from(who.id()),
                    generation: u64::from(who.generation()),
                },
                _ => return Err(CapError::InvalidParameter),
            },
        };
        let revocation = match params.get_revoke_endpoint() {
            0 => RevocationPolicy::Silent,
            // Not where it may only call: a notice comes before every call, and is nobody's share.
            cap => match find(cap)? {
                Object::EndpointServe(index) => RevocationPolicy::Notify(Endpoint(*index)),
                _ => return Err(CapError::InvalidParameter),
            },
        };
        let replaces = match params.get_replaces() {
            0 => None,
            cap => match find(cap)? {
                Object::CpuIsolationLease(lease) => Some(*lease),
                _ => return Err(CapError::InvalidParameter),
            },
        };
        Ok(Self { lessee, target, revocation, replaces })
    }
}

pub fn lease(call: &Call<'_>, lease: LeaseRef) -> Result<Answer, CapError> {
    match Method::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)? {
        Method::Info => info(call, lease),
        Method::Preflight => preflight(call, lease),
        Method::Revoke => {
            with_leases(|leases, machine| leases.revoke(machine, lease)).map_err(|_| GONE)?;
            Ok(Answer::Done(0))
        }
        Method::Release => {
            let object = call.process().state.lock().caps.remove(call.request.v1.cap_id)?;
            drop(object);
            // What has ended is forgotten, and so is the name of what is forgotten already.
            with_leases(|leases, machine| {
                let _ended = leases.release(machine, lease);
                let _forgotten = leases.release(machine, lease);
            });
            Ok(Answer::Done(0))
        }
        Method::Activate => {
            let caller = call.thread.name();
            match with_leases(|leases, machine| leases.activate(machine, lease, caller)).map_err(|_| GONE)? {
                Activate::Asked => Ok(Answer::Done(0)),
                Activate::Occupied => Err(CapError::Busy),
            }
        }
    }
}

/// What is known of a lease, or why it has ended.
fn info(call: &Call<'_>, lease: LeaseRef) -> Result<Answer, CapError> {
    let known = with_leases(|leases, machine| {
        let info = leases.info(crate::arch::now(), lease).cloned();
        let told = info.map(|info| {
            let since = leases.tickless_since(lease).map_or(0, |(_, since, _)| since.get());
            let obstacle = leases.obstacle(lease).map_or("", |obstacle| obstacle.label());
            let lessee = leases.lessee(lease).map_or(0, ThreadRef::index);
            (info, since, obstacle, lessee)
        });
        // A look past its end ends it.
        leases.expire(machine);
        told
    });
    with_long_result::<schema::lease_info::Owned>(call, |mut result| {
        result.set_id(lease.id());
        result.set_generation(lease.generation());
        result.set_end(match &known {
            Ok(_) => schema::LeaseEnd::Live,
            Err(NotLive::Ended(reason)) => wire_end(*reason),
            Err(NotLive::Unknown | NotLive::StaleGeneration) => schema::LeaseEnd::Gone,
        });
        if let Ok((info, since, obstacle, lessee)) = &known {
            result.set_tickless_since_ns(*since);
            result.set_obstacle(*obstacle);
            result.set_lessee(*lessee);
            write_info(result, info);
        }
    })
}

fn write_info(mut result: schema::lease_info::Builder<'_>, info: &Info) {
    result.set_mode(wire_mode(info.terms.mode()));
    result.set_cpus(info.cpus.folded());
    result.set_housekeeping_exclusions(info.housekeeping_exclusions.folded());
    result.set_max_revocation_latency_ns(info.terms.max_revocation_latency().get());
    let expires_at = info.terms.expires_at();
    result.set_expires_at_ns(if expires_at == Nanos::MAX { 0 } else { expires_at.get() });
    if let AccountingTarget::Context { id, .. } = info.terms.target() {
        result.set_context(id as u32);
    }
    let cpu = info.cpus.iter().next().unwrap_or(CpuId::BOOT);
    let counters = per_cpu(cpu.index()).lock().cpu().telemetry().clone();
    result.set_ticks(counters.ticks);
    result.set_ticks_suppressed(counters.ticks_suppressed_lease);
    result.set_timer_interrupts(counters.timer_interrupts);
    result.set_activations(counters.nohz_enter_lease.iter().sum());
    let mut exits = result.init_exits(counters.nohz_exits.len() as u32);
    for (index, count) in (0..).zip(counters.nohz_exits) {
        exits.set(index, u32::try_from(count).unwrap_or(u32::MAX));
    }
}

fn preflight(call: &Call<'_>, lease: LeaseRef) -> Result<Answer, CapError> {
    let looked = with_leases(|leases, machine| leases.preflight(machine, lease)).map_err(|_| GONE)?;
    with_long_result::<schema::lease_preflight::Owned>(call, |mut result| {
        let found = &looked.obligations;
        result.set_id(lease.id());
        result.set_generation(lease.generation());
        result.set_cpus(looked.cpus.folded());
        result.set_housekeepers(looked.housekeepers.folded());
        result.set_cpu(found.cpu.index() as u32);
        result.set_runnable(found.runnable as u32);
        let blocked = (0..).zip(found.lines()).filter(|(_, (_, met))| met.is_err());
        result.set_blocked(blocked.fold(0, |bits, (bit, _)| bits | 1 << bit));
        let mut labels = result.init_labels(found.lines().count() as u32);
        for (index, (_, met)) in (0..).zip(found.lines()) {
            labels.set(index, met.unwrap_or_else(|obstacle| obstacle.label()));
        }
    })
}
