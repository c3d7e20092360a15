//! The machine: virtual CPUs that drive one scheduler core each.
//!
//! Conserved: exactly one of `cores` has a live thread's state, except within a transfer; a CPU's `running` is its
//! core's current thread; time never goes back; and every core is touched only through [`Machine::core`], which records
//! and shows what it does.

mod calls;
mod contexts;
mod cores;
mod cpu_events;
mod decisions;
mod devices;
mod driver;
mod faults;
mod foresight;
mod grants;
mod islands;
mod jobs;
mod leases;
mod log;
mod network;
mod observer;
mod operations;
mod outcome;
mod overhead;
mod pace;
mod policy;
mod program;
mod rings;
mod run;
mod script;
mod stuck;
mod sync;
mod thread;
mod virtual_cpu;
mod wakeups;

pub(crate) use run::run;

use crate::random::Random;
use crate::steal_offers::StealOffers;
use crate::tournament::{Key, Tournament, keyed};
use devices::Devices;
use grants::Grants;
use islands::Islands;
use leases::Leases;
use mainspring_abi::{CpuId, CpuSet, Nanos};
use mainspring_driver::{Contexts, CpuCore};
use mainspring_program::SyncObjects;
use mainspring_record::Latencies;
use mainspring_record::states::StateKeeper;
use mainspring_report::{Event, Miss, ScheduleEntry};
use mainspring_sched::hint::unlikely;
use mainspring_sched::{Overran, WaitQuota};
use mainspring_workload::{Numbering, Phases, Workload};
use network::Nic;
use observer::Observer;
use overhead::Overhead;
use pace::{Nodes, Paces};
use policy::Policy;
use rings::Ring;
use script::Script;
use std::cell::RefCell;
use std::hint::cold_path;
use std::rc::Rc;
use thread::{Endpoint, ThreadTable};
use virtual_cpu::VirtualCpu;

/// Everything there is in one run.
struct Machine<'a> {
    workload: &'a Workload,
    seed: u64,
    now: Nanos,
    cores: Vec<CpuCore>,
    vcpus: Vec<VirtualCpu>,
    /// How often each CPU has turned to another thread, and what else it has spent besides work.
    switches: Vec<u64>,
    overheads: Vec<Overhead>,
    /// When each CPU next has something to do.
    agenda: Tournament<Key>,
    /// The latest event of a CPU, by time and then by CPU: everything before it has happened.
    turn: Key,
    /// When something happens next that no CPU does.
    outside: Nanos,
    /// Whether an event may concern more than best effort, or change what happens from outside.
    authority: bool,
    /// Whether threads take steps before their time.
    foresight: bool,
    /// Whether there are faults or a network, which may hold an event of a CPU up or be one.
    disturbed: bool,
    /// How fast the CPUs are, if not all are at full speed.
    paces: Option<Paces>,
    /// Where the threads' memory is, if that matters.
    nodes: Option<Nodes>,
    /// Where each instance is in the phases of its program; empty if no program has any.
    phases: Vec<Phases>,
    /// The CPU whose event is in progress, if it is one's.
    acting: Option<usize>,
    /// The CPU that looks at its queue before this event is over, if there is one.
    here: Option<CpuId>,
    /// Other CPUs touched by the event in progress.
    touched: Vec<u32>,
    /// Idle CPUs that have no reschedule pending.
    askable: CpuSet,
    askable_count: usize,
    idle_count: usize,
    steal_offers: StealOffers,
    script: Script<'a>,
    threads: ThreadTable,
    /// The numbers of the threads.
    numbers: Numbering,
    endpoints: Vec<Endpoint>,
    /// Which contexts the workload names, and what is listed of them.
    grants: Grants,
    contexts: Contexts,
    islands: Islands,
    policy: Option<Policy>,
    leases: Leases,
    rings: Vec<Ring>,
    sync: SyncObjects,
    devices: Devices,
    /// Overruns that the event in progress has left behind.
    overruns: Vec<Overran>,
    /// Timed operations up to this one have been carried out.
    next_operation: usize,
    /// Deadlines of contexts that were missed: the first ones.
    context_misses: Vec<Miss>,
    /// What happened to authority, if the report lists it.
    events: Vec<Event>,
    /// What a reader of the report should know first.
    notices: Vec<String>,
    quota: WaitQuota,
    /// Instances that start by themselves, latest first.
    starts: Vec<(Nanos, u32)>,
    /// Where threads that start by themselves go: the least weight admitted so far.
    placement: Tournament<Key>,
    placed_weight: Vec<u64>,
    next_burst: Nanos,
    next_exit: Nanos,
    random: Random,
    nic: Option<Nic>,
    observer: Observer<'a>,
    schedule: Option<Vec<ScheduleEntry>>,
    /// What threads do while they do not run, if the report lists it.
    states: Option<Rc<RefCell<StateKeeper>>>,
    /// Wake latencies of each thread.
    latencies: Vec<Latencies>,
    /// Latencies that have not been filed yet, each after its thread.
    untold_latencies: Vec<(u32, u32)>,
    sent: ReschedulesSent,
}

/// A thread's latencies are far from what a decision has at hand. They are noted in passing and filed many at a time,
/// so that the trips to all those threads overlap.
const LATENCIES_AT_A_TIME: usize = 1024;

#[derive(Debug, Default)]
struct ReschedulesSent {
    sent: u64,
    pending: u64,
    lost: u64,
}

impl Machine<'_> {
    fn cpu_id(&self, cpu: usize) -> CpuId {
        self.cores[cpu].id()
    }

    #[inline]
    fn note_latency(&mut self, thread: u32, latency: Nanos) {
        let Ok(short) = u32::try_from(latency.get()) else {
            cold_path();
            return self.latencies[thread as usize].record(latency);
        };
        if unlikely(self.untold_latencies.len() == LATENCIES_AT_A_TIME) {
            self.file_latencies();
        }
        self.untold_latencies.push((thread, short));
    }

    #[inline(never)]
    fn file_latencies(&mut self) {
        for (thread, latency) in self.untold_latencies.drain(..) {
            self.latencies[thread as usize].record(Nanos::new(latency.into()));
        }
    }

    /// The event in progress has changed something about `cpu`.
    #[inline]
    fn touch(&mut self, cpu: usize) {
        // The acting CPU is armed again anyway, and nearly every event touches no other.
        if unlikely(self.acting != Some(cpu)) {
            self.touch_another(cpu);
        }
    }

    fn touch_another(&mut self, cpu: usize) {
        self.steal_offers.touch(cpu);
        if !std::mem::replace(&mut self.vcpus[cpu].touched, true) {
            self.touched.push(cpu as u32);
        }
    }

    /// After an event: every CPU it touched says when it next has something to do.
    #[inline(always)]
    fn rearm_touched(&mut self) {
        if let Some(cpu) = self.acting.take() {
            self.here = None;
            let next = self.next_event(cpu);
            self.agenda.put_back(cpu, next);
        }
        if unlikely(!self.touched.is_empty()) {
            self.rearm_others();
        }
    }

    #[inline(never)]
    fn rearm_others(&mut self) {
        while let Some(cpu) = self.touched.pop() {
            let cpu = cpu as usize;
            self.vcpus[cpu].touched = false;
            let next = self.next_event(cpu);
            self.agenda.set(cpu, next);
        }
    }

    /// When `cpu` next has something to do, as a key of the agenda.
    #[inline(always)]
    fn next_event(&mut self, cpu: usize) -> Key {
        let core = &self.cores[cpu];
        let (timer, wanted) = (core.next_timer(), core.reschedule_wanted());
        let begin_at = if unlikely(wanted) { self.beginning(cpu) } else { Nanos::MAX };
        let vcpu = &mut self.vcpus[cpu];
        vcpu.begin_at = begin_at;
        let next = if unlikely(self.disturbed) { vcpu.next_of_all(timer) } else { vcpu.next_event(timer) };
        keyed(next.get(), cpu)
    }
}
