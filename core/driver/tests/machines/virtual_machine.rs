//! A machine with one owner and no lock, like the simulator's: time stands still within a step. Notifications fail as they are
//! told to, and every attempt is listed.

use super::core;
use super::script::Driven;
use mainspring_abi::{CpuId, Nanos, ThreadRef};
use mainspring_driver::{CpuAccess, CpuCore, Home, Machine, Notified, Threads};
use mainspring_sched::flight::Log;
use mainspring_sched::{Offer, WaitPermit};
use std::cell::Cell;

const RECORD: usize = 1 << 20;

struct VirtualCpu {
    core: CpuCore,
    log: Option<Log>,
    told: bool,
    idle: bool,
    placed: u64,
}

pub struct VirtualMachine {
    cpus: Vec<VirtualCpu>,
    homes: Homes,
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
        Self {
            cpus: (0..cpus).map(make).collect(),
            homes: Homes(vec![None; threads]),
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
        self.cpus.iter().any(|cpu| cpu.idle)
    }

    fn next_idle_cpu(&self, from: CpuId) -> Option<CpuId> {
        let idle = self.cpus.iter().skip(from.index()).find(|cpu| cpu.idle);
        idle.map(|cpu| cpu.core.id())
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
        assert_eq!(permit, None, "no wait of these tests is timed");
    }
}

impl Driven for VirtualMachine {
    fn set_idle(&mut self, cpu: CpuId, idle: bool) {
        self.cpus[cpu.index()].idle = idle;
    }

    fn take_notification(&mut self, cpu: CpuId) -> bool {
        std::mem::take(&mut self.cpus[cpu.index()].told)
    }
}
