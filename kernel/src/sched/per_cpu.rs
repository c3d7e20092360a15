//! What each CPU's scheduling consists of.

use super::check::Checks;
use super::contexts::CONTEXTS;
use super::islands;
use super::machine::{Kernel, ThreadTable};
use crate::arch::cpu::{self, Held};
use crate::arch::{self, StaticRef};
use crate::measure::{self, Counter, Holding, Segment};
use crate::object::thread::{self, Thread};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use mainspring_abi::{ContextRef, CpuId, Nanos, Policy, ThreadRef};
use mainspring_driver::{CpuAccess, CpuCore, RecordedCpu};
use mainspring_sched::context::Overrun;
use mainspring_sched::flight::Log;
use mainspring_sched::hint::unlikely;
use mainspring_sched::{Authority, Config, Cpu, Decision, Floor, Offer, Overran, Stop};
use spin::{Mutex, MutexGuard, Once};

/// How the machine schedules, from the boot manifest.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Best-effort policy.
    pub policy: Policy,
    /// Best-effort quantum.
    pub quantum: Nanos,
    /// Period of the tick.
    pub tick: Nanos,
    /// What best effort keeps beside contexts.
    pub floor: Floor,
    /// How many threads there can be.
    pub seats: usize,
    /// Tick from the PIT even where the local APIC has a timer.
    pub pit: bool,
    /// Say when a CPU first idles, and after what.
    pub say_idle: bool,
    /// Say each switch to a thread; heeded by a kernel that measures.
    pub say_switches: bool,
    /// Bytes of flight record to keep per CPU; 0 for none.
    pub record_bytes: usize,
    /// Of so many messages between CPUs one arrives; 0 if all do.
    pub one_message_of: u32,
    /// After how long a silence the policy service counts as slow.
    pub policy_slow_after: Nanos,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: Policy::Eevdf,
            quantum: Nanos::from_millis(3),
            tick: Nanos::from_millis(10),
            floor: Floor::DEFAULT,
            seats: thread::MAX_THREADS,
            pit: false,
            say_idle: false,
            say_switches: false,
            record_bytes: 0,
            one_message_of: 0,
            policy_slow_after: Nanos::from_millis(500),
        }
    }
}

/// What is to be done about a context when nothing is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Untold {
    /// The thread waited for something to happen to it.
    Waiter(ContextRef, ThreadRef),
    /// It is used up, and this is what is to happen to the thread whose it is.
    UsedUp(ContextRef, ThreadRef, Overrun),
}

/// A context has one of each at most.
type UntoldList = heapless::Vec<Untold, { 2 * CONTEXTS }>;

/// A scheduler CPU, and the record of its events.
pub struct Core {
    pub(super) cpu: CpuCore,
    pub(super) log: Option<Log>,
    /// Who waited for what an event here did to a context, and has not been told.
    pub(super) untold: UntoldList,
}

impl Core {
    /// The core itself, to be looked at.
    #[must_use]
    pub fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// Whether the running thread has no context and has lent none.
    pub(super) fn runs_best_effort(&self) -> bool {
        self.cpu.running().is_none_or(|entity| *entity.authority() == Authority::BestEffort)
    }

    /// The core at the present time. What others may see of it is brought up to date afterwards.
    #[inline(always)]
    pub(super) fn access<T>(
        &mut self,
        per_cpu: &PerCpu,
        act: impl FnOnce(&mut CpuAccess<'_, Kernel>) -> T,
    ) -> T {
        let _segment = measure::within(Segment::Scheduler);
        let result = act(&mut CpuAccess::new(&mut self.cpu, arch::now(), &mut self.log, &mut ThreadTable));
        per_cpu.after_event(self);
        result
    }

    /// An event that happens now.
    #[inline(always)]
    pub fn event<T>(&mut self, per_cpu: &PerCpu, act: impl FnOnce(RecordedCpu<'_, Option<Log>>) -> T) -> T {
        let _segment = measure::within(Segment::Scheduler);
        let result = act(self.cpu.at(arch::now(), &mut self.log));
        per_cpu.after_event(self);
        result
    }

    /// A decision: the running thread stops as `stop` says.
    pub fn resched(&mut self, per_cpu: &PerCpu, stop: Stop) -> Decision {
        self.access(per_cpu, |cpu| resched(cpu, stop))
    }
}

/// A decision on a core that is held.
#[inline(always)]
pub(super) fn resched(cpu: &mut CpuAccess<'_, Kernel>, stop: Stop) -> Decision {
    measure::one(Counter::Decisions);
    measure::add(Counter::Candidates, cpu.cpu().queued() as u64);
    let decision = cpu.event().resched(stop);
    measure::one(if decision == Decision::Idle { Counter::Idles } else { Counter::Runs });
    decision
}

/// One CPU's scheduling.
pub struct PerCpu {
    id: CpuId,
    /// The best-effort quantum.
    pub quantum: Nanos,
    core: Mutex<Core>,
    /// A message is on its way: another need not be sent.
    pub(super) message_pending: AtomicBool,
    offer_due_in: AtomicI64,
    offer_reach: AtomicU64,
    /// When the core next needs the timer, and what the timer is set to.
    pub(super) next_timer: AtomicU64,
    pub(super) armed: AtomicU64,
    /// When the one-shot comes that was armed last: no later than it can be set.
    pub(super) fires_at: AtomicU64,
    /// The page tables that the CPU has loaded; 0 for the kernel's own.
    pub(super) loaded: AtomicU64,
    /// Whose they are, plus one; 0 for the kernel.
    pub(super) loaded_process: AtomicU32,
    /// The thread that the CPU runs, or ran last.
    pub(super) current: StaticRef<Thread>,
    /// Flushes that others have asked for, and that this CPU has done: generations.
    pub(super) flush_asked: AtomicU64,
    pub(super) flush_done: AtomicU64,
    /// Reschedules sent by this CPU, and not sent because one was on its way.
    pub(super) sent: AtomicU64,
    pub(super) pending: AtomicU64,
    /// The weight of threads that were placed here because it was the least.
    pub(super) placed_weight: AtomicU64,
    pub(super) checks: Checks,
    has_untold: AtomicBool,
    /// Requests that were not begun here because they were late.
    expired_requests: AtomicU64,
    /// How long pollers have run here, in ns, and how often they fell asleep.
    polled_ns: AtomicU64,
    poller_sleeps: AtomicU64,
    /// CPUs whose pass of the machine's own work is left to this one, bit by bit.
    owed_passes: AtomicU64,
    /// Threads here may have to leave because of a lease, or the tick may be able to stop: see [`super::leases`].
    lease_work: AtomicBool,
    said_idle: AtomicU32,
    /// Whether the CPU schedules.
    pub(super) ready: AtomicBool,
}

/// A core, locked.
pub struct Locked<'l> {
    core: MutexGuard<'l, Core>,
    _held: Held,
    _holding: Holding,
}

impl Deref for Locked<'_> {
    type Target = Core;

    #[inline(always)]
    fn deref(&self) -> &Core {
        &self.core
    }
}

impl DerefMut for Locked<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Core {
        &mut self.core
    }
}

/// CPUs that have nothing to run, bit by bit.
pub(super) static IDLE: AtomicU64 = AtomicU64::new(0);
static PER_CPUS: Once<Box<[PerCpu]>> = Once::new();

/// Makes the `PerCpu` of each of `cpus` CPUs, with seats for every thread there can be on each of them.
pub fn init(cpus: usize, settings: &Settings) {
    PER_CPUS.call_once(|| {
        let make = |number| {
            let id =
                CpuId::new(number).expect("as many CPUs as the kernel can have are within the ABI's limit");
            let Settings { quantum, tick, floor, policy, .. } = *settings;
            let config = Config { quantum, tick, floor, ..Config::new(id, policy) };
            let mut cpu = Cpu::new(config);
            cpu.reserve(settings.seats).expect("seats for all threads fit in the heap");
            let log = (settings.record_bytes > 0).then(|| Log::new(settings.record_bytes));
            PerCpu {
                id,
                quantum: settings.quantum,
                core: Mutex::new(Core { cpu: CpuCore::new(cpu), log, untold: UntoldList::new() }),
                message_pending: AtomicBool::new(false),
                offer_due_in: AtomicI64::new(Offer::NOTHING),
                offer_reach: AtomicU64::new(0),
                next_timer: AtomicU64::new(u64::MAX),
                armed: AtomicU64::new(u64::MAX),
                fires_at: AtomicU64::new(0),
                loaded: AtomicU64::new(0),
                loaded_process: AtomicU32::new(0),
                current: StaticRef::new(thread::slot(0)),
                flush_asked: AtomicU64::new(0),
                flush_done: AtomicU64::new(0),
                sent: AtomicU64::new(0),
                pending: AtomicU64::new(0),
                placed_weight: AtomicU64::new(0),
                checks: Checks::default(),
                has_untold: AtomicBool::new(false),
                expired_requests: AtomicU64::new(0),
                polled_ns: AtomicU64::new(0),
                poller_sleeps: AtomicU64::new(0),
                owed_passes: AtomicU64::new(0),
                lease_work: AtomicBool::new(false),
                said_idle: AtomicU32::new(0),
                ready: AtomicBool::new(false),
            }
        };
        (0..cpus).map(make).collect::<Vec<_>>().into_boxed_slice()
    });
}

/// The `PerCpu` of every CPU.
#[must_use]
pub fn per_cpus() -> &'static [PerCpu] {
    PER_CPUS.get().expect("per_cpus exist before anything is scheduled")
}

/// The `PerCpu` of CPU `number`.
#[must_use]
pub fn per_cpu(number: usize) -> &'static PerCpu {
    &per_cpus()[number]
}

/// The `PerCpu` of the CPU that asks.
#[inline]
#[must_use]
pub fn mine() -> &'static PerCpu {
    cpu::per_cpu().expect("a CPU has its per_cpu before it schedules")
}

/// Gives the CPU that asks its `PerCpu`.
pub fn install() {
    cpu::set_per_cpu(per_cpu(cpu::index()));
}

impl PerCpu {
    /// Which CPU's.
    #[must_use]
    pub fn id(&self) -> CpuId {
        self.id
    }

    /// The core, under its lock. Nobody asks who has another one locked.
    #[inline(always)]
    pub fn lock(&self) -> Locked<'_> {
        debug_assert_eq!(cpu::held(), 0, "two cores locked by one CPU");
        self.lock_too()
    }

    /// As [`PerCpu::lock`], for who stops them all, in their order.
    #[inline(always)]
    pub fn lock_too(&self) -> Locked<'_> {
        if measure::ON {
            measure::one(Counter::CoreLocks);
            measure::add(Counter::CoreLocksContended, self.core.is_locked().into());
        }
        let waits = measure::within(Segment::LockWait);
        let core = self.core.lock();
        drop(waits);
        Locked { core, _held: Held::new(), _holding: measure::holding() }
    }

    /// Whether another CPU has the core locked at the moment.
    pub(super) fn is_taken(&self) -> bool {
        self.core.is_locked()
    }

    /// Leases are looked after before this CPU, which asks, goes on in user mode or halts.
    pub(super) fn raise_lease_work(&self) {
        self.lease_work.store(true, Ordering::Relaxed);
    }

    /// Whether leases are to be looked after.
    #[inline(always)]
    pub(super) fn has_lease_work(&self) -> bool {
        self.lease_work.load(Ordering::Relaxed)
    }

    /// The same, and they are not any more.
    pub(super) fn take_lease_work(&self) -> bool {
        self.lease_work.swap(false, Ordering::Relaxed)
    }

    /// Whether something waits to be done by this CPU itself: translations to forget, or threads to tell.
    pub(super) fn has_deferred_work(&self) -> bool {
        let asked = self.flush_asked.load(Ordering::Acquire);
        asked > self.flush_done.load(Ordering::Acquire) || self.has_untold()
    }

    /// Whether something is to be done about a context when nothing is locked.
    #[inline(always)]
    pub(super) fn has_untold(&self) -> bool {
        // Relaxed: only events of this CPU's own thread set it, on this CPU.
        self.has_untold.load(Ordering::Relaxed)
    }

    /// Takes out one thing that is to be done about a context. The caller does it, with nothing locked.
    pub(super) fn take_untold(&self) -> Option<Untold> {
        let mut core = self.lock();
        let untold = core.untold.pop();
        self.has_untold.store(!core.untold.is_empty(), Ordering::Relaxed);
        untold
    }

    /// What the CPU has to give, as it said last.
    #[must_use]
    pub fn offer(&self) -> Offer {
        Offer {
            due_in: self.offer_due_in.load(Ordering::Relaxed),
            bound_reach: self.offer_reach.load(Ordering::Relaxed),
        }
    }

    /// Something has happened to `core`. Called with the lock held.
    #[inline(always)]
    fn after_event(&self, core: &mut Core) {
        if unlikely(core.cpu.has_overrun()) {
            self.note_overrun(core);
        }
        self.publish(core);
    }

    #[cold]
    fn note_overrun(&self, core: &mut Core) {
        if let Some(overran) = core.cpu.take_overrun() {
            self.push_overran(core, overran);
        }
    }

    /// `overran` is dealt with by the CPU that asks, when nothing is locked.
    pub(super) fn note_overran(&self, overran: Overran) {
        self.push_overran(&mut self.lock(), overran);
    }

    fn push_overran(
        &self,
        core: &mut Core,
        Overran { context, waiter, policy, depleted, owner, .. }: Overran,
    ) {
        if let Some(waiter) = waiter {
            self.push_untold(core, Untold::Waiter(context, waiter));
        }
        let used_up = Untold::UsedUp(context, owner, policy);
        let acts = match policy {
            Overrun::Fault | Overrun::Shutdown => true,
            Overrun::Notify => islands::any(),
            Overrun::Throttle => false,
        };
        if depleted && acts && !core.untold.contains(&used_up) {
            self.push_untold(core, used_up);
        }
    }

    /// `waiter` waited for what happened to `context`, and is told by the CPU that asks, when nothing is locked.
    pub(super) fn note_untold(&self, context: ContextRef, waiter: ThreadRef) {
        self.push_untold(&mut self.lock(), Untold::Waiter(context, waiter));
    }

    fn push_untold(&self, core: &mut Core, untold: Untold) {
        // Nobody waits twice for one context, and there is a place for each context.
        let noted = core.untold.push(untold);
        debug_assert!(noted.is_ok(), "more have been taken out than can wait");
        self.has_untold.store(true, Ordering::Relaxed);
    }

    /// Tells the others what `core` has to give and when it needs its timer. Called with the lock held.
    #[inline(always)]
    pub(super) fn publish(&self, core: &Core) {
        let offer = core.cpu.offer();
        self.offer_due_in.store(offer.due_in, Ordering::Relaxed);
        self.offer_reach.store(offer.bound_reach, Ordering::Relaxed);
        // SeqCst: see `dispatch::arm`. It also orders the offer before a waker's look at the idle CPUs, whose own look at
        // the offers comes after they have said that they idle: one of the two sees the other.
        self.next_timer.store(core.cpu.next_timer().get(), Ordering::SeqCst);
    }

    /// A request was not begun here because it was late.
    pub fn count_expired_request(&self) {
        self.expired_requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests that were not begun here because they were late.
    #[must_use]
    pub fn expired_requests(&self) -> u64 {
        self.expired_requests.load(Ordering::Relaxed)
    }

    /// A poller has run here since `since`, and goes on from now.
    pub(super) fn count_polled(&self, since: &mut Nanos) {
        let now = arch::now();
        self.polled_ns.fetch_add((now - *since).get(), Ordering::Relaxed);
        *since = now;
    }

    /// A poller falls asleep here.
    pub(super) fn count_poller_sleep(&self) {
        self.poller_sleeps.fetch_add(1, Ordering::Relaxed);
    }

    /// How long pollers have run here, and how often they fell asleep.
    #[must_use]
    pub fn polled(&self) -> (Nanos, u64) {
        (Nanos::new(self.polled_ns.load(Ordering::Relaxed)), self.poller_sleeps.load(Ordering::Relaxed))
    }

    /// Passes of these CPUs, bit by bit, are this one's to do.
    pub(super) fn owe_passes(&self, of: u64) {
        self.owed_passes.fetch_or(of, Ordering::Relaxed);
    }

    /// The CPUs whose pass is this one's to do, which takes them.
    pub(super) fn take_owed_passes(&self) -> u64 {
        // Looked at first, since that is cheaper than a write and there mostly is none.
        if self.owed_passes.load(Ordering::Relaxed) == 0 {
            0
        } else {
            self.owed_passes.swap(0, Ordering::Relaxed)
        }
    }

    /// Reschedules that this CPU sent, and those it did not have to send.
    #[must_use]
    pub fn messages(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.pending.load(Ordering::Relaxed))
    }

    /// Whether this CPU has said before that it idles after `what`; it has now.
    pub(super) fn said_idle(&self, what: u8) -> bool {
        self.said_idle.fetch_or(1 << what, Ordering::Relaxed) >> what & 1 == 1
    }

    /// How many flushes others have asked for here.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.flush_done.load(Ordering::Relaxed)
    }
}
