//! The machine's scheduling contexts: the driver's table, under one lock.
//!
//! The lock is taken before any core's, and after every other: a CPU that has it locks nothing but cores. What a context is
//! charged for, and who it is taken from when it is used up, is the core's business; what no core knows is in [`Contexts`].
//!
//! A thread that calls and then waits for the answer alone lends its context to the thread that serves the call, if that one has
//! none. The loan is made with the endpoint locked that has the call, so it is that call that is meant: when the caller falls
//! asleep, if its call has been received by then, or else when it is received. An answer returns the loan before the caller is
//! given its message. Whatever else ends the wait of a thread that has lent its context finds that the thread cannot be woken, and
//! calls the loan in: see [`call_in`].
//!
//! Conserved: a context belongs to one process and ends with it; no context outlives the machine's last process. None is in flight
//! when the lock is given back.

use super::dispatch;
use super::islands;
use super::leases;
use super::machine::Kernel;
use super::per_cpu::{PerCpu, Untold, mine, per_cpus};
use super::policy;
use super::wakeup;
use crate::arch;
use crate::method::post_notice;
use crate::object::inbox::Awaits;
use crate::object::process::{MAX_PROCESSES, Process};
use crate::object::thread::{self, Thread};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use mainspring_abi::kernel::RELEASE_NS;
use mainspring_abi::ring::CapError;
use mainspring_abi::{ContextRef, CpuId, Nanos, ProcessId, ThreadRef};
use mainspring_driver::contexts::{
    AdmissionRules, BindError, CallEnd, ContextMachine, Contexts, CreateError, Delivery, Effort, Grant,
    HomeCpu, Lent, Logout, RevokeReason, lent_by, share,
};
use mainspring_driver::islands::UsedUp;
use mainspring_driver::ledgers::{Amounts, LedgerError, Ledgers, Profile, Resource};
use mainspring_driver::placement;
use mainspring_driver::sessions::{SessionError, SessionRef, Sessions};
use mainspring_sched::context::{ContextSpec, Overrun, SpecError};
use mainspring_sched::hint::unlikely;
use mainspring_sched::{Affinity, Entity, Floor, Overran};
use spin::{Mutex, MutexGuard, Once};

/// Contexts that there can be at a time.
pub const CONTEXTS: usize = 64;
/// Contexts that one process may hold at a time.
const CONTEXTS_EACH: u64 = 8;
/// Sessions that one process may hold and not be in.
pub const SESSIONS_EACH: usize = 8;
/// A hundredth of a CPU, in the unit of [`Resource::CpuShare`].
const PERCENT: u64 = 10_000_000;
/// What each release costs on top of its own work: two interrupts and decisions.
pub const OVERHEAD: Nanos = Nanos::new(RELEASE_NS);
/// The shortest period of a context that a process makes. Releases cost time that no ledger is charged for: at most a
/// hundredth of a CPU for each context.
const SHORTEST_PERIOD: Nanos = Nanos::from_millis(1);
/// Looks of the admission test at a context, for one decision: it is taken with interrupts off.
const EFFORT: Effort = Effort::new(600);

/// The endpoints that are told when a context is used up and must not be.
static HANDLERS: Mutex<heapless::Vec<(ContextRef, u32), CONTEXTS>> = Mutex::new(heapless::Vec::new());
static EXIST: AtomicBool = AtomicBool::new(false);
static TABLE: Once<Mutex<Contexts>> = Once::new();

/// Makes the table.
pub fn init(floor: Floor) {
    TABLE.call_once(|| {
        let rules = AdmissionRules {
            cpus: per_cpus().iter().map(PerCpu::id).collect(),
            floor,
            overhead: OVERHEAD,
            effort: EFFORT,
            ..AdmissionRules::default()
        };
        let sessions = Sessions::new(MAX_PROCESSES).expect("a session for each process fits in the heap");
        let ledgers = Ledgers::new(MAX_PROCESSES).expect("a ledger for each process fits in the heap");
        let contexts = Contexts::new(CONTEXTS, rules, sessions, ledgers);
        Mutex::new(contexts.expect("the table fits in the heap"))
    });
}

/// The table.
pub fn lock() -> MutexGuard<'static, Contexts> {
    TABLE.get().expect("contexts exist before anything is scheduled").lock()
}

/// The table, if no other CPU has it: for a CPU that has a core locked.
pub fn try_lock() -> Option<MutexGuard<'static, Contexts>> {
    TABLE.get()?.try_lock()
}

/// Everything that contexts have of the heap is given back: the machine ends.
pub fn end() {
    *lock() = Contexts::default();
}

impl ContextMachine for Kernel {
    /// It is dealt with when nothing is locked, see [`tell_waiters`].
    fn overran(&mut self, overran: Overran) {
        mine().note_overran(overran);
    }

    fn session_of(&self, thread: ThreadRef) -> Option<SessionRef> {
        thread::find(thread)?.in_session()
    }

    /// It is told when nothing is locked, see [`tell_waiters`].
    fn wake_waiter(&mut self, context: ContextRef, waiter: ThreadRef) {
        mine().note_untold(context, waiter);
    }
}

/// Whether there has ever been a context: where there has not, no call asks for loans.
#[inline(always)]
pub fn exist() -> bool {
    // Relaxed: a thread that has a context has seen it made.
    EXIST.load(Ordering::Relaxed)
}

/// There is about to be a context.
pub fn begin() {
    EXIST.store(true, Ordering::Relaxed);
}

/// Whether a call of `caller` may be given to `server`. It may not if the caller's context would be lent too often.
pub fn may_call(caller: ThreadRef, server: ThreadRef) -> Result<(), CapError> {
    if !exist() {
        return Ok(());
    }
    match lock().may_lend(&mut Kernel, caller, server) {
        Err(refused) if refused.refuses_call() => Err(CapError::DonationRefused),
        _ => Ok(()),
    }
}

/// `server` has received the call of `caller`, and the caller lends it its context if it waits for that call alone. The endpoint
/// is locked that has the call.
pub fn call_received(caller: ThreadRef, server: ThreadRef) {
    if exist() {
        lend(&mut lock(), caller, server);
    }
}

/// `caller`, which waits for a call that `server` has received, lends its context, if it has one and the server has none.
pub fn lend(table: &mut Contexts, caller: ThreadRef, server: ThreadRef) {
    // A thread that ends needs no time of others, and does not wait for any: see `let_go`.
    if thread::find(server).is_none_or(Thread::is_leaving) {
        return;
    }
    // Where nothing is lent the server serves the call on what it has.
    if let Ok(Lent::InFlight(_)) = table.lend(&mut Kernel, caller, server) {
        // Another CPU carries the server over at this moment, and needs no lock that this one has.
        while let Delivery::StillInFlight(_) = table.deliver(&mut Kernel, server) {
            core::hint::spin_loop();
        }
    }
}

/// Whether the context `own` of an endpoint can be given to a thread that serves a call there.
pub fn is_free(own: ContextRef) -> bool {
    lock().is_free(own.id())
}

/// Whether there still is a context of this name.
pub fn is_live(context: ContextRef) -> bool {
    !lock().is_gone(context.id())
}

/// `server` has received a call at an endpoint that has the context `own`, and serves it on that, if it has none itself and the
/// context is free; whether it does. The endpoint is locked that has the call.
pub fn serve_on(own: ContextRef, server: ThreadRef) -> bool {
    let mut table = lock();
    // A thread that ends needs no time, and does not wait for any. Asked with the table locked: see `let_go`.
    let leaves = thread::find(server).is_none_or(Thread::is_leaving);
    !leaves && table.bind(&mut Kernel, own, server).is_ok()
}

/// `server` has answered, or goes on without: the context `own` of the endpoint is at rest, if the server had it.
pub fn end_service(own: ContextRef, server: ThreadRef) {
    // One that was revoked meanwhile is with nobody.
    let _released = lock().release(&mut Kernel, own, server);
}

/// The call of `caller` is over: it has its context back if it has lent it, and can be woken.
pub fn return_loan(caller: ThreadRef, end: CallEnd) {
    if exist() && lent_by(&mut Kernel, caller).is_some() {
        let _returned = lock().end_call(&mut Kernel, caller, end);
    }
}

/// `thread`, which was to be woken and was not, may have lent its context: the loan is called in, and the thread woken. It is also woken
/// if it has lent none: another CPU may have brought the context back since the thread was looked at, and left it to wait on.
#[cold]
pub fn call_in(thread: ThreadRef, end: CallEnd) {
    return_loan(thread, end);
    let _woken = placement::wake(&mut Kernel, thread);
}

/// `thread`, which is marked as leaving, is to end, and has been woken if it waited: it ends as best effort, so that it need not wait
/// for a refill. Its own context is at rest, and one that it has on loan is back with its caller.
pub fn let_go(thread: ThreadRef) {
    if exist() {
        lock().let_go(&mut Kernel, thread);
    }
}

/// Binds the context `who` to `thread`, which runs. One that is to end gets none.
pub fn bind(who: ContextRef, thread: &Thread) -> Result<(), BindError> {
    let mut table = lock();
    if thread.is_leaving() {
        return Err(BindError::NoThread(thread.name()));
    }
    table.bind(&mut Kernel, who, thread.name())
}

fn tell(context: ContextRef, waiter: ThreadRef) {
    let Some(thread) = thread::find(waiter) else { return };
    let told = thread.inbox.lock().finish_awaiting(waiter, Awaits::Notice(context));
    if let Some((waiter, posted)) = told {
        wakeup::posted(waiter, posted);
    }
}

/// Events of this CPU have used contexts up or made them late: who waited for that is told. Nothing is locked. Whether anybody
/// was told, and may go before the thread that was chosen.
#[inline(always)]
pub fn tell_waiters(here: &PerCpu) -> bool {
    unlikely(here.has_untold()) && tell_all(here)
}

#[cold]
fn tell_all(here: &PerCpu) -> bool {
    let mut told = false;
    while let Some(untold) = here.take_untold() {
        match untold {
            Untold::Waiter(context, waiter) => tell(context, waiter),
            Untold::UsedUp(context, owner, policy) => deal_with(context, owner, policy),
        }
        told = true;
    }
    told
}

/// Opens the ledger of `process`, which is being made, if it gets contexts. Its limit is what the process is granted, and as
/// much of a CPU as `spare_percent` says for contexts that it makes itself: holding a context mints no time.
pub fn open_ledger<'s>(
    process: &Process,
    granted: impl Iterator<Item = &'s ContextSpec> + Clone,
    spare_percent: u64,
) -> Result<(), LedgerError> {
    if granted.clone().next().is_none() {
        return Ok(());
    }
    let cpu_share =
        granted.map(|spec| share(spec, OVERHEAD)).fold(spare_percent * PERCENT, u64::saturating_add);
    let limits =
        Amounts::UNLIMITED.with(Resource::Contexts, CONTEXTS_EACH).with(Resource::CpuShare, cpu_share);
    *process.resources.lock() = Some(lock().ledgers.open(&Profile { limits }, None)?);
    Ok(())
}

/// Grants `process`, whose ledger is open, a context of its own.
pub fn grant(process: &Process, spec: ContextSpec) -> Result<ContextRef, CreateError> {
    let mut table = lock();
    let ledger = *process.resources.lock();
    let owner = Some(ProcessId::new(process.index()));
    let session = process.session.lock().map(|(session, _)| session);
    let grant = Grant { session, process: owner, ledger, home: HomeCpu::Admitted };
    let _charged = arch::open_heap();
    begin();
    table.grant(arch::now(), spec, grant)
}

/// `process`, which has the context `creator`, makes another one, for these CPUs, bit by bit, or for the creator's if there are
/// none. It ends with `process`, and is charged to the ledger of the process that `creator` was granted to. What it takes of the heap
/// is bounded by the number of contexts.
pub fn create(
    process: &Process,
    creator: ContextRef,
    mut spec: ContextSpec,
    cpus: u64,
) -> Result<ContextRef, CreateError> {
    if spec.period < SHORTEST_PERIOD {
        return Err(CreateError::Spec(SpecError::BadPeriod(spec.period)));
    }
    let mut table = lock();
    let _charged = arch::open_heap();
    if spec.depth == 0 {
        spec.depth = table.spec(creator.id()).map_or(1, |held| held.depth);
    }
    spec.cpus = if cpus == 0 {
        table.spec(creator.id()).map_or(Affinity::Any, |held| held.cpus.clone())
    } else {
        self::cpus(cpus)
    };
    table.create_for(arch::now(), creator, spec, Some(ProcessId::new(process.index())))
}

/// The context `who` grants something else from now on, if its ledger allows that and every deadline that was promised on its CPU
/// still holds.
pub fn adjust(who: ContextRef, terms: (Nanos, Nanos, Nanos)) -> Result<(), CreateError> {
    let (_, period, _) = terms;
    if period < SHORTEST_PERIOD {
        return Err(CreateError::Spec(SpecError::BadPeriod(period)));
    }
    let mut table = lock();
    let _charged = arch::open_heap();
    table.adjust_if_admitted(&mut Kernel, arch::now(), who, terms)
}

/// `endpoint` is told when the context `who`, which was just granted, is used up and must not be. At boot.
pub fn handle_faults(who: ContextRef, endpoint: u32) {
    let noted = HANDLERS.lock().push((who, endpoint));
    debug_assert!(noted.is_ok(), "more contexts have been granted than there can be");
}

/// The context `context`, which is the thread `owner`'s, is used up, and its policy is not the core's to carry out. Nothing is locked.
#[cold]
fn deal_with(context: ContextRef, owner: ThreadRef, policy: Overrun) {
    match islands::used_up(context, policy) {
        UsedUp::Nothing | UsedUp::Leave(_) => {}
        UsedUp::Fault => {
            let handlers = HANDLERS.lock();
            let handler = handlers.iter().find(|(who, _)| who.id() == context.id()).map(|(_, to)| *to);
            drop(handlers);
            match (handler, thread::find(owner)) {
                (Some(endpoint), _) => {
                    let (id, generation) = (u64::from(context.id()), u64::from(context.generation()));
                    post_notice(endpoint, [id, generation, u64::from(owner.index()), arch::now().get()]);
                }
                (None, Some(thread)) => dispatch::kill(thread, owner),
                (None, None) => {}
            }
        }
        UsedUp::Revoke => {
            // It may have been revoked meanwhile.
            let _gone = lock().revoke(&mut Kernel, context, RevokeReason::IslandEnd);
        }
    }
}

/// The CPUs that these bits name, whether the machine has them or not.
pub fn cpus(bits: u64) -> Affinity {
    let named = (0..u64::BITS as usize).filter(|number| bits >> number & 1 == 1);
    Affinity::Only(Arc::new(named.filter_map(|number| CpuId::new(number).ok()).collect()))
}

/// `entity`, which was not best effort, has ended, and the caller has had the table locked since before it left its CPU.
pub fn thread_ended(table: &mut Contexts, entity: &mut Entity) {
    table.thread_ended(&mut Kernel, entity);
}

/// A session begins, and `process`, which is being made, is in it and ends it.
pub fn open_session(process: &Process) -> Result<SessionRef, SessionError> {
    let session = lock().sessions.open()?;
    *process.session.lock() = Some((session, true));
    Ok(session)
}

/// A session begins that `process`, which is being made, holds and is not in, and ends with it.
pub fn hold_session(process: &Process) -> Result<SessionRef, SessionError> {
    let session = lock().sessions.open()?;
    let mut held = process.held_sessions.lock();
    held.push(session).map_err(|_| SessionError::Full { capacity: SESSIONS_EACH })?;
    Ok(session)
}

/// The session ends, and its contexts with it.
pub fn logout(session: SessionRef) -> Result<Logout, SessionError> {
    let ended = lock().logout(&mut Kernel, session)?;
    leases::logged_out(session);
    let Logout { revoked, inflight_skipped } = ended;
    crate::say!("session: logout stale_marked={revoked} donation_inflight_skipped={inflight_skipped}");
    Ok(ended)
}

/// The process has ended, but for its last thread: its leases and contexts are gone, and so is the session that it has opened.
pub fn process_ended(process: &Process) {
    policy::process_ended(process);
    islands::process_ended(process);
    leases::process_ended(process);
    end_contexts(process);
    let session = process.session.lock().take();
    let held = core::mem::take(&mut *process.held_sessions.lock());
    let begun = session.filter(|(_, begun)| *begun).map(|(session, _)| session);
    for session in begun.into_iter().chain(held) {
        // It may have been ended before.
        let _ended = logout(session);
    }
}

fn end_contexts(process: &Process) {
    if !exist() {
        return;
    }
    let ledger = process.resources.lock().take();
    let mut table = lock();
    table.owner_exited(&mut Kernel, ProcessId::new(process.index()));
    let Some(ledger) = ledger else { return };
    table.ledger_closes(&mut Kernel, ledger);
    let closed = table.ledgers.close(ledger);
    debug_assert_eq!(closed, Ok(()), "a process has ended and still holds contexts");
}
