//! A machine that leases its CPUs, in virtual time: its interrupts come in the order of their times, and a notification may fail.
//!
//! Its handlers do what every machine's do: leases first, then timers, then a decision.

use super::{core, cpu};
use mainspring_abi::{CpuId, CpuSet, Nanos, ThreadRef};
use mainspring_driver::leases::{
    Attended, Isolation, LeaseEvent, LeaseMachine, LeaseNotice, Leases, RingId, TickDuties, moves_on,
    wakes_elsewhere,
};
use mainspring_driver::placement::{expire, steal};
use mainspring_driver::{CpuAccess, CpuCore, Home, Machine, Notified, Threads};
use mainspring_sched::flight::Log;
use mainspring_sched::lease::{AccountingTarget, Endpoint, Limits, TargetStanding};
use mainspring_sched::nohz::{RemoteSlot, RingFacts};
use mainspring_sched::{Affinity, Decision, NetworkNeed, Offer, Stop, TickMode, WaitKind, WaitPermit};
use std::sync::Arc;

/// Everything of the machine but its leases.
pub struct Isolated {
    pub now: Nanos,
    cores: Vec<CpuCore>,
    logs: Vec<Option<Log>>,
    homes: Homes,
    /// Checks a CPU's own structure after each access, which allocates.
    pub verifies: bool,
    /// Where each thread may run by itself.
    pub own: Vec<Affinity>,
    /// The CPU on which each thread's context is spent.
    pub context_homes: Vec<Option<CpuId>>,
    told: Vec<bool>,
    here: Option<CpuId>,
    pub isolation: Isolation,
    slots: Vec<RemoteSlot>,
    /// What another CPU does as soon as the running thread of a CPU has stopped, once.
    pub when_stopped: Option<fn(&mut Self)>,
    /// So many notifications from now on fail.
    pub failing: u64,
    /// CPUs that could not be told something and have had no interrupt since.
    pub untold: Vec<bool>,
    pub duties: Vec<TickDuties>,
    pub ring: RingFacts,
    pub target: TargetStanding,
    pub notices: Vec<(Endpoint, LeaseNotice)>,
    pub events: Vec<LeaseEvent>,
    /// Looks at a CPU whenever it has decided which thread runs.
    pub decided: Vec<(CpuId, Option<ThreadRef>, TickMode)>,
}

/// Where each thread sits.
#[derive(Default)]
pub struct Homes(Vec<Option<Home>>);

impl Threads for Homes {
    fn set_home(&mut self, thread: ThreadRef, home: Option<Home>) {
        self.0[thread.index() as usize] = home;
    }
}

/// A CPU that needs its tick for nothing.
pub const FREE: TickDuties = TickDuties {
    deferred_work: false,
    global_timers: false,
    unbound_worker: false,
    watchdog: false,
    network: NetworkNeed::Inactive,
    fixed_interrupt: false,
    devices_on_housekeeping: false,
    stable_clock: true,
    boundary_accounting: true,
    interruptible: true,
    periodic_timer: true,
    oneshot_timer: true,
    min_delta: Nanos::from_micros(1),
};

/// A machine and its leases.
pub fn isolated(cpus: usize, threads: usize, capacity: usize) -> (Isolated, Leases) {
    let online = CpuSet::first(cpus);
    let limits = Limits { capacity, ..Limits::default() };
    let machine = Isolated {
        now: Nanos::ZERO,
        cores: (0..cpus).map(|index| core(index, threads)).collect(),
        logs: (0..cpus).map(|_| None).collect(),
        homes: Homes(vec![None; threads]),
        verifies: true,
        own: vec![Affinity::Any; threads],
        context_homes: vec![None; threads],
        told: vec![false; cpus],
        here: None,
        isolation: Isolation::new(cpus, capacity).expect("a few leases"),
        slots: (0..cpus).map(|_| RemoteSlot::new()).collect(),
        when_stopped: None,
        failing: 0,
        untold: vec![false; cpus],
        duties: vec![FREE; cpus],
        ring: RingFacts::NoRing,
        target: TargetStanding::Chargeable,
        notices: Vec::new(),
        events: Vec::new(),
        decided: Vec::new(),
    };
    (machine, Leases::new(online, online, limits).expect("a few leases"))
}

impl Isolated {
    pub fn core(&self, index: usize) -> &CpuCore {
        &self.cores[index]
    }

    /// Room for what it notes, so that noting does not allocate.
    pub fn reserve_notes(&mut self, count: usize) {
        self.notices.reserve(count);
        self.events.reserve(count);
        self.decided.reserve(count);
    }

    pub fn is_tickless(&self, index: usize) -> bool {
        matches!(self.cores[index].tick_mode(), TickMode::TicklessLease { .. })
    }

    pub fn running(&self, index: usize) -> Option<ThreadRef> {
        self.cores[index].current().map(mainspring_sched::Seat::thread)
    }

    pub fn with_slot<R>(&mut self, index: usize, act: impl FnOnce(&mut RemoteSlot) -> R) -> R {
        act(&mut self.slots[index])
    }

    pub fn is_told(&self, index: usize) -> bool {
        self.told[index]
    }

    /// CPU `index` acts: what `act` does is followed by what follows every event.
    pub fn on<R>(&mut self, leases: &mut Leases, index: usize, act: impl FnOnce(&mut Self) -> R) -> R {
        self.here = Some(cpu(index));
        let result = act(self);
        self.reconsider(index);
        leases.after_event(self);
        self.here = None;
        result
    }

    /// The running thread of CPU `index` stops, and another is chosen.
    pub fn stop(&mut self, index: usize, stop: Stop) {
        self.decide(index, stop);
    }

    /// The running thread of CPU `index` waits.
    pub fn block(&mut self, leases: &mut Leases, index: usize) {
        if self.cores[index].current().is_some() {
            self.on(leases, index, |machine| machine.decide(index, Stop::Blocked(WaitKind::Park, None)));
        }
    }

    /// Delivers every notification, in the order of the CPUs, until there is none.
    pub fn deliver(&mut self, leases: &mut Leases) {
        while let Some(index) = self.told.iter().position(|told| *told) {
            self.told[index] = false;
            self.interrupt(leases, index, false);
        }
    }

    /// CPU `index` is about to go on with its thread: threads leave that belong elsewhere.
    pub fn evict(&mut self, leases: &mut Leases, index: usize) -> Attended {
        self.here = Some(cpu(index));
        let attended = leases.evict(self, cpu(index));
        self.here = None;
        attended
    }

    /// Lets time pass until `until`: every timer that is due fires at its time.
    pub fn pass(&mut self, leases: &mut Leases, until: Nanos) {
        loop {
            let next = (0..self.cores.len()).min_by_key(|index| self.cores[*index].next_timer());
            let index = next.expect("there are CPUs");
            let due = self.cores[index].next_timer();
            if due > until {
                break;
            }
            self.now = self.now.max(due);
            self.interrupt(leases, index, true);
            self.deliver(leases);
        }
        self.now = until;
    }

    fn interrupt(&mut self, leases: &mut Leases, index: usize, timer: bool) {
        let id = cpu(index);
        self.here = Some(id);
        self.untold[index] = false;
        let tickless = self.is_tickless(index);
        let attended = leases.attend(self, id);
        if timer {
            let _outcome = self.with_cpu(id, |cpu| cpu.event().timer());
            expire(self, id, u32::MAX);
        } else {
            let core = &self.cores[index];
            let work = core.queued() > 0 || core.reschedule_wanted() || core.current().is_none();
            if work || !tickless {
                self.with_cpu(id, |cpu| cpu.event().reschedule_received());
            }
        }
        if attended == Attended::ChooseNext {
            self.decide(index, Stop::Nothing);
        }
        self.reconsider(index);
        leases.after_event(self);
        self.here = None;
    }

    fn reconsider(&mut self, index: usize) {
        let core = &self.cores[index];
        if core.current().is_none() {
            self.decide(index, Stop::Nothing);
        } else if core.reschedule_wanted() {
            self.decide(index, Stop::Preempted);
        }
    }

    fn decide(&mut self, index: usize, stop: Stop) {
        let id = cpu(index);
        let mut decision = self.with_cpu(id, |cpu| cpu.event().resched(stop));
        if decision == Decision::Idle && !self.isolation.is_leased(id) {
            let stolen = steal(self, id, |cpu, _| cpu.event().resched(Stop::Nothing));
            decision = stolen.unwrap_or(Decision::Idle);
        }
        let running = match decision {
            Decision::Run(run) => Some(run.thread),
            Decision::Idle => {
                let conditions = mainspring_sched::IdleConditions::default();
                let _tick = self.with_cpu(id, |cpu| cpu.event().enter_idle(&conditions));
                None
            }
        };
        self.decided.push((id, running, self.cores[index].tick_mode()));
        self.isolation.ask_for_tickless(id);
    }
}

impl Machine for Isolated {
    type Observer = Option<Log>;
    type Threads = Homes;

    /// Its CPUs have one clock, and their records are not joined.
    const ARRIVAL_DELAY: Nanos = Nanos::ZERO;

    fn with_cpu<R>(&mut self, cpu: CpuId, act: impl FnOnce(&mut CpuAccess<'_, Self>) -> R) -> R {
        let (core, log) = (&mut self.cores[cpu.index()], &mut self.logs[cpu.index()]);
        let result = act(&mut CpuAccess::new(core, self.now, log, &mut self.homes));
        assert!(!self.verifies || core.verify() == Ok(()), "{:?}", core.verify());
        result
    }

    fn cpus(&self) -> usize {
        self.cores.len()
    }

    fn this_cpu(&self) -> Option<CpuId> {
        self.here
    }

    fn notify_cpu(&mut self, cpu: CpuId) -> Notified {
        let told = &mut self.told[cpu.index()];
        if *told {
            return Notified::Pending;
        }
        if self.failing > 0 {
            self.failing -= 1;
            self.untold[cpu.index()] = true;
            return Notified::Failed;
        }
        *told = true;
        Notified::Sent
    }

    fn any_cpu_idles(&self) -> bool {
        self.next_idle_cpu(CpuId::BOOT).is_some()
    }

    fn next_idle_cpu(&self, from: CpuId) -> Option<CpuId> {
        let open =
            |index: &usize| self.cores[*index].current().is_none() && !self.isolation.is_leased(cpu(*index));
        (from.index()..self.cores.len()).find(open).map(cpu)
    }

    fn home(&self, thread: ThreadRef) -> Option<Home> {
        self.homes.0[thread.index() as usize]
    }

    fn offer(&self, cpu: CpuId) -> Offer {
        self.cores[cpu.index()].offer()
    }

    fn placed_weight(&self, _: CpuId) -> u64 {
        0
    }

    fn add_placed_weight(&mut self, _: CpuId, _: u64) {}

    fn wait_ended(&mut self, _: ThreadRef, permit: Option<WaitPermit>) {
        assert_eq!(permit, None, "no wait of these tests is timed");
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
}

impl LeaseMachine for Isolated {
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

    fn context_home(&mut self, thread: ThreadRef) -> Option<CpuId> {
        self.context_homes[thread.index() as usize]
    }

    fn tick_duties(&mut self, cpu: CpuId) -> TickDuties {
        self.duties[cpu.index()]
    }

    fn target_standing(&self, _: AccountingTarget) -> TargetStanding {
        self.target
    }

    fn ring_facts(&mut self, _: RingId) -> RingFacts {
        self.ring
    }

    fn stop_current(&mut self, cpu: CpuId) -> bool {
        assert_eq!(self.here, Some(cpu), "a thread is stopped by its own CPU only");
        let stopped = self.with_cpu(cpu, |cpu| cpu.event().block_current(WaitKind::Park, None));
        if let Some(act) = self.when_stopped.take() {
            act(self);
        }
        stopped
    }

    fn leased_changed(&mut self, _: CpuId) {}

    fn post_lease_notice(&mut self, endpoint: Endpoint, notice: LeaseNotice) {
        self.notices.push((endpoint, notice));
    }

    fn lease_event(&mut self, event: LeaseEvent) {
        self.events.push(event);
    }
}
