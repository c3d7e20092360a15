//! The time of a CPU in which its thread does not get on, by what takes it.
//!
//! A cost begins when the one before it is over, and the thread gets on after the last. A thread that loses its CPU
//! before that leaves the rest of its costs unpaid: those that would have come last.
//!
//! Conserved: what is booked here is exactly the time in which a CPU had a thread and the thread did not work.

use super::{Machine, VirtualCpu};
use mainspring_abi::Nanos;
use std::collections::BTreeMap;

/// What takes time besides work, a switch apart, which is counted where it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cost {
    Migration,
    Interrupt,
    Tick,
    Network,
    Device,
    Stall,
}

impl Cost {
    const NAMES: [&str; 6] = ["migration", "interrupt", "tick", "network", "device", "stall"];
}

/// What one CPU has spent besides work.
#[derive(Clone, Debug, Default)]
pub(super) struct Overhead {
    spent: [u64; Cost::NAMES.len()],
    /// Parts of switches that were never paid.
    unpaid_switches: u64,
    /// Costs since the last switch that are still to be paid, in order, and when the last of them will be.
    pending: Vec<(Cost, Nanos)>,
    paid_at: Nanos,
}

impl Overhead {
    /// A cost comes on top of those that are paid at `work_from`.
    pub(super) fn add(&mut self, cost: Cost, time: Nanos, now: Nanos, work_from: Nanos) {
        if work_from <= now || work_from != self.paid_at {
            // All earlier ones have been paid, or there was a switch.
            self.pending.clear();
        }
        self.spent[cost as usize] += time.get();
        self.pending.push((cost, time));
        self.paid_at = work_from.max(now) + time;
    }

    /// The work of a thread was done, and its CPU stood still for that much longer.
    pub(super) fn stall(&mut self, time: Nanos) {
        self.spent[Cost::Stall as usize] += time.get();
    }

    /// The CPU turns to something else while so much was still to be paid.
    fn cut(&mut self, mut unpaid: Nanos, work_from: Nanos) {
        if work_from != self.paid_at {
            self.pending.clear();
        }
        while let Some((cost, time)) = self.pending.pop() {
            let cut = time.min(unpaid);
            self.spent[cost as usize] -= cut.get();
            unpaid = unpaid - cut;
        }
        self.unpaid_switches += unpaid.get();
    }
}

impl Machine<'_> {
    /// Books a cost that holds the running thread of `cpu` up.
    pub(super) fn book_cost(&mut self, cpu: usize, cost: Cost, time: Nanos) {
        let work_from = self.vcpus[cpu].work_from;
        self.overheads[cpu].add(cost, time, self.now, work_from);
    }

    /// The running thread of `cpu` stops. What was still to come of its costs never comes.
    #[cold]
    pub(super) fn cut_costs(&mut self, cpu: usize) {
        let VirtualCpu { work_from, .. } = self.vcpus[cpu];
        self.overheads[cpu].cut(work_from - self.now, work_from);
        self.vcpus[cpu].work_from = self.now;
    }

    /// What `cpu` has spent besides work, by name, until the end of the run.
    pub(super) fn overhead_of(&mut self, cpu: usize) -> BTreeMap<String, u64> {
        if self.vcpus[cpu].running.is_some() && self.vcpus[cpu].work_from > self.now {
            self.cut_costs(cpu);
        }
        let overhead = &self.overheads[cpu];
        let switches = self.switches[cpu].saturating_mul(self.workload.costs.switch.get());
        let switch = ("switch", switches - overhead.unpaid_switches);
        let spent = Cost::NAMES.into_iter().zip(overhead.spent).chain([switch]);
        spent.filter(|(_, time)| *time > 0).map(|(name, time)| (name.to_owned(), time)).collect()
    }
}
