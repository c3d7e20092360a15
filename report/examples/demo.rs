//! Makes up a report and writes it in every format, to look at: `demo DIR [CPUS] [INSTANCES] [MILLISECONDS]`.
//!
//! The schedule comes from a toy scheduler, just good enough to look real; the numbers are its own.

use mainspring_report::{
    Config, ContextReport, CpuReport, Event, IslandReport, LeaseReport, Report, RingReport, ScheduleEntry,
    Telemetry, TextStyle, ThreadReport, WakeLatency, html, json, perfetto, text,
};
use std::{error::Error, fs::File, path::PathBuf};

const QUANTUM_NS: u64 = 3_000_000;

/// What a thread does: runs for about `burst_ns`, then sleeps for about `sleep_ns`.
struct Kind(&'static str, usize, u16, u64, u64);

struct Thread {
    row: ThreadReport,
    burst_ns: u64,
    sleep_ns: u64,
    left_ns: u64,
    ready_at: u64,
    virtual_ns: u64,
    cpu: usize,
    woken: bool,
    latencies: Vec<u64>,
}

struct Toy {
    random: u64,
    clocks: Vec<u64>,
    queues: Vec<Vec<usize>>,
    threads: Vec<Thread>,
    schedule: Vec<ScheduleEntry>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().unwrap_or_else(|| ".".to_owned()));
    let mut number = |default: u64| args.next().map_or(Ok(default), |text| text.parse());
    let (cpus, instances, millis) = (number(2)? as usize, number(6)? as usize, number(2_000)?);
    let mut toy = Toy::new(cpus.max(1), instances);
    toy.run(millis * 1_000_000);
    let report = toy.report(millis * 1_000_000);
    print!("{}", text(&report, TextStyle { colour: std::env::var_os("COLOUR").is_some(), ..columns() }));
    std::fs::write(folder.join("demo.json"), json(&report))?;
    html(&report, &mut File::create(folder.join("demo.html"))?)?;
    perfetto(&report, &mut File::create(folder.join("demo.trace.json"))?)?;
    Ok(())
}

fn columns() -> TextStyle {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).unwrap_or(120);
    TextStyle { columns, ..TextStyle::default() }
}

impl Toy {
    fn new(cpus: usize, instances: usize) -> Self {
        let kinds = [
            Kind("hog", 1, 128, 900_000_000, 1_000),
            Kind("editor", 1, 64, 300_000, 16_000_000),
            Kind("audio", 1, 96, 900_000, 5_000_000),
            Kind("net", 1, 64, 80_000, 1_700_000),
            Kind("compile", instances, 32, 8_000_000, 2_000_000),
            Kind("logger", 1, 16, 40_000, 50_000_000),
            Kind("indexer", 1, 8, 60_000_000, 90_000_000),
        ];
        let mut toy = Self {
            random: 42,
            clocks: vec![0; cpus],
            queues: vec![Vec::new(); cpus],
            threads: Vec::new(),
            schedule: Vec::new(),
        };
        for Kind(name, count, weight, burst_ns, sleep_ns) in kinds {
            for instance in 0..count {
                let name = if count > 1 { format!("{name}.{instance}") } else { name.to_owned() };
                toy.admit(ThreadReport { name, weight, ..ThreadReport::default() }, burst_ns, sleep_ns);
            }
        }
        toy
    }

    fn admit(&mut self, row: ThreadReport, burst_ns: u64, sleep_ns: u64) {
        let number = self.threads.len();
        let cpu = number % self.clocks.len();
        let ready_at = self.about(sleep_ns.min(20_000_000));
        self.queues[cpu].push(number);
        self.threads.push(Thread {
            row,
            burst_ns,
            sleep_ns,
            left_ns: burst_ns,
            ready_at,
            virtual_ns: 0,
            cpu,
            woken: true,
            latencies: Vec::new(),
        });
    }

    /// Between a half and three halves of `n`.
    fn about(&mut self, n: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        n / 2 + (self.random >> 33) % (n + 1)
    }

    fn run(&mut self, end_ns: u64) {
        while let Some(cpu) = (0..self.clocks.len()).min_by_key(|&cpu| self.clocks[cpu]) {
            let now = self.clocks[cpu];
            if now >= end_ns {
                break;
            }
            let ready = self.queues[cpu].iter().copied().filter(|&i| self.threads[i].ready_at <= now);
            if let Some(chosen) = ready.min_by_key(|&i| self.threads[i].virtual_ns) {
                self.dispatch(cpu, chosen, end_ns);
            } else if let Some(stolen) = self.steal(now) {
                self.migrate(stolen, cpu);
            } else {
                // In short steps: a thread may yet move here.
                let next = self.queues[cpu].iter().map(|&i| self.threads[i].ready_at).min();
                self.clocks[cpu] = next.unwrap_or(end_ns).min(now + 200_000).min(end_ns);
            }
        }
        self.schedule.sort_by_key(|entry| (entry.start_ns, entry.cpu));
    }

    fn dispatch(&mut self, cpu: usize, chosen: usize, end_ns: u64) {
        let start_ns = self.clocks[cpu] + 1_000;
        let slice = self.threads[chosen].left_ns.min(QUANTUM_NS).min(end_ns.saturating_sub(start_ns));
        let stop = start_ns + slice;
        let thread = &mut self.threads[chosen];
        let waited = start_ns - thread.ready_at.min(start_ns);
        thread.row.ready_ns += waited;
        thread.row.switches += 1;
        if std::mem::take(&mut thread.woken) {
            thread.row.wakeups += 1;
            thread.latencies.push(waited);
        }
        thread.row.runtime_ns += slice;
        thread.virtual_ns += slice * 64 / u64::from(thread.row.weight);
        thread.left_ns -= slice;
        thread.ready_at = stop;
        let reason = if stop >= end_ns {
            "end"
        } else if thread.left_ns == 0 {
            "blocked"
        } else {
            "preempted"
        };
        thread.row.preemptions += u64::from(reason == "preempted");
        let name = thread.row.name.clone();
        self.schedule.push(ScheduleEntry {
            cpu: cpu as u32,
            thread: name,
            start_ns,
            end_ns: stop.max(start_ns),
            reason: reason.to_owned(),
        });
        self.clocks[cpu] = stop.max(start_ns);
        if reason == "blocked" {
            self.block(chosen, stop);
        }
    }

    fn block(&mut self, chosen: usize, now: u64) {
        let asleep = self.about(self.threads[chosen].sleep_ns);
        let burst = self.about(self.threads[chosen].burst_ns);
        let next = self.about(self.clocks.len() as u64 * 7) as usize % self.clocks.len();
        let floor = self.queues[next].iter().map(|&i| self.threads[i].virtual_ns).min().unwrap_or(0);
        let thread = &mut self.threads[chosen];
        thread.row.voluntary_blocks += 1;
        thread.row.blocked_ns += asleep;
        thread.ready_at = now + asleep;
        thread.left_ns = burst;
        thread.woken = true;
        thread.virtual_ns = thread.virtual_ns.max(floor);
        self.migrate(chosen, next);
    }

    fn migrate(&mut self, chosen: usize, next: usize) {
        let thread = &mut self.threads[chosen];
        let from = std::mem::replace(&mut thread.cpu, next);
        thread.row.migrations += u64::from(from != next);
        self.queues[from].retain(|&i| i != chosen);
        self.queues[next].push(chosen);
    }

    /// A thread that has been waiting on some CPU for longer than a quantum.
    fn steal(&self, now: u64) -> Option<usize> {
        (0..self.threads.len()).find(|&i| self.threads[i].ready_at + QUANTUM_NS < now)
    }

    fn report(self, duration_ns: u64) -> Report {
        let mut busy = vec![0; self.clocks.len()];
        for entry in &self.schedule {
            busy[entry.cpu as usize] += entry.end_ns - entry.start_ns;
        }
        let cpu = |(id, &busy_ns): (usize, &u64)| CpuReport {
            id: id as u32,
            busy_ns,
            idle_ns: duration_ns - busy_ns,
            overhead_ns: [("switch".to_owned(), busy_ns / 1_000)].into(),
            ticks: busy_ns / 10_000_000,
            ticks_suppressed: (duration_ns - busy_ns) / 10_000_000,
            reschedules: busy_ns / 7_654_321,
            timer_interrupts: busy_ns / 4_321_098,
            steals: busy_ns % 31,
            queue_depth_max: 3 + busy_ns % 5,
        };
        let decisions = self.schedule.len() as u64;
        let telemetry = Telemetry {
            ticks_suppressed: [("0,idle".to_owned(), 12), ("1,idle".to_owned(), 31)].into(),
            nohz_exit_count: [("0,wake".to_owned(), 9), ("1,deadline".to_owned(), 17)].into(),
            steals: 27,
            reschedules_sent: 311,
            ..Telemetry::default()
        };
        let events = grants(&self.schedule);
        Report {
            machine: "sim".to_owned(),
            config: Config {
                workload: "workloads/tour.toml".to_owned(),
                policy: "eevdf".to_owned(),
                quantum_ns: QUANTUM_NS,
                tick_ns: 10_000_000,
            },
            seed: 42,
            duration_ns,
            decisions,
            wall_ns: decisions * 271,
            digest: "9f3c61d20b7ae845".to_owned(),
            cpus: busy.iter().enumerate().map(cpu).collect(),
            threads: self.threads.into_iter().map(Thread::finish).collect(),
            telemetry,
            schedule: Some(self.schedule),
            events: Some(events),
            ..granted()
        }
    }
}

/// What an audio thread with a context of its own would leave behind: its refills, and what it lends.
fn grants(schedule: &[ScheduleEntry]) -> Vec<Event> {
    let mut events = Vec::new();
    for entry in schedule.iter().filter(|entry| entry.thread == "audio") {
        let event = |time_ns, kind: &str| Event {
            cpu: Some(entry.cpu),
            context: Some("audio".to_owned()),
            thread: Some("audio".to_owned()),
            ..Event::new(time_ns, kind)
        };
        let used = entry.end_ns - entry.start_ns;
        let refills =
            vec![(entry.start_ns + 5_000_000, used), (entry.start_ns, 2_000_000_u64.saturating_sub(used))];
        let to = Some("net".to_owned());
        events.push(Event { refills: Some(refills), ..event(entry.start_ns, "refill") });
        events.push(Event { to: to.clone(), ..event(entry.start_ns + used / 3, "donate") });
        events.push(Event {
            to,
            reason: Some("reply".to_owned()),
            ..event(entry.start_ns + used / 2, "return")
        });
        if used > 1_200_000 {
            events.push(Event { amount_ns: Some(used), ..event(entry.end_ns, "deplete") });
        }
    }
    events.push(Event {
        reason: Some("no answer for 100ms".to_owned()),
        ..Event::new(400_000_000, "policy-slow")
    });
    events.sort_by_key(|event| event.time_ns);
    events
}

fn granted() -> Report {
    let context = |name: &str, budget_us: u64, period_us: u64, used_ns, misses| ContextReport {
        name: name.to_owned(),
        cpu: Some(1),
        budget_ns: budget_us * 1_000,
        period_ns: period_us * 1_000,
        deadline_ns: period_us * 1_000,
        granted_ns: 2_000_000_000 * budget_us / period_us,
        used_ns,
        donated_ns: used_ns / 6,
        depletions: 17,
        misses,
        generation: 1,
        state: "bound".to_owned(),
        ..ContextReport::default()
    };
    let island = |name: &str, admitted, reason: &str| IslandReport {
        name: name.to_owned(),
        admitted,
        reason: reason.to_owned(),
    };
    Report {
        contexts: vec![
            context("audio", 2_000, 5_000, 310_000_000, 0),
            context("arm", 400, 1_000, 795_000_000, 3),
        ],
        islands: vec![
            island("studio", true, "the demand is at most 43 % of each interval"),
            island("robot", false, "memory \"heap\" is not resident: an access may fault"),
        ],
        leases: vec![LeaseReport {
            name: "quiet".to_owned(),
            cpus: vec![1],
            thread: "net".to_owned(),
            state: "active".to_owned(),
            activations: 4,
            tickless_ns: 812_000_000,
            ticks_suppressed: 80,
            exits: [("second-runnable".to_owned(), 2), ("timer".to_owned(), 1)].into(),
        }],
        rings: vec![RingReport {
            name: "disk".to_owned(),
            submitted: 12_345,
            completed: 12_345,
            dropped: 12,
            late: 3,
            wakeups: 401,
            sleeps: 402,
            spins_ns: 20_100_000,
            busy_ns: 12_345_000,
            mode: "sqpoll-sleeping".to_owned(),
            ..RingReport::default()
        }],
        notices: vec!["contexts on cpu 1 are not admitted: 5.4ms are due within 5ms".to_owned()],
        ..Report::default()
    }
}

impl Thread {
    fn finish(mut self) -> ThreadReport {
        self.latencies.sort_unstable();
        let at = |per_mille: usize| {
            let last = self.latencies.len().saturating_sub(1);
            self.latencies.get(last * per_mille / 1_000).copied().unwrap_or(0)
        };
        self.row.wake_latency_ns = WakeLatency { p50: at(500), p99: at(990), max: at(1_000) };
        // Something to see in the bars: most are near their due, one is behind, one ahead.
        self.row.entitled_ns = match self.row.name.as_str() {
            "hog" => self.row.runtime_ns * 94 / 100,
            "indexer" => self.row.runtime_ns * 140 / 100,
            _ => self.row.runtime_ns + self.row.runtime_ns / 200,
        };
        self.row.lag_max_ns = at(900).min(QUANTUM_NS * 5 / 4) * 9 / 10;
        self.row.misses = u64::from(self.row.name == "audio") * 3;
        self.row
    }
}
