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

use super::machine::Kernel;
use super::per_cpu::{PerCpu, mine, per_cpus};
use super::wakeup;
use crate::arch;
use crate::object::inbox::Awaits;
use crate::object::process::{MAX_PROCESSES, Process};
use crate::object::thread;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use mainspring_abi::ring::CapError;
use mainspring_abi::{ContextRef, Nanos, ProcessId, ThreadRef};
use mainspring_driver::contexts::{
    AdmissionRules, CallEnd, ContextMachine, Contexts, CreateError, Delivery, Grant, HomeCpu, Lent, Logout,
    share,
};
use mainspring_driver::ledgers::{Amounts, LedgerError, Ledgers, Profile, Resource};
use mainspring_driver::sessions::{SessionError, SessionRef, Sessions};
use mainspring_driver::{Machine, placement};
use mainspring_sched::context::ContextSpec;
use mainspring_sched::{Affinity, Authority, Entity, Floor, Overran, WaitKind};
use spin::{Mutex, MutexGuard, Once};

/// Contexts that there can be at a time.
pub const CONTEXTS: usize = 64;
/// Contexts that one process may hold at a time.
const CONTEXTS_EACH: u64 = 8;
/// A hundredth of a CPU, in the unit of [`Resource::CpuShare`].
const PERCENT: u64 = 10_000_000;
/// What each release costs on top of its own work: two interrupts and decisions.
const OVERHEAD: Nanos = Nanos::from_micros(10);

static EXIST: AtomicBool = AtomicBool::new(false);
static TABLE: Once<Mutex<Contexts>> = Once::new();

/// Makes the table.
pub fn init() {
    TABLE.call_once(|| {
        let rules = AdmissionRules {
            cpus: per_cpus().iter().map(PerCpu::id).collect(),
            floor: Floor::DEFAULT,
            overhead: OVERHEAD,
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

/// Everything that contexts have of the heap is given back: the machine ends.
pub fn end() {
    *lock() = Contexts::default();
}

impl ContextMachine for Kernel {
    /// Throttling and going on as best effort, which are all that a context here can ask for, have happened already.
    fn overran(&mut self, overran: Overran) {
        if let Some(waiter) = overran.waiter {
            self.wake_waiter(overran.context, waiter);
        }
    }

    fn session_of(&self, thread: ThreadRef) -> Option<SessionRef> {
        let session = *thread::find(thread)?.process().session.lock();
        session.map(|(session, _)| session)
    }

    /// It is told when nothing is locked, see [`tell_waiters`].
    fn wake_waiter(&mut self, context: ContextRef, waiter: ThreadRef) {
        mine().note_untold(context, waiter);
    }
}

/// Whether there has ever been a context: where there has not, no call asks for loans.
#[inline(always)]
pub fn exist() -> bool {
    // Relaxed: set at boot, before the first program runs.
    EXIST.load(Ordering::Relaxed)
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
    // Where nothing is lent the server serves the call on what it has.
    if let Ok(Lent::InFlight(_)) = table.lend(&mut Kernel, caller, server) {
        // Another CPU carries the server over at this moment, and needs no lock that this one has.
        while let Delivery::StillInFlight(_) = table.deliver(&mut Kernel, server) {
            core::hint::spin_loop();
        }
    }
}

/// The call of `caller` is over: it has its context back if it has lent it, and can be woken.
pub fn return_loan(caller: ThreadRef, end: CallEnd) {
    if exist() && has_lent(caller) {
        let _returned = lock().end_call(&mut Kernel, caller, end);
    }
}

fn has_lent(thread: ThreadRef) -> bool {
    let Some(home) = Kernel.home(thread) else { return false };
    Kernel.with_cpu(home.cpu, |cpu| {
        cpu.cpu().entity(home.seat).is_ok_and(|entity| matches!(entity.authority(), Authority::Lent(_)))
    })
}

/// `thread`, which was to be woken and was not, may have lent its context: the loan is called in, and the thread woken.
#[cold]
pub fn call_in(thread: ThreadRef, end: CallEnd) {
    if has_lent(thread) {
        return_loan(thread, end);
        let _woken = placement::wake(&mut Kernel, thread);
    }
}

/// Whether the running thread of `here` may wait for `kind`. One that serves a call on a loan and waits for the next has not
/// answered: the caller has its context back, and waits on.
pub fn may_block(table: &mut Contexts, here: &PerCpu, kind: WaitKind) -> Result<(), CapError> {
    let donor = {
        let core = here.lock();
        let context = core.cpu().current().and_then(|seat| core.cpu().entity(seat).ok()?.context());
        context.and_then(|context| context.donors().last())
    };
    match (donor, kind) {
        (None, _) | (Some(_), WaitKind::Call) => Ok(()),
        (Some(donor), WaitKind::Receive) => {
            let _returned = table.end_call(&mut Kernel, donor, CallEnd::ServerGone);
            Ok(())
        }
        (Some(_), _) => Err(CapError::BorrowedTime),
    }
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
    let mut told = false;
    while let Some((context, waiter)) = here.take_untold() {
        tell(context, waiter);
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
    let cpu_share = granted.map(share).fold(spare_percent * PERCENT, u64::saturating_add);
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
    EXIST.store(true, Ordering::Relaxed);
    table.grant(arch::now(), spec, grant)
}

/// Whoever has the context `creator` makes another one, for these CPUs, bit by bit, or for the creator's if there are none. What
/// it takes of the heap is bounded by the number of contexts.
pub fn create(creator: ContextRef, mut spec: ContextSpec, cpus: u64) -> Result<ContextRef, CreateError> {
    let mut table = lock();
    let _charged = arch::open_heap();
    if spec.depth == 0 {
        spec.depth = table.spec(creator.id()).map_or(1, |held| held.depth);
    }
    spec.cpus = if cpus == 0 {
        table.spec(creator.id()).map_or(Affinity::Any, |held| held.cpus.clone())
    } else {
        let asked = |cpu: &&PerCpu| cpu.id().index() < 64 && cpus >> cpu.id().index() & 1 == 1;
        Affinity::Only(Arc::new(per_cpus().iter().filter(asked).map(PerCpu::id).collect()))
    };
    table.create(arch::now(), creator, spec)
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

/// The session ends, and its contexts with it.
pub fn logout(session: SessionRef) -> Result<Logout, SessionError> {
    let ended = lock().logout(&mut Kernel, session)?;
    let Logout { revoked, inflight_skipped } = ended;
    crate::say!("session: logout stale_marked={revoked} donation_inflight_skipped={inflight_skipped}");
    Ok(ended)
}

/// The process has ended, but for its last thread: its contexts are gone, and so is the session that it has opened.
pub fn process_ended(process: &Process) {
    end_contexts(process);
    let session = process.session.lock().take();
    if let Some((session, true)) = session {
        // It may have been ended before.
        let _ended = logout(session);
    }
}

fn end_contexts(process: &Process) {
    let Some(ledger) = process.resources.lock().take() else { return };
    let mut table = lock();
    table.owner_exited(&mut Kernel, ProcessId::new(process.index()));
    let closed = table.ledgers.close(ledger);
    debug_assert_eq!(closed, Ok(()), "a process has ended and still holds contexts");
}
