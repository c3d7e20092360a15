//! A machine whose time stands still until a test moves it, and whose threads move when a test says so.

use super::core;
use mainspring_abi::{ContextRef, CpuId, Nanos, ThreadRef};
use mainspring_driver::contexts::{ContextMachine, ContextMoved};
use mainspring_driver::sessions::SessionRef;
use mainspring_driver::{CpuAccess, CpuCore, Home, Left, Machine, Notified, Threads};
use mainspring_sched::{Entity, Offer, Overran, Via, WaitPermit};

pub struct Homes(Vec<Option<Home>>);

impl Threads for Homes {
    fn set_home(&mut self, thread: ThreadRef, home: Option<Home>) {
        self.0[thread.index() as usize] = home;
    }
}

pub struct Stepped {
    cores: Vec<CpuCore>,
    homes: Homes,
    pub now: Nanos,
    pub here: Option<CpuId>,
    /// A thread that has left one CPU and arrived nowhere.
    moving: Option<(Entity, Left, CpuId)>,
    pub sessions: Vec<Option<SessionRef>>,
    pub told: Vec<CpuId>,
    pub waits_ended: Vec<ThreadRef>,
    pub overruns: Vec<Overran>,
    pub waiters_woken: Vec<(ContextRef, ThreadRef)>,
    pub events: Vec<ContextMoved>,
}

impl Stepped {
    pub fn new(cpus: usize, threads: usize) -> Self {
        Self {
            cores: (0..cpus).map(|index| core(index, threads)).collect(),
            homes: Homes(vec![None; threads]),
            now: Nanos::ZERO,
            here: None,
            moving: None,
            sessions: vec![None; threads],
            told: Vec::new(),
            waits_ended: Vec::new(),
            overruns: Vec::new(),
            waiters_woken: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Makes room for what is noted, so that the machine itself takes no memory.
    pub fn keep_logs(&mut self, entries: usize) {
        self.told.reserve(entries);
        self.waits_ended.reserve(entries);
        self.overruns.reserve(entries);
        self.waiters_woken.reserve(entries);
        self.events.reserve(entries);
    }

    pub fn core(&self, cpu: CpuId) -> &CpuCore {
        &self.cores[cpu.index()]
    }

    /// `thief` takes a thread from `victim`, which is in no CPU's queue until [`Stepped::arrive`].
    pub fn depart(&mut self, victim: CpuId, thief: CpuId) -> Option<ThreadRef> {
        if self.moving.is_some() || victim == thief {
            return None;
        }
        let (entity, left) = self.with_cpu(victim, |cpu| cpu.give(thief))?;
        let thread = entity.thread();
        self.moving = Some((entity, left, thief));
        Some(thread)
    }

    pub fn moving(&self) -> Option<ThreadRef> {
        self.moving.as_ref().map(|(entity, ..)| entity.thread())
    }

    /// The thread that moves arrives.
    pub fn arrive(&mut self) -> Option<ThreadRef> {
        let (entity, left, thief) = self.moving.take()?;
        let thread = entity.thread();
        self.with_cpu(thief, |cpu| {
            let seated = cpu.accept(entity, Via::Steal, Some(left));
            let _seated = seated.expect("every CPU has a seat for every thread");
        });
        Some(thread)
    }

    /// The thread that moves is ended by the thief.
    pub fn take_moving(&mut self) -> Option<Entity> {
        let (entity, ..) = self.moving.take()?;
        self.homes.set_home(entity.thread(), None);
        Some(entity)
    }
}

impl Machine for Stepped {
    type Observer = ();
    type Threads = Homes;

    fn with_cpu<R>(&mut self, cpu: CpuId, act: impl FnOnce(&mut CpuAccess<'_, Self>) -> R) -> R {
        let core = &mut self.cores[cpu.index()];
        act(&mut CpuAccess::new(core, self.now, &mut (), &mut self.homes))
    }

    fn cpus(&self) -> usize {
        self.cores.len()
    }

    fn this_cpu(&self) -> Option<CpuId> {
        self.here
    }

    fn notify_cpu(&mut self, cpu: CpuId) -> Notified {
        self.told.push(cpu);
        Notified::Sent
    }

    fn any_cpu_idles(&self) -> bool {
        false
    }

    fn next_idle_cpu(&self, _: CpuId) -> Option<CpuId> {
        None
    }

    fn home(&self, thread: ThreadRef) -> Option<Home> {
        self.homes.0[thread.index() as usize].filter(|home| home.seat.thread() == thread)
    }

    fn offer(&self, cpu: CpuId) -> Offer {
        self.cores[cpu.index()].offer()
    }

    fn placed_weight(&self, _: CpuId) -> u64 {
        0
    }

    fn add_placed_weight(&mut self, _: CpuId, _: u64) {}

    fn wait_ended(&mut self, thread: ThreadRef, permit: Option<WaitPermit>) {
        assert_eq!(permit, None, "no wait of these tests is timed by the core");
        self.waits_ended.push(thread);
    }
}

impl ContextMachine for Stepped {
    fn overran(&mut self, overran: Overran) {
        self.overruns.push(overran);
    }

    fn wake_waiter(&mut self, context: ContextRef, waiter: ThreadRef) {
        self.waiters_woken.push((context, waiter));
    }

    fn session_of(&self, thread: ThreadRef) -> Option<SessionRef> {
        self.sessions[thread.index() as usize]
    }

    fn context_moved(&mut self, event: ContextMoved) {
        self.events.push(event);
    }
}
