//! The policy service as the kernel sees it: the boundary that its updates go through, under one lock.
//!
//! No decision of a CPU asks for any of it: a thread's weight and class are in its core, a lease is in the table of leases. The lock
//! is taken before that of the leases. What the boundary keeps is bounded by what boot allows, and is taken from the heap, which
//! is open for the CPU that has the lock.
//!
//! Conserved: only the process that has started last is in charge, and only its updates change anything. When it ends, is silent
//! for too long or is refused too often, its leases that do not outlive it end, and what else it has set stands.

use super::leases::{self, session_id};
use super::machine::Kernel;
use super::visible;
use crate::arch;
use crate::object::process::{self, Process};
use crate::object::thread::{self, Thread};
use core::fmt::Write;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use heapless::String;
use mainspring_abi::ring::CapError;
use mainspring_abi::{CpuId, CpuSet, Nanos, ProcessId, ThreadRef};
use mainspring_authority::boundary::{
    Change, Decision, HintMap, Lost, Manifest, PlacedContext, Quota, Service, TableBounds, Treatment, Update,
};
use mainspring_driver::leases::{LeaseMachine, Leases};
use mainspring_driver::policy::{PolicyMachine, PolicyService, Submitted};
use mainspring_sched::lease::Owner;
use spin::Mutex;

/// Decisions that are remembered.
const LOG: usize = 16;
/// How much longer than until it is slow a silent service is waited for before it counts as lost.
const DEAD_AFTER: u64 = 10;
/// No thread.
const NOBODY: ThreadRef = ThreadRef::new(u32::MAX, u32::MAX);
/// Changes in one update.
pub const CHANGES: usize = 16;
/// Threads whose treatment the service may set at a time.
const THREADS: usize = 64;

static SERVICE: Mutex<Option<Known>> = Mutex::new(None);
/// When the boundary must be looked at next.
static POLL_AT: AtomicU64 = AtomicU64::new(u64::MAX);
/// The process that is in charge, plus one.
static IN_CHARGE: AtomicU32 = AtomicU32::new(0);
/// Processes that have been said to have started, bit by bit: a program can start as often as it likes.
static SAID: AtomicU64 = AtomicU64::new(0);
/// The process that the manifest names `recovery`, plus one, while it lives.
static RECOVERS: AtomicU32 = AtomicU32::new(0);

/// The service, and what is told of it.
struct Known {
    service: PolicyService,
    taken: u64,
    refused: u64,
    not_granted: u32,
    refusal: String<96>,
    /// Decisions of the boundary below this number have been looked at.
    looked_at: u64,
    slow_times: u32,
    slow_at: Nanos,
    lost: Option<(Nanos, Lost)>,
}

impl Known {
    /// Notes when the service was slow or lost.
    fn look_at_log(&mut self) {
        let log = self.service.boundary().log();
        for record in log.iter().filter(|record| record.sequence >= self.looked_at) {
            match record.decision {
                Decision::Slow => {
                    if self.slow_times == 0 {
                        self.slow_at = record.at;
                    }
                    self.slow_times = self.slow_times.saturating_add(1);
                }
                Decision::Lost(why) => self.lost = Some((record.at, why)),
                _ => {}
            }
        }
        self.looked_at = log.written();
    }
}

/// How the service is, for a process that asks.
#[derive(Clone, Debug)]
pub struct Status {
    pub state: Service,
    pub in_charge: bool,
    pub epoch: u64,
    pub taken: u64,
    pub refused: u64,
    pub leased: u64,
    pub not_granted: u32,
    pub refusal: String<96>,
    pub slow_times: u32,
    pub slow_at: Nanos,
    pub lost: Option<(Nanos, Lost)>,
}

/// Boot has started everything; `recovery` is the thread that no policy applies to, if there is one. A service that is silent for
/// `slow_after` counts as slow.
pub fn init(cpus: usize, slow_after: Nanos, recovery: Option<(ThreadRef, Treatment)>) {
    let (recovery, recovery_treatment) = recovery.unwrap_or((NOBODY, Treatment::default()));
    if let Some(program) = thread::find(recovery) {
        RECOVERS.store(program.process().index() + 1, Ordering::Relaxed);
    }
    let manifest = Manifest {
        recovery_treatment,
        slow_after,
        dead_after: Nanos::new(slow_after.get().saturating_mul(DEAD_AFTER)),
        bounds: TableBounds { changes: CHANGES, profiles: 16, threads: THREADS, quotas: 0, contexts: 0 },
        ..Manifest::new(CpuSet::first(cpus), recovery)
    };
    *SERVICE.lock() = Some(Known {
        service: PolicyService::new(manifest, LOG),
        taken: 0,
        refused: 0,
        not_granted: 0,
        refusal: String::new(),
        looked_at: 0,
        slow_times: 0,
        slow_at: Nanos::ZERO,
        lost: None,
    });
}

/// Everything that it has of the heap is given back: the machine ends.
pub fn end() {
    *SERVICE.lock() = None;
}

/// Acts on the service and the leases, with nothing locked but a ring. Who is in charge changes here alone, so it is asked here:
/// a process that was in charge a moment ago may have been replaced.
fn with_service<R>(act: impl FnOnce(&mut Known, &mut Leases, &mut Kernel) -> R) -> Option<R> {
    let mut service = SERVICE.lock();
    let known = service.as_mut()?;
    let _bounded = arch::open_heap();
    let result = leases::with_leases(|leases, machine| act(known, leases, machine));
    known.look_at_log();
    POLL_AT.store(known.service.poll_at().get(), Ordering::Relaxed);
    Some(result)
}

fn status(known: &Known, process: &Process) -> Status {
    let boundary = known.service.boundary();
    let leased = boundary.settings().leases().fold(0, |mask, (cpu, _)| mask | 1 << cpu.index());
    Status {
        state: boundary.service(),
        in_charge: is_in_charge(process) && boundary.service().in_charge().is_some(),
        epoch: boundary.epoch().0,
        taken: known.taken,
        refused: known.refused,
        leased,
        not_granted: known.not_granted,
        refusal: known.refusal.clone(),
        slow_times: known.slow_times,
        slow_at: known.slow_at,
        lost: known.lost,
    }
}

fn is_in_charge(process: &Process) -> bool {
    IN_CHARGE.load(Ordering::Relaxed) == process.index() + 1
}

/// How the service is.
pub fn look(process: &Process) -> Option<Status> {
    with_service(|known, leases, machine| {
        known.service.poll(machine, leases);
        status(known, process)
    })
}

/// `process` is in charge from now on. `None` if there can be no more of them.
pub fn start(process: &Process) -> Option<Status> {
    with_service(|known, leases, machine| {
        known.service.start(machine, leases).ok()?;
        IN_CHARGE.store(process.index() + 1, Ordering::Relaxed);
        let bit = 1 << process.index();
        if SAID.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            crate::say!("policy: started process={}", process.index());
        }
        Some(status(known, process))
    })?
}

/// `process` says that it lives; whether it is in charge.
pub fn heard(process: &Process) -> bool {
    let heard =
        with_service(|known, _, machine| is_in_charge(process) && known.service.heard(machine.now()).is_ok());
    heard == Some(true)
}

/// `process`, which is in charge, is so no more, as if it had ended; whether it was.
pub fn stop(process: &Process) -> bool {
    let stopped = with_service(|known, leases, machine| {
        let in_charge = is_in_charge(process);
        if in_charge {
            known.service.exited(machine, leases);
            IN_CHARGE.store(u32::MAX, Ordering::Relaxed);
        }
        in_charge
    });
    stopped == Some(true)
}

/// `thread`, which is treated as `treatment` says, is the recovery thread from now on, if `process` is the one that recovers; whether
/// it is.
pub fn recover(process: &Process, thread: ThreadRef, treatment: Treatment) -> bool {
    let recovers = RECOVERS.load(Ordering::Relaxed) == process.index() + 1;
    recovers && with_service(|known, _, _| known.service.set_recovery(thread, treatment)).is_some()
}

/// `process`, which is in charge, asks for changes. Whether they were made, and how the service is.
pub fn submit(process: &Process, update: Update) -> Result<(bool, Status), CapError> {
    let submitted = with_service(|known, leases, machine| {
        if !is_in_charge(process) {
            return Err(CapError::Denied);
        }
        // A thread that begins to end is marked before it is forgotten here: what is said of it now would be kept for ever.
        let gone = |change: &Change| match change {
            Change::Treat { thread, .. } => thread::find(*thread).is_none_or(Thread::is_leaving),
            _ => false,
        };
        if update.changes.iter().any(gone) {
            return Err(CapError::NotFound);
        }
        let submitted = known.service.submit(machine, leases, update);
        let taken = matches!(submitted, Submitted::Taken { .. });
        known.refusal.clear();
        match submitted {
            Submitted::Taken { leases_not_granted } => {
                known.taken += 1;
                known.not_granted = leases_not_granted as u32;
            }
            Submitted::Refused(why) | Submitted::CutOff(why) => {
                known.refused += 1;
                // The log has it, in the place of the oldest decision.
                visible::others_act();
                // A label that does not fit is cut.
                let _ = write!(known.refusal, "{why}");
            }
        }
        Ok((taken, status(known, process)))
    });
    submitted.unwrap_or(Err(CapError::Denied))
}

/// Part of the periodic service: a silent service counts as slow, then as lost, and leases end in time.
pub fn service() {
    if arch::now().get() < POLL_AT.load(Ordering::Relaxed) {
        return;
    }
    let lost = with_service(|known, leases, machine| {
        let before = known.service.boundary().service().in_charge();
        known.service.poll(machine, leases);
        before.is_some() && known.service.boundary().service().in_charge().is_none()
    });
    if lost == Some(true) {
        crate::say!("policy: lost reason=silent");
    }
}

/// A thread has ended: what was said of it is forgotten. Its slot's next occupant is not the recovery thread.
pub fn thread_ended(thread: ThreadRef) {
    let matters = IN_CHARGE.load(Ordering::Relaxed) != 0 || RECOVERS.load(Ordering::Relaxed) != 0;
    if matters && let Some(known) = SERVICE.lock().as_mut() {
        known.service.thread_ended(thread);
        if known.service.boundary().manifest().recovery == thread {
            known.service.set_recovery(NOBODY, Treatment::default());
        }
    }
}

/// A process has ended, but for its last thread.
pub fn process_ended(process: &Process) {
    // Its place may be another's soon.
    SAID.fetch_and(!(1 << process.index()), Ordering::Relaxed);
    let own = process.index() + 1;
    let _other = RECOVERS.compare_exchange(own, 0, Ordering::Relaxed, Ordering::Relaxed);
    if IN_CHARGE.load(Ordering::Relaxed) == 0 {
        return;
    }
    let was_in_charge = with_service(|known, leases, machine| {
        known.service.process_ended(machine, leases, ProcessId::new(process.index()));
        let was_in_charge = is_in_charge(process);
        if was_in_charge {
            known.service.exited(machine, leases);
            // Its place may be another's soon, which is not in charge. There has been one: what it has set stands.
            IN_CHARGE.store(u32::MAX, Ordering::Relaxed);
        }
        was_in_charge
    });
    if was_in_charge == Some(true) {
        crate::say!("policy: lost reason=exited");
    }
}

impl PolicyMachine for Kernel {
    /// The first thread of the holder that lives and may use the CPU.
    fn lessee_for(&mut self, holder: ProcessId, cpu: CpuId) -> Option<(ThreadRef, Owner)> {
        let process = process::all().nth(holder.index())?;
        let (_, thread) = process.threads().find(|(thread, _)| thread.own_affinity().allows(cpu))?;
        let session = process.session.lock().map(|(session, _)| session_id(session));
        Some((thread, Owner { process: holder, session, service: None }))
    }

    /// Boot allows none.
    fn set_quota(&mut self, _: ProcessId, _: Option<Quota>) {}

    /// Boot allows none: a service that has time to give makes contexts from its own.
    fn set_context(&mut self, _: u32, _: Option<&PlacedContext>) {}

    /// Threads give no hints.
    fn hints_changed(&mut self, _: &HintMap) {}
}

/// The thread in this slot, if it is of this process.
#[must_use]
pub fn thread_of(slot: u32, process: u32) -> Option<ThreadRef> {
    let thread = thread::slot(slot);
    let name = thread.name();
    (thread.home().is_some() && thread.process().index() == process && name.index() == slot).then_some(name)
}
