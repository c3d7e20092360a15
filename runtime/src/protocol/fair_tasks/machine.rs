//! The cores as the driver sees them.
//!
//! Conserved: an operation on a thread tells at most one worker, one on contexts perhaps several. The caller of the operation
//! wakes them afterwards, if they sleep, and tells those who wait for notices of the contexts that are named.

use super::contexts::Aftermath;
use super::leases::{self, LeaseEnd};
use super::worker_core::WorkerCore;
use super::{FairTasks, Thread, WakeWorker};
use crate::protocol::mutant::{Mutant, broken};
use crate::protocol::prim::Ordering;
use mainspring_abi::{ContextRef, CpuId, CpuSet, Nanos, ThreadRef};
use mainspring_driver::contexts::{ContextMachine, ContextMoved};
use mainspring_driver::leases::{Isolation, LeaseEvent, LeaseMachine, LeaseNotice, RingId, TickDuties};
use mainspring_driver::sessions::SessionRef;
use mainspring_driver::{CpuAccess, Home, Machine, Notified, Threads};
use mainspring_sched::context::Overrun;
use mainspring_sched::flight::Log;
use mainspring_sched::lease::{AccountingTarget, Endpoint, TargetStanding};
use mainspring_sched::nohz::{RemoteSlot, RingFacts};
use mainspring_sched::{Affinity, Authority, Entity, NetworkNeed, Offer, Overran, Seat, WaitPermit};
use std::sync::Arc;

/// The slot of a thread that sits on no core: it has ended, or no task has been admitted as it.
pub(super) const NOWHERE: u32 = u32::MAX;

/// The threads of all cores, by number.
pub(super) struct ThreadTable(pub Box<[Thread]>);

impl std::ops::Deref for ThreadTable {
    type Target = [Thread];

    fn deref(&self) -> &[Thread] {
        &self.0
    }
}

impl Threads for &ThreadTable {
    /// Under the core's lock, so that no worker moves the thread on before.
    fn set_home(&mut self, thread: ThreadRef, home: Option<Home>) {
        let entry = &self[thread.index() as usize];
        if let Some(Home { cpu, .. }) = home {
            entry.core.store(cpu.index(), Ordering::Relaxed);
        }
        entry.slot.store(home.map_or(NOWHERE, |home| home.seat.slot()), Ordering::Relaxed);
    }
}

/// The cores at one moment, as one worker sees them, or a thread that is no worker.
pub(super) struct Seen<'l> {
    fair_tasks: &'l FairTasks,
    here: Option<usize>,
    now: Nanos,
    /// The first worker that was told: of an operation on one thread, the only one.
    told: WakeWorker,
    aftermath: Aftermath,
    /// A context has come to rest.
    at_rest: bool,
    /// How what pays for the lease that is asked for stands.
    pub(super) payer: TargetStanding,
}

impl<'l> Seen<'l> {
    pub(super) fn new(fair_tasks: &'l FairTasks, here: Option<usize>, now: Nanos) -> Self {
        let (told, aftermath) = (WakeWorker(None), Aftermath::default());
        Self { fair_tasks, here, now, told, aftermath, at_rest: false, payer: TargetStanding::Chargeable }
    }

    /// The worker that was told, to be woken, after an operation on one thread.
    pub(super) fn told(self) -> WakeWorker {
        debug_assert!(self.aftermath.workers.is_empty(), "an operation on a thread tells one worker");
        self.told
    }

    /// What an operation on contexts has left to do.
    pub(super) fn aftermath(mut self) -> Aftermath {
        self.aftermath.workers.extend(self.told.0);
        self.aftermath
    }

    /// Whether a context has come to rest since this was last asked.
    pub(super) fn take_at_rest(&mut self) -> bool {
        std::mem::take(&mut self.at_rest)
    }

    /// A group gave a thread its context.
    pub(super) fn note_given(&mut self, thread: Option<usize>) {
        self.aftermath.given.extend(thread);
    }

    /// Whether a thread could have a context of worker `home` if it came over.
    pub(super) fn may_come_for_context(&self, thread: ThreadRef, home: CpuId) -> bool {
        let plain =
            |entity: &Entity| *entity.authority() == Authority::BestEffort && entity.affinity().allows(home);
        self.of_entity(thread, plain).unwrap_or(false)
    }

    fn core(&self, cpu: CpuId) -> &'l WorkerCore {
        &self.fair_tasks.cores[cpu.index()]
    }

    pub(super) fn threads(&self) -> &'l ThreadTable {
        &self.fair_tasks.threads
    }

    pub(super) fn name(&self, thread: usize) -> ThreadRef {
        self.fair_tasks.name(thread)
    }

    pub(super) fn of_entity<R>(&self, thread: ThreadRef, ask: impl FnOnce(&Entity) -> R) -> Option<R> {
        let home = self.home(thread)?;
        self.core(home.cpu).lock().cpu.entity(home.seat).ok().map(ask)
    }

    pub(super) fn is_best_effort(&self, thread: ThreadRef) -> bool {
        self.of_entity(thread, |entity| *entity.authority() == Authority::BestEffort).unwrap_or(false)
    }
}

impl<'l> Machine for Seen<'l> {
    type Observer = Option<Log>;
    type Threads = &'l ThreadTable;

    fn with_cpu<R>(&mut self, cpu: CpuId, act: impl FnOnce(&mut CpuAccess<'_, Self>) -> R) -> R {
        self.core(cpu).with(|core| act(&mut core.access(self.now, &mut &self.fair_tasks.threads)))
    }

    fn cpus(&self) -> usize {
        self.fair_tasks.cores.len()
    }

    /// A worker looks at its own core before it does anything else.
    fn this_cpu(&self) -> Option<CpuId> {
        self.here.map(|worker| self.fair_tasks.cores[worker].id)
    }

    fn notify_cpu(&mut self, cpu: CpuId) -> Notified {
        // SeqCst: the message comes before the look at whether the worker sleeps, and its own last look comes after it
        // has said that it does. AcqRel with `FairTasks::listen` is part of it.
        if self.core(cpu).message.swap(true, Ordering::SeqCst) {
            return Notified::Pending;
        }
        match self.told {
            WakeWorker(None) => self.told = WakeWorker(Some(cpu.index())),
            WakeWorker(Some(_)) => self.aftermath.workers.push(cpu.index()),
        }
        Notified::Sent
    }

    fn any_cpu_idles(&self) -> bool {
        self.next_idle_cpu(CpuId::BOOT).is_some()
    }

    fn next_idle_cpu(&self, from: CpuId) -> Option<CpuId> {
        // SeqCst: see `WorkerCore::with`.
        let idle =
            |core: &&WorkerCore| core.idle.load(Ordering::SeqCst) && !self.fair_tasks.is_leased(core.id);
        self.fair_tasks.cores.iter().skip(from.index()).find(idle).map(|core| core.id)
    }

    fn home(&self, thread: ThreadRef) -> Option<Home> {
        let entry = self.fair_tasks.threads.get(thread.index() as usize)?;
        let slot = entry.slot.load(Ordering::Relaxed);
        if slot == NOWHERE || entry.generation.load(Ordering::Relaxed) != thread.generation() {
            return None;
        }
        let cpu = self.fair_tasks.cores[entry.core.load(Ordering::Relaxed)].id;
        Some(Home { cpu, seat: Seat::from_parts(slot, thread) })
    }

    fn offer(&self, cpu: CpuId) -> Offer {
        self.core(cpu).offer()
    }

    fn placed_weight(&self, cpu: CpuId) -> u64 {
        self.core(cpu).placed_weight.load(Ordering::Relaxed) as u64
    }

    fn add_placed_weight(&mut self, cpu: CpuId, weight: u64) {
        self.core(cpu).placed_weight.fetch_add(weight as usize, Ordering::Relaxed);
    }

    fn wait_ended(&mut self, _: ThreadRef, permit: Option<WaitPermit>) {
        debug_assert_eq!(permit, None, "timers are not of the cores");
    }

    fn may_enter(&self, thread: ThreadRef, cpu: CpuId) -> bool {
        let admits = |isolation: &mut Isolation| isolation.admits(thread, cpu);
        !self.fair_tasks.any_lease()
            || self.fair_tasks.isolated.as_ref().is_none_or(|isolated| isolated.with_isolation(admits))
    }

    fn wakes_elsewhere(&mut self, thread: ThreadRef) -> bool {
        self.fair_tasks.any_lease() && leases::wakes_elsewhere(self, thread)
    }

    /// A worker that sleeps longer than its core's next refill is woken to plan again.
    fn rearm_timer(&mut self, cpu: CpuId) {
        if self.core(cpu).sleeps_over_refill() && !broken(Mutant::RefillSleptOver) {
            // One that has been told already looks up anyway.
            let _told = self.notify_cpu(cpu);
        }
    }
}

impl ContextMachine for Seen<'_> {
    fn overran(&mut self, overran: Overran) {
        if overran.waiter.is_some() {
            self.aftermath.contexts.push(overran.context.id());
        }
        if is_fault(&overran) {
            self.aftermath.faults.push((overran.context.id(), overran.owner.index()));
        }
    }

    fn context_moved(&mut self, event: ContextMoved) {
        match event {
            ContextMoved::AtRest { .. } => self.at_rest = true,
            ContextMoved::Bound { thread, .. } => {
                self.fair_tasks.threads[thread.index() as usize].had_context.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    fn wake_waiter(&mut self, context: ContextRef, _: ThreadRef) {
        self.aftermath.contexts.push(context.id());
    }

    fn session_of(&self, thread: ThreadRef) -> Option<SessionRef> {
        self.fair_tasks.isolated.as_ref()?.session(thread)
    }
}

/// Whether a context is used up whose holder has to hear of that.
pub(super) fn is_fault(overran: &Overran) -> bool {
    overran.depleted && matches!(overran.policy, Overrun::Fault | Overrun::Shutdown)
}

impl LeaseMachine for Seen<'_> {
    fn now(&self) -> Nanos {
        self.now
    }

    fn with_isolation<R>(&mut self, act: impl FnOnce(&mut Isolation) -> R) -> R {
        let isolated = self.fair_tasks.isolated.as_ref();
        isolated.expect("a runtime with leases has it").with_isolation(act)
    }

    /// No worker asks another to do without a tick, so what is left here is looked at by nobody.
    fn with_remote_slot<R>(&mut self, _: CpuId, act: impl FnOnce(&mut RemoteSlot) -> R) -> R {
        act(&mut RemoteSlot::new())
    }

    fn own_affinity(&self, thread: ThreadRef) -> Affinity {
        self.fair_tasks.isolated.as_ref().map_or(Affinity::Any, |isolated| isolated.affinity(thread))
    }

    fn stays(&self, thread: ThreadRef) -> bool {
        self.fair_tasks.isolated.as_ref().is_some_and(|isolated| isolated.stays(thread))
    }

    fn affinity_of(&mut self, cpus: CpuSet) -> Option<Affinity> {
        Some(Affinity::Only(Arc::new(cpus)))
    }

    /// The tick is the host's, so no lease asks to do without it.
    fn tick_duties(&mut self, _: CpuId) -> TickDuties {
        TickDuties {
            deferred_work: false,
            global_timers: true,
            unbound_worker: false,
            watchdog: false,
            network: NetworkNeed::Inactive,
            fixed_interrupt: false,
            devices_on_housekeeping: true,
            stable_clock: true,
            boundary_accounting: true,
            interruptible: false,
            periodic_timer: false,
            oneshot_timer: false,
            min_delta: Nanos::MAX,
        }
    }

    fn target_standing(&self, _: AccountingTarget) -> TargetStanding {
        self.payer
    }

    fn ring_facts(&mut self, _: RingId) -> RingFacts {
        RingFacts::NoRing
    }

    fn stop_current(&mut self, cpu: CpuId) -> bool {
        self.core(cpu).with(|core| core.stop_decided(self.now))
    }

    fn leased_changed(&mut self, _: CpuId) {
        self.aftermath.leased_changed = true;
    }

    fn post_lease_notice(&mut self, _: Endpoint, _: LeaseNotice) {}

    fn lease_event(&mut self, event: LeaseEvent) {
        if let LeaseEvent::Ended { lease, reason } = event {
            self.aftermath.lease_ends.push(LeaseEnd { lease, reason, at: self.now });
        }
    }
}
