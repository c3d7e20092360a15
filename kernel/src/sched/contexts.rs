//! The machine's scheduling contexts: the driver's table, under one lock.
//!
//! The lock is taken before any core's, and after every lock but an inbox's. What a context is charged for, and who it is taken
//! from when it is used up, is the core's business; what no core knows is in [`Contexts`].
//!
//! Conserved: a context belongs to one process and ends with it; no context outlives the machine's last process.

use super::machine::Kernel;
use super::per_cpu::{PerCpu, per_cpus};
use super::wakeup;
use crate::arch;
use crate::object::inbox::Awaits;
use crate::object::process::{MAX_PROCESSES, Process};
use crate::object::thread;
use alloc::sync::Arc;
use mainspring_abi::{ContextRef, Nanos, ProcessId, ThreadRef};
use mainspring_driver::contexts::{AdmissionRules, ContextMachine, Contexts, CreateError, Grant, HomeCpu};
use mainspring_driver::ledgers::{Amounts, Ledgers, Profile, Resource};
use mainspring_driver::sessions::Sessions;
use mainspring_sched::context::ContextSpec;
use mainspring_sched::{Affinity, Entity, Floor, Overran};
use spin::{Mutex, MutexGuard, Once};

/// Contexts that there can be at a time.
pub const CONTEXTS: usize = 64;
/// What one process may hold: contexts, and of one CPU in billionths.
const PROFILE: Profile =
    Profile { limits: Amounts::UNLIMITED.with(Resource::Contexts, 8).with(Resource::CpuShare, 900_000_000) };
/// What each release costs on top of its own work: two interrupts and decisions.
const OVERHEAD: Nanos = Nanos::from_micros(10);

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
        let sessions = Sessions::new(1).expect("a session fits in the heap");
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

    fn wake_waiter(&mut self, context: ContextRef, waiter: ThreadRef) {
        let Some(thread) = thread::find(waiter) else { return };
        let told = thread.inbox.lock().finish_awaiting(waiter, Awaits::Notice(context));
        if let Some((waiter, posted)) = told {
            wakeup::posted(waiter, posted);
        }
    }
}

/// Events of this CPU have used contexts up or made them late: who waited for that is told. Nothing is locked. Whether anybody
/// was told, and may go before the thread that was chosen.
#[inline(always)]
pub fn tell_waiters(here: &PerCpu) -> bool {
    let mut told = false;
    while let Some((context, waiter)) = here.take_untold() {
        Kernel.wake_waiter(context, waiter);
        told = true;
    }
    told
}

/// Grants `process`, which is being made, a context of its own.
pub fn grant(process: &Process, spec: ContextSpec) -> Result<ContextRef, CreateError> {
    let mut table = lock();
    let ledger = match *process.resources.lock() {
        Some(ledger) => ledger,
        None => table.ledgers.open(&PROFILE, None).map_err(CreateError::Ledger)?,
    };
    *process.resources.lock() = Some(ledger);
    let owner = Some(ProcessId::new(process.index()));
    let grant = Grant { session: None, process: owner, ledger: Some(ledger), home: HomeCpu::Admitted };
    let _charged = arch::open_heap();
    table.grant(arch::now(), spec, grant)
}

/// Whoever has the context `creator` makes another one, for these CPUs, bit by bit, or for the creator's if there are none. What
/// it takes of the heap is bounded by the number of contexts.
pub fn create(creator: ContextRef, mut spec: ContextSpec, cpus: u64) -> Result<ContextRef, CreateError> {
    let mut table = lock();
    let _charged = arch::open_heap();
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

/// The process has ended, but for its last thread: its contexts are gone.
pub fn process_ended(process: &Process) {
    let Some(ledger) = process.resources.lock().take() else { return };
    let mut table = lock();
    table.owner_exited(&mut Kernel, ProcessId::new(process.index()));
    let closed = table.ledgers.close(ledger);
    debug_assert_eq!(closed, Ok(()), "a process has ended and still holds contexts");
}
