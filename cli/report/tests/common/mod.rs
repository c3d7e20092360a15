//! A small report that every format is tested on.

#![allow(dead_code)] // Each test binary uses its own part of this.

use mainspring_report::{Config, CpuReport, Report, ScheduleEntry, Telemetry, ThreadReport, WakeLatency};

pub fn thread(name: &str, weight: u16, runtime_ns: u64, entitled_ns: u64) -> ThreadReport {
    ThreadReport { name: name.to_owned(), weight, runtime_ns, entitled_ns, ..ThreadReport::default() }
}

pub fn entry(cpu: u32, thread: &str, start_ns: u64, end_ns: u64, reason: &str) -> ScheduleEntry {
    ScheduleEntry { cpu, thread: thread.to_owned(), start_ns, end_ns, reason: reason.to_owned() }
}

/// Three threads on two CPUs: one above its due, one that missed, one behind with too much lag.
pub fn small() -> Report {
    Report {
        machine: "sim".to_owned(),
        config: Config {
            workload: "tour.toml".to_owned(),
            policy: "eevdf".to_owned(),
            quantum_ns: 3_000_000,
            tick_ns: 10_000_000,
        },
        seed: 42,
        duration_ns: 1_000_000_000,
        decisions: 12_345,
        wall_ns: 3_210_000,
        digest: "00112233aabbccdd".to_owned(),
        cpus: cpus(2),
        threads: threads(),
        telemetry: Telemetry {
            ticks_suppressed: [("0,idle".to_owned(), 3), ("1,idle".to_owned(), 40)].into(),
            steals: 7,
            ..Telemetry::default()
        },
        schedule: Some(vec![
            entry(0, "hog", 0, 3_000_000, "preempted"),
            entry(1, "editor", 500, 300_500, "blocked"),
            entry(0, "batch", 3_001_000, 4_000_001, "yielded"),
            entry(1, "hog", 4_000_001, 5_000_000, "end"),
        ]),
    }
}

fn threads() -> Vec<ThreadReport> {
    let latency = WakeLatency { p50: 1_234, p99: 56_700, max: 1_500_000 };
    vec![
        ThreadReport {
            ready_ns: 20_000_000,
            preemptions: 310,
            ..thread("hog", 128, 960_000_000, 800_000_000)
        },
        ThreadReport {
            ready_ns: 1_000_000,
            blocked_ns: 940_000_000,
            wakeups: 61,
            wake_latency_ns: latency,
            lag_max_ns: 290_000,
            voluntary_blocks: 61,
            misses: 2,
            ..thread("editor", 64, 18_300_000, 18_300_000)
        },
        ThreadReport {
            ready_ns: 500_000_000,
            lag_max_ns: 4_500_000,
            migrations: 12,
            ..thread("batch", 32, 400_000_000, 480_000_000)
        },
    ]
}

pub fn cpus(n: u32) -> Vec<CpuReport> {
    (0..n)
        .map(|id| CpuReport {
            id,
            busy_ns: 1_000_000_000 - u64::from(id) * 10_000_000,
            idle_ns: u64::from(id) * 10_000_000,
            ticks: 100 - u64::from(id),
            ticks_suppressed: u64::from(id),
            reschedules: 5,
            timer_interrupts: 200,
            steals: 7 * u64::from(id),
            queue_depth_max: 3,
        })
        .collect()
}
