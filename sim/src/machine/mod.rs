//! The machine: virtual CPUs that drive one scheduler core each.
//!
//! Conserved: exactly one of `cores` has a live thread's state, except within a transfer; a CPU's `running` is its
//! core's current thread; time never goes back; and every core is touched only through [`taps`], which records and
//! shows what it does.

mod cpu_events;
mod faults;
mod lane;
mod network;
mod outcome;
mod program;
mod run;
mod taps;
mod thread;
mod wakeups;

pub(crate) use run::run;

use crate::RunError;
use crate::board::Board;
use crate::digest::Digest;
use crate::random::Random;
use crate::record::Recorder;
use crate::tournament::{Tournament, keyed};
use crate::watch::Watch;
use lane::Lane;
use mainspring_abi::{CpuId, CpuSet, Nanos};
use mainspring_report::ScheduleEntry;
use mainspring_sched::{Cpu, WaitQuota};
use mainspring_workload::Workload;
use network::Nic;
use thread::{Endpoint, Thread};

/// Everything there is in one run.
struct Machine<'a> {
    workload: &'a Workload,
    seed: u64,
    now: Nanos,
    cores: Vec<Cpu>,
    lanes: Vec<Lane>,
    /// When each CPU next has something to do.
    agenda: Tournament<u64>,
    /// CPUs touched by the event in progress.
    touched: Vec<u32>,
    /// Idle CPUs that have no reschedule pending.
    askable: CpuSet,
    askable_count: usize,
    idle_count: usize,
    board: Board,
    threads: Vec<Thread>,
    /// First instance of each thread table.
    bases: Vec<usize>,
    endpoints: Vec<Endpoint>,
    quota: WaitQuota,
    /// Instances that start by themselves, latest first.
    starts: Vec<(Nanos, u32)>,
    /// Where threads that start by themselves go: the least weight admitted so far.
    placement: Tournament<u64>,
    placed_weight: Vec<u64>,
    next_burst: Nanos,
    next_exit: Nanos,
    random: Random,
    nic: Option<Nic>,
    recorder: Option<Recorder<'a>>,
    watch: Option<Box<dyn Watch + 'a>>,
    trouble: Option<RunError>,
    schedule: Option<Vec<ScheduleEntry>>,
    decisions: u64,
    digest: Digest,
    sent: ReschedulesSent,
}

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

    /// The event in progress has changed something about `cpu`.
    fn touch(&mut self, cpu: usize) {
        let lane = &mut self.lanes[cpu];
        if !lane.touched {
            lane.touched = true;
            self.touched.push(cpu as u32);
        }
    }

    /// After an event: every CPU it touched says when it next has something to do.
    fn settle(&mut self) {
        while let Some(cpu) = self.touched.pop() {
            let cpu = cpu as usize;
            let lane = &mut self.lanes[cpu];
            lane.touched = false;
            lane.timer_at = self.cores[cpu].next_timer().max(lane.timer_late);
            let next = lane.next_event();
            self.agenda.set(cpu, keyed(next.get(), cpu));
        }
    }
}
