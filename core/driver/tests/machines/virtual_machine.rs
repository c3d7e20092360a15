//! A machine with one owner and no lock, like the simulator's: time stands still within a step. Notifications fail as they are
//! told to, and every attempt is listed.

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
use std::cell::Cell;
use std::sync::Arc;

const RECORD: usize = 1 << 20;

struct VirtualCpu {
    core: CpuCore,
    log: Option<Log>,
    told: bool,
    idle: bool,
    placed: u64,
}

pub struct VirtualMachine {
    contexts: Contexts,
    /// `None` while the driver has them.
    leases: Option<Leases>,
    isolation: Isolation,
    slots: Vec<RemoteSlot>,
    own: Vec<Affinity>,
    cpus: Vec<VirtualCpu>,
    homes: Homes,
    /// A timed wait for each thread.
    quota: WaitQuota,
    pub now: Nanos,
    /// The CPU whose step it is.
    pub here: Option<CpuId>,
    /// Whether each attempt to notify fails, in turn and over again.
    pub fails: Vec<bool>,
    /// The attempts of the step, in order.
    pub attempts: Vec<(CpuId, Notified)>,
    tried: usize,
    /// What the next question for a home is answered with: where the thread was when it was asked.
    pub stale_home: Cell<Option<Home>>,
}

pub struct Homes(Vec<Option<Home>>);

impl Threads for Homes {
    fn set_home(&mut self, thread: ThreadRef, home: Option<Home>) {
        self.0[thread.index() as usize] = home;
    }
}

impl VirtualMachine {
    pub fn new(cpus: usize, threads: usize) -> Self {
        let make = |index| VirtualCpu {
            core: core(index, threads),
            log: Some(Log::new(RECORD)),
            told: false,
            idle: true,
            placed: 0,
        };
        let (leases, isolation) = leases(cpus);
        Self {
            contexts: contexts(cpus),
            leases: Some(leases),
            isolation,
            slots: (0..cpus).map(|_| RemoteSlot::new()).collect(),
            own: vec![Affinity::Any; threads],
            cpus: (0..cpus).map(make).collect(),
            homes: Homes(vec![None; threads]),
            quota: quota(threads),
            now: Nanos::ZERO,
            here: None,
            fails: vec![false],
            attempts: Vec::new(),
            tried: 0,
            stale_home: Cell::new(None),
        }
    }

    pub fn is_told(&self, cpu: CpuId) -> bool {
        self.cpus[cpu.index()].told
    }

    pub fn is_idle(&self, cpu: CpuId) -> bool {
        self.cpus[cpu.index()].idle
    }

    pub fn take_logs(&mut self) -> Vec<Log> {
        self.cpus.iter_mut().filter_map(|cpu| cpu.log.take()).collect()
    }
}

impl Machine for VirtualMachine {
    type Observer = Option<Log>;
    type Threads = Homes;

    fn with_cpu<R>(&mut self, cpu: CpuId, act: impl FnOnce(&mut CpuAccess<'_, Self>) -> R) -> R {
        let there = &mut self.cpus[cpu.index()];
        act(&mut CpuAccess::new(&mut there.core, self.now, &mut there.log, &mut self.homes))
    }

    fn cpus(&self) -> usize {
        self.cpus.len()
    }

    fn this_cpu(&self) -> Option<CpuId> {
        self.here
    }

    fn notify_cpu(&mut self, cpu: CpuId) -> Notified {
        let there = &mut self.cpus[cpu.index()];
        let result = if there.told {
            Notified::Pending
        } else {
            self.tried += 1;
            let fails = self.fails[self.tried % self.fails.len()];
            there.told = !fails;
            if fails { Notified::Failed } else { Notified::Sent }
        };
        self.attempts.push((cpu, result));
        result
    }

    fn any_cpu_idles(&self) -> bool {
        self.next_idle_cpu(CpuId::BOOT).is_some()
    }

    fn next_idle_cpu(&self, from: CpuId) -> Option<CpuId> {
        let open = |cpu: &&VirtualCpu| cpu.idle && !self.isolation.is_leased(cpu.core.id());
        self.cpus.iter().skip(from.index()).find(open).map(|cpu| cpu.core.id())
    }

    fn may_enter(&self, thread: ThreadRef, cpu: CpuId) -> bool {
        self.isolation.admits(thread, cpu)
    }

    fn wakes_elsewhere(&mut self, thread: ThreadRef) -> bool {
        self.isolation.any() && wakes_elsewhere(self, thread)
    }

    fn moves_on(&mut self, thread: ThreadRef) -> bool {
        self.isolation.any() && moves_on(self, thread)
    }

    fn call_timed_out(&mut self, thread: ThreadRef) {
        end_timed_out_call(self, thread);
    }

    fn home(&self, thread: ThreadRef) -> Option<Home> {
        self.stale_home.take().or(self.homes.0[thread.index() as usize])
    }

    fn offer(&self, cpu: CpuId) -> Offer {
        self.cpus[cpu.index()].core.offer()
    }

    fn placed_weight(&self, cpu: CpuId) -> u64 {
        self.cpus[cpu.index()].placed
    }

    fn add_placed_weight(&mut self, cpu: CpuId, weight: u64) {
        self.cpus[cpu.index()].placed += weight;
    }

    fn wait_ended(&mut self, _: ThreadRef, permit: Option<WaitPermit>) {
        permit.into_iter().for_each(|permit| self.quota.give_back(permit));
    }
}

impl ContextMachine for VirtualMachine {
    fn overran(&mut self, _: Overran) {}
    fn wake_waiter(&mut self, _: ContextRef, _: ThreadRef) {}
}

impl LeaseMachine for VirtualMachine {
    fn now(&self) -> Nanos {
        self.now
    }

    fn with_isolation<R>(&mut self, act: impl FnOnce(&mut Isolation) -> R) -> R {
        act(&mut self.isolation)
    }

    fn with_remote_slot<R>(&mut self, cpu: CpuId, act: impl FnOnce(&mut RemoteSlot) -> R) -> R {
        act(&mut self.slots[cpu.index()])
    }

    fn own_affinity(&self, thread: ThreadRef) -> Affinity {
        self.own[thread.index() as usize].clone()
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

impl Driven for VirtualMachine {
    fn with_leases<R>(&mut self, act: impl FnOnce(&mut Leases, &mut Self) -> R) -> R {
        let mut leases = self.leases.take().expect("no operation is in another");
        let result = act(&mut leases, self);
        self.leases = Some(leases);
        result
    }

    fn set_own_affinity(&mut self, thread: ThreadRef, affinity: Affinity) {
        self.own[thread.index() as usize] = affinity;
    }

    fn with_quota<R>(&mut self, act: impl FnOnce(&mut WaitQuota) -> R) -> R {
        act(&mut self.quota)
    }

    fn with_contexts<R>(&mut self, act: impl FnOnce(&mut Contexts, &mut Self) -> R) -> R {
        let mut contexts = std::mem::take(&mut self.contexts);
        let result = act(&mut contexts, self);
        self.contexts = contexts;
        result
    }

    fn set_idle(&mut self, cpu: CpuId, idle: bool) {
        self.cpus[cpu.index()].idle = idle;
    }

    fn take_notification(&mut self, cpu: CpuId) -> bool {
        std::mem::take(&mut self.cpus[cpu.index()].told)
    }
}
