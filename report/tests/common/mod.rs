//! A small report that every format is tested on.

#![allow(dead_code)] // Each test binary uses its own part of this.

use mainspring_report::{
    Config, ContextReport, CpuReport, EndpointReport, Event, Expected, IslandReport, Job, JobsReport,
    LeaseReport, Miss, MissKind, Report, RingReport, ScheduleEntry, Telemetry, ThreadReport, WakeLatency,
    Worst,
};

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
        ..Report::default()
    }
}

/// As [`small`], with something of each kind of granted time.
pub fn granted() -> Report {
    let job = Job {
        thread: "editor".to_owned(),
        ..Job::new(16_000_000, 32_000_000).ran(Some(17_000_000), Some(33_000_000))
    };
    let mut miss = Miss { number: 1, thread: Some(job.thread.clone()), ..Miss::of_job(&job, MissKind::Late) };
    miss.context = Some("audio".to_owned());
    let response = Worst { p50: 2_000_000, p99: 17_000_000, max: 17_000_000, max_at_ns: 16_000_000 };
    let mut threads = threads();
    threads[0].jobs = Some(JobsReport {
        finished: 60,
        response_ns: Some(response.clone()),
        slack_min_ns: Some(-1_000_000),
        first_miss_ns: Some(32_000_000),
    });
    Report {
        threads,
        misses: vec![miss],
        misses_total: 3,
        expectations: vec![
            Expected {
                what: "the run: no misses".to_owned(),
                found: "3 misses".to_owned(),
                held: false,
                line: Some(7),
            },
            Expected {
                what: "hog: |lag| at most 3ms".to_owned(),
                found: "|lag| 1ms".to_owned(),
                held: true,
                line: None,
            },
        ],
        jobs: Some(vec![job]),
        endpoints: vec![EndpointReport {
            name: "orders".to_owned(),
            calls: 80,
            replies: 77,
            failures: 2,
            pending: 1,
            latency_ns: Some(response),
            callers: vec!["editor".to_owned()],
            servers: vec!["batch".to_owned()],
        }],
        contexts: vec![
            ContextReport {
                name: "audio".to_owned(),
                cpu: Some(1),
                budget_ns: 2_000_000,
                period_ns: 10_000_000,
                deadline_ns: 5_000_000,
                criticality: 3,
                priority: 7,
                granted_ns: 200_000_000,
                used_ns: 150_000_000,
                donated_ns: 30_000_000,
                depletions: 4,
                misses: 0,
                overshoot_max_ns: 0,
                generation: 1,
                state: "bound".to_owned(),
            },
            ContextReport {
                name: "voice.0".to_owned(),
                cpu: None,
                budget_ns: 1_500_000,
                period_ns: 20_000_000,
                deadline_ns: 20_000_000,
                granted_ns: 30_000_000,
                used_ns: 30_000_000,
                misses: 2,
                overshoot_max_ns: 1_234,
                generation: 2,
                state: "revoked".to_owned(),
                ..ContextReport::default()
            },
        ],
        leases: vec![LeaseReport {
            name: "quiet".to_owned(),
            cpus: vec![1, 2, 3],
            thread: "editor".to_owned(),
            state: "active".to_owned(),
            activations: 3,
            tickless_ns: 700_000_000,
            ticks_suppressed: 69,
            exits: [("second-runnable".to_owned(), 2)].into(),
        }],
        islands: vec![
            IslandReport {
                name: "graph".to_owned(),
                admitted: true,
                reason: "every demand is met".to_owned(),
            },
            IslandReport {
                name: "arm".to_owned(),
                admitted: false,
                reason: "memory \"heap\" may fault".to_owned(),
            },
        ],
        rings: vec![RingReport {
            name: "disk".to_owned(),
            submitted: 1_000,
            completed: 998,
            dropped: 3,
            late: 4,
            overflow: 1,
            wakeups: 12,
            sleeps: 13,
            spins_ns: 650_000,
            busy_ns: 1_000_000,
            mode: "sqpoll-sleeping".to_owned(),
        }],
        notices: vec!["contexts on cpu 0 are not admitted: 11ms are due within 10ms".to_owned()],
        events: Some(events()),
        ..small()
    }
}

fn events() -> Vec<Event> {
    vec![
        Event {
            cpu: Some(1),
            context: Some("audio".to_owned()),
            refills: Some(vec![(10_000_000, 2_000_000)]),
            ..Event::new(0, "refill")
        },
        Event {
            cpu: Some(0),
            context: Some("audio".to_owned()),
            thread: Some("hog".to_owned()),
            to: Some("editor".to_owned()),
            ..Event::new(3_001_000, "donate")
        },
        Event {
            thread: Some("batch".to_owned()),
            reason: Some("stale generation".to_owned()),
            ..Event::new(3_500_000, "bind")
        },
        Event { reason: Some("no answer".to_owned()), ..Event::new(6_000_000, "policy-slow") },
    ]
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
            overhead_ns: [("switch".to_owned(), 1_000_000), ("tick".to_owned(), 250_000)].into(),
            ticks: 100 - u64::from(id),
            ticks_suppressed: u64::from(id),
            reschedules: 5,
            timer_interrupts: 200,
            steals: 7 * u64::from(id),
            queue_depth_max: 3,
        })
        .collect()
}
