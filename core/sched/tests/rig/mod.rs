//! One CPU and a clock, for tests that play the machine.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod lease;
pub mod record;

use mainspring_abi::{CpuId, CpuSet, Nanos, Policy, ProcessId, ThreadRef, Weight};
use mainspring_sched::{
    Affinity, Config, Cpu, Decision, Entity, Seat, Spec, Stop, Timeout, Via, WaitKind, WaitQuota,
};
use std::sync::Arc;

pub fn ms(n: u64) -> Nanos {
    Nanos::from_millis(n)
}

pub fn us(n: u64) -> Nanos {
    Nanos::from_micros(n)
}

pub fn weight(n: u64) -> Weight {
    Weight::new(n).expect("test weights are valid")
}

pub fn cpu_id(n: usize) -> CpuId {
    CpuId::new(n).expect("test CPUs exist")
}

pub fn only(cpus: &[usize]) -> Affinity {
    Affinity::Only(Arc::new(cpus.iter().map(|n| cpu_id(*n)).collect::<CpuSet>()))
}

pub fn spec(index: u32) -> Spec {
    Spec::new(ThreadRef::new(index, 0))
}

pub fn entity(index: u32) -> Entity {
    Entity::new(spec(index))
}

/// One CPU that plays by itself.
pub struct Rig {
    pub cpu: Cpu,
    pub now: Nanos,
    pub quota: WaitQuota,
    next: u32,
}

impl Rig {
    pub fn new(policy: Policy) -> Self {
        Self::on(0, policy)
    }

    pub fn on(id: usize, policy: Policy) -> Self {
        let mut cpu = Cpu::new(Config::new(cpu_id(id), policy));
        cpu.reserve(64).expect("64 seats fit in memory");
        Self { cpu, now: Nanos::ZERO, quota: WaitQuota::new(64, 64, 4), next: 100 * id as u32 }
    }

    /// Admits a thread with default settings but for what `change` does.
    pub fn admit(&mut self, change: impl FnOnce(&mut Spec)) -> Seat {
        let mut spec = spec(self.next);
        self.next += 1;
        change(&mut spec);
        let (seat, _) = self.cpu.accept(self.now, Entity::new(spec), Via::Admit).expect("the rig has room");
        seat
    }

    pub fn thread(&mut self, w: u64) -> Seat {
        self.admit(|spec| spec.weight = weight(w))
    }

    pub fn pass(&mut self, time: Nanos) -> &mut Self {
        self.now += time;
        self
    }

    pub fn resched(&mut self, stop: Stop) -> Option<Seat> {
        match self.cpu.resched(self.now, stop) {
            Decision::Run(run) => Some(run.seat),
            Decision::Idle => None,
        }
    }

    pub fn start(&mut self) -> Option<Seat> {
        self.resched(Stop::Nothing)
    }

    pub fn preempt(&mut self) -> Option<Seat> {
        self.resched(Stop::Preempted)
    }

    pub fn block(&mut self) -> Option<Seat> {
        self.resched(Stop::Blocked(WaitKind::Park, None))
    }

    pub fn sleep(&mut self, length: Nanos) -> Option<Seat> {
        let permit = self.quota.take(ProcessId::new(0)).expect("the rig's quota is ample");
        let deadline = self.now + length;
        self.resched(Stop::Blocked(WaitKind::Sleep, Some(Timeout { deadline, user_data: 0, permit })))
    }

    /// Runs the CPU for `length`, rescheduling whenever its timer says so; what ran, slice by slice.
    pub fn run(&mut self, length: Nanos) -> Vec<(u32, Nanos)> {
        let end = self.now + length;
        let mut ran = Vec::new();
        while self.now < end {
            let next = self.cpu.next_timer().min(end);
            let current = self.cpu.current().expect("something runs").thread().index();
            ran.push((current, next - self.now));
            self.now = next;
            let _ = self.cpu.timer(self.now);
            while let Some(expired) = self.cpu.expire(self.now) {
                if let Some(permit) = expired.woken.permit {
                    self.quota.give_back(permit);
                }
            }
            if self.cpu.reschedule_wanted() {
                self.preempt();
            }
        }
        ran
    }

    pub fn runtime(&self, seat: Seat) -> Nanos {
        self.cpu.entity(seat).expect("the seat is live").account().runtime()
    }
}
