//! Sections of a report that every machine fills in alike, from its cores.

use mainspring_abi::{Nanos, Policy};
use mainspring_report::{Config, CpuReport, Telemetry};
use mainspring_sched::nohz::Kind;
use mainspring_sched::{Cpu, NohzExit};
use std::collections::BTreeMap;

/// What was asked of the machine.
#[must_use]
pub fn config(workload: &str, policy: Policy, quantum: Nanos, tick: Nanos) -> Config {
    Config {
        workload: workload.to_owned(),
        policy: match policy {
            Policy::Eevdf => "eevdf".to_owned(),
            Policy::Wfq => "wfq".to_owned(),
        },
        quantum_ns: quantum.get(),
        tick_ns: tick.get(),
    }
}

/// A row per core, at `now`.
#[must_use]
pub fn cpus<'c>(cores: impl Iterator<Item = &'c Cpu>, now: Nanos) -> Vec<CpuReport> {
    let row = |(id, core): (usize, &Cpu)| {
        let counters = core.telemetry();
        let idle = core.idle_time(now);
        CpuReport {
            id: id as u32,
            busy_ns: (now - idle).get(),
            idle_ns: idle.get(),
            overhead_ns: BTreeMap::new(),
            ticks: counters.ticks,
            ticks_suppressed: counters.ticks_suppressed_idle + counters.ticks_suppressed_lease,
            reschedules: counters.reschedules,
            timer_interrupts: counters.timer_interrupts,
            steals: counters.steals,
            queue_depth_max: counters.queue_depth_max,
        }
    };
    cores.enumerate().map(row).collect()
}

/// The counters of all cores, added to what the machine itself has counted.
#[must_use]
pub fn telemetry<'c>(cores: impl Iterator<Item = &'c Cpu>, mut telemetry: Telemetry) -> Telemetry {
    for (cpu, core) in cores.enumerate() {
        let counters = core.telemetry();
        telemetry.scheduler_tick_count.insert(cpu.to_string(), counters.ticks);
        telemetry.ticks_suppressed.insert(format!("{cpu},idle"), counters.ticks_suppressed_idle);
        telemetry.nohz_enter_count.insert(format!("{cpu},idle"), counters.nohz_enter_idle);
        // What only leases can lead to is told where it has happened.
        if counters.ticks_suppressed_lease > 0 {
            telemetry.ticks_suppressed.insert(format!("{cpu},lease"), counters.ticks_suppressed_lease);
        }
        for (kind, count) in Kind::ALL.into_iter().zip(counters.nohz_enter_lease) {
            if count > 0 {
                telemetry.nohz_enter_count.insert(format!("{cpu},{}", kind.label()), count);
            }
        }
        for reason in NohzExit::ALL {
            let count = counters.nohz_exits[reason as usize];
            if count > 0 || reason.applies_to_idle() {
                telemetry.nohz_exit_count.insert(format!("{cpu},{}", reason.label()), count);
            }
        }
        telemetry.oneshot_deadline_miss_count += counters.oneshot_deadline_misses;
        telemetry.budget_exhausted_count += counters.budgets_exhausted;
        telemetry.realtime_overrun_count += counters.realtime_overruns;
        telemetry.donation_depth_max = telemetry.donation_depth_max.max(counters.donation_depth_max);
        telemetry.queue_depth_max = telemetry.queue_depth_max.max(counters.queue_depth_max);
        telemetry.steals += counters.steals;
        telemetry.handoffs += counters.handoffs;
        telemetry.handoffs_queued += counters.handoffs_queued;
    }
    telemetry
}
