//! A worker's scheduler core behind its lock, and what the others may see of it without the lock.
//!
//! Conserved: what others see of the core is brought up to date before the lock is let go.

use super::machine::{Seen, ThreadTable, is_fault};
use crate::protocol::prim::{AtomicBool, AtomicIsize, AtomicUsize, Mutex, MutexGuard, Ordering};
use mainspring_abi::{CpuId, Nanos};
use mainspring_driver::{CpuAccess, CpuCore, RecordedCpu};
use mainspring_sched::flight::Log;
use mainspring_sched::{Authority, Cpu, Decision, Dispatch, IdleConditions, IdleTick, Offer, Stop, WaitKind};

/// Something that happened to a context, of which somebody has to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untold {
    /// The context, by number.
    pub context: u32,
    /// It is used up, and that counts as a fault of this thread.
    pub fault: Option<u32>,
}

/// A scheduler CPU, its decision that was not carried out yet, and its record.
pub(super) struct Core {
    pub(super) cpu: CpuCore,
    decided: Option<Dispatch>,
    slice_end: Nanos,
    pub(super) log: Option<Log>,
    /// Contexts of which somebody waits to be told what has happened here.
    untold: Vec<Untold>,
    /// Until when its worker sleeps if nobody wakes it; zero while it is awake.
    sleeps_until: Nanos,
}

pub(super) struct WorkerCore {
    pub(super) id: CpuId,
    core: Mutex<Core>,
    /// Its worker has been told to look.
    pub(super) message: AtomicBool,
    /// Its worker is about to sleep, or sleeps.
    pub(super) idle: AtomicBool,
    due_in: AtomicIsize,
    reach: AtomicUsize,
    /// Threads that are ready or run here.
    busy: AtomicUsize,
    /// The weight of threads that were placed here because it was the least.
    pub(super) placed_weight: AtomicUsize,
    /// There are contexts here, which may need a look at the clock.
    has_contexts: AtomicBool,
    /// [`Core::untold`] has something.
    has_untold: AtomicBool,
}

impl WorkerCore {
    pub(super) fn new(id: CpuId, cpu: Cpu, log: Option<Log>) -> Self {
        Self {
            id,
            core: Mutex::new(Core {
                cpu: CpuCore::new(cpu),
                decided: None,
                slice_end: Nanos::MAX,
                log,
                untold: Vec::new(),
                sleeps_until: Nanos::ZERO,
            }),
            message: AtomicBool::new(false),
            idle: AtomicBool::new(false),
            due_in: AtomicIsize::new(isize::MAX),
            reach: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            placed_weight: AtomicUsize::new(0),
            has_contexts: AtomicBool::new(false),
            has_untold: AtomicBool::new(false),
        }
    }

    /// The core, for what others need not see.
    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("no panic while it is held")
    }

    /// Does something with the core, under its lock.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.lock();
        let result = act(&mut core);
        let offer = core.cpu.offer();
        self.reach.store(offer.bound_reach as usize, Ordering::Relaxed);
        let busy = core.cpu.queued() + usize::from(core.cpu.current().is_some());
        self.busy.store(busy, Ordering::Relaxed);
        self.has_contexts.store(core.cpu.contexts() != 0, Ordering::Relaxed);
        if let Some(overran) = core.cpu.take_overrun() {
            let fault = is_fault(&overran).then(|| overran.owner.index());
            if overran.waiter.is_some() || fault.is_some() {
                core.untold.push(Untold { context: overran.context.id(), fault });
                self.has_untold.store(true, Ordering::Relaxed);
            }
        }
        // SeqCst: the offer comes before a waker's look at who is idle, and a worker looks at the offers after it has said
        // that it is: one of the two sees the other. A thread that reads this store also sees the stores above.
        self.due_in.store(offer.due_in as isize, Ordering::SeqCst);
        result
    }

    /// The contexts that somebody waits to be told of, by number. Asked by its own worker, after each event of its own.
    pub(super) fn take_untold(&self) -> Vec<Untold> {
        // Relaxed: a worker sees its own writes; what another operation left here is found at the next look.
        if !self.has_untold.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut core = self.lock();
        self.has_untold.store(false, Ordering::Relaxed);
        std::mem::take(&mut core.untold)
    }

    /// Its worker is about to sleep; until when at the latest. A refill that comes sooner from here on is told to it, see
    /// [`WorkerCore::sleeps_over_refill`].
    pub(super) fn plan_sleep(&self, now: Nanos) -> Nanos {
        self.with(|core| {
            core.sleeps_until = core.wakes_at(now);
            core.sleeps_until
        })
    }

    /// Its worker is awake, and looks at its core by itself.
    pub(super) fn wakes(&self) {
        self.lock().sleeps_until = Nanos::ZERO;
    }

    /// Whether its worker sleeps longer than the contexts here allow. Asked after an event here: the lock orders that event and
    /// the worker's plan, so the plan knows of the event or this sees the plan.
    pub(super) fn sleeps_over_refill(&self) -> bool {
        // Relaxed: written by the event after which this is asked, or later.
        self.has_contexts.load(Ordering::Relaxed) && {
            let core = self.lock();
            core.cpu.next_timer() < core.sleeps_until
        }
    }

    /// What the core has to give, as it said last.
    pub(super) fn offer(&self) -> Offer {
        // SeqCst: see `with`.
        let due_in = self.due_in.load(Ordering::SeqCst) as i64;
        Offer { due_in, bound_reach: self.reach.load(Ordering::Relaxed) as u64 }
    }

    /// Whether there are contexts here, as the last event left it.
    pub(super) fn has_contexts(&self) -> bool {
        self.has_contexts.load(Ordering::Relaxed)
    }

    /// How many threads are ready or run here.
    pub(super) fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }
}

impl Core {
    /// The CPU at `now`, as the driver wants it.
    pub(super) fn access<'c, 'l: 'c>(
        &'c mut self,
        now: Nanos,
        threads: &'c mut &'l ThreadTable,
    ) -> CpuAccess<'c, Seen<'l>> {
        CpuAccess::new(&mut self.cpu, now, &mut self.log, threads)
    }

    /// An event at `now`, or at the time of the last event if that is later.
    pub(super) fn at(&mut self, now: Nanos) -> RecordedCpu<'_, Option<Log>> {
        self.cpu.at(now, &mut self.log)
    }

    /// The running thread stops, or there was none. What was decided is kept until [`Core::take_decided`].
    pub(super) fn resched(&mut self, now: Nanos, stop: Stop) {
        debug_assert!(self.decided.is_none(), "a decision was not carried out");
        match self.at(now).resched(stop) {
            Decision::Run(run) => {
                self.slice_end = run.slice_end;
                self.decided = Some(run);
            }
            Decision::Idle => self.decided = None,
        }
    }

    /// The thread that was decided on and has not begun waits instead; whether there was one.
    pub(super) fn stop_decided(&mut self, now: Nanos) -> bool {
        self.decided = None;
        self.at(now).block_current(WaitKind::Park, None)
    }

    /// What to run, if that has been decided or a thread is ready.
    pub(super) fn take_decided(&mut self, now: Nanos) -> Option<Dispatch> {
        if self.decided.is_none() && self.cpu.current().is_none() {
            self.tend_timer(now);
            if self.cpu.queued() > 0 {
                self.resched(now, Stop::Nothing);
            }
        }
        self.decided.take()
    }

    /// Where contexts are, a look at the clock takes the place of the timer interrupt: budgets end here, and refills come.
    fn tend_timer(&mut self, now: Nanos) {
        if self.cpu.contexts() != 0 && self.cpu.next_timer() <= now.max(self.cpu.last()) {
            let _outcome = self.at(now).timer();
        }
    }

    /// Nothing runs here: when the next refill comes, as a core with contexts says. Never, if there are none.
    fn wakes_at(&mut self, now: Nanos) -> Nanos {
        if self.cpu.contexts() == 0 {
            return Nanos::MAX;
        }
        match self.at(now).enter_idle(&IdleConditions::default()) {
            IdleTick::Suppressed { wake_at } => wake_at,
            // Somebody is ready by now.
            IdleTick::Kept(_) => now,
        }
    }

    /// Whether the running thread should stop: somebody better is ready, its budget is used up, or its turn is over and
    /// somebody else is ready.
    pub(super) fn turn_is_over(&mut self, now: Nanos) -> bool {
        self.tend_timer(now);
        let slice_over = self.cpu.contexts() == 0 && self.cpu.queued() > 0 && now >= self.slice_end;
        self.cpu.reschedule_wanted() || slice_over
    }

    /// Whether the running thread has a context, or has lent one.
    pub(super) fn current_has_authority(&self) -> bool {
        let entity = self.cpu.current().and_then(|seat| self.cpu.entity(seat).ok());
        entity.is_some_and(|entity| *entity.authority() != Authority::BestEffort)
    }

    /// CPU time of the running thread, the interval in progress included.
    pub(super) fn time_of_current(&self, now: Nanos) -> Option<Nanos> {
        let entity = self.cpu.entity(self.cpu.current()?).ok()?;
        Some(entity.account().runtime() + (now.max(self.cpu.last()) - self.cpu.since()))
    }
}
