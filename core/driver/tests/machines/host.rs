//! A machine with the kernel's shape: a lock for each CPU, records for each CPU, notifications that may fail.
//!
//! A [`Host`] is shared; a [`Seen`] is what one of its CPUs, or a thread from outside, sees of it and acts through.

use super::isolated::FREE;
use super::script::{Driven, end_timed_out_call};
use super::{contexts, core, leases, quota};
use mainspring_abi::{ContextRef, CpuId, CpuSet, Nanos, ThreadRef};
use mainspring_driver::contexts::{ContextMachine, Contexts};
use mainspring_driver::leases::{
    Isolation, LeaseEvent, LeaseMachine, LeaseNotice, Leases, RingId, TickDuties, moves_on, wakes_elsewhere,
};
use mainspring_driver::{CpuAccess, CpuCore, Home, Machine, Notified, Threads};
use mainspring_sched::flight::Log;
use mainspring_sched::lease::{AccountingTarget, Endpoint, TargetStanding};
use mainspring_sched::nohz::{RemoteSlot, RingFacts};
use mainspring_sched::{Affinity, Offer, Overran, WaitKind, WaitPermit, WaitQuota};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// Bytes of record for each CPU.
const RECORD: usize = 1 << 20;

struct HostCpu {
    core: Mutex<(CpuCore, Option<Log>)>,
    offer: Mutex<Offer>,
    told: AtomicBool,
    idle: AtomicBool,
    placed: AtomicU64,
}

pub struct Host {
    /// Its lock comes before any CPU's lock.
    pub contexts: Mutex<Contexts>,
    /// Its lock comes before the locks of the three below and of any CPU, and is never taken together with the lock of the contexts.
    pub leases: Mutex<Leases>,
    isolation: Mutex<Isolation>,
    slots: Vec<Mutex<RemoteSlot>>,
    own: Vec<Mutex<Affinity>>,
    cpus: Vec<HostCpu>,
    homes: Homes,
    /// A timed wait for each thread. Its lock is the last.
    pub quota: Mutex<WaitQuota>,
    began: Instant,
    /// Where time stands, unless it is [`Nanos::MAX`]: then it passes by itself.
    stands_at: AtomicU64,
    /// Every so many notifications one arrives; all if it is 1.
    pub one_arrives_of: u64,
    tried: AtomicU64,
    /// How many waits have ended.
    pub waits_ended: AtomicU64,
}

/// Where each thread sits.
pub struct Homes(Vec<Mutex<Option<Home>>>);

impl Host {
    pub fn new(cpus: usize, threads: usize) -> Self {
        let make = |index| HostCpu {
            core: Mutex::new((core(index, threads), Some(Log::new(RECORD)))),
            offer: Mutex::new(Offer::NONE),
            told: AtomicBool::new(false),
            idle: AtomicBool::new(true),
            placed: AtomicU64::new(0),
        };
        let (leases, isolation) = leases(cpus);
        Self {
            contexts: Mutex::new(contexts(cpus)),
            leases: Mutex::new(leases),
            isolation: Mutex::new(isolation),
            slots: (0..cpus).map(|_| Mutex::new(RemoteSlot::new())).collect(),
            own: (0..threads).map(|_| Mutex::new(Affinity::Any)).collect(),
            cpus: (0..cpus).map(make).collect(),
            homes: Homes((0..threads).map(|_| Mutex::new(None)).collect()),
            quota: Mutex::new(quota(threads)),
            began: Instant::now(),
            stands_at: AtomicU64::new(u64::MAX),
            one_arrives_of: 1,
            tried: AtomicU64::new(0),
            waits_ended: AtomicU64::new(0),
        }
    }

    /// The machine as CPU `here` sees it, or as a thread from outside does.
    pub fn seen_from(&self, here: Option<CpuId>) -> Seen<'_> {
        Seen { host: self, here }
    }

    pub fn now(&self) -> Nanos {
        match self.stands_at.load(Ordering::SeqCst) {
            u64::MAX => Nanos::new(self.began.elapsed().as_nanos() as u64),
            at => Nanos::new(at),
        }
    }

    /// It is `now` until this is called again.
    pub fn set_time(&self, now: Nanos) {
        self.stands_at.store(now.get(), Ordering::SeqCst);
    }

    pub fn set_idle(&self, cpu: CpuId, idle: bool) {
        self.cpus[cpu.index()].idle.store(idle, Ordering::SeqCst);
    }

    /// Whether `cpu` has been told to look.
    pub fn is_told(&self, cpu: CpuId) -> bool {
        self.cpus[cpu.index()].told.load(Ordering::SeqCst)
    }

    /// `cpu` is about to look: takes what it was told.
    pub fn take_notification(&self, cpu: CpuId) -> bool {
        self.cpus[cpu.index()].told.swap(false, Ordering::SeqCst)
    }

    /// The records of all CPUs.
    pub fn take_logs(&self) -> Vec<Log> {
        self.cpus.iter().filter_map(|cpu| lock(&cpu.core).1.take()).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no test panics while it holds a CPU")
}

pub struct Seen<'h> {
    pub host: &'h Host,
    here: Option<CpuId>,
}

impl Threads for &Homes {
    fn set_home(&mut self, thread: ThreadRef, home: Option<Home>) {
        *lock(&self.0[thread.index() as usize]) = home;
    }
}

impl<'h> Machine for Seen<'h> {
    type Observer = Option<Log>;
    type Threads = &'h Homes;

    fn with_cpu<R>(&mut self, cpu: CpuId, act: impl FnOnce(&mut CpuAccess<'_, Self>) -> R) -> R {
        let there = &self.host.cpus[cpu.index()];
        let mut locked = lock(&there.core);
        let (core, log) = &mut *locked;
        let result = act(&mut CpuAccess::new(core, self.host.now(), log, &mut &self.host.homes));
        *lock(&there.offer) = core.offer();
        result
    }

    fn cpus(&self) -> usize {
        self.host.cpus.len()
    }

    fn this_cpu(&self) -> Option<CpuId> {
        self.here
    }

    fn notify_cpu(&mut self, cpu: CpuId) -> Notified {
        let there = &self.host.cpus[cpu.index()];
        if there.told.swap(true, Ordering::SeqCst) {
            return Notified::Pending;
        }
        let number = self.host.tried.fetch_add(1, Ordering::Relaxed) + 1;
        if number.is_multiple_of(self.host.one_arrives_of) {
            Notified::Sent
        } else {
            there.told.store(false, Ordering::SeqCst);
            Notified::Failed
        }
    }

    fn any_cpu_idles(&self) -> bool {
        self.next_idle_cpu(CpuId::BOOT).is_some()
    }

    fn next_idle_cpu(&self, from: CpuId) -> Option<CpuId> {
        let idle = |cpu: &CpuId| self.host.cpus[cpu.index()].idle.load(Ordering::SeqCst);
        let mut cpus = (from.index()..self.cpus()).filter_map(|index| CpuId::new(index).ok());
        cpus.find(|cpu| idle(cpu) && !lock(&self.host.isolation).is_leased(*cpu))
    }

    fn may_enter(&self, thread: ThreadRef, cpu: CpuId) -> bool {
        lock(&self.host.isolation).admits(thread, cpu)
    }

    fn wakes_elsewhere(&mut self, thread: ThreadRef) -> bool {
        let any = lock(&self.host.isolation).any();
        any && wakes_elsewhere(self, thread)
    }

    fn moves_on(&mut self, thread: ThreadRef) -> bool {
        let any = lock(&self.host.isolation).any();
        any && moves_on(self, thread)
    }

    fn call_timed_out(&mut self, thread: ThreadRef) {
        end_timed_out_call(self, thread);
    }

    fn home(&self, thread: ThreadRef) -> Option<Home> {
        *lock(&self.host.homes.0[thread.index() as usize])
    }

    fn offer(&self, cpu: CpuId) -> Offer {
        *lock(&self.host.cpus[cpu.index()].offer)
    }

    fn placed_weight(&self, cpu: CpuId) -> u64 {
        self.host.cpus[cpu.index()].placed.load(Ordering::Relaxed)
    }

    fn add_placed_weight(&mut self, cpu: CpuId, weight: u64) {
        self.host.cpus[cpu.index()].placed.fetch_add(weight, Ordering::Relaxed);
    }

    fn wait_ended(&mut self, _: ThreadRef, permit: Option<WaitPermit>) {
        permit.into_iter().for_each(|permit| lock(&self.host.quota).give_back(permit));
        self.host.waits_ended.fetch_add(1, Ordering::Relaxed);
    }
}

impl ContextMachine for Seen<'_> {
    fn overran(&mut self, _: Overran) {}
    fn wake_waiter(&mut self, _: ContextRef, _: ThreadRef) {}
}

impl LeaseMachine for Seen<'_> {
    fn now(&self) -> Nanos {
        self.host.now()
    }

    fn with_isolation<R>(&mut self, act: impl FnOnce(&mut Isolation) -> R) -> R {
        act(&mut lock(&self.host.isolation))
    }

    fn with_remote_slot<R>(&mut self, cpu: CpuId, act: impl FnOnce(&mut RemoteSlot) -> R) -> R {
        act(&mut lock(&self.host.slots[cpu.index()]))
    }

    fn own_affinity(&self, thread: ThreadRef) -> Affinity {
        lock(&self.host.own[thread.index() as usize]).clone()
    }

    fn affinity_of(&mut self, cpus: CpuSet) -> Option<Affinity> {
        Some(Affinity::Only(Arc::new(cpus)))
    }

    fn tick_duties(&mut self, _: CpuId) -> TickDuties {
        FREE
    }

    fn target_standing(&self, _: AccountingTarget) -> TargetStanding {
        TargetStanding::Chargeable
    }

    fn ring_facts(&mut self, _: RingId) -> RingFacts {
        RingFacts::NoRing
    }

    fn stop_current(&mut self, cpu: CpuId) -> bool {
        assert_eq!(self.here, Some(cpu), "a thread is stopped by its own CPU only");
        self.with_cpu(cpu, |cpu| cpu.event().block_current(WaitKind::Park, None))
    }

    fn leased_changed(&mut self, _: CpuId) {}
    fn post_lease_notice(&mut self, _: Endpoint, _: LeaseNotice) {}
    fn lease_event(&mut self, _: LeaseEvent) {}
}

impl Driven for Seen<'_> {
    fn with_leases<R>(&mut self, act: impl FnOnce(&mut Leases, &mut Self) -> R) -> R {
        act(&mut lock(&self.host.leases), self)
    }

    fn set_own_affinity(&mut self, thread: ThreadRef, affinity: Affinity) {
        *lock(&self.host.own[thread.index() as usize]) = affinity;
    }

    fn with_quota<R>(&mut self, act: impl FnOnce(&mut WaitQuota) -> R) -> R {
        act(&mut lock(&self.host.quota))
    }

    fn with_contexts<R>(&mut self, act: impl FnOnce(&mut Contexts, &mut Self) -> R) -> R {
        act(&mut lock(&self.host.contexts), self)
    }

    fn set_idle(&mut self, cpu: CpuId, idle: bool) {
        self.host.set_idle(cpu, idle);
    }

    fn take_notification(&mut self, cpu: CpuId) -> bool {
        self.host.take_notification(cpu)
    }
}
