//! The cores as the driver sees them.
//!
//! Conserved: an operation on a thread tells at most one worker, one on contexts perhaps several. The caller of the operation
//! wakes them afterwards, if they sleep, and tells those who wait for notices of the contexts that are named.

use super::contexts::Aftermath;
use super::worker_core::WorkerCore;
use super::{FairTasks, Thread, WakeWorker};
use crate::protocol::mutant::{Mutant, broken};
use crate::protocol::prim::Ordering;
use mainspring_abi::{ContextRef, CpuId, Nanos, ThreadRef};
use mainspring_driver::contexts::ContextMachine;
use mainspring_driver::{CpuAccess, Home, Machine, Notified, Threads};
use mainspring_sched::flight::Log;
use mainspring_sched::{Offer, Overran, Seat, WaitPermit};

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
}

impl<'l> Seen<'l> {
    pub(super) fn new(fair_tasks: &'l FairTasks, here: Option<usize>, now: Nanos) -> Self {
        Self { fair_tasks, here, now, told: WakeWorker(None), aftermath: Aftermath::default() }
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

    fn core(&self, cpu: CpuId) -> &'l WorkerCore {
        &self.fair_tasks.cores[cpu.index()]
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
        let idle = |core: &&WorkerCore| core.idle.load(Ordering::SeqCst);
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
    }

    fn wake_waiter(&mut self, context: ContextRef, _: ThreadRef) {
        self.aftermath.contexts.push(context.id());
    }
}
