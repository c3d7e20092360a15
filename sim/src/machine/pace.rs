//! How fast CPUs compute: speeds of their own, siblings that share a core, and memory that is near or far.
//!
//! The scheduler knows nothing of it. A thread's work is counted at full speed, and a slower CPU takes longer for it; what is
//! charged is the time that it took.
//!
//! Conserved: work is never done twice. Work is whole nanoseconds, so each interruption loses less than one nanosecond of it.

use super::Machine;
use super::thread::FOREVER;
use mainspring_abi::Nanos;
use std::hint::cold_path;

const FULL_PPM: u64 = 1_000_000;

/// The pace of each CPU at present, in parts per million of full speed.
#[derive(Debug)]
pub(super) struct Paces {
    speeds_ppm: Vec<u32>,
    smt_ppm: Option<u32>,
    now_ppm: Vec<u32>,
}

impl Paces {
    /// `None` if every CPU has full speed always.
    pub(super) fn of(machine: &mainspring_workload::Machine) -> Option<Self> {
        if machine.speeds_ppm.is_empty() && machine.smt_ppm.is_none() {
            return None;
        }
        let mut speeds_ppm = machine.speeds_ppm.clone();
        speeds_ppm.resize(machine.cpus, FULL_PPM as u32);
        Some(Self { now_ppm: speeds_ppm.clone(), speeds_ppm, smt_ppm: machine.smt_ppm })
    }

    /// The work that `cpu` does in a time.
    pub(super) fn work_in(&self, cpu: usize, time: Nanos) -> Nanos {
        let work = u128::from(time.get()) * u128::from(self.now_ppm[cpu]) / u128::from(FULL_PPM);
        // Not more than the time: a pace is at most full speed.
        Nanos::new(work as u64)
    }

    /// The time that `cpu` takes for work.
    pub(super) fn time_for(&self, cpu: usize, work: Nanos) -> Nanos {
        if work == FOREVER {
            return FOREVER;
        }
        let time = (u128::from(work.get()) * u128::from(FULL_PPM)).div_ceil(self.now_ppm[cpu].into());
        u64::try_from(time).map_or(FOREVER, Nanos::new)
    }

    /// The CPU that shares a core with `cpu`.
    fn sibling(&self, cpu: usize) -> Option<(usize, u32)> {
        let sibling = cpu ^ 1;
        Some((sibling, self.smt_ppm.filter(|_| sibling < self.speeds_ppm.len())?))
    }

    /// Sets the pace of `cpu`, which shares its core with a CPU that runs, or does not.
    fn set(&mut self, cpu: usize, shared_ppm: Option<u32>) {
        let shared = u64::from(shared_ppm.unwrap_or(FULL_PPM as u32));
        self.now_ppm[cpu] = (u64::from(self.speeds_ppm[cpu]) * shared / FULL_PPM).max(1) as u32;
    }
}

/// Which node each thread's memory is in: the node of the CPU where it ran last.
#[derive(Debug)]
pub(super) struct Nodes {
    cpus_per_node: usize,
    of_thread: Vec<Option<u16>>,
}

impl Nodes {
    /// `None` if all CPUs are of one node, or moves between nodes cost nothing more.
    pub(super) fn of(workload: &mainspring_workload::Workload, threads: usize) -> Option<Self> {
        let machine = &workload.machine;
        let one = machine.nodes <= 1 || workload.costs.node.is_zero();
        let cpus_per_node = machine.cpus.div_ceil(machine.nodes.max(1));
        (!one).then(|| Self { cpus_per_node, of_thread: vec![None; threads] })
    }

    /// `thread` begins to run on `cpu`: whether its memory is in another node.
    fn enter(&mut self, cpu: usize, thread: usize) -> bool {
        let node = (cpu / self.cpus_per_node) as u16;
        self.of_thread[thread].replace(node).is_some_and(|before| before != node)
    }
}

impl Machine<'_> {
    /// What it costs `thread` to begin on `cpu` beside the switch and the migration.
    #[inline(never)]
    pub(super) fn cost_of_node(&mut self, cpu: usize, thread: usize) -> Nanos {
        let far = self.nodes.as_mut().is_some_and(|nodes| nodes.enter(cpu, thread));
        if far { self.workload.costs.node } else { Nanos::ZERO }
    }

    /// CPU `cpu` has become idle, or has stopped being so: its sibling computes at another pace from now on.
    #[inline(never)]
    pub(super) fn change_pace(&mut self, cpu: usize) {
        let Some((sibling, smt_ppm)) = self.paces.as_ref().and_then(|paces| paces.sibling(cpu)) else {
            return;
        };
        self.pause_work(sibling);
        let both = !self.vcpus[cpu].idle && !self.vcpus[sibling].idle;
        if let Some(paces) = &mut self.paces {
            paces.set(cpu, both.then_some(smt_ppm));
            paces.set(sibling, both.then_some(smt_ppm));
        }
        if self.vcpus[sibling].running.is_some() {
            self.expect_done(sibling);
        }
    }

    /// Books the work that the running thread has done so far, which is less than the time that has passed.
    #[inline(never)]
    pub(super) fn pause_work_at_pace(&mut self, cpu: usize) {
        let (Some(paces), vcpu) = (&self.paces, &mut self.vcpus[cpu]) else { return };
        let Some(thread) = vcpu.running else { return };
        let thread = &mut self.threads[thread as usize];
        let passed = self.now - vcpu.work_from;
        if thread.remaining != FOREVER {
            if self.disturbed {
                self.overheads[cpu].stall(passed - paces.time_for(cpu, thread.remaining));
            }
            thread.remaining = thread.remaining - paces.work_in(cpu, passed);
        }
        vcpu.work_from = vcpu.work_from.max(self.now);
    }
}

/// The time that `cpu` takes for work.
#[inline(always)]
pub(super) fn time_at(paces: Option<&Paces>, cpu: usize, work: Nanos) -> Nanos {
    match paces {
        None => work,
        Some(paces) => {
            cold_path();
            paces.time_for(cpu, work)
        }
    }
}
